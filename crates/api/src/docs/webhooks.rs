//! The webhook events in the document. Another crate writes them, so `webhooks.yaml` describes
//! them, and tests compare real events with it.

use std::sync::LazyLock;

use bellbird_connections::provider_names;
use bellbird_domain::{ApiVersion, EventId, EventType};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::page;

/// The parts of `webhooks.yaml`.
#[derive(Deserialize)]
struct Parts {
    tag: Value,
    operation: Map<String, Value>,
    events: Map<String, Value>,
    parameters: Map<String, Value>,
    envelope: Value,
    schemas: Map<String, Value>,
}

/// Adds the events, and the schemas and headers of their requests.
pub(super) fn describe(document: &mut Value) {
    let Ok(mut parts) = yaml_serde::from_str::<Parts>(include_str!("webhooks.yaml")) else {
        return;
    };
    if let Some(tags) = document["tags"].as_array_mut() {
        // The service itself comes last.
        tags.insert(tags.len() - 1, parts.tag);
    }
    let mut webhooks = Map::new();
    for (name, event) in &parts.events {
        let schema = event["schema"].as_str().unwrap_or_default();
        webhooks.insert(
            name.clone(),
            json!({"post": operation(&parts.operation, event)}),
        );
        parts
            .schemas
            .insert(schema.to_owned(), body(&parts.envelope, name, event));
    }
    document["webhooks"] = webhooks.into();
    let components = &mut document["components"];
    components["parameters"] = parts.parameters.into();
    if let Some(schemas) = components["schemas"].as_object_mut() {
        schemas.append(&mut parts.schemas);
    }
    components["schemas"]["EventConnection"]["properties"]["provider"]["enum"] =
        provider_names().collect();
    for (name, event) in &parts.events {
        let body = page::example(document, &reference(&event["schema"]), event.get("example"));
        let content = &mut document["webhooks"][name]["post"]["requestBody"]["content"];
        content["application/json"]["example"] = serde_json::from_str(&body).unwrap_or_default();
    }
}

/// As in the descriptions of these fields.
const KEY_OF_EXAMPLE: &str = "9f3b2c61d07a4e58";
const AMOUNT_OF_EXAMPLE: &str = "-49.13";

/// An event as the reference page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventExample {
    pub event_type: EventType,
    /// Where it is on the reference page.
    pub anchor: String,
    /// An example of its body, as indented JSON.
    pub body: String,
}

impl EventExample {
    /// The example as an endpoint of a user gets it that asks for this version. Marked as a test,
    /// because nothing has happened.
    pub fn test_body(&self, id: EventId, created: Timestamp, version: ApiVersion) -> Vec<u8> {
        let mut body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["id"] = json!(id.to_string());
        body["created"] = json!(created.as_second());
        body["api_version"] = json!(version.as_str());
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("user_id");
            metadata.remove("user_reference");
        }
        body["metadata"]["test"] = json!(true);
        // The examples of the page have the fields of every version.
        if version.has_keys() && body["data"].get("new").is_some() {
            body["metadata"]["removed_count"] = json!(0);
            body["data"]["removed"] = json!([]);
            for rows in ["new", "updated"] {
                let rows = body["data"][rows].as_array_mut().into_iter().flatten();
                rows.for_each(add_key);
            }
        }
        body.to_string().into_bytes()
    }
}

/// Adds the fields of a row that has a key.
fn add_key(row: &mut Value) {
    row["key"] = json!(KEY_OF_EXAMPLE);
    if row["object"] == "transaction" {
        row["amount_decimal"] = json!(AMOUNT_OF_EXAMPLE);
    }
}

/// Every event type in the order of the page.
pub fn event_examples() -> &'static [EventExample] {
    static EXAMPLES: LazyLock<Vec<EventExample>> = LazyLock::new(|| {
        let mut document = json!({"components": {"schemas": {}}});
        describe(&mut document);
        let example = |event_type: &EventType| {
            let event = &document["webhooks"][event_type.as_str()]["post"];
            let content = &event["requestBody"]["content"]["application/json"];
            EventExample {
                event_type: *event_type,
                anchor: event["operationId"].as_str().unwrap_or_default().to_owned(),
                body: page::example(&document, &content["schema"], content.get("example")),
            }
        };
        EventType::ALL.iter().map(example).collect()
    });
    &EXAMPLES
}

fn operation(common: &Map<String, Value>, event: &Value) -> Value {
    let mut operation = common.clone();
    for member in ["operationId", "summary", "description"] {
        operation.insert(member.to_owned(), event[member].clone());
    }
    let content = json!({"application/json": {"schema": reference(&event["schema"])}});
    operation.insert(
        "requestBody".to_owned(),
        json!({"required": true, "content": content}),
    );
    operation.into()
}

/// The schema of a whole body.
fn body(envelope: &Value, name: &str, event: &Value) -> Value {
    let mut body = envelope.clone();
    let properties = &mut body["properties"];
    properties["type"] = json!({"type": "string", "enum": [name], "description": "The type of the event.", "example": name});
    for (member, description) in [
        ("data", "What is new or has changed."),
        ("metadata", "The sync, and how many objects `data` has."),
    ] {
        properties[member] = reference(&event[member]);
        properties[member]["description"] = description.into();
    }
    body
}

fn reference(schema: &Value) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", schema.as_str().unwrap_or_default())})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_an_example() {
        assert_eq!(event_examples().len(), EventType::ALL.len());
        for example in event_examples() {
            let body: Value = serde_json::from_str(&example.body).unwrap();
            assert_eq!(body["type"], example.event_type.as_str());
            assert!(example.anchor.starts_with("receive_"), "{example:?}");
        }
        assert!(event_examples()[0].body.contains("\"amount\": "));
    }

    #[test]
    fn examples_are_true_for_their_events() {
        for example in event_examples() {
            let name = example.event_type.as_str();
            let body: Value = serde_json::from_str(&example.body).unwrap();
            let (data, metadata) = (&body["data"], &body["metadata"]);
            for (rows, count) in [("new", "new_count"), ("updated", "updated_count")] {
                let rows = data[rows].as_array().unwrap();
                assert_eq!(metadata[count], rows.len(), "{name}: {count}");
                for row in rows.iter().filter(|row| row["object"] == "connection") {
                    assert_eq!(row["id"], metadata["connection_id"], "{name}");
                    let expected = if example.event_type == EventType::ConnectionUpdated {
                        [json!("revoked"), json!("active")]
                    } else {
                        [json!("active"), Value::Null]
                    };
                    let actual = ["status", "previous_status"].map(|field| row[field].clone());
                    assert_eq!(actual, expected, "{name}");
                    let at = |field: &str| -> Timestamp {
                        row[field].as_str().unwrap().parse().unwrap()
                    };
                    let created = body["created"].as_i64().unwrap();
                    assert!(at("last_refreshed_at").as_second() <= created, "{name}");
                    let left = at("consent_expires_at").as_second() - created;
                    let is_soon = (0..=14 * 86_400).contains(&left);
                    let is_expiring = example.event_type == EventType::ConnectionExpiring;
                    assert_eq!(is_soon, is_expiring, "{name}");
                }
            }
        }
    }

    #[test]
    fn test_event_has_the_fields_of_its_version() {
        let example = &event_examples()[0];
        assert_eq!(example.event_type, EventType::TransactionsSynced);
        let (id, now) = (EventId::new(), Timestamp::UNIX_EPOCH);
        let body = |version| -> Value {
            serde_json::from_slice(&example.test_body(id, now, version)).unwrap()
        };
        let (old, new) = (body(ApiVersion::V2026_11_01), body(ApiVersion::V2026_12_01));
        for body in [&old, &new] {
            assert_eq!(
                (&body["id"], &body["created"]),
                (&json!(id.to_string()), &json!(0))
            );
            assert_eq!(body["metadata"]["test"], true);
            assert!(body["metadata"].get("user_id").is_none());
        }
        let has_key = |body: &Value| body["data"]["new"][0].get("key").is_some();
        assert!(has_key(&new) && !has_key(&old), "{new} {old}");
        assert!(new["data"].get("removed").is_some() && old["data"].get("removed").is_none());
    }
}
