//! The page of transactions and its file, compared with `/v1`.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::{Decimal, ExactSum, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use jiff::civil::Date;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::SignedIn;
use super::pages::text_of;
use crate::support::client::Transaction;
use crate::support::harness::{App, Person, Setup, eventually};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

pub(super) const ACCOUNT_GONE: &str =
    "The account that was chosen is not linked any more, so all accounts are shown. ";

/// What the page and the API say of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    day: String,
    currency: String,
    amount: String,
}

impl Listed {
    fn of(row: &Transaction) -> Self {
        Self {
            day: heading(&row.date),
            currency: row.currency.clone(),
            amount: plain(&row.amount),
        }
    }
}

fn heading(day: &str) -> String {
    let day: Date = day.parse().unwrap();
    day.strftime("%a %-d %b %Y").to_string()
}

/// Without commas and without zeros at the end.
fn plain(amount: &str) -> String {
    let amount = amount.replace(',', "").replace('\u{2212}', "-");
    match amount.contains('.') {
        true => amount
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => amount,
    }
}

/// The rows of the last part of the page.
fn listed(page: &str) -> Vec<Listed> {
    let part = page.rsplit("<div class=\"rows-head\">").next().unwrap();
    rows_in(part)
}

fn rows_in(part: &str) -> Vec<Listed> {
    let mut rows = Vec::new();
    for group in part.split("<h2 class=\"group\">").skip(1) {
        let day = group.split('<').next().unwrap();
        for row in group.split("<span class=\"what\">").skip(1) {
            let (_, money) = row.split_once("class=\"currency\">").unwrap();
            let (currency, money) = money.split_once("</span> ").unwrap();
            // All digits of a long one are in the opened row.
            let exact = row.split_once("<dt>Amount</dt><dd><bdi>");
            let amount = exact.map_or(money, |(_, exact)| exact);
            let amount = amount.split('<').next().unwrap();
            rows.push(Listed {
                day: day.to_owned(),
                currency: currency.to_owned(),
                amount: plain(amount),
            });
        }
    }
    rows
}

/// The query of the link to older rows.
fn older(page: &str) -> Option<String> {
    let (before, _) = page.split_once("\" rel=\"next\"")?;
    let link = before.rsplit("href=\"").next()?;
    Some(link.replace("&#38;", "&"))
}

fn sorted(mut rows: Vec<Listed>) -> Vec<Listed> {
    rows.sort_unstable();
    rows
}

/// The rows of all bank accounts from a day on, by the API.
async fn rows_of_api(app: &App, person: &Person, from: &str) -> Vec<Transaction> {
    let mut rows = Vec::new();
    for (account, _) in app.accounts_by(person).await {
        if account.provider != "snaptrade" {
            let read = app.transactions(&account).by(person).from(from);
            rows.extend(read.all(500).await);
        }
    }
    app.reset_calls();
    rows
}

/// A user of an Australian and a New Zealand bank, and one with odd rows.
async fn person_of_two_providers(app: &App) -> Person {
    let (fiskil, akahu) = (app.credentials_of("fiskil"), app.credentials_of("akahu"));
    let all = [&fiskil[5], &akahu[0]];
    let person = app
        .add_person("two@example.com", Plan::Professional, &all)
        .await;
    app.reset_calls();
    person
}

#[tokio::test]
async fn page_shows_the_rows_of_the_api() {
    // Pages are compared, so none has the rows of the first part that a busy machine sends.
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::from_secs(3_600);
    }))
    .await;
    let browser = app.sign_in(app.olivia.user.id).await;
    days_are_what_they_say(&app, &browser).await;
    rows_of_all_accounts_are_listed_newest_first(&app, &browser).await;
    filters_combine_and_the_file_has_what_the_page_shows(&app, &browser).await;
    search_reads_a_year_and_says_so(&app, &browser).await;

    // A query takes no nonsense.
    let browser = app.sign_in(app.ben.user.id).await;
    let (account, _) = app.busiest().await;
    let own = browser.get("/transactions").await;
    assert!(!listed(&own.text).is_empty());
    let other = format!("account={}", account.id);
    for query in [
        &*other,
        "account=%00",
        "category=%22%3E%3Cb%3E&period=-1",
        "pages=1_~x",
        "pages=50_99999999999999999999999999999999999999999999",
        "a=b",
    ] {
        let page = browser.get(&format!("/transactions?{query}")).await;
        page.assert_status(200);
        page.assert_lacks("\"><b>");
        // Another user's account is as one that nobody has.
        let shown = text_of(&page.text);
        let is_account = query.starts_with("account=");
        assert_eq!(shown.contains(ACCOUNT_GONE), is_account, "{query}");
        let shown = shown.replace(ACCOUNT_GONE, "");
        assert!(shown == text_of(&own.text), "{query}: {shown}");
    }
}

async fn rows_of_all_accounts_are_listed_newest_first(app: &App, browser: &SignedIn<'_>) {
    let expected = rows_of_api(app, &app.olivia, "2026-08-01").await;
    let accounts: BTreeSet<&str> = expected.iter().map(|row| &*row.account_id).collect();
    assert!(expected.len() > 100 && accounts.len() > 2);
    let (mut path, mut rows) = ("/transactions?from=2026-08-01".to_owned(), Vec::new());
    loop {
        let page = browser.get(&path).await;
        page.assert_status(200);
        let shown = listed(&page.text);
        let (first, last) = (rows.len() + 1, rows.len() + shown.len());
        rows.extend(shown);
        let Some(next) = older(&page.text) else {
            let shown = match first == last {
                true => format!("{last} of {last} "),
                false => format!("{first} to {last} of {last} "),
            };
            page.assert_has(&shown);
            break;
        };
        page.assert_has(&format!("{first} to {last} "));
        // A sum of one page of many would mean nothing.
        page.assert_lacks("Sum: ");
        path = next;
    }
    let mut days: Vec<&String> = rows.iter().map(|row| &row.day).collect();
    days.dedup();
    let different: BTreeSet<&&String> = days.iter().collect();
    assert_eq!(
        days.len(),
        different.len(),
        "each day is one group: {days:?}"
    );
    assert_eq!(
        sorted(rows),
        sorted(expected.iter().map(Listed::of).collect())
    );
}

async fn filters_combine_and_the_file_has_what_the_page_shows(app: &App, browser: &SignedIn<'_>) {
    let (account, _) = app.busiest().await;
    let rows = rows_of_api(app, &app.olivia, "2026-08-20").await;
    let category = rows
        .iter()
        .filter(|row| row.account_id == account.id)
        .find_map(|row| row.category.clone())
        .unwrap();
    let query = format!("account={}&period=3m&category={category}", account.id);
    let page = browser.get(&format!("/transactions?{query}")).await;
    let is_chosen = |row: &&Transaction| {
        row.account_id == account.id && row.category.as_ref() == Some(&category)
    };
    let expected: Vec<Listed> = rows.iter().filter(is_chosen).map(Listed::of).collect();
    let expected = sorted(expected);
    assert!(expected.len() > 1 && expected.len() <= 50);
    assert_eq!(sorted(listed(&page.text)), expected);
    // All of them are on the page, so it has their sum.
    let mut sum = ExactSum::default();
    for row in &expected {
        assert!(sum.add(&Decimal::parse(&row.amount).unwrap()));
    }
    let together = text_of(&page.text)
        .replace(',', "")
        .replace('\u{2212}', "-");
    let (_, together) = together.split_once("Sum: ").unwrap();
    let mut words = together.split(' ');
    assert_eq!(words.next(), Some(&*expected[0].currency));
    // All digits follow a number that is cut off.
    let shown = words.next().filter(|shown| !shown.ends_with('…'));
    let shown = shown.or_else(|| words.next()).unwrap();
    let sum = sum.to_decimal().to_string();
    assert_eq!(plain(shown.trim_end_matches('.')), plain(&sum));
    for link in [
        format!("?period=3m&#38;category={category}\""),
        format!(
            "?account={}&#38;period=12m&#38;category={category}\"",
            account.id
        ),
        format!("?account={}&#38;period=3m&#38;category=none\"", account.id),
        format!("/transactions.csv?{}\"", query.replace('&', "&#38;")),
    ] {
        page.assert_has(&link);
    }
    let what = match expected.len() {
        1 => "this row".to_owned(),
        rows => format!("these {rows} rows"),
    };
    page.assert_has(&format!("Download {what} (CSV)"));

    let file = browser.get(&format!("/transactions.csv?{query}")).await;
    file.assert_status(200);
    let text = file
        .text
        .strip_prefix('\u{feff}')
        .expect("a spreadsheet opens it");
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "Date,Account,Bank,Description,Merchant,Category,Amount,Currency,Status,Id"
    );
    let in_file = lines.map(|line| {
        let mut fields = line.rsplit(',');
        assert_eq!(fields.nth(1), Some("posted"), "{line}");
        Listed {
            day: heading(&line[..10]),
            currency: fields.next().unwrap().to_owned(),
            amount: plain(fields.next().unwrap()),
        }
    });
    assert_eq!(sorted(in_file.collect()), expected);
    let disposition = file.headers["content-disposition"].to_str().unwrap();
    assert_starts(disposition, "attachment");
    let all = browser.get("/transactions.csv?period=3m").await;
    assert_eq!(all.text.lines().count(), rows.len() + 1);

    // An account that is gone is not all accounts.
    let gone = format!("account={}", bellbird_domain::AccountId::new());
    for kind in [
        "transactions.csv",
        "transactions.ofx",
        "trades.csv",
        "holdings.csv",
    ] {
        let file = browser.get(&format!("/{kind}?{gone}")).await;
        file.assert_shows(400, "There is no file");
        file.assert_lacks("Try again");
    }

    // With an old version of HTTP, a file that is cut off would look whole.
    let host = app.console_url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = format!(
        "GET /transactions.csv HTTP/1.0\r\ncookie: bellbird-session={}\r\n\r\n",
        browser.cookie
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_has(&text, "There is no file");
    assert_has(&text, "HTTP/1.1");
}

async fn search_reads_a_year_and_says_so(app: &App, browser: &SignedIn<'_>) {
    let rows = rows_of_api(app, &app.olivia, "2025-11-20").await;
    let is_old =
        |row: &&Transaction| row.date.as_str() < "2026-06" && plain(&row.amount).contains('.');
    let old = rows.iter().find(is_old).unwrap();
    let wanted = plain(&old.amount).trim_start_matches('-').to_owned();
    let page = browser
        .get(&format!("/transactions?search=%24{wanted}0"))
        .await;
    let expected = rows
        .iter()
        .filter(|row| plain(&row.amount).trim_start_matches('-') == wanted);
    let expected = sorted(expected.map(Listed::of).collect());
    assert_eq!(sorted(listed(&page.text)), expected);
    assert!(!expected.is_empty());
    page.assert_has(&format!("{0} of {0} since 20 Nov 2025 in ", expected.len()));
    page.assert_has("?period=24m&#38;search=%24");

    let word = old.description.split(' ').next().unwrap().to_uppercase();
    let page = browser
        .get(&format!("/transactions?search={word}&period=12m"))
        .await;
    let has = |row: &&Transaction| {
        let texts = [Some(&row.description), row.merchant_name.as_ref()];
        let mut texts = texts.into_iter().flatten();
        texts.any(|text| text.to_uppercase().contains(&word))
    };
    let found = rows.iter().filter(has).count();
    assert!(
        found > 0 && listed(&page.text).len() >= found.min(50),
        "{word}"
    );

    // All words, of which one is the amount.
    let page = browser
        .get(&format!("/transactions?search={word}+{wanted}&period=12m"))
        .await;
    let both = rows
        .iter()
        .filter(|row| has(row) && plain(&row.amount).trim_start_matches('-') == wanted);
    let both = sorted(both.map(Listed::of).collect());
    assert_eq!(sorted(listed(&page.text)), both);
    assert!(!both.is_empty());

    let none = browser
        .get("/transactions?search=%3Cb%3Eno%20such%20row")
        .await;
    none.assert_shows(200, "None found since 20 Nov 2025 in ");
    none.assert_lacks("<b>no");
}

async fn days_are_what_they_say(app: &App, browser: &SignedIn<'_>) {
    app.reset_calls();
    let page = browser.get("/transactions").await;
    page.assert_shows(200, "since 21 Oct 2026 in ");
    // One page of each bank, however many accounts there are.
    assert_eq!(app.transaction_calls(), app.olivia.connections.len() as u64);
    let pages = ["to=2026-02-15", "from=2026-01-16&to=2026-02-15"];
    let mut shown = Vec::new();
    for query in pages {
        let page = browser.get(&format!("/transactions?{query}")).await;
        page.assert_has("from 16 Jan 2026 to 15 Feb 2026");
        shown.push(listed(&page.text));
    }
    assert!(!shown[0].is_empty());
    assert_eq!(shown[0], shown[1]);
    app.reset_calls();
    for (query, text) in [
        (
            "from=2026-02-15&to=2026-02-14",
            "The first day is after the last one",
        ),
        ("from=yesterday", "This is not a day"),
    ] {
        let page = browser.get(&format!("/transactions?{query}")).await;
        page.assert_shows(200, text);
        page.assert_has("aria-invalid=\"true\"");
        let page = text_of(&page.text);
        assert_lacks(&page, "No transactions");
        assert_lacks(&page, " of 0");
    }
    assert_eq!(app.transaction_calls(), 0);
}

/// The name of the person's bank at a provider.
fn bank_at<'p>(person: &'p Person, provider: &str) -> &'p str {
    let mut connections = person.connections.iter();
    let found = connections.find(|connection| connection.provider == provider);
    &found.unwrap().institution_name
}

#[tokio::test]
async fn slow_or_broken_bank_spoils_only_its_own_rows() {
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::from_secs(1);
    }))
    .await;
    let person = person_of_two_providers(&app).await;
    let browser = app.sign_in(person.user.id).await;
    let whole = listed(&browser.get("/transactions").await.text);
    app.bank("akahu").add_fault(Fault::delay_ms(2_500));
    let slow = bank_at(&person, "akahu");
    let asking = format!("Still asking <bdi>{slow}</bdi> …");
    // On a busy machine, the other bank may be late for the first part too.
    eventually(async || {
        let page = browser.get("/transactions").await;
        assert_eq!(listed(&page.text), whole);
        assert!(page.text.trim_end().ends_with("</html>"));
        let parts: Vec<&str> = page.text.split("<div class=\"rows-head\">").collect();
        let [_, early, _] = &parts[..] else {
            return false;
        };
        let is_other_there = early.contains(&asking) && !rows_in(early).is_empty();
        if is_other_there {
            assert_eq!(early.matches(slow).count(), 1, "its rows are not there");
        }
        is_other_there
    })
    .await;
    app.clear_faults();
    broken_bank_has_a_way_back_and_spoils_no_other(&app, &person, &browser).await;
}

/// A consent that has just ended can look like a bank without rows, beside the rows of others.
#[tokio::test]
async fn bank_that_lists_nothing_is_named() {
    let app = App::start(Setup::default()).await;
    let person = person_of_two_providers(&app).await;
    let browser = app.sign_in(person.user.id).await;
    let silent = &person.connections[0];
    // Its status then counts as known for a minute.
    let refreshes = app.connections.refreshes();
    let _ = refreshes.run(person.user.id, silent.id).await;
    app.set_consent(silent, ConsentState::Revoked).await;
    let page = browser.get("/transactions").await;
    assert!(!listed(&page.text).is_empty());
    page.assert_has(&format!("Nothing came from {}", silent.institution_name));
    for filter in ["search=a", "period=3m"] {
        let page = browser.get(&format!("/transactions?{filter}")).await;
        assert!(!listed(&page.text).is_empty());
        page.assert_lacks("Nothing came from");
    }
}

async fn broken_bank_has_a_way_back_and_spoils_no_other(
    app: &App,
    person: &Person,
    browser: &SignedIn<'_>,
) {
    let broken = &person.connections[1];
    app.bank("akahu").add_fault(Fault::status(500));
    let down = browser.get("/transactions").await;
    app.clear_faults();
    down.assert_has("could not be read.</strong> It does not respond now.");
    down.assert_has(">Try again</a>");
    let others = listed(&down.text);
    assert!(!others.is_empty() && !down.text.contains("Sum: "));
    app.set_consent(broken, ConsentState::Revoked).await;
    app.advance_clock(jiff::SignedDuration::from_secs(61));
    let page = browser.get("/transactions").await;
    page.assert_has(&format!("{}</bdi> needs you.", broken.institution_name));
    page.assert_has(&format!(
        "<form method=\"post\" action=\"/connections\"><button class=\"strong\" name=\"connection\"\n value=\"{}\"",
        broken.id
    ));
    assert_eq!(listed(&page.text), others);
    page.assert_lacks("the user");
    let reconnect = browser
        .post("/connections", &format!("connection={}", broken.id))
        .await;
    assert_eq!(reconnect.status, 303, "to the consent page");

    let whole = browser.get("/transactions.csv").await;
    whole.assert_shows(502, "There is no file");
    whole.assert_has("href=\"/transactions\">Back to the page</a>");
    page.assert_has("/transactions.csv?partial=true");
    let file = browser.get("/transactions.csv?partial=true").await;
    file.assert_status(200);
    // As the page.
    file.assert_lacks(&broken.institution_name);
    let account = app.accounts_by(person).await.into_iter();
    let mut account = account.filter(|(account, _)| account.connection_id == broken.id.to_string());
    let (account, _) = account.next().unwrap();
    let alone = format!("account={}", account.id);
    let page = browser.get(&format!("/transactions?{alone}")).await;
    page.assert_has("needs you.");
    for kind in ["csv", "ofx"] {
        let file = browser.get(&format!("/transactions.{kind}?{alone}")).await;
        file.assert_shows(502, "There is no file");
        file.assert_has(&format!("{} needs you.", broken.institution_name));
    }
}
