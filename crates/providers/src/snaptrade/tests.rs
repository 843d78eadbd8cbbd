//! Tests of the adapter against a mock provider that checks every signature, with fixtures and
//! snapshots.

use std::time::Duration;

use bellbird_domain::{AccountType, Bound, Currency, DateFilter, TradeTime, UserId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::api::CREDENTIALS;
use super::test_support::{fuzz_activities_page, fuzz_positions_page};
use super::*;
use crate::Cause;
use crate::http::parse_json;
use crate::test_support::{self, client_settings};
use crate::unreadable::UnreadableRows;

const CONNECTION: &str = "87b24961-b51e-4db8-9226-f198f6518a89";
const ACCOUNT: &str = "917c8734-8470-4a3e-a18f-57c3f2ee6631";
const GONE: MockResponse = (
    404,
    "",
    r#"{"detail": "The requested resource does not exist.", "code": "1011"}"#,
);
const ACTIVITIES: &str = include_str!("fixtures/activities.json");

fn account(provider_account_id: &str) -> Account {
    Account {
        name: "Individual".to_owned(),
        account_type: AccountType::Investment,
        currency: Currency::parse("AUD").unwrap(),
        ..test_support::account(1, provider_account_id)
    }
}

pub(super) fn snaptrade(base_url: &str, consumer_key: &str) -> Arc<dyn Provider> {
    let mut values = Values::default();
    values.set("base_url", base_url.into());
    values.set("client_id", "TESTCLIENT".into());
    values.set("consumer_key", consumer_key.into());
    open(&values, client_settings(20)).unwrap()
}

fn credentials() -> SecretString {
    SecretString::from(format!(
        r#"{{"userId": "u 1", "userSecret": "s&e", "authorizationId": "{CONNECTION}"}}"#
    ))
}

fn context() -> CallContext {
    context_of(Cause::Schedule)
}

fn request() -> CallContext {
    context_of(Cause::Request(UserId::new()))
}

fn context_of(cause: Cause) -> CallContext {
    let deadline = Instant::now() + Duration::from_secs(10);
    CallContext::new(deadline, "2026-11-21T00:00:00Z".parse().unwrap(), cause)
}

/// Status, header lines, body.
type MockResponse = (u16, &'static str, &'static str);

/// A mock provider on loopback. It checks signatures with the consumer key and records all
/// requests.
struct Peer {
    adapter: SnapTrade,
    server: test_support::Peer,
}

impl Peer {
    /// `answer` gets the number of the request, from 0, and its method and path.
    async fn new(answer: impl Fn(usize, &str) -> MockResponse + Send + 'static) -> Self {
        Self::waiting(1, answer).await
    }

    /// Holds back all responses until `together` requests have come in.
    async fn waiting(
        together: usize,
        answer: impl Fn(usize, &str) -> MockResponse + Send + 'static,
    ) -> Self {
        let key = SecretString::from("test-consumer-key-1");
        let signer = sign::Signer::new(&key);
        let server = test_support::Peer::waiting(together, move |number, recorded| {
            let (line, query) = recorded.line.split_once('?').unwrap();
            let (_, path) = line.split_once(' ').unwrap();
            let signature = signer.sign(&serde_json::Value::Null, path, query);
            let (status, headers, body) = if recorded.header("signature") == Some(&*signature) {
                answer(number, line)
            } else {
                (401, "", r#"{"code": "1076"}"#)
            };
            Some((status, headers, body.to_owned()))
        })
        .await;
        let settings = ClientSettings {
            user_calls_per_minute: 300,
            ..client_settings(5)
        };
        let client = Client::new(NAME, settings).unwrap();
        let client = client.with_calls_per_minute(CALLS_PER_MINUTE);
        let base_url = server.base_url.parse().unwrap();
        let api = Api::new(client, base_url, "TESTCLIENT".to_owned(), &key);
        Self {
            adapter: SnapTrade {
                api,
                consent_statuses: ConsentStatusCache::default(),
            },
            server,
        }
    }

    /// The recorded requests, without the parameters that every call has.
    fn recorded(&self) -> Vec<String> {
        let own = |line: String| {
            let own = line.split("userId=").next().unwrap();
            own.trim_end_matches(['&', '?']).to_owned()
        };
        self.server.lines().into_iter().map(own).collect()
    }

    async fn trades(
        &self,
        dates: DateFilter,
        offset: u64,
        limit: u32,
    ) -> Result<(Page, Vec<String>), Error> {
        let (account, zone) = (account(ACCOUNT), TimeZone::get("Australia/Sydney").unwrap());
        let query = TradeQuery {
            account: &account,
            dates: &dates,
            zone: &zone,
        };
        let mut lines = Vec::new();
        let mut sink = |at: u64, trade: Trade<'_>| lines.push(trade_line(at, &trade));
        let cursor = (offset > 0).then(|| self.adapter.trades_cursor(offset));
        let page = PageRequest {
            cursor: cursor.as_ref(),
            rows: limit,
        };
        let page = self
            .adapter
            .trades(&context(), &credentials(), &query, page, &mut sink)
            .await?;
        Ok((page, lines))
    }

    async fn holdings(&self) -> Result<Vec<String>, Error> {
        self.holdings_in(&context()).await
    }

    async fn holdings_in(&self, context: &CallContext) -> Result<Vec<String>, Error> {
        let account = account(ACCOUNT);
        let mut lines = Vec::new();
        let mut sink = |holding: bellbird_domain::Holding<'_>| lines.push(holding_line(&holding));
        self.adapter
            .holdings(context, &credentials(), &account, &mut sink)
            .await?;
        Ok(lines)
    }
}

fn trade_line(at: u64, trade: &Trade<'_>) -> String {
    let time = match trade.time {
        TradeTime::Day(day) => day.to_string(),
        TradeTime::Instant(instant) => instant.to_string(),
    };
    let numbers = [
        &trade.quantity,
        &trade.price,
        &trade.total_amount,
        &trade.fees,
    ];
    let numbers = numbers.map(|number| number.as_ref().map_or("-", |number| number.as_str()));
    format!(
        "{at} {time} {:?} {:?} {} {} {} {} {:?}\n  {}",
        trade.symbol,
        trade.name,
        trade.trade_type,
        numbers.join(" "),
        trade.currency,
        trade.trade_date,
        trade.settlement_date,
        trade.id()
    )
}

fn holding_line(holding: &bellbird_domain::Holding<'_>) -> String {
    let numbers = [
        &holding.average_price,
        &holding.current_price,
        &holding.market_value,
        &holding.cost,
        &holding.unrealized_pnl,
    ];
    let numbers = numbers.map(|number| number.as_ref().map_or("-", |number| number.as_str()));
    format!(
        "{} {:?} {:?} {:?} {} {} | {}",
        holding.id(),
        holding.symbol,
        holding.name,
        holding.exchange,
        holding.currency,
        holding.quantity,
        numbers.join(" ")
    )
}

#[tokio::test]
async fn connections_are_found() {
    let peer = Peer::new(|_, _| (200, "", include_str!("fixtures/connections.json"))).await;
    let all = SecretString::from(r#"{"userId": "u 1", "userSecret": "s&e"}"#);
    let found = peer.adapter.discover(&context(), &all).await.unwrap();
    assert_eq!(
        found[0].credentials.expose_secret(),
        format!(r#"{{"userId":"u 1","userSecret":"s&e","authorizationId":"{CONNECTION}"}}"#)
    );
    insta::assert_debug_snapshot!(found);

    let ids = async |credentials: SecretString| -> Vec<String> {
        let found = peer.adapter.discover(&context(), &credentials).await;
        let found = found.unwrap().into_iter();
        found.map(|found| found.provider_connection_id).collect()
    };
    assert_eq!(ids(credentials()).await, [CONNECTION]);
    let other = SecretString::from(r#"{"authorizationId": "other"}"#);
    assert_eq!(ids(other).await, Vec::<String>::new());
    // A personal key names no user.
    let last = peer.server.lines().pop().unwrap();
    assert!(!last.contains("user"), "{last}");
}

#[test]
fn credentials_are_parsed_strictly() {
    let read = |text: &str| {
        UserCredentials::read(&SecretString::from(text)).map(|imported| imported.connection_id)
    };
    assert_eq!(
        read(r#"{"userId": "u", "userSecret": "s", "authorizationId": "a"}"#),
        Ok(Some("a".to_owned()))
    );
    assert_eq!(
        read(r#"{"provider": "snaptrade", "userId": "u", "userSecret": "s"}"#),
        Ok(None)
    );
    assert_eq!(read("{}"), Ok(None), "a personal key");
    for text in [
        "",
        "[]",
        r#"{"userId": "u"}"#,
        r#"{"userSecret": "s"}"#,
        r#"{"userId": "u", "userSecret": ""}"#,
        r#"{"userId": "u", "userSecret": 5}"#,
        r#"{"userId": "u", "userSecret": "s", "token": "t"}"#,
        r#"{"provider": "fiskil", "userId": "u", "userSecret": "s"}"#,
    ] {
        let is_invalid = matches!(read(text), Err(Error::InvalidCredentials(_)));
        assert!(is_invalid, "{text}");
    }
    let personal = user_credentials(None, Some("a")).unwrap();
    assert_eq!(personal.expose_secret(), r#"{"authorizationId":"a"}"#);
    assert!(matches!(
        ConnectionCredentials::read(&SecretString::from("{}")),
        Err(Error::InvalidCredentials(_))
    ));
}

#[tokio::test]
async fn consent_status_by_answer() {
    for (answer, expected) in [
        (
            (200, "", r#"{"id": "a", "disabled": false}"#),
            Ok(ConsentStatus::Active),
        ),
        ((200, "", r#"{"id": "a"}"#), Ok(ConsentStatus::Active)),
        (
            (200, "", r#"{"id": "a", "disabled": true}"#),
            Ok(ConsentStatus::Broken(ConnectionStatus::Invalidated)),
        ),
        (GONE, Ok(ConsentStatus::Broken(ConnectionStatus::Revoked))),
        (
            (401, "", r#"{"code": "1083"}"#),
            Ok(ConsentStatus::Broken(ConnectionStatus::Revoked)),
        ),
        (
            (401, "", r#"{"code": "1076"}"#),
            Err(Error::OperatorRejected {
                settings: CREDENTIALS,
                status: 401,
            }),
        ),
    ] {
        let peer = Peer::new(move |_, _| answer).await;
        let consent = peer.adapter.consent(&context(), &credentials()).await;
        assert_eq!(consent, expected.map(Consent::from), "{answer:?}");
        let request = format!("GET /authorizations/{CONNECTION}");
        assert_eq!(peer.recorded(), [request]);
    }
}

#[tokio::test]
async fn accounts_are_masked_and_named() {
    let peer = Peer::new(|_, _| (200, "", include_str!("fixtures/accounts.json"))).await;
    let accounts = peer.adapter.accounts(&context(), &credentials()).await;
    let accounts = accounts.unwrap();
    insta::assert_debug_snapshot!(accounts);
    let request = format!("GET /authorizations/{CONNECTION}/accounts");
    assert_eq!(peer.recorded(), [request]);
}

#[tokio::test]
async fn balance_calls_run_concurrently() {
    const LIST: &str = r#"[{"id": "a1", "balance": {"total": {"amount": 15363.230, "currency": "USD"}}},
        {"id": "a2", "balance": {"total": null}},
        {"id": "a3", "balance": {"total": {"amount": 7, "currency": "USDT"}}}]"#;
    const CASH: &str = r#"[{"currency": {"code": "AUD"}, "cash": -1.10}, {"currency": {"code": "USD"}, "cash": 300.71},
        {"currency": {"code": "USDT"}, "cash": 9}, {"currency": null, "cash": null}]"#;
    // Two lists and five accounts. If the calls were not concurrent, none would get a response.
    let peer = Peer::waiting(7, |_, line| match line {
        "GET /accounts/failing/balances" => (403, "", "{}"),
        line if line.ends_with("/accounts") => (200, "", LIST),
        _ => (200, "", CASH),
    })
    .await;
    let other =
        SecretString::from(r#"{"userId": "u 1", "userSecret": "s&e", "authorizationId": "other"}"#);
    let (first, second) = (
        [account("a1"), account("a2"), account("failing")],
        [account("a3"), account("unlisted")],
    );
    let context = context();
    let queries = [
        BalancesQuery {
            credentials: &credentials(),
            accounts: &first,
        },
        BalancesQuery {
            credentials: &other,
            accounts: &second,
        },
    ];
    let found = peer.adapter.balances(&context, &queries).await;
    let shown = |outcome: &Result<Balance, Error>| {
        outcome.clone().map(|balance| {
            let text = |amount: &Option<bellbird_domain::Decimal<'_>>| {
                amount.as_ref().map(ToString::to_string)
            };
            (
                text(&balance.current),
                text(&balance.available),
                balance.currency.map(|currency| currency.to_string()),
            )
        })
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        found
            .iter()
            .map(|list| list.iter().map(shown).collect::<Vec<_>>())
            .collect::<Vec<_>>(),
        [
            vec![
                Ok((some("15363.230"), some("300.71"), some("USD"))),
                Ok((None, some("-1.10"), some("AUD"))),
                Err(Error::Rejected { status: 403 }),
            ],
            // A total in an unknown currency is not shown in the stored one.
            vec![
                Ok((some("7"), None, None)),
                Ok((None, some("-1.10"), some("AUD")))
            ],
        ]
    );
    assert_eq!(context.calls(), 7);
}

#[tokio::test]
async fn missing_account_checks_consent_once() {
    for (connection, expected) in [
        (GONE, Error::ReconnectNeeded(ConnectionStatus::Revoked)),
        (
            (200, "", r#"{"id": "a", "disabled": true}"#),
            Error::ReconnectNeeded(ConnectionStatus::Invalidated),
        ),
        (
            (200, "", r#"{"id": "a", "disabled": false}"#),
            Error::Rejected { status: 404 },
        ),
    ] {
        let peer = Peer::new(move |_, line| match line {
            line if line.ends_with(CONNECTION) => connection,
            line if line.ends_with(&format!("{CONNECTION}/accounts")) => (200, "", "[]"),
            _ => GONE,
        })
        .await;
        assert_eq!(peer.holdings().await, Err(expected.clone()));
        let trades = peer.trades(DateFilter::default(), 0, 10).await;
        assert_eq!(trades, Err(expected.clone()));
        // The status is cached for a minute.
        assert_eq!(peer.server.lines().len(), 3);
        let accounts = [account("a1"), account("a2")];
        let queries = [BalancesQuery {
            credentials: &credentials(),
            accounts: &accounts,
        }];
        let balances = peer.adapter.balances(&context(), &queries).await;
        assert_eq!(balances, [vec![Err(expected); 2]]);
        assert_eq!(peer.server.lines().len(), 6, "a list and two accounts");
    }
}

#[tokio::test]
async fn positions_with_their_quirks() {
    let peer = Peer::new(|_, _| (200, "", include_str!("fixtures/positions.json"))).await;
    insta::assert_snapshot!(peer.holdings().await.unwrap().join("\n"));
    let request = format!("GET /accounts/{ACCOUNT}/positions/all");
    assert_eq!(peer.recorded(), [request]);
}

#[tokio::test]
async fn a_page_of_activities_with_its_quirks() {
    let peer = Peer::new(|_, _| (200, "", ACTIVITIES)).await;
    let (page, lines) = peer.trades(DateFilter::default(), 0, 5_000).await.unwrap();
    assert_eq!((page.next, page.total), (None, Some(10)));
    insta::assert_snapshot!(lines.join("\n"));
    let request = format!("GET /accounts/{ACCOUNT}/activities?offset=0&limit=1000");
    assert_eq!(peer.recorded(), [request]);
}

#[tokio::test]
async fn given_days_are_widened_by_a_day() {
    let peer = Peer::new(|_, _| (200, "", r#"{"data": [], "pagination": {"total": 3}}"#)).await;
    for (from, to, query) in [
        ("", "", "offset=9&limit=5"),
        ("2026-03-01", "", "startDate=2026-02-28&offset=9&limit=5"),
        // 1 March in Sydney.
        (
            "",
            "2026-02-28T13:00:00Z",
            "endDate=2026-03-02&offset=9&limit=5",
        ),
        (
            "0000-01-01",
            "9999-12-31",
            "startDate=0001-01-01&endDate=9999-12-31&offset=9&limit=5",
        ),
    ] {
        let bound = |text: &str| (!text.is_empty()).then(|| Bound::parse(text).unwrap());
        let [from, to] = [from, to].map(bound);
        let (page, _) = peer.trades(DateFilter { from, to }, 9, 5).await.unwrap();
        // After the end, the total is still that of the provider.
        assert_eq!((page.next, page.total), (None, Some(3)));
        let request = peer.recorded().pop().unwrap();
        let expected = format!("GET /accounts/{ACCOUNT}/activities?{query}");
        assert_eq!(request, expected);
    }
}

#[test]
fn pages_are_counted_and_malformed_ones_rejected() {
    let count = |body: &str, offset, limit| {
        let page: wire::Activities<wire::Activity<'_>> = parse_json(body.as_bytes())?;
        let place = place_of(&page, 0, offset, limit)?;
        let mut unreadable = Vec::new();
        trades(page, &account(ACCOUNT), &mut unreadable);
        UnreadableRows::default()
            .accept(&unreadable)
            .map(|()| place)
    };
    let of = |total: &str| ACTIVITIES.replace("\"total\":10", total);
    assert_eq!(
        count(&of("\"total\":4000"), 20, 10),
        Ok(Page {
            next: Some(cursor_at(30)),
            total: Some(4000)
        })
    );
    assert_eq!(
        count(&of("\"total\":12"), 20, 10),
        Ok(Page {
            next: None,
            total: Some(30)
        }),
        "at least the rows seen"
    );
    let tampered = [
        (of("\"total\":-1"), 10),
        (of("\"total\":null"), 10),
        (of("\"count\":10"), 10),
        (ACTIVITIES.replace("pagination", "paging"), 10),
        (ACTIVITIES.to_owned(), 9),
        (ACTIVITIES.replace("-2.08", "\"-2,08\""), 10),
        (ACTIVITIES.replace("\"fee\":0,", "\"fee\":true,"), 10),
        (ACTIVITIES.replace("\"data\"", "\"results\""), 10),
    ];
    for (body, limit) in tampered {
        let counted = count(&body, 0, limit);
        assert!(matches!(counted, Err(Error::Malformed(_))), "{limit}");
    }
    let positions = include_str!("fixtures/positions.json").replace("\"10.5\"", "\"10,5\"");
    let page: wire::Positions<'_> = parse_json(positions.as_bytes()).unwrap();
    assert!(matches!(
        map::holdings(page.results, &account(ACCOUNT), |_| ()),
        Err(Error::Malformed(_))
    ));
}

#[tokio::test]
async fn every_attempt_has_its_own_time_and_signature() {
    let peer = Peer::new(|number, _| match number {
        0 => (503, "retry-after: 1\r\n", r#"{"code": "3002"}"#),
        _ => (200, "", r#"{"results": []}"#),
    })
    .await;
    assert_eq!(peer.holdings().await, Ok(vec![]));
    let time = |line: &String| {
        let (_, time) = line.rsplit_once("timestamp=").unwrap();
        time.parse::<i64>().unwrap()
    };
    let times: Vec<i64> = peer.server.lines().iter().map(time).collect();
    let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
    let [first, second] = times[..] else {
        panic!("{times:?}")
    };
    assert!(start.as_second() <= first && first < second, "{times:?}");
}

#[tokio::test]
async fn used_up_budget_prevents_calls() {
    const USED_UP: &str = "x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 30\r\n";
    const OWN_USED_UP: &str = "x-ratelimit-remaining: 9\r\nx-ratelimit-account-remaining: 0\r\nx-ratelimit-account-reset: 30\r\n";
    let assert_limited = |outcome: Result<Vec<String>, Error>| {
        let Err(Error::RateLimited {
            retry_after: Some(wait),
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert!(
            Duration::from_secs(25) < wait && wait <= Duration::from_secs(30),
            "{wait:?}"
        );
    };
    let peer = Peer::new(|_, _| (200, USED_UP, r#"{"results": []}"#)).await;
    assert_eq!(peer.holdings().await, Ok(vec![]));
    assert_limited(peer.holdings().await);
    assert_limited(peer.adapter.check(&context()).await.map(|()| vec![]));
    assert_eq!(peer.recorded().len(), 1);

    // A transient failure is not retried, because the budget is closed.
    let peer = Peer::new(|_, _| (503, USED_UP, "{}")).await;
    assert_limited(peer.holdings().await);
    assert_eq!(peer.recorded().len(), 1);

    let peer = Peer::new(|_, _| (200, OWN_USED_UP, r#"{"results": []}"#)).await;
    assert_eq!(peer.holdings().await, Ok(vec![]));
    assert_limited(peer.holdings().await);
    assert_eq!(peer.recorded().len(), 1);
    assert_eq!(peer.adapter.check(&context()).await, Ok(()));
}

#[tokio::test]
async fn read_waits_for_a_budget_and_a_job_does_not() {
    const USED_UP: &str = "x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 1\r\n";
    let peer = Peer::new(|number, _| {
        let headers = if number == 0 { USED_UP } else { "" };
        (200, headers, r#"{"results": []}"#)
    })
    .await;
    let request = request();
    assert_eq!(peer.holdings_in(&request).await, Ok(vec![]));
    let of_job = peer.holdings().await;
    assert!(matches!(of_job, Err(Error::RateLimited { .. })));
    assert_eq!(peer.holdings_in(&request).await, Ok(vec![]));
    assert_eq!(peer.recorded().len(), 2);
}

/// The headers of a provider that allows 250 calls a minute, also to another instance that has made
/// 40.
#[tokio::test]
async fn greedy_users_leave_calls_to_ten_others() {
    let peer = Peer::new(|number, _| {
        let headers = format!(
            "x-ratelimit-limit: 250\r\nx-ratelimit-remaining: {}\r\nx-ratelimit-reset: 60\r\n",
            209_usize.saturating_sub(number)
        );
        (200, headers.leak(), r#"{"results": []}"#)
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (greedy, before) = (request(), peer.recorded().len());
        while peer.holdings_in(&greedy).await.is_ok() {}
        held.push(peer.recorded().len() - before);
    }
    assert_eq!(held, [68, 34], "half of 135 and of what is left then");
    for _ in 0..10 {
        let other = request();
        for _ in 0..3 {
            assert_eq!(peer.holdings_in(&other).await, Ok(vec![]));
        }
    }
}

#[tokio::test]
async fn withdrawal_is_idempotent() {
    for (answer, expected) in [
        (
            (
                200,
                "",
                r#"{"detail": "Connection queued for deletion", "connection_id": "a"}"#,
            ),
            Ok(()),
        ),
        ((204, "", ""), Ok(())),
        (GONE, Ok(())),
        ((401, "", r#"{"code": "1083"}"#), Ok(())),
        (
            (401, "", r#"{"code": "1076"}"#),
            Err(Error::OperatorRejected {
                settings: CREDENTIALS,
                status: 401,
            }),
        ),
        (
            (402, "", r#"{"code": "3003"}"#),
            Err(Error::ReconnectNeeded(ConnectionStatus::Invalidated)),
        ),
    ] {
        let peer = Peer::new(move |_, _| answer).await;
        let withdrawn = peer.adapter.withdraw(&context(), &credentials()).await;
        assert_eq!(withdrawn, expected, "{answer:?}");
        let request = format!("DELETE /connection/{CONNECTION}");
        assert_eq!(peer.recorded(), [request]);
    }
}

#[test]
fn fuzz_targets_accept_the_fixtures() {
    fuzz_activities_page(ACTIVITIES.as_bytes(), &account(ACCOUNT));
    fuzz_positions_page(include_bytes!("fixtures/positions.json"), &account(ACCOUNT));
}
