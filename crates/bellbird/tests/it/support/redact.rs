//! Replaces what differs from run to run, so that a body can be compared with a snapshot.

use serde_json::Value;
use uuid::Uuid;

const UUID_LENGTH: usize = 36;
const HOST: &str = "http://127.0.0.1:";

/// Replaces each id by `id-<n>`, where equal ids have equal numbers, each cursor by `cursor`, the
/// first characters of a key by `bb_first`, ports by 0, and the version of the program by
/// `VERSION`, because a release changes it.
pub(crate) fn redact(body: &Value) -> Value {
    let mut text = body.to_string().replace(
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
        "\"VERSION\"",
    );
    let mut random = Vec::new();
    collect_random(body, &mut random);
    for (value, shown) in random {
        text = text.replace(value, shown);
    }
    let mut parts = text.split(HOST);
    let first = parts.next().unwrap_or_default().to_owned();
    text = parts.fold(first, |text, part| {
        text + HOST + "0" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    let mut number = 0;
    while let Some(id) = find_id(&text) {
        number += 1;
        text = text.replace(&id, &format!("id-{number}"));
    }
    serde_json::from_str(&text).expect("JSON")
}

fn find_id(text: &str) -> Option<String> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ids = starts.filter_map(|at| text.get(at..at + UUID_LENGTH));
    ids.filter(|id| id.contains('-'))
        .find(|id| Uuid::parse_str(id).is_ok())
        .map(str::to_owned)
}

fn collect_random<'v>(value: &'v Value, found: &mut Vec<(&'v str, &'static str)>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_random(value, found)),
        Value::Object(members) => {
            for (name, shown) in [("next_cursor", "cursor"), ("prefix", "bb_first")] {
                found.extend(
                    members
                        .get(name)
                        .and_then(Value::as_str)
                        .map(|value| (value, shown)),
                );
            }
            members
                .values()
                .for_each(|value| collect_random(value, found));
        }
        _ => {}
    }
}
