//! The repository's own rules. A rule that is written down in ARCHITECTURE.md or CONTRIBUTING.md and can be checked by
//! reading files is checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

/// Who may use whom: ARCHITECTURE.md. `bellbird` and `bellbird-benches` may use all.
const ARROWS: [(&str, &[&str]); 10] = [
    ("bellbird-api", &[CONNECTIONS, DOMAIN, READS, SHARED_STATE, STORAGE]),
    ("bellbird-console", &[CONNECTIONS, DOMAIN, READS, SHARED_STATE, STORAGE]),
    (CONNECTIONS, &[DOMAIN, PROVIDERS, SHARED_STATE, STORAGE, WEBHOOKS]),
    (WEBHOOKS, &[DOMAIN, PROVIDERS, SHARED_STATE, STORAGE]),
    (READS, &[DOMAIN, PROVIDERS, SHARED_STATE, STORAGE]),
    (PROVIDERS, &[DOMAIN]),
    (STORAGE, &[DOMAIN]),
    (SHARED_STATE, &[]),
    (DOMAIN, &[]),
    ("bellbird-sandbox", &[]),
];
const CONNECTIONS: &str = "bellbird-connections";
const DOMAIN: &str = "bellbird-domain";
const PROVIDERS: &str = "bellbird-providers";
const READS: &str = "bellbird-reads";
const SHARED_STATE: &str = "bellbird-shared-state";
const STORAGE: &str = "bellbird-storage";
const WEBHOOKS: &str = "bellbird-webhooks";

/// Where the environment may be read: the settings, and the address of the test database.
const READ_THE_ENVIRONMENT: [&str; 2] = ["crates/bellbird/src/config/", "crates/storage/src/tests/mod.rs"];
/// Crates that a provider's amount passes through.
const WITHOUT_FLOATS: [&str; 7] = ["api", "connections", "domain", "providers", "reads", "storage", "webhooks"];
/// Where a provider may be named: the providers and what pretends them. The flags of `bellbird sandbox` are promised by name.
const MAY_NAME_PROVIDERS: [&str; 3] = ["crates/providers/", "crates/sandbox/", "crates/bellbird/src/cli/sandbox.rs"];
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

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder with a certain ending, as paths from the repository's root, sorted; build outputs left out.
fn files(below: &str, ending: &str) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let entry = entry.unwrap();
            match (entry.file_type().unwrap().is_dir(), entry.file_name().to_str()) {
                (true, Some("target" | ".git")) => {}
                (true, _) => walk(&entry.path(), found),
                (false, _) => found.push(entry.path()),
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    let name = |path: &PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = found.iter().map(name).filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

/// The Rust files of the crates that are part of the program: `crates/*/src`.
fn sources() -> Vec<String> {
    files("crates", ".rs").into_iter().filter(|path| path.split('/').nth(2) == Some("src")).collect()
}

/// Lines of Rust with their numbers, without comments. A `//` within a string ends a line too early, which is harmless.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let without_comment = |line: &'_ str| line.find("//").unwrap_or(line.len());
    text.lines().enumerate().map(move |(at, line)| (at + 1, &line[..without_comment(line)]))
}

/// Every place in the code of `paths` that `is_wrong`, as `path:line`.
fn places(paths: impl IntoIterator<Item = String>, is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        let text = read(&root().join(&path));
        found.extend(code(&text).filter(|(_, line)| is_wrong(line)).map(|(number, _)| format!("{path}:{number}")));
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[track_caller]
fn assert_none(found: &[String], what_to_do: &str) {
    assert!(found.is_empty(), "{what_to_do}\n  {}", found.join("\n  "));
}

/// The manifests of the workspace's members, by path.
fn manifests() -> BTreeMap<String, Table> {
    let mut paths = files("crates", "/Cargo.toml");
    paths.push("benches/Cargo.toml".to_owned());
    paths.into_iter().map(|path| (path.clone(), parse(&path))).collect()
}

fn parse(path: &str) -> Table {
    read(&root().join(path)).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every dependency of a manifest, of all kinds and platforms: its section, its name, and how it is written.
fn dependencies(manifest: &Table) -> Vec<(String, String, toml::Value)> {
    let mut found = Vec::new();
    for (section, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        if section.ends_with("dependencies") {
            found.extend(table.iter().map(|(name, spec)| (section.clone(), name.clone(), spec.clone())));
        } else if section == "target" {
            found.extend(table.values().filter_map(toml::Value::as_table).flat_map(dependencies));
        }
    }
    found
}

fn package_name(manifest: &Table) -> &str {
    manifest["package"]["name"].as_str().expect("a name")
}

#[test]
fn crates_use_only_whom_they_may() {
    let mut wrong = Vec::new();
    for (path, manifest) in manifests() {
        let name = package_name(&manifest);
        if matches!(name, "bellbird" | "bellbird-benches") {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            wrong.push(format!("{path}: {name} is not in the list"));
            continue;
        };
        let ours = dependencies(&manifest).into_iter().map(|(_, dependency, _)| dependency);
        let ours = ours.filter(|dependency| dependency.starts_with("bellbird"));
        wrong.extend(
            ours.filter(|to| !allowed.contains(&to.as_str())).map(|to| format!("{path}: {name} must not use {to}")),
        );
    }
    assert_none(
        &wrong,
        "the layers of ARCHITECTURE.md (\"Who may use whom\") do not allow this: move the code to where it may be used, \
         or, when the new arrow is meant, add it there and to ARROWS in tidy.rs",
    );
}

#[test]
fn dependencies_are_those_of_the_workspace() {
    let workspace = parse("Cargo.toml");
    let known = workspace["workspace"]["dependencies"].as_table().expect("a table");
    let mut unused: BTreeSet<&str> = known.keys().map(String::as_str).collect();
    let mut wrong = Vec::new();
    for (path, manifest) in manifests() {
        for (section, name, spec) in dependencies(&manifest) {
            unused.remove(name.as_str());
            let inherited = spec.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            // A member that nobody else uses is named by its folder.
            let folder = spec.get("path").is_some() && spec.get("version").is_none();
            if !inherited && !folder {
                wrong.push(format!("{path}: [{section}] {name}"));
            }
        }
    }
    assert_none(
        &wrong,
        "put the version into [workspace.dependencies] of Cargo.toml, and write `name.workspace = true`:",
    );
    let unused: Vec<String> = unused.into_iter().map(str::to_owned).collect();
    assert_none(&unused, "no member uses these any more: remove them from [workspace.dependencies] of Cargo.toml");
}

#[test]
fn the_fuzz_targets_take_what_the_program_takes() {
    let versions = |path: &str| {
        let packages = parse(path)["package"].as_array().expect("packages").clone();
        let field = |package: &toml::Value, name: &str| package[name].as_str().expect("text").to_owned();
        let pairs = packages.iter().map(|package| (field(package, "name"), field(package, "version")));
        pairs.collect::<BTreeSet<(String, String)>>()
    };
    let (ours, fuzz) = (versions("Cargo.lock"), versions("fuzz/Cargo.lock"));
    let shared = |name: &str| ours.iter().any(|(other, _)| other == name);
    let apart =
        fuzz.difference(&ours).filter(|(name, _)| shared(name)).map(|(name, version)| format!("{name} {version}"));
    assert_none(
        &apart.collect::<Vec<String>>(),
        "other versions than in Cargo.lock: run `cp Cargo.lock fuzz/ && cargo metadata --manifest-path fuzz/Cargo.toml \
         --format-version 1 >/dev/null`",
    );
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    let inherits = |manifest: &Table| {
        manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    let missing: Vec<String> =
        manifests().into_iter().filter(|(_, manifest)| !inherits(manifest)).map(|(path, _)| path).collect();
    assert_none(&missing, "add `[lints]` with `workspace = true` to:");
}

#[test]
fn the_environment_is_read_in_one_place() {
    let others = sources().into_iter().filter(|path| !READ_THE_ENVIRONMENT.iter().any(|may| path.starts_with(may)));
    let reads = |line: &str| ["env::var", "env::{", "env::*"].iter().any(|call| line.contains(call));
    assert_none(
        &places(others, reads),
        "make it a setting (CONTRIBUTING.md, \"Add a setting\") and pass its value in; only the settings read the environment:",
    );
}

#[test]
fn paths_in_documents_exist() {
    let root = root();
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).into_iter();
    let documents =
        documents.chain(files("docs", ".md")).chain(files("crates", "/README.md")).chain(["fuzz/README.md".to_owned()]);
    let tops: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name != "target" && name != ".git")
        .collect();
    // The notes that the project began with lie beside the repository, not in it.
    let notes = root.join("../shared").is_dir();
    let mut missing = Vec::new();
    for document in documents {
        for (number, path) in named_paths(&read(&root.join(&document))) {
            let is_note = path.starts_with("../shared/");
            let is_ours = path.split_once('/').is_some_and(|(top, _)| tops.iter().any(|name| name == top));
            if (is_ours || is_note && notes) && !exists(&root, path) {
                missing.push(format!("{document}:{number}: {path}"));
            }
        }
    }
    assert_none(&missing, "no such file: correct the document, or write the path from the repository's root:");
}

/// What stands in backticks and looks like a path, with its line; blocks of code left out.
fn named_paths(document: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (at, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let quoted = line.split('`').skip(1).step_by(2);
            found.extend(quoted.filter(|text| text.contains('/') && !text.contains(' ')).map(|text| (at + 1, text)));
        }
    }
    found
}

/// Whether a path exists, as far as it is spelled out: up to the first `<name>`, `*` or `{a,b}`. What the fuzz targets
/// write is not in a fresh clone.
fn exists(root: &Path, path: &str) -> bool {
    let spelled_out =
        path.find(['<', '*', '{', '…']).map_or(path, |end| &path[..path[..end].rfind('/').unwrap_or(end)]);
    ["fuzz/corpus/", "fuzz/artifacts/"].contains(&path) || root.join(spelled_out).exists()
}

#[test]
fn both_databases_have_the_same_migrations() {
    let [sqlite, postgres] = ["sqlite", "postgres"].map(|database| {
        let folder = format!("crates/storage/migrations/{database}");
        let names = files(&folder, ".sql").into_iter();
        names.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned()).collect::<BTreeSet<String>>()
    });
    assert!(!sqlite.is_empty(), "no migrations found: correct the path in tidy.rs");
    let apart: Vec<String> = sqlite.symmetric_difference(&postgres).cloned().collect();
    assert_none(&apart, "a migration needs a file of the same name for each database (crates/storage/migrations/):");
}

#[test]
fn nothing_is_left_undone() {
    let rust =
        || files("crates", ".rs").into_iter().chain(files("benches", ".rs")).filter(|path| !path.ends_with("/tidy.rs"));
    let undone = |line: &str| ["todo!", "unimplemented!", "dbg!"].iter().any(|left| line.contains(left));
    assert_none(&places(rust(), undone), "finish it, or return an error that says what is missing:");
    let ignored = |line: &str| line.trim_start().starts_with("#[ignore");
    assert_none(
        &places(rust(), ignored),
        "a test that does not run proves nothing: let it run, or make it a benchmark:",
    );
}

#[test]
fn no_float_comes_near_an_amount() {
    let with_amounts = |path: &String| path.split('/').nth(1).is_some_and(|name| WITHOUT_FLOATS.contains(&name));
    assert_none(
        &places(sources().into_iter().filter(with_amounts), |line| has_word(line, "f32") || has_word(line, "f64")),
        "amounts are Decimal, durations are Duration: a float has no place in this crate:",
    );
}

#[test]
fn sql_is_in_storage_only() {
    let others = sources().into_iter().filter(|path| !path.starts_with("crates/storage/"));
    let is_sql = |line: &str| line.split('"').skip(1).step_by(2).any(|text| SQL.iter().any(|word| text.contains(word)));
    assert_none(&places(others, is_sql), "statements belong into crates/storage, as constants that its tests prepare:");
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
        &places(sources().into_iter().filter(|path| !may(path)), named),
        "what this says of one provider belongs into its folder, behind the trait or into its declaration:",
    );
}

#[test]
fn files_are_about_one_thing() {
    let long = |path: &String| read(&root().join(path)).lines().count() >= LINES_MAX;
    let long: Vec<String> = sources().into_iter().filter(long).collect();
    assert_none(&long, &format!("{LINES_MAX} lines or more: split the file by what it is about:"));
}

#[test]
fn the_rules_would_notice() {
    assert!(has_word("let x: f64 = 1.0;", "f64") && !has_word("let f64_of = 1;", "f64"));
    assert_eq!(named_paths("see `a/b.rs` and `c d/e`\n```\n`x/y`\n```\n`docs/`"), [(1, "a/b.rs"), (5, "docs/")]);
    assert!(exists(&root(), "crates/<name>/src") && !exists(&root(), "crates/nowhere/src"));
    assert_eq!(code("a // b\n/// c").collect::<Vec<_>>(), [(1, "a "), (2, "")]);
    let manifest: Table = "[target.x.dev-dependencies]\na = \"1\"\n[dependencies]\nb = \"2\"".parse().unwrap();
    assert_eq!(dependencies(&manifest).len(), 2);
    assert!(sources().len() > 50, "the sources are not found");
}
