//! Linking in the browser: from the address that a user opens, over the provider's own page, to the first answer. The
//! pages themselves are walked in `chromium.rs`; here the pretended providers answer at once.

use bellbird_connections::LinkTo;
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, Plan, UserId};
use jiff::SignedDuration;
use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::harness::{App, Database, Setup, eventually, on_both_databases, pretended};

/// What a browser is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Shown {
    /// The address that it is sent on to.
    #[track_caller]
    pub(crate) fn location(&self) -> Url {
        assert_eq!(self.status, 303, "{}", self.text);
        self.headers["location"].to_str().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn says(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        let text = self.text.replace("&#x27;", "'").replace("&#39;", "'");
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

pub(crate) async fn browse(request: reqwest::RequestBuilder) -> Shown {
    let answer = request.header("accept", "text/html").send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Shown { status, headers, text: answer.text().await.unwrap() }
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap()
}

pub(crate) async fn open(url: &str) -> Shown {
    browse(client().get(url)).await
}

impl App {
    pub(crate) async fn address(&self, user: UserId, to: LinkTo<'_>) -> String {
        self.connections.new_address(user, to).await.unwrap().url.expose_secret().to_owned()
    }

    /// To the provider's page, and back with the user's answer: the address of the callback.
    pub(crate) async fn consent(&self, address: &str, answer: &str) -> Url {
        let page = open(address).await;
        let mut page = page.location();
        page.query_pairs_mut().append_pair("sandbox_auto", answer);
        open(page.as_str()).await.location()
    }

    pub(crate) async fn linked(&self, user: UserId, to: LinkTo<'_>) -> (Vec<Connection>, Shown) {
        let before: Vec<ConnectionId> = self.connections_of(user).await.iter().map(|one| one.id).collect();
        let back = self.consent(&self.address(user, to).await, "accept").await;
        let shown = open(back.as_str()).await;
        let mut now = self.connections_of(user).await;
        now.retain(|one| !before.contains(&one.id));
        (now, shown)
    }

    pub(crate) async fn connections_of(&self, user: UserId) -> Vec<Connection> {
        self.storage.list_connections(user).await.unwrap()
    }

    pub(crate) async fn accounts_of(&self, connection: &Connection) -> Vec<(String, String)> {
        let accounts = self.storage.list_connection_accounts(connection.user_id, connection.id).await.unwrap();
        accounts.iter().map(|account| (account.id.to_string(), account.name.clone())).collect()
    }

    pub(crate) async fn pass(&self, time: SignedDuration) {
        self.clock.set(self.clock.now().saturating_add(time).unwrap());
        for provider in pretended() {
            self.control_of(provider, Method::POST, "/clock", json!({"advanceSeconds": time.as_secs()})).await;
        }
    }

    /// What a running service does, until nothing is due.
    pub(crate) async fn work(&self) {
        self.connections.arrive_due().await.unwrap();
        self.connections.look_due().await.unwrap();
        self.connections.remove_due().await.unwrap();
    }

    pub(crate) async fn set_consent(&self, connection: &Connection, state: &str) {
        let grant = self.storage.find_grant(connection.user_id, connection.id).await.unwrap().unwrap();
        let grant: serde_json::Value = serde_json::from_str(grant.expose_secret()).unwrap();
        let id = ["arrangementId", "authorisation", "authorizationId"].iter().find_map(|name| grant[name].as_str());
        let path = format!("/consents/{}", id.unwrap());
        self.control_of(&connection.provider, Method::POST, &path, json!({ "state": state })).await;
    }
}

/// The routes by which a user is registered and removed at a provider.
fn registration(provider: &str) -> Option<(&'static str, &'static str)> {
    match provider {
        "fiskil" => Some(("/v1/end-users", "/v1/end-users/{id}")),
        "snaptrade" => Some(("/snapTrade/registerUser", "/snapTrade/deleteUser")),
        _ => None,
    }
}

on_both_databases! {
    async fn every_provider_is_linked_in_the_browser(app: App) {
        for provider in pretended() {
            app.forget_calls().await;
            let (linked, shown) = app.linked(app.olivia.user.id, LinkTo::Provider(provider)).await;
            shown.says(200, "connected");
            assert!(!linked.is_empty(), "{provider}: {}", shown.text);
            for connection in &linked {
                assert_eq!((connection.provider.as_str(), connection.status), (provider, ConnectionStatus::Active));
                shown.says(200, &connection.institution_name.replace('\'', "&#39;").replace("&#39;", "'"));
                let accounts = app.accounts_of(connection).await;
                assert!(!accounts.is_empty(), "{provider}");
                let path = match connection.category.as_str() {
                    "banking" => format!("/v1/transactions?connectionId={}&accountId={}", connection.id, accounts[0].0),
                    _ => format!("/v1/trades?connectionId={}", connection.id),
                };
                assert_eq!(app.get(&path).await.status, 200, "{provider}");
                assert_eq!(app.get_as(&app.ben.key, &path).await.status, if path.contains("trades") { 403 } else { 404 });
            }
            let (_, again) = app.linked(app.olivia.user.id, LinkTo::Provider(provider)).await;
            again.says(200, "connected");
            if let Some((register, remove)) = registration(provider) {
                let calls = app.calls_of(provider).await;
                assert_eq!(calls.get(register), Some(&1), "{provider}: registered once");
                assert_eq!(calls.get(remove), None, "{provider}");
            }
        }
    }
}

on_both_databases! {
    async fn what_went_wrong_is_told_and_nothing_is_connected(app: App) {
        for (provider, answer, words) in [
            ("fiskil", "deny", "did not give your consent"),
            ("fiskil", "error", "Nothing was connected"),
            ("akahu", "deny", "did not give your consent"),
            ("snaptrade", "deny", "did not give your consent"),
            ("snaptrade", "abandon", "did not give your consent"),
            ("snaptrade", "error", "Nothing was connected"),
        ] {
            let before = app.connections_of(app.ben.user.id).await;
            let back = app.consent(&app.address(app.ben.user.id, LinkTo::Provider(provider)).await, answer).await;
            open(back.as_str()).await.says(200, words);
            assert_eq!(app.connections_of(app.ben.user.id).await, before, "{provider} {answer}");
        }
    }
}

on_both_databases! {
    async fn a_callback_serves_once_and_a_forged_one_never(app: App) {
        for provider in pretended() {
            let user = app.ben.user.id;
            let back = app.consent(&app.address(user, LinkTo::Provider(provider)).await, "accept").await;
            let callback = format!("{}/link/callback", app.console_url);
            let state = back.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
            let query = back.query().unwrap();
            let before = app.connections_of(user).await;
            for forged in [
                callback.clone(),
                format!("{callback}?state="),
                format!("{callback}?{}", query.replace(&state, &state.replace(|c: char| c.is_ascii_digit(), "7"))),
                format!("{callback}?{}", query.replace(&state, &state.to_ascii_uppercase())),
                format!("{callback}?{}", query.replace(&state, &state[1..])),
                format!("{callback}?{query}&state={state}"),
            ] {
                open(&forged).await.says(400, "Nothing was changed");
            }
            assert_eq!(app.connections_of(user).await, before);
            let head = browse(client().head(back.as_str())).await;
            assert_eq!(head.status, 405, "a look at the address is no arrival");

            let (one, other) = tokio::join!(open(back.as_str()), open(back.as_str()));
            let mut statuses = [one.status, other.status];
            statuses.sort_unstable();
            assert!(matches!(statuses, [200, 200 | 409]), "{statuses:?}: {}", one.text);
            let connected = app.connections_of(user).await;
            assert!(connected.len() > before.len(), "{provider}: {} {}", one.text, other.text);
            open(back.as_str()).await.says(409, "used already");
            let audit = app.storage.list_audit(connected[0].id).await.unwrap();
            assert_eq!(audit.len(), 1, "{provider}: connected once");
            assert_eq!(app.connections_of(user).await, connected);
        }
    }
}

on_both_databases! {
    async fn a_trip_ends_in_time(app: App) {
        for provider in pretended() {
            let back = app.consent(&app.address(app.ben.user.id, LinkTo::Provider(provider)).await, "accept").await;
            let before = app.connections_of(app.ben.user.id).await;
            app.pass(SignedDuration::from_mins(31)).await;
            open(back.as_str()).await.says(400, "Nothing was changed");
            assert_eq!(app.connections_of(app.ben.user.id).await, before);
        }
    }
}

on_both_databases! {
    async fn one_that_works_is_renewed_with_its_ids(app: App) {
        for (provider, setting) in
            [("fiskil", json!({"sameIds": false})), ("akahu", json!({"newToken": true})), ("snaptrade", json!(null))]
        {
            let person = app.add_person(&format!("{provider}@example.com"), Plan::Professional, &[]).await;
            let (linked, _) = app.linked(person.user.id, LinkTo::Provider(provider)).await;
            let connection = &linked[0];
            let accounts = app.accounts_of(connection).await;
            if !setting.is_null() {
                app.control_of(provider, Method::POST, "/relink", setting).await;
            }
            for answer in ["deny", "error"].into_iter().filter(|answer| provider != "akahu" || *answer == "deny") {
                let address = app.address(person.user.id, LinkTo::Connection(connection.id)).await;
                let shown = open(app.consent(&address, answer).await.as_str()).await;
                shown.says(200, if answer == "deny" { "did not give your consent" } else { "did not work" });
                app.pass(SignedDuration::from_secs(11)).await;
            }
            let (new, shown) = app.linked(person.user.id, LinkTo::Connection(connection.id)).await;
            assert_eq!(new, [], "{provider}: {}", shown.text);
            shown.says(200, "is connected again");
            app.pass(SignedDuration::from_mins(11)).await;
            app.work().await;
            assert_eq!(app.connections_of(person.user.id).await.len(), linked.len(), "{provider}");
            assert_eq!(app.accounts_of(connection).await, accounts, "{provider}");
            assert_eq!(app.connections.removals_waiting().await.unwrap(), 0, "{provider}");
        }
    }
}

on_both_databases! {
    async fn an_event_may_be_faster_than_the_browser(app: App) {
        for provider in pretended() {
            let user = app.ben.user.id;
            let url = format!("{}/webhooks/{provider}", app.console_url);
            app.control_of(provider, Method::POST, "/webhooks", json!({ "url": url })).await;
            let before = app.connections_of(user).await.len();
            let back = app.consent(&app.address(user, LinkTo::Provider(provider)).await, "accept").await;
            if provider != "akahu" {
                eventually(async || {
                    app.work().await;
                    app.connections_of(user).await.len() > before
                })
                .await;
            }
            open(back.as_str()).await.says(200, "connected");
            assert!(app.connections_of(user).await.len() > before, "{provider}");
        }
    }
}

on_both_databases! {
    async fn one_that_is_removed_while_its_user_is_away_does_not_come_back_by_itself(app: App) {
        for provider in pretended() {
            let person = app.add_person(&format!("{provider}@example.com"), Plan::Professional, &[]).await;
            let user = person.user.id;
            let (linked, _) = app.linked(user, LinkTo::Provider(provider)).await;
            let back = app.consent(&app.address(user, LinkTo::Provider(provider)).await, "deny").await;
            for connection in &linked {
                app.connections.remove(connection.id).await.unwrap();
            }
            open(back.as_str()).await.says(200, "did not give your consent");
            app.pass(SignedDuration::from_mins(40)).await;
            app.work().await;
            assert_eq!(app.connections_of(user).await, [], "{provider}");
        }
    }
}

on_both_databases! {
    async fn what_was_forgotten_stays_so_until_it_is_given_again(app: App) {
        let person = app.add_person("forgetful@example.com", Plan::Professional, &[]).await;
        let user = person.user.id;
        let (linked, _) = app.linked(user, LinkTo::Provider("snaptrade")).await;
        app.connections.forget(linked[0].id).await.unwrap();
        let back = app.consent(&app.address(user, LinkTo::Provider("snaptrade")).await, "abandon").await;
        open(back.as_str()).await.says(200, "did not give your consent");
        assert_eq!(app.connections_of(user).await, []);
        // The same login again is the same connection there.
        let (linked, shown) = app.linked(user, LinkTo::Provider("snaptrade")).await;
        assert_eq!(linked.len(), 1, "{}", shown.text);
    }
}

on_both_databases! {
    async fn a_trip_that_was_broken_off_takes_nothing_from_a_repair(app: App) {
        for same_ids in [true, false] {
            let person = app.add_person(&format!("two.{same_ids}@example.com"), Plan::Professional, &[]).await;
            let user = person.user.id;
            let (linked, _) = app.linked(user, LinkTo::Provider("fiskil")).await;
            let connection = &linked[0];
            let accounts = app.accounts_of(connection).await;
            app.control(Method::POST, "/relink", json!({ "sameIds": same_ids })).await;
            app.set_consent(connection, "revoked").await;
            app.connections.check(user, connection.id).await.unwrap();
            // Somebody begins to link, and goes back to repair; the service looks into both trips before the browser is back.
            open(&app.address(user, LinkTo::Provider("fiskil")).await).await.location();
            let back = app.consent(&app.address(user, LinkTo::Connection(connection.id)).await, "accept").await;
            app.pass(SignedDuration::from_mins(6)).await;
            app.work().await;
            open(back.as_str()).await.says(200, "is connected again");
            assert_eq!(app.connections_of(user).await.len(), 1, "{same_ids}");
            assert_eq!(app.accounts_of(connection).await, accounts, "{same_ids}");
        }
    }
}

on_both_databases! {
    async fn a_new_link_is_a_new_connection_also_beside_a_repair_that_was_broken_off(app: App) {
        let person = app.add_person("two.ways@example.com", Plan::Professional, &[]).await;
        let user = person.user.id;
        let (linked, _) = app.linked(user, LinkTo::Provider("fiskil")).await;
        app.control(Method::POST, "/relink", json!({"sameIds": false})).await;
        app.set_consent(&linked[0], "expired").await;
        app.connections.check(user, linked[0].id).await.unwrap();
        open(&app.address(user, LinkTo::Connection(linked[0].id)).await).await.location();
        let (new, shown) = app.linked(user, LinkTo::Provider("fiskil")).await;
        shown.says(200, "is connected");
        assert_eq!(new.len(), 1, "{}", shown.text);
        app.pass(SignedDuration::from_mins(40)).await;
        app.work().await;
        let statuses: Vec<_> = app.connections_of(user).await.iter().map(|one| (one.id, one.status)).collect();
        assert!(statuses.contains(&(linked[0].id, ConnectionStatus::Invalidated)), "{statuses:?}");
        assert!(statuses.contains(&(new[0].id, ConnectionStatus::Active)) && statuses.len() == 2, "{statuses:?}");
    }
}

on_both_databases! {
    async fn a_no_is_a_no_though_another_trip_said_yes(app: App) {
        let person = app.add_person("two.tabs@example.com", Plan::Professional, &[]).await;
        let user = person.user.id;
        let no = app.consent(&app.address(user, LinkTo::Provider("fiskil")).await, "deny").await;
        let (linked, _) = app.linked(user, LinkTo::Provider("fiskil")).await;
        open(no.as_str()).await.says(200, "did not give your consent");
        assert_eq!(app.connections_of(user).await.len(), linked.len());
    }
}

on_both_databases! {
    async fn a_provider_that_is_away_for_hours_loses_no_consent(app: App) {
        let user = app.ben.user.id;
        let of = async |provider: &str| {
            app.connections_of(user).await.iter().filter(|connection| connection.provider == provider).count()
        };
        let mut away = Vec::new();
        for (provider, asked) in [("fiskil", "/v1/consent"), ("akahu", "/v1/accounts"), ("snaptrade", "/authorizations")] {
            let before = of(provider).await;
            let back = app.consent(&app.address(user, LinkTo::Provider(provider)).await, "accept").await;
            app.fault_at(provider, json!({"match": asked, "kind": "status", "status": 503})).await;
            away.push((provider, before, back));
        }
        for shown in futures_util::future::join_all(away.iter().map(|(_, _, back)| open(back.as_str()))).await {
            shown.says(200, "Not confirmed yet");
        }
        for _ in 0..6 {
            app.pass(SignedDuration::from_mins(40)).await;
            app.work().await;
        }
        app.clear_faults().await;
        for (provider, before, _) in &away {
            assert_eq!(of(provider).await, *before, "{provider}");
        }
        app.pass(SignedDuration::from_mins(10)).await;
        app.work().await;
        for (provider, before, back) in &away {
            assert!(of(provider).await > *before, "{provider}");
            open(back.as_str()).await.says(409, "used already");
        }
    }
}

on_both_databases! {
    async fn another_login_is_another_connection(app: App) {
        // Whoever has that address at the provider, and somebody else.
        let person = app.add_person("priya.sharma@example.com", Plan::Professional, &[]).await;
        let (linked, _) = app.linked(person.user.id, LinkTo::Provider("fiskil")).await;
        let connection = &linked[0];
        let accounts = app.accounts_of(connection).await;
        let found = app.storage.list_connection_accounts(person.user.id, connection.id).await.unwrap();
        // The bank calls all of its accounts something else now, so nothing is certain.
        for account in &found {
            let path = format!("/accounts/{}", account.provider_account_id);
            app.control(Method::PATCH, &path, json!({"display_name": "Renamed", "nickname": null, "product_name": "Renamed"})).await;
        }
        app.control(Method::POST, "/relink", json!({"sameIds": false})).await;
        app.set_consent(connection, "expired").await;
        app.connections.check(person.user.id, connection.id).await.unwrap();
        let (new, shown) = app.linked(person.user.id, LinkTo::Connection(connection.id)).await;
        shown.says(200, "connected as something new");
        assert_eq!(new.len(), 1, "{}", shown.text);
        assert_eq!(app.accounts_of(connection).await, accounts, "nothing was merged");
        let ids = |accounts: Vec<(String, String)>| accounts.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let (old, new_ids) = (ids(accounts), ids(app.accounts_of(&new[0]).await));
        assert!(!new_ids.is_empty() && new_ids.iter().all(|id| !old.contains(id)));
        let now = app.storage.find_connection(person.user.id, connection.id).await.unwrap().unwrap();
        assert_eq!(now.status, ConnectionStatus::Invalidated, "it still waits to be repaired");
    }
}

#[tokio::test]
async fn addresses() {
    let app = App::start(Default::default()).await;
    let user = app.olivia.user.id;
    open(&format!("{}/link/{}", app.console_url, "0".repeat(64))).await.says(404, "expired");
    let choice = app.address(user, LinkTo::Choice).await;
    let page = open(&choice).await;
    page.says(200, "olivia@example.com");
    for words in ["Australian banks", "New Zealand banks", "Brokers", "Ironbark Example Bank"] {
        page.says(200, words);
    }
    assert!(page.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    assert_eq!(page.headers["referrer-policy"], "no-referrer");
    assert_eq!(page.headers["cache-control"], "no-store");

    let post = |form: &'static str| {
        let request = client().post(&choice).header("content-type", "application/x-www-form-urlencoded").body(form);
        browse(request)
    };
    let away = post("provider=akahu").await.location();
    assert!(away.query_pairs().any(|(name, value)| name == "scope" && value == "ENDURING_CONSENT"), "{away}");
    for (form, status) in
        [("provider=nobody", 400), ("", 400), ("provider=akahu&connection=x", 400), ("connection=x", 400)]
    {
        assert_eq!(post(form).await.status, status, "{form}");
    }
    // Another user's connection is as absent as one that never was.
    let other = app.ben.connections[0].id;
    let form = format!("connection={other}");
    let request = client().post(&choice).header("content-type", "application/x-www-form-urlencoded").body(form);
    assert_eq!(browse(request).await.status, 410);
    assert!(app.connections.new_address(user, LinkTo::Connection(other)).await.is_err());

    // An address for one provider is for no other.
    let one = app.address(user, LinkTo::Provider("fiskil")).await;
    let request =
        client().post(&one).header("content-type", "application/x-www-form-urlencoded").body("provider=akahu");
    assert_eq!(browse(request).await.status, 410);
    let head = browse(client().head(&one)).await;
    assert_eq!(head.status, 200, "a look at the address takes nobody away");
    let calls = app.calls_of("fiskil").await;
    assert_eq!(calls.get("/v1/auth/session"), None, "{calls:?}");

    app.clock.set(app.clock.now().saturating_add(SignedDuration::from_mins(31)).unwrap());
    open(&choice).await.says(404, "expired");
    open(&one).await.says(404, "expired");
}

#[tokio::test]
async fn an_address_takes_somebody_away_twenty_times_and_no_more() {
    let app = App::start(Default::default()).await;
    let address = app.address(app.ben.user.id, LinkTo::Provider("akahu")).await;
    for at in 0..20 {
        let shown = open(&address).await;
        assert_eq!(shown.status, 303, "{at}");
    }
    open(&address).await.says(410, "expired");
}

on_both_databases! {
    async fn whoever_consents_and_never_comes_back_is_connected_all_the_same(app: App) {
        for provider in ["fiskil", "snaptrade"] {
            let user = app.ben.user.id;
            let before = app.connections_of(user).await.len();
            let back = app.consent(&app.address(user, LinkTo::Provider(provider)).await, "accept").await;
            app.work().await;
            assert_eq!(app.connections_of(user).await.len(), before, "{provider}: there is time yet");
            app.pass(SignedDuration::from_mins(6)).await;
            app.work().await;
            let connected = app.connections_of(user).await;
            assert_eq!(connected.len(), before + 1, "{provider}");
            assert!(!app.accounts_of(&connected[0]).await.is_empty());
            // Late, the browser is told what has come of it.
            open(back.as_str()).await.says(200, "connected");
            open(back.as_str()).await.says(409, "used already");
            assert_eq!(app.connections_of(user).await.len(), before + 1, "{provider}");
        }
    }
}

on_both_databases! {
    async fn a_registration_whose_answer_was_lost_leaves_nobody_behind(app: App) {
        for provider in ["fiskil", "snaptrade"] {
            let (register, remove) = registration(provider).unwrap();
            let user = app.olivia.user.id;
            let address = app.address(user, LinkTo::Provider(provider)).await;
            app.fault_at(provider, json!({"match": register, "kind": "cut", "afterBytes": 0, "times": 1})).await;
            app.forget_calls().await;
            let shown = open(&address).await;
            assert!((500..600).contains(&shown.status), "{provider}: {} {}", shown.status, shown.text);
            assert_eq!(app.calls_of(provider).await.get(register), Some(&1), "{provider}: never repeated blindly");
            open(&address).await.location();
            let calls = app.calls_of(provider).await;
            assert_eq!(calls.get(remove), Some(&1), "{provider}: {calls:?}");
            open(&address).await.location();
            let later = app.calls_of(provider).await;
            assert_eq!(later.get(remove), Some(&1), "{provider}");
        }
    }
}

#[tokio::test]
async fn two_who_come_at_once_are_registered_once() {
    let app = App::start(Default::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (register, _) = registration(provider).unwrap();
        app.fault_at(provider, json!({"match": register, "kind": "delay", "delayMs": 300})).await;
        app.forget_calls().await;
        let address = app.address(app.olivia.user.id, LinkTo::Provider(provider)).await;
        let (one, other, third) = tokio::join!(open(&address), open(&address), open(&address));
        for shown in [one, other, third] {
            shown.location();
        }
        assert_eq!(app.calls_of(provider).await.get(register), Some(&1), "{provider}");
    }
}

on_both_databases! {
    async fn accounts_that_are_late_appear(app: App) {
        app.control(Method::POST, "/lag", json!({"seconds": 60})).await;
        let user = app.ben.user.id;
        let (linked, shown) = app.linked(user, LinkTo::Provider("fiskil")).await;
        shown.says(200, "connected");
        assert!(app.accounts_of(&linked[0]).await.is_empty());
        assert_eq!(linked[0].status, ConnectionStatus::Active);
        app.pass(SignedDuration::from_secs(20)).await;
        app.work().await;
        assert!(app.accounts_of(&linked[0]).await.is_empty(), "not yet");
        app.pass(SignedDuration::from_secs(60)).await;
        app.work().await;
        assert!(!app.accounts_of(&linked[0]).await.is_empty());
    }
}

on_both_databases! {
    async fn what_is_reconnected_keeps_its_ids(app: App) {
        for (provider, setting) in [
            ("fiskil", json!({"sameIds": true})),
            ("fiskil", json!({"sameIds": false})),
            ("akahu", json!({})),
            ("akahu", json!({"newToken": true})),
            ("akahu", json!({"newToken": true, "newAuthorisation": true})),
            ("snaptrade", json!(null)),
        ] {
            for state in ["expired", "revoked"] {
                let user = app.add_person(&format!("{provider}-{state}-{setting}@example.com"), Plan::Professional, &[]).await;
                let (linked, _) = app.linked(user.user.id, LinkTo::Provider(provider)).await;
                let connection = &linked[0];
                let accounts = app.accounts_of(connection).await;
                if !setting.is_null() {
                    app.control_of(provider, Method::POST, "/relink", setting.clone()).await;
                }
                app.set_consent(connection, state).await;
                let broken = app.connections.check(user.user.id, connection.id).await.unwrap();
                let expected = if state == "expired" { "invalidated" } else { "revoked" };
                assert_eq!(broken.as_str(), expected, "{provider} {setting}");

                let (new, shown) = app.linked(user.user.id, LinkTo::Connection(connection.id)).await;
                assert_eq!(new, [], "{provider} {state} {setting}: {}", shown.text);
                shown.says(200, "again");
                let now = app.storage.find_connection(user.user.id, connection.id).await.unwrap().unwrap();
                assert_eq!(now.status, ConnectionStatus::Active, "{provider} {state} {setting}");
                assert_eq!(app.accounts_of(connection).await, accounts, "{provider} {state} {setting}");
                let steps: Vec<String> = app.storage.list_audit(connection.id).await.unwrap().into_iter().map(|row| row.cause).collect();
                assert_eq!(steps, ["linked", "checked", "reconnected"], "{provider} {state} {setting}");
                app.work().await;
                app.pass(SignedDuration::from_mins(11)).await;
                app.work().await;
                assert_eq!(app.accounts_of(connection).await, accounts, "{provider} {state} {setting}: settled");
                assert_eq!(app.connections.removals_waiting().await.unwrap(), 0, "what was replaced is withdrawn");
                app.connections.remove(connection.id).await.unwrap();
            }
        }
    }
}
