//! Records responses of a provider for `bellbird record`, with every value masked.
//!
//! What a recording can hold is a closed set: the characters of a shape, `NAME_WORDS`, and the
//! words that the adapters declare. So no text of a provider reaches it, whatever that sends.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use url::form_urlencoded;

/// Member names consist of these words, or are declared. Any other one may be data, such as the key
/// of a map, and is masked.
const NAME_WORDS: &str = "\
    abn access account accounts active activities activity additional address after all allowed allows amount annual \
    app application arrangement as asset at attempt attributes auth authorisation authorisations authorization \
    authorizations available average aws balance balances bank banking base basis before biller branch breakdown \
    broker brokerage brokerages bsb buying by can cancel card cash categories category change class client close \
    closed code completed confidence connection connections consent consents contribution conversion cost count \
    country created creation credentials credit crypto currency current cursor custom data date datetime day days \
    debit default degraded deposit description detail details direction disabled display downtime due duration \
    eligible email enabled end ended equity equivalent error errors event events exchange exchanges execution \
    expiration expires expiry extended extension external fee fees fields figi finance financial first for foreign \
    formatted fractional free frequency freshness from full fund funding gain group groups has hash history holder \
    holders holding holdings icon id identifier ids in initial institution institutions instrument instruments \
    interest international investment is isin item items key kind last legal lending level limit line link links \
    list loan local location login logo long lots maintenance management margin mask masked maturity mcc me merchant \
    message meta method mic migrated mini mode modified months multiplier name new next nickname npp number nz nzbn \
    nzfcc of offset on online only open opening option order orders original other outstanding overdrawn owned owner \
    ownership page pages pagination paper particulars parties partners party path payee payer payload payment \
    payments payout pending percentage period permissions personal phone pnl portfolio position positions post \
    posted posting power prev previous price primary principal priority processed product provider purchase purpose \
    purses quantity quote rate raw read real reason recent record redirect reference refreshed register remaining \
    removed repayment reporting request required requires response restrictions result results root s scope scopes \
    score secondary seconds secret security self sequence service session set settled settlement share short side \
    size slug snap sort source square stage start state status strike subtype success successful suffix support \
    supported symbol sync syncs tax term ticker time timestamp timezone title to token total tradable trade trades \
    trading transacted transaction transactions transfer type types ui unavailable underlying unit units universal \
    unlisted updated uri url urls user users utc v valid value version webhook webhooks website withdrawal years";
const NAME_CHARS_MAX: usize = 60;
/// A longer text is cut.
const TEXT_CHARS_MAX: usize = 60;
/// Of a list, the first items are kept, and later ones if their members or types differ from all
/// before.
const FIRST_ITEMS: usize = 5;
const ITEMS_MAX: usize = 30;
const DEPTH_MAX: u8 = 32;
const CONTENT_TYPES: [&str; 4] = [
    "application/json",
    "application/problem+json",
    "text/html",
    "text/plain",
];

/// Names of members that a recording shows, each with the values that it shows, separated by
/// blanks.
pub type KnownWords = &'static [(&'static str, &'static str)];

/// A call to the provider, masked.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    method: String,
    target: String,
    status: u16,
    content_type: String,
    body: Masked,
}

/// The calls of one [`CallContext`](crate::CallContext).
#[derive(Debug)]
pub(crate) struct Recorder {
    words: KnownWords,
    calls: Mutex<Vec<RecordedCall>>,
}

impl Recorder {
    pub(crate) fn new(words: KnownWords) -> Self {
        Self {
            words,
            calls: Mutex::default(),
        }
    }

    pub(crate) fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.calls.lock())
    }

    /// The method of a request, and its path and query, masked.
    pub(super) fn masked_request(&self, request: &Request<Full<Bytes>>) -> (String, String) {
        let path: Vec<_> = request
            .uri()
            .path()
            .split('/')
            .map(|segment| self.name(segment))
            .collect();
        let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        let query: Vec<_> = query
            .map(|(member, value)| {
                format!(
                    "{}={}",
                    self.name(&member),
                    self.word(&member, &value).unwrap_or_else(|| shape(&value))
                )
            })
            .collect();
        let target = format!(
            "{}{}{}",
            path.join("/"),
            if query.is_empty() { "" } else { "?" },
            query.join("&")
        );
        (request.method().to_string(), target)
    }

    pub(super) fn record(
        &self,
        (method, target): (String, String),
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) {
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let content_type = if CONTENT_TYPES.contains(&essence) {
            essence.to_owned()
        } else {
            shape(content_type)
        };
        let body = match serde_json::from_slice::<&RawValue>(body) {
            Ok(json) => self.masked("", json, 0),
            Err(_) => Masked::text(&shape(&String::from_utf8_lossy(body))),
        };
        self.calls.lock().push(RecordedCall {
            method,
            target,
            status: status.as_u16(),
            content_type,
            body,
        });
    }

    fn masked(&self, member: &str, json: &RawValue, depth: u8) -> Masked {
        let json = json.get();
        match json.as_bytes().first() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Masked::text("…"),
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> =
                    serde_json::from_str(json).unwrap_or_default();
                let masked = |(member, value): (&String, &&RawValue)| {
                    (self.name(member), self.masked(member, value, depth + 1))
                };
                let mut members: Vec<_> = members.iter().map(masked).collect();
                // The order of the names that are masked would say something of them.
                members.sort_by(|one, other| one.0.cmp(&other.0));
                Masked::Object(members)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
                let (mut kept, mut forms, all) = (Vec::new(), BTreeSet::new(), items.len());
                for (at, item) in items.into_iter().enumerate() {
                    let item = self.masked(member, item, depth + 1);
                    if kept.len() < ITEMS_MAX && (forms.insert(item.form()) || at < FIRST_ITEMS) {
                        kept.push(item);
                    }
                }
                if kept.len() < all {
                    kept.push(Masked::text(&format!("… {} more", all - kept.len())));
                }
                Masked::List(kept)
            }
            Some(b'"') => {
                let text = serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned());
                Masked::text(&self.word(member, &text).unwrap_or_else(|| shape(&text)))
            }
            Some(b't' | b'f' | b'n') => Masked::leaf(json),
            _ => Masked::leaf(
                &self
                    .word(member, json)
                    .unwrap_or_else(|| shape_of_number(json)),
            ),
        }
    }

    fn name(&self, text: &str) -> String {
        let is_declared = self.words.iter().any(|(member, _)| *member == text);
        if is_declared || is_name(text) {
            text.to_owned()
        } else {
            shape(text)
        }
    }

    /// The value, if it is one that the adapter compares this member with.
    fn word(&self, member: &str, value: &str) -> Option<String> {
        let known = |(name, words): &(&str, &str)| {
            *name == member && words.split(' ').any(|word| word == value)
        };
        self.words.iter().any(known).then(|| value.to_owned())
    }
}

#[derive(Debug)]
enum Masked {
    Leaf(Box<RawValue>),
    List(Vec<Masked>),
    /// Masked names may be equal.
    Object(Vec<(String, Masked)>),
}

impl Masked {
    fn text(text: &str) -> Self {
        Self::Leaf(to_raw_value(text).unwrap_or_default())
    }

    fn leaf(json: &str) -> Self {
        Self::Leaf(RawValue::from_string(json.to_owned()).unwrap_or_default())
    }

    /// Names and types.
    fn form(&self) -> String {
        match self {
            Self::Leaf(json) => match json.get().as_bytes().first() {
                Some(b'"') => "text".to_owned(),
                Some(b'n') => "null".to_owned(),
                Some(b't' | b'f') => "bool".to_owned(),
                _ => "number".to_owned(),
            },
            Self::List(items) => format!(
                "[{}]",
                items.iter().map(Self::form).collect::<Vec<_>>().join(",")
            ),
            Self::Object(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{name}:{}", value.form()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

impl Serialize for Masked {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leaf(json) => json.serialize(out),
            Self::List(items) => out.collect_seq(items),
            Self::Object(members) => {
                out.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

/// Whether it consists of [`NAME_WORDS`] in snake or camel case, with one digit at most.
fn is_name(text: &str) -> bool {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for character in text.chars() {
        if !character.is_ascii_alphabetic() || after_small && character.is_ascii_uppercase() {
            words.push(String::new());
        }
        after_small = character.is_ascii_lowercase();
        if let (true, Some(word)) = (character.is_ascii_alphabetic(), words.last_mut()) {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    let has_name_form = text
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "_-[]".contains(character))
        && text.chars().filter(char::is_ascii_digit).count() <= 1
        && text.len() <= NAME_CHARS_MAX;
    let is_known = |word: &String| NAME_WORDS.split(' ').any(|known| known == word);
    has_name_form && !words.is_empty() && words.iter().all(is_known)
}

/// The text with X and x for its letters, and 9 for its digits.
fn shape(text: &str) -> String {
    let masked = text.chars().map(|character| match character {
        _ if character.is_uppercase() => 'X',
        _ if character.is_numeric() => '9',
        _ if character.is_ascii_punctuation() || character == ' ' => character,
        _ => 'x',
    });
    let mut shape: String = masked.take(TEXT_CHARS_MAX).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        shape.push('…');
    }
    shape
}

fn shape_of_number(number: &str) -> String {
    number
        .chars()
        .map(|character| {
            if character.is_ascii_digit() {
                '9'
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bellbird_domain::table::table;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const WORDS: KnownWords = &[("status", "POSTED"), ("code", "1083"), ("somebank_id", "")];

    fn recorded(uri: &str, content_type: &'static str, body: &str) -> String {
        let recorder = Recorder::new(WORDS);
        let request = Request::get(uri).body(Full::default()).unwrap();
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        recorder.record(
            recorder.masked_request(&request),
            StatusCode::OK,
            &headers,
            body.as_bytes(),
        );
        serde_json::to_string(&recorder.take()[0]).unwrap()
    }

    fn masked(body: &str) -> String {
        let call = recorded("/", "application/json", body);
        call.split_once("\"body\":")
            .unwrap()
            .1
            .strip_suffix('}')
            .unwrap()
            .to_owned()
    }

    #[test]
    fn values_become_shapes() {
        for [sent, expected] in table(
            r#"{"amount": -1234.50, "total": 1e-7} | {"amount":-9999.99,"total":9e-9}
            {"amount": "-1,234.50 DR"} | {"amount":"-9,999.99 XX"}
            {"account_number": "062-000 12345678"} | {"account_number":"999-999 99999999"}
            {"name": "Odette Ōtāhuhu-Rowe 银行"} | {"name":"Xxxxxx Xxxxxxx-Xxxx xx"}
            {"email": "odette@rowe.example"} | {"email":"xxxxxx@xxxx.xxxxxxx"}
            {"date": "2026-11-20T10:42:48.000Z"} | {"date":"9999-99-99X99:99:99.999X"}
            {"active": true, "hidden": null} | {"active":true,"xxxxxx":null}
            {"description": "\ud800 secret"} | {"description":"\"\\xx999 xxxxxx\""}
            {"description": "tab\tquote\"\u0000"} | {"description":"xxxxxxxxx\"x"}
            "secret" | "xxxxxx"
            not JSON, secret | "xxx XXXX, xxxxxx""#,
        ) {
            assert_eq!(masked(sent), expected, "{sent}");
        }
        let long = masked(&format!("{{\"text\": \"{}\"}}", "s".repeat(1_000)));
        assert_eq!(
            long,
            format!("{{\"xxxx\":\"{}…\"}}", "x".repeat(TEXT_CHARS_MAX))
        );
    }

    #[test]
    fn words_stay_only_as_values_of_their_member() {
        let sent = r#"{"status": "POSTED", "code": 1083, "description": "POSTED", "amount": 1083}"#;
        assert_eq!(
            masked(sent),
            r#"{"amount":9999,"code":1083,"description":"XXXXXX","status":"POSTED"}"#
        );
        let sent = r#"{"status": "POSTED today", "code": "1084"}"#;
        assert_eq!(masked(sent), r#"{"code":"9999","status":"XXXXXX xxxxx"}"#);
    }

    #[test]
    fn keys_that_are_data_become_shapes() {
        for (sent, expected) in [
            ("aws_s3_logo_url", "aws_s3_logo_url"),
            ("redirectURI", "redirectURI"),
            ("_id", "_id"),
            ("somebank_id", "somebank_id"),
            ("page[size]", "page[size]"),
            ("Odette", "Xxxxxx"),
            ("rowe", "xxxx"),
            ("rowe_account", "xxxx_xxxxxxx"),
            ("AUD", "XXX"),
            ("VAS.AX", "XXX.XX"),
            ("acc_1a2b", "xxx_9x9x"),
            ("account_06", "xxxxxxx_99"),
            ("12345678", "99999999"),
            ("5", "9"),
            ("2026-11-20", "9999-99-99"),
            ("the account", "xxx xxxxxxx"),
            ("", ""),
        ] {
            assert_eq!(Recorder::new(WORDS).name(sent), expected, "{sent}");
        }
        assert_eq!(
            masked(r#"{"rowe": 1, "rows": 2, "amount": 3}"#),
            r#"{"amount":9,"xxxx":9,"xxxx":9}"#
        );
    }

    #[test]
    fn paths_and_queries_are_masked() {
        let call = recorded(
            "/v1/accounts/acc_cl9x/transactions?page%5Bsize%5D=50&userSecret=s%26ecret&status=POSTED",
            "text/odd; charset=secret",
            "{}",
        );
        let target =
            "/v1/accounts/xxx_xx9x/transactions?page[size]=99&userSecret=x&xxxxx&status=POSTED";
        assert!(
            call.contains(&format!(
                r#""method":"GET","target":"{target}","status":200"#
            )),
            "{call}"
        );
        assert!(
            call.contains(r#""contentType":"xxxx/xxx; xxxxxxx=xxxxxx""#),
            "{call}"
        );
    }

    #[test]
    fn lists_keep_first_items_and_other_forms() {
        let item = |amount: &str| format!("{{\"amount\": {amount}}}");
        let mut items = vec![item("12"); 100];
        items[70] = item("null");
        let expected = format!(
            "[{}{{\"amount\":null}},\"… 94 more\"]",
            "{\"amount\":99},".repeat(5)
        );
        assert_eq!(masked(&format!("[{}]", items.join(","))), expected);
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            masked(&deep),
            format!("{}\"…\"{}", "[".repeat(32), "]".repeat(32))
        );
    }

    proptest! {
        #[test]
        fn shape_holds_nothing_of_a_text(text in any::<String>()) {
            let is_mask = |character: char| "Xx9… ".contains(character) || character.is_ascii_punctuation();
            prop_assert!(shape(&text).chars().all(is_mask));
        }

        #[test]
        fn names_have_known_words_only(first in "[a-w]{1,4}", second in "[a-w]{1,4}") {
            let is_known = |word: &str| NAME_WORDS.split(' ').any(|known| known == word);
            let text = format!("{first}_{second}");
            prop_assert_eq!(is_name(&text), is_known(&first) && is_known(&second));
        }
    }
}
