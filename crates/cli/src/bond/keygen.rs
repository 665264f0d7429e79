//! `manyways bond keygen`: generates a key, or prints the public key of an existing one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_net::bond::{KeyError, PrivateKey};
use manyways_record::document;
use serde::Serialize;

use crate::failure::Failure;

/// Make an Ed25519 key and print its public half.
///
/// FILE receives the private key, readable only by its owner. The printed public key goes to the
/// other end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond keygen phone.key           make a key
  manyways bond keygen --show phone.key    print the public key of an existing private key")]
pub struct Args {
    /// File for the private key. An existing file is never overwritten.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Only print the public key that belongs to the private key in FILE.
    #[arg(long)]
    show: bool,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PublicKey<'a> {
    public_key: String,
    file: &'a Path,
}

document!(PublicKey<'_>, "manyways.bond.key/1");

pub fn run(args: &Args) -> Result<ExitCode> {
    let key = match args.show {
        true => read(&args.file)?,
        false => {
            let key = PrivateKey::generate().map_err(key_failure)?;
            key.write(&args.file).map_err(|error| write_failure(&args.file, error))?;
            key
        }
    };
    let public = key.public().to_string();
    if args.json {
        print!("{}", document::to_json(&PublicKey { public_key: public, file: &args.file })?);
    } else {
        println!("{public}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a private key. Errors have hints for the user.
pub fn read(file: &Path) -> Result<PrivateKey> {
    Ok(PrivateKey::read(file).map_err(key_failure)?)
}

/// Converts the error of a write. A new file is "not found" if its folder does not exist.
fn write_failure(file: &Path, error: KeyError) -> Failure {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (&error, folder) {
        (KeyError::File(_, why), Some(folder)) if why.kind() == io::ErrorKind::NotFound => {
            let folder = folder.display();
            Failure::new(format!("{}: the folder {folder} does not exist", file.display()))
                .hint(format!("make it with `mkdir -p {folder}`"))
        }
        (KeyError::File(_, why), _)
            if why.kind() == io::ErrorKind::AlreadyExists && !file.is_dir() =>
        {
            Failure::new(format!("{} exists already, and stays as it is", file.display())).hint(
                format!("`manyways bond keygen --show {}` prints its public key", file.display()),
            )
        }
        _ => key_failure(error),
    }
}

fn key_failure(error: KeyError) -> Failure {
    let hint = match &error {
        KeyError::File(path, _) if path.is_dir() => {
            let file = path.join("phone.key");
            Some(format!("that is a folder: name a file in it, like {}", file.display()))
        }
        KeyError::File(path, why) if why.kind() == io::ErrorKind::NotFound => {
            Some(format!("make a key with `manyways bond keygen {}`", path.display()))
        }
        KeyError::InsecurePermissions(path) => Some(format!("chmod 600 {}", path.display())),
        KeyError::NotAKey(_) => {
            Some("name the file that `manyways bond keygen FILE` made".to_owned())
        }
        _ => None,
    };
    Failure::new(error.to_string()).maybe_hint(hint)
}
