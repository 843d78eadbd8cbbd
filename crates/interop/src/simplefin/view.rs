//! The JSON of an account set, with the members of versions 1 and 2 together.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::ops::Range;

use bellbird_api::http::json::write_json;
use bellbird_domain::{
    Account, AccountId, AccountType, Category, Connection, ConnectionId, Currency, Decimal,
    Holding, Transaction,
};
use bellbird_reads::SelectedAccounts;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;

use super::amounts::amount_text;
use super::posted::posted;

pub(super) const ROWS_MAX: usize = 10_000;
/// JSON of these rows.
const ROWS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Of a label in a host name.
const LABEL_BYTES_MAX: usize = 60;

/// A balance, as it is sent. Without `Debug`, so that it is not logged.
#[derive(Clone)]
pub(super) struct SetBalance {
    pub(super) balance: String,
    /// None if the provider sends none.
    pub(super) available: Option<String>,
    pub(super) currency: Currency,
    pub(super) read_at: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct SetAccount<'a> {
    id: AccountId,
    name: &'a str,
    currency: Currency,
    balance: &'a str,
    available_balance: Option<&'a str>,
    balance_date: i64,
    org: Org<'a>,
    #[serde(rename = "conn_id")]
    conn_id: ConnectionId,
    #[serde(rename = "conn_name")]
    conn_name: &'a str,
    extra: AccountExtra<'a>,
}

/// The institution, in version 1.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Org<'a> {
    domain: String,
    name: &'a str,
    sfin_url: &'a str,
    id: &'a str,
}

#[derive(Serialize)]
struct AccountExtra<'a> {
    #[serde(rename = "type")]
    account_type: AccountType,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<&'a str>,
}

/// The connection, in version 2.
#[derive(Serialize)]
pub(super) struct SetConnection<'a> {
    conn_id: ConnectionId,
    name: &'a str,
    org_id: &'a str,
    sfin_url: &'a str,
}

impl<'a> SetConnection<'a> {
    pub(super) fn new(connection: &'a Connection, root_url: &'a str) -> Self {
        let Connection {
            id,
            institution_name,
            institution_id,
            ..
        } = connection;
        Self {
            conn_id: *id,
            name: institution_name,
            org_id: institution_id,
            sfin_url: root_url,
        }
    }
}

pub(super) struct RequestedAccount {
    pub(super) account: Account,
    /// As it is shown.
    pub(super) name: String,
    /// This account alone.
    pub(super) selected: SelectedAccounts,
}

impl RequestedAccount {
    /// `holdings` is the JSON of rows, separated by commas. Both lists are always there, because
    /// Actual reads their length.
    pub(super) fn to_json(
        &self,
        root_url: &str,
        balance: &SetBalance,
        rows: &mut Rows,
        holdings: &[u8],
    ) -> Vec<u8> {
        let (account, connection) = (&self.account, &self.selected.context.connection);
        let view = SetAccount {
            id: account.id,
            name: &self.name,
            currency: balance.currency,
            balance: &balance.balance,
            available_balance: balance.available.as_deref(),
            balance_date: balance.read_at.as_second(),
            org: Org {
                domain: domain(&connection.provider, &connection.institution_id),
                name: &connection.institution_name,
                sfin_url: root_url,
                id: &connection.institution_id,
            },
            conn_id: connection.id,
            conn_name: &connection.institution_name,
            extra: AccountExtra {
                account_type: account.account_type,
                number: account.number.as_ref().map(|number| number.as_str()),
            },
        };
        let mut out = Vec::with_capacity(rows.json.len() + holdings.len() + 1_024);
        write_json(&view, &mut out);
        // The members below belong to the same object.
        out.pop();
        out.extend_from_slice(br#","transactions":["#);
        rows.write_newest_first(&mut out);
        out.extend_from_slice(br#"],"holdings":["#);
        out.extend_from_slice(holdings);
        out.extend_from_slice(b"]}");
        out
    }
}

/// The rows of an account, newest instant first. Without `Debug`.
#[derive(Default)]
pub(super) struct Rows {
    json: Vec<u8>,
    rows: Vec<(Date, Range<usize>)>,
    is_cut: bool,
}

impl Rows {
    pub(super) fn push(&mut self, row: &Transaction<'_>, day: Date) {
        if self.is_full() {
            self.is_cut = true;
            return;
        }
        let start = self.json.len();
        write_transaction(row, day, &mut self.json);
        self.rows.push((day, start..self.json.len()));
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.json.len() >= ROWS_BYTES_MAX
    }

    /// There are more rows, which were not read.
    pub(super) fn set_cut(&mut self) {
        self.is_cut = true;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Of the JSON.
    pub(super) fn bytes(&self) -> usize {
        self.json.len()
    }

    pub(super) fn oldest_day(&self) -> Option<Date> {
        self.rows.iter().map(|(day, _)| *day).min()
    }

    /// By day, because the order of instants differs where a row's day is not that of its instant.
    fn write_newest_first(&mut self, out: &mut Vec<u8>) {
        self.rows.sort_by_key(|(day, _)| Reverse(*day));
        for (at, (_, range)) in self.rows.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&self.json[range.clone()]);
        }
    }
}

#[derive(Serialize)]
struct SetTransaction<'a> {
    id: &'a str,
    posted: i64,
    /// Some clients prefer it for the day.
    transacted_at: i64,
    amount: String,
    currency: Currency,
    description: &'a str,
    payee: &'a str,
    memo: &'static str,
    pending: bool,
    mcc: Option<&'a str>,
    extra: TransactionExtra<'a>,
}

#[derive(Serialize)]
struct TransactionExtra<'a> {
    datetime: &'a str,
    /// Firefly III makes its category of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
}

fn write_transaction(row: &Transaction<'_>, day: Date, out: &mut Vec<u8>) {
    let posted = posted(day);
    let merchant = row
        .merchant_name
        .as_deref()
        .filter(|name| !name.trim().is_empty());
    // Actual's sync fails without a payee.
    let payee = merchant.unwrap_or(&row.description);
    let payee = if payee.trim().is_empty() {
        "Unknown"
    } else {
        payee
    };
    let mcc = row.merchant_category_code.as_deref();
    let view = SetTransaction {
        id: &row.id,
        posted,
        transacted_at: posted,
        amount: amount_text(&row.amount),
        currency: row.actual_currency(),
        description: &row.description,
        payee,
        memo: "",
        pending: false,
        mcc: mcc.filter(|mcc| mcc.len() == 4 && mcc.bytes().all(|byte| byte.is_ascii_digit())),
        extra: TransactionExtra {
            datetime: &row.datetime,
            category: row.category.map(Category::label),
        },
    };
    write_json(&view, out);
}

/// A position. No text defines these members, only use does: all nine are expected.
#[derive(Serialize)]
struct SetHolding<'a> {
    id: String,
    created: i64,
    currency: &'a str,
    symbol: &'a str,
    description: &'a str,
    shares: &'a Decimal<'a>,
    market_value: Option<&'a Decimal<'a>>,
    /// Of the whole position.
    cost_basis: Option<&'a Decimal<'a>>,
    /// Of one unit.
    purchase_price: Option<&'a Decimal<'a>>,
}

pub(super) fn write_holding(holding: &Holding<'_>, read_at: Timestamp, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    let view = SetHolding {
        id: holding.id(),
        created: read_at.as_second(),
        currency: &holding.currency,
        symbol: &holding.symbol,
        description: holding.name.as_deref().unwrap_or(&holding.symbol),
        shares: &holding.quantity,
        market_value: holding.market_value.as_ref(),
        cost_basis: holding.cost.as_ref(),
        purchase_price: holding.average_price.as_ref(),
    };
    write_json(&view, out);
}

/// A name for the institution that no domain can have, because its domain is not known. Some
/// clients need one, and distinguish institutions by it. Other characters than letters, digits and
/// hyphens become hexadecimal.
fn domain(provider: &str, institution_id: &str) -> String {
    let mut name = String::new();
    let mut label = 0;
    for byte in institution_id.bytes() {
        let before = name.len();
        if label >= LABEL_BYTES_MAX {
            (label, _) = (0, name.push('.'));
        }
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
            // Writing to memory does not fail.
            _ => drop(write!(name, "x{byte:02x}")),
        }
        label += name.len() - before;
    }
    if name.is_empty() {
        name.push_str("unknown");
    }
    format!("{name}.{provider}.invalid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_a_host_name_below_invalid() {
        assert_eq!(domain("bank", "12"), "12.bank.invalid");
        assert_eq!(domain("bank", "id_A1"), "idx5fx411.bank.invalid");
        assert_eq!(
            domain("broker", "0191e7a0-91d4-7a01"),
            "0191e7a0-91d4-7a01.broker.invalid"
        );
        assert_eq!(domain("x", ""), "unknown.x.invalid");
        let long = domain("x", &"é".repeat(200));
        assert!(
            long.split('.')
                .all(|label| !label.is_empty() && label.len() <= 63),
            "{long}"
        );
    }
}
