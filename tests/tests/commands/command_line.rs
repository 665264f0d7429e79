//! The command line as a user meets it: help, usage errors, completions and man pages.

use std::fs;
use std::path::{Path, PathBuf};

use manyways_tests::{finish, folder, manyways};

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // A description that wraps is indented further.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(String::from)
        .collect()
}

/// Every command there is, as the words after `manyways`, with its help.
fn all_commands() -> Vec<(Vec<String>, String)> {
    let mut todo = vec![Vec::new()];
    let mut known = Vec::new();
    while let Some(words) = todo.pop() {
        let help = finish(manyways().args(&words).arg("--help")).expect_success().stdout;
        todo.extend(subcommands(&help).into_iter().map(|name| [&words[..], &[name]].concat()));
        known.push((words, help));
    }
    known
}

#[test]
fn every_command_shows_an_example() {
    let commands = all_commands();
    for name in ["get", "paths", "lab", "completions", "man"] {
        assert!(
            commands.iter().any(|(words, _)| *words == [name]),
            "there is no `manyways {name}`"
        );
    }
    let without: Vec<String> = commands
        .iter()
        // A command that only gathers others is shown by theirs.
        .filter(|(_, help)| subcommands(help).is_empty())
        .filter(|(words, help)| {
            let example = format!("manyways {}", words.join(" "));
            let shows = |line: &str| line.contains(&example) && !line.starts_with("Usage");
            !(help.contains("Example") && help.lines().any(shows))
        })
        .map(|(words, _)| words.join(" "))
        .collect();
    assert!(without.is_empty(), "no example in --help of: {}", without.join(", "));
}

/// Text that the source wrapped for another width than the terminal's was once wrapped twice.
#[test]
fn prose_below_the_options_is_wrapped_once() {
    for (words, help) in all_commands() {
        let below = help.lines().skip_while(|line| !line.starts_with("Example"));
        let lines: Vec<&str> = below.collect();
        for pair in lines.windows(2) {
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            let [line, next] = [pair[0], pair[1]];
            if is_prose(line) && !line.ends_with(':') && is_prose(next) {
                let word = next.split(' ').next().unwrap_or_default();
                let width = line.chars().count() + 1 + word.chars().count();
                assert!(width > 100, "manyways {words:?}: room for `{word}` behind\n{line}");
            }
        }
    }
}

#[test]
fn help_says_each_thing_once_and_names_the_radios() {
    let help =
        |words: &[&str]| finish(manyways().args(words).arg("--help")).expect_success().stdout;
    let whatif = help(&["radio", "whatif"]);
    assert_eq!(whatif.matches("Remove the application's traffic").count(), 1, "{whatif}");
    assert!(!whatif.contains("--batch T"), "{whatif}");
    assert!(help(&["radio", "profiles"]).contains("att-hspa"));
    let set = help(&["lab", "set"]);
    let words: Vec<&str> = set.split_whitespace().collect();
    assert!(words.join(" ").contains("cannot change mtu, metered"), "{set}");
}

#[test]
fn a_name_in_place_of_an_address_gets_a_hint() {
    let done = finish(manyways().args(["paths", "--to", "example.org"]));
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("`getent ahosts NAME`"), "{}", done.stderr);
}

#[test]
fn bad_usage_leaves_with_2_and_says_why_on_stderr() {
    for words in [&["no-such-command"][..], &[], &["get"], &["completions", "no-such-shell"]] {
        let done = finish(manyways().args(words));
        assert_eq!(done.code(), 2, "manyways {words:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "manyways {words:?}");
        assert!(done.stderr.contains("Usage") || done.stderr.contains("help"), "{}", done.stderr);
    }
}

#[test]
fn completions_come_out_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = finish(manyways().args(["completions", shell])).expect_success().stdout;
        assert!(script.contains("manyways") && script.contains("paths"), "{shell}: {script}");
        assert!(script.contains("sha256"), "{shell}");
        for hidden in ["--warm-up", "-l warm-up", "stop-after", "--picture", "-l picture"] {
            assert!(!script.contains(hidden), "{shell} completes {hidden}");
        }
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = folder();
    let target = folder.path().join("new/man1");
    finish(manyways().arg("man").arg(&target)).expect_success();
    for (words, _) in all_commands() {
        let name = [&["manyways".to_string()][..], &words].concat().join("-");
        let page = fs::read_to_string(target.join(format!("{name}.1")))
            .unwrap_or_else(|error| panic!("{name}.1: {error}"));
        assert!(page.contains(".TH") && page.contains("NAME"), "{name}.1: {page}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = finish(manyways().arg("--version")).expect_success().stdout;
    assert_eq!(version.trim(), concat!("manyways ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_names_of_events_are_unique_among_all_families() {
    use manyways_record::event::EventFamily;
    let families = [
        manyways_lab::event::LabEvent::NAMES,
        manyways_net::bond::BondEvent::NAMES,
        manyways_net::fetch::TransferEvent::NAMES,
        manyways_net::radio::event::RadioEvent::NAMES,
        manyways_net::steer::event::SteerEvent::NAMES,
    ];
    let root = root();
    let declared = |file: &PathBuf| product_code(file).matches("impl EventFamily for").count();
    let declared: usize = product_files(&root).iter().map(declared).sum();
    assert_eq!(declared, families.len(), "this test names each family");
    let mut names = families.concat();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// The source files of all crates in `crates/`, without those of tests.
fn product_files(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).expect("a folder");
    let files =
        crates.flat_map(|folder| source_files(&folder.expect("an entry").path().join("src")));
    files.filter(|file| !file.iter().any(|part| part == "tests" || part == "tests.rs")).collect()
}

/// The code of a file without its tests.
fn product_code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source file");
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// The source files below a folder.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => source_files(&path),
        false => vec![path],
    });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn the_names_of_schemas_are_unique_and_documented() {
    let root = root();
    let mut names = Vec::new();
    for file in product_files(&root) {
        let code = product_code(&file);
        let declares = ["document!(", "const SCHEMA: "];
        let is_name = |line: &&str| declares.iter().any(|declares| line.contains(declares));
        let values = code.lines().filter(is_name).filter_map(|line| line.split('"').nth(1));
        names.extend(values.filter(|name| name.starts_with("manyways")).map(str::to_owned));
    }
    for table in ["manyways-flows/3", "manyways-radio/1"] {
        assert!(names.iter().any(|name| name == table), "{table} is not among {names:?}");
    }
    assert!(names.len() > 20, "{names:?}");
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None);
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let pages: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
    for name in names {
        assert!(pages.contains(&name), "no page in docs/ describes {name}");
    }
}
