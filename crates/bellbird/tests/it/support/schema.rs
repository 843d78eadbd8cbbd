//! Compares values with schemas of the OpenAPI document.

use serde_json::Value;

/// The forms that an object of a schema can have.
pub(crate) fn forms(schema: &Value) -> Vec<&Value> {
    schema["oneOf"]
        .as_array()
        .map_or_else(|| vec![schema], |forms| forms.iter().collect())
}

/// Asserts that a value fits a schema of the OpenAPI document, and has no member that the schema
/// lacks.
pub(crate) fn check(document: &Value, at: &str, schema: &Value, value: &Value) {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return check(document, at, document.pointer(&target[1..]).unwrap(), value);
    }
    if schema.get("oneOf").is_some() {
        let is_form = |form: &&Value| {
            let members = form["properties"].as_object().unwrap().iter();
            let mut constants =
                members.filter_map(|(name, member)| Some((name, member.get("enum")?.as_array()?)));
            constants.all(|(name, values)| values.contains(&value[name]))
        };
        let form = forms(schema)
            .into_iter()
            .find(is_form)
            .unwrap_or_else(|| panic!("{at}: no form for {value}"));
        return check(document, at, form, value);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(
        types.contains(&actual),
        "{at}: {actual} is none of {types:?}"
    );
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        assert!(
            values.contains(value),
            "{at}: {value} is not one of {values:?}"
        );
    }
    if let Some(pattern) = schema["pattern"]
        .as_str()
        .filter(|pattern| pattern.starts_with("^-?[0-9]+"))
    {
        let digits = value
            .as_str()
            .is_none_or(|text| bellbird_domain::Decimal::parse(text).is_ok());
        assert!(digits, "{at}: {value} does not match {pattern}");
    }
    if let Some(array) = value.as_array() {
        let within = |bound: &str, fits: fn(usize, usize) -> bool| {
            schema[bound]
                .as_u64()
                .is_none_or(|bound| fits(array.len(), usize::try_from(bound).unwrap()))
        };
        assert!(
            within("minItems", |count, bound| count >= bound),
            "{at}: {} items",
            array.len()
        );
        assert!(
            within("maxItems", |count, bound| count <= bound),
            "{at}: {} items",
            array.len()
        );
    }
    if let (Some(items), Some(array)) = (schema.get("items"), value.as_array()) {
        array
            .iter()
            .for_each(|item| check(document, &format!("{at}[]"), items, item));
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object())
    {
        for (member, inner) in object {
            let property = properties
                .get(member)
                .unwrap_or_else(|| panic!("{at}.{member} is not described"));
            check(document, &format!("{at}.{member}"), property, inner);
        }
        for required in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            assert!(object.contains_key(required), "{at}.{required} is missing");
        }
    }
}
