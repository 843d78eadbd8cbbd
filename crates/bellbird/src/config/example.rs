//! Generates the text of `bellbird.example.toml` from the table of settings.

use std::fmt::Write as _;

use super::{Key, SECTIONS, Section};

const LINE_WIDTH: usize = 98;

const HEAD: &str = "\
# All settings of Bellbird, with their defaults. Copy this file to bellbird.toml and uncomment the
# settings that you change.
#
# Bellbird reads bellbird.toml from the working directory, or the file given with --config. An
# environment variable BELLBIRD_<SECTION>__<KEY>, with two underscores between section and key,
# overrides the file. A flag overrides both. Separate the items of a list with commas in a variable.
# An unknown section or key is an error.
#
# This file is generated from crates/bellbird/src/config.rs and the declarations of the providers.
# A test compares it with them.
";

/// All settings, commented out, each with its help and its default.
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
        (None, Some(example)) => format!("# No default; for example:\n#{} = {example}", key.name),
        (None, None) => format!("#{} = \"\"", key.name),
    }
}

/// Wraps the help at [`LINE_WIDTH`], as one paragraph.
fn write_help(text: &mut String, help: &[&str]) {
    let mut line = String::from("#");
    for word in help.iter().flat_map(|part| part.split_whitespace()) {
        if line.chars().count() + 1 + word.chars().count() > LINE_WIDTH {
            let _ = writeln!(text, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}
