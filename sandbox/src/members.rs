//! A JSON object that keeps the order and the exact text of its members. Tests use it to serve
//! unusual numbers and unknown members.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::refused::Refused;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Members(IndexMap<String, Box<RawValue>>);

impl Members {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Copies the members of an object; any other value gives none.
    pub(crate) fn from_value(value: &Value) -> Self {
        let mut members = Self::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            members.set(name, value);
        }
        members
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(|value| &**value)
    }

    /// The names and texts of all members.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let members = self.0.iter();
        members.map(|(name, value)| (name.as_str(), value.get()))
    }

    /// The value of a member that is a JSON string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        let value = to_raw_value(value).expect("plain values have a JSON text");
        self.0.insert(name.to_owned(), value);
    }

    /// Sets the member unless it exists; `null` counts as existing.
    pub(crate) fn set_default(&mut self, name: &str, value: &impl Serialize) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }

    /// Sets each member of an object unless it exists.
    pub(crate) fn set_defaults(&mut self, defaults: &Value) {
        for (name, value) in defaults.as_object().into_iter().flatten() {
            self.set_default(name, value);
        }
    }

    pub(crate) fn remove(&mut self, names: &[&str]) {
        self.0.retain(|known, _| !names.contains(&known.as_str()));
    }

    /// As plain JSON. A member with a number that is too large for that is its text.
    pub(crate) fn into_value(self) -> Value {
        let plain = |raw: &RawValue| {
            let parsed: Result<Value, _> = serde_json::from_str(raw.get());
            parsed.unwrap_or_else(|_| raw.get().into())
        };
        let members = self.0.into_iter();
        members.map(|(name, raw)| (name, plain(&raw))).collect()
    }

    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        to_raw_value(self).expect("members have a JSON text")
    }

    /// Applies every member of `other`; `null` removes a member.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            if value.get() == "null" {
                self.0.shift_remove(&name);
            } else {
                self.0.insert(name, value);
            }
        }
    }

    /// Applies every member of `other`; `null` is stored as it is.
    pub(crate) fn merge_all(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Removes a member and returns its text, which must be there.
    pub(crate) fn take(&mut self, name: &str) -> Result<String, Refused> {
        let text = self.take_text(name);
        text.ok_or_else(|| format!("{name:?} is needed").into())
    }

    /// Removes a member and returns its text.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        let text = self.text(name);
        self.remove(&[name]);
        text
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("text can be written to memory");
    }
}

/// Whether the texts are equal.
impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.pairs().eq(other.pairs())
    }
}

/// Writes the object as JSON.
impl fmt::Display for Members {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
