//! Builds the result of a tool: a table for the model, the same rows as JSON, and an end at a size.
//! Pure.
//!
//! Programs that take less than a model's context cut a result, or fail with it. So a result ends
//! by itself, says how much is left, and gives a cursor.

use bellbird_api::http::json::{write_json, write_string};
use serde::Serialize;
use serde_json::{Map, Value};

/// Limit of a whole result, text and JSON together. About 10,000 tokens.
pub(super) const RESULT_BYTES_MAX: usize = 40_000;

/// The rows of a result.
pub(super) struct Rows {
    /// Lines of text, escaped as in a JSON string.
    text: Vec<u8>,
    /// Objects, separated by commas.
    json: Vec<u8>,
    bytes_max: usize,
    pub(super) shown: u32,
    limit: u32,
}

/// Whether a result has room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    /// The row was not taken.
    Full,
}

impl Rows {
    /// `reserved` bytes are left for all but the rows.
    pub(super) fn new(limit: u32, reserved: usize) -> Self {
        let bytes_max = RESULT_BYTES_MAX.saturating_sub(reserved);
        Self {
            text: Vec::new(),
            json: Vec::new(),
            bytes_max,
            shown: 0,
            limit,
        }
    }

    pub(super) fn is_at_limit(&self) -> bool {
        self.shown >= self.limit
    }

    /// Adds a row, unless the result is full.
    pub(super) fn push(&mut self, line: &str, row: &impl Serialize) -> Room {
        let (text_before, json_before) = (self.text.len(), self.json.len());
        if self.is_at_limit() {
            return Room::Full;
        }
        self.text.extend_from_slice(b"\\n");
        escape(line, &mut self.text);
        if self.shown > 0 {
            self.json.push(b',');
        }
        write_json(row, &mut self.json);
        if self.text.len() + self.json.len() > self.bytes_max {
            self.text.truncate(text_before);
            self.json.truncate(json_before);
            return Room::Full;
        }
        self.shown += 1;
        Room::Left
    }

    /// Takes the room of what follows the rows.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.saturating_sub(bytes);
    }
}

/// The members of a result: `head` and the rows as text, the rows as the member `name` of the
/// structured content, and the other members of it. `columns` is the head of the table, if the rows
/// are one.
pub(super) fn members(
    head: &str,
    columns: &str,
    rows: &Rows,
    name: &str,
    others: &Map<String, Value>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.text.len() + rows.json.len() + head.len() + 1_000);
    out.extend_from_slice(br#""content":[{"type":"text","text":""#);
    escape(head, &mut out);
    if rows.shown > 0 {
        out.extend_from_slice(b"\\n");
        if !columns.is_empty() {
            out.extend_from_slice(b"\\n");
            escape(columns, &mut out);
            out.extend_from_slice(b"\\n|");
            out.extend_from_slice(
                "---|"
                    .repeat(columns.matches('|').count().saturating_sub(1))
                    .as_bytes(),
            );
        }
        out.extend_from_slice(&rows.text);
    }
    out.extend_from_slice(br#""}],"structuredContent":{""#);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(br#"":["#);
    out.extend_from_slice(&rows.json);
    out.push(b']');
    for (name, value) in others {
        out.push(b',');
        write_string(name, &mut out);
        out.push(b':');
        write_json(value, &mut out);
    }
    out.extend_from_slice(br#"},"isError":false"#);
    out
}

/// The members of a result that says what went wrong and what to do.
pub(super) fn failure(text: &str) -> Vec<u8> {
    let mut out = br#""content":[{"type":"text","text":""#.to_vec();
    escape(text, &mut out);
    out.extend_from_slice(br#""}],"isError":true"#);
    out
}

pub(super) fn line(cells: &[&str]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Appends a text as the inside of a JSON string.
fn escape(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    write_string(text, out);
    out.remove(start);
    out.pop();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn result(rows: &Rows) -> Value {
        let others = json!({"shown": rows.shown, "next_cursor": "c"});
        let members = members(
            "Two \"rows\"",
            "| a | b |",
            rows,
            "rows",
            others.as_object().unwrap(),
        );
        serde_json::from_slice(&[b"{", members.as_slice(), b"}"].concat()).unwrap()
    }

    #[test]
    fn rows_are_text_and_json() {
        let mut rows = Rows::new(2, 0);
        assert_eq!(
            rows.push(&line(&["1", "x\"y"]), &json!({"a": 1})),
            Room::Left
        );
        assert_eq!(rows.push(&line(&["2", "z"]), &json!({"a": 2})), Room::Left);
        assert_eq!(rows.push("too many", &json!({})), Room::Full);
        let result = result(&rows);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            text,
            "Two \"rows\"\n\n| a | b |\n|---|---|\n| 1 | x\"y |\n| 2 | z |"
        );
        let structured = json!({"rows": [{"a": 1}, {"a": 2}], "shown": 2, "next_cursor": "c"});
        assert_eq!(result["structuredContent"], structured);
        assert_eq!(result["isError"], false);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn results_end_at_their_size(texts in prop::collection::vec("[ -~\"\\\\é😀]{0,500}", 0..200)) {
            let mut rows = Rows::new(1_000, 1_000);
            let taken = texts.iter().take_while(|text| rows.push(text, &json!({"text": text})) == Room::Left).count();
            prop_assert_eq!(taken, rows.shown as usize);
            let members = members("Head", "", &rows, "rows", &Map::new());
            prop_assert!(members.len() <= RESULT_BYTES_MAX, "{}", members.len());
            let result: Value = serde_json::from_slice(&[b"{", members.as_slice(), b"}"].concat()).unwrap();
            prop_assert_eq!(result["structuredContent"]["rows"].as_array().unwrap().len(), taken);
            if taken < texts.len() {
                prop_assert!(members.len() > RESULT_BYTES_MAX - 5_000, "ends early at {}", members.len());
            }
        }
    }
}
