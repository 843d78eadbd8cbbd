//! Where the rows of an event lie: their dates and accounts. Stored with the event, so that reading
//! its rows again takes a few pages of the provider's list.
//!
//! A locator shows when a user spent or traded. So it is sealed with a key that follows from the
//! connection's fingerprint key: a rotation of the master key covers it, and removing the
//! connection makes it unreadable. A locator that is missing, does not open or is wrong costs time
//! only, because then the whole date range is read.

use std::collections::BTreeSet;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use bellbird_domain::{AccountId, EventId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::event::digest::RowHasher;

const NONCE_BYTES: usize = 12;
const SECOND_BYTES: usize = 8;
const ID_BYTES: usize = 16;

/// Has no `Debug`, because it shows dates.
#[derive(Clone, PartialEq, Eq)]
pub struct RowLocator {
    /// Not after any row. In whole seconds.
    pub from: Timestamp,
    /// Not before any row. In whole seconds.
    pub to: Timestamp,
    pub accounts: BTreeSet<AccountId>,
}

impl RowLocator {
    /// `None` without rows.
    pub fn of_rows(rows: impl IntoIterator<Item = (Timestamp, AccountId)>) -> Option<Self> {
        let (mut from, mut to, mut accounts) = (i64::MAX, i64::MIN, BTreeSet::new());
        for (instant, account) in rows {
            from = from.min(instant.as_second());
            to = to.max(instant.as_second());
            accounts.insert(account);
        }
        (!accounts.is_empty()).then(|| Self {
            from: second(from.saturating_sub(1)),
            to: second(to.saturating_add(1)),
            accounts,
        })
    }

    /// The locator of the rows of two events.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        self.accounts.append(&mut other.accounts);
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
            accounts: self.accounts,
        }
    }

    /// Returns an empty value, which is no locator, if sealing fails.
    pub fn seal(&self, hasher: &RowHasher, event: EventId) -> Vec<u8> {
        let mut body: Vec<u8> = [self.from, self.to]
            .iter()
            .flat_map(|instant| instant.as_second().to_be_bytes())
            .collect();
        body.extend(
            self.accounts
                .iter()
                .flat_map(|account| *account.uuid().as_bytes()),
        );
        let sealed = sealing_key(hasher).and_then(|key| {
            key.seal_in_place_append_tag(bound_to(event), &mut body)
                .ok()
        });
        sealed.map_or_else(Vec::new, |nonce| {
            [nonce.as_ref().as_slice(), &body].concat()
        })
    }

    pub fn open(sealed: &[u8], hasher: &RowHasher, event: EventId) -> Option<Self> {
        let (nonce, body) = sealed.split_at_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = body.to_vec();
        let opened = sealing_key(hasher)?
            .open_in_place(nonce, bound_to(event), &mut body)
            .ok()?;
        let (from, opened) = opened.split_first_chunk::<SECOND_BYTES>()?;
        let (to, accounts) = opened.split_first_chunk::<SECOND_BYTES>()?;
        let accounts = accounts
            .as_chunks::<ID_BYTES>()
            .0
            .iter()
            .map(|id| AccountId::from(Uuid::from_bytes(*id)));
        Some(Self {
            from: second(i64::from_be_bytes(*from)),
            to: second(i64::from_be_bytes(*to)),
            accounts: accounts.collect(),
        })
    }
}

/// A second beyond the range of `Timestamp` is its end.
fn second(second: i64) -> Timestamp {
    let end = if second < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::from_second(second).unwrap_or(end)
}

fn sealing_key(hasher: &RowHasher) -> Option<RandomizedNonceKey> {
    RandomizedNonceKey::new(&AES_256_GCM, hasher.locator_key()).ok()
}

fn bound_to(event: EventId) -> Aad<[u8; ID_BYTES]> {
    Aad::from(*event.uuid().as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn locator(rows: &[(i64, u128)]) -> RowLocator {
        let row = |&(nanosecond, account): &(i64, u128)| {
            let instant = Timestamp::from_nanosecond(nanosecond.into()).unwrap();
            (instant, AccountId::from(Uuid::from_u128(account)))
        };
        RowLocator::of_rows(rows.iter().map(row)).unwrap()
    }

    proptest! {
        #[test]
        fn sealed_locator_opens_for_its_event_and_connection_only(
            rows in prop::collection::vec((any::<i64>(), 0_u128..5), 1..20),
        ) {
            let (locator, hasher, event) = (locator(&rows), RowHasher::new(&[7; 32]), EventId::new());
            for &(nanosecond, account) in &rows {
                let instant = Timestamp::from_nanosecond(nanosecond.into()).unwrap();
                prop_assert!(locator.from <= instant && instant <= locator.to);
                prop_assert!(locator.accounts.contains(&AccountId::from(Uuid::from_u128(account))));
            }
            let sealed = locator.seal(&hasher, event);
            prop_assert!(RowLocator::open(&sealed, &hasher, event) == Some(locator.clone()));
            prop_assert!(RowLocator::open(&sealed, &hasher, EventId::new()).is_none());
            prop_assert!(RowLocator::open(&sealed, &RowHasher::new(&[8; 32]), event).is_none());
            prop_assert!(sealed != locator.seal(&hasher, event), "the nonce is random");
            for account in &locator.accounts {
                prop_assert!(!sealed.windows(ID_BYTES).any(|bytes| bytes == account.uuid().as_bytes()));
            }
        }

        #[test]
        fn anything_else_does_not_open(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(RowLocator::open(&bytes, &RowHasher::new(&[7; 32]), EventId::new()).is_none());
        }
    }

    #[test]
    fn no_rows_have_no_locator() {
        assert!(RowLocator::of_rows([]).is_none());
    }
}
