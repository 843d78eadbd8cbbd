//! Accounts that a result lacks, so that the results that continue it lack them too.

use std::collections::BTreeSet;

use bellbird_domain::{AccountId, ConnectionId};
use serde::{Deserialize, Serialize};

use super::Missing;

/// Most that a cursor names.
const KEYS_MAX: usize = 100;
/// A key and its comma.
const KEY_BYTES: usize = 11;
const TOO_MANY: &str =
    "Too many accounts could not be read at once. Call again later, or with fewer account_ids.";

/// Connections and accounts that could not be read for an earlier result. Rows of them before the
/// position were never shown, so those behind it are not shown either, until the client begins
/// again.
#[derive(Default, Clone, Serialize, Deserialize)]
pub(super) struct LeftOut(BTreeSet<Key>);

/// The last four bytes of an id, which are random. A whole id is long in a cursor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key(u32);

impl From<ConnectionId> for Key {
    fn from(id: ConnectionId) -> Self {
        Self::of(id.uuid().as_bytes())
    }
}

impl From<AccountId> for Key {
    fn from(id: AccountId) -> Self {
        Self::of(id.uuid().as_bytes())
    }
}

impl Key {
    fn of(id: &[u8; 16]) -> Self {
        let [.., one, two, three, four] = *id;
        Self(u32::from_be_bytes([one, two, three, four]))
    }
}

impl LeftOut {
    pub(super) fn has(&self, id: impl Into<Key>) -> bool {
        self.0.contains(&id.into())
    }

    /// Also those that are missing now. Fails with a text for the model if a cursor has no room for
    /// them.
    pub(super) fn with(&self, missing: &[Missing]) -> Result<Self, String> {
        let keys: BTreeSet<Key> = self
            .0
            .iter()
            .copied()
            .chain(missing.iter().filter_map(|missing| missing.key))
            .collect();
        if keys.len() > KEYS_MAX {
            Err(TOO_MANY.to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Its bytes in the two cursors of a result if so many lists fail.
    pub(super) fn bytes_if_missing(&self, lists: usize) -> usize {
        2 * (self.0.len() + lists).min(KEYS_MAX) * KEY_BYTES * 4 / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(id: AccountId) -> Missing {
        Missing {
            key: Some(id.into()),
            account_ids: vec![id],
            institution: String::new(),
            message: String::new(),
        }
    }

    #[test]
    fn what_failed_stays_left_out() {
        let ids: Vec<AccountId> = (0..=KEYS_MAX).map(|_| AccountId::new()).collect();
        let all: Vec<Missing> = ids.iter().copied().map(missing).collect();
        let first = LeftOut::default().with(&all[..1]).unwrap();
        assert!(first.has(ids[0]) && !first.has(ids[1]));
        let text = serde_json::to_string(&first.with(&all[1..KEYS_MAX]).unwrap()).unwrap();
        assert!(
            2 * text.len() * 4 / 3 <= first.bytes_if_missing(KEYS_MAX) + 8,
            "{} bytes",
            text.len()
        );
        let kept: LeftOut = serde_json::from_str(&text).unwrap();
        assert!(ids[..KEYS_MAX].iter().all(|id| kept.has(*id)) && !kept.has(ids[KEYS_MAX]));
        assert!(kept.with(&all).is_err());
    }
}
