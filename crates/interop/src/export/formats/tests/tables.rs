use bellbird_api::v1::{HoldingView, TradeView, TransactionView};
use bellbird_domain::{Holding, Trade, TradeTime, TradeType};

use super::super::{Layout, WriteFile};
use super::*;

fn decimal(text: &str) -> Decimal<'_> {
    Decimal::parse(text).unwrap()
}

/// The header and the only row, without institution and number, which come last.
fn csv_row(file: &[u8]) -> Vec<(String, String)> {
    let mut row = whole_csv_row(file);
    let last = row.split_off(row.len() - 2);
    let last: Vec<_> = last
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        last,
        [
            ("institutionName", "Ironbark Example Bank"),
            ("accountNumber", "xxxx1234")
        ]
    );
    row
}

/// The header and the only row, as texts; absent values are empty.
fn whole_csv_row(file: &[u8]) -> Vec<(String, String)> {
    let mut reader = csv::Reader::from_reader(file);
    let header = reader.headers().unwrap().clone();
    let mut rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1);
    let row = rows.remove(0);
    header
        .iter()
        .zip(&row)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The members of `/v1` in their order; null is empty.
fn members(view: &impl serde::Serialize) -> Vec<(String, String)> {
    let text = serde_json::to_string(view).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut members: Vec<_> = value.as_object().unwrap().iter().collect();
    members.sort_by_key(|(name, _)| text.find(&format!("\"{name}\":")));
    members
        .iter()
        .map(|(name, value)| {
            (
                (*name).clone(),
                value.as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

fn json_line(view: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(view).unwrap();
    line.push(b'\n');
    line
}

#[test]
fn csv_has_the_members_of_v1() {
    let (account, given) = (account(), given("TWO\nLINES, \"QUOTED\"", "-5.00"));
    let row = given.row(&account);
    let file = plain_file(Format::Csv, &account, std::slice::from_ref(&given)).unwrap();
    assert_eq!(csv_row(&file), members(&TransactionView::new(&row, DAY)));
}

#[test]
fn byte_order_mark_is_only_on_request() {
    let write = |byte_order_mark| {
        let options = Options {
            byte_order_mark,
            ..Options::default()
        };
        file(Format::Csv, options, &account(), &[]).unwrap()
    };
    assert!(write(false).starts_with(b"id,accountId,"));
    assert!(write(true).starts_with("\u{feff}id,accountId,".as_bytes()));
    assert!(write(false).ends_with(b"merchantCategoryCode,institutionName,accountNumber\r\n"));
}

#[test]
fn account_without_institution_and_number_has_empty_columns() {
    let account = Account {
        institution_name: None,
        number: None,
        ..account()
    };
    let file = plain_file(Format::Csv, &account, &[given("A", "-5.00")]).unwrap();
    let row = whole_csv_row(&file);
    assert!(
        row[row.len() - 2..]
            .iter()
            .all(|(_, value)| value.is_empty()),
        "{row:?}"
    );
}

#[test]
fn formulas_are_quoted_behind_other_separators() {
    let options = Options {
        quote_formulas: true,
        ..Options::default()
    };
    for (text, expected) in [
        ("=1", "'=1"),
        ("a;=1", "a;'=1"),
        ("a;b=1;\"+2\"", "a;b=1;'\"+2\""),
        ("a\t@b\n-c", "a\t'@b\n'-c"),
        ("=1;=2", "'=1;'=2"),
        ("a'=1;b", "a'=1;b"),
    ] {
        let file = file(Format::Csv, options, &account(), &[given(text, "-5.00")]).unwrap();
        let description = csv_row(&file)
            .into_iter()
            .find(|(name, _)| name == "description")
            .unwrap()
            .1;
        assert_eq!(description, expected);
    }
}

#[test]
fn ynab_layout_splits_amounts() {
    let options = Options {
        layout: Layout::Ynab,
        ..Options::default()
    };
    let rows = [
        Given {
            merchant: Some("Cafe".to_owned()),
            ..given("LUNCH", "-12.50")
        },
        given("SALARY", "2500"),
        given("Z", "0"),
    ];
    let file = String::from_utf8(file(Format::Csv, options, &account(), &rows).unwrap()).unwrap();
    assert_eq!(
        file,
        "Date,Payee,Memo,Outflow,Inflow\r\n2026-11-20,Cafe,LUNCH,12.50,\r\n2026-11-20,SALARY,SALARY,,2500\r\n\
         2026-11-20,Z,Z,,0\r\n"
    );
}

fn trade(account: &Account) -> Trade<'_> {
    Trade {
        account,
        symbol: "=VAB".into(),
        name: Some("FUND, \"A\"\nB".into()),
        trade_type: TradeType::Buy,
        provider_type: "BUY".into(),
        quantity: Some(decimal("5.2")),
        price: None,
        currency: "CAD".into(),
        total_amount: Some(decimal("-2.08")),
        fees: None,
        trade_date: "2026-03-22".into(),
        time: TradeTime::Day(DAY),
        settlement_date: None,
        description: Some("BOUGHT".into()),
    }
}

/// A file with its first line.
fn started(format: Format, options: Options, resource: Resource) -> (Box<dyn WriteFile>, Vec<u8>) {
    let (mut writer, mut out) = (format.writer(options), Vec::new());
    let head = Head {
        resource,
        ..head_of_several()
    };
    writer.start(&head, &mut out).unwrap();
    (writer, out)
}

#[test]
fn trades_have_the_members_of_v1() {
    let account = account();
    let trade = trade(&account);
    let write = |format, options| {
        let (mut writer, mut out) = started(format, options, Resource::Trades);
        writer.trade(&trade, &mut out).unwrap();
        out
    };
    assert_eq!(
        csv_row(&write(Format::Csv, Options::default())),
        members(&TradeView::new(&trade))
    );
    let options = Options {
        quote_formulas: true,
        ..Options::default()
    };
    let quoted = csv_row(&write(Format::Csv, options));
    assert_eq!(
        (quoted[3].1.as_str(), quoted[9].1.as_str()),
        ("'=VAB", "-2.08")
    );
    let line = write(Format::Jsonl, Options::default());
    assert_eq!(line, json_line(&TradeView::new(&trade)));
}

fn holding(account: &Account) -> Holding<'_> {
    Holding {
        account,
        instrument_id: "i1".into(),
        occurrence: 1,
        symbol: "AAPL".into(),
        name: None,
        exchange: Some("XNAS".into()),
        currency: "USD".into(),
        quantity: decimal("10.5"),
        average_price: Some(decimal("118.2")),
        current_price: None,
        market_value: None,
        cost: Some(decimal("1241.1")),
        unrealized_pnl: Some(decimal("-3")),
    }
}

#[test]
fn holdings_have_the_members_of_v1() {
    let account = account();
    let holding = holding(&account);
    let write = |format| {
        let (mut writer, mut out) = started(format, Options::default(), Resource::Holdings);
        writer.holding(&holding, &mut out).unwrap();
        out
    };
    assert_eq!(
        csv_row(&write(Format::Csv)),
        members(&HoldingView::new(&holding))
    );
    let line = write(Format::Jsonl);
    assert_eq!(line, json_line(&HoldingView::new(&holding)));
}

#[test]
fn only_csv_and_json_lines_hold_tables() {
    let account = account();
    for format in Format::ALL {
        for layout in [Layout::Wide, Layout::Ynab] {
            let options = Options {
                layout,
                ..Options::default()
            };
            // A layout for transactions only. No request for tables has it.
            let is_ynab = *format == Format::Csv && layout == Layout::Ynab;
            let check = |written: Result<(), FormatError>, out: Vec<u8>| {
                if format.holds_tables() && !is_ynab {
                    assert!(written.is_ok() && !out.is_empty(), "{format:?} {layout:?}");
                } else {
                    assert_eq!(written, Err(FormatError::Internal), "{format:?} {layout:?}");
                    assert!(out.is_empty(), "{format:?} {layout:?}");
                }
            };
            let (mut out, mut writer) = (Vec::new(), format.writer(options));
            check(writer.trade(&trade(&account), &mut out), out);
            let (mut out, mut writer) = (Vec::new(), format.writer(options));
            check(writer.holding(&holding(&account), &mut out), out);
        }
    }
}
