//! Reads and writes the credentials of a connection: one JSON object, in a form that each provider
//! defines. docs/provider-setup.md#import-a-connection shows the forms.

use bellbird_domain::ProviderName;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Error;

/// The longest id or token in credentials, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// Parses credentials: an object with string members and optionally its `provider`. `form`
/// describes the expected members in error messages. `C` has to reject unknown members.
///
/// The error is always [`Error::InvalidCredentials`], and its message never contains the input.
pub(crate) fn read<C: DeserializeOwned>(
    credentials: &SecretString,
    provider: ProviderName,
    form: &str,
) -> Result<C, Error> {
    let bad = || {
        Error::InvalidCredentials(format!(
            "credentials of {provider} must be a JSON object {form}"
        ))
    };
    let mut members: Map<String, Value> =
        serde_json::from_str(credentials.expose_secret()).map_err(|_| bad())?;
    match members.remove("provider") {
        Some(Value::String(name)) if name != provider.as_str() => {
            return Err(Error::InvalidCredentials(format!(
                "the credentials name another provider than {provider}"
            )));
        }
        None | Some(Value::String(_)) => {}
        Some(_) => return Err(bad()),
    }
    let plain = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| !text.is_empty() && text.len() <= TEXT_BYTES_MAX)
    };
    if !members.values().all(plain) {
        return Err(bad());
    }
    serde_json::from_value(Value::Object(members)).map_err(|_| bad())
}

pub(crate) fn write(credentials: &impl Serialize) -> Result<SecretString, Error> {
    serde_json::to_string(credentials)
        .map(SecretString::from)
        .map_err(|_| Error::Malformed("the credentials could not be serialized"))
}

/// The id of the one connection that stored credentials cover. `member` names it in the error
/// message.
pub(crate) fn stored_id(id: Option<String>, member: &str) -> Result<String, Error> {
    let missing = || format!("the stored credentials have no {member}; link the connection again");
    id.ok_or_else(|| Error::InvalidCredentials(missing()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Credentials {
        token: String,
        part: Option<String>,
    }

    #[test]
    fn credentials_are_parsed_strictly() {
        let name = ProviderName::new("acme");
        let read = |text: &str| {
            read::<Credentials>(&SecretString::from(text), name, "{\"token\": \"...\"}")
        };
        let without_part = Credentials {
            token: "t".to_owned(),
            part: None,
        };
        assert_eq!(read(r#"{"token": "t"}"#), Ok(without_part));
        assert_eq!(
            read(r#"{"provider": "acme", "token": "t", "part": "p"}"#)
                .unwrap()
                .part
                .as_deref(),
            Some("p")
        );
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
            let Err(Error::InvalidCredentials(message)) = read(bad) else {
                panic!("{bad}")
            };
            assert!(message.contains("acme"), "{message}");
        }
    }
}
