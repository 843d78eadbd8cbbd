//! The first start in a browser, without a listener, on a real database.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use bellbird_domain::Actor;
use bellbird_management::first_start;
use bellbird_storage::Storage;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tower::ServiceExt as _;

use crate::provider_control::MasterKey;
use crate::settings::Site;
use crate::test_support::{RIGHT_SECRET, TestConsole};

const KEY: &str = "main:c2VjcmV0IG1hc3RlciBrZXkgb2YgdGhpcnR5IHR3bw==";

/// A console on a database of a first start, and one browser.
struct FirstStartWorld {
    console: TestConsole,
    router: Router,
    cookies: Vec<(String, String)>,
}

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Response {
    fn location(&self) -> &str {
        self.headers
            .get(LOCATION)
            .map_or("", |to| to.to_str().unwrap())
    }
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
        }
    }

    fn storage(&self) -> &Storage {
        self.console.context.storage()
    }

    /// The same browser and database, after the process was killed and started again.
    fn restart(&mut self) {
        self.router = router(&self.console);
    }

    async fn send(&mut self, method: &str, path: &str, form: &str) -> Response {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let response = send(&self.router, method, path, form, &cookies.join("; "), 1).await;
        for cookie in response.headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        response
    }

    async fn get(&mut self, path: &str) -> Response {
        self.send("GET", path, "").await
    }

    async fn post(&mut self, path: &str, form: &str) -> Response {
        self.send("POST", path, form).await
    }

    /// With the first operator, signed in.
    async fn with_operator() -> Self {
        let mut world = Self::start().await;
        let code = new_code(world.storage(), now()).await.unwrap();
        world.post(&format!("/setup/{code}"), "").await;
        let form = "email=me@example.com&timezone=Australia/Sydney";
        let made = world.post("/setup", form).await;
        assert_eq!(made.location(), "/console/operator/setup", "{}", made.text);
        world
    }
}

fn router(console: &TestConsole) -> Router {
    let master_key = Some(MasterKey {
        key: KEY.into(),
        place: "the file /var/lib/bellbird/master.key".to_owned(),
    });
    console.router(Site {
        master_key,
        ..console.site()
    })
}

async fn send(
    router: &Router,
    method: &str,
    path: &str,
    form: &str,
    cookies: &str,
    client: u32,
) -> Response {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("origin", "https://example.com")
        .header("accept", "text/html")
        .header(COOKIE, cookies)
        .body(Body::from(form.to_owned()))
        .unwrap();
    let [_, b, c, d] = client.to_be_bytes();
    let peer = SocketAddr::from(([10, b, c, d], 1));
    request.extensions_mut().insert(ConnectInfo(peer));
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Response {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
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
    let other = send(&world.router, "POST", &path, "", "", 2).await;
    assert_eq!(other.status, 410, "it works once");
    assert_eq!(
        send(&world.router, "GET", "/setup", "", "", 2).await.status,
        404
    );
    for (form, field) in [
        ("email=me&timezone=Australia/Sydney", "E-mail address"),
        ("email=me@example.com&timezone=Sydney", "Australia/Sydney"),
    ] {
        let rejected = world.post("/setup", form).await;
        assert_eq!(rejected.status, 400, "{form}");
        assert!(rejected.text.contains(field), "{}", rejected.text);
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
    assert_eq!(world.get("/overview").await.status, 200, "signed in");
    for path in ["/setup", &path] {
        let gone = world.get(path).await;
        let nothing = world.get("/nothing").await;
        assert_eq!(
            (gone.status, gone.text),
            (nothing.status, nothing.text),
            "{path}"
        );
        assert_eq!(world.post(path, form).await.status, 404, "{path}");
    }
    assert!(new_code(world.storage(), now()).await.is_none());
}

#[tokio::test]
async fn code_ends_after_an_hour_and_with_the_next_one() {
    let mut world = FirstStartWorld::start().await;
    let hour_ago = "2026-11-20T08:24:00Z".parse().unwrap();
    let ended = new_code(world.storage(), hour_ago).await.unwrap();
    assert_eq!(world.get(&format!("/setup/{ended}")).await.status, 410);
    let first = new_code(world.storage(), now()).await.unwrap();
    world.post(&format!("/setup/{first}"), "").await;
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
        429
    );
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
    assert!(
        page.text.contains("the file /var/lib/bellbird/master.key"),
        "{}",
        page.text
    );
    assert!(!page.text.contains(KEY));
    assert_eq!(
        world.post("/operator/setup", "").await.status,
        400,
        "not confirmed"
    );
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
    assert!(page.text.contains("Step 3 of 3") && page.text.contains("Use the sandbox"));
    let done = world.post("/operator/setup", "finish=yes").await;
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
async fn credentials_are_tested_and_never_shown() {
    let mut world = FirstStartWorld::with_operator().await;
    let path = "/operator/providers";
    let missing = world.post(path, "set=fiskil&client_id=id-17").await;
    assert!(missing.status == 400 && missing.text.contains("Client secret is missing."));
    let rejected = world
        .post(path, "set=fiskil&client_id=id-17&client_secret=wrong-9")
        .await;
    assert_eq!(rejected.status, 400);
    assert!(
        rejected
            .text
            .contains("Fiskil rejects Client ID or Client secret (status 403)")
    );
    assert_eq!(
        rejected.text.matches("aria-invalid").count(),
        2,
        "{}",
        rejected.text
    );
    assert!(!rejected.text.contains("wrong-9") && !rejected.text.contains("id-17"));
    let form = format!("set=fiskil&client_id=id-17&client_secret={RIGHT_SECRET}");
    let set = world.post(path, &form).await;
    assert_eq!(
        set.location(),
        "/console/operator/providers",
        "{}",
        set.text
    );
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
    world.post(path, "sandbox=all").await;
    let stored = world.storage().provider_settings().list().await.unwrap();
    assert_eq!(stored.iter().filter(|stored| stored.is_sandbox).count(), 3);
}

#[tokio::test]
async fn operator_adds_and_removes_a_user() {
    let mut world = FirstStartWorld::with_operator().await;
    let wrong = world
        .post("/operator/users", "email=me@example.com&plan=saver")
        .await;
    assert!(wrong.status == 400 && wrong.text.contains("There is a user with this address."));
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
    let unsure = world
        .post(&path, "remove=yes&confirm-email=me@example.com")
        .await;
    assert_eq!(unsure.status, 400);
    let removed = world
        .post(&path, "remove=yes&confirm-email=anna@example.com")
        .await;
    assert!(removed.status == 200 && removed.text.contains("is being removed"));
    let own = world.storage().users().list().await.unwrap();
    let own = own.iter().find(|user| user.is_operator).unwrap().id;
    let form = "remove=yes&confirm-email=me@example.com";
    let refused = world.post(&format!("/operator/users/{own}"), form).await;
    assert_eq!(refused.status, 400, "not oneself");
}
