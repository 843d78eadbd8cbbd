//! Signatures of calls and webhooks: HMAC-SHA256 of canonical JSON, in base64
//! (docs/providers/snaptrade.md#request-signatures and #webhooks).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The old prefix. Calls below it may be signed with or without it
/// (docs/providers/snaptrade.md#request-signatures and
/// #official-clients).
pub(super) const PREFIX: &str = "/api/v1";

/// The signed parts of a call. Path and query are the bytes of the request line.
pub(super) struct Signed<'a> {
    /// The parsed body; `null` for none and for `{}`.
    pub(super) content: &'a Value,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

impl Signed<'_> {
    /// Whether `signature` is valid for this call and key. Non-ASCII text may be encoded in either
    /// way of the official clients, because the real service's way is unknown.
    pub(super) fn is_signed_by(&self, consumer_key: &str, signature: &str) -> bool {
        let Ok(tag) = STANDARD.decode(signature) else {
            return false;
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, consumer_key.as_bytes());
        let short = self
            .path
            .strip_prefix(PREFIX)
            .filter(|rest| rest.starts_with('/'));
        let mut messages = [self.path].into_iter().chain(short).flat_map(|path| {
            [Letters::Escaped, Letters::Raw].map(|letters| self.message(path, letters))
        });
        messages.any(|message| hmac::verify(&key, message.as_bytes(), &tag).is_ok())
    }

    fn message(&self, path: &str, letters: Letters) -> String {
        let mut message = String::from("{\"content\":");
        write(&mut message, self.content, letters);
        message.push_str(",\"path\":");
        write_text(&mut message, path, letters);
        message.push_str(",\"query\":");
        write_text(&mut message, self.query, letters);
        message.push('}');
        message
    }
}

/// Signs a webhook: the whole body, encoded as Python does (docs/providers/snaptrade.md#webhooks).
pub(super) fn webhook_signature(consumer_key: &str, body: &Value) -> String {
    let mut message = String::new();
    write(&mut message, body, Letters::Escaped);
    let key = hmac::Key::new(hmac::HMAC_SHA256, consumer_key.as_bytes());
    STANDARD.encode(hmac::sign(&key, message.as_bytes()))
}

/// How non-ASCII characters are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// `\u00e9`, as in Python.
    Escaped,
    /// Unescaped, as in JavaScript.
    Raw,
}

/// Writes canonical JSON: members sorted at every level, no whitespace.
fn write(out: &mut String, value: &Value, letters: Letters) {
    match value {
        Value::Object(members) => {
            // Sort here: whether the library sorts depends on its features.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            list(out, ('{', '}'), members, |out, (name, value)| {
                write_text(out, name, letters);
                out.push(':');
                write(out, value, letters);
            });
        }
        Value::Array(elements) => list(out, ('[', ']'), elements, |out, value| {
            write(out, value, letters);
        }),
        Value::String(text) => write_text(out, text, letters),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn list<T>(
    out: &mut String,
    (open, close): (char, char),
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        one(out, item);
    }
    out.push(close);
}

fn write_text(out: &mut String, text: &str, letters: Letters) {
    let json = Value::from(text).to_string();
    for letter in json.chars() {
        if letter.is_ascii() || letters == Letters::Raw {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Letters, Signed, webhook_signature, write};

    const KEY: &str = "test-consumer-key-1";
    const SECRET: &str = "userSecret=adf2aa34-8219-40f7-a6b3-60156985cc61";
    const NOTHING: &Value = &Value::Null;

    #[track_caller]
    fn assert_signed(content: &Value, path: &str, query: &str, signature: &str) {
        let call = Signed {
            content,
            path,
            query,
        };
        assert!(call.is_signed_by(KEY, signature), "{path}?{query}");
        assert!(!call.is_signed_by("test-consumer-key-2", signature));
        assert!(!call.is_signed_by(KEY, &signature[4..]));
        for other in [
            Signed {
                path: "/authorizations",
                ..call
            },
            Signed {
                query: "clientId=TESTCLIENT",
                ..call
            },
            Signed {
                content: &json!({"userId": "x"}),
                ..call
            },
        ] {
            assert!(!other.is_signed_by(KEY, signature));
        }
    }

    const ACCOUNTS: &str = "/accounts";
    const ACTIVITIES: &str = "/accounts/917c8734-8470-4a3e-a18f-57c3f2ee6631/activities";
    const LOGIN: &str = "/snapTrade/login";

    /// The vectors of docs/providers/snaptrade.md#test-vectors, in its order.
    #[test]
    fn calls_are_signed_as_by_the_official_clients() {
        let user = json!({"userId": "snaptrade-user-123"});
        let register = "clientId=TESTCLIENT&timestamp=1715123456";
        assert_signed(&user, "/snapTrade/registerUser", register, V1);
        let python =
            format!("userId=snaptrade-user-123&{SECRET}&clientId=TESTCLIENT&timestamp=1715123456");
        assert_signed(NOTHING, ACCOUNTS, &python, V2);
        assert_signed(NOTHING, LOGIN, &python, V3);
        let escaped = "startDate=2026-01-01&endDate=2026-01-31&offset=0&limit=100&type=BUY%2CSELL\
            &userId=user%201%2Ba%40b/%C3%A7&userSecret=s%26e%3Dc&clientId=TESTCLIENT&timestamp=1715123456";
        assert_signed(NOTHING, ACTIVITIES, escaped, V4);
        let typescript =
            format!("clientId=TESTCLIENT&userId=snaptrade-user-123&{SECRET}&timestamp=1715123457");
        assert_signed(NOTHING, ACCOUNTS, &typescript, V5_ACCOUNTS);
        let with_plus = "clientId=TESTCLIENT&userId=user+1%2Ba%40b%2F%C3%A7&userSecret=s%26e%3Dc&startDate=2026-01-01\
            &endDate=2026-01-31&offset=0&limit=100&type=BUY%2CSELL&timestamp=1715123457";
        assert_signed(NOTHING, ACTIVITIES, with_plus, V5_ACTIVITIES);
        // With the old prefix and without.
        assert_signed(NOTHING, "/api/v1/accounts", &python, V6);
        assert_signed(NOTHING, "/api/v1/accounts", &python, V2);
        let call = Signed {
            content: NOTHING,
            path: ACCOUNTS,
            query: &python,
        };
        assert!(!call.is_signed_by(KEY, V6));
        // Letters beyond ASCII in both encodings.
        let content = json!({
            "broker": "ALPACA", "connectionType": "read", "immediateRedirect": true,
            "customRedirect": "https://example.com/cb?x=1&y=é/ü",
        });
        assert_signed(&content, LOGIN, &python, V7_PYTHON);
        assert_signed(&content, LOGIN, &typescript, V7_TYPESCRIPT);
    }

    const V1: &str = "cb0erv/RI3PADuw28QgVot6O4IN0uPOcfr7cqBPwjOY=";
    const V2: &str = "zd+TvnzVfAV6htuAqMYWr1Q8QaHXNFDnUXms8bgpFKU=";
    const V3: &str = "P/zG+PgUvMPM7yWywaaYfnkFgMzuuSIRQHJUgNRjGKY=";
    const V4: &str = "WeiFiyWIO4TDd6VmFxP9E07Aw7lIQnBez3x0EeQbHfQ=";
    const V5_ACCOUNTS: &str = "jrMb9GtWUQLFz04kVEVJpr9fXwwO0+KBmXPbih5CJMQ=";
    const V5_ACTIVITIES: &str = "c+VG+A+GzOG7sb4pH5QFjxxGUHcmyDT05Tt4JBHbO2M=";
    const V6: &str = "qAHiialBkYWhqMP/84nj+HDDCLWtDcAD4LNSKKAneUw=";
    const V7_PYTHON: &str = "HA5AKSAgAl/ClmGMuXfHb6tepFs+CqZYHOx/IREo4OI=";
    const V7_TYPESCRIPT: &str = "LBb55iXFk4c2r3t/PtqklQqqztpR4t5mGcFpnCnhSis=";

    #[test]
    fn v8_webhook() {
        let body = json!({
            "webhookId": "aa7a7d5a-4a12-40df-a329-feedc738eee9", "clientId": "TESTCLIENT",
            "eventTimestamp": "2022-05-31T12:39:47.182403+00:00", "eventType": "CONNECTION_BROKEN",
            "userId": "snaptrade-user-123", "webhookSecret": "gQNuZIBwPYUVAsXvCfOA",
            "brokerageAuthorizationId": "87b24961-b51e-4db8-9226-f198f6518a89",
        });
        assert_eq!(
            webhook_signature(KEY, &body),
            "fef2+CuqjO/ys7fBLVGo26FwxEZomLYFwu4tcyi4YJc="
        );
    }

    #[test]
    fn canonical_json_sorts_and_escapes() {
        let value =
            json!({"b": [1, 2.5, true, null], "a": {"z": "é\u{1f600}\n\u{1f}/<&>", "A": ""}});
        let text = |letters| {
            let mut out = String::new();
            write(&mut out, &value, letters);
            out
        };
        let escaped =
            r#"{"a":{"A":"","z":"\u00e9\ud83d\ude00\n\u001f/<&>"},"b":[1,2.5,true,null]}"#;
        assert_eq!(text(Letters::Escaped), escaped);
        assert_eq!(
            text(Letters::Raw),
            escaped
                .replace("\\u00e9", "é")
                .replace("\\ud83d\\ude00", "😀")
        );
    }
}
