//! The text of `bellbird.example.toml`.

use std::fmt::Write as _;

use super::{Key, SECTIONS, Section};

const LINE: usize = 98;

const HEAD: &str = "\
# Every setting of Bellbird, with its default. Copy this file to bellbird.toml, and take the # away from what you change.
#
# bellbird.toml is read from the working directory, or from where --config says. An environment variable
# BELLBIRD_<SECTION>__<KEY> (two underscores between section and key) beats the file, and a flag beats both. A list is
# written with commas in a variable. An unknown section or key is an error.
#
# This file is made from the table in crates/bellbird/src/config.rs and what the providers declare; a test keeps it so.
";

/// Every setting, commented out, with its help and its default.
#[must_use]
pub fn example_file() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS.iter() {
        write_section(&mut text, section);
    }
    text
}

fn write_section(text: &mut String, section: &Section) {
    text.push('\n');
    write_help(text, section.help);
    let _ = writeln!(text, "[{}]", section.name);
    for key in &section.keys {
        text.push('\n');
        write_help(text, key.help);
        let _ = writeln!(text, "{}", key_line(key));
    }
}

fn key_line(key: &Key) -> String {
    match (&key.default, key.example) {
        (Some(default), _) => format!("#{} = {default}", key.name),
        (None, Some(example)) => format!("# none by default, for example:\n#{} = {example}", key.name),
        (None, None) => format!("#{} = \"\"", key.name),
    }
}

/// Wraps the help, paragraph as one, at a readable width.
fn write_help(text: &mut String, help: &[&str]) {
    let mut line = String::from("#");
    for word in help.iter().flat_map(|part| part.split_whitespace()) {
        if line.chars().count() + 1 + word.chars().count() > LINE {
            let _ = writeln!(text, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}
