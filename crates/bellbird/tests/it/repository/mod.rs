//! The rules of ARCHITECTURE.md and CONTRIBUTING.md that only reading files can check.

mod code;
mod documents;
mod layers;
mod metrics;
mod modules;
mod stores;

use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the text files that are written by hand.
const TEXT_ENDINGS: [&str; 9] = [
    ".rs", ".md", ".sql", ".toml", ".html", ".css", ".py", ".mjs", ".yml",
];

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the repository")
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder with a certain ending, as paths from the repository's root, sorted;
/// without build outputs and installed packages.
pub(crate) fn files(below: &str, ending: &str) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in
            fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let entry = entry.unwrap();
            match (
                entry.file_type().unwrap().is_dir(),
                entry.file_name().to_str(),
            ) {
                // A `target` in `src` is a module.
                (true, Some("target")) if !folder.ends_with("src") => {}
                (true, Some(".git" | "node_modules")) => {}
                (true, _) => walk(&entry.path(), found),
                (false, _) => found.push(entry.path()),
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    let name = |path: &PathBuf| {
        path.strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let mut names: Vec<String> = found
        .iter()
        .map(name)
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names
}

/// Every text file that is written by hand, as paths from the repository's root.
fn texts() -> Vec<String> {
    let is_text = |path: &String| {
        TEXT_ENDINGS.iter().any(|ending| path.ends_with(ending))
            || ["scripts/", ".github/"]
                .iter()
                .any(|folder| path.starts_with(folder))
    };
    files("", "").into_iter().filter(is_text).collect()
}

/// The Rust files of the program and of the sandbox: `crates/*/src` and `sandbox/src`.
fn sources() -> Vec<String> {
    let crates = files("crates", ".rs")
        .into_iter()
        .filter(|path| path.split('/').nth(2) == Some("src"));
    crates.chain(files("sandbox/src", ".rs")).collect()
}

/// Lines of Rust with their numbers, without comments. A `//` within a string ends a line too
/// early, which is harmless.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let without_comment = |line: &'_ str| line.find("//").unwrap_or(line.len());
    text.lines()
        .enumerate()
        .map(move |(at, line)| (at + 1, &line[..without_comment(line)]))
}

/// Every place in the code of `paths` that `is_wrong`, as `path:line`.
fn locations(
    paths: impl IntoIterator<Item = String>,
    is_wrong: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        let text = read(&root().join(&path));
        found.extend(
            code_lines(&text)
                .filter(|(_, line)| is_wrong(line))
                .map(|(number, _)| format!("{path}:{number}")),
        );
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

#[track_caller]
fn assert_none(found: &[String], what_to_do: &str) {
    assert!(found.is_empty(), "{what_to_do}\n  {}", found.join("\n  "));
}
