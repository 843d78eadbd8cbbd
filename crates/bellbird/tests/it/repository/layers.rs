//! Who may use whom, and what the manifests say.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::{assert_none, code_lines, files, has_word, read, root};

/// The manifests of the workspace's members, by path.
fn manifests() -> BTreeMap<String, Table> {
    let mut paths = files("crates", "/Cargo.toml");
    paths.extend(["benches/Cargo.toml", "sandbox/Cargo.toml"].map(str::to_owned));
    paths
        .into_iter()
        .map(|path| (path.clone(), parse(&path)))
        .collect()
}

fn parse(path: &str) -> Table {
    read(&root().join(path))
        .parse()
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of all dependencies of a manifest, of all kinds and platforms.
fn dependencies(manifest: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for (section, value) in manifest {
        let Some(table) = value.as_table() else {
            continue;
        };
        if section.ends_with("dependencies") {
            found.extend(table.keys().cloned());
        } else if section == "target" {
            let tables = table.values().filter_map(toml::Value::as_table);
            found.extend(tables.flat_map(dependencies));
        }
    }
    found
}

/// The name of a crate in ARCHITECTURE.md.
fn short(name: &str) -> &str {
    name.strip_prefix("bellbird-").unwrap_or(name)
}

/// Who may use whom, by the block of ARCHITECTURE.md.
fn documented_arrows() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(&root().join("ARCHITECTURE.md"));
    let sections = page.split_once("\n## Who may use whom\n");
    let (_, section) = sections.expect("the section");
    parse_arrows(section.split("```").nth(1).expect("its block"))
}

/// Reads lines such as `a, b ──► c, d`.
fn parse_arrows(block: &str) -> BTreeMap<String, BTreeSet<String>> {
    let names = |list: &str| -> BTreeSet<String> {
        let names = list.split(',');
        names.map(|name| name.trim().to_owned()).collect()
    };
    let mut found = BTreeMap::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let Some((users, used)) = line.split_once('►') else {
            panic!("no arrow: {line}")
        };
        let mut used = names(used);
        used.remove("nothing");
        for user in names(users.trim_end_matches([' ', '─'])) {
            found.insert(user, used.clone());
        }
    }
    found
}

#[test]
fn arrows_of_the_architecture_are_those_of_the_manifests() {
    let mut arrows = documented_arrows();
    let mut wrong = Vec::new();
    for (path, manifest) in manifests() {
        let name = short(manifest["package"]["name"].as_str().expect("a name"));
        let Some(documented) = arrows.remove(name) else {
            wrong.push(format!("{path}: the block has no line for {name}"));
            continue;
        };
        if documented.contains("everything") {
            continue;
        }
        let all = dependencies(&manifest)
            .into_iter()
            .filter(|dependency| dependency.starts_with("bellbird"));
        let used = all.map(|dependency| short(&dependency).to_owned());
        let used: BTreeSet<String> = used.collect();
        for to in used.difference(&documented) {
            wrong.push(format!("{path}: {name} must not use {to}"));
        }
        for to in documented.difference(&used) {
            wrong.push(format!("{path}: {name} does not use {to}"));
        }
    }
    for name in arrows.keys() {
        wrong.push(format!("no crate is called {name}"));
    }
    assert_none(
        &wrong,
        "the block \"Who may use whom\" of ARCHITECTURE.md says otherwise: move the code to where it may be used, or, \
         when the new arrow is meant, change the block:",
    );
}

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for (path, manifest) in manifests() {
        let sources = files(path.trim_end_matches("/Cargo.toml"), ".rs");
        let texts = sources.iter().map(|source| read(&root().join(source)));
        let texts: Vec<String> = texts.collect();
        let is_used = |dependency: &String| {
            let name = dependency.replace('-', "_");
            texts.iter().any(|text| {
                text.contains(&name) && code_lines(text).any(|(_, line)| has_word(line, &name))
            })
        };
        let mut names = dependencies(&manifest);
        names.retain(|name| !is_used(name));
        unused.extend(names.iter().map(|name| format!("{path}: {name}")));
    }
    assert_none(&unused, "no source names these dependencies: remove them");
}

#[test]
fn fuzz_lock_matches_the_workspace_lock() {
    let versions = |path: &str| {
        let packages = parse(path)["package"].as_array().expect("packages").clone();
        let field =
            |package: &toml::Value, name: &str| package[name].as_str().expect("text").to_owned();
        let pairs = packages
            .iter()
            .map(|package| (field(package, "name"), field(package, "version")));
        pairs.collect::<BTreeSet<(String, String)>>()
    };
    let (ours, fuzz) = (versions("Cargo.lock"), versions("fuzz/Cargo.lock"));
    let shared = |name: &str| ours.iter().any(|(other, _)| other == name);
    let apart = fuzz
        .difference(&ours)
        .filter(|(name, _)| shared(name))
        .map(|(name, version)| format!("{name} {version}"));
    assert_none(
        &apart.collect::<Vec<String>>(),
        "other versions than in Cargo.lock: run `cp Cargo.lock fuzz/ && cargo metadata --manifest-path fuzz/Cargo.toml \
         --format-version 1 >/dev/null`",
    );
}

#[test]
fn every_member_inherits_the_workspace_lints() {
    let inherits = |manifest: &Table| {
        manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool)
            == Some(true)
    };
    let mut missing = manifests();
    missing.retain(|_, manifest| !inherits(manifest));
    let missing: Vec<String> = missing.into_keys().collect();
    assert_none(&missing, "add `[lints]` with `workspace = true` to:");
}

#[test]
fn the_rules_for_layers_would_notice() {
    let manifest: Table = "[target.x.dev-dependencies]\na = \"1\"\n[dependencies]\nb = \"2\""
        .parse()
        .unwrap();
    assert_eq!(dependencies(&manifest).len(), 2);
    let arrows = parse_arrows("\na, b ──► c, d\nc, d ──► nothing\n");
    let to = |from: &str| arrows[from].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!([to("a"), to("b")], [["c", "d"], ["c", "d"]]);
    assert!(to("c").is_empty());
}
