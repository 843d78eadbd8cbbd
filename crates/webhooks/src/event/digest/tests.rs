//! Which fields change a digest, and which do not.

use std::collections::HashSet;

use bellbird_domain::{Currency, TradeType};
use proptest::prelude::*;

use super::*;
use crate::event::fixtures::{account, decimal, instant, trade, transaction};

const KEY: &[u8] = &[7; 32];

fn hasher() -> RowHasher {
    RowHasher::new(KEY)
}

fn trade_digests(row: &Trade<'_>) -> RowDigests {
    hasher().trade_if_known(row, |_, _| None)
}

/// Asserts that a row and each of its changed versions have different digests.
fn all_differ<T: Clone>(row: &T, changes: &[fn(&mut T)], digest: impl Fn(&T) -> ContentDigest) {
    let mut seen = HashSet::from([digest(row)]);
    for (number, change) in changes.iter().enumerate() {
        let mut changed = row.clone();
        change(&mut changed);
        let is_new = seen.insert(digest(&changed));
        assert!(is_new, "change {number} does not change the digest");
    }
}

#[test]
fn digests_are_stable() {
    // Digests are stored. If they changed, every row would be reported again.
    let account = account(1, "Everyday", "AUD");
    let digests = [
        hasher().transaction(&transaction(&account)),
        trade_digests(&trade(&account)),
    ];
    insta::assert_debug_snapshot!(digests);
}

#[test]
fn every_transaction_field_changes_the_digest() {
    let account = account(1, "Everyday", "AUD");
    let changes: &[fn(&mut Transaction<'_>)] = &[
        |row| row.amount = decimal("-15.91"),
        |row| row.amount = decimal("15.90"),
        |row| row.description = "EXAMPLE CAFE 2".into(),
        |row| row.description = "".into(),
        |row| row.datetime = "2026-11-20T00:00:01Z".into(),
        |row| row.category = None,
        |row| row.category = Some(Category::Travel),
        |row| row.merchant_name = None,
        |row| row.merchant_name = Some("".into()),
        |row| row.merchant_category_code = None,
        |row| row.merchant_category_code = Some("".into()),
        |row| row.currency = Currency::parse("NZD"),
        |row| row.provider_type = None,
        |row| row.provider_type = Some("".into()),
        |row| row.executed = None,
        |row| row.executed = Some("".into()),
        |row| row.reference = None,
        |row| row.reference = Some("".into()),
        |row| row.extended_description = None,
        |row| row.extended_description = Some("".into()),
        // The characters of two adjacent fields, divided at another place.
        |row| {
            (row.reference, row.extended_description) =
                (Some("LUNCHLunch".into()), Some(" with Kim".into()));
        },
        |row| {
            (row.merchant_name, row.merchant_category_code) =
                (Some("Example Cafe5812".into()), Some("".into()));
        },
        // A value that moves to another field.
        |row| (row.reference, row.extended_description) = (None, Some("LUNCH".into())),
        |row| {
            (row.reference, row.extended_description) =
                (Some("Lunch with Kim".into()), Some("LUNCH".into()));
        },
    ];
    all_differ(&transaction(&account), changes, |row| {
        hasher().transaction(row).content
    });
}

#[test]
fn every_trade_field_changes_the_digest() {
    let account = account(1, "Margin", "CAD");
    let changes: &[fn(&mut Trade<'_>)] = &[
        |row| row.symbol = "VAB".into(),
        |row| row.name = None,
        |row| row.name = Some("".into()),
        |row| row.trade_type = TradeType::Sell,
        |row| row.provider_type = "REI".into(),
        |row| row.quantity = None,
        |row| row.quantity = Some(decimal("5.20")),
        |row| row.price = None,
        |row| row.price = Some(decimal("0.5")),
        |row| row.currency = "USD".into(),
        |row| row.total_amount = None,
        |row| row.total_amount = Some(decimal("2.08")),
        |row| row.fees = None,
        |row| row.fees = Some(decimal("1")),
        |row| row.trade_date = "2026-11-19".into(),
        |row| row.time = TradeTime::Instant(instant("2026-11-19T16:27:56Z")),
        |row| row.time = TradeTime::Instant(instant("2026-11-19T00:00:00Z")),
        |row| row.time = TradeTime::Day("2026-11-19".parse().unwrap()),
        |row| row.settlement_date = None,
        |row| row.settlement_date = Some("2026-11-22".into()),
        |row| row.description = None,
        |row| row.description = Some("".into()),
        |row| (row.quantity, row.price) = (row.price.clone(), row.quantity.clone()),
    ];
    all_differ(&trade(&account), changes, |row| trade_digests(row).content);
}

#[test]
fn digest_covers_the_currency_that_is_shown() {
    let content = |currency, account_currency| {
        let account = account(1, "Everyday", account_currency);
        let row = Transaction {
            currency,
            ..transaction(&account)
        };
        hasher().transaction(&row).content
    };
    let (unknown, learned) = (content(None, "XXX"), content(None, "JPY"));
    assert_ne!(unknown, learned, "the account's, learned later");
    let own = content(Currency::parse("JPY"), "AUD");
    assert_eq!(learned, own, "shown alike");
}

#[test]
fn own_fields_do_not_change_digests() {
    let everyday = account(1, "Everyday", "AUD");
    let renamed = account(1, "Bills", "XXX");
    let of = |row: &Transaction<'_>| hasher().transaction(row);
    let usual = of(&transaction(&everyday));
    assert_eq!(usual, of(&transaction(&renamed)));
    let trades = [&everyday, &renamed].map(|account| trade_digests(&trade(account)));
    assert_eq!(trades[0], trades[1]);
    let seen = Transaction {
        seen_at: Some(instant("2026-11-20T01:00:00Z")),
        ..transaction(&everyday)
    };
    assert_eq!(usual, of(&seen));
}

#[test]
fn account_and_id_identify_a_row() {
    let (one, other) = (account(1, "Everyday", "AUD"), account(2, "Everyday", "AUD"));
    let row = |row: &Transaction<'_>| hasher().transaction(row).row;
    let changed = Transaction {
        amount: decimal("1"),
        description: "other".into(),
        ..transaction(&one)
    };
    let renumbered = Transaction {
        id: "tx_2".into(),
        ..transaction(&one)
    };
    let usual = row(&transaction(&one));
    assert_eq!(usual, row(&changed));
    assert_ne!(usual, row(&transaction(&other)));
    assert_ne!(usual, row(&renumbered));

    let row = |row: &Trade<'_>| trade_digests(row).row;
    let changed = Trade {
        name: None,
        price: None,
        currency: "USD".into(),
        ..trade(&one)
    };
    let of_unknown_size = Trade {
        quantity: None,
        ..trade(&one)
    };
    let usual = row(&trade(&one));
    assert_eq!(usual, row(&changed), "no such field is part of the id");
    assert_ne!(usual, row(&trade(&other)));
    assert_ne!(usual, row(&of_unknown_size));

    // A transaction with the id of a trade is a different row.
    let id = trade(&one).id().to_string();
    let namesake = Transaction {
        id: id.into(),
        ..transaction(&one)
    };
    assert_ne!(hasher().transaction(&namesake).row, usual);
}

#[test]
fn digests_depend_on_the_key() {
    let account = account(1, "Everyday", "AUD");
    let hashers = [hasher(), RowHasher::new(&[8; 32])];
    let [one, other] = hashers.map(|hasher| hasher.transaction(&transaction(&account)));
    assert_ne!(one.row, other.row);
    assert_ne!(one.content, other.content);
    assert_ne!(one.likeness, other.likeness);
    assert_ne!(one.row.0[..8], one.content.0);
}

#[test]
fn row_under_another_id_is_alike() {
    let account = account(1, "Everyday", "AUD");
    let of = |row: &Transaction<'_>| hasher().transaction(row);
    let row = transaction(&account);
    let renumbered = Transaction {
        id: "tx_2".into(),
        category: None,
        ..row.clone()
    };
    assert_eq!(of(&row).likeness, of(&renumbered).likeness);
    let changes: &[fn(&mut Transaction<'_>)] = &[
        |row| row.amount = decimal("-15.91"),
        |row| row.description = "other".into(),
        |row| row.instant = instant("2026-11-01T00:00:00Z"),
    ];
    all_differ(&row, changes, |row| of(row).likeness);
}

#[test]
fn day_is_hidden_and_shown_again() {
    let account = account(1, "Everyday", "AUD");
    let digests = hasher().transaction(&transaction(&account));
    let fingerprint = |occurrence| Fingerprint {
        digests,
        occurrence,
        key: hasher().key(digests.row, occurrence, 0),
        seen_at: 0,
        misses: 0,
        is_gone: false,
        first_version: 1,
        changed_version: 1,
    };
    let shown = [fingerprint(0), fingerprint(1)];
    let mut hidden = shown;
    hasher().mask_days(&mut hidden);
    let [one, other] = hidden.map(|row| row.digests.day);
    assert_ne!(one, other, "rows of one day look different");
    hasher().mask_days(&mut hidden);
    assert_eq!(hidden, shown);
}

type Texts = (String, Option<String>, Option<String>, Option<String>);

fn texts() -> impl Strategy<Value = Texts> {
    let optional = || prop::option::of("[ab]{0,2}");
    (".{0,3}", optional(), optional(), optional())
}

proptest! {
    /// Model: the texts themselves.
    #[test]
    fn only_equal_texts_have_equal_digests(
        one in texts(),
        other in texts(),
    ) {
        let account = account(1, "Everyday", "AUD");
        let digest = |(description, executed, kind, reference): &Texts| {
            let text = |text: &Option<String>| text.clone().map(Into::into);
            hasher().transaction(&Transaction {
                description: description.clone().into(),
                executed: text(executed),
                provider_type: text(kind),
                reference: text(reference),
                ..transaction(&account)
            }).content
        };
        prop_assert_eq!(one == other, digest(&one) == digest(&other));
    }
}
