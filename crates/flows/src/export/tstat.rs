//! Flows as lines of the logs that Tstat 3 writes: `log_tcp_complete`, `log_tcp_nocomplete` and
//! `log_udp_complete`, with their columns and headers (Tstat 3.1's description of its logs).
//!
//! A log of complete connections has all sets of columns but the advanced one, which its header's
//! `#15#` says; the log of the others has the core set only. Times are milliseconds, but for how
//! long a UDP flow took. A column without a figure here is 0, or `-` where it is a text:
//! [`Log::unknown`] lists them.

mod columns;

use std::fmt::Write;

use columns::{CORE, Cell, Column, FlowRow, TCP, UDP};
use manyways_record::table::Value;

/// A log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// TCP connections with a whole handshake and an end, by FIN or RST.
    TcpComplete,
    /// All other TCP connections.
    TcpNocomplete,
    /// UDP flows.
    UdpComplete,
}

impl Log {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::TcpComplete, Self::TcpNocomplete, Self::UdpComplete];

    /// What its file is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpComplete => "log_tcp_complete",
            Self::TcpNocomplete => "log_tcp_nocomplete",
            Self::UdpComplete => "log_udp_complete",
        }
    }

    /// The table whose rows it takes.
    pub fn table(self) -> &'static str {
        match self {
            Self::TcpComplete | Self::TcpNocomplete => "tcp",
            Self::UdpComplete => "udp",
        }
    }

    /// The names of the columns whose values [`Log::line`] takes, in their order. Those that the
    /// table has not are absent.
    pub fn takes(self) -> &'static [&'static str] {
        FlowRow::COLUMNS
    }

    /// Appends the first line.
    pub fn header(self, out: &mut String) {
        out.push_str(match self {
            Self::TcpComplete | Self::TcpNocomplete => "#15#",
            Self::UdpComplete => "#",
        });
        for (column, number) in self.columns().zip(1..) {
            let before = if number > 1 { " " } else { "" };
            // What is written to a string cannot fail.
            let _ = write!(out, "{before}{}:{number}", column.name);
        }
        out.push('\n');
    }

    /// Appends the line of a flow, where it belongs into this log; says whether it does. Of an
    /// anonymised table, addresses are marked as such.
    pub fn line(self, row: Vec<Value<'_>>, is_anonymized: bool, out: &mut String) -> bool {
        let Some(flow) = FlowRow::of(row) else { return false };
        let is_its = match self {
            Self::TcpComplete => flow.is_complete(),
            Self::TcpNocomplete => !flow.is_complete(),
            Self::UdpComplete => true,
        };
        if is_its {
            for (place, column) in self.columns().enumerate() {
                if place > 0 {
                    out.push(' ');
                }
                let cell = column.value.map_or(Cell::Whole(0), |value| value(&flow));
                write_cell(cell, is_anonymized, out);
            }
            out.push('\n');
        }
        is_its
    }

    /// The columns without a figure here, in their order.
    pub fn unknown(self) -> Vec<&'static str> {
        let is_unknown = |column: &&Column| column.value.is_none() || column.is_text_unknown;
        self.columns().filter(is_unknown).map(|column| column.name).collect()
    }

    fn columns(self) -> impl Iterator<Item = &'static Column> {
        let sets: &[&[Column]] = match self {
            Self::TcpComplete => &TCP,
            Self::TcpNocomplete => &[CORE],
            Self::UdpComplete => &[UDP],
        };
        sets.iter().flat_map(|set| set.iter())
    }
}

fn write_cell(cell: Cell<'_>, is_anonymized: bool, out: &mut String) {
    let _ = match cell {
        Cell::Whole(number) => write!(out, "{number}"),
        // As C writes a double: milliseconds with six decimals, here of exact nanoseconds.
        Cell::Millis(nanos) => write!(out, "{}.{:06}", nanos / 1_000_000, nanos % 1_000_000),
        Cell::Seconds(nanos) => {
            write!(out, "{}.{:06}", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
        }
        Cell::IsAnonymized => write!(out, "{}", u8::from(is_anonymized)),
        Cell::Text("") => write!(out, "-"),
        // A field ends at the next space.
        Cell::Text(text) => {
            out.extend(
                text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }),
            );
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests;
