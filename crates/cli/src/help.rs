//! The definition of the command line for help texts, completions and man pages.

use clap::{ArgGroup, Command, CommandFactory};

/// Returns the command line. Paragraphs below the options become one line each, because clap wraps
/// them: lines that are already wrapped in the source would be wrapped twice.
pub fn command() -> Command {
    with_joined_paragraphs(crate::Cli::command())
}

/// Returns the command line without hidden options, because the generators of completions do not
/// omit them.
pub fn without_hidden_options() -> Command {
    without_hidden(&command()).propagate_version(true)
}

fn with_joined_paragraphs(command: Command) -> Command {
    let text = command.get_after_help().map(|text| join_paragraphs(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(with_joined_paragraphs)
}

/// Joins lines of prose. Indented lines are examples and remain, like headings, which end in a
/// colon.
fn join_paragraphs(text: &str) -> String {
    let mut joined = String::new();
    let mut before = "";
    for line in text.lines() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let goes_on = is_prose(before) && !before.ends_with(':') && is_prose(line);
        if !joined.is_empty() {
            joined.push(if goes_on { ' ' } else { '\n' });
        }
        joined.push_str(line);
        before = line;
    }
    joined
}

fn without_hidden(command: &Command) -> Command {
    let arguments: Vec<_> =
        command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned().collect();
    let groups: Vec<ArgGroup> = command
        .get_groups()
        .map(|group| {
            let known =
                group.get_args().filter(|id| arguments.iter().any(|one| one.get_id() == *id));
            ArgGroup::new(group.get_id().clone()).args(known.cloned()).multiple(true)
        })
        .collect();
    let mut shown = Command::new(command.get_name().to_owned()).args(arguments).groups(groups);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.subcommands(commands.map(without_hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_joined_and_examples_are_not() {
        let text = "Examples:\n  a b\n  c\n\nOne sentence\ngoes on.\nExit code: 0.\n\nEnd";
        let joined = "Examples:\n  a b\n  c\n\nOne sentence goes on. Exit code: 0.\n\nEnd";
        assert_eq!(join_paragraphs(text), joined);
    }

    #[test]
    fn completions_know_no_hidden_option() {
        fn options(command: &Command, is_hidden: bool) -> Vec<String> {
            let fits = |one: &&clap::Arg| one.is_hide_set() == is_hidden;
            let longs = command.get_arguments().filter(fits).filter_map(clap::Arg::get_long);
            let mut found: Vec<String> = longs.map(str::to_owned).collect();
            let commands = command.get_subcommands();
            commands.for_each(|command| found.extend(options(command, is_hidden)));
            found
        }
        let (all, shown) = (command(), without_hidden_options());
        assert_eq!(options(&shown, false), options(&all, false));
        assert!(options(&shown, true).is_empty());
        #[cfg(feature = "get")]
        assert!(options(&all, true).contains(&"warm-up".to_owned()));
    }
}
