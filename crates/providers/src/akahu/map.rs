//! Maps Akahu's wire types to the types of the domain. Pure functions.

use bellbird_domain::{
    Account, AccountType, Balance, ConnectionStatus, DateRange, MaskedNumber, Transaction,
};
use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use super::{NAME, categories, wire};
use crate::exact;
use crate::rows::{MalformedRow, Skipped, find_account, parse_instant};
use crate::text::{Text, currency, non_blank};
use crate::unreadable::UnreadableReason;
use crate::{ConsentStatus, Error, FoundAccount, json};

const DAY_NANOSECONDS: i128 = 86_400_000_000_000;

/// Maps a row of one of `accounts`. `auckland` is the time zone of New Zealand.
pub(super) fn transaction<'a>(
    row: wire::Transaction<'a>,
    accounts: &'a [Account],
    auckland: &TimeZone,
) -> Result<Transaction<'a>, Skipped> {
    let account = find_account(accounts, &row.account).ok_or(Skipped::OtherAccount)?;
    let datetime = row.date.ok_or(Skipped::NoTime)?;
    let instant = parse_instant(datetime.as_str())
        .ok_or(Skipped::unreadable(UnreadableReason::InvalidDate, None))?;
    let amount = exact::required(row.amount.as_ref())
        .map_err(|reason| Skipped::unreadable(reason, Some(instant)))?;
    let category = categories::category(
        row.category.as_ref(),
        row.kind.as_ref().map(Text::as_str),
        &amount,
    );
    if category.is_err() {
        metrics::counter!("bellbird_unknown_categories_total", "provider" => NAME.as_str())
            .increment(1);
    }
    Ok(Transaction {
        id: row.id.0,
        account,
        instant,
        day: day_only(instant, auckland),
        seen_at: row.created_at.and_then(|text| parse_instant(text.as_str())),
        datetime: datetime.0,
        description: row.description.unwrap_or_default().0,
        amount,
        category: category.unwrap_or_default(),
        merchant_name: row.merchant.and_then(|merchant| non_blank(merchant.name)),
        merchant_category_code: None,
        currency: None,
        provider_type: non_blank(row.kind),
        executed: None,
        reference: row.meta.and_then(|meta| non_blank(meta.reference)),
        extended_description: None,
    })
}

/// A page also has rows of other authorisations of the user token.
pub(super) fn malformed(text: &str, accounts: &[Account]) -> MalformedRow {
    let Ok(row) = json::from_str::<wire::MalformedTransaction<'_>>(text) else {
        return MalformedRow::default();
    };
    let is_other_account = |id: Text<'_>| find_account(accounts, &id).is_none();
    MalformedRow {
        is_other_account: row.account.is_some_and(is_other_account),
        at: row.date.and_then(|date| parse_instant(date.as_str())),
    }
}

/// The day of a row that has a day but no time. Most banks send such a day as midnight in New
/// Zealand, one card issuer sends midnight UTC (docs/providers/akahu.md#dates). Both stand for the
/// day in New Zealand.
fn day_only(instant: Timestamp, auckland: &TimeZone) -> Option<Date> {
    let local = auckland.to_datetime(instant);
    let utc_midnight = instant.as_nanosecond().rem_euclid(DAY_NANOSECONDS) == 0;
    (utc_midnight || local.time() == Time::midnight()).then(|| local.date())
}

/// The first and last instant to request. They cover the days in the user's time zone and in New
/// Zealand, because a row that has only a day is at midnight in New Zealand.
pub(super) fn instants(
    dates: &DateRange,
    zone: &TimeZone,
    auckland: &TimeZone,
) -> (Timestamp, Timestamp) {
    let (user_range, local_range) = (dates.instants(zone), dates.instants(auckland));
    (
        user_range.0.min(local_range.0),
        user_range.1.max(local_range.1),
    )
}

/// The authorisation of an account. Older responses have only `_credentials`
/// (docs/providers/akahu.md#accounts). The last resort is the institution.
pub(super) fn authorisation<'r>(row: &'r wire::Account<'_>) -> Option<&'r str> {
    let institution = row.connection.as_ref().map(|connection| &connection.id);
    let ids = [
        row.authorisation.as_ref(),
        row.credentials.as_ref(),
        institution,
    ];
    ids.into_iter()
        .flatten()
        .map(Text::as_str)
        .find(|id| !id.is_empty())
}

/// The status of an authorisation, from the accounts in a user token's list. Akahu has no status of
/// its own for it (docs/providers/akahu.md#status).
pub(super) fn consent_status(rows: &[wire::Account<'_>], id: &str) -> ConsentStatus {
    let mut own = rows
        .iter()
        .filter(|row| authorisation(row) == Some(id))
        .peekable();
    if own.peek().is_none() {
        return ConsentStatus::Broken(ConnectionStatus::Revoked);
    }
    let inactive = |row: &wire::Account<'_>| {
        row.status
            .as_ref()
            .is_some_and(|status| status.as_str() == "INACTIVE")
    };
    if own.any(inactive) {
        ConsentStatus::Broken(ConnectionStatus::Invalidated)
    } else {
        ConsentStatus::Active
    }
}

/// Maps the balance of an account. An account without a balance has an empty one.
pub(super) fn balance(row: &wire::Account<'_>) -> Result<Balance, Error> {
    let Some(balance) = &row.balance else {
        return Ok(Balance::default());
    };
    Ok(Balance {
        current: exact::owned_amount(balance.current.as_ref())?,
        available: exact::owned_amount(balance.available.as_ref())?,
        currency: currency(balance.currency.as_ref()),
    })
}

/// Maps an account and masks its number. The full number goes no further.
pub(super) fn account(row: &wire::Account<'_>) -> FoundAccount {
    let number = row.formatted_account.as_ref().map_or("", Text::as_str);
    let name = row
        .name
        .as_ref()
        .map(Text::as_str)
        .filter(|name| !name.trim().is_empty())
        .unwrap_or("Account");
    FoundAccount {
        provider_account_id: row.id.as_str().to_owned(),
        name: MaskedNumber::hide_in(name, number),
        account_type: account_type(row.kind.as_ref().map_or("", Text::as_str)),
        number: MaskedNumber::mask(number),
        currency: row
            .balance
            .as_ref()
            .and_then(|balance| currency(balance.currency.as_ref())),
    }
}

fn account_type(kind: &str) -> AccountType {
    match kind {
        "CHECKING" | "FOREIGN" | "WALLET" => AccountType::Transaction,
        "SAVINGS" => AccountType::Savings,
        "CREDITCARD" => AccountType::CreditCard,
        "LOAN" => AccountType::Loan,
        "KIWISAVER" | "INVESTMENT" => AccountType::Investment,
        "TERMDEPOSIT" => AccountType::TermDeposit,
        _ => AccountType::Other,
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;
    use bellbird_domain::table::table;

    use super::*;

    fn auckland() -> TimeZone {
        TimeZone::get("Pacific/Auckland").unwrap()
    }

    #[test]
    fn every_kind_has_its_account_type() {
        for (kind, expected) in [
            ("CHECKING", AccountType::Transaction),
            ("SAVINGS", AccountType::Savings),
            ("CREDITCARD", AccountType::CreditCard),
            ("LOAN", AccountType::Loan),
            ("KIWISAVER", AccountType::Investment),
            ("INVESTMENT", AccountType::Investment),
            ("TERMDEPOSIT", AccountType::TermDeposit),
            ("FOREIGN", AccountType::Transaction),
            ("TAX", AccountType::Other),
            ("REWARDS", AccountType::Other),
            ("WALLET", AccountType::Transaction),
            ("LOAN_HOME", AccountType::Other),
            ("", AccountType::Other),
        ] {
            assert_eq!(account_type(kind), expected, "{kind}");
        }
    }

    #[test]
    fn rows_with_only_a_day() {
        for (date, day) in [
            // Summer and winter, and the days of the clock changes: forward on 27 September, back
            // on 5 April.
            ("2026-02-25T11:00:00.000Z", Some("2026-02-26")),
            ("2026-07-01T12:00:00.000Z", Some("2026-07-02")),
            ("2026-09-26T12:00:00.000Z", Some("2026-09-27")),
            ("2026-09-27T11:00:00.000Z", Some("2026-09-28")),
            ("2026-04-04T11:00:00.000Z", Some("2026-04-05")),
            ("2026-04-05T12:00:00.000Z", Some("2026-04-06")),
            ("2026-02-25T00:00:00.000Z", Some("2026-02-25")),
            ("2026-07-01T00:00:00.000Z", Some("2026-07-01")),
            // An hour off midnight: the UTC offset of the other half of the year.
            ("2026-02-25T12:00:00.000Z", None),
            ("2026-07-01T11:00:00.000Z", None),
            ("2026-02-25T11:00:00.001Z", None),
            ("2026-02-25T00:00:00.001Z", None),
            ("2026-02-25T10:59:59.999Z", None),
        ] {
            let found = day_only(date.parse().unwrap(), &auckland());
            assert_eq!(found.map(|day| day.to_string()).as_deref(), day, "{date}");
        }
    }

    #[test]
    fn range_covers_both_time_zones() {
        let zone = |name: &str| TimeZone::get(name).unwrap();
        for [from, to, user, first, last] in table(
            "// Days: New Zealand begins first and the user ends last. In Kiritimati it is the other
            // way round.
            2026-01-05 | 2026-01-06 | Australia/Sydney | 2026-01-04T11:00:00Z | 2026-01-06T12:59:59.999999999Z
            2026-01-05 | 2026-01-06 | Pacific/Honolulu | 2026-01-04T11:00:00Z | 2026-01-07T09:59:59.999999999Z
            2026-01-05 | 2026-01-06 | Pacific/Kiritimati | 2026-01-04T10:00:00Z | 2026-01-06T10:59:59.999999999Z
            // Instants do not depend on a time zone.
            2026-01-05T01:00:00Z | 2026-01-06T02:00:00Z | Australia/Sydney | 2026-01-05T01:00:00Z | 2026-01-06T02:00:00Z",
        ) {
            let dates = DateRange {
                from: Bound::parse(from).unwrap(),
                to: Bound::parse(to).unwrap(),
            };
            let requested = instants(&dates, &zone(user), &auckland());
            assert_eq!(
                requested,
                (first.parse().unwrap(), last.parse().unwrap()),
                "{from} {to} {user}"
            );
        }
    }

    #[test]
    fn consent_status_by_answer() {
        let list = |accounts: &[(&str, &str)]| -> String {
            let row = |(authorisation, status): &(&str, &str)| {
                format!(
                    r#"{{"_id": "a", "_authorisation": "{authorisation}", "status": "{status}"}}"#
                )
            };
            format!(
                "[{}]",
                accounts.iter().map(row).collect::<Vec<_>>().join(",")
            )
        };
        for (accounts, expected) in [
            (vec![], ConsentStatus::Broken(ConnectionStatus::Revoked)),
            (
                vec![("other", "ACTIVE")],
                ConsentStatus::Broken(ConnectionStatus::Revoked),
            ),
            (
                vec![("own", "ACTIVE"), ("other", "INACTIVE")],
                ConsentStatus::Active,
            ),
            (
                vec![("own", "ACTIVE"), ("own", "INACTIVE")],
                ConsentStatus::Broken(ConnectionStatus::Invalidated),
            ),
            (vec![("own", "SOMETHING_NEW")], ConsentStatus::Active),
        ] {
            let body = list(&accounts);
            let rows: Vec<wire::Account<'_>> = serde_json::from_str(&body).unwrap();
            assert_eq!(consent_status(&rows, "own"), expected, "{accounts:?}");
        }
    }

    #[test]
    fn authorisation_id_falls_back() {
        for (body, expected) in [
            (
                r#"{"_id": "a", "_authorisation": "x", "_credentials": "c", "connection": {"_id": "i"}}"#,
                Some("x"),
            ),
            (
                r#"{"_id": "a", "_credentials": "c", "connection": {"_id": "i"}}"#,
                Some("c"),
            ),
            (
                r#"{"_id": "a", "_authorisation": "", "connection": {"_id": "i"}}"#,
                Some("i"),
            ),
            (r#"{"_id": "a"}"#, None),
        ] {
            let row: wire::Account<'_> = serde_json::from_str(body).unwrap();
            assert_eq!(authorisation(&row), expected, "{body}");
        }
    }
}
