//! Results, errors and ids of JSON-RPC, as the two eras of MCP write them. Pure.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const HEADER_MISMATCH: i32 = -32020;
const UNSUPPORTED_VERSION: i32 = -32022;

/// Largest id as text. A response repeats it.
const ID_BYTES_MAX: usize = 256;

/// What every result of the modern era begins with. `serverInfo` is in `initialize` of the legacy
/// era.
const MODERN_START: &str = concat!(
    r#""resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bellbird","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// The two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 and 2025-06-18.
    Legacy,
}

/// The id that a client chose for its request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Id {
    Text(String),
    Number(i64),
}

impl Id {
    /// `None` if the value is not a valid id: null, a fraction, or a long text.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= ID_BYTES_MAX => Some(Self::Text(text.clone())),
            Value::Number(number) => number.as_i64().map(Self::Number),
            _ => None,
        }
    }
}

/// A failure of the protocol. A failure of a tool is a result, so that the model sees it.
#[derive(Serialize)]
pub struct RpcError {
    code: i32,
    message: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    /// The HTTP status in the modern era.
    #[serde(skip)]
    status: StatusCode,
}

impl RpcError {
    fn new(code: i32, message: impl Into<Cow<'static, str>>, status: StatusCode) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status,
        }
    }

    /// An error outside of the protocol: a wrong key, a limit. The code is the HTTP status.
    pub fn of_status(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status.as_u16().into(), message, status)
    }

    pub(super) fn parse(message: &'static str) -> Self {
        Self::new(PARSE_ERROR, message, StatusCode::BAD_REQUEST)
    }

    pub(super) fn invalid(message: &'static str) -> Self {
        Self::new(INVALID_REQUEST, message, StatusCode::BAD_REQUEST)
    }

    pub(super) fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(INVALID_PARAMS, message, StatusCode::BAD_REQUEST)
    }

    pub(super) fn method_not_found() -> Self {
        Self::new(METHOD_NOT_FOUND, "Method not found", StatusCode::NOT_FOUND)
    }

    pub(super) fn internal(message: &'static str) -> Self {
        Self::new(INTERNAL_ERROR, message, StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn header_mismatch(message: &'static str) -> Self {
        Self::new(HEADER_MISMATCH, message, StatusCode::BAD_REQUEST)
    }

    pub(super) fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        // A version is a date. The response repeats no long text.
        let requested: String = requested.chars().take(64).collect();
        let data = Some(json!({"supported": supported, "requested": requested}));
        let error = Self::new(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            StatusCode::BAD_REQUEST,
        );
        Self { data, ..error }
    }

    pub fn code(&self) -> i32 {
        self.code
    }

    /// Clients of the legacy era read the error of a request from a response with status 200 only.
    /// Other statuses end their session.
    pub(super) fn status(&self, era: Era) -> StatusCode {
        match era {
            Era::Legacy => StatusCode::OK,
            Era::Modern => self.status,
        }
    }

    /// The whole message. The id of an error is null if the request could not be read, as JSON-RPC
    /// has it. Some clients show no message without the member.
    pub fn body(&self, id: Option<&Id>) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            jsonrpc: &'static str,
            id: Option<&'a Id>,
            error: &'a RpcError,
        }
        serde_json::to_vec(&Body {
            jsonrpc: "2.0",
            id,
            error: self,
        })
        .unwrap_or_default()
    }
}

/// The whole message of a result. `members` are those of the result object, written as JSON without
/// its braces.
pub(super) fn result(id: &Id, era: Era, members: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(members.len() + 400);
    body.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    body.extend_from_slice(&serde_json::to_vec(id).unwrap_or_default());
    body.extend_from_slice(br#","result":{"#);
    if era == Era::Modern {
        body.extend_from_slice(MODERN_START.as_bytes());
        if !members.is_empty() {
            body.push(b',');
        }
    }
    body.extend_from_slice(members);
    body.extend_from_slice(b"}}");
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_modern_era_name_type_and_server() {
        let text = |era, members: &str| {
            String::from_utf8(result(&Id::Number(7), era, members.as_bytes())).unwrap()
        };
        assert_eq!(
            text(Era::Legacy, ""),
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
        );
        assert_eq!(
            text(Era::Legacy, r#""tools":[]"#),
            r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}"#
        );
        let modern: Value = serde_json::from_str(&text(Era::Modern, r#""tools":[]"#)).unwrap();
        assert_eq!(modern["result"]["resultType"], "complete");
        assert_eq!(
            modern["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "bellbird"
        );
        assert_eq!(modern["result"]["tools"], json!([]));
        assert!(serde_json::from_str::<Value>(&text(Era::Modern, "")).is_ok());
    }

    #[test]
    fn error_has_the_id_of_its_request_or_null() {
        let error = RpcError::method_not_found();
        let text = |id: Option<&Id>| String::from_utf8(error.body(id)).unwrap();
        let expected =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#;
        assert_eq!(text(None), expected);
        assert!(text(Some(&Id::Text("a".to_owned()))).contains(r#""id":"a""#));
        assert_eq!(error.status(Era::Modern), StatusCode::NOT_FOUND);
        assert_eq!(error.status(Era::Legacy), StatusCode::OK);
    }
    #[test]
    fn ids_are_strings_or_integers() {
        let id = |text: &str| Id::of(&serde_json::from_str(text).unwrap());
        assert_eq!(id("-7"), Some(Id::Number(-7)));
        assert_eq!(id("9223372036854775807"), Some(Id::Number(i64::MAX)));
        assert_eq!(id("\"\""), Some(Id::Text(String::new())));
        for text in ["null", "1.5", "9223372036854775808", "true", "[]", "{}"] {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(Id::of(&"x".repeat(ID_BYTES_MAX + 1).into()), None);
    }
}
