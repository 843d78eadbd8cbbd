//! Collects the values of settings from the file, the environment and the flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::SettingError;
use super::origin::Origin;
use super::{Key, SECTIONS, default_raw, find_section};

const PREFIX: &str = "BELLBIRD_";
const DEFAULT_FILE: &str = "bellbird.toml";

/// A flag that sets a setting.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as typed, such as `--api-listen`.
    pub name: &'static str,
    pub section: &'static str,
    pub key: &'static str,
    pub value: String,
}

/// Inputs of [`Settings::load`](super::Settings::load). Collected once, so that loading does not read the environment.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file of `--config`, which must exist. `None` reads `bellbird.toml` in the working directory if it exists.
    pub file: Option<PathBuf>,
    /// Environment variables by name.
    pub environment: Vec<(String, Result<String, NotText>)>,
    pub flags: Vec<Flag>,
}

/// A variable whose value is not UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct NotText;

impl Sources {
    #[must_use]
    pub fn from_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().map_err(|_| NotText))))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        Self { file, environment, flags }
    }
}

/// A value as its source wrote it.
#[derive(Debug, Clone)]
pub(super) enum Raw {
    /// A string in the file, or any value of a variable or flag.
    Text(String),
    /// A value without quotes in the file, such as a number.
    Bare(String),
    /// A list of strings or numbers.
    List(Vec<String>),
    /// A table, or a list of other values.
    Other,
}

impl Raw {
    /// The value as an error message shows it.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Bare(text) => text.clone(),
            Self::List(parts) => parts.join(","),
            Self::Other => "not a single value".to_owned(),
        }
    }
}

/// The effective value of every setting that a source sets, with its origin.
pub(super) struct Values(BTreeMap<(&'static str, &'static str), (Raw, Origin)>);

impl Values {
    pub(super) fn collect(sources: &Sources, errors: &mut Vec<SettingError>) -> Self {
        let mut values = Self(BTreeMap::new());
        values.add_file(sources.file.as_deref(), errors);
        values.add_environment(&sources.environment, errors);
        for flag in &sources.flags {
            values.0.insert((flag.section, flag.key), (Raw::Text(flag.value.clone()), Origin::Flag(flag.name)));
        }
        values
    }

    /// Reads a setting or its default. On an error, adds it to `errors` and returns `None`.
    pub(super) fn read<T>(
        &self,
        section: &'static str,
        key: Option<&'static Key>,
        reader: impl Fn(Option<&Raw>) -> Result<T, String>,
        errors: &mut Vec<SettingError>,
    ) -> Option<T> {
        let key = key?;
        let found = self.0.get(&(section, key.name));
        let default = key.default.as_deref().map(default_raw);
        let raw = found.map(|(raw, _)| raw).or(default.as_ref());
        match (reader(raw), found) {
            (Ok(value), _) => Some(value),
            (Err(accepted), Some((raw, origin))) => {
                let shown = raw.shown();
                let name = format!("{section}.{}", key.name);
                let hidden = key.secret || name == "database.url";
                errors.push(SettingError::invalid_value(&name, (!hidden).then_some(&shown), origin, &accepted));
                None
            }
            // A bug in the table: a test reads every default.
            (Err(accepted), None) => {
                errors.push(SettingError::other(format!("{section}.{} has an invalid default: {accepted}", key.name)));
                None
            }
        }
    }

    pub(super) fn origins(&self) -> BTreeMap<String, Origin> {
        self.0.iter().map(|((section, key), (_, origin))| (format!("{section}.{key}"), origin.clone())).collect()
    }

    fn add(&mut self, section: &str, key: &str, raw: Raw, origin: Origin, errors: &mut Vec<SettingError>) {
        let Some(known) = find_section(section) else {
            return errors.push(SettingError::unknown_section(section, &origin));
        };
        match known.keys.iter().find(|entry| entry.name == key) {
            None => errors.push(SettingError::unknown_key(known, key, &origin)),
            Some(entry) => {
                self.0.insert((known.name, entry.name), (raw, origin));
            }
        }
    }

    fn add_environment(&mut self, variables: &[(String, Result<String, NotText>)], errors: &mut Vec<SettingError>) {
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix(PREFIX) else { continue };
            let Some((section, key)) = rest.split_once("__") else {
                errors.extend(single_underscore(name, rest));
                continue;
            };
            match value {
                Err(NotText) => errors.push(SettingError::other(format!("{name}: the value is not UTF-8 text"))),
                Ok(text) => self.add(
                    &section.to_ascii_lowercase(),
                    &key.to_ascii_lowercase(),
                    Raw::Text(text.clone()),
                    Origin::Variable(name.clone()),
                    errors,
                ),
            }
        }
    }

    fn add_file(&mut self, named: Option<&Path>, errors: &mut Vec<SettingError>) {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let path = path.display();
                return errors.push(SettingError::other(format!("the settings file {path} cannot be read: {error}")));
            }
        };
        match DeTable::parse(&text) {
            Ok(table) => self.add_table(path, &text, table.get_ref(), errors),
            Err(error) => errors.push(not_toml(path, &text, &error)),
        }
    }

    fn add_table(&mut self, path: &Path, text: &str, table: &DeTable<'_>, errors: &mut Vec<SettingError>) {
        for (section, content) in table {
            let origin = |at: usize| Origin::File(path.to_owned(), line_of(text, at));
            let name = section.get_ref().as_ref();
            let DeValue::Table(keys) = content.get_ref() else {
                errors.push(SettingError::unknown_section(name, &origin(section.span().start)));
                continue;
            };
            if find_section(name).is_none() {
                errors.push(SettingError::unknown_section(name, &origin(section.span().start)));
                continue;
            }
            for (key, value) in keys {
                self.add(name, key.get_ref(), raw_of(value.get_ref()), origin(key.span().start), errors);
            }
        }
    }
}

fn raw_of(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => Raw::Bare(number.to_string()),
        DeValue::Float(number) => Raw::Bare(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Raw::Bare(flag.to_string()),
        DeValue::Datetime(time) => Raw::Bare(time.to_string()),
        DeValue::Array(parts) => {
            let text = |part: &DeValue<'_>| match raw_of(part) {
                Raw::Text(text) | Raw::Bare(text) => Some(text),
                Raw::List(_) | Raw::Other => None,
            };
            let texts: Option<Vec<_>> = parts.iter().map(|part| text(part.get_ref())).collect();
            texts.map_or(Raw::Other, Raw::List)
        }
        DeValue::Table(_) => Raw::Other,
    }
}

/// Detects a variable such as `BELLBIRD_API_LISTEN`, which names a setting but lacks the second underscore.
fn single_underscore(name: &str, rest: &str) -> Option<SettingError> {
    SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (section.name, key.name))).find_map(
        |(section, key)| {
            let right = format!("{section}__{key}").to_ascii_uppercase();
            (format!("{section}_{key}").to_ascii_uppercase() == rest).then(|| {
                SettingError::other(format!(
                    "unknown environment variable {name}: {section}.{key} is {PREFIX}{right}, with two underscores"
                ))
            })
        },
    )
}

/// Names the line and the error, but does not quote the line: it may hold a secret.
fn not_toml(path: &Path, text: &str, error: &toml::de::Error) -> SettingError {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    SettingError::other(format!("{}, line {line}: invalid TOML: {}", path.display(), error.message()))
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}
