//! Tests of the mapping: fixtures and snapshots, and tables of unusual rows.

use bellbird_domain::{Currency, DateRange};
use jiff::tz::TimeZone;

use super::*;
use crate::test_support::account;
use crate::unreadable::UnreadableRows;

/// Maps a body and formats its posted rows as lines.
fn read(body: &str) -> Result<Vec<String>, Error> {
    let accounts = [account(1, "123456789")];
    let zone = TimeZone::get("Australia/Sydney").unwrap();
    let dates = DateRange::resolve(None, None, jiff::Timestamp::UNIX_EPOCH);
    let query = TransactionQuery {
        accounts: &accounts,
        one_account: false,
        dates: &dates,
        zone: &zone,
    };
    let page: wire::TransactionsPage<'_> = parse_json(body.as_bytes())?;
    let mut unreadable = Vec::new();
    let rows = posted(
        page.transactions,
        "90bfd779-e8eb-4e9f-87b3-5191ba7332c2",
        &query,
        &mut unreadable,
    )?;
    UnreadableRows::default().accept(&unreadable)?;
    Ok(rows.iter().map(|row| line(row, &zone)).collect())
}

fn line(row: &Transaction<'_>, zone: &TimeZone) -> String {
    let category = row.category.map_or("-", bellbird_domain::Category::key);
    let merchant = row.merchant_name.as_deref().unwrap_or("-");
    let code = row.merchant_category_code.as_deref().unwrap_or("-");
    let (day, amount, direction) = (row.local_day(zone), &row.amount, row.direction());
    let event_fields = event_fields(row).join(" / ");
    format!(
        "{} {day} {} {amount} {direction} {category} {merchant} {code} | {} | {event_fields}",
        row.id, row.datetime, row.description
    )
}

/// The fields that only webhook events contain.
fn event_fields(row: &Transaction<'_>) -> [String; 5] {
    let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
    [
        text(row.currency.as_ref().map(Currency::as_str)),
        text(row.provider_type.as_deref()),
        text(row.executed.as_deref()),
        text(row.reference.as_deref()),
        text(row.extended_description.as_deref()),
    ]
}

#[test]
fn a_page_with_its_quirks() {
    insta::assert_snapshot!(
        read(include_str!("fixtures/transactions.json"))
            .unwrap()
            .join("\n")
    );
}

#[test]
fn invalid_amount_fails_the_page() {
    for amount in ["\"-5,00\"", "null"] {
        let body = include_str!("fixtures/transactions.json").replace("\"-5.00\"", amount);
        assert!(matches!(read(&body), Err(Error::Malformed(_))));
    }
}

/// Sends a complete row repeatedly, each time with another value for one member.
#[test]
fn event_only_fields_never_break_a_page() {
    const ROW: &str = r#"{"transactions":[{"fiskil_id":"1","account_id":"123456789","status":"POSTED","amount":"1",
        "posting_date_time":"2025-12-01T00:00:00Z","execution_date_time":"2025-11-29T08:12:00Z","currency":"AUD",
        "type":"PAYMENT","reference":"INV-7","extended_data":{"npp_payload":{"extended_description":"Lunch"}}}]}"#;
    const ALL: &str = "AUD / PAYMENT / 2025-11-29T08:12:00Z / INV-7 / Lunch";
    let event_fields = |body: &str| {
        let rows = read(body).unwrap();
        rows[0].rsplit(" | ").next().unwrap().to_owned()
    };
    assert_eq!(event_fields(ROW), ALL);
    for (member, shown) in [
        ("\"AUD\"", "AUD"),
        ("\"PAYMENT\"", "PAYMENT"),
        ("\"2025-11-29T08:12:00Z\"", "2025-11-29T08:12:00Z"),
        ("\"INV-7\"", "INV-7"),
        ("\"Lunch\"", "Lunch"),
        ("{\"extended_description\":\"Lunch\"}", "Lunch"),
        (
            "{\"npp_payload\":{\"extended_description\":\"Lunch\"}}",
            "Lunch",
        ),
    ] {
        for sent in [
            "null",
            "\"\"",
            "\" \"",
            "7",
            "1e999",
            "false",
            "[{}]",
            "{\"a\":\"b\"}",
        ] {
            let fields = event_fields(&ROW.replacen(member, sent, 1));
            assert_eq!(fields, ALL.replacen(shown, "-", 1), "{sent} for {member}");
        }
    }
    for (valid, invalid) in [("AUD", "dollars"), ("2025-11-29T08:12:00Z", "yesterday")] {
        let fields = event_fields(&ROW.replace(valid, invalid));
        assert_eq!(fields, ALL.replacen(valid, "-", 1));
    }
}

#[test]
fn merchant_and_category_of_another_type_never_break_a_page() {
    const ROW: &str = r#"{"transactions":[{"fiskil_id":"1","account_id":"123456789","status":"POSTED","amount":"-2",
        "description":"TAP","posting_date_time":"2025-12-01T00:00:00Z","execution_date_time":"2025-11-29T08:12:00Z",
        "merchant_name":"Metro","merchant_category_code":"4111","category":{"primary_category":"TRAVEL"}}]}"#;
    const ALL: &str = "1 2025-12-01 2025-12-01T00:00:00Z -2 debit TRAVEL Metro 4111";
    let other_types = ["7", "1e999", "false", "[{}]", "{\"a\":\"b\"}"];
    for name in ["category", "categories"] {
        let row = ROW.replacen("category\":{", &format!("{name}\":{{"), 1);
        for (member, shown) in [
            ("\"Metro\"", "Metro"),
            ("\"4111\"", "4111"),
            ("\"TRAVEL\"", "TRAVEL"),
            ("{\"primary_category\":\"TRAVEL\"}", "TRAVEL"),
        ] {
            for sent in other_types {
                let rows = read(&row.replacen(member, sent, 1)).unwrap();
                let line = rows[0].split(" | ").next().unwrap();
                assert_eq!(line, ALL.replacen(shown, "-", 1), "{sent} for {member}");
            }
        }
    }
    // Without these, the row would lose its text or move to another day.
    for member in ["\"TAP\"", "\"2025-12-01T00:00:00Z\""] {
        for sent in other_types {
            let body = ROW.replacen(member, sent, 1);
            let is_malformed = matches!(read(&body), Err(Error::Malformed(_)));
            assert!(is_malformed, "{sent} for {member}");
        }
    }
}

#[test]
fn accounts_are_masked_and_named() {
    let page: wire::AccountsPage<'_> =
        parse_json(include_bytes!("fixtures/accounts.json")).unwrap();
    let found: Vec<FoundAccount> = page.accounts.iter().map(map::account).collect();
    insta::assert_debug_snapshot!(found);
}

#[test]
fn credentials_are_parsed_strictly() {
    let read = |text: &str| {
        let credentials = Credentials::read(&SecretString::from(text.to_owned()));
        credentials.map(|credentials| credentials.arrangement_id)
    };
    let of_arrangement = read(r#"{"endUserId":"eu_1","arrangementId":"a"}"#);
    assert_eq!(of_arrangement, Ok(Some("a".to_owned())));
    let of_user = read(r#"{"provider":"fiskil","endUserId":"eu_1"}"#);
    assert_eq!(of_user, Ok(None));
    for text in [
        "",
        "[]",
        "{}",
        r#"{"endUserId":""}"#,
        r#"{"endUserId":"e","userToken":"t"}"#,
        r#"{"endUserId":1}"#,
    ] {
        let is_invalid = matches!(read(text), Err(Error::InvalidCredentials(_)));
        assert!(is_invalid, "{text}");
    }
    let Err(Error::InvalidCredentials(why)) = read(r#"{"provider":"akahu","endUserId":"e"}"#)
    else {
        panic!("credentials of another provider are accepted")
    };
    assert!(why.contains("another provider"));
}
