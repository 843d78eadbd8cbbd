//! The first start in a browser, without a listener, on a real database.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bellbird_domain::{Actor, ConnectionCategory, Plan, ProviderName};
use bellbird_management::{first_start, provider_settings, users};
use bellbird_storage::{NewConnection, NewUser, Sealer, Storage};
use http::Request;
use http::header::{COOKIE, ORIGIN, SET_COOKIE};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tower::ServiceExt as _;

use crate::provider_control::MasterKey;
use crate::settings::Site;
use crate::test_support::{RIGHT_SECRET, TestConsole, TestResponse};

const KEY: &str = "main:c2VjcmV0IG1hc3RlciBrZXkgb2YgdGhpcnR5IHR3bw==";

/// A console on a database of a first start, and one browser.
struct FirstStartWorld {
    console: TestConsole,
    router: Router,
    cookies: Vec<(String, String)>,
    host: &'static str,
    /// What the browser says with its forms.
    origin: Option<&'static str>,
}

fn now() -> Timestamp {
    "2026-11-20T09:24:00Z".parse().unwrap()
}

async fn new_code(storage: &Storage, at: Timestamp) -> Option<String> {
    let by = Actor::command("root");
    let mut change = storage.begin_change(by, at).await.unwrap();
    let code = first_start::new_code(&mut change).await.unwrap()?;
    change.commit().await.unwrap();
    let url = code.url("https://example.com/console/");
    let code = url.expose_secret().rsplit('/').next().unwrap();
    Some(code.to_owned())
}

impl FirstStartWorld {
    async fn start() -> Self {
        let console = TestConsole::without_user().await;
        let mut change = console
            .context
            .storage()
            .begin_change(Actor::command("root"), now())
            .await
            .unwrap();
        assert!(first_start::begin(&mut change).await.unwrap());
        change.commit().await.unwrap();
        let router = router(&console);
        Self {
            console,
            router,
            cookies: Vec::new(),
            host: "",
            origin: None,
        }
    }

    fn storage(&self) -> &Storage {
        self.console.context.storage()
    }

    /// The same browser and database, after the process was killed and started again.
    fn restart(&mut self) {
        self.router = router(&self.console);
    }

    async fn send(&mut self, method: &str, path: &str, form: &str) -> TestResponse {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let cookies = cookies.join("; ");
        let at = (self.host, self.origin);
        let response = send_at(at, &self.router, method, path, form, &cookies, 1).await;
        for cookie in response.headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        response
    }

    async fn get(&mut self, path: &str) -> TestResponse {
        self.send("GET", path, "").await
    }

    async fn post(&mut self, path: &str, form: &str) -> TestResponse {
        self.send("POST", path, form).await
    }

    /// As a browser does: the page, and its form.
    async fn claim(&mut self, code: &str) {
        let path = format!("/setup/{code}");
        assert_eq!(self.get(&path).await.status, 200);
        assert_eq!(self.post(&path, "").await.location(), "/console/setup");
    }

    /// With the first operator, signed in.
    async fn with_operator() -> Self {
        let mut world = Self::start().await;
        world.make_operator().await;
        world
    }

    async fn make_operator(&mut self) {
        let code = new_code(self.storage(), now()).await.unwrap();
        self.claim(&code).await;
        let form = "email=me@example.com&timezone=sydney";
        let made = self.post("/setup", form).await;
        assert_eq!(made.location(), "/console/operator/setup", "{}", made.text);
    }
}

fn site(console: &TestConsole) -> Site {
    let master_key = Some(MasterKey {
        key: KEY.into(),
        place: "the file /var/lib/bellbird/master.key".to_owned(),
    });
    Site {
        master_key,
        ..console.site()
    }
}

fn router(console: &TestConsole) -> Router {
    console.router(site(console))
}

async fn send(
    router: &Router,
    method: &str,
    path: &str,
    form: &str,
    cookies: &str,
    client: u32,
) -> TestResponse {
    send_at(("", None), router, method, path, form, cookies, client).await
}

/// As [`send`], with a host, and perhaps an origin.
async fn send_at(
    (host, origin): (&str, Option<&str>),
    router: &Router,
    method: &str,
    path: &str,
    form: &str,
    cookies: &str,
    client: u32,
) -> TestResponse {
    let mut request = Request::builder()
        .header("host", host)
        .method(method)
        .uri(path)
        .header("sec-fetch-site", "same-origin")
        .header("accept", "text/html")
        .header(COOKIE, cookies)
        .body(Body::from(form.to_owned()))
        .unwrap();
    let [_, b, c, d] = client.to_be_bytes();
    let peer = SocketAddr::from(([10, b, c, d], 1));
    request.extensions_mut().insert(ConnectInfo(peer));
    if let Some(origin) = origin {
        let origin = origin.parse().unwrap();
        request.headers_mut().insert(ORIGIN, origin);
    }
    TestResponse::of(router.clone(), request).await
}

#[tokio::test]
async fn code_makes_the_first_operator_in_one_browser() {
    let mut world = FirstStartWorld::start().await;
    let code = new_code(world.storage(), now()).await.unwrap();
    assert_eq!(world.get("/setup").await.status, 404, "no browser yet");
    let path = format!("/setup/{code}");
    let page = world.get(&path).await;
    assert_eq!(page.status, 200);
    assert!(
        !page.text.contains(&code),
        "a page that is shown has no code"
    );
    assert_eq!(
        world.get(&path).await.status,
        200,
        "a scanner that opens it uses nothing"
    );
    assert_eq!(world.post(&path, "").await.location(), "/console/setup");
    assert_eq!(world.get("/").await.location(), "/console/setup");
    let other = send(&world.router, "POST", &path, "", "", 2).await;
    assert_eq!(other.status, 410, "it works once");
    assert_eq!(
        send(&world.router, "GET", "/setup", "", "", 2).await.status,
        404
    );
    for (form, field) in [
        ("email=me&timezone=Australia/Sydney", "E-mail address"),
        ("email=me@example.com&timezone=Sidney", "Australia/Sydney"),
    ] {
        let rejected = world.post("/setup", form).await;
        assert_eq!(rejected.status, 400, "{form}");
        rejected.assert_has(field);
    }
    world.restart();
    assert_eq!(world.get("/setup").await.status, 200, "it goes on");
    let form = "email=me@example.com&timezone=Australia/Sydney";
    let other = send(&world.router, "POST", "/setup", form, "", 2).await;
    assert_eq!(other.status, 404, "another browser makes nobody");
    let made = world.post("/setup", form).await;
    assert_eq!(made.location(), "/console/operator/setup", "{}", made.text);
    let users = world.storage().users().list().await.unwrap();
    assert!(users.len() == 1 && users[0].is_operator && users[0].console_sign_in);
    assert_eq!(users[0].timezone.as_deref(), Some("Australia/Sydney"));
    assert_eq!(world.get("/overview").await.status, 200, "signed in");
    for path in ["/setup", &path] {
        let gone = world.get(path).await;
        let nothing = world.get("/nothing").await;
        assert_eq!(
            (gone.status, gone.text),
            (nothing.status, nothing.text),
            "{path}"
        );
        let other = send(&world.router, "POST", path, form, "", 2).await;
        assert_eq!(other.status, 404, "{path}");
    }
    assert_eq!(world.post(&path, form).await.status, 404);
    let again = world.post("/setup", form).await;
    assert_eq!(
        again.location(),
        "/console/operator/setup",
        "a second click"
    );
    assert_eq!(world.storage().users().list().await.unwrap().len(), 1);
    assert!(new_code(world.storage(), now()).await.is_none());
}

/// The response to the form is lost, or the process is killed before it is sent.
#[tokio::test]
async fn browser_that_made_the_operator_is_signed_in_without_the_response() {
    let mut world = FirstStartWorld::start().await;
    let code = new_code(world.storage(), now()).await.unwrap();
    world.claim(&code).await;
    assert_eq!(world.get("/setup").await.status, 200);
    assert_eq!(world.get("/overview").await.location(), "/console/sign-in");
    let cookies = world.cookies.clone();
    let form = "email=me@example.com&timezone=sydney";
    let made = world.post("/setup", form).await;
    assert_eq!(made.location(), "/console/operator/setup");
    let of_claim = world
        .cookies
        .iter()
        .find(|(name, _)| name.ends_with("bellbird"));
    assert_eq!(of_claim.unwrap().1, "", "the session follows from it");
    world.cookies = cookies;
    world.restart();
    assert_eq!(world.get("/").await.location(), "/console/overview");
    let again = world.post("/setup", form).await;
    assert_eq!(again.location(), "/console/operator/setup");
}

#[tokio::test]
async fn first_start_that_was_finished_by_a_first_click_leads_on() {
    let mut world = FirstStartWorld::with_operator().await;
    let path = "/operator/setup";
    world.post(path, "kept=yes").await;
    for _ in 0..2 {
        let done = world.post(path, "finish=link").await;
        assert_eq!(done.location(), "/console/connections");
    }
    assert_eq!(world.post(path, "kept=yes").await.status, 404);
}

#[tokio::test]
async fn code_ends_after_an_hour_and_with_the_next_one() {
    let mut world = FirstStartWorld::start().await;
    let hour_ago = "2026-11-20T08:24:00Z".parse().unwrap();
    let ended = new_code(world.storage(), hour_ago).await.unwrap();
    assert_eq!(world.get(&format!("/setup/{ended}")).await.status, 410);
    let first = new_code(world.storage(), now()).await.unwrap();
    world.claim(&first).await;
    assert_eq!(world.get("/setup").await.status, 200);
    let second = new_code(world.storage(), now()).await.unwrap();
    assert_eq!(
        world.get("/setup").await.status,
        404,
        "the browser of the first code"
    );
    assert_eq!(world.get(&format!("/setup/{first}")).await.status, 410);
    assert_eq!(world.get(&format!("/setup/{second}")).await.status, 200);
}

#[tokio::test]
async fn guesses_find_nothing_and_are_limited() {
    let world = FirstStartWorld::start().await;
    let code = new_code(world.storage(), now()).await.unwrap();
    for guess in 0..10_000_u32 {
        let path = format!("/setup/{:032x}", u128::from(guess) * 0x1_0001_0001_0001);
        let method = if guess % 2 == 0 { "GET" } else { "POST" };
        let response = send(&world.router, method, &path, "", "", guess).await;
        assert_eq!(response.status, 410, "{guess}");
    }
    let path = format!("/setup/{code}");
    assert_eq!(
        send(&world.router, "GET", &path, "", "", 1 << 20)
            .await
            .status,
        200
    );
    for _ in 0..5 {
        let prefetch = Request::get("/setup/x").header("sec-purpose", "prefetch");
        let mut prefetch = prefetch.header("host", "").body(Body::empty()).unwrap();
        let peer = SocketAddr::from(([10, 32, 0, 0], 1));
        prefetch.extensions_mut().insert(ConnectInfo(peer));
        let response = world.router.clone().oneshot(prefetch).await.unwrap();
        assert_eq!(response.status(), 503, "it costs no attempt");
    }
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(
            send(&world.router, "GET", "/setup/x", "", "", 1 << 21)
                .await
                .status,
        );
    }
    assert_eq!(statuses[3..], [429, 429], "{statuses:?}");
    assert_eq!(
        send(&world.router, "GET", &path, "", "", 1 << 21)
            .await
            .status,
        200,
        "a right code works beside somebody who guesses"
    );
}

#[tokio::test]
async fn lost_response_to_the_claim_is_repeated() {
    let mut world = FirstStartWorld::start().await;
    let code = new_code(world.storage(), now()).await.unwrap();
    let path = format!("/setup/{code}");
    let planted = "a".repeat(64);
    let name = "__Host-bellbird";
    let without = world.post(&path, "").await;
    assert_eq!(
        without.location(),
        format!("/console{path}"),
        "no cookie yet"
    );
    world.cookies = vec![(name.to_owned(), planted.clone())];
    world.get(&path).await;
    assert_ne!(world.cookies[0].1, planted, "the page sets its own");
    // Both responses are lost.
    let cookie = format!("{name}={}", world.cookies[0].1);
    for _ in 0..2 {
        let claimed = send(&world.router, "POST", &path, "", &cookie, 1).await;
        assert_eq!(claimed.location(), "/console/setup");
        assert!(claimed.headers.get(SET_COOKIE).is_none());
    }
    assert_eq!(world.post(&path, "").await.location(), "/console/setup");
    assert_eq!(world.get("/setup").await.status, 200);
    let other = send(
        &world.router,
        "POST",
        &path,
        "",
        &format!("{name}={planted}"),
        2,
    )
    .await;
    assert_eq!(other.status, 410);
}

#[tokio::test]
async fn browser_whose_claim_has_ended_learns_what_to_open() {
    let mut world = FirstStartWorld::start().await;
    let code = new_code(world.storage(), now()).await.unwrap();
    world.claim(&code).await;
    new_code(world.storage(), now()).await.unwrap();
    let form = "email=me@example.com&timezone=sydney";
    for page in [world.get("/setup").await, world.post("/setup", form).await] {
        assert_eq!(page.status, 404);
        page.assert_has("Open the newest address in the log");
    }
    assert!(world.storage().users().list().await.unwrap().is_empty());
}

#[tokio::test]
async fn button_at_another_name_says_which_addresses_work() {
    let console = TestConsole::new().await;
    for (url, words) in [
        (
            "http://127.0.0.1:8081/console/",
            "the .local name of the machine",
        ),
        (
            "https://gone.example",
            "sets console.public_url to another one",
        ),
    ] {
        let router = console.router(Site {
            console_url: url.to_owned(),
            ..console.site()
        });
        let request = Request::post("/setup/code")
            .header("host", "nas.lan:8081")
            .header("origin", "http://nas.lan:8081")
            .header("accept", "text/html")
            .body(Body::empty())
            .unwrap();
        let rejected = TestResponse::of(router, request).await;
        assert_eq!(rejected.status, 403);
        rejected.assert_has(words);
    }
}

#[tokio::test]
async fn key_is_offered_for_an_hour_and_until_it_is_kept() {
    let mut world = FirstStartWorld::with_operator().await;
    let path = "/operator/setup";
    let clock = world.console.context.clock().clone();
    clock.set("2026-11-20T10:23:59Z".parse().unwrap());
    assert_eq!(world.post(path, "download=yes").await.status, 200);
    clock.set("2026-11-20T10:24:00Z".parse().unwrap());
    assert_eq!(world.post(path, "download=yes").await.status, 404);
    let page = world.get(path).await;
    page.assert_has("that hour is over");
    assert_eq!(world.post(path, "kept=yes").await.status, 303);
    let done = world.post(path, "finish=yes").await;
    assert_eq!(done.location(), "/console/overview");

    let mut world = FirstStartWorld::with_operator().await;
    world.post(path, "kept=yes").await;
    assert_eq!(world.post(path, "download=yes").await.status, 404);
}

#[tokio::test]
async fn database_of_no_first_start_has_no_such_page() {
    let console = TestConsole::new().await;
    let router = router(&console);
    assert!(new_code(console.context.storage(), now()).await.is_none());
    let nothing = send(&router, "GET", "/nothing", "", "", 1).await;
    for path in [
        "/setup",
        "/setup/x",
        "/operator/setup",
        "/operator/providers",
    ] {
        for method in ["GET", "POST"] {
            let found = send(&router, method, path, "", "", 1).await;
            let of_operator = path.starts_with("/operator") && method == "POST";
            assert!(found.status == 404 || of_operator, "{method} {path}");
            if method == "GET" {
                assert_eq!(found.text, nothing.text, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn operator_keeps_the_key_before_providers_follow() {
    let mut world = FirstStartWorld::with_operator().await;
    let page = world.get("/operator/setup").await;
    page.assert_has("the file /var/lib/bellbird/master.key");
    assert!(!page.text.contains(KEY));
    // The page of the providers has the buttons that finish, and can be opened already.
    for form in ["", "finish=yes", "finish=link"] {
        let asked = world.post("/operator/setup", form).await;
        assert_eq!(asked.status, 400, "not confirmed: {form}");
        assert!(asked.text.contains("Keep a copy of the key"), "{form}");
    }
    let file = world.post("/operator/setup", "download=yes").await;
    assert_eq!(file.text, format!("{KEY}\n"));
    let disposition = file.headers["content-disposition"].to_str().unwrap();
    assert!(disposition.starts_with("attachment"), "{disposition}");
    assert_eq!(file.headers["cache-control"], "no-store");
    world.restart();
    assert_eq!(
        world.get("/operator/setup").await.status,
        200,
        "not confirmed yet"
    );
    let kept = world.post("/operator/setup", "kept=yes").await;
    assert_eq!(kept.location(), "/console/operator/providers");
    assert_eq!(
        world.get("/operator/setup").await.location(),
        "/console/operator/providers"
    );
    let page = world.get("/operator/providers").await;
    assert!(page.text.contains("Step 3 of 3") && !page.text.contains("class=\"tabs\""));
    let place = |words: &str| page.text.find(words).expect(words);
    assert!(place("Use the sandbox") < place("id=\"console\""));
    let done = world.post("/operator/setup", "finish=link").await;
    assert_eq!(done.location(), "/console/connections");
    assert_eq!(world.get("/operator/setup").await.status, 404);
    let late = world.post("/operator/setup", "download=yes").await;
    assert_eq!(late.status, 404, "{}", late.text);
    assert!(
        !world
            .get("/operator/providers")
            .await
            .text
            .contains("Step 3 of 3")
    );
}

#[tokio::test]
async fn start_page_says_what_is_not_set_up_yet() {
    let mut world = FirstStartWorld::start().await;
    let start = world.get("/").await;
    start.assert_has("not set up yet");
    start.assert_has("in its log");
    assert!(!start.text.contains("sign-in") && !start.text.contains("console login"));
    let mut world = FirstStartWorld::with_operator().await;
    let key = "Keep a copy of the master key, and choose where accounts are read.";
    for (form, steps) in [
        ("", Some(key)),
        ("kept=yes", Some("<p>Choose where accounts are read.</p>")),
        ("finish=yes", None),
    ] {
        world.post("/operator/setup", form).await;
        let page = world.get("/overview").await.text;
        assert_eq!(page.contains("not set up yet"), steps.is_some(), "{page}");
        assert!(steps.is_none_or(|steps| page.contains(steps)), "{page}");
    }
    world.cookies.clear();
    let start = world.get("/").await;
    assert!(!start.text.contains("not set up yet"), "{}", start.text);
}

#[tokio::test]
async fn operator_without_providers_is_led_to_them() {
    let mut world = FirstStartWorld::with_operator().await;
    let page = world.get("/connections").await;
    let button = "class=\"button\" href=\"/console/operator/providers\"";
    page.assert_has(button);
    assert!(!page.text.contains("Ask its operator"));
}

#[tokio::test]
async fn only_operator_is_warned_before_leaving() {
    let mut world = FirstStartWorld::with_operator().await;
    let page = world.get("/settings/leave").await;
    page.assert_has("You are the only operator");
}

#[tokio::test]
async fn link_that_no_phone_reaches_has_no_qr_code() {
    let mut world = FirstStartWorld::start().await;
    world.router = world.console.router(Site {
        console_url: "http://127.0.0.1:8081/console/".to_owned(),
        ..world.console.site()
    });
    world.host = "127.0.0.1:8081";
    world.make_operator().await;
    let providers = world.get("/operator/providers").await.text;
    assert!(
        providers.contains("console.listen") && !providers.contains("value=\"address\""),
        "{providers}"
    );
    let users = world.storage().users().list().await.unwrap();
    let path = format!("/operator/users/{}", users[0].id);
    let linked = world.post(&path, "sign-in-link=yes").await;
    linked.assert_has("opens only on the computer");
    assert!(!linked.text.contains("class=\"qr\""));
}

#[tokio::test]
async fn key_that_would_cross_a_network_in_plain_text_comes_with_a_warning() {
    let warning = "This page came without https";
    let mut https = FirstStartWorld::with_operator().await;
    let page = https.get("/operator/setup").await;
    assert!(!page.text.contains(warning), "{}", page.text);
    let mut world = FirstStartWorld::start().await;
    world.router = world.console.router(Site {
        console_url: "http://127.0.0.1:8081/console/".to_owned(),
        ..site(&world.console)
    });
    world.make_operator().await;
    for (host, is_warned) in [("127.0.0.1:8081", false), ("192.168.1.20:8081", true)] {
        world.host = host;
        let page = world.get("/operator/setup").await;
        assert_eq!(page.text.contains(warning), is_warned, "{host}");
    }
}

/// The service follows in the test of the real one.
#[tokio::test]
async fn name_and_address_are_entered_and_the_session_stays() {
    let mut world = FirstStartWorld::start().await;
    world.router = world.console.router(Site {
        console_url: "http://127.0.0.1:8081".to_owned(),
        ..world.console.site()
    });
    let code = new_code(world.storage(), now()).await.unwrap();
    let path = format!("/setup/{code}");
    for step in [path.as_str(), "/setup"] {
        world.get(step).await;
        let form = "name=Example+Ltd&email=me@example.com&timezone=sydney";
        assert_eq!(world.post(step, form).await.status, 303);
    }
    let path = "/operator/providers";
    let entered = async |world: &FirstStartWorld| {
        let settings = world.storage().provider_settings();
        settings.console().await.unwrap()
    };
    let named = entered(&world).await;
    assert_eq!(named.operator_name.as_deref(), Some("Example Ltd"));
    assert_eq!(world.post(path, "console=address").await.status, 400);
    world.origin = Some("http://127.0.0.1:8081");
    assert_eq!(world.post(path, "console=address").await.status, 400);
    assert_eq!(entered(&world).await, named);
    world.origin = Some("https://bellbird.example.com");
    let used = world.post(path, "console=address").await;
    let line = "/operator/providers?done=saved&at=console#done";
    assert_eq!(used.location(), line, "{}", used.text);
    let set = used.headers.get_all(SET_COOKIE).iter();
    let set: Vec<_> = set.map(|cookie| cookie.to_str().unwrap()).collect();
    let [session, old] = &set[..] else {
        panic!("{set:?}");
    };
    assert!(session.starts_with("__Host-bellbird-session="), "{session}");
    assert!(old.starts_with("bellbird-session=; "), "{old}");
    world.router = world.console.router(Site {
        console_url: "https://bellbird.example.com".to_owned(),
        ..world.console.site()
    });
    world.post(path, "console=name&operator_name=").await;
    let entered = entered(&world).await;
    let url = entered.public_url.as_deref();
    assert_eq!(
        (entered.operator_name.as_deref(), url),
        (None, Some("https://bellbird.example.com"))
    );
    assert_eq!(world.get("/overview").await.status, 200, "signed in");
}

/// Without a setting, a link leads to where the operator's browser has the console.
#[tokio::test]
async fn links_and_addresses_are_those_of_the_browser_at_home() {
    let mut world = FirstStartWorld::start().await;
    world.router = world.console.router(Site {
        console_url: "http://127.0.0.1:8081/console/".to_owned(),
        ..world.console.site()
    });
    world.make_operator().await;
    let users = world.storage().users().list().await.unwrap();
    let path = format!("/operator/users/{}", users[0].id);
    world.host = "192.168.1.20:9000";
    let linked = world.post(&path, "sign-in-link=yes").await;
    linked.assert_has("http://192.168.1.20:9000/console/sign-in/");
    linked.assert_has("class=\"qr\"");
    let keys = world.get("/keys").await.text;
    assert!(
        keys.contains("<code>http://192.168.1.20:8080</code>"),
        "{keys}"
    );
    assert!(keys.contains("href=\"http://192.168.1.20:8080/docs"));
    let providers = world.get("/operator/providers").await.text;
    assert!(
        providers.contains("has it at <code>http://192.168.1.20:9000/console</code>")
            && providers.contains("value=\"address\""),
        "{providers}"
    );
    world.host = "evil.example";
    let keys = world.get("/keys").await.text;
    assert!(
        keys.contains("<code>http://127.0.0.1:8080</code>"),
        "{keys}"
    );
}

#[tokio::test]
async fn reload_makes_no_second_key() {
    let mut world = FirstStartWorld::with_operator().await;
    let page = world.get("/keys").await;
    page.assert_has("name=\"newest\" value=\"\"");
    let made = world.post("/keys", "name=mine&newest=").await;
    made.assert_has("Your new key");
    let reloaded = world.post("/keys", "name=mine&newest=").await;
    let shown_before = "/console/keys?done=key-shown-before&at=keys#done";
    assert_eq!(reloaded.location(), shown_before, "{}", reloaded.text);
    let users = world.storage().users().list().await.unwrap();
    let keys = world.storage().keys().list(users[0].id).await.unwrap();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn credentials_are_tested_and_secrets_never_shown() {
    let mut world = FirstStartWorld::with_operator().await;
    let path = "/operator/providers";
    let missing = world.post(path, "set=fiskil&client_id=id-17").await;
    assert!(missing.status == 400 && missing.text.contains("Client secret is missing."));
    let rejected = world
        .post(path, "set=fiskil&client_id=id-17&client_secret=wrong-9")
        .await;
    assert_eq!(rejected.status, 400);
    rejected.assert_has("Fiskil rejects Client ID or Client secret (status 403)");
    assert_eq!(
        rejected.text.matches("aria-invalid").count(),
        2,
        "{}",
        rejected.text
    );
    assert!(!rejected.text.contains("wrong-9") && rejected.text.contains("enter them again"));
    rejected.assert_has("value=\"id-17\"");
    rejected.assert_has("id=\"problem\" tabindex=\"-1\" autofocus");
    let form = format!("set=fiskil&client_id=id-17&client_secret={RIGHT_SECRET}");
    let set = world.post(path, &form).await;
    let stored_line = "/console/operator/providers?done=credentials-stored&at=fiskil#done";
    assert_eq!(set.location(), stored_line, "{}", set.text);
    let page = world
        .get(stored_line.strip_prefix("/console").unwrap())
        .await;
    page.assert_has("The provider takes these credentials");
    let stored = world.storage().provider_settings().list().await.unwrap();
    assert_eq!((stored.len(), stored[0].provider.as_str()), (1, "fiskil"));
    let credentials = stored[0].credentials.as_ref().unwrap();
    assert_eq!(credentials["client_secret"].expose_secret(), RIGHT_SECRET);
    let page = world.get(path).await;
    assert!(!page.text.contains(RIGHT_SECRET) && !page.text.contains("id-17"));
    let audit = world
        .storage()
        .audit()
        .list_before(None, None, 99)
        .await
        .unwrap();
    let set = audit
        .iter()
        .find(|row| row.action == "provider_settings.set")
        .unwrap();
    assert_eq!(set.subject.as_deref(), Some("fiskil"));
    for table in world.storage().tables().await.unwrap() {
        let mut has = false;
        let mut visit = |value: &[u8]| {
            has |= String::from_utf8_lossy(value).contains(RIGHT_SECRET)
                || String::from_utf8_lossy(value).contains("id-17");
        };
        world
            .storage()
            .visit_values(&table, &mut visit)
            .await
            .unwrap();
        assert!(!has, "{table}");
    }
    world.post(path, "remove=fiskil").await;
    let stored = world.storage().provider_settings().list().await.unwrap();
    assert!(stored[0].credentials.is_none() && !stored[0].is_sandbox);
    let used = world.post(path, "sandbox=all").await;
    assert_eq!(used.location(), "/console/operator/providers#used");
    let stored = world.storage().provider_settings().list().await.unwrap();
    assert_eq!(stored.iter().filter(|stored| stored.is_sandbox).count(), 3);
}

#[tokio::test]
async fn setting_that_wins_is_not_entered() {
    let mut world = FirstStartWorld::with_operator().await;
    let page = world.get("/operator/providers").await;
    page.assert_has("App Secret, of a full app: set by the environment, which wins");
    assert!(page.text.contains("name=\"app_token\"") && !page.text.contains("name=\"app_secret\""));
}

#[tokio::test]
async fn sealed_credentials_are_not_replaced_by_the_sandbox() {
    let mut world = FirstStartWorld::with_operator().await;
    let file = world.console._folder.path().join("console.db");
    let url = format!("sqlite:{}", file.display());
    let other_key = Storage::open(&url, Sealer::random()).await.unwrap();
    let by = Actor::command("root");
    let mut change = other_key.begin_change(by, now()).await.unwrap();
    let values = [("app_token".to_owned(), "token".into())].into();
    let akahu = ProviderName::new("akahu");
    provider_settings::set(&mut change, akahu, &values)
        .await
        .unwrap();
    change.commit().await.unwrap();
    let path = "/operator/providers";
    let page = world.get(path).await;
    let sealed = "The stored credentials cannot be opened with this master key.";
    page.assert_has(sealed);
    world.post(path, "sandbox=all").await;
    world.post(path, "sandbox=akahu").await;
    let stored = other_key.provider_settings().list().await.unwrap();
    let found = stored.iter().find(|stored| stored.provider == "akahu");
    assert!(found.is_some_and(|found| !found.is_sandbox && found.credentials.is_some()));
    assert_eq!(stored.iter().filter(|stored| stored.is_sandbox).count(), 2);
}

#[tokio::test]
async fn sandbox_in_use_is_not_stopped_and_removal_says_what_follows() {
    let mut world = FirstStartWorld::with_operator().await;
    let path = "/operator/providers";
    let form = format!("set=fiskil&client_id=id-17&client_secret={RIGHT_SECRET}");
    world.post(path, &form).await;
    world.post(path, "sandbox=akahu").await;
    let follows = "are not read until";
    assert!(!world.get(path).await.text.contains(follows));
    let user = world.storage().users().list().await.unwrap()[0].id;
    for provider in ["akahu", "fiskil"] {
        let credentials = "{}".into();
        let new = NewConnection {
            user_id: user,
            provider,
            category: ConnectionCategory::Banking,
            provider_connection_id: provider,
            institution_id: "bank",
            institution_name: "Bank",
            institution_logo: None,
            credentials: &credentials,
            provider_user_id: None,
            consent_expires_at: None,
            repairs: None,
            next_refresh_at: None,
            backfill_ends_at: None,
            next_sync_at: now(),
            first_attempt_at: now(),
            cause: "imported",
        };
        let connections = world.storage().connections();
        connections.import(&new, &[], now()).await.unwrap();
    }
    assert_eq!(world.get(path).await.text.matches(follows).count(), 1);
    let stopped = world.post(path, "remove=akahu").await;
    assert!(stopped.status.is_client_error(), "{}", stopped.status);
    let why = "simulated connections cannot become real ones, nor real ones simulated.";
    stopped.assert_has(why);
    stopped.assert_has("<summary>Stop the sandbox</summary>");
    let closed = "<summary>Use the real Akahu</summary>";
    stopped.assert_has(closed);
    let stored = world.storage().provider_settings().list().await.unwrap();
    assert!(stored[0].is_sandbox);
    assert_eq!(world.post(path, "remove=fiskil").await.status, 303);
}

#[tokio::test]
async fn audit_says_that_a_user_is_removed() {
    let mut world = FirstStartWorld::with_operator().await;
    let by = Actor::command("root");
    let mut change = world.storage().begin_change(by, now()).await.unwrap();
    let user = NewUser {
        email: "gone@example.com",
        plan: Plan::Saver,
        timezone: None,
        reference: None,
        console_sign_in: true,
    };
    let user = users::create(&mut change, &user).await.unwrap();
    users::remove(&mut change, user.id).await.unwrap();
    change.commit().await.unwrap();
    let audit = world.get("/operator/audit").await.text;
    let words = format!("a removed user <code>{}</code>", user.id);
    assert!(audit.contains(&words), "{audit}");
}

#[tokio::test]
async fn operator_adds_and_removes_a_user() {
    let mut world = FirstStartWorld::with_operator().await;
    let wrong = world
        .post("/operator/users", "email=me@example.com&plan=saver")
        .await;
    assert!(wrong.status == 400 && wrong.text.contains("There is a user with this address."));
    wrong.assert_has("<option value=\"saver\" selected>");
    let added = world
        .post("/operator/users", "email=anna@example.com&plan=developer")
        .await;
    let path = added
        .location()
        .strip_prefix("/console")
        .unwrap()
        .to_owned();
    let linked = world.post(&path, "sign-in-link=yes").await;
    assert!(linked.text.contains("<svg class=\"qr\"") && linked.text.contains("/sign-in/"));
    linked.assert_has("sends no e-mail until <code>console.smtp_url</code> is set");
    let unsure = world
        .post(&path, "remove=yes&confirm-email=me@example.com")
        .await;
    assert_eq!(unsure.status, 400);
    let removed = world
        .post(&path, "remove=yes&confirm-email=anna@example.com")
        .await;
    let line = "/console/operator/users?done=user-removed&at=users#done";
    assert_eq!(removed.location(), line, "{}", removed.text);
    let left = world.get(&path).await;
    left.assert_has("Being removed, once every consent is withdrawn");
    let link = "name=\"sign-in-link\"";
    assert!(!left.text.contains(link) && linked.text.contains(link));
    let own = world.storage().users().list().await.unwrap();
    let own = own.iter().find(|user| user.is_operator).unwrap().id;
    let form = "remove=yes&confirm-email=me@example.com";
    let refused = world.post(&format!("/operator/users/{own}"), form).await;
    assert_eq!(refused.status, 400, "not oneself");
}
