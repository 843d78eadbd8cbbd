use super::*;

pub(super) struct Entry {
    pub(super) date: String,
    pub(super) code: Option<String>,
    pub(super) description: String,
    pub(super) tags: Vec<(String, String)>,
    /// Account and amount.
    pub(super) postings: Vec<(String, String)>,
}

/// Reads as hledger and ledger do: a line that begins with a digit begins a transaction, indented
/// lines belong to it, and two blanks end the name of an account.
pub(super) fn read_journal(file: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in file
        .split('\n')
        .filter(|line| !line.is_empty() && !line.starts_with(';'))
    {
        let Some(indented) = line.strip_prefix("    ") else {
            let (date, rest) = line.split_at(10);
            let rest = rest.strip_prefix(" *").unwrap().trim_start();
            let (code, description) =
                match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                    Some((code, description)) => (Some(code.to_owned()), description.trim_start()),
                    None => (None, rest),
                };
            assert!(!description.contains(';'), "a comment");
            entries.push(Entry {
                date: date.to_owned(),
                code,
                description: description.to_owned(),
                tags: Vec::new(),
                postings: Vec::new(),
            });
            continue;
        };
        let entry = entries.last_mut().unwrap();
        if let Some(comment) = indented.strip_prefix("; ") {
            let (name, value) = comment.split_once(": ").unwrap();
            entry.tags.push((name.to_owned(), value.to_owned()));
        } else {
            let (account, amount) = indented.split_once("  ").unwrap_or((indented, ""));
            entry.postings.push((account.to_owned(), amount.to_owned()));
        }
    }
    entries
}

/// Reads string literals as beancount does: a backslash takes the next character as it is.
pub(super) fn read_beancount(file: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in file
        .split('\n')
        .filter(|line| !line.is_empty() && !line.starts_with(';'))
    {
        if let Some(plugin) = line.strip_prefix("plugin ") {
            assert_eq!(plugin, "\"beancount.plugins.auto_accounts\"");
        } else if let Some(indented) = line.strip_prefix("  ") {
            let entry = entries.last_mut().unwrap();
            match indented.split_once(": ") {
                Some((name, value)) => entry
                    .tags
                    .push((name.to_owned(), literals(value).remove(0))),
                None => {
                    let (account, amount) = indented.split_once("  ").unwrap();
                    entry.postings.push((account.to_owned(), amount.to_owned()));
                }
            }
        } else {
            let (date, rest) = line.split_once(" * ").unwrap();
            let mut texts = literals(rest);
            entries.push(Entry {
                date: date.to_owned(),
                code: None,
                description: texts.pop().unwrap(),
                tags: Vec::new(),
                postings: Vec::new(),
            });
            assert!(texts.len() <= 1, "payee and narration");
        }
    }
    entries
}

/// The string literals of a line, which holds nothing else.
fn literals(line: &str) -> Vec<String> {
    let (mut texts, mut letters) = (Vec::new(), line.chars());
    while let Some(quote) = letters.next() {
        assert_eq!(quote, '"', "{line:?}");
        let mut text = String::new();
        loop {
            match letters.next().unwrap() {
                '"' => break,
                '\\' => text.push(letters.next().unwrap()),
                letter => text.push(letter),
            }
        }
        texts.push(text);
        assert!(matches!(letters.next(), None | Some(' ')));
    }
    texts
}

#[test]
fn journal_of_a_row() {
    let row = Given {
        merchant: Some("Semi; Colon".to_owned()),
        category: Some(Category::FoodAndDrink),
        ..given("LUNCH | CAFE", "-12.50")
    };
    let expected = "\
; Transactions of Bellbird, read at 2026-11-21T10:30:00Z
; The balance then, as an assertion that holds once the journal is complete:
; 2026-11-21 * balance
;     assets:ironbark example bank:everyday 1234  0 AUD = 4823.55 AUD

2026-11-20 * Semi, Colon | LUNCH / CAFE
    ; id: row-1
    ; category: FOOD_AND_DRINK
    assets:ironbark example bank:everyday 1234  -12.50 AUD
    expenses:food and drink

; End of the file. Transactions: 1
";
    assert_eq!(text_of(Format::Journal, &[row]), expected);
}

#[test]
fn beancount_of_a_row() {
    let row = Given {
        merchant: Some("\"Q\" \\ Co".to_owned()),
        category: Some(Category::FoodAndDrink),
        ..given("LUNCH #tag", "-12.50")
    };
    let expected = r#"; Transactions of Bellbird, read at 2026-11-21T10:30:00Z
plugin "beancount.plugins.auto_accounts"
; The balance then, as an assertion that holds once the ledger is complete:
; 2026-11-22 balance Assets:Ironbark-Example-Bank:Everyday-1234  4823.55 AUD

2026-11-20 * "\"Q\" \\ Co" "LUNCH #tag"
  id: "row-1"
  category: "FOOD_AND_DRINK"
  Assets:Ironbark-Example-Bank:Everyday-1234  -12.50 AUD
  Expenses:Food-And-Drink  12.50 AUD

; End of the file. Transactions: 1
"#;
    assert_eq!(text_of(Format::Beancount, &[row]), expected);
}

#[test]
fn other_side_follows_category_then_sign() {
    for (category, amount, journal, beancount) in [
        (None, "-1.00", "expenses:unknown", "Expenses:Unknown"),
        (None, "1.00", "income:unknown", "Income:Unknown"),
        (None, "0.00", "income:unknown", "Income:Unknown"),
        (
            Some(Category::Income),
            "1.00",
            "income:unknown",
            "Income:Unknown",
        ),
        (
            Some(Category::TransferIn),
            "1.00",
            "equity:transfers",
            "Equity:Transfers",
        ),
        (
            Some(Category::TransferOut),
            "-1.00",
            "equity:transfers",
            "Equity:Transfers",
        ),
        (
            Some(Category::Travel),
            "1.00",
            "expenses:travel",
            "Expenses:Travel",
        ),
    ] {
        let rows = [Given {
            category,
            ..given("x", amount)
        }];
        assert_eq!(
            read_journal(&text_of(Format::Journal, &rows))[0].postings[1].0,
            journal
        );
        assert_eq!(
            read_beancount(&text_of(Format::Beancount, &rows))[0].postings[1].0,
            beancount
        );
    }
}

#[test]
fn beancount_rejects_what_it_would_round() {
    let write = |amount| {
        let rows = [given("x", amount)];
        plain_file(Format::Beancount, &account(), &rows).map(drop)
    };
    assert_eq!(write("-0.000000000000000000000000000001"), Ok(()));
    assert_eq!(write("-99999999999999999999.99999999"), Ok(()));
    assert_eq!(
        write("-99999999999999999999.999999999"),
        Err(FormatError::TooManyDigits)
    );
}

#[test]
fn accounts_of_one_name_stay_apart() {
    let number = MaskedNumber::mask("00001234");
    let [one, two] = [(); 2].map(|()| Account {
        id: AccountId::new(),
        number: number.clone(),
        ..account()
    });
    let card = Account {
        account_type: AccountType::CreditCard,
        ..account()
    };
    let row = given("x", "-1.00");
    for (format, read) in [
        (Format::Journal, read_journal as fn(&str) -> Vec<Entry>),
        (Format::Beancount, read_beancount),
    ] {
        let accounts = [one.clone(), two.clone(), card.clone()];
        let names_of = |rows: &[&Account]| {
            let mut writer = format.writer(Options::default());
            let (mut head, mut out) = (Vec::new(), Vec::new());
            writer
                .start(
                    &Head {
                        accounts: &accounts,
                        ..head_of_several()
                    },
                    &mut head,
                )
                .unwrap();
            for account in rows {
                writer
                    .transaction(&row.row(account), DAY, &mut out)
                    .unwrap();
            }
            let entries = read(std::str::from_utf8(&out).unwrap());
            entries
                .into_iter()
                .map(|mut entry| entry.postings.remove(0).0)
                .collect::<Vec<_>>()
        };
        let names = names_of(&[&one, &two, &one, &card]);
        assert_eq!(names[0], names[2]);
        assert!(
            names[1] != names[0] && !names[1].starts_with(&names[0]),
            "{names:?}"
        );
        assert!(
            names[3].to_lowercase().starts_with("liabilities:"),
            "{names:?}"
        );
        // Those of any other file.
        assert_eq!(names_of(&[&two, &one]), [names[1].as_str(), &names[0]]);
        assert_eq!(names_of(&[&two]), names[1..2]);
    }
}

#[test]
fn what_is_left_out_is_a_comment_at_the_end() {
    let institution_name = "Iron\n2026-01-01 open Assets:X".to_owned();
    let left_out = LeftOut {
        connection_id: ConnectionId::new(),
        institution_name,
        error: "reconnect_required",
    };
    for format in [Format::Journal, Format::Beancount] {
        let mut out = Vec::new();
        format
            .writer(Options::default())
            .end(3, Some(std::slice::from_ref(&left_out)), &mut out);
        let expected = format!(
            "\n; Left out: Iron 2026-01-01 open Assets:X, connection {}: reconnect_required\n\n\
             ; End of the file. Transactions: 3\n",
            left_out.connection_id
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn unknown_balance_is_left_out() {
    for format in [Format::Journal, Format::Beancount] {
        let file = file_with(format, Options::default(), &account(), None, &[]).unwrap();
        assert!(!String::from_utf8(file).unwrap().contains("balance"));
    }
}
