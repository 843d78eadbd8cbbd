//! Computes the keyed digests of a row: of its identity, of its content, and of what it keeps under
//! another id.

use std::fmt::{self, Write};
use std::hash::Hasher as _;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use bellbird_domain::{
    AccountId, Category, ContentDigest, Decimal, Digest, Fingerprint, RowDigests, RowKey, Trade,
    TradeTime, Transaction, UtcDay,
};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use zeroize::Zeroizing;

use crate::event::payload;

/// Digests rows with the key of one connection. Has no `Debug`, because it holds that key.
///
/// Rows are digested by SipHash-2-4 with 128 bits: a keyed function that reveals nothing without
/// its key, in a third of the time of an HMAC.
#[derive(Clone)]
pub struct RowHasher {
    rows: SipHasher24,
    locator_key: Zeroizing<[u8; 32]>,
}

/// What is digested, so that no two purposes have the same input.
#[derive(Clone, Copy)]
enum Purpose {
    Transaction,
    TransactionContent,
    TransactionLikeness,
    Trade,
    TradeContent,
    TradeLikeness,
    Key,
    DayMask,
}

impl RowHasher {
    /// Accepts a key of any length. To keep rows secret, use at least 32 random bytes.
    pub fn new(key: &[u8]) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, key);
        let rows = SipHasher24::new_with_key(&derived(&key, "rows"));
        let locator_key = Zeroizing::new(derived(&key, "row locator"));
        Self { rows, locator_key }
    }

    /// Returns the digests of a row. Its content is all fields of the provider that an event shows.
    ///
    /// None depends on the account's name or the user's timezone. `local_date` is left out, since
    /// it follows from `datetime`. The currency is the one that the event shows, which may be the
    /// account's.
    pub fn transaction(&self, row: &Transaction<'_>) -> RowDigests {
        self.transaction_if_known(row, |_, _| None)
    }

    /// As [`Self::transaction`]. `known` finds the digests of a row with the same id and content
    /// that was seen before. Its likeness follows from these, so it is computed for new and changed
    /// rows only.
    pub fn transaction_if_known(
        &self,
        row: &Transaction<'_>,
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
    ) -> RowDigests {
        let mut content = self.feed(Purpose::TransactionContent);
        content.text(row.amount.as_str());
        content.optional(Some(payload::currency_of(row).as_str()));
        content.text(&row.description);
        content.text(&row.datetime);
        content.optional(row.executed.as_deref());
        content.optional(row.provider_type.as_deref());
        content.optional(row.category.map(Category::key));
        content.optional(row.merchant_name.as_deref());
        content.optional(row.merchant_category_code.as_deref());
        content.optional(row.reference.as_deref());
        content.optional(row.extended_description.as_deref());
        let digest = self.transaction_id(row.account.id, &row.id);
        let place = (row.account.id, UtcDay::of(row.instant));
        self.row_digests(
            digest,
            content,
            place,
            known,
            Purpose::TransactionLikeness,
            |likeness| {
                likeness.text(row.amount.as_str());
                likeness.optional(Some(payload::currency_of(row).as_str()));
                likeness.text(&row.description);
            },
        )
    }

    /// The digest of a transaction's account and id.
    pub fn transaction_id(&self, account: AccountId, id: &str) -> Digest {
        self.row(Purpose::Transaction, account, &id)
    }

    /// As [`Self::transaction_if_known`]. The id of a trade consists of its fields, so a changed
    /// trade has another id.
    pub fn trade_if_known(
        &self,
        row: &Trade<'_>,
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
    ) -> RowDigests {
        let number = |number: &Option<Decimal<'_>>, to: &mut Feed| {
            to.optional(number.as_ref().map(Decimal::as_str));
        };
        let mut content = self.feed(Purpose::TradeContent);
        content.text(&row.symbol);
        content.optional(row.name.as_deref());
        content.text(row.trade_type.as_str());
        content.text(&row.provider_type);
        number(&row.quantity, &mut content);
        number(&row.price, &mut content);
        content.text(&row.currency);
        number(&row.total_amount, &mut content);
        number(&row.fees, &mut content);
        content.text(&row.trade_date);
        content.text(match row.time {
            TradeTime::Day(_) => "day",
            TradeTime::Instant(_) => "instant",
        });
        content.bytes(&row.time.instant().as_nanosecond().to_be_bytes());
        content.optional(row.settlement_date.as_deref());
        content.optional(row.description.as_deref());
        let digest = self.row(Purpose::Trade, row.account.id, &row.id());
        let place = (row.account.id, UtcDay::of(row.time.instant()));
        self.row_digests(
            digest,
            content,
            place,
            known,
            Purpose::TradeLikeness,
            |likeness| {
                likeness.text(&row.symbol);
                likeness.text(row.trade_type.as_str());
                number(&row.quantity, likeness);
                number(&row.price, likeness);
                likeness.text(&row.currency);
                number(&row.total_amount, likeness);
            },
        )
    }

    fn row_digests(
        &self,
        row: Digest,
        content: Feed,
        (account, day): (AccountId, UtcDay),
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
        purpose: Purpose,
        write_likeness: impl FnOnce(&mut Feed),
    ) -> RowDigests {
        let content = ContentDigest(content.digest());
        let known =
            known(row, content).filter(|known| known.account == account.into() && known.day == day);
        let likeness = known.map_or_else(
            || {
                let mut likeness = self.feed(purpose);
                likeness.bytes(account.uuid().as_bytes());
                likeness.bytes(&day.0.to_be_bytes());
                write_likeness(&mut likeness);
                ContentDigest(likeness.digest())
            },
            |known| known.likeness,
        );
        RowDigests {
            row,
            content,
            likeness,
            account: account.into(),
            day,
        }
    }

    /// The key of a row that is seen for the first time. A row that lost its fingerprint and is
    /// seen again gets the same one. `attempt` counts from 0 the keys that another row of the
    /// connection has already.
    pub fn key(&self, row: Digest, occurrence: u32, attempt: u32) -> RowKey {
        let mut key = self.feed(Purpose::Key);
        key.bytes(&row.0);
        key.bytes(&occurrence.to_be_bytes());
        key.bytes(&attempt.to_be_bytes());
        RowKey(key.digest())
    }

    /// Hides the days of fingerprints, or shows hidden ones: they would tell when the user spent or
    /// traded.
    pub fn mask_days(&self, fingerprints: &mut [Fingerprint]) {
        for fingerprint in fingerprints {
            let mut mask = self.feed(Purpose::DayMask);
            mask.bytes(&fingerprint.key.0);
            fingerprint.digests.day.0 ^= u16::from_be_bytes(mask.digest());
        }
    }

    /// The key of the row locators of the connection's events.
    pub(crate) fn locator_key(&self) -> &[u8; 32] {
        &self.locator_key
    }

    /// The id needs no length prefix, because it comes last and the account id has a fixed length.
    fn row(&self, purpose: Purpose, account: AccountId, id: &dyn fmt::Display) -> Digest {
        let mut feed = self.feed(purpose);
        feed.bytes(account.uuid().as_bytes());
        // `Feed::write_str` never fails.
        let _ = write!(feed, "{id}");
        Digest(feed.digest())
    }

    fn feed(&self, purpose: Purpose) -> Feed {
        let mut feed = Feed(self.rows);
        feed.bytes(&[purpose as u8]);
        feed
    }
}

fn derived<const BYTES: usize>(key: &hmac::Key, purpose: &str) -> [u8; BYTES] {
    first(hmac::sign(key, purpose.as_bytes()).as_ref())
}

fn first<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut first = [0; BYTES];
    first
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    first
}

/// The input of one digest.
struct Feed(SipHasher24);

impl Feed {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Writes the length first, so that characters cannot move from one field to the next.
    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_be_bytes());
        self.bytes(text.as_bytes());
    }

    /// Distinguishes an absent text from an empty one.
    fn optional(&mut self, text: Option<&str>) {
        self.bytes(&[u8::from(text.is_some())]);
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// At most 16 bytes.
    fn digest<const BYTES: usize>(self) -> [u8; BYTES] {
        const { assert!(BYTES <= 16) };
        first(&self.0.finish128().as_bytes())
    }
}

impl Write for Feed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
