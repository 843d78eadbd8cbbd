//! Decimals pass through the whole program exactly. Each keeps its value, even if no binary float
//! can hold it, and its digits wherever the documented form allows them.

use std::collections::BTreeMap;
use std::fmt;

use bellbird_sandbox::Bank;
use bigdecimal::BigDecimal;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::client::Account;
use crate::support::harness::{App, Person, Setup};
use crate::support::provider_spec::spec;
use crate::support::reads::{Balance, balances_path};
use crate::support::words::assert_has;

/// How many random values a test sends in addition to the extreme ones.
const RANDOM: usize = 300;
/// Accounts whose balances are read. Each has two balances.
const ACCOUNTS: usize = 60;

/// A decimal that a provider sends. A failing test prints it whole, so that it can be added to the
/// extreme values.
#[derive(Clone)]
struct Sent {
    name: String,
    text: String,
}

impl fmt::Display for Sent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.text, self.name)
    }
}

/// How a provider writes decimals.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
}

fn zeros(count: usize) -> String {
    "0".repeat(count)
}

/// Decimals that are known to cause errors.
fn extremes(form: Form) -> Vec<(&'static str, String)> {
    let both = [
        ("zero", "0".to_owned()),
        ("zero with places", "0.000".to_owned()),
        ("negative zero", "-0".to_owned()),
        ("negative zero with places", "-0.00".to_owned()),
        ("zeros at the end", "84.30".to_owned()),
        ("no binary float", "0.1".to_owned()),
        ("a float rounds it up", "2.675".to_owned()),
        (
            "more digits than a float has",
            "12345678901234567.89".to_owned(),
        ),
        ("past 2^53", "9007199254740993".to_owned()),
        ("past 64 bits", "-18446744073709551616.01".to_owned()),
        (
            "past 128 bits",
            "340282366920938463463374607431768211456.5".to_owned(),
        ),
        ("the smallest step", format!("-0.{}1", zeros(199))),
        ("a one and zeros", format!("1{}", zeros(199))),
        (
            "nines to be rounded",
            format!("{}.{}", "9".repeat(200), "9".repeat(200)),
        ),
        (
            "zeros in the middle",
            format!("-1{}.{}1", zeros(150), zeros(150)),
        ),
        ("past a float's range", "8".repeat(400)),
    ];
    let texts = [
        ("a plus", "+15.20"),
        ("a plus and zero", "+0.00"),
        ("leading zeros", "000123.4500"),
        ("a minus and leading zeros", "-007"),
        ("many zeros", "0000.0000"),
    ];
    let numbers = [
        ("an exponent", "1E3"),
        ("a large exponent", "1.5E+300"),
        ("a small exponent", "-2.5e-300"),
        ("past a float's exponents", "1e400"),
        ("below a float's exponents", "-1e-400"),
        ("an exponent of zero", "1.50e0"),
        ("zero with an exponent", "0e10"),
        ("negative zero with an exponent", "-0.0E-7"),
        ("an exponent that moves the point to the end", "12.5e1"),
        ("an exponent that moves the point to the front", "1250e-4"),
        ("digits as far as the exponent", "123.456789e6"),
    ];
    let own = match form {
        Form::Text => texts.as_slice(),
        Form::Number => numbers.as_slice(),
    };
    both.into_iter()
        .chain(own.iter().map(|(name, text)| (*name, (*text).to_owned())))
        .collect()
}

fn decimals(form: Form) -> BoxedStrategy<String> {
    match form {
        Form::Text => prop_oneof![
            6 => "[-+]?[0-9]{1,200}(\\.[0-9]{1,200})?",
            2 => "-?(0|[1-9][0-9]{0,5})\\.[0-9]{2}",
            1 => "[-+]?0{1,9}(\\.0{1,9})?",
        ]
        .boxed(),
        Form::Number => prop_oneof![
            6 => "-?(0|[1-9][0-9]{0,199})(\\.[0-9]{1,200})?([eE][-+]?[0-9]{1,3})?",
            2 => "-?(0|[1-9][0-9]{0,5})\\.[0-9]{2}",
            1 => "-?0(\\.0{1,9})?([eE][-+]?[0-9]{1,2})?",
        ]
        .boxed(),
    }
}

/// The extreme values, followed by `count` random values, which differ in every run.
fn values(form: Form, count: usize) -> Vec<Sent> {
    let mut runner = TestRunner::default();
    let strategy = decimals(form);
    let extremes = extremes(form).into_iter();
    let extremes = extremes.map(|(name, text)| (name.to_owned(), text));
    let random = (0..count).map(|number| {
        let text = strategy.new_tree(&mut runner).expect("a value").current();
        (format!("random {number}"), text)
    });
    let all = extremes.chain(random);
    all.map(|(name, text)| Sent { name, text }).collect()
}

/// The value by `bigdecimal`, with which all results are compared.
fn number(text: &str) -> BigDecimal {
    text.parse()
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn is_zero(text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    !digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

/// Asserts the form `-?[0-9]+(\.[0-9]+)?`, without a negative zero.
fn assert_plain(shown: &str) {
    let unsigned = shown.strip_prefix('-').unwrap_or(shown);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    assert!(digits(whole) && digits(fraction), "not plain: {shown}");
    let is_negative = unsigned.len() < shown.len();
    assert!(!(is_negative && is_zero(shown)), "a negative zero: {shown}");
}

fn assert_exact(sent: &Sent, shown: &str) {
    assert_plain(shown);
    let value = number(&sent.text);
    assert_eq!(number(shown), value, "{sent} is shown as {shown}");
    if !sent.text.contains(['e', 'E']) {
        let mut digits = sent.text.trim_start_matches('+');
        if is_zero(digits) {
            digits = digits.trim_start_matches('-');
        }
        assert_eq!(shown, digits, "{}", sent.name);
    }
}

/// Asserts that a computed value is the expected one, and has no zeros at the end of its fraction.
fn assert_computed(what: &str, expected: &BigDecimal, shown: &str) {
    assert_plain(shown);
    assert_eq!(number(shown), *expected, "{what}");
    assert!(
        !shown.contains('.') || !shown.ends_with('0'),
        "zeros at the end of {shown}"
    );
}

/// JSON as it stands, so that decimals reach the provider digit by digit.
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap()
}

/// How to set balances at a provider.
struct ValueSpec {
    provider: &'static str,
    form: Form,
    /// Sets an account's current and available balance.
    set_balance: fn(bank: &Bank, account: &str, current: &str, available: &str),
}

const FISKIL: ValueSpec = ValueSpec {
    provider: "fiskil",
    form: Form::Text,
    set_balance: |bank, account, current, available| {
        let balance = json!({"current_balance": current, "available_balance": available});
        bank.set_balance(account, &balance).unwrap();
    },
};

const AKAHU: ValueSpec = ValueSpec {
    provider: "akahu",
    form: Form::Number,
    set_balance: |bank, account, current, available| {
        let balance =
            format!(r#"{{"currency": "NZD", "current": {current}, "available": {available}}}"#);
        bank.set_balance(account, &raw(balance)).unwrap();
    },
};

const SNAPTRADE: ValueSpec = ValueSpec {
    provider: "snaptrade",
    form: Form::Number,
    set_balance: |bank, account, current, available| {
        let total =
            format!(r#"{{"balance": {{"total": {{"amount": {current}, "currency": "USD"}}}}}}"#);
        let cash = format!(
            r#"[{{"currency": {{"code": "USD"}}, "cash": {available}, "buying_power": 0}}]"#
        );
        bank.change_account(account, &raw(total)).unwrap();
        bank.set_balance(account, &raw(cash)).unwrap();
    },
};

/// An application, and a user of a provider whose accounts hold the values.
struct Fixture {
    app: App,
    value_spec: ValueSpec,
    credentials: Value,
    person: Person,
}

impl Fixture {
    async fn start(value_spec: ValueSpec) -> Self {
        let app = App::start(Setup::with_rows(20)).await;
        let credentials = app.spare_credentials(value_spec.provider);
        let person = app.person_at(value_spec.provider).await;
        Self {
            app,
            value_spec,
            credentials,
            person,
        }
    }

    fn bank(&self) -> &Bank {
        self.app.bank(self.value_spec.provider)
    }

    /// Adds an account at the provider. Returns its id there.
    fn add_account(&self) -> String {
        let spec = spec(self.value_spec.provider);
        spec.add_account(self.bank(), &self.credentials, json!({}))
    }

    /// The user's accounts by the provider's ids, also those that were just added.
    async fn accounts(&self) -> BTreeMap<String, Account> {
        let connection = &self.person.connections[0];
        self.app.refresh(connection.user_id, connection.id).await;
        let accounts = self.app.accounts_by(&self.person).await.into_iter();
        accounts.map(|(account, id)| (id, account)).collect()
    }

    async fn account(&self, provider_id: &str) -> Account {
        self.accounts().await.remove(provider_id).unwrap()
    }
}

async fn balances_are_exact(fixture: &Fixture) {
    let sent = values(fixture.value_spec.form, 2 * ACCOUNTS);
    let mut expected = BTreeMap::new();
    for pair in sent.chunks_exact(2) {
        let account = fixture.add_account();
        let [current, available] = [0, 1].map(|at| &pair[at].text);
        (fixture.value_spec.set_balance)(fixture.bank(), &account, current, available);
        expected.insert(account, pair);
    }
    let accounts = fixture.accounts().await;
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(account, pair)| (&accounts[&account].id, pair))
        .collect();
    for chunk in expected.chunks(100) {
        let path = balances_path(chunk.iter().map(|(id, _)| id));
        let answer = fixture.app.get_as(&fixture.person.key, &path).await;
        let mut balances = answer.rows::<Balance>();
        assert_eq!(balances.len(), chunk.len());
        for (id, pair) in chunk {
            let at = balances.iter().position(|found| found.account_id == **id);
            let balance = balances.swap_remove(at.expect("a balance of each account"));
            assert_exact(&pair[0], &balance.current_balance.unwrap());
            assert_exact(&pair[1], &balance.available_balance.unwrap());
        }
    }
}

/// `row` makes the provider's row from an account, a number and an amount.
async fn amounts_are_exact(fixture: &Fixture, row: impl Fn(&str, usize, &str) -> String) {
    let account = fixture.add_account();
    let sent = values(fixture.value_spec.form, RANDOM);
    for (number, value) in sent.iter().enumerate() {
        let row = row(&account, number, &value.text);
        fixture.bank().add_row(&raw(row)).unwrap();
    }
    let account = fixture.account(&account).await;
    let all = fixture.app.transactions(&account).by(&fixture.person);
    let rows = all.from("2026-01-01").limit(500).rows().await;
    assert_eq!(rows.len(), sent.len());
    for row in rows {
        let value = &sent[row.description.parse::<usize>().unwrap()];
        assert_exact(value, &row.amount);
        let is_below_zero = number(&value.text) < BigDecimal::default();
        let direction = if is_below_zero { "debit" } else { "credit" };
        assert_eq!(row.direction, direction, "{value}");
    }
}

#[tokio::test]
async fn values_sent_as_text() {
    let fixture = Fixture::start(FISKIL).await;
    balances_are_exact(&fixture).await;
    amounts_are_exact(&fixture, |account, number, amount| {
        let time = "2026-11-01T00:00:00Z";
        format!(
            r#"{{"account_id": "{account}", "description": "{number}", "amount": "{amount}",
                "posting_date_time": "{time}"}}"#
        )
    })
    .await;
}

#[tokio::test]
async fn values_sent_as_numbers() {
    let fixture = Fixture::start(AKAHU).await;
    balances_are_exact(&fixture).await;
    amounts_are_exact(&fixture, |account, number, amount| {
        let time = "2026-11-01T00:00:00Z";
        format!(r#"{{"_account": "{account}", "description": "{number}", "amount": {amount}, "date": "{time}"}}"#)
    })
    .await;
}

#[tokio::test]
async fn values_sent_by_brokers() {
    let fixture = Fixture::start(SNAPTRADE).await;
    balances_are_exact(&fixture).await;
    trade_values_are_exact(&fixture).await;
    holdings_and_computed_values_are_exact(&fixture).await;
}

async fn trade_values_are_exact(fixture: &Fixture) {
    let account = fixture.add_account();
    let sent = values(Form::Number, RANDOM);
    // A row has four values, and every value appears once in each of the four members.
    let value_at = |number: usize, member: usize| &sent[(number + member * 7) % sent.len()];
    for number in 0..sent.len() {
        let [price, units, amount, fee] = [0, 1, 2, 3].map(|member| &value_at(number, member).text);
        let body = format!(
            r#"{{"account": "{account}", "description": "{number}", "price": {price}, "units": {units},
                "amount": {amount}, "fee": {fee}}}"#
        );
        fixture.bank().add_row(&raw(body)).unwrap();
    }
    let account = fixture.account(&account).await;
    let all = fixture.app.trades(&account).by(&fixture.person);
    let rows = all.from("2026-01-01").limit(500).rows().await;
    assert_eq!(rows.len(), sent.len());
    for row in rows {
        let number: usize = row.description.unwrap().parse().unwrap();
        let fees = row.fees.unwrap();
        let shown = [&row.price, &row.quantity, &row.total_amount, &fees];
        for (index, shown) in shown.into_iter().enumerate() {
            assert_exact(value_at(number, index), shown);
        }
        // The id contains the digits that the row shows.
        for digits in [&row.quantity, &row.total_amount, &fees] {
            assert_has(&row.id, digits);
        }
    }
}

async fn holdings_and_computed_values_are_exact(fixture: &Fixture) {
    let account = fixture.add_account();
    let (sent, mut multipliers) = (values(Form::Text, RANDOM), values(Form::Number, RANDOM));
    // Factors of more than 512 digits are not multiplied: docs/using.md.
    multipliers.retain(|multiplier| number(&multiplier.text).to_plain_string().len() <= 500);
    let value_at = |number: usize, member: usize| &sent[(number + member * 7) % sent.len()];
    // Every other position is an option, which has a multiplier.
    let multiplier =
        |number: usize| (number % 2 == 1).then(|| &multipliers[number % multipliers.len()]);
    for number in 0..sent.len() {
        let [units, price, cost] = [0, 1, 2].map(|member| &value_at(number, member).text);
        let kind = match multiplier(number) {
            Some(multiplier) => format!(r#""kind": "option", "multiplier": {}"#, multiplier.text),
            None => r#""kind": "stock""#.to_owned(),
        };
        let body = format!(
            r#"{{"account": "{account}", "instrument": {{"id": "i-{number}", "symbol": "{number}", {kind}}},
                "units": "{units}", "price": "{price}", "cost_basis": "{cost}"}}"#
        );
        fixture.bank().add_position(&raw(body)).unwrap();
    }
    let account = fixture.account(&account).await;
    let rows = fixture
        .app
        .holdings(&account)
        .by(&fixture.person)
        .rows()
        .await;
    assert_eq!(rows.len(), sent.len());
    for row in rows {
        let at: usize = row.symbol.parse().unwrap();
        let (price, cost) = (row.current_price.unwrap(), row.average_price.unwrap());
        for (index, shown) in [&row.quantity, &price, &cost].into_iter().enumerate() {
            assert_exact(value_at(at, index), shown);
        }
        let [units, price, cost] = [0, 1, 2].map(|member| number(&value_at(at, member).text));
        let units =
            multiplier(at).map_or(units.clone(), |multiplier| units * number(&multiplier.text));
        let [shown_units, shown_price, shown_cost] = [0, 1, 2].map(|member| value_at(at, member));
        let times = multiplier(at).map_or("1", |multiplier| &multiplier.text);
        let what = format!("{times} times {shown_units} at {shown_price} for {shown_cost}");
        let worth = &units * price;
        let gain = &worth - units * cost;
        assert_computed(&what, &worth, &row.market_value.unwrap());
        assert_computed(&what, &gain, &row.unrealized_pnl.unwrap());
    }
}
