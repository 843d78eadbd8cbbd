//! Maps Fiskil's wire types to the types of the domain. Pure functions.

use bellbird_domain::{
    Account, AccountType, Balance, Category, ConnectionStatus, MaskedNumber, Transaction,
};
use jiff::Timestamp;
use serde_json::Value;

use super::wire;
use crate::exact;
use crate::rows::{MalformedRow, Skipped, find_account, parse_instant};
use crate::text::{Text, currency, non_blank};
use crate::unreadable::UnreadableReason;
use crate::{Consent, ConsentStatus, Error, FoundAccount, json};

/// Whether a row belongs to this consent. The lists of an end user have the rows of all their
/// consents.
pub(super) fn is_of_consent(row_arrangement: Option<&Text<'_>>, arrangement_id: &str) -> bool {
    row_arrangement.is_none_or(|id| id.as_str() == arrangement_id)
}

/// Maps a posted row of one of `accounts` in the consent `arrangement_id`.
pub(super) fn transaction<'a>(
    row: wire::Transaction<'a>,
    arrangement_id: &str,
    accounts: &'a [Account],
) -> Result<Transaction<'a>, Skipped> {
    if !is_of_consent(row.arrangement_id.as_ref(), arrangement_id) {
        return Err(Skipped::OtherAccount);
    }
    let account = find_account(accounts, &row.account_id).ok_or(Skipped::OtherAccount)?;
    if row.status.as_str() != "POSTED" {
        return Err(Skipped::Pending);
    }
    let has_time = row.posting_date_time.is_some() || row.execution_date_time.is_some();
    let executed = time(row.execution_date_time);
    let Some((instant, datetime)) = time(row.posting_date_time).or_else(|| executed.clone()) else {
        let invalid = Skipped::unreadable(UnreadableReason::InvalidDate, None);
        return Err(if has_time { invalid } else { Skipped::NoTime });
    };
    let amount = exact::required(row.amount.as_ref())
        .map_err(|reason| Skipped::unreadable(reason, Some(instant)))?;
    Ok(Transaction {
        id: row.fiskil_id.0,
        account,
        instant,
        day: None,
        seen_at: None,
        datetime: datetime.0,
        description: row.description.unwrap_or_default().0,
        amount,
        category: row
            .category
            .or(row.categories)
            .and_then(|category| category_of(&category)),
        merchant_name: non_blank(row.merchant_name),
        merchant_category_code: non_blank(row.merchant_category_code),
        currency: currency(row.currency.as_ref()),
        provider_type: non_blank(row.kind),
        executed: executed.map(|(_, text)| text.0),
        reference: non_blank(row.reference),
        extended_description: row
            .extended_data
            .and_then(|data| data.npp_payload)
            .and_then(|payload| non_blank(payload.extended_description)),
    })
}

/// A page also has rows of other consents of the end user.
pub(super) fn malformed(text: &str, arrangement_id: &str, accounts: &[Account]) -> MalformedRow {
    let Ok(row) = json::from_str::<wire::MalformedTransaction<'_>>(text) else {
        return MalformedRow::default();
    };
    let is_other_account = |id: &Text<'_>| find_account(accounts, id).is_none();
    MalformedRow {
        is_other_account: !is_of_consent(row.arrangement_id.as_ref(), arrangement_id)
            || row.account_id.as_ref().is_some_and(is_other_account),
        at: time(row.posting_date_time)
            .or_else(|| time(row.execution_date_time))
            .map(|(instant, _)| instant),
    }
}

fn time(text: Option<Text<'_>>) -> Option<(Timestamp, Text<'_>)> {
    let text = text?;
    parse_instant(text.as_str()).map(|instant| (instant, text))
}

fn category_of(category: &wire::Category<'_>) -> Option<Category> {
    let primary = category.primary_category.as_ref()?;
    let known = Category::from_key(primary.as_str());
    if known.is_none() {
        metrics::counter!("bellbird_unknown_categories_total", "provider" => "fiskil").increment(1);
    }
    known
}

pub(super) fn balance(row: &wire::Balance<'_>) -> Result<Balance, Error> {
    Ok(Balance {
        current: exact::owned_amount(row.current_balance.as_ref())?,
        available: exact::owned_amount(row.available_balance.as_ref())?,
        currency: currency(row.currency.as_ref()),
    })
}

/// Maps an account and masks its number. The full number goes no further.
pub(super) fn account(row: &wire::Account<'_>) -> FoundAccount {
    let named = [&row.nickname, &row.display_name, &row.product_name];
    let name = named
        .into_iter()
        .flatten()
        .map(Text::as_str)
        .find(|name| !name.trim().is_empty())
        .unwrap_or("Account");
    let number = [&row.masked_number, &row.account_number]
        .into_iter()
        .flatten()
        .find_map(|number| MaskedNumber::mask(number.as_str()));
    // The masked one says how a number ends that is not sent.
    let known = [&row.account_number, &row.masked_number]
        .into_iter()
        .flatten()
        .map(Text::as_str)
        .find(|number| MaskedNumber::mask(number).is_some())
        .unwrap_or_default();
    FoundAccount {
        provider_account_id: row.account_id.0.clone().into_owned(),
        name: MaskedNumber::hide_in(name, known),
        account_type: account_type(row),
        number,
        currency: currency(row.currency.as_ref()),
    }
}

/// Everyday and savings accounts share one category (docs/providers/fiskil.md#accounts), so the
/// name decides.
fn account_type(row: &wire::Account<'_>) -> AccountType {
    let category = row.product_category.as_ref().map_or("", Text::as_str);
    match category {
        "TERM_DEPOSITS" => AccountType::TermDeposit,
        "CRED_AND_CHRG_CARDS" => AccountType::CreditCard,
        "RESIDENTIAL_MORTGAGES"
        | "PERS_LOANS"
        | "BUSINESS_LOANS"
        | "LEASES"
        | "OVERDRAFTS"
        | "MARGIN_LOANS"
        | "BUY_NOW_PAY_LATER"
        | "TRADE_FINANCE" => AccountType::Loan,
        "TRAVEL_CARDS" => AccountType::Transaction,
        "TRANS_AND_SAVINGS_ACCOUNTS" => {
            let names = [&row.product_name, &row.display_name];
            if names
                .into_iter()
                .flatten()
                .any(|name| has_word_for_savings(name.as_str()))
            {
                AccountType::Savings
            } else {
                AccountType::Transaction
            }
        }
        _ => AccountType::Other,
    }
}

fn has_word_for_savings(name: &str) -> bool {
    name.split(|character: char| !character.is_alphanumeric())
        .any(|word| {
            word.get(..3)
                .is_some_and(|start| start.eq_ignore_ascii_case("sav"))
        })
}

/// The state of a consent, from `active` and `expires_at`. The other members are not documented
/// well enough. A consent that ended before it expired counts as withdrawn
/// (docs/providers/fiskil.md#consents).
pub(super) fn consent(consent: &wire::Consent, now: Timestamp) -> Consent {
    let expires_at = consent
        .expires_at
        .as_ref()
        .and_then(Value::as_str)
        .and_then(parse_instant);
    let status = match (consent.active, expires_at.is_some_and(|at| at <= now)) {
        (_, true) => ConsentStatus::Broken(ConnectionStatus::Invalidated),
        (true, false) => ConsentStatus::Active,
        (false, false) => ConsentStatus::Broken(ConnectionStatus::Revoked),
    };
    Consent { status, expires_at }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::table::table;

    use super::*;

    fn typed(category: &'static str, product: &'static str, display: &'static str) -> AccountType {
        let text = |text: &'static str| Some(Text(text.into()));
        account(&wire::Account {
            product_category: text(category),
            product_name: text(product),
            display_name: text(display),
            ..wire::Account::default()
        })
        .account_type
    }

    #[test]
    fn every_product_category_has_its_type() {
        for (category, expected) in [
            ("BUSINESS_LOANS", AccountType::Loan),
            ("BUY_NOW_PAY_LATER", AccountType::Loan),
            ("CRED_AND_CHRG_CARDS", AccountType::CreditCard),
            ("LEASES", AccountType::Loan),
            ("MARGIN_LOANS", AccountType::Loan),
            ("OVERDRAFTS", AccountType::Loan),
            ("PERS_LOANS", AccountType::Loan),
            ("REGULATED_TRUST_ACCOUNTS", AccountType::Other),
            ("RESIDENTIAL_MORTGAGES", AccountType::Loan),
            ("TERM_DEPOSITS", AccountType::TermDeposit),
            ("TRADE_FINANCE", AccountType::Loan),
            ("TRANS_AND_SAVINGS_ACCOUNTS", AccountType::Transaction),
            ("TRAVEL_CARDS", AccountType::Transaction),
            ("SOMETHING_NEW", AccountType::Other),
        ] {
            assert_eq!(
                typed(category, "Everyday", "Everyday"),
                expected,
                "{category}"
            );
        }
    }

    #[test]
    fn name_decides_about_savings() {
        let kind = |product, display| typed("TRANS_AND_SAVINGS_ACCOUNTS", product, display);
        assert_eq!(kind("NetBank Saver", "x"), AccountType::Savings);
        assert_eq!(kind("x", "my SAVINGS"), AccountType::Savings);
        assert_eq!(kind("e-save", "x"), AccountType::Savings);
        assert_eq!(kind("Unsaved things", "x"), AccountType::Transaction);
        assert_eq!(kind("Säv", "sa"), AccountType::Transaction);
    }

    #[test]
    fn nickname_precedes_display_and_product_name() {
        let text = |text: &'static str| Some(Text(text.into()));
        let mut row = wire::Account {
            product_name: text("Product"),
            ..wire::Account::default()
        };
        assert_eq!(account(&row).name, "Product");
        row.display_name = text("Display");
        assert_eq!(account(&row).name, "Display");
        row.nickname = text(" ");
        assert_eq!(account(&row).name, "Display");
        row.nickname = text("Bills");
        assert_eq!(account(&row).name, "Bills");
    }

    #[test]
    fn number_in_a_name_is_masked_by_what_is_sent_of_it() {
        let sent = |sent: &'static str| (sent != "-").then(|| Text(sent.into()));
        for [name, account_number, masked_number, expected] in table(
            "Loan 987654321 | 987654321 | - | Loan xxxx4321
            Loan 987654321 | - | xxxxx4321 | Loan xxxx4321
            Loan 987654321 | | xxxxx4321 | Loan xxxx4321
            Loan 12345 987 | 12345987 | xxxx5987 | Loan xxxx5987",
        ) {
            let found = account(&wire::Account {
                display_name: sent(name),
                account_number: sent(account_number),
                masked_number: sent(masked_number),
                ..wire::Account::default()
            });
            assert_eq!(found.name, expected);
        }
    }

    #[test]
    fn end_of_a_consent_is_read_or_unknown() {
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let end = |sent: &str| {
            let body = format!(
                r#"[{{"arrangement_id": "a", "active": true, "institution_id": "1"{sent}}}]"#
            );
            let wire::Consents::Bare(consents) = json::from_str(&body).unwrap() else {
                panic!("an array")
            };
            let found = consent(&consents[0], now);
            assert_eq!(found.status, ConsentStatus::Active, "{sent}");
            found.expires_at.map(|at| at.to_string())
        };
        for (sent, expected) in [
            (
                r#", "expires_at": "2027-01-01T10:42:40Z""#,
                Some("2027-01-01T10:42:40Z"),
            ),
            (
                r#", "expires_at": "2027-01-01T10:42:40.5+11:00""#,
                Some("2026-12-31T23:42:40.5Z"),
            ),
            ("", None),
            (r#", "expires_at": null"#, None),
            (r#", "expires_at": """#, None),
            (r#", "expires_at": "next year""#, None),
            (r#", "expires_at": "2027-02-30T00:00:00Z""#, None),
            (r#", "expires_at": 1800000000"#, None),
            (r#", "expires_at": {"at": []}"#, None),
        ] {
            assert_eq!(end(sent).as_deref(), expected, "{sent}");
        }
    }

    #[test]
    fn consent_status_by_activity_and_expiry() {
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        let consent = |active, expires_at: Option<&str>| wire::Consent {
            arrangement_id: "a".into(),
            active,
            institution_id: "1".into(),
            institution_name: None,
            institution_logo: None,
            expires_at: expires_at.map(Value::from),
        };
        let (future, past) = (Some("2027-01-01T00:00:00Z"), Some("2026-01-01T00:00:00Z"));
        let broken = ConsentStatus::Broken;
        for (active, expires_at, expected) in [
            (true, future, ConsentStatus::Active),
            (true, None, ConsentStatus::Active),
            (true, past, broken(ConnectionStatus::Invalidated)),
            (false, past, broken(ConnectionStatus::Invalidated)),
            (false, future, broken(ConnectionStatus::Revoked)),
            (false, None, broken(ConnectionStatus::Revoked)),
        ] {
            let found = super::consent(&consent(active, expires_at), now).status;
            assert_eq!(found, expected, "{active} {expires_at:?}");
        }
    }
}
