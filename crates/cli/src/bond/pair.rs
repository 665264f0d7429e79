//! `manyways bond pair` and `unpair`: the devices whose networks this one may use.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::{PairError, PairFile, PublicKey};
use manyways_proto::bond::pairing::CodeError;
use manyways_record::document;
use manyways_sys::interface;
use manyways_unit::human::quoted;
use serde::Serialize;

use super::{keygen, lend, lookup};
use crate::failure::Failure;

/// Pair with a device that lends its network.
///
/// `manyways bond lend` on the other device shows a code of six digits. Both devices then know each
/// other's keys, and the other one the gateway to which it connects for this one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond pair 192.168.43.1:4434 --gateway gw.example:4433 --gateway-key KEY --key laptop.key
  manyways bond pair … --code 123456 --name laptop

The clients of this user then use the network of the other device as one more network, by its name.")]
pub struct PairArgs {
    /// Address of the other device, as `manyways bond lend` prints it.
    #[arg(value_name = "ADDR:PORT", value_parser = parse_address)]
    address: SocketAddr,
    /// The code that the other device shows [default: ask for it]
    #[arg(long, value_name = "DIGITS", value_parser = parse_code)]
    code: Option<String>,
    /// Address of the gateway, as for `manyways bond client`.
    #[arg(long, value_name = "HOST:PORT")]
    gateway: String,
    /// The gateway's public key, as for `manyways bond client`.
    #[arg(long, value_name = "KEY")]
    gateway_key: PublicKey,
    /// This client's private key, as for `manyways bond client`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// Name of this device at the other one [default: the name of this host]
    #[arg(long, value_name = "NAME", value_parser = lend::parse_name)]
    name: Option<String>,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Paired {
    /// Name of the lender, and of its path.
    name: String,
    public_key: String,
    address: SocketAddr,
}

document!(Paired, "manyways.bond-pair/1");

/// Forget a paired device.
///
/// Its loans end within a second, at either end. `manyways bond lend --list` lists the devices.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond unpair phone")]
pub struct UnpairArgs {
    /// Name of the device.
    #[arg(value_name = "NAME")]
    name: String,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Unpaired<'a> {
    name: &'a str,
    /// Whether the device could use the network of this one.
    borrower: bool,
    /// Whether this device could use that of the other one.
    lender: bool,
}

document!(Unpaired<'_>, "manyways.bond-unpair/1");

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write the address and port that the other device prints, like 192.168.43.1:4434".to_owned()
    })
}

fn parse_code(text: &str) -> Result<String, String> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    match digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(digits),
        false => Err("a code has six digits".to_owned()),
    }
}

pub fn pair(args: PairArgs) -> Result<ExitCode> {
    let key = keygen::read(&args.key)?;
    let gateway = lookup::resolve(&args.gateway)?;
    let file = PairFile::lenders(&lend::folder()?);
    file.read().map_err(|error| Failure::new(error.to_string()))?;
    let code = match args.code {
        Some(code) => code,
        None => ask_code()?,
    };
    let name = args.name.unwrap_or_else(lend::host_name);
    let paired = super::run_local(async {
        let own = (&key, name.as_str());
        let gateway = (args.gateway_key, gateway);
        Ok(manyways_net::bond::pair(args.address, &code, own, gateway).await)
    })?;
    let device = paired.map_err(failure)?;
    let public_key = device.key.to_string();
    // A path has one name.
    let interfaces = interface::list().unwrap_or_default();
    let taken: Vec<String> = interfaces.into_iter().map(|one| one.name).collect();
    let lender = file.add_renamed(device, &taken);
    let lender = lender.context("the device is paired, and cannot be stored")?;
    if args.json {
        let paired = Paired { name: lender, public_key, address: args.address };
        print!("{}", document::to_json(&paired)?);
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("manyways: paired with {lender}: the clients of this user use its network, too");
    Ok(ExitCode::SUCCESS)
}

fn ask_code() -> Result<String> {
    let mut line = String::new();
    loop {
        if stdin().is_terminal() {
            eprint!("The code that the other device shows: ");
            stderr().flush()?;
        }
        line.clear();
        if stdin().read_line(&mut line)? == 0 {
            return Err(Failure::usage("there is no code").hint("write it with --code").into());
        }
        match parse_code(&line) {
            Ok(code) => return Ok(code),
            Err(words) => eprintln!("manyways: {words}"),
        }
    }
}

fn failure(error: PairError) -> Failure {
    let hint = match &error {
        PairError::Connect(..) | PairError::Timeout => {
            "check the address, and that `manyways bond lend` runs there"
        }
        PairError::Code(CodeError::None) | PairError::Refused(_) => {
            "p in the window of `manyways bond lend`, or --pair when it starts, shows a new code"
        }
        PairError::NameTaken => {
            "--name gives this device another name; `manyways bond unpair` there forgets the other one"
        }
        PairError::WrongLender => "somebody may listen to this network: pair in another one",
        _ => return Failure::new(error.to_string()),
    };
    Failure::new(error.to_string()).hint(hint)
}

pub fn unpair(args: &UnpairArgs) -> Result<ExitCode> {
    let folder = lend::folder()?;
    let remove =
        |file: PairFile| file.remove(&args.name).map_err(|error| Failure::new(error.to_string()));
    let borrower = remove(PairFile::borrowers(&folder))?;
    let lender = remove(PairFile::lenders(&folder))?;
    if !borrower && !lender {
        let words = format!("no device `{}` is paired", quoted(&args.name));
        return Err(Failure::new(words).hint("`manyways bond lend --list` lists them").into());
    }
    if args.json {
        print!("{}", document::to_json(&Unpaired { name: &args.name, borrower, lender })?);
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("manyways: {} is no longer paired", quoted(&args.name));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_may_be_typed_in_groups() {
        for text in ["123456", "123 456", "123-456", " 123456\n"] {
            assert_eq!(parse_code(text).as_deref(), Ok("123456"));
        }
        for text in ["", "12345", "1234567", "12345a"] {
            assert!(parse_code(text).is_err(), "{text}");
        }
    }
}
