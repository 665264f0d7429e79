//! `manyways flows schema`: documentation of the tables.

use std::process::ExitCode;

use anyhow::Result;
use manyways_flows::SCHEMA;
use manyways_flows::analysis::schemas;
use manyways_record::document;
use manyways_record::table::{Kind, Schema};
use serde::Serialize;

/// Print the schema of the tables: each column with its type and meaning.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways flows schema
  manyways flows schema | grep rtt
  manyways flows schema --json")]
pub struct Args {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    /// The number in the document's schema.
    version: u32,
    tables: Vec<Table>,
}

document!(Document, SCHEMA);

#[derive(Serialize)]
struct Table {
    name: &'static str,
    /// Name and version, as in the metadata of the Parquet file.
    schema: &'static str,
    about: &'static str,
    columns: Vec<Column>,
}

#[derive(Serialize)]
struct Column {
    name: &'static str,
    kind: &'static str,
    /// Type in the Parquet file.
    parquet: &'static str,
    /// Unit of a value. `None` if its kind has no unit.
    unit: Option<&'static str>,
    about: &'static str,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let schemas = schemas();
    if args.json {
        return super::print(&document::to_json_pretty(&document(&schemas))?);
    }
    let chapters: Vec<String> = schemas.iter().map(Schema::to_string).collect();
    super::print(&chapters.join("\n"))
}

fn document(schemas: &[Schema]) -> Document {
    let table = |schema: &Schema| Table {
        name: schema.table,
        schema: schema.id,
        about: schema.about,
        columns: schema.columns.iter().map(|column| column_document(*column)).collect(),
    };
    let version = SCHEMA.rsplit('/').next().and_then(|version| version.parse().ok());
    let tables = schemas.iter().map(table).collect();
    Document { version: version.unwrap_or_default(), tables }
}

fn column_document((name, kind, about): (&'static str, Kind, &'static str)) -> Column {
    let (kind, parquet, unit) = match kind {
        Kind::Time => ("time", "INT64 TIMESTAMP(NANOS,UTC)", Some("ns since 1970-01-01T00:00:00Z")),
        Kind::Span => ("span", "DOUBLE", Some("s")),
        Kind::Count => ("count", "INT64", None),
        Kind::Number => ("number", "DOUBLE", None),
        Kind::Flag => ("flag", "BOOLEAN", None),
        Kind::Text => ("text", "BYTE_ARRAY STRING", None),
        Kind::Address => ("address", "BYTE_ARRAY STRING", None),
        Kind::Name => ("name", "BYTE_ARRAY STRING", None),
        Kind::Flow => ("flow", "INT64", None),
    };
    Column { name, kind, parquet, unit, about }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_document_has_all_tables() {
        let schemas = schemas();
        let document = serde_json::to_value(document(&schemas)).unwrap();
        assert_eq!(format!("manyways-flows/{}", document["version"]), SCHEMA);
        let tables = document["tables"].as_array().unwrap();
        assert_eq!(tables.len(), schemas.len());
        for (schema, table) in schemas.iter().zip(tables) {
            assert_eq!(table["name"], schema.table);
            assert_eq!(table["schema"], schema.id);
            assert_eq!(table["columns"].as_array().unwrap().len(), schema.columns.len());
        }
        let started = tables[0]["columns"].as_array().unwrap();
        let started = started.iter().find(|column| column["name"] == "started").unwrap();
        assert_eq!(
            (&started["kind"], &started["parquet"]),
            (&"time".into(), &"INT64 TIMESTAMP(NANOS,UTC)".into())
        );
        assert!(tables.iter().any(|table| table["name"] == "delays"));
    }
}
