//! The console in a real browser, every page and action, with axe, at 360 and 1280 pixels, light
//! and dark.

use std::time::Duration;

use bellbird_connections::LinkTarget;
use bellbird_domain::{Plan, UserId};
use bellbird_sandbox::{ConsentState, Fault};
use serde_json::json;

use super::SIGNED_OUT;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Person, Setup};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, text};
use crate::support::words::assert_has;

impl Browser {
    /// A browser of that size in which a user is signed in.
    pub(super) async fn of_user(app: &App, user: UserId, width: u32, height: u32) -> Self {
        let mut browser = Self::start();
        browser.size(width, height, false);
        browser.open(&app.sign_in_link(user).await);
        browser.click("button.strong");
        browser
    }

    #[track_caller]
    pub(super) fn assert_at(&mut self, end: &str) {
        let url = self.url();
        assert!(url.ends_with(end), "{url}: {}", self.text());
    }

    #[track_caller]
    pub(super) fn assert_hides(&mut self, words: &str) {
        let text = self.text();
        assert!(!text.contains(words), "{words:?} in {text}");
    }
}

/// Whether the page is what was asked: loaded within its size, and without a shift of its layout.
fn assert_light(browser: &mut Browser, name: &str) {
    let size = browser.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize");
    assert!(size.as_u64().unwrap() <= 100 * 1024, "{name}: {size} bytes");
    let shift = browser.evaluate(
        "new Promise(resolve => { const moved = []; new PerformanceObserver(list => \
         list.getEntries().forEach(entry => entry.sources.forEach(({node}) => \
         moved.push((node?.outerHTML ?? node?.textContent ?? '').slice(0, 100))))) \
         .observe({type: 'layout-shift', buffered: true}); setTimeout(() => resolve(moved), 50) })",
    );
    assert_eq!(shift, json!([]), "{name}: the layout shifts");
    let scripts =
        browser.evaluate("[...document.scripts].map(script => new URL(script.src).pathname)");
    let scripts = scripts.as_array().unwrap();
    assert!(
        scripts.len() == 1 && scripts[0].as_str().unwrap().starts_with("/assets/console-"),
        "{name}: {scripts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_sign_in_link_through_every_page() {
    let app = App::start(Default::default()).await;
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    browser.open(&format!("{}/keys", app.console_url));
    browser.assert_at("/sign-in");
    browser.assert_accessible("console-sign-in");
    browser.open(&app.sign_in_link(app.olivia.user.id).await);
    browser.assert_accessible("console-sign-in-link");
    browser.click("button.strong");
    browser.assert_at("/keys?first");
    browser.assert_accessible("console-first-sign-in");
    browser.click("section.attention a.button");
    browser.assert_at("/overview");
    assert_light(&mut browser, "overview");
    assert!(
        browser.has("svg rect.in") && browser.has("svg rect.out"),
        "{}",
        browser.text()
    );
    browser.size(360, 800, false);
    browser.open(&format!("{}/overview", app.console_url));
    assert_light(&mut browser, "overview on a phone");
    browser.assert_accessible("console-overview");
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
    browser.assert_accessible("console-overview-open");

    for (path, name) in [
        ("/transactions", "Transactions"),
        ("/investments", "Investments"),
        ("/programs", "Programs"),
        ("/connections", "Banks"),
        ("/keys", "API keys"),
        ("/webhooks", "Webhooks"),
        ("/settings", "Settings"),
    ] {
        browser.click(&format!("nav a[href='{path}']"));
        assert_eq!(
            browser.evaluate("document.querySelector('h1').textContent"),
            name
        );
        assert_light(&mut browser, path);
        browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
        browser.assert_accessible(&format!("console{}", path.replace('/', "-")));
    }
    browser.click("form[action$='/sign-out'] button");
    browser.assert_at(SIGNED_OUT);
    browser.assert_accessible("console-signed-out");
    for path in ["/overview", "/keys"] {
        browser.open(&format!("{}{path}", app.console_url));
        browser.assert_at("/sign-in");
    }
    // The browser has kept nothing: it would have to submit the form of the page before again.
    browser.leave("back", |browser| drop(browser.evaluate("history.go(-3)")));
    browser.assert_hides("olivia@example.com");
}

/// Amounts of 35 digits and 30 places, quantities of 18 places and odd texts move nothing else: no
/// text gets a narrow column, nothing leaves its card, and the sums open their exact digits.
#[tokio::test(flavor = "multi_thread")]
async fn odd_numbers_fit_and_everyday_tasks_take_few_clicks() {
    /// Texts with less room than eight digits, and what is wider than the card around it.
    const MISFITS: &str = "(() => { const misfits = []; \
        for (const one of document.querySelectorAll('.entries .what, .card th[scope=row]')) { \
            const room = one.getBoundingClientRect().width; \
            const digit = parseFloat(getComputedStyle(one).fontSize) * 0.55; \
            if (room > 0 && room < 8 * digit) misfits.push(`narrow: ${room} ${one.outerHTML}`); } \
        for (const card of document.querySelectorAll('.card')) \
            for (const one of card.querySelectorAll('*:not(.visually-hidden)')) \
                if (one.getBoundingClientRect().right > card.getBoundingClientRect().right + 0.5) \
                    misfits.push(`beyond its card: ${one.outerHTML.slice(0, 200)}`); \
        return misfits; })()";
    /// Names of holdings that have less than a whole line of a phone.
    const NARROW_NAMES: &str = "[...document.querySelectorAll('.holdings .name')] \
        .filter(one => one.offsetWidth < one.closest('li').clientWidth - 1) \
        .map(one => one.textContent)";
    /// Amounts that are painted above the tabs of a phone when they are scrolled to them.
    const ABOVE_TABS: &str = "(() => { \
        const { top, height } = document.querySelector('.tabs').getBoundingClientRect(); \
        const above = [...document.querySelectorAll('.exact summary')].filter(one => { \
            scrollBy(0, one.getBoundingClientRect().top - top - height / 3); \
            const { left, right, top: from, bottom } = one.getBoundingClientRect(); \
            const [x, y] = [(left + right) / 2, (from + bottom) / 2]; \
            return y > top && document.elementFromPoint(x, y) === one; }); \
        scrollTo(0, 0); \
        return above.map(one => one.outerHTML); })()";
    let app = App::start(Setup::default()).await;
    let credentials = [
        &app.credentials_of("fiskil")[4],
        &app.credentials_of("snaptrade")[0],
        &app.credentials_of("akahu")[0],
    ];
    let email = format!("{}@example.com", "a".repeat(43));
    let person = app
        .add_person(&email, Plan::Professional, &credentials)
        .await;
    let mut browser = Browser::of_user(&app, person.user.id, 1280, 900).await;
    for width in [360, 768, 1280] {
        browser.size(width, 800, false);
        for path in [
            "/overview",
            "/overview?period=12-months",
            "/overview?period=last-month",
            "/investments",
        ] {
            let name = format!("{path} at {width}");
            browser.open(&format!("{}{path}", app.console_url));
            assert_light(&mut browser, &name);
            assert_eq!(browser.evaluate(MISFITS), json!([]), "{name}");
            if width == 360 {
                assert_eq!(browser.evaluate(NARROW_NAMES), json!([]), "{name}");
                assert_eq!(browser.evaluate(ABOVE_TABS), json!([]), "{name}");
            }
            browser.evaluate(
                "document.querySelectorAll('main details').forEach(one => one.open = !one.name)",
            );
            assert_eq!(browser.evaluate(MISFITS), json!([]), "{name}, open");
            if width == 1280 {
                browser.assert_accessible(&format!("money{}", path.replace(['/', '?', '='], "-")));
            }
        }
    }

    // A long word has a line on the narrowest phone.
    browser.size(320, 800, false);
    browser.open(&format!("{}/overview", app.console_url));
    let lines = browser.evaluate(
        "(() => { document.querySelectorAll('main details').forEach(one => one.open = !one.name); \
         const name = document.querySelector('[slot=balances]:not(.awaited) .entries .what bdi'); \
         name.textContent = 'International'; \
         return name.getClientRects().length; })()",
    );
    assert_eq!(lines, 1);

    // On a phone, from the overview: a transaction of months ago in two clicks, whichever account
    // it is in, and the rows behind the sum of a category in one. When the plan reads nothing any
    // more, the user is told so, and offered nothing.
    let mut old = Vec::new();
    for (account, _) in app.accounts_by(&app.ben).await {
        let rows = app.transactions(&account).by(&app.ben).from("2026-04-01");
        old.extend(rows.all(200).await);
    }
    let wanted = old.iter().find(|row| row.date.starts_with("2026-04"));
    let wanted = wanted.expect("a row of April");
    browser.size(360, 780, false);
    browser.open(&app.sign_in_link(app.ben.user.id).await);
    browser.click("button.strong");

    browser.click("nav a[href='/overview']");
    browser.click("nav a[href='/transactions']");
    browser.write("#search", &wanted.description);
    browser.click("form.search button");
    let text = browser.text();
    assert_has(&text, " Apr 2026");

    browser.click("nav a[href='/overview']");
    browser.click("[slot=money]:not(.awaited) .chip[href*='12-months']");
    browser.assert_at("#money");
    browser.wait_for("Math.abs(document.querySelector('#money').getBoundingClientRect().top) < 32");
    browser.click(".bars a.what");
    assert!(browser.url().contains("category="), "{}", browser.url());
    assert!(browser.has(".transactions > li"), "{}", browser.text());

    app.set_plan(app.ben.user.id, Plan::Saver).await;
    browser.size(1280, 800, false);
    for path in ["/overview", "/keys", "/webhooks", "/connections"] {
        browser.click(&format!("nav a[href='{path}']"));
        browser.assert_shows("Your plan (saver) does not include");
        browser.assert_accessible(&format!("console-saver{}", path.replace('/', "-")));
    }
    browser.open(&format!("{}/nothing", app.console_url));
    assert!(browser.has("nav a[href='/overview']"), "{}", browser.text());
    browser.assert_accessible("console-missing");
}

/// Over plain HTTP at an address of a home network, to which browsers send no `Sec-Fetch-Site`. The
/// packets stay on this machine, and the browser does not know.
#[tokio::test(flavor = "multi_thread")]
async fn console_works_over_http_in_a_home_network() {
    const LAN: &str = "http://192.168.77.5:8081";
    let app = App::start(Setup::with(|settings| {
        settings.console.public_url = Some(LAN.to_owned());
    }))
    .await;
    let address = app.console_url.trim_start_matches("http://");
    let mut browser = Browser::start_with(&format!(
        "--host-resolver-rules='MAP 192.168.77.5:8081 {address}, MAP other.lan {address}'"
    ));
    browser.size(1280, 800, false);
    let at_lan = |url: String| url.replace(&app.console_url, LAN);
    let user = app.ben.user.id;
    browser.open(&at_lan(app.sign_in_link(user).await));
    assert_eq!(browser.evaluate("isSecureContext"), false);
    browser.click("button.strong");
    assert_eq!(
        browser.url(),
        format!("{LAN}/keys?first"),
        "{}",
        browser.text()
    );
    browser.click("nav a[href='/keys']");
    browser.write("#name", "Spreadsheet");
    browser.click("form.line button");
    browser.press(".card.good .copy button");
    browser
        .wait_for("document.querySelector('.card.good .copy button').textContent === 'Selected'");
    browser.click("nav a[href='/connections']");
    browser.press(".banks summary");
    browser.press(".question summary");
    browser.click("button[name=confirm-removal]");
    browser.assert_shows("is removed");

    // The page of a link, whose form another site submits too.
    let link_url = at_lan(app.link_url(user, LinkTarget::UserChoice).await);
    browser.open("http://other.lan/link/none");
    browser.evaluate(&format!(
        "document.body.innerHTML = `<form method=post action='{link_url}'><button name=provider \
         value=akahu>Win</button></form>`, null"
    ));
    browser.click("button[name=provider]");
    browser.assert_shows("Nothing was changed");
    assert_eq!(
        browser.evaluate("document.referrer"),
        "",
        "no page tells another site its URL"
    );
    browser.open(&link_url);
    browser.click("button[name=provider][value=akahu]");
    assert!(
        !browser.url().starts_with(LAN),
        "at the provider: {}",
        browser.text()
    );

    browser.open(&format!("{LAN}/overview"));
    browser.click("form[action$='/sign-out'] button");
    assert_eq!(
        browser.url(),
        format!("{LAN}{SIGNED_OUT}"),
        "{}",
        browser.text()
    );
}

async fn person_with_odd_rows(app: &App) -> Person {
    let (fiskil, akahu) = (app.credentials_of("fiskil"), app.credentials_of("akahu"));
    let all = [&fiskil[5], &akahu[0], &akahu[3]];
    app.add_person("all@example.com", Plan::Professional, &all)
        .await
}

/// Rows with the oddest texts and amounts, a slow bank and a broken one, on a phone.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_fit_a_phone() {
    // On a busy machine too, a page has each row once.
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::from_secs(3_600);
    }))
    .await;
    let person = person_with_odd_rows(&app).await;
    let mut browser = Browser::of_user(&app, person.user.id, 360, 780).await;
    let page = format!("{}/transactions", app.console_url);
    browser.open(&page);
    assert_light(&mut browser, "transactions on a phone");
    let top = browser.evaluate("document.querySelector('.transactions li').offsetTop");
    assert!(
        top.as_u64().unwrap() < 780 - 56 - 56,
        "{top}: {}",
        browser.text()
    );
    let height = browser.evaluate(
        "[...document.querySelectorAll('.transactions li')].map(row => row.offsetHeight) \
         .sort((a, b) => a - b)[25]",
    );
    assert!(height.as_u64().unwrap() <= 58, "half of the rows: {height}");
    browser.assert_accessible("console-transactions-odd");
    browser.press(".transactions summary");
    browser.wait_for("document.querySelector('details[open] dl dt')?.textContent === 'Account'");
    browser.assert_accessible("console-transactions-open-row");
    browser.press(".transactions summary");
    for width in [1280, 360] {
        browser.size(width, 780, false);
        browser.evaluate("document.querySelector('.rows-head .chip').open = true, null");
        let covered = browser.evaluate(
            "document.querySelector('.rows-head .panel').getBoundingClientRect().top \
             < document.querySelector('.rows-head:has(.chip) [role=status]') \
             .getBoundingClientRect().bottom",
        );
        assert_eq!(covered, false, "the files cover the sums at {width}");
        browser.evaluate("document.querySelector('.rows-head .chip').open = false, null");
    }
    // While a name can give way, nothing but names and texts does: what lacked a fraction of a
    // pixel would lose letters.
    for width in [320, 360, 768] {
        browser.size(width, 780, false);
        let cut = browser.evaluate(
            "[...document.querySelectorAll('.transactions .item:not(.text, .wide-only, :has(bdi + bdi))')] \
             .filter(one => one.scrollWidth > one.clientWidth \
             && one.parentElement.querySelector('.item:has(bdi + bdi)')?.offsetWidth !== 96) \
             .map(one => one.textContent)",
        );
        assert_eq!(cut, json!([]), "at {width}");
    }
    browser.size(360, 780, false);
    // The number of an account stays, however long its name is.
    let numbers = browser.evaluate(
        "(() => { const numbers = [...document.querySelectorAll('.transactions .item bdi + bdi')]; \
         for (const one of numbers) one.previousElementSibling.textContent = 'Everyday'.repeat(9); \
         const end = one => one.getBoundingClientRect().right; \
         return [numbers.length > 0, numbers.every(one => \
         ['.item', '.detail'].every(of => end(one) <= end(one.closest(of)) + 0.5))]; })()",
    );
    assert_eq!(numbers, json!([true, true]));
    for (number, name) in [(1, "account"), (2, "period"), (3, "category")] {
        browser.evaluate(&format!(
            "document.querySelector('.filters details:nth-of-type({number})').open = true, null"
        ));
        browser.assert_accessible(&format!("console-transactions-{name}"));
    }

    browser.size(360, 780, false);
    app.set_consent(&person.connections[1], ConsentState::Revoked)
        .await;
    app.bank("fiskil").add_fault(Fault::status(500));
    app.advance_clock(jiff::SignedDuration::from_secs(61));
    browser.open(&format!("{page}?search=a"));
    assert_light(&mut browser, "broken banks");
    browser.assert_accessible("console-transactions-broken");
    assert!(
        browser.has(".trouble form button") && browser.has(".trouble a.button"),
        "{}",
        browser.text()
    );
    browser.open(&format!("{page}?from=2026-02-15&to=2026-02-14"));
    assert!(browser.has("details[open] #to-error"), "{}", browser.text());
    browser.assert_accessible("console-transactions-days");

    // The first rows do not wait for a slow bank.
    let app = App::start(Default::default()).await;
    let person = person_with_odd_rows(&app).await;
    browser.size(360, 780, false);
    browser.open(&app.sign_in_link(person.user.id).await);
    browser.click("button.strong");
    app.bank("akahu").add_fault(Fault::delay_ms(1_500));
    browser.open(&format!("{}/transactions?category=INCOME", app.console_url));
    assert_light(&mut browser, "slow transactions");
    browser.assert_hides("Still asking");
}

/// CONTRIBUTING.md says how this makes the pictures.
#[test]
fn demo_has_the_pages_of_docs_pictures() {
    let workdir = Workdir::new();
    let line = format!("demo --json --seed 7 --log-level error {ANY_PORTS}");
    let demo = RunningCommand::start(&workdir, &line);
    let ready = demo.json();
    let console = text(&ready, "consoleUrl");
    let mut browser = Browser::start();
    browser.open(console);
    browser.click("form[action$='/demo/sign-in'] button");
    for (path, name, height) in [
        ("/overview", "overview", 1280),
        ("/connections", "connections", 900),
        ("/operator/health", "health", 1180),
    ] {
        browser.open(&format!("{console}{path}"));
        browser.assert_at(path);
        browser.picture(name, 1120, height);
    }
}
