//! Flows as lines of the logs of Tstat 3: `log_tcp_complete`, `log_tcp_nocomplete` and
//! `log_udp_complete`, with their columns and headers (Tstat 3.1's description of its logs).
//!
//! The log of complete connections has all sets of columns except the advanced one, as `#15#` in
//! its header declares; the log of incomplete ones has only the core set. Times are in
//! milliseconds, except the duration of a UDP flow. A column without a value is 0, or `-` for text:
//! [`Log::unknown_columns`] lists these columns.

mod columns;

use std::fmt::Write;

use columns::{CORE, Column, Field, FlowRow, TCP, UDP};
use manyways_record::table::Value;

/// A log of Tstat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// TCP connections with a complete handshake and an end, by FIN or RST.
    TcpComplete,
    /// All other TCP connections.
    TcpNocomplete,
    /// UDP flows.
    UdpComplete,
}

impl Log {
    pub const ALL: [Self; 3] = [Self::TcpComplete, Self::TcpNocomplete, Self::UdpComplete];

    /// Returns the file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpComplete => "log_tcp_complete",
            Self::TcpNocomplete => "log_tcp_nocomplete",
            Self::UdpComplete => "log_udp_complete",
        }
    }

    /// Returns the table from which the log is made.
    pub fn table(self) -> &'static str {
        match self {
            Self::TcpComplete | Self::TcpNocomplete => "tcp",
            Self::UdpComplete => "udp",
        }
    }

    /// Returns the names of the columns for [`Log::line`], in order. Columns that the table lacks
    /// are absent values.
    pub fn input_columns(self) -> &'static [&'static str] {
        FlowRow::COLUMNS
    }

    /// Appends the header line.
    pub fn header(self, out: &mut String) {
        out.push_str(match self {
            Self::TcpComplete | Self::TcpNocomplete => "#15#",
            Self::UdpComplete => "#",
        });
        for (column, number) in self.columns().zip(1..) {
            let before = if number > 1 { " " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(out, "{before}{}:{number}", column.name);
        }
        out.push('\n');
    }

    /// Appends the line of a flow if the flow belongs to this log. Returns whether it does. With
    /// `is_anonymized`, addresses are marked as anonymized.
    pub fn line(self, row: Vec<Value<'_>>, is_anonymized: bool, out: &mut String) -> bool {
        let Some(flow) = FlowRow::of(row) else { return false };
        let is_its = match self {
            Self::TcpComplete => flow.is_complete(),
            Self::TcpNocomplete => !flow.is_complete(),
            Self::UdpComplete => true,
        };
        if is_its {
            for (index, column) in self.columns().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                let cell = column.value.map_or(Field::Integer(0), |value| value(&flow));
                write_field(cell, is_anonymized, out);
            }
            out.push('\n');
        }
        is_its
    }

    /// Returns the columns without a value, in order.
    pub fn unknown_columns(self) -> Vec<&'static str> {
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

fn write_field(cell: Field<'_>, is_anonymized: bool, out: &mut String) {
    let _ = match cell {
        Field::Integer(number) => write!(out, "{number}"),
        // Milliseconds with six decimals like a C double, from exact nanoseconds.
        Field::Millis(nanos) => write!(out, "{}.{:06}", nanos / 1_000_000, nanos % 1_000_000),
        Field::Seconds(nanos) => {
            write!(out, "{}.{:06}", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
        }
        Field::IsAnonymized => write!(out, "{}", u8::from(is_anonymized)),
        Field::Text("") => write!(out, "-"),
        // A field ends at the next space.
        Field::Text(text) => {
            out.extend(
                text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }),
            );
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests;
