//! The sources of settings: the file, the environment and the flags. A value stays as its source
//! wrote it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf, absolute};

use toml::de::{DeTable, DeValue};

use super::place::{self, SETTINGS_FILE};

const PREFIX: &str = "BELLBIRD_";

/// A flag that sets a setting.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as typed, such as `--api-listen`.
    pub name: &'static str,
    /// The setting, such as `api.listen`.
    pub setting: &'static str,
    pub value: String,
}

/// Inputs of [`Settings::load`](super::Settings::load). Collected once, so that loading does not
/// read the environment.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file of `--config`, which must exist. `None` reads `bellbird.toml` in the working
    /// directory if it exists.
    pub file: Option<PathBuf>,
    pub environment: Vec<(String, OsString)>,
    pub flags: Vec<Flag>,
}

/// The source of a value, as error messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The settings file and a line number.
    File(PathBuf, usize),
    Variable(String),
    Flag(&'static str),
    /// A file that holds one secret.
    SecretFile(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(out, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(out, "the environment variable {name}"),
            Self::Flag(name) => write!(out, "the flag {name}"),
            Self::SecretFile(path) => write!(out, "the file {}", path.display()),
        }
    }
}

/// No `Debug`: it may be a secret.
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

impl Sources {
    pub fn from_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self {
            file,
            environment: variables
                .filter(|(name, _)| name.starts_with(PREFIX))
                .collect(),
            flags,
        }
    }
}

/// Reads the sources one after the other. A later source overrides an earlier one.
pub(super) struct SourceReader<'a> {
    /// The names of all settings, such as `api.listen`.
    names: &'a [String],
    /// The names of those that may be in a file of their own.
    secrets: &'a [String],
    /// The last source that set a value, or named its file.
    set_by: BTreeMap<String, Origin>,
    pub values: BTreeMap<String, (Raw, Origin)>,
    /// The settings file that was read.
    pub file: Option<PathBuf>,
    pub errors: Vec<String>,
}

impl<'a> SourceReader<'a> {
    pub(super) fn read(sources: &Sources, names: &'a [String], secrets: &'a [String]) -> Self {
        let (set_by, values) = (BTreeMap::new(), BTreeMap::new());
        let mut reader = Self {
            names,
            secrets,
            set_by,
            values,
            file: None,
            errors: Vec::new(),
        };
        if let Err(error) = reader.add_file(sources.file.as_deref()) {
            reader.errors.push(error);
        }
        for (name, value) in &sources.environment {
            reader.add_variable(name, value);
        }
        for flag in &sources.flags {
            let value = (Raw::Text(flag.value.clone()), Origin::Flag(flag.name));
            reader.values.insert(flag.setting.to_owned(), value);
        }
        reader
    }

    fn add_file(&mut self, named: Option<&Path>) -> Result<(), String> {
        let path = named.unwrap_or(Path::new(SETTINGS_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => {
                return Err(format!(
                    "the settings file {} cannot be read: {error}{}",
                    path.display(),
                    place::advice(path, &error)
                ));
            }
        };
        self.file = Some(absolute(path).unwrap_or_else(|_| path.to_owned()));
        let origin = |at: usize| {
            Origin::File(
                path.to_owned(),
                1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count(),
            )
        };
        let file = DeTable::parse(&text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            // Of a duplicate, this is the key. Else the message does not quote the line, which may
            // hold a secret.
            let key = match error.message() {
                "duplicate key" => text.get(span.clone()).map(shortened),
                _ => None,
            };
            let key = key.map(|key| format!(" `{key}`")).unwrap_or_default();
            format!(
                "{}: invalid TOML: {}{key}",
                origin(span.start),
                error.message()
            )
        })?;
        for (section, content) in file.get_ref() {
            match content.get_ref() {
                DeValue::Table(keys) if self.keys(section.get_ref()).next().is_some() => {
                    for (key, value) in keys {
                        self.add(
                            section.get_ref(),
                            key.get_ref(),
                            value.get_ref().into(),
                            origin(key.span().start),
                        );
                    }
                }
                DeValue::Table(_) => {
                    self.unknown_section(section.get_ref(), &origin(section.span().start));
                }
                _ => self.outside_of_sections(section.get_ref(), &origin(section.span().start)),
            }
        }
        Ok(())
    }

    fn add_variable(&mut self, variable: &str, value: &OsStr) {
        let Some(rest) = variable.strip_prefix(PREFIX) else {
            return;
        };
        let rest = rest.to_ascii_lowercase();
        let Some((section, key)) = rest.split_once("__") else {
            // A container platform sets variables of this form by itself, so only the name of a
            // setting is an error.
            if let Some(name) = self
                .names
                .iter()
                .find(|name| name.replacen('.', "_", 1) == rest)
            {
                let right = name.replacen('.', "__", 1).to_ascii_uppercase();
                self.errors.push(format!(
                    "unknown environment variable {variable}: {name} is {PREFIX}{right}, with two underscores"
                ));
            }
            return;
        };
        match value.to_str() {
            Some(text) => self.add(
                section,
                key,
                Raw::Text(text.to_owned()),
                Origin::Variable(variable.to_owned()),
            ),
            None => self
                .errors
                .push(format!("{variable}: the value is not UTF-8 text")),
        }
    }

    fn add(&mut self, section: &str, key: &str, raw: Raw, origin: Origin) {
        let keys: Vec<_> = self.keys(section).collect();
        if keys.is_empty() {
            self.unknown_section(section, &origin);
        } else if keys.contains(&key) {
            let name = format!("{section}.{key}");
            let raw = match raw {
                Raw::Text(url) if name == "database.url" => Raw::Text(url_beside(&origin, url)),
                Raw::Text(path) if name == "backup.folder" && !path.is_empty() => {
                    Raw::Text(beside(&origin, Path::new(&path)).display().to_string())
                }
                raw => raw,
            };
            self.set(name, raw, origin.clone(), origin);
        } else if let Some(name) = self.secret_of_file(section, key) {
            self.add_secret_file(name, &raw, origin);
        } else {
            let (key, accepted) = (shortened(key), keys.join(", "));
            self.errors.push(format!(
                "unknown setting `{section}.{key}` in {origin}: section {section} has {accepted}"
            ));
        }
    }

    /// The secret whose file the key names.
    fn secret_of_file(&self, section: &str, key: &str) -> Option<String> {
        let name = format!("{section}.{}", key.strip_suffix("_file")?);
        self.secrets.contains(&name).then_some(name)
    }

    /// Reads a secret from its file, without the line break at its end. An empty path sets nothing.
    fn add_secret_file(&mut self, name: String, path: &Raw, origin: Origin) {
        let path = match path {
            Raw::Text(path) if path.is_empty() => return,
            Raw::Text(path) => beside(&origin, Path::new(path)),
            _ => {
                return self.errors.push(format!(
                    "{name}_file in {origin}: it must be the path of a file, in quotes"
                ));
            }
        };
        // Only of the master keys is there a copy for certain.
        let advice = if name == "secrets.key" {
            "restore your copy of it"
        } else {
            "write the secret into it, or correct the path"
        };
        let shown = absolute(&path).unwrap_or_else(|_| path.clone());
        let shown = shortened(&shown.display().to_string());
        match std::fs::read_to_string(&path) {
            Ok(secret) if secret.trim().is_empty() => {
                self.errors.push(format!(
                    "{name}_file in {origin}: the file {shown} is empty: {advice}"
                ));
            }
            Ok(secret) => {
                let secret = Raw::Text(secret.trim_end_matches(['\r', '\n']).to_owned());
                self.set(name, secret, Origin::SecretFile(path), origin);
            }
            Err(error) => {
                let advice = match error.kind() {
                    io::ErrorKind::NotFound => format!(": {advice}"),
                    _ => place::advice(&path, &error),
                };
                self.errors.push(format!(
                    "{name}_file in {origin}: the file {shown} cannot be read: {error}{advice}"
                ));
            }
        }
    }

    /// Sets a value that came from `origin`. `source` is where the setting itself is.
    fn set(&mut self, name: String, raw: Raw, origin: Origin, source: Origin) {
        if let Some(other) = self.set_by.get(&name)
            && std::mem::discriminant(other) == std::mem::discriminant(&source)
        {
            let message = format!(
                "{name} and {name}_file are both set, in {other} and in {source}: remove one"
            );
            self.errors.push(message);
        }
        self.set_by.insert(name.clone(), source);
        self.values.insert(name, (raw, origin));
    }

    /// A key above all sections: it belongs into one that has a key of this name.
    fn outside_of_sections(&mut self, key: &str, origin: &Origin) {
        let sections: Vec<_> = self
            .names
            .iter()
            .filter_map(|name| name.split_once('.'))
            .collect();
        let having = sections
            .iter()
            .filter(|(_, name)| *name == key)
            .map(|(section, _)| format!("[{section}]"));
        let having = having.collect::<Vec<_>>().join(" or ");
        if having.is_empty() {
            return self.unknown_section(key, origin);
        }
        self.errors.push(format!(
            "`{key}` in {origin} is outside of a section: write it below {having}"
        ));
    }

    fn unknown_section(&mut self, section: &str, origin: &Origin) {
        let mut sections: Vec<_> = self
            .names
            .iter()
            .filter_map(|name| Some(name.split_once('.')?.0))
            .collect();
        sections.dedup();
        let (section, sections) = (shortened(section), sections.join(", "));
        self.errors.push(format!(
            "unknown section `{section}` in {origin}: the sections are {sections}"
        ));
    }

    fn keys(&self, section: &str) -> impl Iterator<Item = &'a str> {
        self.names
            .iter()
            .filter_map(move |name| name.strip_prefix(section)?.strip_prefix('.'))
    }
}

/// A path as it is meant where it is written: a relative one in a settings file begins at the
/// folder of that file, so that a folder with both can be moved.
fn beside(origin: &Origin, path: &Path) -> PathBuf {
    match origin {
        Origin::File(file, _) => file.parent().unwrap_or(Path::new("")).join(path),
        _ => path.to_owned(),
    }
}

/// As [`beside`], for the path in a `sqlite:` URL.
fn url_beside(origin: &Origin, url: String) -> String {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return url;
    };
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path.starts_with(":memory:") {
        return url;
    }
    format!("sqlite:{}", beside(origin, Path::new(path)).display())
}

/// Cuts a value to 80 characters and replaces control characters, so that the message stays on one
/// line.
pub(super) fn shortened(value: &str) -> String {
    let mut text: String = value
        .chars()
        .take(80)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if value.chars().nth(80).is_some() {
        text.push_str("...");
    }
    text
}

impl From<&DeValue<'_>> for Raw {
    fn from(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(number) => Self::Bare(number.to_string()),
            DeValue::Float(number) => Self::Bare(number.to_string()),
            DeValue::Boolean(flag) => Self::Bare(flag.to_string()),
            DeValue::Datetime(time) => Self::Bare(time.to_string()),
            DeValue::Array(parts) => {
                let parts = parts.iter().map(|part| match Self::from(part.get_ref()) {
                    Self::Text(text) | Self::Bare(text) => Some(text),
                    Self::List(_) | Self::Other => None,
                });
                parts.collect::<Option<_>>().map_or(Self::Other, Self::List)
            }
            DeValue::Table(_) => Self::Other,
        }
    }
}
