//! One program that follows thirty connections of one person, with the limits that a service has
//! by default.

use std::collections::{BTreeSet, VecDeque};

use bellbird::config::{Settings, Sources};
use bellbird_domain::Plan;
use futures_util::future::join_all;
use jiff::SignedDuration;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::{BETWEEN_MISSES, HOUR, STALE, setup};
use crate::support::browser::open;
use crate::support::follower::Follower;
use crate::support::harness::{App, Person, simulated_providers};
use crate::support::process::text;
use crate::support::provider_spec::fiskil_call;
use crate::support::random::print_line;

const CONNECTIONS: usize = 30;
/// As nginx and other proxies limit it.
const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// Rows of a connection that the provider lists for the sync, and no longer for the read after it.
const VANISHING: i32 = 90;
/// By the clock of the service. Thirty connections need no more live requests than the minute that
/// a bucket holds, and some that refill.
const WAIT_MAX: SignedDuration = SignedDuration::from_mins(3);
/// Of one round. A service that makes no progress would be asked without end.
const REQUESTS_MAX: usize = 100 * CONNECTIONS;
/// As the documentation says.
const AT_ONCE: usize = 4;
/// The end of the first copy.
const FROM: &str = "2026-09-01";

/// What a program met until no connection had more.
#[derive(Debug, Default)]
struct Round {
    entries: usize,
    requests: usize,
    /// Requests that got 429 or 503, and were sent again after their `Retry-After`.
    refused: usize,
    /// How long the program waited.
    waited: SignedDuration,
    /// The longest request line.
    request_line: usize,
    /// Calls to providers for rows.
    row_calls: u64,
}

/// Follows all connections until none has more, with so many requests at once. What the service
/// refuses is sent again after its `Retry-After`, as the documentation says.
async fn follow_all(app: &App, copies: &mut [Follower], at_once: usize) -> Round {
    let mut round = Round::default();
    let mut due: VecDeque<usize> = (0..copies.len()).collect();
    while !due.is_empty() {
        let now: Vec<usize> = due.drain(..at_once.min(due.len())).collect();
        let asked = join_all(now.iter().map(|&at| copies[at].ask(app))).await;
        let mut wait = SignedDuration::ZERO;
        for (at, response) in now.into_iter().zip(asked) {
            let url: Url = copies[at].url().parse().unwrap();
            let line = format!("GET {}?{} HTTP/1.1\r\n", url.path(), url.query().unwrap());
            round.request_line = round.request_line.max(line.len());
            round.requests += 1;
            if matches!(response.status.as_u16(), 429 | 503) {
                let seconds = response.header("retry-after").expect("when to try again");
                wait = wait.max(SignedDuration::from_secs(seconds.parse().unwrap()));
                round.refused += 1;
                due.push_back(at);
                continue;
            }
            let body = response.json();
            round.entries += body["data"].as_array().map_or(0, Vec::len);
            if copies[at].apply(response.status.as_u16(), &body) {
                due.push_back(at);
            }
        }
        if !wait.is_zero() {
            app.advance_clock(wait);
            round.waited += wait;
        }
        assert!(round.requests < REQUESTS_MAX, "no end: {round:?}");
    }
    round.row_calls = app.all_row_calls();
    app.reset_calls();
    round
}

impl App {
    /// Consents at Fiskil with the login of this e-mail address. Returns the credentials.
    async fn consent_at_fiskil(&self, email: &str) -> Value {
        let sandbox = serde_json::to_value(self.sandbox.description()).unwrap();
        let post =
            async |path: &str, body: &Value| fiskil_call(&sandbox, Method::POST, path, body).await;
        let end_user = post("/v1/end-users", &json!({"email": email})).await;
        let back = "https://bellbird.example/";
        let session = json!({"end_user_id": end_user["end_user_id"], "redirect_uri": back,
            "cancel_uri": back});
        let session = post("/v1/auth/session", &session).await;
        let page = format!("{}&sandbox_auto=accept", text(&session, "auth_url"));
        let returned = open(page).await.location();
        assert_eq!(returned.host_str(), Some("bellbird.example"));
        let all = serde_json::to_value(self.fiskil().all_credentials()).unwrap();
        let mut newest_first = all.as_array().unwrap().iter().rev();
        let is_given = |given: &&Value| given["endUserId"] == end_user["end_user_id"];
        newest_first.find(is_given).expect("a consent").clone()
    }

    /// A person with connections at every provider, most of them at Fiskil.
    async fn person_with_connections(&self, count: usize) -> Person {
        let mut all_credentials = Vec::new();
        for provider in simulated_providers().filter(|name| *name != "fiskil") {
            all_credentials.push(self.spare_credentials(provider));
        }
        while all_credentials.len() < count {
            let email = format!("household{}@example.com", all_credentials.len());
            all_credentials.push(self.consent_at_fiskil(&email).await);
        }
        let all_credentials: Vec<&Value> = all_credentials.iter().collect();
        let email = "many.connections@example.com";
        let person = self
            .add_person(email, Plan::Professional, &all_credentials)
            .await;
        assert_eq!(person.connections.len(), count);
        person
    }

    /// Calls for rows at all providers since the last [`App::reset_calls`].
    fn all_row_calls(&self) -> u64 {
        simulated_providers()
            .map(|provider| self.row_calls(provider))
            .sum()
    }
}

fn ids(rows: impl IntoIterator<Item = Value>) -> BTreeSet<String> {
    rows.into_iter()
        .map(|row| text(&row, "id").to_owned())
        .collect()
}

#[tokio::test]
async fn program_copies_thirty_connections_at_the_default_limits() {
    let mut setup = setup();
    let sources = Sources {
        file: Some("/dev/null".into()),
        ..Sources::default()
    };
    setup.settings.api_context = Settings::load(&sources).unwrap().api_context;
    let app = App::start(setup).await;
    let person = app.person_with_connections(CONNECTIONS).await;
    let connections = &person.connections;
    let mut copies: Vec<Follower> = connections
        .iter()
        .map(|connection| Follower::new(&app, &person, connection))
        .map(|copy| copy.with(&format!("&from={FROM}")))
        .collect();

    let connections_count = CONNECTIONS as u64;

    // All at once, which the service slows down.
    app.reset_calls();
    let first = follow_all(&app, &mut copies, CONNECTIONS).await;
    print_line(&format!("first copy: {first:?}"));
    assert!(first.entries > 50 * CONNECTIONS, "{first:?}");
    assert!(first.refused > 0, "{first:?}");
    assert!(first.waited < WAIT_MAX, "{first:?}");
    // A sync and the pages of the copy.
    assert!(first.row_calls <= 3 * connections_count, "{first:?}");
    for copy in &copies {
        // A list counts towards the limits, too.
        app.advance_clock(STALE);
        let listed = copy.listed(&app, FROM).await;
        let copied = ids(copy.rows.values().cloned());
        assert_eq!(copied, ids(listed), "{}", copy.filter);
    }

    app.reset_calls();
    let unchanged = follow_all(&app, &mut copies, AT_ONCE).await;
    print_line(&format!("unchanged: {unchanged:?}"));
    assert_eq!(unchanged.entries, 0);
    assert!(unchanged.waited < WAIT_MAX, "{unchanged:?}");
    assert!(
        unchanged.row_calls <= 2 * connections_count,
        "{unchanged:?}"
    );
    app.advance_clock(STALE / 2);
    let again = follow_all(&app, &mut copies, AT_ONCE).await;
    print_line(&format!("again: {again:?}"));
    let found = (again.entries, again.row_calls);
    assert_eq!(found, (0, 0), "synced just before");
    assert_eq!(again.requests - again.refused, CONNECTIONS);

    // Each connection has many new rows. The provider takes back most of them while the program
    // is between two pages, so that its cursors have to remember them.
    let mut added = Vec::new();
    for connection in connections {
        let account = app.account_at(connection).await;
        let at = |number: i32| app.clock.now() - HOUR - number * STALE;
        let add =
            |number| app.add_row_to(connection, &account, &format!("ROW {number}"), at(number));
        added.push((0..=VANISHING).map(add).collect::<Vec<String>>());
    }
    app.advance_clock(2 * STALE);
    let mut copies: Vec<Follower> = copies.iter().map(|copy| copy.with("&limit=5")).collect();
    for copy in &mut copies {
        let (has_more, page) = copy.next_page(&app).await;
        assert!(has_more && page.len() == 5, "{}", page.len());
        app.advance_clock(SignedDuration::from_secs(2));
    }
    for (connection, added) in connections.iter().zip(&added) {
        for id in &added[1..] {
            app.remove_row(connection, id);
        }
        app.set_amount(connection, &added[0], 4_321);
    }
    let mut copies: Vec<Follower> = copies.iter().map(|copy| copy.with("")).collect();
    app.reset_calls();
    let vanished = follow_all(&app, &mut copies, AT_ONCE).await;
    print_line(&format!("vanished: {vanished:?}"));
    let mut rounds = vec![vanished];
    for _ in 0..3 {
        app.advance_clock(BETWEEN_MISSES);
        let removed = follow_all(&app, &mut copies, AT_ONCE).await;
        print_line(&format!("removed: {removed:?}"));
        rounds.push(removed);
    }
    for round in &rounds {
        assert!(round.waited < WAIT_MAX, "{round:?}");
        assert!(round.request_line <= REQUEST_LINE_BYTES_MAX, "{round:?}");
        // A sync and a window of rows, and the same again where a page follows.
        assert!(round.row_calls <= 4 * connections_count, "{round:?}");
    }
    let longest = rounds.iter().map(|round| round.request_line).max();
    assert!(longest > Some(1_024), "cursors that remember rows");
    for copy in &copies {
        app.advance_clock(STALE);
        copy.assert_equal(&app, &copy.filter).await;
    }
}
