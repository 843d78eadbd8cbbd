//! A JSON object whose members keep their order and their exact text, so that a test can serve odd things.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// The members of an object, in the order given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// Reads a whole object.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// From a value that is an object; anything else has no members.
    pub(crate) fn from_value(value: &serde_json::Value) -> Self {
        let mut members = Self::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            members.set(name, value);
        }
        members
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The member as text, when it is a JSON string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        let value = serde_json::value::to_raw_value(value).expect("plain values have a JSON text");
        self.put(name, value);
    }

    /// Sets the member unless there is one already, `null` included.
    pub(crate) fn set_default(&mut self, name: &str, value: &impl Serialize) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }

    /// Takes over every member of `other` as it is; `null` removes.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            if value.get() == "null" {
                self.0.retain(|(known, _)| *known != name);
            } else {
                self.put(&name, value);
            }
        }
    }

    /// Takes over every member of `other` as it is, `null` too.
    pub(crate) fn merge_all(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.put(&name, value);
        }
    }

    /// Takes a member out and returns it as text.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        let text = self.text(name);
        self.0.retain(|(known, _)| known != name);
        text
    }

    fn put(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.put(&name, value);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
