//! Child processes: this test binary, started again with a role.

use std::path::Path;
use std::process::{Command, Stdio};

const ROLE: &str = "BEDFORM_TEST_ROLE";
const ROOT: &str = "BEDFORM_TEST_ROOT";
const ARGUMENTS: &str = "BEDFORM_TEST_ARGUMENTS";

/// Returns the command of a process with `role` on the store in `root`.
pub(crate) fn process(role: &str, root: &Path, arguments: &[u64]) -> Command {
    let arguments: Vec<String> = arguments.iter().map(u64::to_string).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "roles::a_process_plays_its_role"])
        .env(ROLE, role)
        .env(ROOT, root)
        .env(ARGUMENTS, arguments.join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the role of a child process; does nothing in an ordinary test run.
#[test]
fn a_process_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let root = std::env::var(ROOT).unwrap();
    let root = Path::new(&root);
    let arguments: Vec<u64> = std::env::var(ARGUMENTS)
        .unwrap()
        .split(',')
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    match role.as_str() {
        "write until killed" => crate::kills::write_until_killed(root, &arguments),
        "open" => crate::child::open_and_read(root),
        "race" => crate::races::take_part(root, &arguments),
        "settle" => crate::settling::settle_within(root, &arguments),
        "moments" => crate::moments::take_part(root, &arguments),
        "read on a machine" => crate::misbehaving::read_on_machine(&arguments),
        "misbehave" => crate::misbehaving::misbehave(root),
        "schedules" => crate::schedules::take_part(root, &arguments),
        // Run by hand, for a new version of the format.
        "make the golden dataset" => crate::damage::write_golden(root),
        other => panic!("no role {other}"),
    }
}
