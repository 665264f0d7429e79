use std::fs;
use std::path::Path;

use manyways_record::table::Value;
use parquet::basic::Encoding;
use parquet::file::properties::{EnabledStatistics, WriterVersion};

use super::reader::Reader;
use super::*;

/// A row of each type, with and without values.
type Line = (Option<i64>, Option<f64>, Option<bool>, Option<String>);

fn lines() -> Vec<Line> {
    // Equal values in long runs, and many different ones.
    let line = |at: u32| {
        let few = at / 1000;
        (
            at.is_multiple_of(7).then_some(i64::from(at)),
            (!at.is_multiple_of(5)).then_some(f64::from(few) / 4.0),
            (few != 3).then_some(at.is_multiple_of(3)),
            (at % 100 < 90).then(|| format!("value {}", few % 7)),
        )
    };
    (0..10_000).map(line).collect()
}

/// Writes the lines with these properties.
fn write(path: &Path, lines: &[Line], properties: WriterProperties) {
    let kinds = [Kind::Count, Kind::Number, Kind::Flag, Kind::Text];
    let fields = ["count", "number", "flag", "text"].into_iter().zip(kinds);
    let fields = fields.map(|(name, kind)| field(name, kind)).collect::<Result<_>>().unwrap();
    let root = Type::group_type_builder("lines").with_fields(fields).build().unwrap();
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(root), Arc::new(properties)).unwrap();
    for lines in lines.chunks(6000) {
        let mut group = writer.next_row_group().unwrap();
        macro_rules! column {
            ($type:ty, $value:expr) => {
                let values: Vec<_> = lines.iter().map($value).collect();
                let levels: Vec<i16> = values.iter().map(|one| one.is_some().into()).collect();
                let values: Vec<_> = values.into_iter().flatten().collect();
                let mut column = group.next_column().unwrap().unwrap();
                column.typed::<$type>().write_batch(&values, Some(&levels), None).unwrap();
                column.close().unwrap();
            };
        }
        column!(Int64Type, |line| line.0);
        column!(DoubleType, |line| line.1);
        column!(BoolType, |line| line.2);
        column!(ByteArrayType, |line| line.3.as_deref().map(ByteArray::from));
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn read(path: &Path) -> Result<Vec<Line>, ReadError> {
    let reader = Reader::open(path)?;
    let kinds = [Kind::Count, Kind::Number, Kind::Flag, Kind::Text];
    let mut lines = Vec::new();
    let places: Vec<Option<usize>> = (0..4).map(Some).collect();
    let read = reader.read(&places, |batch| {
        for row in batch.iter(&kinds) {
            let mut values = row.into_iter();
            lines.push((
                values.next().and_then(|value| match value {
                    Value::Count(count) => i64::try_from(count).ok(),
                    _ => None,
                }),
                values.next().and_then(|value| match value {
                    Value::Number(number) => Some(number),
                    _ => None,
                }),
                values.next().and_then(|value| match value {
                    Value::Flag(flag) => Some(flag),
                    _ => None,
                }),
                values.next().and_then(|value| match value {
                    Value::Text(text) => Some(text.into_owned()),
                    _ => None,
                }),
            ));
        }
        Ok(())
    });
    read?.map_err(ReadError::Io)?;
    Ok(lines)
}

#[test]
fn files_of_all_supported_encodings_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.parquet");
    let lines = lines();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for codec in [Compression::UNCOMPRESSED, Compression::ZSTD(ZstdLevel::default())] {
            for has_dictionary in [true, false] {
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(codec)
                    .set_dictionary_enabled(has_dictionary)
                    .set_data_page_row_count_limit(3000)
                    .set_write_batch_size(1000);
                let properties = match has_dictionary {
                    true => properties,
                    false => properties.set_encoding(Encoding::PLAIN),
                };
                write(&path, &lines, properties.build());
                let read = read(&path).unwrap();
                let wrong = read.iter().zip(&lines).find(|(read, line)| read != line);
                assert_eq!(wrong, None, "{version:?} {codec} {has_dictionary}");
                assert_eq!(read.len(), lines.len());
            }
        }
    }
}

/// A small file without compression and dictionaries, and its path.
fn small(folder: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let path = folder.join("small.parquet");
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    write(&path, &lines()[..20], properties);
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Reads a file with these bytes; the error as text.
fn read_bytes(path: &Path, bytes: &[u8]) -> std::result::Result<Vec<Line>, String> {
    fs::write(path, bytes).unwrap();
    read(path).map_err(|error| error.to_string())
}

#[test]
fn a_negative_offset_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut bytes) = small(folder.path());
    // Field 9 after field 7: the offset 4 of the first column becomes -4.
    let footer = bytes.len() - 8 - usize::from(bytes[bytes.len() - 8]);
    let footer = footer - 256 * usize::from(bytes[bytes.len() - 7]);
    let place = bytes[footer..].windows(2).position(|two| two == [0x26, 8]).unwrap();
    bytes[footer + place + 1] = 7;
    let error = read_bytes(&path, &bytes).unwrap_err();
    assert_eq!(error, "it is malformed: a size or an offset is negative");
}

#[test]
fn a_file_with_a_changed_byte_or_without_its_end_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = small(folder.path());
    assert_eq!(read_bytes(&path, &bytes).unwrap(), lines()[..20]);
    let mut errors = 0;
    for at in 0..bytes.len() {
        assert!(read_bytes(&path, &bytes[..at]).is_err(), "{at}");
        for byte in [bytes[at] ^ 1, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            errors += usize::from(read_bytes(&path, &changed).is_err());
        }
    }
    assert!(errors > bytes.len() / 8, "{errors} of {}", bytes.len());
}

#[test]
fn metadata_with_impossible_numbers_is_malformed() {
    use super::footer::Footer;
    let malformed = |bytes: &[u8], what: &str| match Footer::parse(bytes, 1000, 1200) {
        Err(error) => assert!(error.to_string().contains(what), "{error}"),
        Ok(_) => panic!("{what}"),
    };
    // Field 2 with one element that has 2^30 children, or is 2^30 elements itself.
    malformed(&[0x29, 0x1c, 0x55, 0x80, 0x80, 0x80, 0x80, 8, 0, 0], "not one tree");
    malformed(&[0x29, 0xfc, 0x80, 0x80, 0x80, 0x80, 4, 0], "cut off");
    // A chain of groups.
    let mut chain = vec![0x29, 0xfc, 0x90, 0x4e];
    chain.extend([0x55, 2, 0].repeat(10_000));
    chain.extend([0, 0]);
    malformed(&chain, "not one tree");
    // An unknown field with lists in lists.
    let mut nested = vec![0x99];
    nested.extend([0x19; 1000]);
    malformed(&nested, "nested too deeply");
    // 2^40 rows, with and without a column.
    let root = [0x29, 0x1c, 0x55, 0, 0];
    let rows = [0x29, 0x1c, 0x36, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0, 0];
    malformed(&[&root[..], &rows].concat(), "more rows than");
    let root = [0x29, 0x2c, 0x55, 2, 0, 0x15, 4, 0];
    malformed(&[&root[..], &rows].concat(), "more or fewer columns");
    // A column from byte 2 on, and a group as Arrow writes it for a table without rows.
    let group = |rows: u8, values: u8| {
        let column = [0x3c, 0x56, values, 0x26, 4, 0x26, 4, 0, 0];
        [&root[..], &[0x29, 0x1c, 0x19, 0x1c], &column, &[0x26, rows, 0, 0]].concat()
    };
    malformed(&group(2, 2), "outside of the file");
    assert_eq!(Footer::parse(&group(0, 0), 1000, 1200).ok().map(|one| one.groups.len()), Some(1));
    malformed(&[0xff; 16], "unknown type");
    malformed(&[], "cut off");
}

#[test]
fn a_short_page_does_not_become_many_or_long_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.parquet");
    // A dictionary with one text of a megabyte, for each row again.
    let text = "x".repeat(1 << 20);
    let lines = vec![(None, None, None, Some(text)); 300];
    let properties = WriterProperties::builder()
        .set_dictionary_page_size_limit(8 << 20)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    write(&path, &lines, properties);
    assert!(fs::metadata(&path).unwrap().len() < 3 << 20);
    let error = read(&path).unwrap_err().to_string();
    assert_eq!(error, "column text: it is malformed: its texts are too long");
}

#[test]
fn the_pages_of_all_columns_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.parquet");
    let text = "x".repeat(1 << 10);
    let lines = vec![(Some(1), Some(1.0), None, Some(text)); 300];
    write(&path, &lines, WriterProperties::builder().set_dictionary_enabled(false).build());
    let mut reader = Reader::open(&path).unwrap();
    let read = |reader: &Reader| {
        let read = reader.read(&[Some(0), Some(1), Some(3)], |_| Ok(()));
        read.map(Result::unwrap).map_err(|error| error.to_string())
    };
    assert_eq!(read(&reader), Ok(()));
    reader.max_held = 300 << 10;
    assert_eq!(read(&reader), Err("it is malformed: its pages are too large".to_owned()));
}
