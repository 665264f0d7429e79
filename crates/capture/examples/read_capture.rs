//! Reads a capture, writes its tables to a folder, and prints the TCP connections from there:
//! `cargo run --release -p manyways-capture --example read_capture -- trace.pcap tables`.

use std::error::Error;
use std::io::{Write, stdout};
use std::path::PathBuf;

use manyways_capture::{Folder, Progress, RunOptions, Sources, Tables, run};
use manyways_flows::analysis::Settings;
use manyways_record::table::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [capture, path] =
        <[PathBuf; 2]>::try_from(arguments).map_err(|_| "usage: read_capture CAPTURE FOLDER")?;
    let sources = Sources::find(&[capture])?;
    let mut folder = Folder::create(&path, false)?;
    let plan = RunOptions::new(Settings::default(), 2);
    let outcome = run(&sources.captures, &plan, Some(&mut folder), &Progress::default())?;
    for capture in &outcome.captures {
        println!("{}: {} packets", capture.name, capture.packets);
    }
    folder.finish("{}\n")?;

    let columns = ["server", "sni", "down_bytes", "rtt"];
    Tables::open(&path)?.read("tcp", &columns, |batch, kinds, _| {
        for row in batch.iter(kinds) {
            let cells: Vec<String> = row.iter().map(text).collect();
            writeln!(stdout(), "{}", cells.join("  "))?;
        }
        Ok(())
    })??;
    Ok(())
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Absent => "-".to_owned(),
        Value::Text(text) => text.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Number(number) => format!("{number:.3}"),
        other => format!("{other:?}"),
    }
}
