//! Analysis of a capture file, as rows with named columns.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use manyways_flows::analysis::{Aggregator, Analysis, Settings};
use manyways_record::table::{Batch, Data, Schema};
use manyways_wire::capture::{Reader, Step};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(i64),
    Number(f64),
    Flag(bool),
    Text(String),
}

/// The present values of a row, by column.
#[derive(Clone, Debug, Default)]
pub struct Row(BTreeMap<&'static str, Value>);

/// All tables of a capture.
#[derive(Debug, Default)]
pub struct Tables {
    rows: BTreeMap<&'static str, Vec<Row>>,
}

impl Tables {
    /// Analyses this file.
    #[track_caller]
    pub fn of(file: &Path) -> Self {
        Self::with(file, Settings::default())
    }

    #[track_caller]
    pub fn with(file: &Path, settings: Settings) -> Self {
        let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (mut reader, mut rest) = (Reader::default(), &bytes[..]);
        let (mut aggregator, mut analysis) = (Aggregator::new(&settings), Analysis::new(settings));
        loop {
            match reader.step(rest).expect("a capture of tcpdump can be read") {
                Step::Packet(packet, length) => {
                    analysis.handle_packet(&reader.interfaces()[packet.interface], &packet);
                    rest = &rest[length..];
                }
                Step::Other(length) => rest = &rest[length..],
                Step::More(_) => break,
            }
            while let Some(record) = analysis.poll() {
                aggregator.add(record);
            }
        }
        analysis.finish();
        while let Some(record) = analysis.poll() {
            aggregator.add(record);
        }
        let mut tables = Self::default();
        aggregator.flush(true, |schema, batch| {
            tables.rows.entry(schema.table).or_default().extend(rows(schema, batch));
        });
        tables
    }

    /// Returns the rows of a table, in its order.
    pub fn table(&self, name: &str) -> &[Row] {
        self.rows.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the flow of this client port. After the inner lab has dropped the state of a
    /// connection, its last packet may pass with the outer address, and forms a separate flow of
    /// one packet.
    #[track_caller]
    pub fn flow(&self, port: u16) -> &Row {
        let port = i64::from(port);
        let is_late = |row: &Row| {
            row.integer("up_packets").unwrap_or(0) + row.integer("down_packets").unwrap_or(0) == 1
        };
        let mut flows = self
            .table("tcp")
            .iter()
            .filter(|row| row.integer("client_port") == Some(port) && !is_late(row));
        let flow = flows.next().unwrap_or_else(|| panic!("no flow of port {port}: {self:?}"));
        assert!(flows.next().is_none(), "port {port} has two flows");
        flow
    }
}

impl Row {
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(Value::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    /// A number, or a span in seconds.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(Value::Number(value)) => Some(*value),
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Text(value)) => Some(value),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Flag(true))
    }

    /// A span in milliseconds.
    #[track_caller]
    pub fn millis(&self, name: &str) -> f64 {
        self.number(name).unwrap_or_else(|| panic!("no {name}: {self:?}")) * 1_000.0
    }

    /// A count; 0 if absent.
    pub fn count(&self, name: &str) -> i64 {
        self.integer(name).unwrap_or(0)
    }

    /// Formats these columns for the message of a failed assertion.
    pub fn describe(&self, names: &[&str]) -> String {
        let one = |name: &&str| match self.0.get(name) {
            Some(Value::Integer(value)) => format!("{name}={value}"),
            Some(Value::Number(value)) => format!("{name}={value:.5}"),
            Some(Value::Flag(value)) => format!("{name}={value}"),
            Some(Value::Text(value)) => format!("{name}={value}"),
            None => format!("{name}=-"),
        };
        names.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn rows(schema: &Schema, batch: &Batch) -> Vec<Row> {
    let mut rows = vec![Row::default(); batch.rows()];
    for ((name, ..), values) in schema.columns.iter().zip(batch.columns()) {
        let there = rows.iter_mut().zip(&values.present).filter(|(_, is_there)| **is_there);
        for (next, (row, _)) in there.enumerate() {
            let value = match &values.data {
                Data::Integer(all) => Value::Integer(all[next]),
                Data::Number(all) => Value::Number(all[next]),
                Data::Flag(all) => Value::Flag(all[next]),
                Data::Text(all, ends) => {
                    let begin = next.checked_sub(1).map_or(0, |before| ends[before]);
                    Value::Text(all[begin..ends[next]].to_owned())
                }
            };
            row.0.insert(name, value);
        }
    }
    rows
}
