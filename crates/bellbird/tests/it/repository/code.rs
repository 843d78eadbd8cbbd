//! Rules on single lines of code.

use super::{assert_none, code_lines, files, has_word, locations, read, root, sources};

/// It names what it forbids.
const THIS_FILE: &str = "crates/bellbird/tests/it/repository/code.rs";
/// Where the environment may be read: the settings, and the address of the test database.
const READ_THE_ENVIRONMENT: [&str; 2] = ["crates/bellbird/src/config/", "crates/storage/src/tests/support.rs"];
/// Crates that a provider's amount passes through.
const WITHOUT_FLOATS: [&str; 7] = ["api", "connections", "domain", "providers", "reads", "storage", "webhooks"];
/// Where a provider may be named: the providers and what simulates them. The flags of `bellbird sandbox` are promised
/// by name.
const MAY_NAME_PROVIDERS: [&str; 3] = ["crates/providers/", "sandbox/", "crates/bellbird/src/cli/sandbox.rs"];
const LINES_MAX: usize = 600;
/// Beginnings of statements. In capitals, as our SQL is written.
const SQL: [&str; 9] = [
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "PRAGMA ",
];

#[test]
fn the_environment_is_read_in_one_place() {
    let others = sources().into_iter().filter(|path| !READ_THE_ENVIRONMENT.iter().any(|may| path.starts_with(may)));
    let reads = |line: &str| ["env::var", "env::{", "env::*"].iter().any(|call| line.contains(call));
    assert_none(
        &locations(others, reads),
        "make it a setting (CONTRIBUTING.md, \"Add a setting\") and pass its value in; only the settings read the \
         environment:",
    );
}

#[test]
fn no_todo_and_no_ignored_test() {
    let rust = || {
        let all = ["crates", "benches", "sandbox"].into_iter().flat_map(|folder| files(folder, ".rs"));
        all.filter(|path| path != THIS_FILE)
    };
    let undone = |line: &str| ["todo!", "unimplemented!", "dbg!"].iter().any(|left| line.contains(left));
    assert_none(&locations(rust(), undone), "finish it, or return an error that says what is missing:");
    let ignored = |line: &str| line.trim_start().starts_with("#[ignore");
    assert_none(
        &locations(rust(), ignored),
        "a test that does not run proves nothing: let it run, or make it a benchmark:",
    );
}

#[test]
fn crates_with_amounts_use_no_floats() {
    let with_amounts = |path: &String| path.split('/').nth(1).is_some_and(|name| WITHOUT_FLOATS.contains(&name));
    assert_none(
        &locations(sources().into_iter().filter(with_amounts), |line| has_word(line, "f32") || has_word(line, "f64")),
        "amounts are Decimal, durations are Duration: a float has no place in this crate:",
    );
}

#[test]
fn sql_is_in_storage_only() {
    let others = sources().into_iter().filter(|path| !path.starts_with("crates/storage/"));
    let is_sql = |line: &str| line.split('"').skip(1).step_by(2).any(|text| SQL.iter().any(|word| text.contains(word)));
    assert_none(
        &locations(others, is_sql),
        "statements belong into crates/storage, as constants that its tests prepare:",
    );
}

/// The list of providers is `PROVIDERS` of the registry: a new one is a folder and a line there.
#[test]
fn providers_are_named_in_their_folders_only() {
    let names: Vec<&str> =
        bellbird_providers::registry::PROVIDERS.iter().map(|provider| provider.name.as_str()).collect();
    let may = |path: &String| MAY_NAME_PROVIDERS.iter().any(|start| path.starts_with(start)) || path.contains("/tests");
    let named = |line: &str| {
        let example = line.contains("example = ") || line.contains("--provider ");
        !example && names.iter().any(|name| line.to_ascii_lowercase().contains(name))
    };
    assert_none(
        &locations(sources().into_iter().filter(|path| !may(path)), named),
        "what this says of one provider belongs into its folder, behind the trait or into its declaration:",
    );
}

#[test]
fn files_stay_below_the_line_limit() {
    let long = |path: &String| read(&root().join(path)).lines().count() >= LINES_MAX;
    let long: Vec<String> = sources().into_iter().filter(long).collect();
    assert_none(&long, &format!("{LINES_MAX} lines or more: split the file by what it is about:"));
}

#[test]
fn rules_detect_violations() {
    assert!(has_word("let x: f64 = 1.0;", "f64") && !has_word("let f64_of = 1;", "f64"));
    assert_eq!(code_lines("a // b\n/// c").collect::<Vec<_>>(), [(1, "a "), (2, "")]);
    assert!(sources().len() > 50, "the sources are not found");
}

/// The program embeds texts only, which a reviewer can read.
#[test]
fn sources_have_no_binaries() {
    let is_text = |path: &String| std::str::from_utf8(&std::fs::read(root().join(path)).unwrap()).is_ok();
    let folders = ["assets", "crates", "sandbox"].into_iter().flat_map(|folder| files(folder, ""));
    let binaries: Vec<_> = folders.filter(|path| !is_text(path)).collect();
    assert_none(&binaries, "keep what the program embeds readable:");
}
