//! The position in a merged list behind which another read continues. Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Sorts the lists, and so the rows of one time.
pub(super) type AccountList = (ConnectionId, Option<AccountId>);

/// How much later than an older row before it in its provider's list a row may be: a list that is
/// sorted by another time than the row's own differs by days. A read that continues reads so much
/// again.
pub(super) const LATE_MAX: Duration = Duration::from_secs(3 * 24 * 3_600);

/// A position in a merged list. It names no row. Its text is short, for cursors.
///
/// A read that continues asks for rows up to three days after `instant`, and skips those that come
/// before a row of `instant` or an older one, as the read before did. So it passes over a row that
/// is more than that late, if the read before ended between it and the older row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MergedPosition {
    /// All later rows lie before the position.
    pub instant: Timestamp,
    /// `None` if all rows of `instant` lie behind the position.
    pub shown: Option<ShownRows>,
}

/// Which rows of the position's instant lie before it: those of all lists before this one, and the
/// first rows of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownRows {
    pub connection_id: ConnectionId,
    pub account_id: Option<AccountId>,
    pub rows: u32,
    /// The sum of the hashes of these rows' ids.
    pub digest: u64,
}

impl MergedPosition {
    /// The position behind a row that follows `before`. `hash` is absent if the row is more than
    /// [`LATE_MAX`] late, since a read that continues does not see it.
    pub(super) fn behind(
        before: Option<Self>,
        list: AccountList,
        instant: Timestamp,
        hash: Option<u64>,
    ) -> Self {
        let (connection_id, account_id) = list;
        let none_shown = ShownRows {
            connection_id,
            account_id,
            rows: 0,
            digest: 0,
        };
        let is_same = |shown: &ShownRows| (shown.connection_id, shown.account_id) == list;
        let shown = before
            .filter(|before| before.instant == instant)
            .and_then(|before| before.shown);
        let mut shown = shown.filter(is_same).unwrap_or(none_shown);
        if let Some(hash) = hash {
            shown.rows = shown.rows.saturating_add(1);
            shown.digest = shown.digest.wrapping_add(hash);
        }
        Self {
            instant,
            shown: Some(shown),
        }
    }
}

/// Nanoseconds since 1970, then the connection, the account or `-`, the rows and the digest,
/// separated by dots.
impl fmt::Display for MergedPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.instant.as_nanosecond())?;
        let Some(ShownRows {
            connection_id,
            account_id,
            rows,
            digest,
        }) = &self.shown
        else {
            return Ok(());
        };
        write!(out, ".{connection_id}.")?;
        match account_id {
            Some(id) => write!(out, "{id}")?,
            None => out.write_str("-")?,
        }
        write!(out, ".{rows}.{digest:x}")
    }
}

impl From<MergedPosition> for String {
    fn from(position: MergedPosition) -> Self {
        position.to_string()
    }
}

impl TryFrom<String> for MergedPosition {
    type Error = PositionError;

    fn try_from(text: String) -> Result<Self, PositionError> {
        text.parse()
    }
}

/// The text is not a valid position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a position")]
pub struct PositionError;

impl FromStr for MergedPosition {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let parts: Vec<&str> = text.splitn(6, '.').collect();
        let instant = |nanos: &str| Timestamp::from_nanosecond(nanos.parse().ok()?).ok();
        let shown = |connection: &str, account: &str, rows: &str, digest: &str| {
            Some(ShownRows {
                connection_id: connection.parse().ok()?,
                account_id: if account == "-" {
                    None
                } else {
                    Some(account.parse().ok()?)
                },
                rows: rows.parse().ok()?,
                digest: u64::from_str_radix(digest, 16).ok()?,
            })
        };
        let position = match parts[..] {
            [nanos] => instant(nanos).map(|instant| Self {
                instant,
                shown: None,
            }),
            [nanos, connection, account, rows, digest] => instant(nanos)
                .zip(shown(connection, account, rows, digest))
                .map(|(instant, shown)| Self {
                    instant,
                    shown: Some(shown),
                }),
            _ => None,
        };
        position.ok_or(PositionError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position() -> impl Strategy<Value = MergedPosition> {
        let shown =
            (any::<bool>(), any::<u32>(), any::<u64>()).prop_map(|(has_account, rows, digest)| {
                let account_id = has_account.then(AccountId::new);
                ShownRows {
                    connection_id: ConnectionId::new(),
                    account_id,
                    rows,
                    digest,
                }
            });
        (
            -9_000_000_000_i64..9_000_000_000,
            0_i32..1_000_000_000,
            prop::option::of(shown),
        )
            .prop_map(|(second, nanosecond, shown)| MergedPosition {
                instant: Timestamp::new(second, nanosecond).unwrap(),
                shown,
            })
    }

    #[test]
    fn other_texts_are_not_positions() {
        let id = ConnectionId::new();
        for text in [
            "",
            ".",
            "x",
            "1.2",
            "1.-.-.1.1",
            &format!("1.{id}.-.1"),
            &format!("1.{id}.-.1.1.1"),
            &"9".repeat(99),
        ] {
            assert_eq!(text.parse::<MergedPosition>(), Err(PositionError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_is_read_back(position in position()) {
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn never_panics(text in "[0-9a-f.-]{0,60}") {
            let _ = text.parse::<MergedPosition>();
        }
    }
}
