//! Grants: what a user's consent is written down as, one JSON object (docs/hosting.md has its forms).

use bellbird_domain::ProviderName;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Error;

/// The longest id or token in a grant, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// Reads a grant: an object whose members are texts, that may say its `provider`. `form` tells people what it looks
/// like. Unknown members are `G`'s to refuse.
///
/// # Errors
/// [`Error::BadGrant`], which never shows what was given.
pub(crate) fn read<G: DeserializeOwned>(grant: &SecretString, provider: ProviderName, form: &str) -> Result<G, Error> {
    let bad = || Error::BadGrant(format!("a grant of {provider} is a JSON object {form}"));
    let mut members: Map<String, Value> = serde_json::from_str(grant.expose_secret()).map_err(|_| bad())?;
    match members.remove("provider") {
        Some(Value::String(name)) if name != provider.as_str() => {
            return Err(Error::BadGrant(format!("the grant names another provider than {provider}")));
        }
        None | Some(Value::String(_)) => {}
        Some(_) => return Err(bad()),
    }
    let plain = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty() && text.len() <= TEXT_BYTES_MAX);
    if !members.values().all(plain) {
        return Err(bad());
    }
    serde_json::from_value(Value::Object(members)).map_err(|_| bad())
}

/// Writes the grant of one connection, to be sealed and stored.
///
/// # Errors
/// [`Error::Malformed`] when an id cannot be written.
pub(crate) fn write(grant: &impl Serialize) -> Result<SecretString, Error> {
    serde_json::to_string(grant).map(SecretString::from).map_err(|_| Error::Malformed("an id that is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Grant {
        token: String,
        part: Option<String>,
    }

    #[test]
    fn grants() {
        let name = ProviderName::new("acme");
        let read = |text: &str| read::<Grant>(&SecretString::from(text), name, "{\"token\": \"...\"}");
        let whole = Grant { token: "t".to_owned(), part: None };
        assert_eq!(read(r#"{"token": "t"}"#), Ok(whole));
        assert_eq!(read(r#"{"provider": "acme", "token": "t", "part": "p"}"#).unwrap().part.as_deref(), Some("p"));
        let long = format!(r#"{{"token": "{}"}}"#, "x".repeat(TEXT_BYTES_MAX + 1));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"token": ""}"#,
            r#"{"token": 5}"#,
            r#"{"token": "t", "other": "o"}"#,
            r#"{"provider": "other", "token": "t"}"#,
            r#"{"provider": 1, "token": "t"}"#,
            &long,
        ] {
            let Err(Error::BadGrant(said)) = read(bad) else { panic!("{bad}") };
            assert!(said.contains("acme"), "{said}");
        }
    }
}
