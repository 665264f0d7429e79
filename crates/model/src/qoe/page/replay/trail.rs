//! The last cause of each activity of a replay.

use super::super::wait::Point;

#[derive(Clone, PartialEq, Debug, Default)]
pub(in super::super) struct Trail {
    pub requests: Vec<RequestTrail>,
    pub tasks: Vec<TaskTrail>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct RequestTrail {
    pub issued: f64,
    pub started: f64,
    pub sent: f64,
    pub first_byte: f64,
    pub ended: f64,
    /// When the connection began to be opened, if the request waited for that.
    pub connecting: Option<f64>,
    pub cause: Point,
    /// The request whose end let this one start.
    pub released_by: Option<usize>,
    /// The request that left its connection to this one.
    pub connection_of: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct TaskTrail {
    pub start: f64,
    pub end: f64,
    /// The last thing that the task waited for, before it could run.
    pub cause: Point,
    /// After that, the main thread was busy until the end of this task.
    pub thread: Option<usize>,
}

impl Default for RequestTrail {
    fn default() -> Self {
        Self {
            issued: 0.0,
            started: 0.0,
            sent: 0.0,
            first_byte: 0.0,
            ended: 0.0,
            connecting: None,
            cause: Point::Start,
            released_by: None,
            connection_of: None,
        }
    }
}

impl Default for TaskTrail {
    fn default() -> Self {
        Self { start: 0.0, end: 0.0, cause: Point::Start, thread: None }
    }
}
