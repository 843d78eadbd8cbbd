//! No cycle of modules: code that several modules need belongs in a leaf module.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::{assert_none, files, read, root};

/// A module's path below its crate, `[]` for the root.
type Module = Vec<String>;

/// The crate's root in a cycle. It is above all modules, but no folder: a module that reaches its
/// siblings through the root's type is in a cycle with them.
const ROOT: &str = "lib";

/// Crates with a cycle through the root that is still to be removed. One whose cycle is gone is an
/// error here.
const WITH_ROOT_CYCLE: [&str; 3] = [
    "crates/interop/src",
    "crates/reads/src",
    "crates/webhooks/src",
];

#[test]
fn modules_form_no_cycle() {
    let (mut cycles, mut gone) = (Vec::new(), Vec::new());
    for folder in source_folders() {
        let sources = files(&folder, ".rs")
            .into_iter()
            .filter(|path| !is_test(path) && !path.ends_with("/main.rs"));
        let parsed = sources.map(|path| {
            let text = read(&root().join(&path));
            (
                module_of(&folder, &path),
                syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}")),
            )
        });
        let mut uses = uses(&parsed.collect());
        if WITH_ROOT_CYCLE.contains(&folder.as_str()) {
            if !cycles_of(&uses)
                .iter()
                .any(|cycle| cycle.contains(&vec![ROOT.to_owned()]))
            {
                gone.push(folder.clone());
            }
            uses.remove([ROOT.to_owned()].as_slice());
        }
        cycles.extend(
            cycles_of(&uses)
                .iter()
                .map(|cycle| format!("{folder}: {}", names(cycle))),
        );
    }
    assert_none(&cycles, "move what both need into a leaf module:");
    assert_none(
        &gone,
        "no such cycle any more: remove it from the list above:",
    );
}

/// The folders with sources of the program's crates.
fn source_folders() -> Vec<String> {
    let manifests = files("crates", "/Cargo.toml")
        .into_iter()
        .chain(files(".", "sandbox/Cargo.toml"));
    manifests
        .map(|path| path.replace("Cargo.toml", "src"))
        .collect()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

fn module_of(folder: &str, path: &str) -> Module {
    let below = path[folder.len() + 1..].trim_end_matches(".rs");
    let parts = below
        .split('/')
        .filter(|part| !matches!(*part, "lib" | "mod"));
    parts.map(str::to_owned).collect()
}

/// Which modules each module names, re-exports followed to where the item is defined. What a root
/// re-exports, it does not use.
fn uses(files: &BTreeMap<Module, syn::File>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut named: BTreeMap<Module, Vec<Module>> = BTreeMap::new();
    let mut imports: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
    for (module, file) in files {
        let mut visitor = Paths {
            inline: 0,
            paths: Vec::new(),
        };
        let is_export = |item: &syn::Item| match item {
            syn::Item::Use(item) => is_public(&item.vis),
            // A module of the root that only groups what it re-exports.
            syn::Item::Mod(item) => item.content.as_ref().is_some_and(|(_, items)| {
                items
                    .iter()
                    .all(|item| matches!(item, syn::Item::Use(item) if is_public(&item.vis)))
            }),
            _ => false,
        };
        let used = file
            .items
            .iter()
            .filter(|item| !(module.is_empty() && is_export(item)));
        used.for_each(|item| visitor.visit_item(item));
        let absolute = |path: &Vec<String>| absolute(files, module, path);
        named.insert(
            module.clone(),
            visitor.paths.iter().filter_map(absolute).collect(),
        );
        let mut leaves = Vec::new();
        for item in &file.items {
            if let syn::Item::Use(item) = item {
                flatten(&item.tree, &mut Vec::new(), &mut leaves);
            }
        }
        let leaves = leaves
            .iter()
            .filter_map(|path| Some((path.last()?.clone(), absolute(path)?)));
        imports.insert(module.clone(), leaves.collect());
    }
    let resolve = |path: &Module| {
        let mut path = path.clone();
        for _ in 0..8 {
            let depth = (0..=path.len())
                .rev()
                .find(|depth| files.contains_key(&path[..*depth]))
                .unwrap_or(0);
            let (module, rest) = path.split_at(depth);
            match rest.first().and_then(|item| imports[module].get(item)) {
                Some(source) if source[..] != path[..=depth] => {
                    path = source.iter().chain(&rest[1..]).cloned().collect();
                }
                _ => return module.to_vec(),
            }
        }
        panic!("{path:?} is re-exported in a cycle")
    };
    let named_root = |module: Module| {
        if module.is_empty() {
            vec![ROOT.to_owned()]
        } else {
            module
        }
    };
    let targets = |module: &Module, paths: &Vec<Module>| {
        let others = paths.iter().map(resolve).filter(|target| target != module);
        others.map(named_root).collect::<BTreeSet<Module>>()
    };
    named
        .iter()
        .map(|(module, paths)| (named_root(module.clone()), targets(module, paths)))
        .collect()
}

fn is_public(visibility: &syn::Visibility) -> bool {
    !matches!(visibility, syn::Visibility::Inherited)
}

/// A path as seen from the crate's root; none for paths into other crates.
fn absolute(
    files: &BTreeMap<Module, syn::File>,
    module: &Module,
    path: &[String],
) -> Option<Module> {
    let mut base = module.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            let is_child = files.contains_key(&[&base[..], &[child.to_owned()]].concat());
            if !is_child {
                return None;
            }
        }
    }
    Some([&base[..], rest].concat())
}

/// Collects the paths that a file names, in macros too; what is only built for tests is left out.
struct Paths {
    inline: usize,
    paths: Vec<Vec<String>>,
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        let is_test = |attribute: &syn::Attribute| match &attribute.meta {
            syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
            _ => false,
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        let depth = usize::from(item.content.is_some());
        self.inline += depth;
        visit::visit_item_mod(self, item);
        self.inline -= depth;
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        leaves.into_iter().for_each(|path| self.add(path));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.add(names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.add_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

impl Paths {
    fn add(&mut self, mut path: Vec<String>) {
        // Seen from the file, not from a module written out within it.
        for _ in 0..self.inline {
            if path.first().is_some_and(|part| part == "super") {
                path.remove(0);
            }
        }
        self.paths.push(path);
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
                TokenTree::Punct(punct)
                    if punct.as_char() == ':' && !path.is_empty() && colons < 2 =>
                {
                    colons += 1;
                    continue;
                }
                _ => {
                    self.end(&mut path);
                    if let TokenTree::Ident(ident) = &token {
                        path.push(ident.to_string());
                    }
                }
            }
            colons = 0;
            if let TokenTree::Group(group) = token {
                self.add_tokens(group.stream());
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.add(path);
        }
    }
}

/// The paths of a `use`, each to its last name.
fn flatten(tree: &syn::UseTree, before: &mut Vec<String>, leaves: &mut Vec<Vec<String>>) {
    let with = |before: &[String], name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        syn::UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| flatten(tree, before, leaves)),
        syn::UseTree::Name(name) if name.ident == "self" => leaves.push(before.clone()),
        syn::UseTree::Name(name) => leaves.push(with(before, &name.ident)),
        syn::UseTree::Rename(name) => leaves.push(with(before, &name.ident)),
        _ => leaves.push(before.clone()),
    }
}

/// The groups of modules that reach each other. A folder may be cyclic: a module and those below it
/// may use each other, as long as the files below form no cycle among themselves, and no cycle
/// leaves the folder.
fn cycles_of(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<Module>> {
    let is_folder = |cycle: &Vec<Module>| {
        let mut modules = cycle.iter();
        modules.any(|one| cycle.iter().all(|other| other.starts_with(one)))
    };
    let mut apart = uses.clone();
    for (module, uses) in &mut apart {
        uses.retain(|other| !module.starts_with(other) && !other.starts_with(module));
    }
    let through_folders = groups(uses).into_iter().filter(|cycle| !is_folder(cycle));
    groups(&apart).into_iter().chain(through_folders).collect()
}

/// The strongly connected components of more than one module.
fn groups(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<Module>> {
    let reached = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for next in uses.get(module).into_iter().flatten() {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reach = uses.keys().map(|module| (module, reached(module)));
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = reach.collect();
    let mut found = BTreeSet::new();
    for (module, reaches) in &reach {
        if reaches.contains(module) {
            let mut group: Vec<Module> = Vec::new();
            for other in reaches {
                if reach.get(other).is_some_and(|back| back.contains(module)) {
                    group.push((*other).clone());
                }
            }
            found.insert(group);
        }
    }
    found
}

fn names(cycle: &[Module]) -> String {
    let names: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
    names.join(", ")
}

#[test]
fn a_cycle_of_modules_would_be_found() {
    let parse = |text: &str| syn::parse_file(text).expect("Rust");
    let module = |path: &str| -> Module {
        let parts = path.split("::").filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let found = |files: &BTreeMap<Module, syn::File>| -> Vec<String> {
        let cycles = cycles_of(&uses(files)).into_iter();
        cycles.map(|cycle| names(&cycle)).collect()
    };
    let files = BTreeMap::from([
        (module(""), parse("mod a; mod b; mod c; pub use c::C;")),
        (
            module("a"),
            parse("use crate::b::B; #[cfg(test)] mod tests { use crate::c::C; }"),
        ),
        (
            module("b"),
            parse("mod leaf; use leaf::L; fn f() { g!(crate::C); }"),
        ),
        (module("b::leaf"), parse("use super::B;")),
        (module("c"), parse("mod inline { use super::super::a::A; }")),
    ]);
    assert_eq!(found(&files), ["a, b, b::leaf, c", "a, b, c"]);
    let with_root = BTreeMap::from([
        (
            module(""),
            parse("mod a; mod b; pub use b::B; struct S { a: a::A }"),
        ),
        (module("a"), parse("use crate::B;")),
        (module("b"), parse("use crate::S;")),
    ]);
    assert_eq!(found(&with_root), ["a, b, lib"]);
    let folder_files = files
        .into_iter()
        .filter(|(module, _)| module.is_empty() || module.starts_with(&["b".to_owned()]));
    assert!(found(&folder_files.collect()).is_empty());
}
