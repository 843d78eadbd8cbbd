//! Every format with texts from a hostile alphabet.

use proptest::prelude::*;

use super::*;
use crate::export::formats::text::{cut, one_line};

/// Everything that means something to some format or reader, and plain letters between.
const PARTS: [&str; 44] = [
    ";",
    "  ;",
    "\"",
    "'",
    "\\",
    "&",
    "&amp;",
    "<",
    ">",
    "]]>",
    "</STMTTRN>",
    "<STMTTRN>",
    "|",
    ",",
    ":",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n^\n",
    "^",
    "\u{0}",
    "\u{1b}",
    "\u{85}",
    "\u{2028}",
    "\u{fffe}",
    "=",
    "+",
    "-",
    "@",
    "#tag",
    "^link",
    "{{x}}",
    "(",
    ")",
    "[2020-01-01]",
    "  ",
    "🥝",
    "é",
    "東",
    "\u{202e}",
    "a",
    "B",
    "\n2026-01-01 * x\n  a:b  1 AUD\n",
];

fn hostile_text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..12)
        .prop_map(|parts| parts.concat())
}

prop_compose! {
    fn hostile_row()(
        id in prop_oneof!["[a-z0-9_]{1,40}", hostile_text(), "[a-z]{256,300}"],
        description in prop_oneof![4 => hostile_text(), 1 => "[a-zé]{300}"],
        merchant in prop::option::of(hostile_text()),
        amount in "-?(0|[1-9][0-9]{0,9})\\.[0-9]{2}",
        category in prop::option::of(prop::sample::select(Category::ALL)),
    ) -> Given {
        Given { id, description, merchant, amount, category }
    }
}

fn hostile_rows() -> impl Strategy<Value = Vec<Given>> {
    prop::collection::vec(hostile_row(), 0..5)
}

/// The amount as it is shown.
fn shown(given: &Given) -> String {
    Decimal::parse(&given.amount).unwrap().to_string()
}

/// The merchant, else the description, on one line.
fn expected_payee(given: &Given) -> String {
    let merchant = given
        .merchant
        .as_deref()
        .map(one_line)
        .filter(|text| !text.is_empty());
    merchant
        .unwrap_or_else(|| one_line(&given.description))
        .into_owned()
}

proptest! {
    #[test]
    fn one_line_has_no_break(text in hostile_text()) {
        let line = one_line(&text);
        prop_assert!(line.lines().count() <= 1 && !line.contains(char::is_control));
        prop_assert_eq!(line.trim(), &*line);
        let letters = |text: &str| text.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>();
        prop_assert_eq!(letters(&line), letters(&text), "no letter is lost");
    }

    #[test]
    fn csv_holds_texts_exactly(rows in hostile_rows()) {
        let file = text_of(Format::Csv, &rows);
        let mut reader = csv::Reader::from_reader(file.as_bytes());
        let read: Vec<_> = reader.records().map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), rows.len());
        for (record, given) in read.iter().zip(&rows) {
            prop_assert_eq!(&record[0], &given.id);
            prop_assert_eq!(&record[4], "2026-11-20");
            prop_assert_eq!(&record[6], &given.description);
            prop_assert_eq!(&record[7], shown(given));
            prop_assert_eq!(&record[10], given.category.map_or("", Category::key));
            prop_assert_eq!(&record[11], given.merchant.as_deref().unwrap_or_default());
        }
    }

    #[test]
    fn quoted_formulas_are_texts(rows in hostile_rows()) {
        let options = Options { quote_formulas: true, ..Options::default() };
        let file = file(Format::Csv, options, &account(), &rows).unwrap();
        for (record, given) in csv::Reader::from_reader(&*file).records().map(Result::unwrap).zip(&rows) {
            for (at, field) in record.iter().enumerate() {
                let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
                prop_assert!(!is_formula || at == 7, "only amounts begin with a sign: {:?}", field);
            }
            prop_assert_eq!(&record[7], shown(given));
            // Nothing but marks is added.
            prop_assert_eq!(record[6].replace('\'', ""), given.description.replace('\'', ""));
        }
    }

    #[test]
    fn json_lines_hold_texts_exactly(rows in hostile_rows()) {
        let file = text_of(Format::Jsonl, &rows);
        let lines = file.split_terminator('\n');
        let read: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        prop_assert_eq!(read.len(), rows.len());
        for (row, given) in read.iter().zip(&rows) {
            prop_assert_eq!(row["id"].as_str(), Some(&*given.id));
            prop_assert_eq!(row["description"].as_str(), Some(&*given.description));
            prop_assert_eq!(row["merchantName"].as_str(), given.merchant.as_deref());
            prop_assert_eq!(row["amount"].as_str().unwrap(), shown(given));
        }
    }

    #[test]
    fn ofx_rows_stay_rows(rows in hostile_rows()) {
        let file = text_of(Format::Ofx, &rows);
        let read = ofx::read(&file);
        prop_assert_eq!(read.len(), rows.len());
        for (row, given) in read.iter().zip(&rows) {
            prop_assert_eq!(&row["DTPOSTED"], "20261120");
            prop_assert_eq!(&row["TRNAMT"], &shown(given));
            let expected = |text: &str, chars| cut(text, chars).trim_end().to_owned();
            prop_assert_eq!(row.get("NAME").cloned().unwrap_or_default(), expected(&expected_payee(given), 32));
            prop_assert_eq!(row.get("MEMO").cloned().unwrap_or_default(), expected(&one_line(&given.description), 255));
            prop_assert!(row["FITID"].chars().count() <= 255 && !row["FITID"].contains(char::is_whitespace));
        }
        let ids: std::collections::BTreeSet<_> = rows.iter().map(|given| &given.id).collect();
        let fitids: std::collections::BTreeSet<_> = read.iter().map(|row| &row["FITID"]).collect();
        prop_assert_eq!(ids.len(), fitids.len(), "different ids stay different");
    }

    #[test]
    fn qif_rows_stay_rows(rows in hostile_rows()) {
        let file = text_of(Format::Qif, &rows);
        let lines: Vec<&str> = file.strip_prefix("!Type:Bank\n").unwrap().split_terminator('\n').collect();
        let mut records = lines.split_inclusive(|line| *line == "^");
        for given in &rows {
            let lines = records.next().unwrap();
            let field = |mark: char| lines.iter().find_map(|line| line.strip_prefix(mark)).unwrap_or_default();
            prop_assert_eq!(field('D'), "2026-11-20");
            prop_assert_eq!(field('T'), shown(given));
            prop_assert_eq!(field('P'), expected_payee(given));
            prop_assert_eq!(field('M'), &*one_line(&given.description));
            prop_assert!(lines.len() <= 5 && lines.last() == Some(&"^"));
        }
        prop_assert!(records.next().is_none());
    }

    #[test]
    fn journal_rows_stay_rows(rows in hostile_rows()) {
        let read = journals::read_journal(&text_of(Format::Journal, &rows));
        prop_assert_eq!(read.len(), rows.len());
        for (entry, given) in read.iter().zip(&rows) {
            prop_assert_eq!(&entry.date, "2026-11-20");
            prop_assert_eq!(entry.code.as_deref().unwrap_or_default(), "");
            prop_assert!(!entry.description.contains(';') && !entry.description.contains("  "));
            prop_assert_eq!(&entry.tags[0].0, "id");
            prop_assert!(!entry.tags[0].1.contains([',', ' ']));
            prop_assert_eq!(entry.tags.len(), 1 + usize::from(given.category.is_some()));
            prop_assert_eq!(entry.postings.len(), 2);
            let amount = format!("{} AUD", shown(given));
            prop_assert_eq!(&entry.postings[0], &("assets:ironbark example bank:everyday 1234".to_owned(), amount));
            prop_assert_eq!(&entry.postings[1].1, "", "the other amount is inferred");
        }
    }

    #[test]
    fn beancount_rows_stay_rows(rows in hostile_rows()) {
        let read = journals::read_beancount(&text_of(Format::Beancount, &rows));
        prop_assert_eq!(read.len(), rows.len());
        for (entry, given) in read.iter().zip(&rows) {
            prop_assert_eq!(&entry.date, "2026-11-20");
            prop_assert_eq!(&entry.description, &*one_line(&given.description));
            prop_assert_eq!(&entry.tags[0], &("id".to_owned(), one_line(&given.id).into_owned()));
            prop_assert_eq!(entry.tags.len(), 1 + usize::from(given.category.is_some()));
            let amount = format!("{} AUD", shown(given));
            prop_assert_eq!(&entry.postings[0], &("Assets:Ironbark-Example-Bank:Everyday-1234".to_owned(), amount));
            let other = entry.postings[1].1.strip_suffix(" AUD").unwrap();
            let negated = shown(given).strip_prefix('-').map_or_else(|| format!("-{}", shown(given)), str::to_owned);
            prop_assert!(other == negated || other.trim_matches(['0', '.']).is_empty(), "{other}");
        }
    }

    #[test]
    fn account_names_cannot_leave_their_place(name in hostile_text(), institution in hostile_text()) {
        let odd = Account { name, institution_name: Some(institution), ..account() };
        let rows = [given("x", "-1.00")];
        let text = |format| text_of_account(format, &odd, &rows);
        let journal = journals::read_journal(&text(Format::Journal));
        prop_assert_eq!((journal.len(), journal[0].postings.len()), (1, 2));
        prop_assert_eq!(journal[0].postings[0].0.split(':').count(), 3);
        prop_assert_eq!(&journal[0].postings[0].1, "-1.00 AUD");
        let beancount = journals::read_beancount(&text(Format::Beancount));
        let parts: Vec<_> = beancount[0].postings[0].0.split(':').collect();
        prop_assert_eq!(parts.len(), 3);
        for part in parts {
            let first = part.chars().next().unwrap();
            prop_assert!(first.is_uppercase() || first.is_ascii_digit(), "{part}");
            prop_assert!(part.chars().all(|letter| letter.is_alphanumeric() || letter == '-'), "{part}");
        }
        prop_assert_eq!(ofx::read(&text(Format::Ofx)).len(), 1);
        prop_assert_eq!(csv::Reader::from_reader(text(Format::Csv).as_bytes()).records().count(), 1);
    }
}
