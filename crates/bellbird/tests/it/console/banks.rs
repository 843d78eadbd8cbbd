//! The page *Banks*: what it says of each bank, what its buttons do, and where results of linking
//! lead.

use bellbird_domain::{Connection, ConnectionStatus, Plan};
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;
use serde_json::json;

use super::pages::text_of;
use super::{Page, SignedIn};
use crate::linking::chromium::{UserAction, leave_consent_pages};
use crate::support::browser::{client, post};
use crate::support::chromium::Browser;
use crate::support::harness::{App, Person, Setup, simulated_providers};
use crate::support::words::{assert_has, assert_lacks};

/// What a phone shows without scrolling, above the tabs.
const FIRST_SCREEN: &str = "innerHeight - document.querySelector('.tabs').offsetHeight";

/// Of what is simulated, as everything is here.
const MARK: &str = "<span class=\"badge\">Sandbox</span>";

async fn withdraw_consent(app: &App, connection: &Connection) {
    app.set_consent(connection, ConsentState::Revoked).await;
    let user = connection.user_id;
    let _ = app.connections.refreshes().run(user, connection.id).await;
    let found = app.storage.connections().find(user, connection.id).await;
    assert_ne!(found.unwrap().unwrap().status, ConnectionStatus::Active);
}

impl SignedIn<'_> {
    /// Asserts what the page says with the cookies that a removal has set.
    async fn assert_removed(&self, set: &str, name: &str) {
        let url = format!("{}/connections?done=removed&at=banks", self.app.console_url);
        let cookies = format!("bellbird-session={}; {set}", self.cookie);
        let request = client().get(url).header("cookie", cookies);
        let page = Page::of(request.send().await.unwrap()).await;
        page.assert_has(&format!("<bdi>{name}</bdi> is removed."));
    }
}

/// A user with all banks of the sandbox that nobody else has.
async fn with_many_banks(app: &App) -> Person {
    let mut credentials = Vec::new();
    for provider in simulated_providers() {
        credentials.extend(app.credentials_of(provider));
    }
    // Olivia and Ben use the first three.
    let spare: Vec<_> = credentials.iter().skip(3).collect();
    app.add_person("many@example.com", Plan::Professional, &spare)
        .await
}

#[tokio::test]
async fn banks_are_read_and_removed_by_their_user_only() {
    let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
    let (browser, other) = (
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.olivia.user.id).await,
    );
    let connection = app.connections_of(app.ben.user.id).await.remove(0);
    let id = connection.id;
    for form in ["sync", "confirm-removal", "connection"] {
        let page = other.post("/connections", &format!("{form}={id}")).await;
        page.assert_status(404);
    }
    let asked = browser.post("/connections", &format!("sync={id}")).await;
    asked.assert_status(303);
    let to = asked.location.unwrap();
    assert_eq!(to, format!("/connections?done=sync-requested&at={id}#done"));
    let page = browser.get(to.trim_end_matches("#done")).await;
    page.assert_has("Being read now");
    page.assert_has("It is read within a minute");
    // Without the place on the page, so that a browser loads it again and shows the end of it.
    let again = format!("5; url=?done=sync-requested&at={id}");
    assert_eq!(page.headers["refresh"], &*again);
    let (_, row) = page.text.split_once(&format!("id=\"bank-{id}\"")).unwrap();
    assert_has(row, "role=\"status\"");
    assert_has(row, "<details open>");
    app.sync(&connection).await;
    let read = browser.get(to.trim_end_matches("#done")).await;
    let shown = text_of(&read.text);
    assert_has(&shown, "Up to date, just now");
    assert_has(&shown, "It is up to date.");
    assert_lacks(&shown, "within a minute");
    assert!(!read.headers.contains_key("refresh"), "nothing is awaited");

    let form = format!("confirm-removal={id}");
    page.assert_has(&format!("name=\"confirm-removal\" value=\"{id}\""));
    let done = browser.post("/connections", &form).await;
    assert_eq!(
        (done.status, done.location.as_deref()),
        (303, Some("/connections?done=removed&at=banks#done"))
    );
    assert_eq!(app.connections_of(app.ben.user.id).await, []);
    let set = done.set_cookies();
    browser
        .assert_removed(&set, &connection.institution_name)
        .await;
    // Another browser does not know the name.
    let page = browser.get("/connections?done=removed&at=banks").await;
    page.assert_has("The bank is removed.");
    let again = browser.post("/connections", &form).await;
    again.assert_shows(404, "removed already");
    again.assert_has("href=\"/connections\"");
    app.connections.jobs().run_due("removal").await.unwrap();
    let causes: Vec<String> = app
        .audit_of(id)
        .await
        .into_iter()
        .map(|row| row.cause)
        .collect();
    assert_eq!(causes[1..], ["removed", "deleted"]);
    for wrong in [
        "",
        "sync=1",
        "remove=1",
        "provider=none",
        "provider=",
        "x=1",
    ] {
        browser.try_submit("/connections", wrong, 400).await;
    }
    let empty = browser.get("/overview").await;
    empty.assert_has("Nothing is linked yet");
}

/// The broken one is first, in words for its owner, with the button that helps.
#[tokio::test]
async fn banks_are_shown_by_what_their_user_can_do() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let shown = app.connections_of(app.olivia.user.id).await;
    let [first, last] = &shown[..] else {
        panic!("{shown:?}")
    };
    let before = browser.get("/connections").await;
    let place = |page: &str, one: &Connection| page.find(&format!("id=\"bank-{}\"", one.id));
    assert!(place(&before.text, first) < place(&before.text, last));
    before.assert_lacks("Needs you");
    before.assert_has("Up to date, ");
    for account in app.accounts_of(last).await {
        before.assert_has(&format!("href=\"/transactions?account={}\"", account.id));
    }
    before.assert_has(&format!("<code>{}</code>", last.id));
    let policy = before.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains(" http://127.0.0.1:"), "logos: {policy}");

    withdraw_consent(&app, last).await;
    let page = browser.get("/connections").await;
    assert!(place(&page.text, last) < place(&page.text, first));
    let (_, broken) = page.text.split_once("Needs you").unwrap();
    let (broken, linking) = broken.split_once(">Link another").unwrap();
    let (_, working) = linking.split_once(">Linked<").unwrap();
    for words in [
        "Your consent was withdrawn",
        ">Reconnect<",
        "class=\"strong\"",
    ] {
        assert!(broken.contains(words), "no {words:?} in {broken}");
    }
    assert_lacks(working, ">Reconnect<");
    assert_has(working, "Renew consent");
    for words in ["revoked", "the user", "Connected"] {
        page.assert_lacks(words);
    }
    let begun = browser
        .post("/connections", &format!("connection={}", last.id))
        .await;
    begun.assert_status(303);
    assert!(!begun.location.unwrap().starts_with('/'), "at the provider");

    // One outside of the plan asks for nothing.
    let person = app.person_at("snaptrade").await;
    let browser = app.sign_in(person.user.id).await;
    withdraw_consent(&app, &person.connections[0]).await;
    let overview = browser.get("/overview").await;
    overview.assert_has("What needs you");
    app.set_plan(person.user.id, Plan::Developer).await;
    let overview = browser.get("/overview").await;
    assert!(
        !overview.text.contains("What needs you"),
        "it cannot be reconnected"
    );
    let page = browser.get("/connections").await;
    page.assert_has("Brokers: not in your plan.");
    page.assert_has(">Not in your plan<");
    page.assert_lacks("name=\"connection\"");
    page.assert_has("confirm-removal");

    // An unfinished consent is confirmed by the user and in the browser that began it, also without
    // the link that the console made.
    let (owner, other) = (
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.olivia.user.id).await,
    );
    let begin = async || {
        let begun = owner.post("/connections", "provider=fiskil").await;
        begun.assert_status(303);
        begun.set_cookies()
    };
    let (set, set_elsewhere) = (begin().await, begin().await);
    let url = format!("{}/connections", app.console_url);
    let cookies = |of: &SignedIn<'_>, set: &str| format!("bellbird-session={}; {set}", of.cookie);
    let (own, elsewhere, of_other) = (
        cookies(&owner, &set),
        cookies(&owner, &set_elsewhere),
        cookies(&other, &set),
    );
    let show = async |cookies: &str| {
        let request = client().get(&url).header("cookie", cookies);
        Page::of(request.send().await.unwrap()).await
    };
    let page = show(&own).await;
    page.assert_shows(200, "Not finished yet");
    page.assert_has("If you gave none, start again");
    assert!(!page.headers.contains_key("refresh"), "the user is awaited");
    let (_, id) = page.text.split_once("name=\"session\" value=\"").unwrap();
    let session = format!(
        "name=\"session\" value=\"{}\"",
        id.split('"').next().unwrap()
    );
    let form = format!("session={}", id.split('"').next().unwrap());
    let confirm = async |cookies: &str| {
        let request = post(&url, &form).header("cookie", cookies);
        let confirmed = Page::of(request.send().await.unwrap()).await;
        confirmed.assert_leads_to("/connections");
    };
    show(&elsewhere).await.assert_lacks(&session);
    show(&of_other).await.assert_lacks("Not finished yet");
    owner
        .get("/connections")
        .await
        .assert_lacks("Not finished yet");
    owner.try_submit("/connections", &form, 400).await;
    for refused in [&elsewhere, &of_other] {
        confirm(refused).await;
        show(&own).await.assert_has(&session);
    }
    // The button can be pressed twice.
    for _ in 0..2 {
        confirm(&own).await;
        let page = show(&own).await;
        page.assert_lacks("name=\"session\"");
        page.assert_shows(200, "Waiting for");
        page.assert_lacks("If you gave none");
        assert_eq!(
            page.headers["refresh"], "5; url=?",
            "the provider is awaited"
        );
    }
    app.advance_clock(SignedDuration::from_mins(12));
    assert_eq!(show(&own).await.headers["refresh"], "60; url=?");
    // One that repairs a bank names it.
    let bank = &app.ben.connections[0];
    let form = format!("connection={}", bank.id);
    let begun = owner.post("/connections", &form).await;
    let repairing = cookies(&owner, &begun.set_cookies());
    let named = format!(
        "<bdi>{}</bdi>, through Fiskil</strong> {MARK}",
        bank.institution_name
    );
    show(&repairing).await.assert_has(&named);
    // Until another session has renewed it, or it is removed.
    let (_, renewed) = app.reconnect(app.ben.user.id, bank.id).await;
    renewed.assert_shows(200, "is reconnected");
    show(&repairing).await.assert_lacks("Not finished yet");
    app.advance_clock(SignedDuration::from_mins(1));
    let begun = owner.post("/connections", &form).await;
    let repairing = cookies(&owner, &begun.set_cookies());
    show(&repairing).await.assert_has(&named);
    let form = format!("confirm-removal={}", bank.id);
    owner.post("/connections", &form).await.assert_status(303);
    show(&repairing).await.assert_lacks("Not finished yet");
    app.connections.jobs().run_due("removal").await.unwrap();
    let gone = app.storage.connections().find_any(bank.id).await;
    assert_eq!(gone.unwrap(), None);
    show(&repairing).await.assert_lacks("Not finished yet");

    // Two logins at one bank are told apart where one of them is removed.
    app.set_options("fiskil", &json!({"sameIds": false}));
    let (user, first) = app.linked_user("twice@example.com", "fiskil").await;
    app.advance_clock(SignedDuration::from_hours(1));
    let (second, _) = app.link_at(user, "fiskil").await;
    let owner = app.sign_in(user).await;
    let page = owner.get("/connections").await;
    assert_eq!(first[0].institution_name, second[0].institution_name);
    let names: Vec<_> = page
        .text
        .split("<span>Remove\n<bdi>")
        .skip(1)
        .map(|rest| rest.split("</bdi>").next().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_ne!(names[0], names[1]);
    // The line says what the button said, and the audit nothing of an account.
    let form = format!("confirm-removal={}", first[0].id);
    let button = format!("value=\"{}\"><span>Remove\n<bdi>", first[0].id);
    let (_, name) = page.text.split_once(&button).unwrap();
    let name = name.split("</bdi>").next().unwrap();
    assert_ne!(name, first[0].institution_name);
    let done = owner.post("/connections", &form).await;
    owner.assert_removed(&done.set_cookies(), name).await;
    let rows = app.storage.audit().list_before(None, Some(user), 1).await;
    let detail = rows.unwrap().remove(0).detail;
    assert_eq!(detail.as_ref(), Some(&first[0].institution_name));
}

#[tokio::test]
async fn simulated_bank_is_marked_on_every_page_that_names_it() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let (user, bank) = (app.ben.user.id, &app.ben.connections[0]);
    let account = app.accounts_of(bank).await.remove(0).id;
    for path in [
        "/overview".to_owned(),
        "/connections".to_owned(),
        "/transactions".to_owned(),
        format!("/transactions?account={account}"),
        format!("/operator/users/{user}"),
        "/operator/health".to_owned(),
        "/operator/providers".to_owned(),
    ] {
        browser.get(&path).await.assert_has(MARK);
    }
    browser.get("/programs").await.assert_has(" (sandbox)\">");
    let page = browser.get("/transactions").await;
    let said = format!("<bdi>{}</bdi>: simulated", bank.institution_name);
    page.assert_has(&said);

    withdraw_consent(&app, bank).await;
    let page = browser.get("/overview").await;
    let (_, needed) = page.text.split_once("What needs you").unwrap();
    assert_has(needed.split("</section>").next().unwrap(), MARK);
}

mod chromium {
    use super::*;

    /// Linking, reading and removing, by the pages alone, and without the question for another
    /// browser.
    #[tokio::test(flavor = "multi_thread")]
    async fn banks_are_linked_and_removed_without_a_command() {
        let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
        let mut browser = Browser::start();
        browser.size(1280, 800, false);
        let user = app.ben.user.id;
        app.set_plan(user, Plan::Professional).await;
        browser.open(&app.sign_in_link(user).await);
        browser.click("button.strong");
        // No sync runs here, so the page awaits one of each new bank, and loads itself again.
        for provider in simulated_providers() {
            let before = app.connections_of(user).await.len();
            browser.click("nav a[href='/connections']");
            browser.stay();
            browser.click(&format!("button[name=provider][value={provider}]"));
            leave_consent_pages(&mut browser, UserAction::Cancel);
            let text = browser.text();
            assert_has(&text, "You did not give your consent");
            assert_lacks(&text, "your link");
            browser.assert_accessible(&format!("console-declined-{provider}"));
            // Try again.
            browser.click(&format!("button.strong[name=provider][value={provider}]"));
            leave_consent_pages(&mut browser, UserAction::Approve);
            assert!(
                !browser.text().contains("Is that you?")
                    && browser.has("a.button[href='/overview']"),
                "{provider}: {}",
                browser.text()
            );
            browser.assert_accessible(&format!("console-linked-{provider}"));
            // Link another.
            browser.click("a.button.quiet[href='/connections']");
            browser.stay();
            let after = app.connections_of(user).await;
            assert_eq!(after.len(), before + 1, "{provider}: {}", browser.text());
            assert!(
                after
                    .iter()
                    .all(|connection| connection.status == ConnectionStatus::Active)
            );
        }
        browser.assert_accessible("console-banks");
        let linked = app.connections_of(user).await;
        let row = format!("#bank-{}", linked[0].id);
        browser.press(&format!("{row} summary"));
        browser.press(&format!("{row} .question summary"));
        browser.wait_for(&format!("document.querySelector('{row} .question').open"));
        browser.assert_accessible("console-bank-remove");
        browser.click(&format!("{row} button[name=confirm-removal]"));
        browser.stay();
        assert_eq!(app.connections_of(user).await.len(), linked.len() - 1);
        browser.assert_at("?done=removed&at=banks#done");
        browser.wait_for("document.activeElement.id === 'done'");
        browser.assert_accessible("console-bank-removed");

        let row = format!("#bank-{}", linked[1].id);
        browser.press(&format!("{row} summary"));
        browser.click(&format!("{row} button[name=sync]"));
        browser.stay();
        let text = browser.text();
        assert_has(&text, "Being read now");
        assert_has(&text, "within a minute");
        browser.wait_for("document.activeElement.id === 'done'");
        browser.assert_accessible("console-bank-syncing");

        // Of one who has many banks, on a phone: what helps is on the first screen.
        let person = with_many_banks(&app).await;
        assert!(person.connections.len() > 3, "{:?}", person.connections);
        let broken = &person.connections[0];
        withdraw_consent(&app, broken).await;
        browser.size(360, 780, false);
        browser.open(&app.sign_in_link(person.user.id).await);
        browser.click("button.strong");
        browser.open(&format!("{}/overview", app.console_url));
        browser.click("nav a[href='/connections']");
        browser.stay();
        browser.assert_accessible("console-banks-many");
        browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
        browser.assert_accessible("console-banks-many-open");
        browser.size(360, 780, false);
        browser.open(&format!("{}/connections", app.console_url));
        browser.stay();
        let providers =
            browser.evaluate("document.querySelectorAll('button[name=provider]').length");
        assert_eq!(providers, simulated_providers().count());
        let reconnect = format!("button.strong[name=connection][value='{}']", broken.id);
        let bottoms = browser.evaluate(&format!(
            "[...document.querySelectorAll(\"button[name=provider], {reconnect}\")] \
         .map(one => one.getBoundingClientRect().bottom - ({FIRST_SCREEN}))"
        ));
        let bottoms = bottoms.as_array().unwrap();
        assert_eq!(bottoms.len(), simulated_providers().count() + 1);
        assert!(
            bottoms.iter().all(|bottom| bottom.as_f64().unwrap() < 0.0),
            "{bottoms:?}"
        );
        // The second press since the overview.
        browser.click(&reconnect);
        assert!(
            !browser.url().starts_with(&app.console_url),
            "{}",
            browser.url()
        );
        leave_consent_pages(&mut browser, UserAction::Cancel);
        browser.click(&reconnect);
        assert!(
            !browser.url().starts_with(&app.console_url),
            "again: {}",
            browser.url()
        );
    }
}
