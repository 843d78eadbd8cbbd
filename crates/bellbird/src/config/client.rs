//! Where a command finds a running service, and with which key it calls it.

use bellbird_domain::ApiKey;
use bellbird_providers::settings::is_this_machine;

use super::values::web_url;

pub const URL: &str = "BELLBIRD_URL";
pub const KEY: &str = "BELLBIRD_KEY";
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The key with which the service is called. From the environment only: other users of the machine
/// see the arguments of a command. Fails with a message for the user, which does not repeat it.
pub fn service_key() -> Result<ApiKey, String> {
    let Some(key) = variable(KEY) else {
        return Err(format!(
            "{KEY} is not set: make a key with `bellbird key create`, and set it to that"
        ));
    };
    ApiKey::parse(key.trim()).map_err(|_| {
        format!("{KEY} is not a valid API key: paste all of it, bb_ and 38 letters and digits")
    })
}

/// Whether requests to a URL leave this machine only by TLS.
pub fn is_safe(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https") || uri.host().is_some_and(is_this_machine)
    })
}

/// The URL of the service, without a trailing slash. Fails with a message for the user, which does
/// not repeat it: it may hold a secret.
pub fn service_url() -> Result<String, String> {
    let url = variable(URL).unwrap_or_else(|| DEFAULT_URL.to_owned());
    web_url(&url).filter(|url| is_safe(url)).ok_or_else(|| {
        format!(
            "{URL} must be the https URL of the API, such as https://bank.example.com. Only on this machine may it be \
             http: others on the network would read the key"
        )
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_fine_on_this_machine_only() {
        for url in [
            "https://x.example",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/x",
            "http://localhost/x",
        ] {
            assert!(is_safe(url), "{url}");
        }
        for url in [
            "http://x.example",
            "http://10.0.0.5:8080",
            "http://localhost.example:80",
            "http://[fe80::1]",
        ] {
            assert!(!is_safe(url), "{url}");
        }
    }
}
