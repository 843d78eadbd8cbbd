//! Sealed positions: where a result that was cut continues.
//!
//! A cursor is a text that only the service can read, bound to the user and the tool. It holds the
//! arguments of the first call and a position in lists, and no row. So nothing is kept between
//! requests, and any instance can continue.

use bellbird_api::http::sealed_cursor;
use bellbird_domain::Caller;
use bellbird_storage::Storage;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::arguments;
use super::definitions::Tool;

const AGE_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Longest cursor, in characters. A hundred account ids take 8,000.
const CURSOR_CHARS_MAX: usize = 16 * 1024;
/// Arguments that choose how a result looks, and not what it is about.
const FORMS: [&str; 3] = ["limit", "detail", "include_balances"];

pub(super) const BEGIN_AGAIN: &str = "cursor: it is more than an hour old or was changed, or the rows behind it have \
    changed. Call again without it and with the other arguments, to begin again.";
const OTHER_QUESTION: &str = "cursor: the other arguments differ from those of the result before. Send the cursor \
    alone to continue, or leave it out to begin again.";

/// A question, and how far its result was given.
#[derive(Serialize, Deserialize)]
pub(super) struct Resumed<P> {
    /// The time of the first call, in microseconds. Ranges that end now end there.
    asked_us: i64,
    /// All but the cursor.
    pub(super) arguments: Map<String, Value>,
    pub(super) position: P,
}

/// For whom a cursor is sealed.
pub(super) struct Seal<'a> {
    pub(super) storage: &'a Storage,
    pub(super) caller: &'a Caller,
    pub(super) tool: Tool,
}

impl<P: Serialize + DeserializeOwned + Default> Resumed<P> {
    /// The question of these arguments: a new one, or that of their cursor. Fails with a text for
    /// the model, which does not distinguish a foreign cursor from a bad one.
    pub(super) fn of(
        seal: &Seal<'_>,
        mut arguments: Map<String, Value>,
        now: Timestamp,
    ) -> Result<Self, String> {
        arguments.retain(|_, value| !value.is_null());
        let cursor = match arguments.remove("cursor") {
            None => {
                return Ok(Self {
                    asked_us: now.as_microsecond(),
                    arguments,
                    position: P::default(),
                });
            }
            Some(Value::String(cursor)) if cursor.len() <= CURSOR_CHARS_MAX => cursor,
            Some(_) => return Err(BEGIN_AGAIN.to_owned()),
        };
        let (user, purpose) = (seal.caller.user_id, seal.tool.name());
        let opened = sealed_cursor::open::<Self>(seal.storage, user, purpose, &cursor);
        let mut resumed = opened.ok_or(BEGIN_AGAIN)?;
        let age = now.duration_since(resumed.asked_at());
        if age > AGE_MAX || age < -AGE_MAX {
            return Err(BEGIN_AGAIN.to_owned());
        }
        for (name, value) in arguments {
            if FORMS.contains(&name.as_str()) {
                resumed.arguments.insert(name, value);
            } else if resumed.arguments.get(&name) != Some(&value) {
                return Err(OTHER_QUESTION.to_owned());
            }
        }
        Ok(resumed)
    }

    /// The arguments as `T`. Fails with a text for the model.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        arguments::read(&self.arguments, &["cursor"])
    }

    pub(super) fn asked_at(&self) -> Timestamp {
        Timestamp::from_microsecond(self.asked_us).unwrap_or(Timestamp::MIN)
    }

    /// Bytes of a cursor in a result at most: it is in the text and in the structured content.
    pub(super) fn cursor_bytes(&self) -> usize {
        const POSITION_BYTES: usize = 350;
        let arguments = serde_json::to_vec(&self.arguments).map_or(0, |json| json.len());
        2 * (arguments + POSITION_BYTES) * 4 / 3
    }

    /// The cursor of the rest of the result, from `position` on.
    pub(super) fn cursor(&self, seal: &Seal<'_>, position: P) -> Result<String, String> {
        let rest = Self {
            asked_us: self.asked_us,
            arguments: self.arguments.clone(),
            position,
        };
        let (user, purpose) = (seal.caller.user_id, seal.tool.name());
        sealed_cursor::seal(seal.storage, user, purpose, &rest)
            .ok_or_else(|| "Internal error: try again".to_owned())
    }
}
