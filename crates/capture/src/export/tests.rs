use std::sync::Arc;

use manyways_flows::SCHEMA;
use manyways_flows::analysis::Settings;
use manyways_record::table::{Anonymizer, Batch, Row, Schema};
use parquet::basic::{Repetition, Type as Physical};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::*;
use crate::tests::{analyze, capture};
use crate::{Folder, Progress, RunOptions, Sources, run};

/// A folder with the tables of `flows` connections, and its path.
fn tables(flows: u8) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    fs::write(&file, capture(flows, |at| at)).unwrap();
    let folder = dir.path().join("tables");
    analyze(&[file], 1, &folder);
    (dir, folder)
}

/// The fields of each line of a file, separated by spaces or by commas; no field may contain the
/// separator.
fn lines(file: &Path, between: char) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split(between).map(str::to_owned).collect()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn each_table_becomes_a_file_of_csv() {
    let (dir, folder) = tables(5);
    let (tables, out) = (Tables::open(&folder).unwrap(), dir.path().join("csv"));
    let export = Export::new(&tables, Format::Csv, None).unwrap();
    let written = export.write_folder(&out, false).unwrap();
    let known: Vec<String> = tables.names().map(|name| format!("{name}.csv")).collect();
    assert_eq!(names(&out), known);
    let rows = |name: &str| written.iter().find(|one| one.name == name).unwrap().rows;
    // Tables of flows exist even without rows.
    assert_eq!((rows("tcp.csv"), rows("udp.csv"), rows("http.csv")), (5, 0, 5));
    assert_eq!(lines(&out.join("udp.csv"), ',').len(), 1);
    let tcp = lines(&out.join("tcp.csv"), ',');
    let schema: Vec<&str> =
        Schema::of::<manyways_flows::analysis::TcpFlow>().columns.iter().map(|c| c.0).collect();
    assert_eq!((tcp.len(), &tcp[0]), (6, &schema.iter().map(|name| (*name).to_owned()).collect()));
    let of = |row: usize, name: &str| {
        tcp[row][schema.iter().position(|column| *column == name).unwrap()].clone()
    };
    assert_eq!(of(1, "started"), "2023-11-14T22:13:20.000000000Z");
    assert_eq!(of(2, "started"), "2023-11-14T22:13:20.007000000Z");
    assert_eq!((of(1, "client").as_str(), of(1, "server_port").as_str()), ("10.0.0.0", "80"));
    assert_eq!((of(1, "is_valid").as_str(), of(1, "sni").as_str()), ("true", ""));
    assert_eq!((of(1, "duration").as_str(), of(1, "name").as_str()), ("0.11", "www.example.net"));
}

#[test]
fn one_table_is_a_stream() {
    let (_place, folder) = tables(3);
    let tables = Tables::open(&folder).unwrap();
    let mut out = Vec::new();
    let export = Export::new(&tables, Format::Csv, Some("seconds")).unwrap();
    assert!(export.is_single_file());
    export.write(&mut out).unwrap();
    assert!(out.starts_with(b"flow,second,down_bytes,up_bytes\n"));
    let error = Export::new(&tables, Format::Csv, Some("nothing")).err().unwrap();
    let ExportError::Name { known, .. } = error else { panic!("{error}") };
    assert!(known.contains(&"tcp".to_owned()));
    assert!(!Export::new(&tables, Format::Csv, None).unwrap().is_single_file());
    assert!(Export::new(&tables, Format::Ipfix, None).unwrap().is_single_file());
    // A reader that has closed the output.
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(export.write(Gone), Err(ExportError::Closed)));
}

#[test]
fn tstat_has_its_logs() {
    let (dir, folder) = tables(4);
    let (tables, out) = (Tables::open(&folder).unwrap(), dir.path().join("logs"));
    let export = Export::new(&tables, Format::Tstat, None).unwrap();
    export.write_folder(&out, false).unwrap();
    assert_eq!(names(&out), ["log_tcp_complete", "log_tcp_nocomplete", "log_udp_complete"]);
    let complete = lines(&out.join("log_tcp_complete"), ' ');
    assert_eq!((complete.len(), complete[1].len(), complete[4].len()), (5, 130, 130));
    assert_eq!(complete[0][0], "#15#c_ip:1");
    let flow = |column: usize| complete[1][column - 1].as_str();
    // Addresses and ports; packets and bytes; first, last and duration.
    assert_eq!([flow(1), flow(2), flow(15), flow(16)], ["10.0.0.0", "40000", "192.0.2.0", "80"]);
    assert_eq!([flow(3), flow(17), flow(7), flow(9)], ["4", "3", "42", "42"]);
    assert_eq!([flow(29), flow(31)], ["1700000000000.000000", "110.000000"]);
    // HTTP, one request, the name, and no anonymization.
    assert_eq!([flow(42), flow(44), flow(111), flow(112)], ["1", "1", "1", "1"]);
    assert_eq!([flow(127), flow(40)], ["www.example.net", "0"]);
    assert_eq!(lines(&out.join("log_tcp_nocomplete"), ' ').len(), 1);
    assert_eq!(lines(&out.join("log_udp_complete"), ' ').len(), 1);
}

#[test]
fn anonymized_values_stay_anonymized_and_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    fs::write(&file, capture(3, |at| at)).unwrap();
    let folder = dir.path().join("tables");
    let mut settings = Settings::default();
    settings.pseudonym_key = Some([7; 32]);
    let sources = Sources::find(&[file]).unwrap();
    let mut out = Folder::create(&folder, false).unwrap();
    let plan = RunOptions::new(settings, 1);
    run(&sources.captures, &plan, Some(&mut out), &Progress::default()).unwrap();
    out.finish("{}").unwrap();
    let tables = Tables::open(&folder).unwrap();
    assert!(tables.is_anonymized("tcp"));
    let out = dir.path().join("out");
    let log = Export::new(&tables, Format::Tstat, Some("log_tcp_complete")).unwrap();
    log.write_file(&out, false).unwrap();
    let line = &lines(&out, ' ')[1];
    assert_eq!((line[39].as_str(), line[40].as_str()), ("1", "1"));
    assert_ne!(line[0], "10.0.0.0");
    assert!(line[0].parse::<std::net::Ipv4Addr>().is_ok() && line[126].len() == 16, "{line:?}");
    let mut ipfix = Vec::new();
    let written = Export::new(&tables, Format::Ipfix, None).unwrap().write(&mut ipfix).unwrap();
    assert_eq!((written[0].rows, written[0].skipped), (3, 0));
    assert!(!ipfix.windows(4).any(|bytes| bytes == [10, 0, 0, 0]));
    // A flow has the same number in each table.
    let mut numbers = Vec::new();
    for table in ["tcp", "seconds"] {
        let mut of = std::collections::BTreeSet::new();
        let read = tables.read(table, &["flow"], |batch, kinds, _| {
            of.extend(batch.iter(kinds).map(|row| format!("{:?}", row[0])));
            Ok(())
        });
        read.unwrap().unwrap();
        numbers.push(of);
    }
    assert_eq!(numbers[0], numbers[1]);
}

#[test]
fn shards_are_read_as_one() {
    let (dir, folder) = tables(2);
    let shards = dir.path().join("shards");
    for (name, flows) in [("one", 2), ("two", 3)] {
        let file = dir.path().join(name);
        fs::write(&file, capture(flows, |at| at)).unwrap();
        analyze(&[file], 1, &shards.join(format!("shard={name}")));
    }
    // One shard has a column that the other lacks.
    let tables = Tables::open(&shards).unwrap();
    let mut out = Vec::new();
    Export::new(&tables, Format::Csv, Some("seconds")).unwrap().write(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("flow,second,down_bytes,up_bytes,shard\n"));
    assert_eq!(text.lines().filter(|line| line.ends_with(",one")).count(), 2);
    assert_eq!(text.lines().filter(|line| line.ends_with(",two")).count(), 3);
    let written = Export::new(&tables, Format::Ipfix, None).unwrap().write(io::sink()).unwrap();
    assert_eq!((written[0].rows, written[1].rows), (5, 0));
    // A table in the folder itself replaces those of its shards.
    fs::copy(folder.join("tcp.parquet"), shards.join("tcp.parquet")).unwrap();
    let tables = Tables::open(&shards).unwrap();
    let written = Export::new(&tables, Format::Ipfix, None).unwrap().write(io::sink()).unwrap();
    assert_eq!(written[0].rows, 2);
    assert!(!tables.is_sharded("tcp") && tables.is_sharded("http"));
}

#[test]
fn existing_files_are_replaced_only_on_request() {
    let (dir, folder) = tables(1);
    let tables = Tables::open(&folder).unwrap();
    let export = Export::new(&tables, Format::Csv, None).unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("tcp.csv"), "mine").unwrap();
    fs::write(out.join("other.txt"), "mine").unwrap();
    assert!(
        matches!(export.write_folder(&out, false), Err(ExportError::AlreadyExists(path)) if path.ends_with("tcp.csv"))
    );
    assert_eq!(names(&out), ["other.txt", "tcp.csv"]);
    export.write_folder(&out, true).unwrap();
    assert!(fs::read_to_string(out.join("tcp.csv")).unwrap().starts_with("flow,client,"));
    assert!(names(&out).iter().all(|name| !name.ends_with(".part")));
    let ipfix = Export::new(&tables, Format::Ipfix, None).unwrap();
    assert!(matches!(ipfix.write_file(&out, true), Err(ExportError::WrongFileType { .. })));
    let file = out.join("other.txt");
    assert!(matches!(ipfix.write_file(&file, false), Err(ExportError::AlreadyExists(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    ipfix.write_file(&file, true).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(&[0, 10]));
    assert!(matches!(export.write_folder(&file, true), Err(ExportError::WrongFileType { .. })));
    // A failed export leaves no file.
    fs::write(folder.join("udp.parquet"), "broken").unwrap();
    let late = dir.path().join("late");
    assert!(matches!(ipfix.write_file(&late, false), Err(ExportError::Tables(_))));
    assert!(export.write_folder(&late, false).is_err());
    assert_eq!(names(&late), Vec::<String>::new());
}

/// Writes a Parquet file with one column, and with `version` in its metadata.
fn parquet_file(path: &Path, column: &str, physical: Physical, version: Option<&str>) {
    use parquet::file::metadata::KeyValue;
    let note = version.map(|v| vec![KeyValue::new("manyways.schema".to_owned(), v.to_owned())]);
    let properties = WriterProperties::builder().set_key_value_metadata(note).build();
    let field = Type::primitive_type_builder(column, physical)
        .with_repetition(Repetition::OPTIONAL)
        .build();
    let root = Type::group_type_builder("x").with_fields(vec![Arc::new(field.unwrap())]).build();
    let file = File::create(path).unwrap();
    SerializedFileWriter::new(file, Arc::new(root.unwrap()), Arc::new(properties))
        .unwrap()
        .close()
        .unwrap();
}

#[test]
fn foreign_files_are_distinguished_from_tables() {
    let (dir, folder) = tables(1);
    let open = |path: &Path| Tables::open(path).map(|tables| tables.names().count());
    let error = |path: &Path| open(path).unwrap_err();
    assert!(matches!(error(&dir.path().join("none")), TablesError::NotAFolder(_)));
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    assert!(matches!(error(&other), TablesError::Empty(_)));
    // A file without the name of a table is ignored.
    parquet_file(&other.join("mine.parquet"), "a", Physical::INT64, None);
    fs::write(other.join("tcp.parquet.part"), "half").unwrap();
    assert!(matches!(error(&other), TablesError::Empty(_)));
    let before = open(&folder).unwrap();
    parquet_file(&folder.join("mine.parquet"), "a", Physical::INT64, None);
    assert_eq!(open(&folder).unwrap(), before);
    parquet_file(&other.join("tcp.parquet"), "a", Physical::INT64, None);
    assert!(matches!(error(&other), TablesError::NotATable(_)));
    parquet_file(&other.join("tcp.parquet"), "a", Physical::INT64, Some("manyways-flows/99"));
    let text = error(&other).to_string();
    assert!(
        text.ends_with("has the schema manyways-flows/99, but this program reads manyways-flows/3"),
        "{text}"
    );
    fs::write(other.join("tcp.parquet"), "not Parquet").unwrap();
    assert!(matches!(error(&other), TablesError::Invalid { .. }));
    // A column of an unknown type.
    parquet_file(&other.join("tcp.parquet"), "flow", Physical::INT96, Some("manyways-flows/3"));
    let tables = Tables::open(&other).unwrap();
    let export = Export::new(&tables, Format::Csv, None).unwrap();
    let error = export.write(io::sink()).unwrap_err();
    assert!(matches!(error, ExportError::Tables(TablesError::Column { .. })), "{error}");
    // A folder with delays only has no flows.
    let aligned = dir.path().join("aligned");
    fs::create_dir(&aligned).unwrap();
    parquet_file(
        &aligned.join("delays.parquet"),
        "offset",
        Physical::INT64,
        Some("manyways-flows/3"),
    );
    let tables = Tables::open(&aligned).unwrap();
    assert!(matches!(Export::new(&tables, Format::Tstat, None), Err(ExportError::NoFlows(_))));
    assert!(Export::new(&tables, Format::Csv, None).is_ok());
}

struct Visit(u64);

impl Row for Visit {
    const TABLE: &'static str = "visits";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "a visit";
    const COLUMNS: &'static [manyways_record::table::Column<Self>] = manyways_record::columns! {
        "number" Count "its number" |visit| visit.0;
        "odd" Text "odd numbers only"
            |visit| (!visit.0.is_multiple_of(2)).then(|| format!("odd {}", visit.0));
    };
}

#[test]
fn rows_of_many_pages_and_groups_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::create(dir.path(), false).unwrap();
    let mut expected = Vec::new();
    for group in 0..3_u64 {
        let mut batch = Batch::of::<Visit>();
        // More rows than one read or one page has.
        for number in 0..30_000 {
            batch.push(&Visit(group * 30_000 + number), None::<&mut Anonymizer>);
        }
        folder.write(&Schema::of::<Visit>(), &batch).unwrap();
    }
    folder.finish("{}").unwrap();
    expected.extend(0..90_000_u64);
    let tables = Tables::open(dir.path()).unwrap();
    let mut found = Vec::new();
    let wanted = ["odd", "missing", "number"];
    let read = tables.read("visits", &wanted, |batch, kinds, shard| {
        assert_eq!(shard, None);
        for row in batch.iter(kinds) {
            let [odd, missing, Value::Count(number)] = &row[..] else { panic!("{row:?}") };
            assert_eq!(*missing, Value::Absent);
            let is_odd = *odd == Value::from(format!("odd {number}"));
            assert!(
                is_odd != number.is_multiple_of(2) && (is_odd || *odd == Value::Absent),
                "{row:?}"
            );
            found.push(*number);
        }
        Ok(())
    });
    read.unwrap().unwrap();
    assert_eq!(found, expected);
}
