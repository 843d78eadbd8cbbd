//! Compares some fields of an object at once.

use serde_json::Value;

/// Asserts that an object has these fields with these values, whatever else it has. `null` is also
/// a field that is absent.
#[track_caller]
pub(crate) fn assert_fields(object: &Value, expected: &Value) {
    let mut found = expected.clone();
    for (name, value) in found.as_object_mut().expect("an object of fields") {
        value.clone_from(&object[name]);
    }
    assert_eq!(&found, expected, "in {object}");
}
