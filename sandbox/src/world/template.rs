//! Templates of rows: the text, category and amount range that all rows of one kind share.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::nzfcc::{self, Code};

/// Lists of templates by name: daily spending, or the rows on fixed days of one kind of account.
/// Repeated templates of a list are more likely.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub(crate) struct Lists(BTreeMap<String, Vec<Template>>);

impl Lists {
    /// The templates of a list; the empty name has none.
    pub(crate) fn list(&self, name: &str) -> &[Template] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The templates of daily spending.
    pub(crate) fn spending(&self) -> &[Template] {
        self.list("SPENDING")
    }

    /// All templates of rows.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Template> {
        self.0.values().flatten()
    }
}

/// A kind of row. Types and categories are in the provider's terms.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Template {
    pub(crate) text: &'static str,
    /// Shops have many branches, so the text ends with a place.
    pub(crate) place: bool,
    pub(crate) kind: &'static str,
    /// Minimum and maximum in cents.
    pub(crate) cents: (u32, u32),
    pub(crate) incoming: bool,
    /// The interval in days of a row on fixed days.
    pub(crate) every: u32,
    pub(crate) merchant: Option<&'static str>,
    pub(crate) merchant_code: Option<&'static str>,
    pub(crate) website: Option<&'static str>,
    pub(crate) nzbn: Option<&'static str>,
    /// Akahu's category, by its name. Only rows with a merchant have one
    /// (docs/providers/akahu.md#transactions).
    #[serde(deserialize_with = "nzfcc::named")]
    pub(crate) code: Option<&'static Code>,
    /// Fiskil's primary and secondary category.
    pub(crate) category: Option<(&'static str, &'static str)>,
    /// Whether the row's `category` is `null` instead of absent.
    pub(crate) null_category: bool,
    pub(crate) reference: &'static str,
    pub(crate) extra: Extra,
}

impl Template {
    /// The description of a row, with its place if it has one.
    pub(crate) fn description(&self, places: &[&str], place: u8) -> String {
        if self.place {
            let place = places[usize::from(place) % places.len()];
            format!("{} {place}", self.text)
        } else {
            self.text.to_owned()
        }
    }
}

/// What banks and payment systems add.
#[derive(Debug, Default, Deserialize)]
pub(crate) enum Extra {
    #[default]
    Nothing,
    /// A bill paid with a BPAY biller code.
    Bpay {
        code: &'static str,
        name: &'static str,
    },
    /// An instant payment between Australian banks, with the other party's name.
    Npp(&'static str),
    /// Direct entry, with the sender's number.
    DirectEntry(&'static str),
    /// The end of the card's number.
    Card,
    /// The fields of a New Zealand payment, by name.
    Fields(BTreeMap<&'static str, &'static str>),
    /// A purchase in another currency. `rate` is how much of it one dollar buys, in
    /// ten-thousandths.
    Conversion { currency: &'static str, rate: i64 },
}

/// The templates that are due on each of these days, which count back. The newest come first.
pub(crate) fn on_fixed_days(
    templates: &'static [Template],
    (nearest, farthest): (u32, u32),
) -> impl Iterator<Item = (u32, &'static Template)> {
    let numbered = move |back: u32| (0_u32..).zip(templates).map(move |at| (back, at));
    (nearest..=farthest)
        .flat_map(numbered)
        .filter(|(back, (index, template))| {
            back % template.every == (index * 3 + 2) % template.every
        })
        .map(|(back, (_, template))| (back, template))
}

/// The template at a random index.
pub(crate) fn pick<'a>(templates: &'a [Template], rng: &mut super::rng::Rng) -> &'a Template {
    &templates[rng.next() as usize % templates.len()]
}
