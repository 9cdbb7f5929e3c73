//! Records the revision that the program is built from; it is written into manifests and decides nothing.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/refs/heads");
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let revision = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let revision = revision.map(|text| String::from_utf8_lossy(&text).trim().to_string()).unwrap_or_default();
    println!("cargo::rustc-env=WORLDLOOM_REVISION={revision}");
}
