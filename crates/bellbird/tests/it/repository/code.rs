//! Rules on sources that no tool checks. Clippy and cargo-deny check the others: `clippy.toml`,
//! `deny.toml`.

use super::{assert_none, code_lines, files, has_word, locations, read, root, sources};

/// Where a provider may be named: the providers and what simulates them. The flags of `bellbird
/// sandbox` are promised by name.
const MAY_NAME_PROVIDERS: [&str; 3] = [
    "crates/providers/",
    "sandbox/",
    "crates/bellbird/src/cli/sandbox.rs",
];
/// Where the sandbox is used: the feature `sandbox` leaves these files out.
const MAY_USE_SANDBOX: [&str; 3] = [
    "crates/bellbird/src/cli/demo.rs",
    "crates/bellbird/src/cli/sandbox.rs",
    "crates/bellbird/src/sandbox_beside.rs",
];
const LINES_MAX: usize = 920;

/// The list of providers is `PROVIDERS` of the registry: a new one is a folder and a line there.
#[test]
fn providers_are_named_in_their_folders_only() {
    let names: Vec<&str> = bellbird_providers::registry::PROVIDERS
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    let may = |path: &String| {
        MAY_NAME_PROVIDERS
            .iter()
            .any(|start| path.starts_with(start))
            || path.contains("/tests")
    };
    let named = |line: &str| {
        let example = line.contains("example = ") || line.contains("--provider ");
        !example
            && names
                .iter()
                .any(|name| line.to_ascii_lowercase().contains(name))
    };
    assert_none(
        &locations(sources().into_iter().filter(|path| !may(path)), named),
        "what this says of one provider belongs into its folder, behind the trait or into its declaration:",
    );
}

#[test]
fn sandbox_is_used_by_its_commands_only() {
    let others = sources()
        .into_iter()
        .filter(|path| !MAY_USE_SANDBOX.contains(&path.as_str()));
    assert_none(
        &locations(others, |line| has_word(line, "bellbird_sandbox")),
        "the sandbox is optional: move this into what the feature leaves out:",
    );
}

#[test]
fn files_stay_below_the_line_limit() {
    let long = |path: &String| read(&root().join(path)).lines().count() >= LINES_MAX;
    let long: Vec<String> = sources().into_iter().filter(long).collect();
    assert_none(
        &long,
        &format!("{LINES_MAX} lines or more: split the file by what it is about:"),
    );
}

/// The program embeds texts only, which a reviewer can read.
#[test]
fn sources_have_no_binaries() {
    let is_text =
        |path: &String| std::str::from_utf8(&std::fs::read(root().join(path)).unwrap()).is_ok();
    let folders = ["assets", "crates", "sandbox"]
        .into_iter()
        .flat_map(|folder| files(folder, ""));
    let binaries: Vec<_> = folders.filter(|path| !is_text(path)).collect();
    assert_none(&binaries, "keep what the program embeds readable:");
}

#[test]
fn rules_detect_violations() {
    assert!(has_word("let x: f64 = 1.0;", "f64") && !has_word("let f64_of = 1;", "f64"));
    assert_eq!(
        code_lines("a // b\n/// c").collect::<Vec<_>>(),
        [(1, "a "), (2, "")]
    );
    assert!(sources().len() > 50, "the sources are not found");
}
