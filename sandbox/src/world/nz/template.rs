//! The form of a row: what all rows of one kind have in common.

use super::nzfcc::{Code, named};

/// What the enrichment knows of the other side: merchant and category come together or not at all
/// (docs/providers/akahu.md#transactions).
#[derive(Debug)]
pub(crate) struct Enriched {
    pub(crate) merchant: &'static str,
    pub(crate) website: Option<&'static str>,
    pub(crate) nzbn: Option<&'static str>,
    pub(crate) code: &'static Code,
}

/// What the bank adds, shown in `meta`.
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
    /// Bought in another currency: which, and how many ten-thousandths of its unit a dollar bought.
    Conversion {
        currency: &'static str,
        rate: i64,
    },
}

/// A kind of row: texts, type, category and the range of its amounts.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) text: &'static str,
    /// Shops have many branches: the text goes on with a place.
    pub(crate) placed: bool,
    /// Akahu's word (docs/providers/akahu.md#transaction-types).
    pub(crate) kind: &'static str,
    pub(crate) enriched: Option<Enriched>,
    /// Least and most, in cents.
    pub(crate) cents: (u32, u32),
    pub(crate) incoming: bool,
    pub(crate) meta: Meta,
}

/// A purchase in one of a shop's branches.
pub(super) const fn shop(text: &'static str, merchant: &'static str, category: &str, cents: (u32, u32)) -> Template {
    enriched("EFTPOS", Meta::Card, true, text, merchant, category, cents)
}

/// A purchase over the network.
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

/// A bill that is collected.
pub(super) const fn bill(text: &'static str, merchant: &'static str, category: &str, cents: (u32, u32)) -> Template {
    enriched("DIRECT DEBIT", Meta::Nothing, false, text, merchant, category, cents)
}

const fn enriched(
    kind: &'static str,
    meta: Meta,
    placed: bool,
    text: &'static str,
    merchant: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    let enriched = Some(Enriched { merchant, website: None, nzbn: None, code: named(category) });
    Template { text, placed, kind, enriched, cents, incoming: false, meta }
}

/// A row of which the enrichment knows nothing, going out.
pub(super) const fn plain(kind: &'static str, text: &'static str, cents: (u32, u32)) -> Template {
    Template { text, placed: false, kind, enriched: None, cents, incoming: false, meta: Meta::Nothing }
}

/// A row of which the enrichment knows nothing, coming in.
pub(super) const fn incoming(kind: &'static str, text: &'static str, cents: (u32, u32)) -> Template {
    Template { incoming: true, ..plain(kind, text, cents) }
}

/// The three fields of a payment.
pub(super) const fn fields(particulars: &'static str, code: &'static str, reference: &'static str) -> Meta {
    Meta::Fields { particulars, code, reference, other_account: None }
}

/// The same, with the other side's account.
pub(super) const fn from_account(
    particulars: &'static str,
    reference: &'static str,
    other_account: &'static str,
) -> Meta {
    Meta::Fields { particulars, code: "", reference, other_account: Some(other_account) }
}
