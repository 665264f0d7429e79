//! Location of the binary under test.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use manyways_sys::signal::with_defaults;

/// The path of the binary under test: the value of `MANYWAYS_BIN`, or the binary that was built
/// with this test.
///
/// # Panics
/// If the binary does not exist: Cargo builds the binary of another package only on request.
pub fn manyways_path() -> PathBuf {
    if let Some(path) = env::var_os("MANYWAYS_BIN") {
        return path.into();
    }
    // The test is target/debug/deps/NAME-HASH, and the binary target/debug/manyways.
    let test = env::current_exe().expect("a running test has a path");
    let path = test.ancestors().nth(2).expect("a test lies in a profile's deps").join("manyways");
    assert!(
        path.exists(),
        "{} is not built: run `make test`, or `cargo build` first",
        path.display()
    );
    path
}

/// A command for the binary under test. It is independent of the terminal's width, the log level and
/// the proxies of the environment, and the caches of other tests.
pub fn manyways() -> Command {
    let mut command = Command::new(manyways_path());
    command.env_remove("MANYWAYS_LOG").env("COLUMNS", "100");
    for scheme in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(scheme).env_remove(scheme.to_uppercase());
    }
    // A folder below a device cannot be created, so that the cache is disabled.
    command.env("XDG_CACHE_HOME", "/dev/null");
    // The usage of tests must not be added to the usage of this host.
    command.env("XDG_STATE_HOME", env::temp_dir().join("manyways-tests"));
    // Also if a test starts the command without `Running`.
    with_defaults(&mut command);
    command
}
