//! Compares the documented schema with the tables.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the file")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;

use manyways_flows::analysis::schemas;

const FILE: &str = "../../docs/flows-schema.md";

#[test]
fn the_document_has_every_column() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = std::fs::read_to_string(file).unwrap();
    for schema in schemas() {
        let chapter = schema.to_string();
        let hint = "`manyways flows schema` prints what the document says";
        assert!(text.contains(&chapter), "{}: {hint}\n{chapter}", schema.table);
    }
}
