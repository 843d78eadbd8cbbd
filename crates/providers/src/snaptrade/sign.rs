//! Signs requests and checks the signatures of webhooks, both over canonical JSON
//! (docs/providers/snaptrade.md#request-signatures and #webhooks).

use std::collections::BTreeMap;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Webhook bodies with deeper nesting are rejected.
const DEPTH_MAX: usize = 8;

/// The length of an HMAC-SHA256.
const SIGNATURE_BYTES: usize = 32;

/// Signs and verifies with the consumer key.
pub(super) struct Signer(Key);

impl Signer {
    pub(super) fn new(consumer_key: &SecretString) -> Self {
        Self(Key::new(
            HMAC_SHA256,
            consumer_key.expose_secret().as_bytes(),
        ))
    }

    /// The `Signature` header of a request. `body` is null if there is none, and an empty object is
    /// signed as null. `path` and `query` must be exactly as sent.
    pub(super) fn sign(&self, body: &Value, path: &str, query: &str) -> String {
        let content = if body.as_object().is_some_and(Map::is_empty) {
            &Value::Null
        } else {
            body
        };
        self.tag(&canonical(
            &json!({"content": content, "path": path, "query": query}),
        ))
    }

    /// Verifies the base64 signature of a webhook in constant time. It covers the canonical form of
    /// the whole body.
    pub(super) fn is_signed(&self, body: &[u8], signature: &str) -> bool {
        // Checked first, because it costs less than the body.
        let signature = STANDARD
            .decode(signature)
            .ok()
            .filter(|signature| signature.len() == SIGNATURE_BYTES);
        let Some(signature) = signature else {
            return false;
        };
        let Some(message) = canonical_text(body) else {
            return false;
        };
        hmac::verify(&self.0, message.as_bytes(), &signature).is_ok()
    }

    fn tag(&self, message: &str) -> String {
        STANDARD.encode(hmac::sign(&self.0, message.as_bytes()))
    }
}

/// JSON as Python's `json.dumps(value, separators=(",", ":"), sort_keys=True)` writes it.
///
/// It sorts the members itself, because another crate in the build may enable serde_json's
/// `preserve_order`. It does not handle floats, since no request body has any.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), canonical(value)));
            format!("{{{}}}", members.collect::<Vec<String>>().join(","))
        }
        Value::Array(items) => format!(
            "[{}]",
            items
                .iter()
                .map(canonical)
                .collect::<Vec<String>>()
                .join(",")
        ),
        Value::String(text) => quoted(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The canonical form of a webhook body. None if the body is not JSON or is nested too deep.
///
/// Numbers keep their text. For floats that is what Python would write, if Python sent them.
/// serde_json checks the body once, and [`Walker`] goes through it once, because anyone can send a
/// body.
pub(super) fn canonical_text(json: &[u8]) -> Option<String> {
    let json: &RawValue = serde_json::from_slice(json).ok()?;
    let mut out = String::with_capacity(json.get().len());
    Walker {
        json: json.get(),
        at: 0,
    }
    .write(&mut out, DEPTH_MAX)?;
    Some(out)
}

/// Reads text that is known to be JSON.
struct Walker<'a> {
    json: &'a str,
    at: usize,
}

impl Walker<'_> {
    fn write(&mut self, out: &mut String, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' => self.write_object(out, depth.checked_sub(1)?),
            b'[' => self.write_array(out, depth.checked_sub(1)?),
            b'"' => {
                out.push_str(&quoted(&self.string()?));
                Some(())
            }
            _ => {
                let rest = self.json.get(self.at..)?;
                let end = rest
                    .find([',', ']', '}', ' ', '\t', '\r', '\n'])
                    .unwrap_or(rest.len());
                out.push_str(rest.get(..end)?);
                self.at += end;
                Some(())
            }
        }
    }

    fn write_object(&mut self, out: &mut String, depth: usize) -> Option<()> {
        // If two members have the same name, the later one counts, as in Python.
        let mut members = BTreeMap::new();
        self.at += 1;
        while self.peek()? != b'}' {
            let name = self.string()?;
            self.skip(b':')?;
            let mut value = String::new();
            self.write(&mut value, depth)?;
            members.insert(name, value);
            self.skip_comma()?;
        }
        self.at += 1;
        let members = members
            .iter()
            .map(|(name, value)| format!("{}:{value}", quoted(name)));
        out.push('{');
        out.push_str(&members.collect::<Vec<String>>().join(","));
        out.push('}');
        Some(())
    }

    fn write_array(&mut self, out: &mut String, depth: usize) -> Option<()> {
        self.at += 1;
        out.push('[');
        let mut separator = "";
        while self.peek()? != b']' {
            out.push_str(separator);
            self.write(out, depth)?;
            self.skip_comma()?;
            separator = ",";
        }
        self.at += 1;
        out.push(']');
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        self.peek()?;
        let start = self.at;
        let mut is_escaped = true;
        for byte in self.json.as_bytes().get(start..)? {
            self.at += 1;
            match byte {
                b'"' if !is_escaped => break,
                b'\\' if !is_escaped => is_escaped = true,
                // The opening quote counts as escaped.
                _ => is_escaped = false,
            }
        }
        serde_json::from_str(self.json.get(start..self.at)?).ok()
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.json.as_bytes();
        while bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn skip(&mut self, expected: u8) -> Option<()> {
        let found = self.peek()? == expected;
        self.at += usize::from(found);
        found.then_some(())
    }

    fn skip_comma(&mut self) -> Option<()> {
        if self.peek()? == b',' {
            self.at += 1;
        }
        Some(())
    }
}

/// A JSON string in which all but printable ASCII is escaped, as UTF-16 units if there is no short
/// form.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for character in Value::from(text).to_string().chars() {
        match character {
            ' '..='~' => out.push(character),
            _ => out.extend(
                character
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            ),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P13_QUERY: &str = "userId=snaptrade-user-123&userSecret=adf2aa34-8219-40f7-a6b3-60156985cc61\
        &clientId=TESTCLIENT&timestamp=1715123456";
    const T11_QUERY: &str = "clientId=TESTCLIENT&userId=snaptrade-user-123\
        &userSecret=adf2aa34-8219-40f7-a6b3-60156985cc61&timestamp=1715123457";
    const ACTIVITIES: &str = "/accounts/917c8734-8470-4a3e-a18f-57c3f2ee6631/activities";

    fn signer() -> Signer {
        Signer::new(&SecretString::from("test-consumer-key-1"))
    }

    fn login() -> Value {
        json!({
            "immediateRedirect": true,
            "customRedirect": "https://example.com/cb?x=1&y=é/ü",
            "connectionType": "read",
            "broker": "ALPACA",
        })
    }

    #[test]
    fn signatures_equal_those_of_official_clients() {
        for (vector, body, path, query, signature) in [
            (
                "V1",
                json!({"userId": "snaptrade-user-123"}),
                "/snapTrade/registerUser",
                "clientId=TESTCLIENT&timestamp=1715123456",
                "cb0erv/RI3PADuw28QgVot6O4IN0uPOcfr7cqBPwjOY=",
            ),
            (
                "V2",
                Value::Null,
                "/accounts",
                P13_QUERY,
                "zd+TvnzVfAV6htuAqMYWr1Q8QaHXNFDnUXms8bgpFKU=",
            ),
            (
                "V3",
                json!({}),
                "/snapTrade/login",
                P13_QUERY,
                "P/zG+PgUvMPM7yWywaaYfnkFgMzuuSIRQHJUgNRjGKY=",
            ),
            (
                "V4",
                Value::Null,
                ACTIVITIES,
                "startDate=2026-01-01&endDate=2026-01-31&offset=0&limit=100&type=BUY%2CSELL\
                 &userId=user%201%2Ba%40b/%C3%A7&userSecret=s%26e%3Dc&clientId=TESTCLIENT&timestamp=1715123456",
                "WeiFiyWIO4TDd6VmFxP9E07Aw7lIQnBez3x0EeQbHfQ=",
            ),
            (
                "V5, accounts",
                Value::Null,
                "/accounts",
                T11_QUERY,
                "jrMb9GtWUQLFz04kVEVJpr9fXwwO0+KBmXPbih5CJMQ=",
            ),
            (
                "V5, activities",
                Value::Null,
                ACTIVITIES,
                "clientId=TESTCLIENT&userId=user+1%2Ba%40b%2F%C3%A7&userSecret=s%26e%3Dc&startDate=2026-01-01\
                 &endDate=2026-01-31&offset=0&limit=100&type=BUY%2CSELL&timestamp=1715123457",
                "c+VG+A+GzOG7sb4pH5QFjxxGUHcmyDT05Tt4JBHbO2M=",
            ),
            (
                "V6",
                Value::Null,
                "/api/v1/accounts",
                P13_QUERY,
                "qAHiialBkYWhqMP/84nj+HDDCLWtDcAD4LNSKKAneUw=",
            ),
            (
                "V7, P13",
                login(),
                "/snapTrade/login",
                P13_QUERY,
                "HA5AKSAgAl/ClmGMuXfHb6tepFs+CqZYHOx/IREo4OI=",
            ),
        ] {
            assert_eq!(signer().sign(&body, path, query), signature, "{vector}");
        }
    }

    #[test]
    fn v7_of_the_typescript_client() {
        let content = concat!(
            r#"{"broker":"ALPACA","connectionType":"read","#,
            r#""customRedirect":"https://example.com/cb?x=1&y=é/ü","immediateRedirect":true}"#,
        );
        let message =
            format!(r#"{{"content":{content},"path":"/snapTrade/login","query":"{T11_QUERY}"}}"#);
        assert_eq!(
            signer().tag(&message),
            "LBb55iXFk4c2r3t/PtqklQqqztpR4t5mGcFpnCnhSis="
        );
    }

    #[test]
    fn canonical_json_equals_that_of_python() {
        let value: Value = serde_json::from_str(concat!(
            r#"{"b": [1, -2, true, null, {"y": {}, "x": []}], "#,
            r#""é": "\u0001\u0008\f\n\r\t\"\\/\u007f😀", "a": "", "B": 0}"#,
        ))
        .unwrap();
        let expected = r#"{"B":0,"a":"","b":[1,-2,true,null,{"x":[],"y":{}}],"\u00e9":"\u0001\b\f\n\r\t\"\\/\u007f\ud83d\ude00"}"#;
        assert_eq!(canonical(&value), expected);
    }

    #[test]
    fn bodies_may_be_eight_deep() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(canonical_text(nested(8).as_bytes()), Some(nested(8)));
        assert_eq!(canonical_text(nested(9).as_bytes()), None);
        let objects =
            |depth: usize| format!("{}1{}", "{\"a\" : ".repeat(depth), " }".repeat(depth));
        assert_eq!(
            canonical_text(objects(8).as_bytes()),
            Some(objects(8).replace(' ', ""))
        );
        assert_eq!(canonical_text(objects(9).as_bytes()), None);
    }

    #[test]
    fn later_of_two_members_counts() {
        let canonical = canonical_text(br#" {"b":[ 1 , "x\"]}\\" ] , "a":1,"b":{"c":-0.50e+1}} "#);
        assert_eq!(canonical.as_deref(), Some(r#"{"a":1,"b":{"c":-0.50e+1}}"#));
        let canonical = canonical_text(br#"{"a":[ 1 , "x\"]}\\" , [ ] , { } , null ]}"#);
        assert_eq!(
            canonical.as_deref(),
            Some(r#"{"a":[1,"x\"]}\\",[],{},null]}"#)
        );
    }

    proptest! {
        /// Values up to the limit of depth, as serde_json writes them.
        #[test]
        fn canonical_text_of_any_body(
            names in prop::collection::vec("\\PC{0,6}", 1..4), text in any::<String>(), number in any::<i64>(),
        ) {
            let mut value = json!([text, number, null, true]);
            for name in &names {
                value = json!({ name.as_str(): value, "z": [{}, []] });
            }
            let pretty = serde_json::to_vec_pretty(&value).unwrap();
            prop_assert_eq!(canonical_text(&pretty), Some(canonical(&value)));
        }

        #[test]
        fn canonical_json_is_ascii_and_equivalent(
            name in "\\PC{0,10}",
            text in any::<String>(),
            number in any::<i64>(),
        ) {
            let value = json!({ name: [text, number], "z": {"b": 1, "a": 2} });
            let written = canonical(&value);
            prop_assert!(written.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
        }
    }
}
