//! Tasks of a contender.

use std::ffi::OsString;

use manyways_trace::scenario::LinkState;
use manyways_unit::{Rate, Size, Span};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Files, with a limit of concurrent ones.
    Files {
        /// Size of each file.
        size: Size,
        /// Number of files.
        flows: u32,
        /// Number of concurrent files.
        at_once: u32,
    },
    /// One file that takes this time at the full rate of the links; the figure is its goodput.
    Bulk(Span),
    Requests {
        /// Size of each response.
        size: Size,
        /// Time between the starts of two requests.
        every: Span,
        count: u32,
        /// Whether all requests use one connection.
        keep: bool,
        /// Whether a large file is downloaded concurrently.
        bulk: bool,
    },
    /// A stream of 1 Mbit/s; the link that carries it is interrupted.
    Stall(LinkState),
    /// Datagrams in both directions for this time.
    Call(Span),
    /// This number of short connections, as fast as possible; the figure is connections per second.
    Rush(u32),
    /// This number of idle open connections; the figure is the memory for them.
    Crowd(u32),
    /// A web page with this number of objects.
    Page(usize),
    /// A call and a messenger, with or without a download of an app store; the figure is the bytes
    /// that they send over the cellular link.
    Apps {
        length: Span,
        /// Whether the app store downloads for the whole time.
        store: bool,
    },
    /// [`Task::Bulk`]; the figure is the share of spurious retransmissions in the received bytes.
    CountedBulk(Span),
}

/// Rate and duration of a stream that must not stall.
pub const STREAM: (Rate, Span) = (Rate::from_mbps(1), Span::from_secs(9));
/// Time after the start of [`STREAM`] at which its link is interrupted.
pub const INTERRUPTION_TIME: Span = Span::from_secs(4);
/// Name of a task of the four-application policy.
pub const CALL_AND_MESSENGER: &str = "cellular: call and messenger";
/// Name of the same task with the app store.
pub const WITH_STORE: &str = "cellular: call, messenger and app store";
/// Time by which a concurrent download outlasts the requests, at the rate of the links.
const EXTRA_DURATION: Span = Span::from_secs(4);

impl Task {
    pub const fn file(bytes: u64) -> Self {
        Self::Files { size: Size::from_bytes(bytes), flows: 1, at_once: 1 }
    }

    /// Name, which is unique in a cell.
    pub fn name(&self) -> String {
        match *self {
            Self::Files { size, flows: 1, .. } => size.to_string(),
            Self::Files { size, flows, at_once: 1 } => format!("{flows} × {size}, sequential"),
            Self::Files { size, flows, .. } => format!("{flows} × {size}, concurrent"),
            Self::Bulk(_) => "bulk".to_owned(),
            Self::Requests { size, every, keep, bulk, .. } => {
                let over = if keep { ", one connection" } else { "" };
                let during = if bulk { " during bulk" } else { "" };
                format!("requests of {size} each {} ms{over}{during}", whole_millis(every))
            }
            Self::Stall(LinkState::NoCarrier) => "interface down".to_owned(),
            Self::Stall(_) => "silent black hole".to_owned(),
            Self::Call(_) => "call".to_owned(),
            Self::Rush(_) => "new streams".to_owned(),
            Self::Crowd(count) => format!("{count} idle streams"),
            Self::Page(objects) => format!("page of {objects}"),
            Self::Apps { store: false, .. } => CALL_AND_MESSENGER.to_owned(),
            Self::Apps { store: true, .. } => WITH_STORE.to_owned(),
            Self::CountedBulk(_) => "sent again for nothing".to_owned(),
        }
    }

    /// Unit of the figure. A higher figure is better for rates, a lower one for all others.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Files { .. } | Self::Page(_) => "s",
            Self::Bulk(_) => "Mbit/s",
            Self::Requests { .. } | Self::Stall(_) | Self::Call(_) => "ms",
            Self::Rush(_) => "1/s",
            Self::Crowd(_) => "MiB",
            Self::Apps { .. } => "B",
            Self::CountedBulk(_) => "%",
        }
    }

    /// Converts a reported value in seconds to the unit; other values are unchanged.
    pub fn shown(&self, value: f64) -> f64 {
        if self.unit() == "ms" { value * 1000.0 } else { value }
    }

    /// Converts the result of a load generator to the figure, for links of this total rate.
    pub fn figure(&self, told: f64, rate: Rate) -> f64 {
        match *self {
            Self::Bulk(span) => Self::bulk(span, rate).as_bytes() as f64 * 8.0 / 1e6 / told,
            Self::Rush(count) => f64::from(count) / told,
            _ => self.shown(told),
        }
    }

    /// Size of the file of a bulk transfer, for links of this total rate.
    pub fn bulk(span: Span, rate: Rate) -> Size {
        // Whole packets, so that no run ends with a small one.
        Size::from_bytes(rate.size_in(span).as_bytes() / 1000 * 1000)
    }

    /// Arguments of the load generator, for links of this total rate.
    pub fn arguments(&self, rate: Rate) -> Vec<OsString> {
        let words: Vec<String> = match *self {
            Self::Files { size, flows, at_once } => vec![
                format!("files --size {}", size.as_bytes()),
                format!("--flows {flows} --at-once {at_once}"),
            ],
            Self::Bulk(span) | Self::CountedBulk(span) => {
                vec![format!("files --size {}", Self::bulk(span, rate).as_bytes())]
            }
            Self::Requests { size, every, count, keep, bulk } => {
                let duration =
                    EXTRA_DURATION + Span::from_nanos(every.as_nanos() * u64::from(count));
                let large = if bulk { Self::bulk(duration * 2, rate) } else { Size::ZERO };
                let keep = if keep { "--keep" } else { "" };
                vec![
                    format!(
                        "requests --size {} --every {}ms",
                        size.as_bytes(),
                        whole_millis(every)
                    ),
                    format!("--count {count} --bulk {} {keep}", large.as_bytes()),
                ]
            }
            Self::Stall(_) => {
                let (rate, length) = STREAM;
                vec![format!(
                    "stream --rate {}kbit --length {}ms",
                    rate.as_bps() / 1000,
                    whole_millis(length)
                )]
            }
            Self::Call(length) => vec![format!("call --length {}ms", whole_millis(length))],
            Self::Rush(count) => {
                vec![format!("files --size 100 --flows {count} --at-once 64")]
            }
            Self::Crowd(count) => vec![format!("crowd --count {count}")],
            Self::Page(objects) => vec![format!("browse --objects {objects}")],
            // Each application is a separate task.
            Self::Apps { .. } => Vec::new(),
        };
        words.join(" ").split_whitespace().map(OsString::from).collect()
    }

    /// Estimated duration in seconds, for links of this total rate with this longest round-trip
    /// time.
    pub fn seconds(&self, rate: Rate, round_trip: Span) -> f64 {
        let trip = round_trip.as_secs_f64();
        match *self {
            Self::Files { size, flows, at_once } => {
                let turns = f64::from(flows.div_ceil(at_once.max(1)));
                let all = size.as_bytes() as f64 * 8.0 * f64::from(flows);
                // Slow start takes longer than the bytes of a small file.
                turns * 3.0 * trip + all / rate.as_bps().max(1) as f64 * 1.3
            }
            Self::Bulk(span) | Self::CountedBulk(span) => span.as_secs_f64() * 1.2,
            Self::Requests { every, count, bulk, .. } => {
                every.as_secs_f64() * f64::from(count) + if bulk { 2.5 } else { 0.5 }
            }
            Self::Stall(_) => STREAM.1.as_secs_f64() + 2.5,
            Self::Call(length) => length.as_secs_f64() + 0.5,
            Self::Rush(count) | Self::Crowd(count) => f64::from(count) / 5_000.0 + 1.0,
            // The browser's start and end, and about 22 KB per object.
            Self::Page(objects) => {
                1.6 + 8.0 * trip + objects as f64 * 22e3 * 8.0 / rate.as_bps().max(1) as f64 * 1.2
            }
            Self::Apps { length, .. } => length.as_secs_f64() * 1.1 + 1.0,
        }
    }
}

fn whole_millis(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_names_of_their_own() {
        let files = |flows, at_once| Task::Files { size: Size::from_bytes(10_000), flows, at_once };
        assert_eq!(Task::file(10_000).name(), "10 KB");
        assert_eq!(files(5, 1).name(), "5 × 10 KB, sequential");
        assert_eq!(files(5, 5).name(), "5 × 10 KB, concurrent");
        assert_eq!(Task::Stall(LinkState::Silent).name(), "silent black hole");
    }

    #[test]
    fn a_file_is_as_long_as_it_shall_take() {
        let arguments = Task::Bulk(Span::from_secs(8)).arguments(Rate::from_mbps(10));
        assert_eq!(arguments, ["files", "--size", "10000000"]);
    }
}
