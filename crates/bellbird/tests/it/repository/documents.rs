//! Documents and comments: every path and citation leads somewhere, and lines are short.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{assert_none, files, read, root, texts};

const COLUMNS_MAX: usize = 100;
/// Of files that no formatter wraps.
const UNFORMATTED_COLUMNS_MAX: usize = 120;
/// Its examples lead nowhere.
const THIS_FILE: &str = "crates/bellbird/tests/it/repository/documents.rs";
/// Generated, or not ours to wrap.
const NOT_WRAPPED: [&str; 10] = [
    "docs/openapi.json",
    "docs/admin-openapi.json",
    "LICENSE",
    ".snap",
    "/fixtures/",
    "requirements.txt",
    "mcp/tools.json",
    "programs/catalogue.json",
    "bellbird_client/types.py",
    // An item a line.
    "sandbox/src/world/data/",
];

#[test]
fn paths_in_documents_exist() {
    let root = root();
    let tops: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name != "target" && name != ".git")
        .collect();
    let mut missing = Vec::new();
    for document in markdown() {
        for (number, path) in named_paths(&read(&root.join(&document))) {
            let is_ours = path
                .split_once('/')
                .is_some_and(|(top, _)| tops.iter().any(|name| name == top));
            let path = path.split('#').next().unwrap_or(path);
            if is_ours && !exists(&root, path) {
                missing.push(format!("{document}:{number}: {path}"));
            }
        }
    }
    assert_none(
        &missing,
        "no such file: correct the document, or write the path from the repository's root:",
    );
}

/// Every `NAME.md` in comments and documents is a page of the repository, and `NAME.md#anchor` one
/// of its headings. The path counts from the root, or from the page that has the link.
#[test]
fn citations_lead_somewhere() {
    let root = root();
    let mut wrong = Vec::new();
    for path in texts().into_iter().filter(|path| path != THIS_FILE) {
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for (at, line) in read(&root.join(&path)).lines().enumerate() {
            for (page, anchor) in cited_pages(line) {
                let own = if page.is_empty() {
                    root.join(&path)
                } else {
                    root.join(folder).join(page)
                };
                let Some(page) = [own, root.join(page)]
                    .into_iter()
                    .find(|page| page.is_file())
                else {
                    wrong.push(format!("{path}:{}: no page {page}", at + 1));
                    continue;
                };
                if anchor.is_some_and(|anchor| !anchors(&read(&page)).contains(anchor)) {
                    wrong.push(format!(
                        "{path}:{}: no heading #{}",
                        at + 1,
                        anchor.unwrap_or_default()
                    ));
                }
            }
            if line.contains("../shared/") {
                wrong.push(format!("{path}:{}: outside of the repository", at + 1));
            }
        }
    }
    assert_none(
        &wrong,
        "cite a page that is here (docs/providers, docs/contract.md):",
    );
}

/// `docs/x.md#tokens` as `("docs/x.md", Some("tokens"))`, and `](#tokens)` as `("",
/// Some("tokens"))`.
fn cited_pages(line: &str) -> Vec<(&str, Option<&str>)> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "-_./<>*{}".contains(c);
    let mut found = Vec::new();
    for (at, end) in line
        .match_indices(".md")
        .map(|(at, end)| (at, at + end.len()))
    {
        let start = line[..at]
            .rfind(|c| !is_path(c))
            .map_or(0, |before| before + 1);
        let page = &line[start..end];
        let is_pattern = page.contains(['<', '*', '{']) || page == ".md";
        let is_remote = line[..start].ends_with("://")
            || line[..start].ends_with(':') && page.starts_with("//");
        if line[end..]
            .chars()
            .next()
            .is_none_or(|next| !is_path(next) || next == '.')
            && !is_pattern
            && !is_remote
        {
            found.push((page, anchor(&line[end..])));
        }
    }
    found.extend(
        line.match_indices("](#")
            .map(|(at, _)| ("", anchor(&line[at + 2..]))),
    );
    found
}

/// The anchor that a text begins with.
fn anchor(text: &str) -> Option<&str> {
    let text = text.strip_prefix('#')?;
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))
        .unwrap_or(text.len());
    Some(&text[..end]).filter(|anchor| !anchor.is_empty())
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        in_block ^= line.trim_start().starts_with("```");
        if let (false, Some(heading)) = (in_block, line.strip_prefix('#')) {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let heading: String = heading
                .trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(kept)
                .collect();
            found.insert(heading.replace(' ', "-"));
        }
    }
    found
}

#[test]
fn lines_are_short() {
    let mut long = Vec::new();
    for path in texts()
        .into_iter()
        .filter(|path| !NOT_WRAPPED.iter().any(|part| path.contains(part)))
    {
        let is_rust = path.ends_with(".rs");
        let columns_max = if is_rust || path.ends_with(".md") {
            COLUMNS_MAX
        } else {
            UNFORMATTED_COLUMNS_MAX
        };
        for (at, line) in read(&root().join(&path)).lines().enumerate() {
            // A URL cannot be wrapped, and rustfmt wraps code, where it leaves strings as they are.
            let is_one_piece = line.contains("://");
            let is_code = is_rust && !line.trim_start().starts_with("//");
            let columns = line.chars().count();
            if columns > columns_max && !is_one_piece && !is_code {
                long.push(format!("{path}:{}: {columns}", at + 1));
            }
        }
    }
    assert_none(
        &long,
        "wrap Rust's comments and Markdown at 100 columns, other files at 120:",
    );
}

/// In the `sh` of Debian and in zsh, `echo` replaces escapes such as the `\n` of a JSON string, and
/// what is left is no JSON.
#[test]
fn examples_pipe_variables_as_they_are() {
    let mut echoed = Vec::new();
    for document in markdown() {
        for (at, line) in read(&root().join(&document)).lines().enumerate() {
            if line.contains("echo \"$") && line.contains(" | ") {
                echoed.push(format!("{document}:{}", at + 1));
            }
        }
    }
    assert_none(&echoed, "write `printf '%s' \"$variable\" |` in place of:");
}

/// The Markdown pages of the repository.
fn markdown() -> Vec<String> {
    files("", ".md")
}

/// Each text in backticks that looks like a path, with its line. Code blocks are left out.
fn named_paths(document: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (at, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let quoted = line.split('`').skip(1).step_by(2);
            found.extend(
                quoted
                    .filter(|text| text.contains('/') && !text.contains(' '))
                    .map(|text| (at + 1, text)),
            );
        }
    }
    found
}

/// Whether a path exists, up to the first `<name>`, `*` or `{a,b}`. A fresh clone lacks the folders
/// that the fuzz targets write.
fn exists(root: &Path, path: &str) -> bool {
    let spelled_out = path
        .find(['<', '*', '{', '…'])
        .map_or(path, |end| &path[..path[..end].rfind('/').unwrap_or(end)]);
    ["fuzz/corpus/", "fuzz/artifacts/"].contains(&path) || root.join(spelled_out).exists()
}

#[test]
fn the_rules_for_documents_would_notice() {
    assert_eq!(
        named_paths("see `a/b.rs` and `c d/e`\n```\n`x/y`\n```\n`docs/`"),
        [(1, "a/b.rs"), (5, "docs/")]
    );
    assert!(exists(&root(), "crates/<name>/src") && !exists(&root(), "crates/nowhere/src"));
    assert_eq!(
        cited_pages(
            "(fiskil.md 1.4), [x](docs/a.md#b-c) and `docs/d.md`. See [e](#f), https://a.b/c.md, <name>.md"
        ),
        [
            ("fiskil.md", None),
            ("docs/a.md", Some("b-c")),
            ("docs/d.md", None),
            ("", Some("f"))
        ]
    );
    let page = "# One `two`, three\n```\n# not\n```\n## Four: five-six\n";
    assert_eq!(
        anchors(page).into_iter().collect::<Vec<_>>(),
        ["four-five-six", "one-two-three"]
    );
}
