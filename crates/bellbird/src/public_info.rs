//! How others know the service: the name of its operator, and its URLs. What the settings file or
//! the environment sets wins over what operators enter in the console, and both over the URLs of
//! the listeners.

use std::sync::Arc;

use bellbird_domain::CurrentText;
use bellbird_storage::StoredConsole;
use http::Uri;

use crate::config::Settings;

/// Clones share the texts, which follow what operators enter.
#[derive(Debug, Clone, Default)]
pub struct PublicInfo {
    pub api_url: CurrentText,
    pub console_url: CurrentText,
    /// Empty: the operator has no name.
    pub operator_name: CurrentText,
}

impl PublicInfo {
    /// `listeners` are the URLs of API and console without a proxy.
    pub fn apply(&self, settings: &Settings, listeners: &[String; 2], entered: &StoredConsole) {
        let [api, console] = listeners;
        let api_url = api_url(settings, entered);
        self.api_url.set(api_url.as_ref().unwrap_or(api));
        let console_url = console_url(settings, entered);
        self.console_url.set(console_url.unwrap_or(console));
        let configured = settings.pages.operator_name.as_deref();
        let name = configured.or(entered.operator_name.as_deref());
        self.operator_name.set(name.unwrap_or_default());
    }

    /// URL of the API, URL of the console, and name, as they are now.
    pub fn texts(&self) -> [Arc<str>; 3] {
        [&self.api_url, &self.console_url, &self.operator_name].map(CurrentText::get)
    }
}

/// The URL of the console, if it is set or entered.
pub fn console_url<'a>(settings: &'a Settings, entered: &'a StoredConsole) -> Option<&'a str> {
    let configured = settings.console.public_url.as_deref();
    configured.or(entered.public_url.as_deref())
}

/// The URL of the API, if it is set, or follows from where operators have found the console: behind
/// the same proxy, or at another port of the same machine.
pub fn api_url(settings: &Settings, entered: &StoredConsole) -> Option<String> {
    if settings.api.public_url.is_some() || settings.console.public_url.is_some() {
        return settings.api.public_url.clone();
    }
    let console_url = entered.public_url.as_ref()?;
    let console: Uri = console_url.parse().ok()?;
    if console.scheme_str() == Some("https") || console.port().is_none() {
        return Some(console_url.clone());
    }
    let (host, listen) = (console.host()?, settings.api.listen);
    let is_open = !listen.ip().is_loopback() && listen.port() != 0;
    is_open.then(|| format!("http://{host}:{}", listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_is_beside_the_console_that_operators_have_found() {
        let found = |url: &str, listen: &str| {
            let mut settings = Settings::default();
            settings.api.listen = listen.parse().unwrap();
            let entered = StoredConsole {
                public_url: Some(url.to_owned()),
                ..StoredConsole::default()
            };
            api_url(&settings, &entered)
        };
        for (console, listen, api) in [
            (
                "https://b.example",
                "127.0.0.1:8080",
                Some("https://b.example"),
            ),
            (
                "https://b.example:8443",
                "127.0.0.1:8080",
                Some("https://b.example:8443"),
            ),
            (
                "http://bellbird.lan",
                "127.0.0.1:8080",
                Some("http://bellbird.lan"),
            ),
            (
                "http://192.168.1.5:8081",
                "0.0.0.0:8080",
                Some("http://192.168.1.5:8080"),
            ),
            (
                "http://[fd00::1]:8081",
                "[::]:8080",
                Some("http://[fd00::1]:8080"),
            ),
            ("http://192.168.1.5:8081", "127.0.0.1:8080", None),
        ] {
            assert_eq!(found(console, listen).as_deref(), api, "{console} {listen}");
        }
    }

    #[test]
    fn settings_win_over_what_is_entered() {
        let entered = StoredConsole {
            operator_name: Some("Entered Ltd".to_owned()),
            public_url: Some("https://entered.example".to_owned()),
        };
        let listeners = ["http://127.0.0.1:8080", "http://127.0.0.1:8081"].map(str::to_owned);
        let public = PublicInfo::default();
        let applied = |settings: &Settings, entered: &StoredConsole| {
            public.apply(settings, &listeners, entered);
            public.texts().map(|text| text.to_string())
        };
        let mut settings = Settings::default();
        let [api, console] = &listeners;
        let nothing = StoredConsole::default();
        assert_eq!(
            applied(&settings, &nothing),
            [api.as_str(), console.as_str(), ""]
        );
        let url = "https://entered.example";
        assert_eq!(applied(&settings, &entered), [url, url, "Entered Ltd"]);
        settings.console.public_url = Some("https://set.example".to_owned());
        settings.pages.operator_name = Some("Set Ltd".to_owned());
        let set = [api.as_str(), "https://set.example", "Set Ltd"];
        assert_eq!(applied(&settings, &entered), set);
    }
}
