use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use super::*;
use crate::text::Text;

/// A page with members of every type that the adapters read.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    rows: Vec<Row<'a>>,
    #[serde(borrow, default)]
    links: Option<Links<'a>>,
    total: Option<u64>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    amount: Option<Token<'a>>,
    note: Option<Text<'a>>,
    #[serde(rename = "type", default, deserialize_with = "none_if_invalid")]
    kind: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    extra: Option<Links<'a>>,
    is_new: Option<bool>,
    any: Option<Value>,
}

#[derive(Deserialize)]
struct Links<'a> {
    #[serde(borrow)]
    next: Option<Text<'a>>,
}

/// All values of a page, so that two can be compared.
fn written(page: &Page<'_>) -> String {
    let text = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.as_str().to_owned());
    let token = |token: &Token<'_>| match token {
        Token::Null => "null".to_owned(),
        Token::String(text) => format!("string {text}"),
        Token::Other(text) => format!("other {text}"),
    };
    let links = |links: &Option<Links<'_>>| links.as_ref().map(|links| text(&links.next));
    let row = |row: &Row<'_>| {
        let texts = (row.id.as_str().to_owned(), text(&row.note), text(&row.kind));
        format!(
            "{texts:?} {:?} {:?}",
            row.amount.as_ref().map(token),
            (links(&row.extra), row.is_new, &row.any)
        )
    };
    format!(
        "{:?} {:?} {:?}",
        page.rows.iter().map(row).collect::<Vec<_>>(),
        links(&page.links),
        page.total
    )
}

/// Asserts that both parsers accept the text or reject it, and read the same from it. Returns
/// whether it is accepted.
fn compare(text: &str) -> bool {
    let page = from_str::<Page<'_>>(text).ok().map(|page| written(&page));
    let expected = serde_json::from_str::<Page<'_>>(text).ok();
    assert_eq!(page, expected.map(|page| written(&page)), "{text}");
    let expected = serde_json::from_str::<Value>(text).ok();
    assert_eq!(from_str::<Value>(text).ok(), expected, "{text}");
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    assert_eq!(from_str::<IgnoredAny>(text).is_ok(), is_json, "{text}");
    page.is_some()
}

#[test]
fn reads_what_serde_json_reads() {
    let page = |row: &str| format!(r#"{{"rows":[{{{row}}}]}}"#);
    for row in [
        r#""id":"a""#,
        r#" "id" : "a" , "amount" : 1e-7 , "other" : [ 1 , { "a" : [ ] } , "]" ] "#,
        r#""id":"\u0061\ud83d\ude00\n","n\u006fte":"\"","amount":"\u0031""#,
        r#""id":"a","type":"\ud800","extra":{"next":"b","next":"c"},"other":"\ud800""#,
        r#""id":"a","type":7,"extra":[],"any":{"a":[1,2.5,-3,1e3,"\u00e9",null,true]}"#,
        r#""id":"a","extra":{"next":"b"},"is_new":false,"amount":12345678901234567.89"#,
        r#""id":"a","":"","x":{},"y":[],"z":-0.0"#,
    ] {
        assert!(compare(&page(row)), "{row}");
    }
    for row in [
        r#""id":"a","id":"b""#,
        r#""id":"a","i\u0064":"b""#,
        r#""amount":1"#,
        r#""id":null"#,
        r#""id":"\ud800""#,
        r#""id":"a","\ud800":1"#,
        r#""id":"a","other":"\x""#,
        r#""id":"a","other":"\u12g4""#,
        "\"id\":\"a\nb\"",
        "\"id\":\"a\",\"other\":\"\u{1}\"",
        r#""id":"a","#,
        r#""id":"a",,"note":"b""#,
        r#","id":"a""#,
        r#""id" "a""#,
        r#""id":"a""note":"b""#,
        r#""id":"a","is_new":1"#,
        r#""id":"a","other":[1,]"#,
        r#""id":"a","other":{"a":1]"#,
        r#""id":"a","other":nul"#,
    ] {
        assert!(!compare(&page(row)), "{row}");
    }
    for number in [
        "01", "-", "1.", ".5", "+1", "1e", "1e+", "--1", "0x1", "1_0", "NaN", "Infinity", "1e999",
        "-0", "1E5",
    ] {
        compare(number);
        compare(&format!(
            r#"{{"rows":[{{"id":"a","amount":{number},"other":{number}}}]}}"#
        ));
    }
    for text in [
        "",
        " ",
        "{",
        "}",
        "[]",
        r#"{"rows":[]} x"#,
        r#"{"rows":[]}{}"#,
        "\u{feff}{}",
        r#"{"rows":["#,
        "\"",
    ] {
        assert!(!compare(text), "{text}");
    }
    assert!(compare(
        r#"{"rows":[["a",null,null,null,null,null,null]],"total":18446744073709551615}"#
    ));
    assert!(!compare(r#"{"rows":[],"total":18446744073709551616}"#));
}

#[test]
fn invalid_member_is_none() {
    #[derive(Deserialize)]
    struct Row<'a> {
        #[serde(borrow, default, deserialize_with = "none_if_invalid")]
        text: Option<Text<'a>>,
    }
    let read =
        |body: &str| from_str::<Row<'_>>(body).map(|row| row.text.map(|text| text.0.into_owned()));
    assert_eq!(
        read(r#"{"text": "plain"}"#).unwrap().as_deref(),
        Some("plain")
    );
    assert_eq!(
        read(r#"{"text": "a\u0062c"}"#).unwrap().as_deref(),
        Some("abc")
    );
    for sent in ["null", "1", "1e999", "true", "{}", "[\"x\"]", r#""\ud800""#] {
        assert_eq!(
            read(&format!(r#"{{"text": {sent}}}"#)).unwrap(),
            None,
            "{sent}"
        );
    }
    assert_eq!(read("{}").unwrap(), None);
    assert!(
        read(r#"{"text": nothing}"#).is_err(),
        "invalid JSON is an error"
    );
    let body = r#"{"text": "borrowed"}"#;
    let row: Row<'_> = from_str(body).unwrap();
    assert!(matches!(row.text, Some(Text(Cow::Borrowed(_)))));
}

#[test]
fn member_of_another_type_does_not_change_what_follows() {
    for length in 0..=BLOCK_BYTES {
        let filling = "a".repeat(length);
        let row = format!(
            r#"{{"id":"b","extra":{{"a":"{filling}","next":{{"c":"d"}}}},"note":"{filling}"}}"#
        );
        let rows = format!("{row},").repeat(usize::from(DEPTH_MAX)) + &row;
        assert!(compare(&format!(r#"{{"rows":[{rows}]}}"#)));
    }
}

#[test]
fn string_ends_are_found_at_every_position_of_a_block() {
    for length in 0..3 * BLOCK_BYTES {
        for filling in ["a", "é", "😀", r"\n"] {
            let filling = filling.repeat(length);
            assert!(compare(&format!(
                r#"{{"rows":[{{"id":"{filling}","other":"{filling}"}}],"a":"b"}}"#
            )));
            assert!(!compare(&format!(r#"{{"rows":[{{"id":"{filling}"#)));
        }
    }
}

#[test]
fn depth_is_limited_where_values_are_kept() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [126, 127, 128, 129, 10_000] {
        compare(&nested(depth));
        compare(&nested(depth).replace('[', r#"{"a":"#).replace(']', "}"));
    }
    let skipped = nested(1_000_000);
    let page = format!(r#"{{"other":{skipped},"rows":[{{"id":"a","type":{skipped}}}]}}"#);
    assert!(from_str::<Page<'_>>(&page).is_ok());
    assert!(from_str::<Page<'_>>(&"[".repeat(1_000_000)).is_err());
    assert!(from_str::<IgnoredAny>(&"[".repeat(1_000_000)).is_err());
}

#[test]
fn errors_hold_no_text() {
    let page = from_str::<Page<'_>>(r#"{"rows":["secret"]}"#);
    let error = page.err().unwrap();
    let shown = format!("{error} {error:?}");
    assert_eq!(shown, "not the expected JSON Invalid");
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![9 => Just(String::new()), 1 => "[ \n\t\r]{1,3}"]
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-zA-Z0-9 .:,{}\\[\\]]{0,90}",
        2 => r#"([a-zé€😀 /]|\\["\\/bfnrt]|\\u00[0-9a-fA-F]{2}|\\ud83d\\ude00){0,40}"#,
        1 => r#"([a-z]|\\[a-z]|\\u[0-9a-g]{3,4}|\\ud800){0,6}"#,
    ]
    .prop_map(|text| format!("\"{text}\""))
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => string(),
        3 => r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?",
        2 => select(vec!["true", "false", "null"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 5, |inner| {
        let name = prop_oneof![1 => string(), 2 => Just(r#""next""#.to_owned())];
        let member = (name, space(), inner.clone(), space())
            .prop_map(|(name, a, value, b)| format!("{name}{a}:{value}{b}"));
        prop_oneof![
            (vec(inner, 0..5), space())
                .prop_map(|(items, space)| format!("[{space}{}]", items.join(","))),
            (vec(member, 0..5), space())
                .prop_map(|(members, space)| format!("{{{space}{}}}", members.join(","))),
        ]
    })
}

fn row() -> impl Strategy<Value = String> {
    let member = prop_oneof![
        2 => (Just(r#""amount""#.to_owned()), scalar()),
        2 => (Just(r#""note""#.to_owned()), prop_oneof![string(), Just("null".to_owned())]),
        2 => (select(vec![r#""type""#, r#""extra""#, r#""any""#]).prop_map(str::to_owned), value()),
        1 => (Just(r#""is_new""#.to_owned()), select(vec!["true", "false", "null"]).prop_map(str::to_owned)),
        4 => (string(), value()),
    ];
    (string(), vec((member, space(), space()), 0..6)).prop_map(|(id, members)| {
        let mut seen = Vec::new();
        let mut row = format!(r#"{{"id":{id}"#);
        for ((name, value), before, after) in members {
            // A row with a member twice is rejected, which would hide the rest of the page.
            if !seen.contains(&name) {
                row += &format!(",{before}{name}:{after}{value}");
                seen.push(name);
            }
        }
        row + "}"
    })
}

fn page() -> impl Strategy<Value = String> {
    (vec(row(), 0..5), prop::option::of(value()), space()).prop_map(|(rows, other, space)| {
        let other = other
            .map(|value| format!(r#","other":{value}"#))
            .unwrap_or_default();
        format!(
            r#"{space}{{"rows":[{}]{space}{other}}}{space}"#,
            rows.join(",")
        )
    })
}

proptest! {
    #[test]
    fn pages_are_read_as_serde_json_reads_them(page in page()) {
        compare(&page);
    }

    #[test]
    fn damaged_pages_are_read_as_serde_json_reads_them(
        page in page(),
        at in any::<Index>(),
        damage in prop_oneof!["", "[\\[\\]{}:,\"\\\\\u{1} \n0-9.eE+é-]", "\\PC{0,3}"],
        removed in 0_usize..3,
    ) {
        let characters: Vec<char> = page.chars().collect();
        let at = at.index(characters.len());
        let rest = characters.iter().skip(at + removed);
        let damaged: String = characters[..at].iter().copied().chain(damage.chars()).chain(rest.copied()).collect();
        compare(&damaged);
        compare(&characters[..at].iter().collect::<String>());
    }

    #[test]
    fn any_text_is_read_as_serde_json_reads_it(text in "[\\[\\]{}:,\"\\\\ \n0-9.eE+a-fu-]{0,40}") {
        compare(&text);
    }
}
