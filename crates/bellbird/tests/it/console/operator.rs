//! The pages for operators: what they show and do, and that there are none for anybody else.

use bellbird_domain::{ActorKind, ConnectionStatus, EventType, Plan, User, UserId};
use bellbird_sandbox::{ConsentState, Fault};
use bellbird_storage::{AuditRow, JobKey, ProviderCalls, UserChange, in_tx, job_kinds};
use jiff::SignedDuration;

use super::{Page, SignedIn, get, with_session};
use crate::support::browser;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Setup};
use crate::support::receiver::Hook;
use crate::support::words::{assert_has, assert_starts};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const PAGES: [&str; 5] = [
    "/operator/users",
    "/operator/health",
    "/operator/providers",
    "/operator/deliveries",
    "/operator/audit",
];

impl App {
    pub(super) async fn set_operator(&self, user: UserId, is_operator: bool) {
        let change = UserChange {
            is_operator: Some(is_operator),
            ..UserChange::default()
        };
        self.change_user_to(user, change).await;
    }

    /// Ben, who is an operator.
    pub(crate) async fn sign_in_operator(&self) -> SignedIn<'_> {
        self.set_operator(self.ben.user.id, true).await;
        self.sign_in(self.ben.user.id).await
    }

    async fn operator_audit(&self) -> Vec<AuditRow> {
        self.storage
            .audit()
            .list_before(None, None, 100)
            .await
            .unwrap()
    }

    /// An endpoint of Olivia's that is disabled, with events that have failed.
    async fn disabled_endpoint(&self) -> Hook {
        let olivia = &self.olivia;
        let hook = self.hook(&olivia.user).await;
        self.sync(&olivia.connections[0]).await;
        let (endpoint, now) = ((olivia.user.id, hook.endpoint.id), self.clock.now());
        in_tx!(
            self.storage,
            endpoints::disable(endpoint, "too many failures", now)
        )
        .await
        .unwrap()
        .unwrap();
        hook
    }

    async fn fail_a_sync(&self) {
        let (jobs, now) = (self.storage.jobs(), self.clock.now());
        let job = JobKey::new(
            job_kinds::SYNC,
            self.olivia.user.id,
            self.olivia.connections[0].id,
        );
        let claim = jobs.claim(&job, now, now + HOUR).await.unwrap().unwrap();
        assert!(
            jobs.fail(&claim, "the provider is unavailable", now + HOUR)
                .await
                .unwrap()
        );
    }

    async fn user(&self, id: UserId) -> User {
        self.storage.users().find(id).await.unwrap().unwrap()
    }
}

/// The paths of all pages, with those of one user and one endpoint.
fn all_pages(user: UserId, endpoint: &Hook) -> Vec<String> {
    let single = [
        format!("/operator/users/{user}"),
        format!("/operator/deliveries/{}", endpoint.endpoint.id),
    ];
    PAGES.into_iter().map(str::to_owned).chain(single).collect()
}

#[tokio::test]
async fn operator_sees_users_and_changes_them_with_an_audit() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let olivia = app.olivia.user.id;
    let users = browser.get("/operator/users").await;
    users.assert_status(200);
    for user in [&app.ben.user, &app.olivia.user] {
        let link = format!("/operator/users/{}\"><bdi>{}", user.id, user.email);
        users.assert_has(&link);
    }
    for search in [
        "OLIVIA@example.com".to_owned(),
        "livia".to_owned(),
        olivia.to_string(),
    ] {
        let path = format!("/operator/users?search={search}");
        browser.get(&path).await.assert_lists([true, false]);
    }
    let none = browser.get("/operator/users?search=nobody%00").await;
    none.assert_has("No user matches.");

    let page = format!("/operator/users/{olivia}");
    let saved = browser.post(&page, "plan=developer").await;
    let saved = saved.location.expect("a redirect");
    assert_eq!(saved, format!("{page}?done=plan-saved&at=plan#done"));
    browser.get(&saved).await.assert_has("The plan is saved.");
    assert_eq!(app.user(olivia).await.plan, Plan::Developer);
    let link = browser.post(&page, "sign-in-link=yes").await;
    let url = link
        .text
        .split("<code>")
        .find(|part| part.contains("/sign-in/"))
        .expect("a link");
    let url = url.split('<').next().unwrap();
    assert_has(&get(url, None).await.text, "olivia@example.com");
    let reloaded = browser.post(&page, "sign-in-link=yes&newest=").await;
    let reloaded = reloaded.location.expect("a redirect");
    let again = browser.get(&reloaded).await;
    again.assert_has("The link was made and shown before, and no second one is made.");
    // Shown once.
    browser.get(&page).await.assert_lacks("/sign-in/");
    let other = app.sign_in(olivia).await;
    browser.try_submit(&page, "end-sessions=yes", 303).await;
    other.get("/keys").await.assert_needs_sign_in("ended");
    for wrong in [
        "",
        "plan=",
        "plan=free",
        "plan=saver&plan=saver",
        "email=a%40b",
    ] {
        browser.try_submit(&page, wrong, 400).await;
    }

    let rows = app.operator_audit().await;
    let actions: Vec<_> = rows.iter().rev().map(|row| &*row.action).collect();
    assert_eq!(
        actions,
        ["user.update", "sign_in_link.create", "session.revoke_all"]
    );
    let audit = browser.get("/operator/audit").await;
    let ben = app.ben.user.id.to_string();
    for row in &rows {
        let actor = (row.actor.kind, &row.actor.id);
        assert_eq!(actor, (ActorKind::Operator, &ben));
        assert_eq!(row.user_id, Some(olivia));
        audit.assert_has(&row.action);
    }
    audit.assert_has("<bdi>ben@example.com</bdi>");
    audit.assert_has("plan: professional → developer");
}

impl Page {
    /// Whether the list of the page has Olivia, and whether it has Ben.
    #[track_caller]
    fn assert_lists(&self, olivia_and_ben: [bool; 2]) {
        let entries = ["olivia", "ben"].map(|name| format!("<bdi>{name}@example.com</bdi></a>"));
        let listed = entries.map(|entry| self.text.contains(&entry));
        let (request, text) = (&self.request, &self.text);
        assert_eq!(listed, olivia_and_ben, "{request}: {text}");
    }
}

#[tokio::test]
async fn bank_that_was_only_read_is_not_synced() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    app.refresh(user, connection.id).await;
    let path = format!("/operator/users/{user}");
    browser.get(&path).await.assert_has(", never synced.");
    for connection in &app.olivia.connections {
        app.sync(connection).await;
    }
    let page = browser.get(&path).await;
    page.assert_has(". Synced <time");
    page.assert_lacks(", never synced.");
}

#[tokio::test]
async fn settings_say_how_an_operator_changes_the_address() {
    let app = App::start(Setup::default()).await;
    let command = "user set</code> on the server changes it.";
    let own = app.sign_in_operator().await.get("/settings").await;
    own.assert_has(command);
    let olivia = app.sign_in(app.olivia.user.id).await;
    olivia.get("/settings").await.assert_lacks(command);
}

#[tokio::test]
async fn key_reads_nothing_with_a_plan_without_accounts() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let path = format!("/operator/users/{}", app.olivia.user.id);
    let nothing = "reads nothing with this plan";
    browser.get(&path).await.assert_lacks(nothing);
    app.set_plan(app.olivia.user.id, Plan::Saver).await;
    let page = browser.get(&path).await;
    page.assert_has(nothing);
    page.assert_has("No program reads for this user.");
}

#[tokio::test]
async fn page_of_a_user_does_not_repeat_whose_endpoint_it_is() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    app.disabled_endpoint().await;
    let of_olivia = "<bdi>olivia@example.com</bdi></a>";
    let list = browser.get("/operator/deliveries").await;
    list.assert_has(of_olivia);
    let page = browser
        .get(&format!("/operator/users/{}", app.olivia.user.id))
        .await;
    page.assert_has("No success yet.");
    page.assert_lacks(of_olivia);
}

/// As after a restore, which forbids it to everybody.
#[tokio::test]
async fn operator_allows_a_user_to_sign_in() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let olivia = app.olivia.user.id;
    let forbidden = UserChange {
        console_sign_in: Some(false),
        ..UserChange::default()
    };
    app.change_user_to(olivia, forbidden).await;
    let path = format!("/operator/users/{olivia}");
    let page = browser.get(&path).await;
    page.assert_has("because a restore forbade it to everybody");
    page.assert_has("The user is no operator.");
    page.assert_lacks("name=\"sign-in-link\"");
    page.assert_lacks("name=\"send-link\"");
    let refused = browser.post(&path, "sign-in-link=yes").await;
    refused.assert_shows(400, "This user may not sign in. Allow it first.");
    browser.try_submit(&path, "allow-sign-in=yes", 303).await;
    assert!(app.user(olivia).await.console_sign_in);
    let page = browser.get(&path).await;
    page.assert_lacks("name=\"allow-sign-in\"");
    page.assert_has("name=\"sign-in-link\"");
    let rows = app.operator_audit().await;
    assert_eq!(rows[0].detail.as_deref(), Some("may sign in: no → yes"));
}

/// Each filter finds its user, and leaves out the other.
#[tokio::test]
async fn users_are_filtered() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    app.disabled_endpoint().await;
    for (query, has_olivia, has_ben) in [
        ("", true, true),
        ("plan=professional", true, false),
        ("plan=saver", false, false),
        ("only=operators", false, true),
        ("only=attention", true, false),
        ("only=attention&search=ben", false, false),
        ("only=bank", false, false),
        ("status=active", true, true),
        ("status=revoked", false, false),
        ("status=active&provider=nobody", false, false),
        ("plan=gold&only=x&status=y&pages=z", true, true),
    ] {
        let page = browser.get(&format!("/operator/users?{query}")).await;
        page.assert_status(200);
        page.assert_lists([has_olivia, has_ben]);
    }
    let unknown = browser.get("/operator/users?plan=gold").await;
    unknown.assert_has("All plans (unknown choice)");
    let page = browser.get("/operator/users").await;
    page.assert_has("1 webhook endpoint disabled");
    let found = browser.get("/operator/users?search=example").await;
    found.assert_has("<p class=\"small\">2 users</p>");
    let revoked = browser.get("/operator/users?status=revoked").await;
    revoked.assert_has("consent withdrawn");
    revoked.assert_has("Show all users");
}

/// What a user's bank needs is found from the page Health.
#[tokio::test]
async fn health_leads_to_the_users_who_must_reconnect() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let health = browser.get("/operator/health").await;
    health.assert_has("no user has to reconnect one");
    if app.shared.database.starts_with("sqlite:") {
        // No backup was made.
        health.assert_lacks("the last one");
    }
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    app.set_consent(connection, ConsentState::Revoked).await;
    assert_eq!(
        app.refresh(user, connection.id).await,
        ConnectionStatus::Revoked
    );
    let health = browser.get("/operator/health").await;
    health.assert_has("1 must be reconnected by its user");
    let provider = &connection.provider;
    let link = format!("/operator/users?status=revoked&#38;provider={provider}");
    health.assert_has(&link);
    let whose = "/operator/users?only=bank";
    health.assert_has(whose);
    for path in [
        link.replace("&#38;", "&"),
        whose.to_owned(),
        "/operator/users?only=attention".to_owned(),
    ] {
        let users = browser.get(&path).await;
        users.assert_lists([true, false]);
        users.assert_has("1 bank to reconnect");
    }
    let page = browser.get(&format!("/operator/users/{user}")).await;
    page.assert_has("consent withdrawn");
}

/// What its owner disabled is listed for the operator, and is no alarm.
#[tokio::test]
async fn endpoint_that_its_user_disabled_is_no_alarm() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let olivia = &app.olivia.user;
    let hook = app.hook(olivia).await;
    let own = app.sign_in(olivia.id).await;
    let form = format!("disable={}", hook.endpoint.id);
    own.post("/webhooks", &form).await.assert_status(303);
    let health = browser.get("/operator/health").await;
    health.assert_has("every enabled endpoint works");
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("<span class=\"status \">paused by user</span>");
    let which = "/operator/deliveries?only=attention";
    browser.get(which).await.assert_has("none fails");
    let users = browser.get("/operator/users?only=attention").await;
    users.assert_lacks("<bdi>olivia@example.com</bdi></a>");
    let (endpoint, now) = ((olivia.id, hook.endpoint.id), app.clock.now());
    in_tx!(app.storage, endpoints::disable(endpoint, "gone", now))
        .await
        .unwrap()
        .unwrap();
    let health = browser.get("/operator/health").await;
    health.assert_has("1 endpoint disabled");
    health.assert_has(which);
    browser.get(which).await.assert_has("disabled: gone");
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("<span class=\"status attention\">disabled: gone</span>");
}

/// The calls of another instance are counted, as its row has them.
#[tokio::test]
async fn health_is_that_of_all_instances() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    browser
        .get("/operator/health")
        .await
        .assert_has("last call succeeded");
    let now = app.clock.now();
    let mut other = app.storage.instances().list(now).await.unwrap().remove(0);
    other.id = uuid::Uuid::now_v7();
    other.host = "worker-2".to_owned();
    other.version = "9.9.9".to_owned();
    let calls = ProviderCalls {
        calls: 1_000_000,
        failed: 7,
        failed_in_a_row: 2,
        failed_at: Some(now + HOUR),
        error: Some("timed out elsewhere".to_owned()),
        ..ProviderCalls::default()
    };
    other.provider_calls = [("fiskil".to_owned(), calls)].into();
    // By the time of its own machine, as the service does, which forgets dead ones.
    let seen_at = jiff::Timestamp::now();
    let renewed = app.storage.instances().renew(&other, seen_at);
    renewed.await.unwrap();
    let page = browser.get("/operator/health").await;
    for words in [
        "worker-2",
        "timed out elsewhere (2 since the last success)",
        ", 7 failed",
        "upgrade the older one",
    ] {
        page.assert_has(words);
    }
    page.assert_lacks("not called yet, ");
}

#[tokio::test]
async fn audit_is_filtered_and_downloaded() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let (olivia, ben) = (app.olivia.user.id, app.ben.user.id);
    for (user, form) in [
        (olivia, "plan=saver"),
        (ben, "plan=professional"),
        (ben, "end-sessions=yes"),
    ] {
        let page = format!("/operator/users/{user}");
        browser.try_submit(&page, form, 303).await;
    }
    let browser = app.sign_in(ben).await;
    for (query, rows) in [
        (String::new(), 3),
        ("what=user".to_owned(), 2),
        ("what=session".to_owned(), 1),
        ("what=key".to_owned(), 0),
        ("what=%25".to_owned(), 3),
        (format!("user={olivia}&by=operator"), 1),
        ("by=command".to_owned(), 0),
        (format!("by=operator:{ben}&days=1"), 3),
        (format!("by=operator:{olivia}"), 0),
        ("days=today".to_owned(), 3),
        ("days=yesterday".to_owned(), 0),
    ] {
        let page = browser.get(&format!("/operator/audit?{query}")).await;
        page.assert_status(200);
        let count = page.text.matches("<li>\n<span class=\"what\">").count();
        assert_eq!(count, rows, "{query}: {}", page.text);
        let file = browser.get(&format!("/operator/audit.csv?{query}")).await;
        file.assert_status(200);
        let lines = file.text.lines().count();
        assert_eq!(lines, rows + 1, "{query}: {}", file.text);
    }
    let page = browser.get("/operator/audit").await;
    page.assert_has("</time>, 20:30");
    let by_ben = format!("<a href=\"?by=operator%3A{ben}\"><bdi>By ben@example.com</bdi></a>");
    page.assert_has(&by_ben);
    app.advance_clock(HOUR * 4);
    for (days, rows) in [("today", 0), ("yesterday", 3)] {
        let path = format!("/operator/audit.csv?days={days}");
        let file = browser.get(&path).await;
        assert_eq!(file.text.lines().count(), rows + 1, "{days}: {}", file.text);
    }
    let file = browser.get("/operator/audit.csv?what=user").await;
    assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
    assert_starts(&file.text, "\u{feff}at,action,");
    let line = format!(
        ",user.update,{olivia},olivia@example.com,,plan: professional → saver,operator,{ben},\
         ben@example.com\r\n"
    );
    file.assert_has(&line);
}

/// Nobody else gets the file either.
#[tokio::test]
async fn audit_file_is_for_operators() {
    let app = App::start(Setup::default()).await;
    let olivia = app.sign_in(app.olivia.user.id).await;
    olivia.get("/operator/audit.csv").await.assert_status(404);
}

/// Whatever is asked for and sent, everybody else gets what an address without a page gives.
#[tokio::test]
async fn there_are_no_such_pages_for_anybody_else() {
    let app = App::start(Setup::default()).await;
    let olivia = app.sign_in(app.olivia.user.id).await;
    let hook = app.disabled_endpoint().await;
    for path in all_pages(app.ben.user.id, &hook) {
        for method in [
            reqwest::Method::GET,
            reqwest::Method::POST,
            reqwest::Method::PUT,
        ] {
            for cookie in [None, Some(&*olivia.cookie), Some("made-up")] {
                for site in ["same-origin", "cross-site"] {
                    let ask = async |path: &str| {
                        let url = format!("{}{path}", app.console_url);
                        let request = browser::client().request(method.clone(), url);
                        let request = request
                            .header("accept", "text/html")
                            .header("sec-fetch-site", site)
                            .body("plan=saver&end-sessions=yes&enable=yes");
                        let request = with_session(request, cookie);
                        let page = Page::of(request.send().await.unwrap()).await;
                        let mut headers = page.headers;
                        for own in ["date", "x-request-id"] {
                            headers.remove(own);
                        }
                        (page.status, headers, page.text)
                    };
                    let missing = ask("/operator/nothing").await;
                    assert_eq!(missing.0, 404);
                    assert_eq!(
                        ask(&path).await,
                        missing,
                        "{method} {path} {cookie:?} {site}"
                    );
                }
            }
        }
    }
    // No menu.
    olivia.get("/keys").await.assert_lacks("/operator/");
    assert_eq!(app.user(app.ben.user.id).await.plan, app.ben.user.plan);
    assert_eq!(app.operator_audit().await, []);
}

#[tokio::test]
async fn flag_ends_with_the_next_request() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    browser
        .get("/keys")
        .await
        .assert_has("href=\"/operator/users\"");
    browser.get("/operator/audit").await.assert_status(200);
    app.set_operator(app.ben.user.id, false).await;
    browser.get("/operator/audit").await.assert_status(404);
    let page = format!("/operator/users/{}", app.olivia.user.id);
    browser.try_submit(&page, "plan=saver", 404).await;
    assert_eq!(
        app.user(app.olivia.user.id).await.plan,
        app.olivia.user.plan
    );
    // Still signed in, without the menu.
    browser.get("/keys").await.assert_lacks("/operator/");
}

#[tokio::test]
async fn forms_of_other_sites_change_no_user() {
    let app = App::start(Setup::default()).await;
    let operator = app.sign_in_operator().await;
    let hook = app.disabled_endpoint().await;
    let user = format!("/operator/users/{}", app.olivia.user.id);
    let endpoint = format!("/operator/deliveries/{}", hook.endpoint.id);
    for (path, form) in [
        (&user, "plan=saver"),
        (&user, "sign-in-link=yes"),
        (&endpoint, "enable=yes"),
    ] {
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("origin", "https://evil.example"),
            ("x-nothing", "1"),
        ] {
            let url = format!("{}{path}", app.console_url);
            let request = browser::foreign_post(&url, form).header(name, value);
            let request = with_session(request, Some(&operator.cookie));
            let page = Page::of(request.send().await.unwrap()).await;
            page.assert_status(403);
        }
    }
    assert_eq!(app.operator_audit().await, []);
}

/// The pages work without the operator's API, and show neither an account nor an amount of anybody.
#[tokio::test]
async fn pages_show_nothing_of_what_accounts_hold() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let hook = app.disabled_endpoint().await;
    let mut secrets = Vec::new();
    for person in [&app.olivia, &app.ben] {
        secrets.push(person.key.clone());
        let accounts = app.all_accounts(person).await;
        for balance in app.balances(person, &accounts).await {
            // A round amount could be any number of the page.
            let amount = balance.current_balance;
            secrets.extend(amount.filter(|amount| amount.len() > 5));
        }
        for account in accounts {
            secrets.extend([account.id, account.name]);
            secrets.extend(account.account_number);
        }
    }
    assert!(secrets.len() > 20);
    let mut pages = all_pages(app.ben.user.id, &hook);
    pages.push(format!("/operator/users/{}", app.olivia.user.id));
    for path in pages {
        let page = browser.get(&path).await;
        page.assert_status(200);
        for secret in &secrets {
            page.assert_lacks(secret);
        }
    }
}

#[tokio::test]
async fn health_names_a_provider_that_fails() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    browser
        .get("/operator/health")
        .await
        .assert_has("last call succeeded");
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/balances"));
    app.sign_in(app.olivia.user.id).await.get("/overview").await;
    app.clear_faults();
    let page = browser.get("/operator/health").await;
    page.assert_has("last call failed");
    page.assert_has("the provider is unavailable: server error");
    page.assert_has("since the last success");
}

#[tokio::test]
async fn health_names_jobs_that_fail_or_do_not_run() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    app.fail_a_sync().await;
    let page = browser.get("/operator/health").await;
    page.assert_has("1 failing");
    page.assert_lacks("overdue");
    page.assert_has("tried 1 time");
    page.assert_has("the provider is unavailable.");
    page.assert_has("<span class=\"what\">Sync at ");
    app.advance_clock(HOUR * 7);
    let page = browser.get("/operator/health").await;
    page.assert_has(" overdue");
    page.assert_has("first due");
}

/// Each page of a list begins behind the last row of the one before, and leads back to it.
#[tokio::test]
async fn lists_go_on_behind_their_first_page() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    for number in 0..60 {
        let email = format!("user{number}@example.com");
        let user = app.add_user(&email, Plan::Saver).await.id;
        browser
            .try_submit(&format!("/operator/users/{user}"), "plan=developer", 303)
            .await;
    }
    let entry = "<li>\n<a class=\"what\"";
    for (path, row, rows) in [
        ("/operator/users?search=example", entry, 62),
        ("/operator/audit?what=user", "<code>user.update", 60),
    ] {
        let list = path.split('?').next().unwrap();
        let follow = async |page: &str, rel: &str| {
            let (before, _) = page.split_once(&format!("\" rel=\"{rel}\""))?;
            let (_, query) = before.rsplit_once("href=\"?").unwrap();
            let query = query.replace("&#38;", "&");
            let page = browser.get(&format!("{list}?{query}")).await;
            Some((page.text, query))
        };
        let first = browser.get(path).await.text;
        let (second, next) = follow(&first, "next").await.expect("a next page");
        let count = |page: &str| page.matches(row).count();
        assert_eq!(
            (count(&first), count(&second)),
            (50, rows - 50),
            "{path}: {second}"
        );
        assert!(follow(&second, "next").await.is_none(), "the last page");
        assert!(follow(&first, "prev").await.is_none(), "the first page");
        let (back, _) = follow(&second, "prev").await.expect("a page before");
        assert_eq!(count(&back), 50);
        for (page, rows) in [(&first, "1 to 50 of 62"), (&second, "51 to 62 of 62")] {
            assert_eq!(page.contains(rows), list.ends_with("users"), "{page}");
        }
        for kept in ["search=example", "what=user"] {
            assert_eq!(next.contains(kept), path.contains(kept), "{next}");
        }
    }
}

#[tokio::test]
async fn endpoint_is_enabled_and_its_events_are_sent_again() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let hook = app.disabled_endpoint().await;
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("disabled: too many failures");
    list.assert_has(&hook.endpoint.id.to_string());
    let page = format!("/operator/deliveries/{}", hook.endpoint.id);
    let event = app.deliveries_to(&hook).await[0].event_id;
    let send_again = format!("redeliver={event}&user={}", app.olivia.user.id);
    let rejected = browser.post(&page, &send_again).await;
    rejected.assert_shows(409, "The endpoint is disabled. Enable it first.");
    browser.try_submit(&page, "enable=yes", 303).await;
    app.assert_enabled(&hook).await;
    browser.try_submit(&page, &send_again, 303).await;
    browser
        .get(&format!("{page}?state=pending"))
        .await
        .assert_has("Next attempt");
    let rows = app.operator_audit().await;
    let actions: Vec<_> = rows
        .iter()
        .rev()
        .map(|row| (&*row.action, row.user_id))
        .collect();
    let owner = Some(app.olivia.user.id);
    assert_eq!(
        actions,
        [
            ("webhook_endpoint.enable", owner),
            ("delivery.redeliver", owner)
        ]
    );
    for wrong in [
        "",
        "redeliver=1",
        &format!("redeliver={event}"),
        "enable=a&enable=b",
    ] {
        browser.try_submit(&page, wrong, 400).await;
    }
}

/// Its events are of several users, so a form says whose event it means.
#[tokio::test]
async fn endpoint_for_all_users_is_enabled_for_each() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let hook = app.hook_for_all(&[EventType::TransactionsSynced]).await;
    app.sync(&app.olivia.connections[0]).await;
    let endpoint = (UserId::INSTALLATION, hook.endpoint.id);
    in_tx!(
        app.storage,
        endpoints::disable(endpoint, "too many failures", app.clock.now())
    )
    .await
    .unwrap()
    .unwrap();
    let list = browser.get("/operator/deliveries").await;
    list.assert_has("of all users");
    list.assert_has("Endpoints for all users");
    let page = format!("/operator/deliveries/{}", hook.endpoint.id);
    browser.try_submit(&page, "enable=yes", 303).await;
    let event = app.deliveries_to(&hook).await[0].event_id;
    for (user, status) in [(&app.ben.user, 409), (&app.olivia.user, 303)] {
        let form = format!("redeliver={event}&user={}", user.id);
        browser.try_submit(&page, &form, status).await;
    }
    let audit = browser.get("/operator/audit").await;
    audit.assert_has("Endpoint enabled");
    audit.assert_has("the installation");
}

mod chromium {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_page_by_the_menu() {
        let app = App::start(Setup::default()).await;
        let hook = app.disabled_endpoint().await;
        app.set_operator(app.ben.user.id, true).await;
        app.fail_a_sync().await;
        let mut browser = Browser::of_user(&app, app.ben.user.id, 1280, 800).await;
        for path in PAGES {
            browser.click(&format!("nav a[href='{path}']"));
            browser.assert_accessible(&format!("console{}", path.replace('/', "-")));
        }
        browser.click("nav a[href='/operator/users']");
        browser.write("input[name=search]", "livia");
        browser.click("form.search button");
        browser.assert_accessible("console-operator-users-found");
        browser.click("ul.entries a");
        browser.press("details.question summary");
        browser.assert_accessible("console-operator-user");
        browser.click("details.question button");
        browser.assert_shows("The plan is saved.");
        browser.assert_accessible("console-operator-user-saved");
        browser.click("button[name=sign-in-link]");
        browser.assert_accessible("console-operator-user-link");
        browser.click("nav a[href='/operator/deliveries']");
        browser.click("ul.entries a.what");
        browser.assert_accessible("console-operator-endpoint");
        browser.click("button[name=enable]");
        app.assert_enabled(&hook).await;
        browser.assert_shows("The endpoint gets events again.");
        browser.click("button[name=redeliver]");
        browser.assert_accessible("console-operator-endpoint-sent");
        browser.click("nav a[href='/operator/audit']");
        browser.assert_accessible("console-operator-audit-rows");
        browser.assert_shows("delivery.redeliver");
        browser.press("details.chip summary");
        browser.assert_accessible("console-operator-audit-filter");
        browser.click("details.chip[open] .panel a[href='?what=delivery']");
        browser.assert_accessible("console-operator-audit-filtered");
    }

    /// Nothing that a long address or name stands in is wider than a phone.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_address_fits_on_a_phone() {
        let app = App::start(Setup::default()).await;
        let email = format!("{}@{}.example", "m".repeat(30), "n".repeat(16));
        assert_eq!(email.len(), 55);
        let user = app.add_user(&email, Plan::Professional).await.id;
        let reference = "r".repeat(100);
        let change = UserChange {
            reference: Some(Some(&*reference)),
            ..UserChange::default()
        };
        app.change_user_to(user, change).await;
        app.set_operator(user, true).await;
        app.set_operator(app.ben.user.id, true).await;
        let by_ben = app.sign_in(app.ben.user.id).await;
        let page = format!("/operator/users/{user}");
        by_ben.try_submit(&page, "plan=developer", 303).await;
        let mut browser = Browser::start();
        browser.size(360, 780, false);
        browser.open(&app.sign_in_link(user).await);
        browser.assert_accessible("console-long-sign-in");
        browser.click("button.strong");
        browser.open(&format!("{}/operator/users?search=livia", app.console_url));
        let lines = "document.querySelector('a.what bdi').getClientRects().length";
        assert_eq!(browser.evaluate(lines), 1, "olivia@example.com has a line");
        for path in PAGES.into_iter().chain([
            "/overview",
            "/transactions",
            "/connections",
            "/keys",
            "/settings",
            &page,
        ]) {
            browser.open(&format!("{}{path}", app.console_url));
            browser.press(".menus .avatar");
            browser.assert_accessible(&format!("console-long{}", path.replace('/', "-")));
        }
    }

    /// The browser's language names days and exact times. English needs no script.
    #[tokio::test(flavor = "multi_thread")]
    async fn times_are_in_the_language_of_the_browser() {
        let app = App::start(Setup::default()).await;
        app.set_operator(app.ben.user.id, true).await;
        app.disabled_endpoint().await;
        for (language, is_english) in [("en-AU", true), ("de-DE", false)] {
            let mut browser = Browser::start();
            browser.language(language);
            browser.open(&app.sign_in_link(app.ben.user.id).await);
            browser.click("button.strong");
            browser.open(&format!("{}/operator/health", app.console_url));
            let title = browser.evaluate("document.querySelector('time').title");
            let has_page_form = title.as_str().unwrap().contains("Sydney time");
            assert_eq!(has_page_form, is_english, "{language}: {title}");
        }
    }
}
