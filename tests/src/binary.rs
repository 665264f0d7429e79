//! Where the binary under test is.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use manyways_sys::signal::with_defaults;

/// The path of the binary under test: the one that was built beside this test, or what
/// `MANYWAYS_BIN` says.
///
/// # Panics
/// Where there is none: Cargo builds the binary of another package only when asked.
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

/// The binary under test, ready for its arguments. It does not see the terminal's width, nor the
/// log level of whoever runs the tests, nor remembers anything of other tests.
pub fn manyways() -> Command {
    let mut command = Command::new(manyways_path());
    command.env_remove("MANYWAYS_LOG").env("COLUMNS", "100");
    // Nothing can be kept below a device.
    command.env("XDG_CACHE_HOME", "/dev/null");
    // What flowed in tests is not what flowed on this host.
    command.env("XDG_STATE_HOME", env::temp_dir().join("manyways-tests"));
    // Also where a test starts it without `Running`.
    with_defaults(&mut command);
    command
}
