//! Who may use whom, and what the manifests say.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::{assert_none, files, read, root};

/// Who may use whom: ARCHITECTURE.md. `bellbird` and `bellbird-benches` may use all.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 11] = [
    ("bellbird-api", &[CONNECTIONS, DOMAIN, LIMITS, READS, STORAGE, WEBHOOKS]),
    ("bellbird-interop", &["bellbird-api", CONNECTIONS, DOMAIN, LIMITS, READS, STORAGE, WEBHOOKS]),
    ("bellbird-console", &[CONNECTIONS, DOMAIN, LIMITS, READS, STORAGE]),
    (CONNECTIONS, &[DOMAIN, PROVIDERS, LIMITS, STORAGE, WEBHOOKS]),
    (WEBHOOKS, &[DOMAIN, PROVIDERS, LIMITS, STORAGE]),
    (READS, &[DOMAIN, PROVIDERS, LIMITS, STORAGE]),
    (PROVIDERS, &[DOMAIN, LIMITS]),
    (STORAGE, &[DOMAIN]),
    (LIMITS, &[DOMAIN]),
    (DOMAIN, &[]),
    ("bellbird-sandbox", &[]),
];
const CONNECTIONS: &str = "bellbird-connections";
const DOMAIN: &str = "bellbird-domain";
const LIMITS: &str = "bellbird-limits";
const PROVIDERS: &str = "bellbird-providers";
const READS: &str = "bellbird-reads";
const STORAGE: &str = "bellbird-storage";
const WEBHOOKS: &str = "bellbird-webhooks";

/// The manifests of the workspace's members, by path.
fn manifests() -> BTreeMap<String, Table> {
    let mut paths = files("crates", "/Cargo.toml");
    paths.extend(["benches/Cargo.toml", "sandbox/Cargo.toml"].map(str::to_owned));
    paths.into_iter().map(|path| (path.clone(), parse(&path))).collect()
}

fn parse(path: &str) -> Table {
    read(&root().join(path)).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of all dependencies of a manifest, of all kinds and platforms.
fn dependencies(manifest: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for (section, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        if section.ends_with("dependencies") {
            found.extend(table.keys().cloned());
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
fn crates_use_only_allowed_crates() {
    let mut wrong = Vec::new();
    for (path, manifest) in manifests() {
        let name = package_name(&manifest);
        if matches!(name, "bellbird" | "bellbird-benches") {
            continue;
        }
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(from, _)| *from == name) else {
            wrong.push(format!("{path}: {name} is not in the list"));
            continue;
        };
        let ours = dependencies(&manifest).into_iter().filter(|dependency| dependency.starts_with("bellbird"));
        wrong.extend(
            ours.filter(|to| !allowed.contains(&to.as_str())).map(|to| format!("{path}: {name} must not use {to}")),
        );
    }
    assert_none(
        &wrong,
        "the layers of ARCHITECTURE.md (\"Who may use whom\") do not allow this: move the code to where it may be \
         used, or, when the new arrow is meant, add it there and to ALLOWED_DEPENDENCIES in repository/layers.rs",
    );
}

#[test]
fn fuzz_lock_matches_the_workspace_lock() {
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
fn every_member_inherits_the_workspace_lints() {
    let inherits = |manifest: &Table| {
        manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    let missing: Vec<String> =
        manifests().into_iter().filter(|(_, manifest)| !inherits(manifest)).map(|(path, _)| path).collect();
    assert_none(&missing, "add `[lints]` with `workspace = true` to:");
}

#[test]
fn dependencies_of_every_kind_are_found() {
    let manifest: Table = "[target.x.dev-dependencies]\na = \"1\"\n[dependencies]\nb = \"2\"".parse().unwrap();
    assert_eq!(dependencies(&manifest).len(), 2);
}
