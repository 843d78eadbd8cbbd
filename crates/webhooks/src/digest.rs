//! What is remembered of a row: keyed digests of which row it is, and of what it says.

use std::fmt::{self, Write};

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use bellbird_domain::event::DIGEST_BYTES;
use bellbird_domain::{AccountId, Category, Decimal, Digest, Trade, TradeTime, Transaction};

/// Digests rows with one connection's key. No `Debug`: it holds that key.
pub struct RowHasher(Key);

impl RowHasher {
    /// With a key of any length; random bytes, at least 32, keep rows secret.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(Key::new(HMAC_SHA256, key))
    }

    /// The digest of the row's account and id, and that of all that the provider says of it and an event shows. Neither
    /// changes with what the account is called or where the user lives. An event's `local_date` follows from `datetime`.
    #[must_use]
    pub fn transaction(&self, row: &Transaction<'_>) -> (Digest, Digest) {
        let mut content = self.about("transaction content");
        content.text(row.amount.as_str());
        content.optional(row.currency.as_ref().map(|code| code.as_str()));
        content.text(&row.description);
        content.text(&row.datetime);
        content.optional(row.executed.as_deref());
        content.optional(row.provider_type.as_deref());
        content.optional(row.category.map(Category::key));
        content.optional(row.merchant_name.as_deref());
        content.optional(row.merchant_category_code.as_deref());
        content.optional(row.reference.as_deref());
        content.optional(row.extended_description.as_deref());
        (self.row("transaction", row.account.id, &row.id), content.digest())
    }

    /// The same for a trade. Its id is made of what it says, so that a trade that changed is most often another row.
    #[must_use]
    pub fn trade(&self, row: &Trade<'_>) -> (Digest, Digest) {
        let number = |number: &Option<Decimal<'_>>, to: &mut Feed| to.optional(number.as_ref().map(Decimal::as_str));
        let mut content = self.about("trade content");
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
        (self.row("trade", row.account.id, &row.id()), content.digest())
    }

    /// The id comes last, behind an account id of fixed length, and so needs no length before it.
    fn row(&self, purpose: &str, account: AccountId, id: &dyn fmt::Display) -> Digest {
        let mut feed = self.about(purpose);
        feed.bytes(account.uuid().as_bytes());
        // Feeding never fails.
        let _ = write!(feed, "{id}");
        feed.digest()
    }

    fn about(&self, purpose: &str) -> Feed {
        let mut feed = Feed(Context::with_key(&self.0));
        feed.text(purpose);
        feed
    }
}

/// A digest in the making.
struct Feed(Context);

impl Feed {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The length first, so that texts cannot be shifted into one another.
    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_be_bytes());
        self.bytes(text.as_bytes());
    }

    /// What is absent is not what is empty.
    fn optional(&mut self, text: Option<&str>) {
        self.bytes(&[u8::from(text.is_some())]);
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn digest(self) -> Digest {
        let tag = self.0.sign();
        let mut digest = Digest([0; DIGEST_BYTES]);
        digest.0.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        digest
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
