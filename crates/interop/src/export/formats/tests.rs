//! Untrusted text stays text in every format: each file is read back by a small reader of its
//! format, which finds the rows that were written and nothing else.

mod hostile;
mod journals;
mod ofx;
mod tables;

use bellbird_domain::{
    Account, AccountId, AccountType, Balance, Category, ConnectionId, Currency, Decimal,
    MaskedNumber, Transaction, UserId,
};
use jiff::Timestamp;
use jiff::civil::{Date, date};

use super::{Format, FormatError, Head, LeftOut, Options, Resource};

const DAY: Date = date(2026, 11, 20);

fn account() -> Account {
    Account {
        id: "0191e7a0-91d4-7a01-8000-00aabbccddee".parse().unwrap(),
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: "bank".to_owned(),
        provider_account_id: "1".to_owned(),
        name: "Everyday".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: Some("Ironbark Example Bank".to_owned()),
        number: MaskedNumber::mask("00001234"),
        currency: Currency::parse("AUD").unwrap(),
    }
}

fn balance(amount: Option<&str>, currency: &str) -> Balance {
    Balance {
        current: amount.map(|amount| Decimal::parse(amount).unwrap().into_owned()),
        available: None,
        currency: Currency::parse(currency),
    }
}

/// What a row says.
#[derive(Clone, Debug)]
struct Given {
    id: String,
    description: String,
    merchant: Option<String>,
    amount: String,
    category: Option<Category>,
}

fn given(description: &str, amount: &str) -> Given {
    Given {
        id: "row-1".to_owned(),
        description: description.to_owned(),
        merchant: None,
        amount: amount.to_owned(),
        category: None,
    }
}

impl Given {
    fn row<'a>(&'a self, account: &'a Account) -> Transaction<'a> {
        Transaction {
            id: self.id.as_str().into(),
            account,
            instant: Timestamp::UNIX_EPOCH,
            day: None,
            seen_at: None,
            datetime: "2026-11-19T21:15:42.000Z".into(),
            description: self.description.as_str().into(),
            amount: Decimal::parse(&self.amount).unwrap(),
            category: self.category,
            merchant_name: self.merchant.as_deref().map(Into::into),
            merchant_category_code: None,
            currency: None,
            provider_type: None,
            executed: None,
            reference: None,
            extended_description: None,
        }
    }
}

/// Writes a file of one account with a balance.
fn file(
    format: Format,
    options: Options,
    account: &Account,
    rows: &[Given],
) -> Result<Vec<u8>, FormatError> {
    file_with(
        format,
        options,
        account,
        Some(&balance(Some("4823.55"), account.currency.as_str())),
        rows,
    )
}

/// As [`file`], without options.
fn plain_file(format: Format, account: &Account, rows: &[Given]) -> Result<Vec<u8>, FormatError> {
    file(format, Options::default(), account, rows)
}

fn file_with(
    format: Format,
    options: Options,
    account: &Account,
    balance: Option<&Balance>,
    rows: &[Given],
) -> Result<Vec<u8>, FormatError> {
    let head = Head {
        resource: Resource::Transactions,
        account: Some(account),
        accounts: std::slice::from_ref(account),
        balance,
        days: (Some(date(2026, 11, 1)), None),
        read_at: "2026-11-21T10:30:00Z".parse().unwrap(),
        today: date(2026, 11, 21),
    };
    let (mut writer, mut whole, mut out) = (format.writer(options), Vec::new(), Vec::new());
    writer.start(&head, &mut out)?;
    for given in rows {
        // As a stream does it.
        whole.append(&mut out);
        writer.transaction(&given.row(account), DAY, &mut out)?;
    }
    whole.append(&mut out);
    writer.end(rows.len() as u64, None, &mut whole);
    Ok(whole)
}

fn head_of_several() -> Head<'static> {
    let read_at = Timestamp::UNIX_EPOCH;
    Head {
        resource: Resource::Transactions,
        account: None,
        accounts: &[],
        balance: None,
        days: (None, None),
        read_at,
        today: DAY,
    }
}

fn text_of(format: Format, rows: &[Given]) -> String {
    text_of_account(format, &account(), rows)
}

fn text_of_account(format: Format, account: &Account, rows: &[Given]) -> String {
    String::from_utf8(plain_file(format, account, rows).unwrap()).unwrap()
}

#[test]
fn format_names_round_trip() {
    for format in Format::ALL {
        assert_eq!(Format::from_name(format.as_str()), Some(*format));
    }
    assert_eq!(Format::from_name("CSV"), None);
}
