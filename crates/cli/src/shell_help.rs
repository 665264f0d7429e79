//! Shell completions and man pages, from the same definitions as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::help;

/// Print the completion script of a shell.
///
/// Example: manyways completions bash > /etc/bash_completion.d/manyways
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// Name of the shell.
    shell: clap_complete::Shell,
}

/// Write the man pages into a folder.
///
/// Example: manyways man /usr/local/share/man/man1
#[derive(clap::Args)]
pub struct ManArgs {
    /// Destination folder; created if it does not exist.
    folder: PathBuf,
}

pub fn completions(args: CompletionsArgs) -> Result<ExitCode> {
    // Generated in memory, because the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut help::without_hidden_options(),
        "manyways",
        &mut script,
    );
    crate::output::bytes(&script);
    Ok(ExitCode::SUCCESS)
}

pub fn man(args: ManArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make the folder {}", args.folder.display()))?;
    clap_mangen::generate_to(help::command(), &args.folder)
        .with_context(|| format!("cannot write man pages to {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
