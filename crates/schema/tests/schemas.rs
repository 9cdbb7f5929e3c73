//! `data-schemas/` is made from the Rust types. To make it again: `UPDATE_EXPECT=1 cargo test --release --test schemas`.

use std::path::Path;

use expect_test::expect_file;
use schemars::{JsonSchema, schema_for};
use worldloom_schema::{Document, Manifest, Prompt, Reject, Rollout, Table, Trajectory};

fn check<T: JsonSchema>(name: &str, version: u32) {
    let mut schema = schema_for!(T);
    schema.insert("x-worldloom-table".into(), name.into());
    schema.insert("x-worldloom-version".into(), version.into());
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data-schemas");
    expect_file![folder.join(format!("{name}-v{version}.json"))].assert_eq(&text);
}

fn check_table<T: JsonSchema + Table>() {
    check::<T>(T::NAME, T::VERSION);
}

#[test]
fn schemas_are_current() {
    check_table::<Trajectory>();
    check_table::<Document>();
    check_table::<Reject>();
    check_table::<Prompt>();
    check_table::<Rollout>();
    check::<Manifest>("manifest", 1);
}
