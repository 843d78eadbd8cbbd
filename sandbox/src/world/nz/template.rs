//! Templates of New Zealand rows: the text, type, category and amount range that all rows of one
//! kind share.

use super::nzfcc::{Code, named};

/// The enrichment of a row: it has both a merchant and a category, or neither
/// (docs/providers/akahu.md#transactions).
#[derive(Debug)]
pub(crate) struct Enriched {
    pub(crate) merchant: &'static str,
    pub(crate) website: Option<&'static str>,
    pub(crate) nzbn: Option<&'static str>,
    pub(crate) code: &'static Code,
}

/// The bank's additions, shown in `meta`.
#[derive(Debug)]
pub(crate) enum Meta {
    Nothing,
    /// The end of the card's number.
    Card,
    /// The three fields of a New Zealand payment; empty ones are left out.
    Fields {
        particulars: &'static str,
        code: &'static str,
        reference: &'static str,
        other_account: Option<&'static str>,
    },
    /// A purchase in another currency. `rate` is how much of it one dollar buys, in
    /// ten-thousandths.
    Conversion {
        currency: &'static str,
        rate: i64,
    },
}

/// A kind of row: texts, type, category and the range of its amounts.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) text: &'static str,
    /// Shops have many branches, so the text ends with a place.
    pub(crate) has_place: bool,
    /// One of Akahu's types (docs/providers/akahu.md#transaction-types).
    pub(crate) kind: &'static str,
    pub(crate) enriched: Option<Enriched>,
    /// Minimum and maximum in cents.
    pub(crate) cents: (u32, u32),
    pub(crate) incoming: bool,
    pub(crate) meta: Meta,
}

/// A purchase in one of a shop's branches.
pub(super) const fn shop(
    text: &'static str,
    merchant: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    enriched("EFTPOS", Meta::Card, true, text, merchant, category, cents)
}

/// An online purchase.
pub(super) const fn online(
    text: &'static str,
    merchant: &'static str,
    website: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    let mut template = enriched("DEBIT", Meta::Card, false, text, merchant, category, cents);
    if let Some(enriched) = &mut template.enriched {
        enriched.website = Some(website);
    }
    template
}

/// A bill paid by direct debit.
pub(super) const fn bill(
    text: &'static str,
    merchant: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    enriched(
        "DIRECT DEBIT",
        Meta::Nothing,
        false,
        text,
        merchant,
        category,
        cents,
    )
}

const fn enriched(
    kind: &'static str,
    meta: Meta,
    has_place: bool,
    text: &'static str,
    merchant: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    let enriched = Some(Enriched {
        merchant,
        website: None,
        nzbn: None,
        code: named(category),
    });
    Template {
        text,
        has_place,
        kind,
        enriched,
        cents,
        incoming: false,
        meta,
    }
}

/// A debit without enrichment.
pub(super) const fn plain(kind: &'static str, text: &'static str, cents: (u32, u32)) -> Template {
    Template {
        text,
        has_place: false,
        kind,
        enriched: None,
        cents,
        incoming: false,
        meta: Meta::Nothing,
    }
}

/// A credit without enrichment.
pub(super) const fn incoming(
    kind: &'static str,
    text: &'static str,
    cents: (u32, u32),
) -> Template {
    Template {
        incoming: true,
        ..plain(kind, text, cents)
    }
}

/// The three fields of a payment.
pub(super) const fn fields(
    particulars: &'static str,
    code: &'static str,
    reference: &'static str,
) -> Meta {
    Meta::Fields {
        particulars,
        code,
        reference,
        other_account: None,
    }
}

/// The fields of a payment, with the other party's account.
pub(super) const fn from_account(
    particulars: &'static str,
    reference: &'static str,
    other_account: &'static str,
) -> Meta {
    Meta::Fields {
        particulars,
        code: "",
        reference,
        other_account: Some(other_account),
    }
}
