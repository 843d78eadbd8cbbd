//! JSON-RPC messages as MCP uses them: one object a body, with an id that is a string or an
//! integer. Pure.

use serde_json::{Map, Value};

use super::rpc::{Id, RpcError};

pub enum Message {
    Request(Request),
    /// Gets no response.
    Notification(Notification),
    /// To a request of the server, which sends none.
    Response,
}

/// A call of a method. No `Debug`: the parameters may hold what a user searches for.
pub struct Request {
    pub id: Id,
    pub method: String,
    pub params: Map<String, Value>,
}

pub struct Notification {
    pub method: String,
    pub params: Map<String, Value>,
}

/// Why a body is not a valid message, and the id of the response, if it has one.
pub struct Unreadable {
    pub id: Option<Id>,
    pub error: RpcError,
}

impl Unreadable {
    fn without_id(error: RpcError) -> Self {
        Self { id: None, error }
    }
}

impl Message {
    /// Reads a message. Nesting is limited to 127 by serde_json, and the size by the caller.
    pub fn parse(body: &[u8]) -> Result<Self, Unreadable> {
        let without_id = Unreadable::without_id;
        let value: Value = serde_json::from_slice(body).map_err(|_| {
            without_id(RpcError::parse(
                "The message is not JSON, or is nested too deep",
            ))
        })?;
        let mut members = match value {
            Value::Object(members) => members,
            Value::Array(_) => {
                return Err(without_id(RpcError::invalid(
                    "Send one message at a time: no batches",
                )));
            }
            _ => return Err(without_id(RpcError::invalid("A message is a JSON object"))),
        };
        let id = members.get("id").map(|value| {
            Id::of(value)
                .ok_or_else(|| RpcError::invalid("id: must be a short string or an integer"))
        });
        let id = id.transpose().map_err(without_id)?;
        let rejected = |error| Unreadable {
            id: id.clone(),
            error,
        };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(rejected(RpcError::invalid("jsonrpc: must be \"2.0\"")));
        }
        let method = match members.remove("method") {
            Some(Value::String(method)) => method,
            None if members.contains_key("result") || members.contains_key("error") => {
                return Ok(Self::Response);
            }
            _ => return Err(rejected(RpcError::invalid("method: must be a string"))),
        };
        let params = match members.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => {
                return Err(rejected(RpcError::invalid_params(
                    "params: must be an object",
                )));
            }
        };
        Ok(match id {
            Some(id) => Self::Request(Request { id, method, params }),
            None => Self::Notification(Notification { method, params }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(body: &str) -> (Option<Id>, i32) {
        match Message::parse(body.as_bytes()) {
            Ok(_) => panic!("accepted: {body}"),
            Err(unreadable) => (unreadable.id, unreadable.error.code()),
        }
    }

    #[test]
    fn request_notification_and_response_are_distinguished() {
        let Ok(Message::Request(request)) = Message::parse(
            br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x"}}"#,
        ) else {
            panic!("a request");
        };
        assert_eq!(request.id, Id::Text("a".to_owned()));
        assert_eq!(
            (request.method.as_str(), request.params["name"].as_str()),
            ("tools/call", Some("x"))
        );
        let without =
            Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#);
        assert!(matches!(without, Ok(Message::Request(request)) if request.params.is_empty()));
        let notification =
            Message::parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(
            matches!(notification, Ok(Message::Notification(Notification { params, .. })) if params.is_empty())
        );
        assert!(matches!(
            Message::parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            Ok(Message::Response)
        ));
    }

    #[test]
    fn bad_messages_are_rejected_with_the_id_if_it_is_readable() {
        for (body, expected) in [
            ("", (None, -32700)),
            ("{", (None, -32700)),
            (r#"{"jsonrpc":"2.0"} x"#, (None, -32700)),
            (&"[".repeat(100_000), (None, -32700)),
            ("null", (None, -32600)),
            ("\"text\"", (None, -32600)),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                (None, -32600),
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                (None, -32600),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                (None, -32600),
            ),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                (Some(Id::Number(1)), -32600),
            ),
            (r#"{"id":1,"method":"ping"}"#, (Some(Id::Number(1)), -32600)),
            (r#"{"jsonrpc":"2.0","id":1}"#, (Some(Id::Number(1)), -32600)),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
                (Some(Id::Number(1)), -32600),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                (Some(Id::Number(1)), -32602),
            ),
        ] {
            assert_eq!(rejected(body), expected, "{}", &body[..body.len().min(80)]);
        }
    }
}
