use std::collections::BTreeMap;

use super::*;

/// A strict reader of what the writer writes: every tag is closed, and elements nest. Returns the
/// rows.
pub(super) fn read(file: &str) -> Vec<BTreeMap<String, String>> {
    let (header, body) = file.split_once("\n\n").unwrap();
    assert!(
        header.starts_with("OFXHEADER:100\nDATA:OFXSGML\nVERSION:103\n")
            && header.contains("\nENCODING:UTF-8\n")
    );
    let (mut open, mut rows, mut value): (Vec<&str>, Vec<BTreeMap<String, String>>, &str) =
        (Vec::new(), Vec::new(), "");
    for piece in body.trim_end().split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap();
        assert!(!text.contains('>'), "every > of a text is escaped");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
            if open.last() == Some(&"STMTTRN") {
                let added = rows
                    .last_mut()
                    .unwrap()
                    .insert(closed.to_owned(), unescape(value));
                assert!(added.is_none(), "{closed} is given once");
            }
        } else {
            open.push(tag);
            if tag == "STMTTRN" {
                rows.push(BTreeMap::new());
            }
        }
        value = text;
    }
    assert!(open.is_empty(), "{open:?}");
    rows
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn only_value<'f>(file: &'f str, tag: &str) -> &'f str {
    let start = format!("<{tag}>");
    assert_eq!(file.matches(&start).count(), 1, "{tag}");
    file.split_once(&start)
        .unwrap()
        .1
        .split('<')
        .next()
        .unwrap()
}

#[test]
fn head_names_account_days_and_balance() {
    let file = text_of(Format::Ofx, &[given("x", "-5.00")]);
    for (tag, expected) in [
        ("DTSERVER", "20261121103000"),
        ("ORG", "Ironbark Example Bank"),
        ("CURDEF", "AUD"),
        ("BANKID", "BELLBIRD"),
        ("ACCTID", "AZHnoJHUegGAAACqu8zd7g"),
        ("ACCTTYPE", "CHECKING"),
        ("DTSTART", "20261101"),
        ("DTEND", "20261121"),
        ("BALAMT", "4823.55"),
        ("DTASOF", "20261121"),
    ] {
        assert_eq!(only_value(&file, tag), expected);
    }
    assert!(file.find("</BANKTRANLIST>") < file.find("<LEDGERBAL>"));
}

#[test]
fn each_account_type_has_its_statement() {
    for (account_type, expected) in [
        (AccountType::Transaction, "CHECKING"),
        (AccountType::Savings, "SAVINGS"),
        (AccountType::TermDeposit, "SAVINGS"),
        (AccountType::Loan, "CREDITLINE"),
        (AccountType::Investment, "CHECKING"),
        (AccountType::Other, "CHECKING"),
    ] {
        let account = Account {
            account_type,
            ..account()
        };
        let file = text_of_account(Format::Ofx, &account, &[]);
        assert_eq!(only_value(&file, "ACCTTYPE"), expected);
    }
    let card = Account {
        account_type: AccountType::CreditCard,
        ..account()
    };
    let file = text_of_account(Format::Ofx, &card, &[given("x", "-5.00")]);
    assert_eq!(read(&file).len(), 1);
    for part in [
        "<CREDITCARDMSGSRSV1><CCSTMTTRNRS>",
        "<CCACCTFROM><ACCTID>AZHnoJHUegGAAACqu8zd7g</ACCTID></CCACCTFROM>",
    ] {
        assert!(file.contains(part), "{part}");
    }
    assert!(!file.contains("BANKID"));
}

#[test]
fn ofx_without_a_balance_is_rejected() {
    let account = account();
    let write = |balance: Option<&Balance>| {
        file_with(Format::Ofx, Options::default(), &account, balance, &[])
    };
    assert_eq!(write(None).unwrap_err(), FormatError::NoBalance);
    assert_eq!(
        write(Some(&balance(None, "AUD"))).unwrap_err(),
        FormatError::NoBalance
    );
    assert_eq!(
        write(Some(&balance(Some("1.00"), "NZD"))).unwrap_err(),
        FormatError::NoBalance,
        "another currency"
    );
    assert!(write(Some(&balance(Some("1.00"), "XXX"))).is_ok());
}

#[test]
fn row_in_another_currency_is_rejected() {
    let account = account();
    let row = given("x", "-5.00");
    let ynab = Options {
        layout: super::super::Layout::Ynab,
        ..Options::default()
    };
    for (format, options) in [
        (Format::Ofx, Options::default()),
        (Format::Qif, Options::default()),
        (Format::Csv, ynab),
    ] {
        let mut writer = format.writer(options);
        let balance = balance(Some("1.00"), "AUD");
        let head = Head {
            resource: Resource::Transactions,
            account: Some(&account),
            accounts: &[],
            balance: Some(&balance),
            days: (None, None),
            read_at: Timestamp::UNIX_EPOCH,
            today: DAY,
        };
        let mut out = Vec::new();
        writer.start(&head, &mut out).unwrap();
        let own = Transaction {
            currency: Currency::parse("AUD"),
            ..row.row(&account)
        };
        assert_eq!(writer.transaction(&own, DAY, &mut out), Ok(()));
        let other = Transaction {
            currency: Currency::parse("USD"),
            ..row.row(&account)
        };
        assert_eq!(
            writer.transaction(&other, DAY, &mut out),
            Err(FormatError::OtherCurrency)
        );
    }
}

#[test]
fn file_of_several_accounts_is_rejected() {
    let head = head_of_several();
    for format in Format::ALL {
        for layout in [super::super::Layout::Wide, super::super::Layout::Ynab] {
            let started = format
                .writer(Options {
                    layout,
                    ..Options::default()
                })
                .start(&head, &mut Vec::new());
            let expected = if format.holds_several_accounts(layout) {
                Ok(())
            } else {
                Err(FormatError::OneAccount)
            };
            assert_eq!(started, expected, "{format:?} {layout:?}");
        }
    }
}

#[test]
fn amounts_keep_the_digits_of_the_provider() {
    for amount in [
        "-7",
        "0",
        "-0.123456789012345678",
        "12345678901234567890123456789012345.67",
    ] {
        assert_eq!(
            read(&text_of(Format::Ofx, &[given("x", amount)]))[0]["TRNAMT"],
            amount
        );
    }
}

#[test]
fn qif_amounts_have_two_decimals_or_are_rejected() {
    for (amount, expected) in [
        ("-7", Ok("T-7.00")),
        ("1234567.8900", Ok("T1234567.89")),
        ("-11.125", Err(FormatError::TooManyPlaces)),
        ("12345678901234567890.00", Err(FormatError::TooManyDigits)),
    ] {
        let file = plain_file(Format::Qif, &account(), &[given("x", amount)]);
        let text = file.map(|file| String::from_utf8(file).unwrap());
        let line = text.as_deref().map(|text| text.lines().nth(2).unwrap());
        assert_eq!(line, expected.as_deref(), "{amount}");
    }
    let card = Account {
        account_type: AccountType::CreditCard,
        ..account()
    };
    let file = text_of_account(Format::Qif, &card, &[]);
    assert!(file.starts_with("!Type:CCard\n"));
}
