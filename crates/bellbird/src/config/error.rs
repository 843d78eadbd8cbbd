//! Errors of the settings. Each names the setting, its source, and the accepted values.

use std::fmt;

use super::origin::Origin;
use super::{SECTIONS, Section};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError(String);

/// All errors of the settings; displayed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingErrors(pub Vec<SettingError>);

impl SettingError {
    /// Pass no value for a secret: the message must not show it.
    pub(super) fn invalid_value(key: &str, value: Option<&str>, origin: &Origin, accepted: &str) -> Self {
        let value = value.map(|value| format!(" is `{}`", shortened(value))).unwrap_or_default();
        Self(format!("{key}{value} in {origin}: it must be {accepted}"))
    }

    pub(super) fn unknown_section(section: &str, origin: &Origin) -> Self {
        let known: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        let section = shortened(section);
        Self(format!("unknown section `{section}` in {origin}: the sections are {}", known.join(", ")))
    }

    pub(super) fn unknown_key(section: &Section, key: &str, origin: &Origin) -> Self {
        let known: Vec<_> = section.keys.iter().map(|key| key.name).collect();
        let (name, key) = (section.name, shortened(key));
        Self(format!("unknown setting `{name}.{key}` in {origin}: section {name} has {}", known.join(", ")))
    }

    /// Any other error, such as a missing file or invalid TOML.
    pub(super) fn other(message: String) -> Self {
        Self(message)
    }
}

/// Cuts a value to 80 characters and replaces control characters, so that the message stays on one line.
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
