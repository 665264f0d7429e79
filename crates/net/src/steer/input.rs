//! Files: tables of transfers, models and goals.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use manyways_model::select::model::{self, MAX_TEXT, Model, ModelError};
use manyways_model::select::transfers::{self, Transfer, TransfersError};
use manyways_model::select::{Goal, GoalError};
use thiserror::Error;

/// Bytes of a table, at most.
const MAX_TABLE: usize = 1 << 30;

/// Reason why a file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    #[error("cannot read {}: {error}", file.display())]
    Read { file: PathBuf, error: io::Error },
    #[error("{} has more than {max} bytes", file.display())]
    TooLong { file: PathBuf, max: usize },
    #[error("{} is not UTF-8 text", file.display())]
    NotText { file: PathBuf },
    #[error("{} is not a table of transfers: {error}", file.display())]
    Table { file: PathBuf, error: TransfersError },
    #[error("{} is not a model: {error}", file.display())]
    Model { file: PathBuf, error: ModelError },
    #[error("{}:{}:{}: {}", file.display(), error.line, error.column, error.message)]
    Goal { file: PathBuf, error: GoalError },
}

/// Reads a table of transfers.
///
/// # Errors
/// An [`InputError`] with one sentence for the user.
pub fn read_table(file: &Path) -> Result<Vec<Transfer>, InputError> {
    let text = read(file, MAX_TABLE)?;
    transfers::parse(&text).map_err(|error| InputError::Table { file: file.to_owned(), error })
}

/// Reads a trained model.
///
/// # Errors
/// As those of [`read_table`].
pub fn read_model(file: &Path) -> Result<Model, InputError> {
    let text = read(file, MAX_TEXT + 1)?;
    model::parse(text.trim_end())
        .map_err(|error| InputError::Model { file: file.to_owned(), error })
}

/// Reads a goal, and the text of its file.
///
/// # Errors
/// As those of [`read_table`].
pub fn read_goal(file: &Path) -> Result<(Goal, String), InputError> {
    let text = read(file, Goal::MAX_TEXT)?;
    match Goal::parse(&text) {
        Ok(goal) => Ok((goal, text)),
        Err(error) => Err(InputError::Goal { file: file.to_owned(), error }),
    }
}

fn read(file: &Path, max: usize) -> Result<String, InputError> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|open| open.take(max as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| InputError::Read { file: file.to_owned(), error })?;
    if bytes.len() > max {
        return Err(InputError::TooLong { file: file.to_owned(), max });
    }
    String::from_utf8(bytes).map_err(|_| InputError::NotText { file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        let words =
            |error: InputError| error.to_string().replace(folder.path().to_str().unwrap(), "");
        let table = |name: &str, text: &[u8]| words(read_table(&file(name, text)).unwrap_err());
        assert_eq!(table("a", b"x"), "/a is not a table of transfers: the column group is missing");
        assert_eq!(table("b", b"\xff"), "/b is not UTF-8 text");
        let absent = words(read_table(&folder.path().join("none")).unwrap_err());
        assert!(absent.starts_with("cannot read /none: No such file"), "{absent}");
        let model = words(read_model(&file("c", b"{}")).unwrap_err());
        assert!(model.starts_with("/c is not a model: "), "{model}");
        let goal = |text: &[u8]| words(read_goal(&file("d", text)).unwrap_err());
        assert_eq!(goal(b"\nspeed = -1"), "/d:2:9: speed: a number from 0 to 10 was expected");
        assert_eq!(goal(&[b'#'; 5_000]), "/d has more than 4096 bytes");
        let shipped = file("e", model::DEFAULT.as_bytes());
        assert!(read_model(&shipped).is_ok());
    }
}
