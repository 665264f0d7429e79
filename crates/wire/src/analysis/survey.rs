//! All records of a run, put in order, joined, and handed out as tables.

use super::{FlowSecond, Record, Settings, Summary, TcpFlow};
use crate::table::{Batch, Row, Schema};

/// Collects what analyses hand out, in whatever order, and makes tables of it.
///
/// Rows come out sorted by their time, so that the same packets give the same tables however they
/// were spread over analyses. What is held is bounded by whoever calls [`Survey::flush`].
#[derive(Debug)]
pub struct Survey {
    tcp: Vec<TcpFlow>,
    seconds: Vec<FlowSecond>,
    summary: Summary,
}

impl Survey {
    /// Nothing was collected yet.
    pub fn new(settings: &Settings) -> Self {
        let _ = settings;
        Self { tcp: Vec::new(), seconds: Vec::new(), summary: Summary::default() }
    }

    /// One more.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Tcp(flow) => self.tcp.push(*flow),
            Record::Second(second) => self.seconds.push(second),
        }
    }

    /// What all that was handed out adds up to.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// How many records are held.
    pub fn held(&self) -> usize {
        self.tcp.len() + self.seconds.len()
    }

    /// Hands out what is held as rows of their tables. At the end of all, tables without a row come
    /// as well.
    pub fn flush(&mut self, is_end: bool, mut each: impl FnMut(&Schema, &Batch)) {
        self.tcp.sort_unstable_by_key(|flow| (flow.started(), flow.id));
        self.seconds.sort_unstable_by_key(|second| (second.begins, second.id));
        self.tcp.iter().for_each(|flow| self.summary.add(flow));
        hand_out(&mut self.tcp, is_end, &mut each);
        hand_out(&mut self.seconds, is_end, &mut each);
    }
}

/// The schemas of all tables.
pub fn schemas() -> Vec<Schema> {
    vec![Schema::of::<TcpFlow>(), Schema::of::<FlowSecond>()]
}

fn hand_out<R: Row>(rows: &mut Vec<R>, is_end: bool, each: &mut impl FnMut(&Schema, &Batch)) {
    if rows.is_empty() && !is_end {
        return;
    }
    let mut batch = Batch::of::<R>();
    rows.iter().for_each(|row| batch.push(row));
    rows.clear();
    each(&Schema::of::<R>(), &batch);
}
