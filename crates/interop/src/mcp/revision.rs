//! The two eras of the protocol, and what the headers of a request must say. Pure.
//!
//! A modern request stands alone: its body and its headers name the version. A legacy client asks
//! `initialize` first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;

use super::message::Request;
use super::rpc::{Era, RpcError};

pub const MODERN_VERSION: &str = "2026-07-28";
/// Newest first.
pub const LEGACY_VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];

pub const VERSION_HEADER: &str = "mcp-protocol-version";
pub const METHOD_HEADER: &str = "mcp-method";
pub const NAME_HEADER: &str = "mcp-name";

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

impl Era {
    /// Decides the era of a request, and checks what this era demands of it.
    pub(super) fn of(headers: &HeaderMap, request: &Request) -> Result<Self, RpcError> {
        let header = single(headers, VERSION_HEADER)?;
        match (version_in_body(request)?, header) {
            (Some(version), Some(header)) if version == header => {
                check_modern(headers, request, version)
            }
            (Some(_), _) => Err(RpcError::header_mismatch(
                "The header MCP-Protocol-Version must be the protocolVersion of params._meta",
            )),
            (None, Some(MODERN_VERSION)) => Err(RpcError::invalid_params(
                "params._meta: io.modelcontextprotocol/protocolVersion is required",
            )),
            // `initialize` negotiates the version.
            (None, Some(version))
                if LEGACY_VERSIONS.contains(&version) || request.method == "initialize" =>
            {
                Ok(Self::Legacy)
            }
            (None, Some(version)) => Err(RpcError::unsupported_version(
                version,
                &[MODERN_VERSION, LEGACY_VERSIONS[0], LEGACY_VERSIONS[1]],
            )),
            (None, None) => Ok(Self::Legacy),
        }
    }
}

/// The version that the body of a modern request names.
pub fn version_in_body(request: &Request) -> Result<Option<&str>, RpcError> {
    match request
        .params
        .get("_meta")
        .and_then(|meta| meta.get(META_VERSION))
    {
        None => Ok(None),
        Some(Value::String(version)) => Ok(Some(version)),
        Some(_) => Err(RpcError::invalid_params(
            "params._meta: io.modelcontextprotocol/protocolVersion must be a string",
        )),
    }
}

/// What the header `Mcp-Name` repeats.
pub fn name_in_body(request: &Request) -> Option<&str> {
    match request.method.as_str() {
        "tools/call" => request.params.get("name")?.as_str(),
        _ => None,
    }
}

fn check_modern(headers: &HeaderMap, request: &Request, version: &str) -> Result<Era, RpcError> {
    if version != MODERN_VERSION {
        return Err(RpcError::unsupported_version(version, &[MODERN_VERSION]));
    }
    if !request.params["_meta"]
        .get(META_CAPABILITIES)
        .is_some_and(Value::is_object)
    {
        return Err(RpcError::invalid_params(
            "params._meta: io.modelcontextprotocol/clientCapabilities is required and must be an object",
        ));
    }
    if single(headers, METHOD_HEADER)? != Some(request.method.as_str()) {
        return Err(RpcError::header_mismatch(
            "The header Mcp-Method must be the method of the body",
        ));
    }
    if let Some(name) = name_in_body(request)
        && single(headers, NAME_HEADER)?.and_then(decode).as_deref() != Some(name)
    {
        return Err(RpcError::header_mismatch(
            "The header Mcp-Name must be params.name of the body",
        ));
    }
    Ok(Era::Modern)
}

/// The value of a header that may be there once.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RpcError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    match (line.to_str(), lines.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(RpcError::header_mismatch(
            "An MCP header must be there once, in ASCII",
        )),
    }
}

/// A name that is not plain ASCII comes as `=?base64?...?=`.
fn decode(value: &str) -> Option<String> {
    match value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// `name` as a header value. See `decode`.
pub fn encode(name: &str) -> String {
    let is_plain =
        name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) && !name.starts_with("=?");
    if is_plain {
        name.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(name))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::{Map, json};

    use super::*;
    use crate::mcp::rpc::Id;

    fn check(method: &str, params: Value, lines: &[(&str, &str)]) -> Result<Era, i32> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let params: Map<String, Value> = params.as_object().unwrap().clone();
        let request = Request {
            id: Id::Number(1),
            method: method.to_owned(),
            params,
        };
        Era::of(&headers, &request).map_err(|error| error.code())
    }

    fn modern_params(version: Value) -> Value {
        json!({"name": "list_accounts", "_meta": {META_VERSION: version, META_CAPABILITIES: {}}})
    }

    #[test]
    fn modern_request_needs_version_capabilities_and_equal_headers() {
        let whole = [
            ("MCP-Protocol-Version", MODERN_VERSION),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "list_accounts"),
        ];
        let call = |params: Value, lines: &[(&str, &str)]| check("tools/call", params, lines);
        assert_eq!(
            call(modern_params(MODERN_VERSION.into()), &whole),
            Ok(Era::Modern)
        );
        for at in 0..whole.len() {
            let mut lines = whole.to_vec();
            lines.remove(at);
            assert_eq!(
                call(modern_params(MODERN_VERSION.into()), &lines),
                Err(-32020),
                "without {}",
                whole[at].0
            );
            lines.push((whole[at].0, "other"));
            assert_eq!(
                call(modern_params(MODERN_VERSION.into()), &lines),
                Err(-32020),
                "another {}",
                whole[at].0
            );
            lines = [&whole[..], &[whole[at]]].concat();
            assert_eq!(
                call(modern_params(MODERN_VERSION.into()), &lines),
                Err(-32020),
                "twice {}",
                whole[at].0
            );
        }
        assert_eq!(
            call(json!({"name": "list_accounts"}), &whole),
            Err(-32602),
            "no _meta"
        );
        assert_eq!(call(modern_params(7.into()), &whole), Err(-32602));
        let without_capabilities =
            json!({"name": "list_accounts", "_meta": {META_VERSION: MODERN_VERSION}});
        assert_eq!(call(without_capabilities, &whole), Err(-32602));
        let mut unknown = whole;
        unknown[0].1 = "v999.0.0";
        assert_eq!(
            call(modern_params("v999.0.0".into()), &unknown),
            Err(-32022)
        );
        assert_eq!(call(modern_params("v999.0.0".into()), &whole), Err(-32020));
    }

    #[test]
    fn header_values_are_exact_but_for_encoding() {
        let call = |name: &str| {
            let lines = [
                ("mcp-protocol-version", MODERN_VERSION),
                ("MCP-METHOD", "tools/call"),
                ("mcp-name", name),
            ];
            check("tools/call", modern_params(MODERN_VERSION.into()), &lines)
        };
        assert_eq!(call("  list_accounts "), Ok(Era::Modern));
        assert_eq!(
            call(&format!("=?base64?{}?=", STANDARD.encode("list_accounts"))),
            Ok(Era::Modern)
        );
        assert_eq!(call("LIST_ACCOUNTS"), Err(-32020));
        assert_eq!(call("=?base64?not base64?="), Err(-32020));
        assert_eq!(call("list_accounts\u{e9}"), Err(-32020));
        for name in ["list_accounts", "é", "a b", "=?x"] {
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
        }
    }

    #[test]
    fn legacy_request_needs_a_known_version_or_none() {
        let list = |lines: &[(&str, &str)]| check("tools/list", json!({}), lines);
        assert_eq!(list(&[]), Ok(Era::Legacy));
        for version in LEGACY_VERSIONS {
            assert_eq!(list(&[("MCP-Protocol-Version", version)]), Ok(Era::Legacy));
        }
        assert_eq!(
            list(&[("MCP-Protocol-Version", MODERN_VERSION)]),
            Err(-32602)
        );
        assert_eq!(list(&[("MCP-Protocol-Version", "2024-11-05")]), Err(-32022));
        assert_eq!(
            check(
                "initialize",
                json!({}),
                &[("MCP-Protocol-Version", "2024-11-05")]
            ),
            Ok(Era::Legacy)
        );
    }
}
