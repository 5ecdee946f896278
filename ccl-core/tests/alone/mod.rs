//! A process for one test, which sets limits of the system that others must not meet.

use std::process::Command;

/// Set in that process.
const ALONE: &str = "CCL_TEST_ALONE";

/// Whether this is the process that `test` has for itself. Elsewhere that process is run, and has to end well.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{errors}");
    false
}
