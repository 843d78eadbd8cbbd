//! Tests of the adapter: fixtures and snapshots, tables of unusual rows, and calls to a mock
//! provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellbird_domain::{Bound, DateRange};
use jiff::Timestamp;
use proptest::prelude::*;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::test_support::fuzz_transactions_page;
use super::*;
use crate::test_support::{Peer, account};
use crate::unreadable::UnreadableRows;

const ACCOUNTS: &str = include_str!("fixtures/accounts.json");
const TRANSACTIONS: &str = include_str!("fixtures/transactions.json");
const ASB: &str = "authorisation_c000000000000000000000b01";
const EVERYDAY: &str = "acc_c00000000000000000000a001";
const VISA: &str = "acc_c00000000000000000000a002";

fn credentials(user_token: &str, authorisation: &str) -> SecretString {
    SecretString::from(format!(
        r#"{{"userToken": "{user_token}", "authorisation": "{authorisation}"}}"#
    ))
}

fn sydney() -> TimeZone {
    TimeZone::get("Australia/Sydney").unwrap()
}

/// Maps a body and formats its rows as lines.
fn read(body: &str) -> Result<Vec<String>, Error> {
    let accounts = [account(1, EVERYDAY), account(2, VISA)];
    let dates = DateRange::resolve(None, None, Timestamp::UNIX_EPOCH);
    let zone = sydney();
    let query = TransactionQuery {
        accounts: &accounts,
        one_account: false,
        dates: &dates,
        zone: &zone,
    };
    let page = api::list::<wire::Transaction<'_>>(body.as_bytes())?;
    let mut unreadable = Vec::new();
    let rows = posted(page.items, &query, &auckland().unwrap(), &mut unreadable);
    UnreadableRows::default().accept(&unreadable)?;
    Ok(rows.iter().map(|row| line(row, &zone)).collect())
}

fn line(row: &Transaction<'_>, zone: &TimeZone) -> String {
    let category = row.category.map_or("-", bellbird_domain::Category::key);
    let merchant = row.merchant_name.as_deref().unwrap_or("-");
    let (day, amount, direction) = (row.local_day(zone), &row.amount, row.direction());
    let (kind, reference) = event_fields(row);
    format!(
        "{} {day} {} {amount} {direction} {category} {merchant} | {} | {kind} / {reference}",
        row.id, row.datetime, row.description
    )
}

/// The fields that only webhook events contain. Akahu's rows have no currency, no second time and
/// no second text (docs/providers/akahu.md#transactions).
fn event_fields(row: &Transaction<'_>) -> (String, String) {
    assert!(row.currency.is_none() && row.executed.is_none() && row.extended_description.is_none());
    let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
    (
        text(row.provider_type.as_deref()),
        text(row.reference.as_deref()),
    )
}

#[test]
fn a_page_with_its_quirks() {
    insta::assert_snapshot!(read(TRANSACTIONS).unwrap().join("\n"));
}

#[test]
fn event_only_fields_never_break_a_page() {
    let event_fields = |body: &str| {
        let lines = read(body).unwrap();
        let line = lines.iter().find(|line| line.contains("0000t2 ")).unwrap();
        line.rsplit(" | ").next().unwrap().to_owned()
    };
    assert_eq!(event_fields(TRANSACTIONS), "DIRECT CREDIT / INV 7");
    let meta = r#"{"particulars": "EXAMPLE LTD", "code": "SALARY", "reference": "INV 7"}"#;
    for sent in [
        "null",
        "\"\"",
        "7",
        "1e999",
        "false",
        "[{}]",
        "{\"a\":\"b\"}",
    ] {
        for (member, left) in [
            ("\"INV 7\"", "DIRECT CREDIT / -"),
            (meta, "DIRECT CREDIT / -"),
            ("\"DIRECT CREDIT\"", "- / INV 7"),
        ] {
            let fields = event_fields(&TRANSACTIONS.replacen(member, sent, 1));
            assert_eq!(fields, left, "{sent} for {member}");
        }
    }
}

#[test]
fn enrichment_of_another_type_never_breaks_a_page() {
    let body = format!(
        r#"{{"success": true, "items": [{{"_id": "t", "_account": "{EVERYDAY}", "type": "FEE",
            "created_at": "2026-02-26T03:16:35.659Z", "date": "2026-02-25T18:21:07.345Z",
            "description": "CAFE", "amount": -1, "merchant": {{"name": "Example Cafe"}},
            "category": {{"_id": "nzfcc_ckouvvyw1004408mlhy158i7j"}}}}]}}"#
    );
    let line = |category: &str, merchant: &str| {
        format!(
            "t 2026-02-26 2026-02-25T18:21:07.345Z -1 debit {category} {merchant} | CAFE | FEE / -"
        )
    };
    let all = line("FOOD_AND_DRINK", "Example Cafe");
    assert_eq!(read(&body).unwrap(), std::slice::from_ref(&all));
    // Without a category, the type decides.
    let by_type = line("BANK_FEES", "Example Cafe");
    let no_merchant = line("FOOD_AND_DRINK", "-");
    for (member, expected) in [
        ("\"2026-02-26T03:16:35.659Z\"", &all),
        ("\"Example Cafe\"", &no_merchant),
        ("{\"name\": \"Example Cafe\"}", &no_merchant),
        ("\"nzfcc_ckouvvyw1004408mlhy158i7j\"", &by_type),
        ("{\"_id\": \"nzfcc_ckouvvyw1004408mlhy158i7j\"}", &by_type),
    ] {
        for sent in ["7", "1e999", "false", "[{}]"] {
            let rows = read(&body.replacen(member, sent, 1)).unwrap();
            assert_eq!(rows, std::slice::from_ref(expected), "{sent} for {member}");
        }
    }
}

#[test]
fn malformed_page_is_rejected() {
    for (sent, broken) in [
        ("-15.9,", "\"-15,90\","),
        ("-15.9,", "null,"),
        ("-15.9,", "{},"),
        ("\"success\": true", "\"success\": false"),
        ("\"items\"", "\"rows\""),
    ] {
        let body = TRANSACTIONS.replacen(sent, broken, 1);
        assert!(matches!(read(&body), Err(Error::Malformed(_))), "{broken}");
    }
}

/// A page has the rows of all authorisations of a user token.
#[test]
fn malformed_rows_of_other_accounts_are_left_out() {
    let context = CallContext::new(
        Instant::now(),
        Timestamp::UNIX_EPOCH,
        crate::Cause::Schedule,
    )
    .skip_unreadable_rows();
    let date = "2026-11-19T03:00:00Z";
    let row = |account: &str| {
        format!(r#"{{"_id": "t", "_account": {account}, "date": "{date}", "description": {{}}}}"#)
    };
    let own = format!("{EVERYDAY:?}");
    for (account_id, unreadable_at) in [("\"other\"", None), (&*own, Some(date)), ("7", Some(date))]
    {
        let body = format!(r#"{{"success": true, "items": [{}]}}"#, row(account_id));
        let (page, unreadable) =
            parse_page(&context, &[account(1, EVERYDAY)], body.as_bytes()).unwrap();
        assert!(page.items.is_empty());
        let times = unreadable.iter().map(|row| row.at.unwrap().to_string());
        let times: Vec<_> = times.collect();
        assert_eq!(times, Vec::from_iter(unreadable_at), "{account_id}");
    }
}

#[test]
fn accounts_are_masked_and_named() {
    let list = api::list::<wire::Account<'_>>(ACCOUNTS.as_bytes()).unwrap();
    let found: Vec<FoundAccount> = list.items.iter().map(map::account).collect();
    let shown = format!("{found:?}");
    for number in ["0000001", "123-456", "1234-"] {
        assert!(!shown.contains(number), "{number} is not masked");
    }
    insta::assert_debug_snapshot!(found);
}

#[test]
fn an_authorisation_is_a_connection() {
    let list = api::list::<wire::Account<'_>>(ACCOUNTS.as_bytes()).unwrap();
    let credentials = |authorisation: Option<&str>| Credentials {
        user_token: "user_token_1".to_owned(),
        authorisation: authorisation.map(str::to_owned),
    };
    let all = found_connections(&list.items, &credentials(None)).unwrap();
    let lines = all.iter().map(|found| {
        let FoundConnection { provider_connection_id, institution_id, institution_name, institution_logo, .. } = found;
        let (consent_status, credentials) = (found.consent_status, found.credentials.expose_secret());
        let logo = institution_logo.as_deref().unwrap_or("-");
        format!("{provider_connection_id} {institution_id} {institution_name} {logo} {consent_status:?} {credentials}")
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));

    let ids = |authorisation: &str| -> Vec<String> {
        let found = found_connections(&list.items, &credentials(Some(authorisation))).unwrap();
        let found = found.into_iter();
        found.map(|found| found.provider_connection_id).collect()
    };
    assert_eq!(ids(ASB), [ASB]);
    assert_eq!(ids("authorisation_other"), Vec::<String>::new());
}

#[test]
fn balances_keep_their_digits() {
    let list = api::list::<wire::Account<'_>>(ACCOUNTS.as_bytes()).unwrap();
    let lines = list.items.iter().map(|row| match map::balance(row) {
        Ok(Balance {
            current,
            available,
            currency,
        }) => {
            let shown = |amount: Option<bellbird_domain::Decimal<'_>>| {
                amount.map_or("-".to_owned(), |a| a.to_string())
            };
            let currency = currency.map_or("-".to_owned(), |c| c.to_string());
            format!("{} {} {currency}", shown(current), shown(available))
        }
        Err(error) => error.to_string(),
    });
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "2480.15 2480.15 NZD",
            "-4300.59 561.57 NZD",
            "- - -",
            "-350000 - NZD",
            "-12.30 - NZD",
            "300 - USD",
            "the provider sent an invalid response: an amount is not a decimal",
        ]
    );
}

#[test]
fn credentials_are_parsed_strictly() {
    let read = |text: &str| {
        Credentials::read(&SecretString::from(text.to_owned()))
            .map(|credentials| credentials.authorisation)
    };
    assert_eq!(
        read(r#"{"userToken":"user_token_1","authorisation":"a"}"#),
        Ok(Some("a".to_owned()))
    );
    assert_eq!(
        read(r#"{"provider":"akahu","userToken":"user_token_1"}"#),
        Ok(None)
    );
    for text in [
        "{}",
        r#"{"authorisation":"a"}"#,
        r#"{"userToken":"t","endUserId":"e"}"#,
        r#"{"userToken":"two words"}"#,
        r#"{"userToken":"t\n"}"#,
        r#"{"userToken":"ü"}"#,
        r#"{"provider":"fiskil","userToken":"t"}"#,
    ] {
        let is_invalid = matches!(read(text), Err(Error::InvalidCredentials(_)));
        assert!(is_invalid, "{text}");
    }
    // Stored credentials name one login.
    let of_user = SecretString::from(r#"{"userToken":"t"}"#);
    assert!(Credentials::authorisation(&of_user).is_err());
}

proptest! {
    #[test]
    fn rows_in_any_order_come_newest_first(hours in prop::collection::vec(0_i64..1_000, 0..40)) {
        let row = |hour: &i64| {
            let date = Timestamp::from_second(1_767_225_600 + hour * 3_600).unwrap();
            format!(r#"{{"_id": "t", "_account": "{EVERYDAY}", "date": "{date:.3}", "amount": 1.50}}"#)
        };
        let rows: Vec<String> = hours.iter().map(row).collect();
        let body = format!(r#"{{"success": true, "items": [{}], "cursor": {{"next": null}}}}"#, rows.join(","));
        prop_assert_eq!(read(&body).unwrap().len(), hours.len());
        fuzz_transactions_page(body.as_bytes(), account(1, EVERYDAY));
    }

    #[test]
    fn any_page_keeps_the_invariants(at in 0..TRANSACTIONS.len(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut body = TRANSACTIONS.as_bytes().to_vec();
        body[at] = byte;
        if cut {
            body.truncate(at);
        }
        fuzz_transactions_page(&body, account(1, EVERYDAY));
    }
}

/// A mock provider that maps a request line to a status and a body.
async fn peer(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Peer {
    Peer::with_headers("retry-after: 60\r\n", move |_, recorded| {
        Some(answer(&recorded.line))
    })
    .await
}

async fn always(status: u16, body: &str) -> Peer {
    let body = body.to_owned();
    peer(move |_| (status, body.clone())).await
}

/// The adapter of a personal app, or with a secret of a full one.
pub(super) fn akahu(base_url: &str, app_secret: Option<&str>) -> Arc<dyn Provider> {
    let mut values = Values::default();
    values.set("base_url", format!("{base_url}/v1").into());
    values.set("oauth_url", "https://oauth.akahu.nz".into());
    values.set("app_token", "app_token_1".into());
    if let Some(secret) = app_secret {
        values.set("app_secret", secret.into());
    }
    open(&values, crate::test_support::client_settings(20)).unwrap()
}

fn context() -> CallContext {
    CallContext::new(
        Instant::now() + Duration::from_secs(20),
        "2026-03-01T00:00:00Z".parse().unwrap(),
        crate::Cause::Schedule,
    )
}

/// Reads a page of the ASB login's transactions. Returns the number of rows and the cursor of the
/// next page.
async fn page(
    peer: &Peer,
    one_account: bool,
    cursor: Option<&str>,
) -> (usize, Result<Option<Cursor>, Error>) {
    let mut accounts = vec![account(1, EVERYDAY)];
    if !one_account {
        accounts.push(account(2, VISA));
    }
    page_of(peer, &accounts, one_account, cursor).await
}

async fn page_of(
    peer: &Peer,
    accounts: &[Account],
    one_account: bool,
    cursor: Option<&str>,
) -> (usize, Result<Option<Cursor>, Error>) {
    page_from(&*akahu(&peer.base_url, None), accounts, one_account, cursor).await
}

async fn page_from(
    akahu: &dyn Provider,
    accounts: &[Account],
    one_account: bool,
    cursor: Option<&str>,
) -> (usize, Result<Option<Cursor>, Error>) {
    let Kind::Banking(banking) = akahu.kind() else {
        panic!("banking")
    };
    let bound = |text| Bound::parse(text).unwrap();
    let dates = DateRange {
        from: bound("2026-02-24"),
        to: bound("2026-02-26"),
    };
    let zone = sydney();
    let query = TransactionQuery {
        accounts,
        one_account,
        dates: &dates,
        zone: &zone,
    };
    let cursor = cursor.map(|text| Cursor(text.to_owned()));
    let request = PageRequest {
        cursor: cursor.as_ref(),
        rows: 7,
    };
    let mut row_count = 0;
    let mut sink = |_: Transaction<'_>| row_count += 1;
    let (context, credentials) = (context(), credentials("user_token_1", ASB));
    let next = banking
        .transactions(&context, &credentials, &query, request, &mut sink)
        .await;
    (row_count, next)
}

const REVOKED: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);
const FORBIDDEN: Error = Error::OperatorRejected {
    settings: api::APP,
    status: 403,
};
const NOTHING: &str = r#"{"success": true, "items": [], "cursor": {"next": null}}"#;

#[tokio::test]
async fn page_of_one_account_and_of_all_accounts() {
    let peer = always(200, TRANSACTIONS).await;
    let next = Ok(Some(Cursor("b3BhcXVl".to_owned())));
    assert_eq!(page(&peer, true, None).await, (5, next.clone()));
    assert_eq!(page(&peer, false, Some("a+b/c=")).await, (7, next));
    let range = "start=2026-02-23T10%3A59%3A59.999Z&end=2026-02-26T13%3A00%3A00.000Z";
    let requests = [
        format!("GET /v1/accounts/{EVERYDAY}/transactions?{range}"),
        format!("GET /v1/transactions?{range}&cursor=a%2Bb%2Fc%3D"),
    ];
    assert_eq!(peer.lines(), requests);
    for request in peer.recorded() {
        assert_eq!(request.header("authorization"), Some("Bearer user_token_1"));
        assert_eq!(request.header("x-akahu-id"), Some("app_token_1"));
    }
}

/// The list of the user token has the rows of all its connections.
#[tokio::test]
async fn only_account_of_a_connection_is_read_by_its_id() {
    let only = [account(1, EVERYDAY)];
    let peer = always(200, TRANSACTIONS).await;
    assert_eq!(page_of(&peer, &only, false, None).await.0, 5);
    let list = format!("GET /v1/accounts/{EVERYDAY}/transactions");
    assert!(peer.lines()[0].starts_with(&list), "{:?}", peer.lines());
    let gone = peer_without_transactions("{}", ACCOUNTS).await;
    assert_eq!(page_of(&gone, &only, false, None).await, (0, Ok(None)));
    let ended = peer_without_transactions("{}", NOTHING).await;
    assert_eq!(page_of(&ended, &only, false, None).await, (0, Err(REVOKED)));
    // Neither a 404 between two pages nor one of a proxy is the end of the list.
    let rejected = Error::Rejected { status: 404 };
    let later = page_of(&gone, &only, false, Some("on")).await;
    assert_eq!(later, (0, Err(rejected.clone())));
    let proxy = peer_without_transactions("<html>", ACCOUNTS).await;
    assert_eq!(
        page_of(&proxy, &only, false, None).await,
        (0, Err(rejected))
    );
}

async fn peer_without_transactions(body: &'static str, accounts: &'static str) -> Peer {
    peer(move |line| match line.contains("transactions") {
        true => (404, body.to_owned()),
        false => (200, accounts.to_owned()),
    })
    .await
}

#[tokio::test]
async fn errors_by_status() {
    for (status, expected) in [
        (401, REVOKED),
        (403, FORBIDDEN),
        (400, Error::Rejected { status: 400 }),
        (
            429,
            Error::RateLimited {
                retry_after: Some(Duration::from_secs(60)),
            },
        ),
        (
            500,
            Error::Unavailable {
                reason: "server error",
                retry_after: Some(Duration::from_secs(60)),
            },
        ),
    ] {
        // The message contradicts the status on purpose.
        let peer = always(status, r#"{"success": true, "message": "Not Found"}"#).await;
        assert_eq!(page(&peer, true, None).await, (0, Err(expected.clone())));
        assert_eq!(peer.lines().len(), 1, "{status}");

        let akahu = akahu(&peer.base_url, None);
        let credentials = credentials("user_token_1", ASB);
        let accounts = akahu.accounts(&context(), &credentials).await;
        assert_eq!(accounts, Err(expected.clone()), "{status}");
        let found = akahu.discover(&context(), &credentials).await;
        assert_eq!(found.err(), Some(expected.clone()), "{status}");
        let consent = akahu.consent(&context(), &credentials).await;
        let expected = match status {
            401 => Ok(ConsentStatus::Broken(ConnectionStatus::Revoked).into()),
            _ => Err(expected),
        };
        assert_eq!(consent, expected, "{status}");
    }
}

#[tokio::test]
async fn empty_page_counts_only_with_a_live_consent() {
    for (one_account, rows, accounts, expected) in [
        (
            true,
            (404, "{}"),
            ACCOUNTS,
            Err(Error::Rejected { status: 404 }),
        ),
        (true, (404, "{}"), NOTHING, Err(REVOKED)),
        (true, (200, NOTHING), "", Ok(None)),
        (false, (200, NOTHING), ACCOUNTS, Ok(None)),
        (false, (200, NOTHING), NOTHING, Err(REVOKED)),
        (false, (404, "{}"), "", Err(Error::Rejected { status: 404 })),
    ] {
        let peer = peer(move |line| match line.contains("transactions") {
            true => (rows.0, rows.1.to_owned()),
            false => (200, accounts.to_owned()),
        })
        .await;
        let found = page(&peer, one_account, None).await;
        assert_eq!(found, (0, expected), "{one_account} {rows:?}");
        assert_eq!(peer.lines().len(), if accounts.is_empty() { 1 } else { 2 });
    }
}

/// Even if the login was looked up just before.
#[tokio::test]
async fn login_that_ends_between_pages_ends_no_list() {
    let is_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_ended);
    let peer = peer(move |line| {
        let is_empty = line.contains("transactions") || ended.load(Ordering::Relaxed);
        let list = if is_empty { NOTHING } else { ACCOUNTS };
        (200, list.to_owned())
    })
    .await;
    let akahu = akahu(&peer.base_url, None);
    let login = credentials("user_token_1", ASB);
    let consent = akahu.consent(&context(), &login).await;
    assert!(consent.is_ok());
    is_ended.store(true, Ordering::Relaxed);
    let accounts = [account(1, EVERYDAY), account(2, VISA)];
    let first = page_from(&*akahu, &accounts, false, None).await;
    assert_eq!(first, (0, Ok(None)), "the answer counts for a minute");
    let later = page_from(&*akahu, &accounts, false, Some("on")).await;
    assert_eq!(later, (0, Err(REVOKED)));
}

#[tokio::test]
async fn balances_need_one_list_per_user_token() {
    let peer = always(200, ACCOUNTS).await;
    let kiwibank = "authorisation_c000000000000000000000b02";
    let all_credentials = [
        credentials("user_token_1", ASB),
        credentials("user_token_2", "authorisation_gone"),
        credentials("user_token_1", kiwibank),
        SecretString::from("{}"),
    ];
    let accounts = [
        vec![
            account(1, VISA),
            account(2, "acc_unknown"),
            account(3, "acc_c00000000000000000000a003"),
        ],
        vec![account(4, "acc_unknown")],
        vec![account(5, "acc_c00000000000000000000a004")],
        vec![account(6, EVERYDAY)],
    ];
    let queries = all_credentials.iter().zip(&accounts);
    let queries: Vec<_> = queries
        .map(|(credentials, accounts)| BalancesQuery {
            credentials,
            accounts,
        })
        .collect();
    let provider = akahu(&peer.base_url, None);
    let outcomes = provider.balances(&context(), &queries).await;
    let current = |outcome: &Result<Balance, Error>| {
        let outcome = outcome.clone();
        outcome.map(|balance| balance.current.map(|amount| amount.to_string()))
    };
    let outcomes: Vec<Vec<_>> = outcomes
        .iter()
        .map(|list| list.iter().map(current).collect())
        .collect();
    assert_eq!(
        outcomes[..3],
        [
            vec![
                Ok(Some("-4300.59".to_owned())),
                Err(Error::Rejected { status: 404 }),
                Ok(None)
            ],
            vec![Err(REVOKED)],
            vec![Ok(Some("-350000".to_owned()))],
        ]
    );
    assert!(matches!(
        outcomes[3][..],
        [Err(Error::InvalidCredentials(_))]
    ));
    assert_eq!(peer.lines(), ["GET /v1/accounts", "GET /v1/accounts"]);

    let rejected = akahu(&always(401, "{}").await.base_url, None)
        .balances(&context(), &queries[..1])
        .await;
    assert!(rejected[0].iter().all(|outcome| *outcome == Err(REVOKED)) && rejected[0].len() == 3);
}

#[tokio::test]
async fn withdrawal_is_idempotent() {
    for (status, expected) in [
        (200, Ok(())),
        (401, Ok(())),
        (404, Ok(())),
        (403, Err(FORBIDDEN)),
        (400, Err(Error::Rejected { status: 400 })),
    ] {
        let peer = always(status, r#"{"success": true}"#).await;
        let (provider, login) = (
            akahu(&peer.base_url, None),
            credentials("user_token_1", ASB),
        );
        let outcome = provider.withdraw(&context(), &login).await;
        assert_eq!(outcome, expected, "{status}");
        assert_eq!(peer.lines(), [format!("DELETE /v1/authorisations/{ASB}")]);
    }
}

#[tokio::test]
async fn check_uses_the_credentials_of_the_app() {
    let rejected = Error::OperatorRejected {
        settings: api::CREDENTIALS,
        status: 401,
    };
    for (secret, status, expected, line) in [
        (Some("s"), 200, Ok(()), "GET /v1/connections"),
        (Some("s"), 401, Err(rejected), "GET /v1/connections"),
        (None, 401, Ok(()), "GET /v1/me"),
        (None, 403, Ok(()), "GET /v1/me"),
        (
            None,
            404,
            Err(Error::Rejected { status: 404 }),
            "GET /v1/me",
        ),
    ] {
        let peer = always(status, r#"{"success": true, "items": []}"#).await;
        let outcome = akahu(&peer.base_url, secret).check(&context()).await;
        assert_eq!(outcome, expected, "{secret:?} {status}");
        assert_eq!(peer.lines(), [line]);
        let basic = secret.map(|_| "Basic YXBwX3Rva2VuXzE6cw==".to_owned());
        assert_eq!(peer.recorded()[0].header("authorization"), basic.as_deref());
    }
}

#[test]
fn app_token_is_required_and_checked() {
    let open = |values: &Values| open(values, crate::test_support::client_settings(20));
    assert!(open(&Values::default()).is_err());
    let mut values = Values::default();
    values.set("app_token", "two\nlines".into());
    assert!(open(&values).is_err_and(|why| why.contains("app_token")));
}
