//! What can be wrong with the settings, said so that it can be put right.

use std::fmt;

use super::source::Origin;
use super::{SECTIONS, Section};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError(String);

/// All that is wrong, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingErrors(pub Vec<SettingError>);

impl SettingError {
    /// A value that its setting does not take. The value is none where it must not be shown.
    pub(super) fn wrong(key: &str, value: Option<&str>, origin: &Origin, accepted: &str) -> Self {
        let value = value.map(|value| format!(" is `{}`", shortened(value))).unwrap_or_default();
        Self(format!("{key}{value} in {origin}: it must be {accepted}"))
    }

    /// A section that there is not.
    pub(super) fn unknown_section(section: &str, origin: &Origin) -> Self {
        let known: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        let section = shortened(section);
        Self(format!("unknown section `{section}` in {origin}: the sections are {}", known.join(", ")))
    }

    /// A key that its section does not have.
    pub(super) fn unknown_key(section: &Section, key: &str, origin: &Origin) -> Self {
        let known: Vec<_> = section.keys.iter().map(|key| key.name).collect();
        let (name, key) = (section.name, shortened(key));
        Self(format!("unknown setting `{name}.{key}` in {origin}: section {name} has {}", known.join(", ")))
    }

    /// Anything else: a file that cannot be read, a file that is not TOML.
    pub(super) fn other(message: String) -> Self {
        Self(message)
    }
}

/// A value, cut so that a message stays one line, without control characters.
fn shortened(value: &str) -> String {
    let mut text: String = value.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
    if value.chars().nth(80).is_some() {
        text.push_str("...");
    }
    text
}

impl fmt::Display for SettingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for SettingErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingErrors {}
