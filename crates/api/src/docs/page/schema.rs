//! Schemas of the document as a reader needs them: an example, a list of members, and the kind of a
//! value in words.

use serde_json::Value;

use super::text::Text;

/// A member of a body, or of an object in it.
pub(super) struct Member {
    /// From the body on, as in `data[].id`.
    pub path: String,
    pub kind: String,
    pub values: Vec<String>,
    pub description: Text,
}

/// The items of an array.
pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The names and values of an object.
pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A string itself, anything else as JSON.
pub(super) fn string(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Follows a `$ref`.
pub(super) fn resolve<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    let target = schema["$ref"]
        .as_str()
        .and_then(|target| document.pointer(target.trim_start_matches('#')));
    target.unwrap_or(schema)
}

/// Members in the order in which responses have them. JSON objects of the document are sorted,
/// `required` is not.
fn members_of(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let required: Vec<&str> = items(&schema["required"])
        .filter_map(Value::as_str)
        .collect();
    let optional =
        entries(&schema["properties"]).filter(|(name, _)| !required.contains(&name.as_str()));
    let first = required
        .iter()
        .map(|name| (*name, &schema["properties"][*name], true));
    first
        .chain(optional.map(|(name, member)| (name.as_str(), member, false)))
        .collect()
}

/// Every member of a body. An object's own members follow it.
pub(super) fn members(document: &Value, body: &Value) -> Vec<Member> {
    let mut members = Vec::new();
    collect(document, resolve(document, body), "", &mut members);
    members
}

/// The forms that an object can have.
fn forms(object: &Value) -> Vec<&Value> {
    object["oneOf"]
        .as_array()
        .map_or_else(|| vec![object], |forms| forms.iter().collect())
}

/// Members that several forms have are listed once.
fn collect(document: &Value, object: &Value, prefix: &str, members: &mut Vec<Member>) {
    let forms = forms(object);
    let all_members = || forms.iter().flat_map(|form| members_of(form));
    for (name, member, _) in all_members() {
        let path = format!("{prefix}{name}");
        if let Some(known) = members.iter_mut().find(|known| known.path == path) {
            known.values.extend(values(member));
            continue;
        }
        let required = all_members()
            .filter(|(other, _, required)| *other == name && *required)
            .count();
        let optional = if required == forms.len() {
            ""
        } else {
            ", optional"
        };
        members.push(Member {
            kind: format!("{}{optional}", kind(member)),
            values: values(member),
            description: Text::new(member["description"].as_str().unwrap_or_default()),
            path: path.clone(),
        });
        let (inner, separator) = if member["type"] == "array" {
            (&member["items"], "[].")
        } else {
            (member, ".")
        };
        collect(
            document,
            resolve(document, inner),
            &format!("{path}{separator}"),
            members,
        );
    }
}

/// The accepted values, if they are listed.
pub(super) fn values(schema: &Value) -> Vec<String> {
    items(&schema["enum"]).map(string).collect()
}

/// The type in words, as in `string or null (uuid)`.
pub(super) fn kind(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        return format!("{} object", target.rsplit('/').next().unwrap_or_default());
    }
    if schema["type"] == "array" {
        return format!("array of {}s", kind(&schema["items"]));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        one => one.as_str().unwrap_or("object").to_owned(),
    };
    let formats: Vec<&str> = items(&schema["anyOf"])
        .chain([schema])
        .filter_map(|schema| schema["format"].as_str())
        .collect();
    if formats.is_empty() {
        types
    } else {
        format!("{types} ({})", formats.join(" or "))
    }
}

/// An example of a body, indented. Optional members are left out. `values`, of a whole body or of
/// parts of it, replace the examples of their members.
pub(in crate::docs) fn example(document: &Value, schema: &Value, values: Option<&Value>) -> String {
    let mut text = String::new();
    write_example(document, schema, values, "\n", &mut text);
    text
}

/// `line` begins a line: a line break and the indentation.
fn write_example(
    document: &Value,
    schema: &Value,
    given: Option<&Value>,
    line: &str,
    text: &mut String,
) {
    let schema = forms(resolve(document, schema))[0];
    let inner = format!("{line}  ");
    if let Some(value) = given.filter(|value| !value.is_object() && !value.is_array()) {
        text.push_str(&value.to_string());
    } else if !schema["example"].is_null() {
        text.push_str(&schema["example"].to_string());
    } else if let [only] = &values(schema)[..] {
        text.push_str(&Value::from(only.as_str()).to_string());
    } else if schema["type"] == "array" {
        text.push('[');
        text.push_str(&inner);
        let given = given.and_then(|items| items.get(0));
        write_example(document, &schema["items"], given, &inner, text);
        text.push_str(line);
        text.push(']');
    } else {
        let mut separator = "{";
        for (name, member, _) in members_of(schema)
            .into_iter()
            .filter(|(_, _, required)| *required)
        {
            text.push_str(separator);
            text.push_str(&inner);
            text.push_str(&format!("\"{name}\": "));
            let given = given.and_then(|members| members.get(name));
            write_example(document, member, given, &inner, text);
            separator = ",";
        }
        text.push_str(line);
        text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"components": {"schemas": {
            "List": {"type": "object", "required": ["rows", "next"], "properties": {
                "next": {"type": ["string", "null"], "format": "uuid", "example": "n"},
                "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
                "note": {"type": "string", "example": "optional"}
            }},
            "Row": {"type": "object", "required": ["amount"], "properties": {
                "amount": {"type": "string", "example": "-5.00", "enum": ["-5.00", null]}
            }},
            "Change": {"oneOf": [
                {"required": ["op", "row"], "properties": {
                    "op": {"type": "string", "enum": ["upsert"]},
                    "row": {"$ref": "#/components/schemas/Row"}
                }},
                {"required": ["op"], "properties": {"op": {"type": "string", "enum": ["remove"]}}}
            ]}
        }}})
    }

    #[test]
    fn example_has_the_order_of_the_response() {
        let list = json!({"$ref": "#/components/schemas/List"});
        let text = example(&document(), &list, None);
        assert_eq!(
            text,
            "{\n  \"rows\": [\n    {\n      \"amount\": \"-5.00\"\n    }\n  ],\n  \"next\": \"n\"\n}"
        );
        let values = json!({"rows": [{"amount": null}]});
        let with_values = example(&document(), &list, Some(&values));
        assert_eq!(with_values, text.replace("\"-5.00\"", "null"));
    }

    #[test]
    fn members_of_inner_objects_follow_them() {
        let members = members(&document(), &json!({"$ref": "#/components/schemas/List"}));
        let found: Vec<_> = members
            .iter()
            .map(|member| (member.path.as_str(), member.kind.as_str()))
            .collect();
        let expected = [
            ("rows", "array of Row objects"),
            ("rows[].amount", "string"),
            ("next", "string or null (uuid)"),
            ("note", "string, optional"),
        ];
        assert_eq!(found, expected);
        assert_eq!(members[1].values, ["-5.00", "null"]);
    }

    #[test]
    fn members_of_several_forms_are_listed_once() {
        let change = json!({"$ref": "#/components/schemas/Change"});
        let members = members(&document(), &change);
        let found: Vec<_> = members
            .iter()
            .map(|member| (member.path.as_str(), member.kind.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("op", "string"),
                ("row", "Row object, optional"),
                ("row.amount", "string")
            ]
        );
        assert_eq!(members[0].values, ["upsert", "remove"]);
        assert!(
            example(&document(), &change, None)
                .starts_with("{\n  \"op\": \"upsert\",\n  \"row\": {")
        );
    }
}
