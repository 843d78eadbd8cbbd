//! The pages for operators, and that there are none for anybody else.

mod audit;
mod chromium;
mod deliveries;
mod health;
mod users;

use bellbird_domain::{Plan, User, UserId};
use bellbird_storage::{AuditRow, JobKey, UserChange, job_kinds};
use jiff::SignedDuration;

use super::{Page, SignedIn, with_session};
use crate::support::browser;
use crate::support::harness::{App, Setup};
use crate::support::receiver::Hook;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const PAGES: [&str; 5] = [
    "/operator/users",
    "/operator/health",
    "/operator/providers",
    "/operator/deliveries",
    "/operator/audit",
];

impl App {
    pub(crate) async fn set_operator(&self, user: UserId, is_operator: bool) {
        let change = UserChange {
            is_operator: Some(is_operator),
            ..UserChange::default()
        };
        self.change_user(user, &change).await;
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
        self.disable_hook(&hook, "too many failures").await;
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

/// The paths of all pages, with those of one user and one endpoint, and the file of the audit.
fn all_pages(user: UserId, endpoint: &Hook) -> Vec<String> {
    let single = [
        format!("/operator/users/{user}"),
        format!("/operator/deliveries/{}", endpoint.endpoint.id),
        "/operator/audit.csv".to_owned(),
    ];
    PAGES.into_iter().map(str::to_owned).chain(single).collect()
}

/// Whatever is asked for and sent, everybody else gets what an address without a page gives.
#[tokio::test]
async fn pages_are_for_operators_and_show_no_account() {
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

    // Forms of other sites change no user.
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

    // The pages work without the operator's API, and show neither an account nor an amount of
    // anybody.
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

    // The flag ends with the next request, with the menu, and with what Settings say to an
    // operator.
    let browser = app.sign_in_operator().await;
    let keys = browser.get("/keys").await;
    keys.assert_has("href=\"/operator/users\"");
    let command = "user set</code> on the server changes it.";
    browser.get("/settings").await.assert_has(command);
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
    browser.get("/settings").await.assert_lacks(command);
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
