//! Fills SnapTrade's store with the data of the world.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, civil};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::instruments::{id, number};
use super::rows::trade_id;
use super::store::{Account, Connection, Entry, Store};
use crate::clock::after;
use crate::members::Members;
use crate::world::brokerage::{
    AccountTemplate, BROKERAGE, Holding, Investor, MESSY, Plan, Role, broker,
};
use crate::world::securities::security;
use crate::world::trades::draw;

impl Store {
    /// Creates all data of the world as of the day of `now`.
    pub(super) fn new(seed: u64, now: Timestamp) -> Self {
        let mut store = Self::without_users(seed, TimeZone::UTC.to_datetime(now).date());
        for investor in &BROKERAGE.investors {
            store.add_investor(investor, now);
        }
        store
    }

    fn add_investor(&mut self, investor: &'static Investor, now: Timestamp) {
        let (seed, user_id) = (self.seed, investor.user_id);
        let secret = id(seed, &format!("secret of {user_id}"));
        let user = self.add_user(user_id, secret);
        for (index, login) in investor.logins.iter().enumerate() {
            let number = index + 1;
            let connection_id = id(seed, &format!("connection {number} of {user_id}"));
            let broker = broker(login.broker).expect("investors have logins at known brokers");
            let created = before(now, 400 - 30 * index as i64);
            let name = format!("Connection-{number}");
            let mut connection =
                Connection::new(connection_id.clone(), user, broker, name, created);
            connection.disabled_at = login.disabled.then(|| before(now, 3));
            connection.is_listed = investor.role == Role::Listed;
            connection.login = Some(investor.email.to_owned());
            self.connections.push(connection);
            match &login.accounts {
                Some(templates) => {
                    let made = |AccountTemplate { number, .. }: &AccountTemplate| {
                        id(seed, &format!("account {number} of {connection_id}"))
                    };
                    self.add_template_accounts(&connection_id, templates, now, made);
                }
                None => self.add_messy(&connection_id, now),
            }
        }
    }

    /// Adds the accounts of a connection with all their data.
    pub(super) fn add_template_accounts(
        &mut self,
        connection_id: &str,
        templates: &'static [AccountTemplate],
        now: Timestamp,
        new_id: impl Fn(&AccountTemplate) -> String,
    ) {
        let (seed, today) = (self.seed, self.today);
        for template in templates {
            let balances = self.balances(template);
            let positions: Vec<_> = template
                .holdings
                .iter()
                .map(|holding| self.position(holding))
                .collect();
            let account =
                self.add_account(connection_id, new_id(template), Members::default(), now);
            account.members = members(account, template, today, now);
            account.balances = raw(&balances);
            account.as_of = fetched(now);
            positions
                .into_iter()
                .for_each(|position| account.add_position(position));
            account.draw(&template.plan, template.total.1, seed, today);
        }
    }

    fn balances(&self, template: &AccountTemplate) -> Value {
        let entry = |&(code, cash, power): &(&str, &str, &str)| {
            json!({
                "currency": self.instruments.any_currency(code),
                "cash": number(cash), "buying_power": number(power),
            })
        };
        template.cash.iter().map(entry).collect()
    }

    fn position(&self, holding: &Holding) -> Members {
        let mut shown = json!({
            "instrument": self.instruments.get(security(holding.security)).instrument,
            "units": holding.units, "price": holding.price, "cost_basis": holding.cost, "currency": holding.currency,
        });
        if holding.cash_equivalent {
            shown["cash_equivalent"] = true.into();
        }
        Members::from_value(&shown)
    }

    /// Adds accounts whose JSON is fixed except for ids and days.
    pub(super) fn add_messy(&mut self, connection_id: &str, now: Timestamp) {
        #[derive(Deserialize)]
        struct Messy {
            account: Members,
            balances: Box<RawValue>,
            positions: Vec<Members>,
            activities: Vec<Members>,
        }
        let text = dated(MESSY, self.today);
        let all: Vec<Messy> = serde_json::from_str(&text).expect("the messy accounts are JSON");
        let seed = self.seed;
        for (index, messy) in all.into_iter().enumerate() {
            let account_id = id(seed, &format!("messy account {index} of {connection_id}"));
            let mut members = Members::default();
            members.set("id", &account_id);
            members.set("brokerage_authorization", &connection_id);
            members.merge_all(messy.account);
            let account = self.add_account(connection_id, account_id, members, now);
            account.balances = messy.balances;
            messy
                .positions
                .into_iter()
                .for_each(|position| account.add_position(position));
            for row in messy.activities {
                let number = account.take_number();
                let mut given = Members::default();
                given.set("id", &trade_id(seed, number));
                given.merge_all(row);
                account.insert(Entry::given(given, number));
            }
        }
    }
}

impl Account {
    /// Replaces all rows with rows drawn from a plan.
    pub(super) fn draw(
        &mut self,
        plan: &Plan,
        currency: &'static str,
        seed: u64,
        today: civil::Date,
    ) {
        self.set_rows(draw(plan, currency, seed, self.first_number(), today));
    }
}

/// Converts a value to the JSON text that is served.
pub(super) fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("plain values have a JSON text")
}

fn before(now: Timestamp, days: i64) -> Timestamp {
    // Never on a full second, because live times are not.
    let back = SignedDuration::from_hours(24 * days) + SignedDuration::from_micros(1_123_935);
    let at = after(now, -back);
    at.round(jiff::Unit::Microsecond).unwrap_or(at)
}

/// When SnapTrade last fetched the daily data.
fn fetched(now: Timestamp) -> Timestamp {
    after(now, SignedDuration::from_mins(-47))
}

/// The members of an account in the format of `GET /accounts`
/// (docs/providers/snaptrade.md#accounts).
fn members(
    account: &Account,
    template: &AccountTemplate,
    today: civil::Date,
    now: Timestamp,
) -> Members {
    let (amount, currency) = template.total;
    let oldest = today.saturating_sub(i64::from(template.plan.days).days());
    let shown = json!({
        "id": account.id,
        "brokerage_authorization": account.connection_id,
        "name": template.name,
        "number": template.number,
        "institution_account_id": format!("i-{}", &account.id[..8]),
        "institution_name": account.institution,
        "created_date": before(now, 399).to_string(),
        "funding_date": null,
        "opening_date": null,
        "sync_status": {
            "transactions": {
                "initial_sync_completed": true,
                "last_successful_sync": today.saturating_sub(1.day()).to_string(),
                "first_transaction_date": oldest.to_string(),
            },
            "holdings": {
                "initial_sync_completed": true,
                // With a space, as documented (docs/providers/snaptrade.md#accounts).
                "last_successful_sync": fetched(now).strftime("%Y-%m-%d %H:%M:%S.%6f+00:00").to_string(),
            },
        },
        "balance": {"total": {"amount": number(amount), "currency": currency}},
        "status": "open",
        "raw_type": template.raw_type,
        "account_category": template.category,
        "meta": {"type": template.raw_type, "status": "ACTIVE", "institution_name": account.institution},
        "portfolio_group": account.connection_id,
        "cash_restrictions": [],
        "is_paper": false,
    });
    Members::from_value(&shown)
}

/// Replaces `<3>` with the day three days back. Replaces `<spring>`, `<autumn>` and the days after
/// them with the last changes of New York's clocks.
fn dated(text: &str, today: civil::Date) -> String {
    let mut text = text.to_owned();
    for back in 1..=90_i64 {
        text = text.replace(
            &format!("<{back}>"),
            &today.saturating_sub(back.days()).to_string(),
        );
    }
    let zone = TimeZone::get("America/New_York").expect("the time zone database is built in");
    // The change and the whole day after it are past.
    let start = TimeZone::UTC
        .to_timestamp(today.saturating_sub(2.days()).at(0, 0, 0, 0))
        .unwrap_or_default();
    for change in zone.preceding(start).take(2) {
        let day = zone.to_datetime(change.timestamp()).date();
        let season = if change.dst().is_dst() {
            "spring"
        } else {
            "autumn"
        };
        text = text.replace(&format!("<{season}>"), &day.to_string());
        text = text.replace(
            &format!("<{season}+1>"),
            &day.saturating_add(1.day()).to_string(),
        );
    }
    text
}
