//! The tables of transfers, and the default model that is trained on the generated one.

use std::fs;
use std::path::PathBuf;

use manyways_model::select::transfers::{self, Transfer};
use manyways_net::steer::train::{self, Learner, Training};
use manyways_rig::results::write;

use super::data::{DataArgs, Set, write_data};

/// Train the default model, which the program has, on generated places only.
#[derive(clap::Args)]
pub struct DefaultArgs {
    /// A Python with scikit-learn; MANYWAYS_PYTHON in the environment has the same effect.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "crates/model/src/select/default.json")]
    model: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

/// The table of a set; `None` if it was not made.
///
/// # Errors
/// One sentence, if the file cannot be read.
pub fn read(args: &DataArgs, set: Set) -> Result<Option<Vec<Transfer>>, String> {
    let file = args.table(set);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
    transfers::parse(&text).map(Some).map_err(|why| format!("{}: {why}", file.display()))
}

/// Writes the default model.
///
/// # Errors
/// One sentence, if the table cannot be made or nothing is trained.
pub fn write_default(args: &DefaultArgs) -> Result<(), String> {
    write_data(&args.data)?;
    let transfers = read(&args.data, Set::C)?.ok_or("set c is missing")?;
    let mut training = Training::new(train::python(args.python.as_deref()), Learner::Boosted);
    training.title = "default".to_owned();
    training.data = "generated walks; no real network".to_owned();
    training.has_blanks = true;
    let table = transfers::training_table(&transfers);
    let trained = training.train(&table).map_err(|error| error.to_string())?;
    trained.notes.iter().for_each(|note| eprintln!("{note}"));
    write(&args.model, &(trained.text + "\n"))
}
