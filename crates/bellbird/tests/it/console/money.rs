//! The overview and the investments: their sums are those of the rows that they lead to, and of
//! `/v1`.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::{ConnectionStatus, Decimal, ExactSum, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use jiff::civil::Date;
use serde_json::Value;

use super::SignedIn;
use super::pages::text_of;
use crate::support::client::{Holding, Trade};
use crate::support::harness::{App, Person, Setup};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// A page's text with plain numbers: no commas, and the minus of keyboards.
fn plain_text(html: &str) -> String {
    text_of(html)
        .replace(',', "")
        .replace('\u{2212}', "-")
        .replace("&#38;", "&")
}

/// An amount as pages show it, in a currency of two places. Digits that are left out are marked,
/// and the exact text follows.
fn shown(value: &str) -> String {
    let (whole, places) = value.split_once('.').unwrap_or((value, ""));
    let places = places.trim_end_matches('0');
    if places.len() <= 2 {
        return format!("{whole}.{places:0<2}");
    }
    let is_small = whole.trim_matches(['-', '0']).is_empty() && places.starts_with("00");
    let kept = if is_small { places.len().min(8) } else { 2 };
    match kept == places.len() {
        true => format!("{whole}.{places}"),
        false => format!("{whole}.{}… {value}", &places[..kept]),
    }
}

fn sum<'n>(numbers: impl IntoIterator<Item = &'n str>) -> ExactSum {
    let mut sum = ExactSum::default();
    for number in numbers {
        assert!(sum.add(&Decimal::parse(number).unwrap()));
    }
    sum
}

fn text(sum: &ExactSum) -> String {
    sum.to_decimal().to_string()
}

/// The links of a page to a path, each with its query and the page behind it, up to an end.
fn links<'p>(page: &'p str, path: &str, end: &str) -> Vec<(String, &'p str)> {
    let begin = format!("href=\"{path}?");
    let links = page.split(&*begin).skip(1).map(|rest| {
        let (query, rest) = rest.split_once('"').unwrap();
        let (_, rest) = rest.split_once('>').unwrap();
        (
            query.replace("&#38;", "&"),
            rest.split(end).next().unwrap_or_default(),
        )
    });
    links.collect()
}

/// The amounts behind a link, which are those of the file of its page.
async fn amounts_behind(browser: &SignedIn<'_>, query: &str) -> Vec<String> {
    let file = browser.get(&format!("/transactions.csv?{query}")).await;
    file.assert_status(200);
    let rows = file.text.lines().skip(1).map(|line| {
        let mut fields = line.rsplit(',');
        assert_eq!(fields.nth(2), Some("AUD"), "{line}");
        fields.next().unwrap().to_owned()
    });
    rows.collect()
}

/// Every balance of the API is on the overview, to the digit, and leads to its rows.
#[tokio::test]
async fn overview_shows_what_the_api_says() {
    // The page of an account waits for the balance, however busy the machine is.
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::from_secs(3_600);
    }))
    .await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let page = browser.get("/overview").await.text;
    let accounts = app.all_accounts(&app.olivia).await;
    let balances = app.balances(&app.olivia, &accounts).await;
    assert!(balances.len() > 5);
    let is_open = page.matches("<details class=\"institution\" open>").count() > 0;
    assert_eq!(is_open, balances.len() <= 8, "few accounts show at once");
    let (_, read) = page.rsplit_once("slot=\"balances\"").unwrap();
    let lines = links(read, "/transactions", "</li>");
    let mut all = Vec::new();
    for balance in &balances {
        let account = accounts
            .iter()
            .find(|account| balance.account_id == account.id);
        let account = account.unwrap();
        let amount = balance.current_balance.as_deref().unwrap();
        all.push(amount);
        let expected = format!(
            "{} {} {} {}",
            account.name,
            account.account_number.as_deref().unwrap_or_default(),
            balance.currency.as_deref().unwrap(),
            shown(amount)
        );
        let expected = plain_text(&expected.replace("  ", " "));
        let query = format!("account={}", account.id);
        let line = lines.iter().find(|(found, _)| *found == query);
        assert_eq!(plain_text(line.unwrap().1), expected);
    }
    let net_worth = shown(&text(&sum(all)));
    let text = plain_text(&page);
    assert_has(&text, &format!("AUD {net_worth}"));
    assert_has(&text, "As of ");

    // The page of an account has the same balance, for one call.
    let balance = &balances[0];
    let amount = shown(balance.current_balance.as_deref().unwrap());
    let currency = balance.currency.as_deref().unwrap();
    let said = plain_text(&format!("Balance {currency} {amount} as of "));
    let path = format!("/transactions?account={}", balance.account_id);
    for calls_max in [1, 0] {
        app.reset_calls();
        assert_has(&plain_text(&browser.get(&path).await.text), &said);
        let calls = app.fiskil().calls();
        let calls = calls.get("/v1/banking/balances").copied();
        assert!(calls.unwrap_or_default() <= calls_max, "{calls:?}");
    }
    refresh_reads_again(&app, &browser).await;

    // What the longest period has read answers for the others, for as long as balances are kept.
    app.advance_clock(SignedDuration::from_mins(11));
    let calls = async |query: &str| {
        app.reset_calls();
        let page = browser.get(&format!("/overview{query}")).await.text;
        let (_, money) = page.rsplit_once("slot=\"money\"").unwrap();
        let (_, heading) = money.split_once("<h2>").unwrap();
        let heading = heading.split('<').next().unwrap().to_owned();
        (heading, app.fiskil().total_calls())
    };
    let today: Date = app.clock.now().in_tz("Australia/Sydney").unwrap().date();
    let this_month = today.strftime("Money in and out, %B %Y").to_string();
    let (_, one) = calls("?period=last-month").await;
    let (_, six) = calls("").await;
    assert!(one > 0 && six > 0, "{one} {six}");
    for query in [
        "",
        "?period=6-months",
        "?period=last-month",
        "?currency=NZD",
    ] {
        assert_eq!(calls(query).await.1, 0, "{query}");
    }
    assert_eq!(calls("?period=this-month").await, (this_month, 0));
    let (_, twelve) = calls("?period=12-months").await;
    assert!(twelve > 0 && twelve <= 2 * six, "{six} {twelve}");
    assert_eq!(calls("").await.1, 0);

    // One provider is down: its institutions say so, and everything else is there.
    app.advance_clock(SignedDuration::from_mins(11));
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/balances"));
    let page = browser.get("/overview").await;
    app.clear_faults();
    page.assert_status(200);
    for words in [
        "Net worth",
        "Money in and out",
        "The provider is temporarily unavailable",
        "By month",
        "Try again",
    ] {
        page.assert_has(words);
    }
    assert!(page.text.trim_end().ends_with("</html>"));
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/transactions"));
    let failed = browser.get("/overview?period=12-months").await;
    app.clear_faults();
    failed.assert_has("These sums are not complete");
    failed.assert_has("could not be read.");
    let healthy = browser.get("/overview?period=12-months").await.text;
    // A failure is not cached.
    assert_lacks(&healthy, "not complete");
}

/// A reload takes what was read before, and *Refresh* does not.
async fn refresh_reads_again(app: &App, browser: &SignedIn<'_>) {
    let first = browser.get("/overview").await.text;
    app.advance_own_clock(SignedDuration::from_mins(1));
    app.reset_calls();
    let again = browser.get("/overview").await.text;
    assert_eq!(app.fiskil().calls(), Default::default());
    let as_of = |page: &str| {
        let text = text_of(page);
        let (_, time) = text.split_once("As of ").unwrap();
        time.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(as_of(&first), as_of(&again), "a minute ago");
    let refresh = links(&again, "/overview", "</a>");
    let (query, _) = refresh.iter().find(|(_, text)| *text == "Refresh").unwrap();
    let refreshed = browser.get(&format!("/overview?{query}")).await.text;
    assert_ne!(as_of(&refreshed), as_of(&again));
    assert!(app.transaction_calls() > 0 && app.fiskil().calls()["/v1/banking/balances"] > 0);
    app.reset_calls();
    browser.get(&format!("/overview?{query}")).await;
    assert_eq!(app.fiskil().calls(), Default::default(), "a reload of it");
}

/// The sums of months and categories are those of the rows behind their links, and they add up.
#[tokio::test]
async fn sums_are_those_of_the_rows_behind_their_links() {
    let app = App::start(Setup::default()).await;
    let odd = app.person_at("fiskil").await;
    for (person, has_others) in [(&app.olivia, true), (&odd, false)] {
        let browser = app.sign_in(person.user.id).await;
        let page = browser.get("/overview").await.text;
        let (_, money) = page.rsplit_once("slot=\"money\"").unwrap();
        let in_and_out = |amounts: &[String]| {
            let amounts = amounts.iter().map(String::as_str);
            let (out, money_in): (Vec<&str>, Vec<&str>) =
                amounts.partition(|amount| amount.starts_with('-'));
            (sum(money_in), ExactSum::default().minus(&sum(out)))
        };
        let months = links(money, "/transactions", "</tr>");
        let months: Vec<_> = months
            .iter()
            .filter(|(_, row)| row.contains("<td>"))
            .collect();
        assert_eq!(months.len(), 7, "six and their total");
        for (query, row) in &months {
            let (money_in, out) = in_and_out(&amounts_behind(&browser, query).await);
            let net = money_in.minus(&out);
            let expected = [&money_in, &out, &net].map(|sum| shown(&text(sum)));
            let cells = plain_text(row);
            assert!(cells.ends_with(&expected.join(" ")), "{query}: {cells}");
        }
        let categories = links(money, "/transactions", "</li>");
        let categories: Vec<_> = categories
            .iter()
            .filter(|(query, _)| {
                query.contains("category=") && !query.contains("category=no-transfers")
            })
            .collect();
        assert!(!categories.is_empty());
        let mut listed = ExactSum::default();
        for (query, row) in &categories {
            let (_, out) = in_and_out(&amounts_behind(&browser, query).await);
            let row = plain_text(row);
            assert!(row.ends_with(&shown(&text(&out))), "{query}: {row}");
            listed = listed.plus(&out);
        }
        let last = |text: &str| text.split(' ').next_back().unwrap().to_owned();
        if let Some((_, others)) = money.split_once("<span class=\"what\">Other") {
            let (others, behind) = others.split_once("</summary>").unwrap();
            let behind = links(behind, "/transactions", "</li>").into_iter();
            let behind: Vec<String> = behind
                .filter(|(query, _)| !query.contains("category=no-transfers"))
                .map(|(_, row)| last(&plain_text(row)))
                .collect();
            assert!(sum(behind.iter().map(String::as_str)) == sum([&*last(&plain_text(others))]));
        }
        assert_eq!(money.contains(">Other"), has_others);
        assert_eq!(categories.len() > 8, has_others);
        let (_, total) = money.split_once("<li class=\"total").unwrap();
        let total = plain_text(total.split("</li>").next().unwrap());
        assert!(listed == sum([&*last(&total)]), "{total}");
    }
}

/// In two countries.
async fn person_at_two_banks(app: &App) -> Person {
    let credentials = [
        &app.credentials_of("fiskil")[4],
        &app.credentials_of("akahu")[0],
    ];
    app.add_person("two@example.com", Plan::Professional, &credentials)
        .await
}

#[tokio::test]
async fn bank_that_is_down_is_named_and_its_currency_stays() {
    let app = App::start(Setup::default()).await;
    let person = person_at_two_banks(&app).await;
    let browser = app.sign_in(person.user.id).await;
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/transactions"));
    let page = browser.get("/overview?currency=AUD").await.text;
    let other = browser.get("/overview?currency=QQQ").await.text;
    app.clear_faults();
    let (_, money) = page.rsplit_once("slot=\"money\"").unwrap();
    let chosen = money.split("aria-current=\"true\">").nth(2).unwrap();
    assert_starts(chosen, "AUD");
    assert_has(money, "could not be read");
    assert_lacks(money, "By month, ");
    let (_, money) = other.rsplit_once("slot=\"money\"").unwrap();
    assert_has(money, "By month, NZD");
    assert_lacks(money, ">QQQ<");

    // One currency is shown at a time.
    let first = browser.get("/overview").await.text;
    let chips = links(&first, "/overview", "</a>");
    let of_currency = |code: &str| {
        let end = format!("currency={code}#money");
        let chip = chips.iter().find(|(query, _)| query.ends_with(&end));
        chip.map(|(query, _)| query.clone())
    };
    for code in ["AUD", "NZD"] {
        let query = of_currency(code).expect("a chip of the currency");
        let page = browser.get(&format!("/overview?{query}")).await.text;
        let (_, money) = page.rsplit_once("slot=\"money\"").unwrap();
        assert_eq!(money.matches("By month, ").count(), 1);
        assert_has(money, &format!("By month, {code}"));
        let chosen = money.split("aria-current=\"true\">").nth(2).unwrap();
        assert_starts(chosen, code);
    }

    // A bank that does not respond is named before the sums of the others.
    app.advance_clock(SignedDuration::from_mins(11));
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/balances"));
    let page = browser.get("/overview").await.text;
    app.clear_faults();
    let (_, balances) = page.split_once("As of ").unwrap();
    let (troubles, sums) = balances.split_once("<ul class=\"figures\">").unwrap();
    let text = text_of(troubles);
    let said = "could not be read. It does not respond now.";
    assert_has(&text, said);
    assert_has(&text, "Try again");
    assert_has(sums, "NZD");
    assert_has(sums, "not in the sums");
    let (figures, _) = sums.split_once("</ul>").unwrap();
    assert_has(&text_of(figures), "AUD –");
}

/// It keeps no row waiting, and does not look as if there was none.
#[tokio::test]
async fn page_says_that_the_balance_is_late() {
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::ZERO;
    }))
    .await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let (account, _) = app.busiest().await;
    let slow = Fault::delay_ms(60_000).at("/v1/banking/balances");
    app.fiskil().add_fault(slow);
    let path = format!("/transactions?account={}", account.id);
    let page = browser.get(&path).await;
    app.clear_faults();
    page.assert_has("The balance takes longer.");
    page.assert_has("<ul class=\"entries transactions\">");
}

/// A bank whose consent has ended comes first, with the button that helps.
#[tokio::test]
async fn overview_says_what_needs_the_user() {
    let app = App::start(Setup::default()).await;
    let browser: SignedIn<'_> = app.sign_in(app.ben.user.id).await;
    let connection = app.connections_of(app.ben.user.id).await.remove(0);
    let button = format!("name=\"connection\"\n value=\"{}\"", connection.id);
    let figures = |page: &str| {
        let (_, figures) = page.rsplit_once("<ul class=\"figures\">").unwrap();
        text_of(figures.split("</ul>").next().unwrap())
    };
    let before = browser.get("/overview").await;
    assert_ne!(figures(&before.text), "AUD –");
    app.set_consent(&connection, ConsentState::Revoked).await;
    let _ = app
        .connections
        .refreshes()
        .run(app.ben.user.id, connection.id)
        .await;
    let now = app.connections_of(app.ben.user.id).await.remove(0);
    assert_ne!(now.status, ConnectionStatus::Active);
    let page = browser.get("/overview").await;
    let (_, needed) = page.text.split_once("What needs you").unwrap();
    let words = format!(
        "{} needs you. Your consent was",
        connection.institution_name
    );
    assert!(text_of(needed).contains(&words), "{needed}");
    assert_eq!(page.text.matches(&button).count(), 1, "said once");
    assert_eq!(figures(&page.text), "AUD –", "no balance of before");
    let page = browser.get("/connections").await;
    page.assert_has(">Reconnect<");
    let changed = [
        "<summary>History</summary>",
        "<li>Your consent was withdrawn <span",
    ];
    assert!(
        changed.iter().all(|words| page.text.contains(words)),
        "{}",
        page.text
    );
}

/// Nothing is wrong yet, so one line with its button is enough.
#[tokio::test]
async fn consent_that_ends_soon_is_one_line() {
    let app = App::start(Setup::default()).await;
    let connection = app.connections_of(app.ben.user.id).await.remove(0);
    let end = connection.consent_expires_at.expect("the bank says when");
    let left = end.duration_since(app.clock.now());
    app.advance_own_clock(left - SignedDuration::from_hours(4 * 24));
    let browser = app.sign_in(app.ben.user.id).await;
    let page = browser.get("/overview").await;
    page.assert_has("Your consent for <bdi>");
    page.assert_has(". <span class=\"badge\">Sandbox</span></p>\n<form");
    page.assert_has(&format!(
        "name=\"connection\" value=\"{}\">Renew",
        connection.id
    ));
    page.assert_lacks("What needs you");
}

/// Two banks of one name are told apart wherever one is named alone.
#[tokio::test]
async fn banks_of_one_name_are_told_apart() {
    let app = App::start(Setup::default()).await;
    let fiskil = app.credentials_of("fiskil");
    let email = "alike@example.com";
    let all = [&fiskil[3], &fiskil[5]];
    let person = app.add_person(email, Plan::Professional, &all).await;
    let [name, other] = [0, 1].map(|at| &person.connections[at].institution_name);
    assert_eq!(name, other);
    let browser = app.sign_in(person.user.id).await;
    let overview = text_of(&browser.get("/overview").await.text);
    let named = format!("{name} (");
    let called = overview.split(&*named).skip(1);
    let called: BTreeSet<&str> = called.map(|rest| rest.split(')').next().unwrap()).collect();
    assert_eq!(called.len(), 2, "{overview}");
    app.fiskil().add_fault(Fault::status(500));
    let page = text_of(&browser.get("/transactions").await.text);
    app.clear_faults();
    for which in called {
        let said = format!("{named}{which}) could not be read.");
        assert!(page.contains(&said), "no {said:?} in {page}");
    }
}

/// The value of a holding, its cost, and the gain, all exact.
struct Valued<'h> {
    holding: &'h Holding,
    value: ExactSum,
    gain: ExactSum,
}

impl<'h> Valued<'h> {
    fn of(holding: &'h Holding) -> Option<Self> {
        Some(Self {
            value: sum([holding.market_value.as_deref()?]),
            gain: sum([holding.unrealized_pnl.as_deref()?]),
            holding,
        })
    }

    fn cost(&self) -> ExactSum {
        self.value.minus(&self.gain)
    }
}

/// A gain with its per cent of the cost, as pages show it.
fn shown_gain(gain: &ExactSum, cost: &ExactSum) -> String {
    let plus = if *gain > ExactSum::default() { "+" } else { "" };
    let percent = gain.percent_of(cost).map(|percent| percent.to_string());
    let percent = percent.map_or(String::new(), |percent| {
        format!(" ({plus}{percent}&nbsp;%)")
    });
    format!("{plus}{}{percent}", shown(&text(gain)))
}

/// A person at every broker.
async fn investor(app: &App) -> Person {
    let credentials = app.credentials_of("snaptrade");
    let all: Vec<&Value> = credentials.iter().collect();
    let email = "investor@example.com";
    app.add_person(email, Plan::Professional, &all).await
}

#[tokio::test]
async fn investments_are_those_of_the_api() {
    // The balance is awaited here too.
    let app = App::start(Setup::with(|settings| {
        settings.pages.first_rows_within = Duration::from_secs(3_600);
    }))
    .await;
    let person = investor(&app).await;
    let browser = app.sign_in(person.user.id).await;
    trades_of_all_brokers_follow_each_other(&app, &person, &browser).await;
    holdings_are_those_of_the_api_with_exact_sums(&app, &person, &browser).await;
    an_account_a_period_and_a_text_filter_the_investments(&app, &person, &browser).await;
    a_broker_that_fails_spoils_no_other(&app, &person, &browser).await;
}

async fn holdings_are_those_of_the_api_with_exact_sums(
    app: &App,
    person: &Person,
    browser: &SignedIn<'_>,
) {
    let mut holdings = Vec::new();
    for connection in &person.connections {
        holdings.extend(app.all_holdings(connection.id).by(person).rows().await);
    }
    let page = browser.get("/investments").await.text;
    assert!(holdings.len() > 15);
    let without = holdings.iter().filter(|one| one.market_value.is_none());
    let without = without.count();
    let text_of_page = plain_text(&page);
    let said = format!("{without} holding");
    assert!(
        without > 0 && text_of_page.contains(&said),
        "{text_of_page}"
    );
    let (mut values, mut futures) = (0, 0);
    let (held, _) = page.split_once("<h2 id=\"trades\">").unwrap();
    for currency in ["USD", "CAD", "AUD"] {
        let own: Vec<Valued<'_>> = holdings
            .iter()
            .filter(|one| one.currency == currency)
            .filter_map(Valued::of)
            .collect();
        let is_future = |one: &Valued<'_>| one.holding.symbol.starts_with('/');
        let total = own
            .iter()
            .filter(|one| !is_future(one))
            .fold(ExactSum::default(), |sum, one| sum.plus(&one.value));
        let (_, section) = held.split_once(&format!("Total in {currency}")).unwrap();
        let section = section.split("Total in ").next().unwrap();
        let (head, list) = section.split_once("<ul").unwrap();
        assert!(plain_text(head).contains(&shown(&text(&total))), "{head}");
        let rows: Vec<String> = list
            .split("<li")
            .skip(1)
            .map(|row| plain_text(row).replace("+ ", "+"))
            .collect();
        for one in &own {
            let share = one.value.percent_of(&total).unwrap();
            let (share, gain) = match is_future(one) {
                true => (String::new(), shown(&text(&one.gain))),
                false => (
                    format!("{share} % of the total"),
                    shown_gain(&one.gain, &one.cost()),
                ),
            };
            futures += usize::from(is_future(one));
            let parts = [
                format!("{currency} {}", shown(&text(&one.value))),
                format!("cost {}", shown(&text(&one.cost()))),
                share,
                gain,
                plain_text(&one.holding.account_name),
            ];
            let has_all = |row: &&String| parts.iter().all(|part| row.contains(part));
            assert!(rows.iter().any(|row| has_all(&row)), "{parts:?} {rows:?}");
            values += 1;
        }
        let sorted: Vec<ExactSum> = rows
            .iter()
            .filter_map(|row| {
                let (_, value) = row.split_once(&format!(" {currency} "))?;
                Some(sum([value.split([' ', '…']).next()?]))
            })
            .collect();
        assert!(sorted.is_sorted_by(|one, next| one >= next), "{rows:?}");
    }
    assert!(values > 12 && futures > 0);
    assert_has(&text_of_page, &format!("{futures} future"));
    assert_has(&text_of_page, "not in the total and the gain");
    let option = "<a class=\"what\" href=\"/investments?search=EXRB++270115C00200000#trades\" \
                  title=\"EXRB  270115C00200000\"><bdi>EXRB 15 Jan 2027 call 200</bdi>";
    assert_has(&page, option);
}

/// Each page of the trades has the next ones of the API, over all brokers.
async fn trades_of_all_brokers_follow_each_other(
    app: &App,
    person: &Person,
    browser: &SignedIn<'_>,
) {
    let mut trades: Vec<Trade> = Vec::new();
    let connections = app.connections_of(person.user.id).await;
    for connection in &connections {
        let read = app.all_trades(connection.id).by(person).limit(500);
        trades.extend(read.rows().await);
    }
    // Newest first, and of equal times as the brokers come, as the page does.
    let instant = |trade: &Trade| -> jiff::Timestamp {
        let day = || format!("{}T00:00:00Z", &trade.trade_date[..10]).parse();
        trade.trade_date.parse().or_else(|_| day()).unwrap()
    };
    trades.sort_by_key(|trade| std::cmp::Reverse(instant(trade)));
    let mut path = "/investments".to_owned();
    for page_number in 0..3 {
        app.reset_calls();
        let page = browser.get(&path).await.text;
        let calls = app.bank("snaptrade").total_calls();
        assert!(calls > 0 || page_number > 0);
        app.reset_calls();
        assert_eq!(browser.get(&path).await.text, page);
        assert_eq!(
            app.bank("snaptrade").total_calls(),
            0,
            "as cached as by the API"
        );
        let (_, list) = page.split_once("<h2 id=\"trades\">").unwrap();
        let rows: Vec<String> = list.split("<li").skip(1).map(plain_text).collect();
        assert_eq!(rows.len(), 50);
        for (row, trade) in rows.iter().zip(&trades[page_number * 50..]) {
            let amount = match trade.total_amount.trim_matches(['-', '0', '.']) {
                "" => " – ".to_owned(),
                _ => format!("{} {}", trade.currency, shown(&trade.total_amount)),
            };
            // All digits of a long amount are in the opened row.
            let (shown, exact) = amount.split_once("… ").unwrap_or((&amount, ""));
            assert_has(row, shown);
            assert_has(row, exact);
            assert_has(row, &plain_text(&trade.account_name));
            assert_lacks(row, " 0 at");
            assert_lacks(row, "at 0 ");
        }
        let position = format!("{} to {}", page_number * 50 + 1, page_number * 50 + 50);
        let text = text_of(list);
        assert_has(&text, &position);
        assert_has(&text, " As of ");
        let older = links(list, "/investments", "</a>");
        let (query, _) = older.iter().find(|(_, text)| *text == "Older").unwrap();
        path = format!("/investments?{}", query.trim_end_matches("#trades"));
    }
}

/// After a consent has ended, a broker gives its last report, which looks as if all was well.
#[tokio::test]
async fn broker_that_needs_the_user_keeps_its_last_report() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("snaptrade").await;
    let browser = app.sign_in(person.user.id).await;
    let held = |page: &str| {
        let (held, _) = page.split_once("<h2 id=\"trades\">").unwrap();
        assert_has(&text_of(held), "Holdings As of ");
        held.matches("<li class=\"leads\">").count()
    };
    let before = held(&browser.get("/investments").await.text);
    let broker = &person.connections[0];
    let status = app.change_consent(broker, ConsentState::Expired).await;
    assert_ne!(status, ConnectionStatus::Active);
    let page = browser.get("/investments").await.text;
    assert!(before > 0 && held(&page) == before, "{page}");
    let button = format!("name=\"connection\"\n value=\"{}\"", broker.id);
    assert_eq!(page.matches(&button).count(), 1, "{page}");
}

/// Whoever pages faster than the limit of live reads learns when to go on, in both parts.
#[tokio::test]
async fn a_limit_says_when_to_try_again() {
    let mut setup = Setup::default();
    setup.settings.api_context.live_per_minute = 2;
    let app = App::start(setup).await;
    let person = app.person_at("snaptrade").await;
    let browser = app.sign_in(person.user.id).await;
    let first = browser.get("/investments").await.text;
    assert!(!first.contains("Try again"), "{first}");
    let page = browser.get("/investments?period=30d").await.text;
    let when = "asked too often in the last minute. Try again in 30 seconds.";
    assert_eq!(text_of(&page).matches(when).count(), 2, "{page}");
    let file = browser.get("/holdings.csv?partial=true").await;
    file.assert_shows(429, when);
    assert_eq!(file.headers["retry-after"], "30");
    browser.get("/trades.csv").await.assert_shows(429, when);
}

async fn an_account_a_period_and_a_text_filter_the_investments(
    app: &App,
    person: &Person,
    browser: &SignedIn<'_>,
) {
    let (account, _) = app
        .accounts_by(person)
        .await
        .into_iter()
        .find(|(account, _)| account.name.contains("Crypto"))
        .unwrap();
    let path = format!("/investments?account={}", account.id);
    let page = browser.get(&path).await.text;
    let holdings = app.holdings(&account).by(person).rows().await;
    let (held, traded) = page.split_once("<h2 id=\"trades\">").unwrap();
    let (_, held) = held.split_once("<h2 id=\"holdings\">").unwrap();
    assert_eq!(held.matches("<li").count(), holdings.len());
    assert_has(&text_of(held), "Balance USD ");
    assert_lacks(held, "EXTM");
    assert_lacks(traded, "Margin");
    let other = browser.get("/investments?account=0191e7a0-7c3b-7def-8000-00aabbccddee");
    let all = browser.get("/investments").await;
    let other = text_of(&other.await.text);
    assert_has(&other, super::transactions::ACCOUNT_GONE);
    let other = other.replace(super::transactions::ACCOUNT_GONE, "");
    assert!(other == text_of(&all.text), "{other}");

    let recent = browser.get(&format!("{path}&period=30d")).await.text;
    let first = app.clock.now().in_tz("Australia/Sydney").unwrap().date();
    let first = first.saturating_sub(jiff::ToSpan::days(30)).to_string();
    let rows = app.trades(&account).by(person).from(&*first).limit(500);
    let rows = rows.rows().await;
    let (_, traded) = recent.split_once("<h2 id=\"trades\">").unwrap();
    assert_eq!(traded.matches("<li").count(), rows.len().min(50));
    let file = links(traded, "/trades.csv", "</a>");
    let (query, words) = &file[0];
    assert_has(words, "Download");
    assert_has(query, "period=30d");
    let file = browser.get(&format!("/trades.csv?{query}")).await.text;
    let mut lines = file.lines();
    assert_eq!(
        lines.next().unwrap(),
        "\u{feff}Date,Account,Broker,Type,Symbol,Name,Quantity,Price,Fees,Amount,Currency,Description"
    );
    let days: Vec<&str> = lines.map(|line| &line[..10]).collect();
    assert_eq!(days.len(), rows.len());
    assert!(days.is_sorted_by(|one, next| one >= next), "{days:?}");
    let held = browser.get("/holdings.csv").await.text;
    let (columns, held) = held.split_once("\r\n").unwrap();
    assert_eq!(
        columns,
        "\u{feff}Account,Broker,Symbol,Name,Quantity,Price,Value,Gain,Currency"
    );
    for one in &holdings {
        let numbers = [&one.current_price, &one.market_value, &one.unrealized_pnl];
        let numbers = numbers.map(|number| number.as_deref().unwrap_or_default());
        let end = format!(",{},{},{}", one.quantity, numbers.join(","), one.currency);
        let line = held.lines().find(|line| line.ends_with(&end)).unwrap();
        assert_starts(line, &account.name);
        assert_has(line, &format!(",{},", one.symbol));
    }

    let found = browser.get(&format!("{path}&search=eth")).await.text;
    let (held, traded) = found.split_once("<h2 id=\"trades\">").unwrap();
    let (_, held) = held.split_once("<h2 id=\"holdings\">").unwrap();
    assert_eq!(held.matches("<li").count(), 1, "{held}");
    let all = app.trades(&account).by(person).limit(500).rows().await;
    let expected = all.iter().filter(|trade| trade.symbol == "ETH").count();
    let said = match expected {
        1 => ">Row 1 of 1. As of ".to_owned(),
        2..=50 => format!(">Rows 1 to {expected} of {expected}. As of "),
        _ => ">Rows 1 to 50. As of ".to_owned(),
    };
    assert!(
        expected > 0 && traded.contains(&said),
        "{expected}: {traded}"
    );
    let none = browser.get("/investments?search=%3Cb%3Eno").await;
    none.assert_has("No holding has this text");
    none.assert_lacks("<b>no");
    none.assert_has("None found");
}

/// A broker that fails is named once, and the others are there in both parts.
async fn a_broker_that_fails_spoils_no_other(app: &App, person: &Person, browser: &SignedIn<'_>) {
    let before = browser.get("/investments").await.text;
    let broken = app.connections_of(person.user.id).await.remove(0);
    app.set_consent(&broken, ConsentState::Revoked).await;
    app.advance_clock(SignedDuration::from_mins(11));
    let page = browser.get("/investments").await;
    let button = format!("name=\"connection\"\n value=\"{}\"", broken.id);
    assert_eq!(page.text.matches(&button).count(), 1, "{}", page.text);
    let rows = |page: &str| -> Vec<String> {
        let (_, traded) = page.split_once("<h2 id=\"trades\">").unwrap();
        traded.split("<li>").skip(1).map(plain_text).collect()
    };
    let (left, before) = (rows(&page.text), rows(&before));
    let is_broken = |row: &String| row.contains(&plain_text(&broken.institution_name));
    assert!(before.iter().any(is_broken), "{before:?}");
    assert!(!left.is_empty() && !left.iter().any(is_broken), "{left:?}");
    page.assert_lacks("Sum: ");
    // A browser would hide the page that says why there is no file.
    page.assert_lacks(" download>");
    let file = browser.get("/trades.csv").await;
    file.assert_shows(502, "There is no file");
    let file = browser.get("/trades.csv?partial=true").await;
    file.assert_status(200);
    file.assert_lacks(&broken.institution_name);
    let file = browser.get("/holdings.csv").await;
    file.assert_shows(502, "There is no file");
    file.assert_has(&broken.institution_name);
    let file = browser.get("/holdings.csv?partial=true").await;
    file.assert_status(200);
    file.assert_lacks(&broken.institution_name);
    // Trades need the highest plan, in a file too.
    app.set_plan(person.user.id, Plan::Developer).await;
    for path in ["/trades.csv", "/holdings.csv"] {
        let file = browser.get(path).await;
        file.assert_shows(403, "There is no file");
        file.assert_has("plan");
    }
}
