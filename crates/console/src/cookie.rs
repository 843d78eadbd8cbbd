//! The cookies of the console.

use axum::response::Response;
use bellbird_storage::SESSION_MAX;
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use secrecy::SecretString;

/// Of all values but those that are a text. All are hexadecimal.
const VALUE_BYTES: usize = 64;
const TEXT_VALUE_BYTES_MAX: usize = 1_024;

/// Each of which has a purpose of its own.
pub(crate) struct Cookies {
    /// Binds consent sessions to a browser. Its value is random and means nothing else, but on the
    /// way to the first operator, whose session follows from it.
    pub(crate) browser: Cookie,
    /// The token of the link from which the browser last started a session, so that a result page
    /// can lead back to the link without naming it.
    pub(crate) link: Cookie,
    /// Says who is signed in. The browser keeps it for as long as a session can last, because a
    /// session that is used lasts longer than it was to at first.
    pub(crate) session: Cookie,
    /// Stays when the user signs out, and says that a user has signed in here before.
    pub(crate) known_browser: Cookie,
    /// The secret of a sign-in at the identity provider.
    pub(crate) identity_provider: Cookie,
    /// The page that was asked for before a sign-in, as [`Cookie::text_header`] writes it.
    pub(crate) page: Cookie,
    /// What a bank was called that has just been removed, as [`Cookie::text_header`] writes it. It
    /// may name an account, and nothing about that is stored here any more.
    pub(crate) removed_bank: Cookie,
}

impl Cookies {
    pub(crate) fn new(console_url: &str) -> Self {
        let cookie = |name, max_age_seconds| Cookie::new(name, max_age_seconds, console_url);
        Self {
            // Longer than a consent session, so that the user can return to its link URL
            // afterwards.
            browser: cookie("bellbird", 3_600),
            // As long as a link works at most.
            link: cookie("bellbird-link", 1_800),
            session: cookie("bellbird-session", SESSION_MAX.as_secs()),
            // As long as browsers keep a cookie at most.
            known_browser: cookie("bellbird-known", 400 * 86_400),
            // How long a browser may be at the identity provider.
            identity_provider: cookie("bellbird-oidc", 600),
            // How long a sign-in may take, which is as long as its link works.
            page: cookie("bellbird-page", 600),
            // Until the page that says so is there.
            removed_bank: cookie("bellbird-removed", 60),
        }
    }
}

/// Gives cookies to the browser.
pub(crate) fn with_cookies(
    mut response: Response,
    cookies: impl IntoIterator<Item = Option<HeaderValue>>,
) -> Response {
    let cookies = cookies.into_iter().flatten();
    let headers = cookies.map(|cookie| (SET_COOKIE, cookie));
    response.headers_mut().extend(headers);
    response
}

/// Name, lifetime and flags of a cookie.
pub(crate) struct Cookie {
    name: String,
    max_age_seconds: i64,
    is_https: bool,
}

impl Cookie {
    /// None: the text is too long to be kept.
    pub(crate) fn text_header(&self, text: &str) -> Option<HeaderValue> {
        let value = hex::encode(text);
        (value.len() <= TEXT_VALUE_BYTES_MAX).then(|| self.header(&value))?
    }

    /// The text that the browser sent, which may be anything.
    pub(crate) fn text(&self, headers: &HeaderMap) -> Option<String> {
        let text = self.any_value(headers)?;
        let text = hex::decode(text.get(..TEXT_VALUE_BYTES_MAX).unwrap_or(text)).ok()?;
        String::from_utf8(text).ok()
    }

    /// Browsers store a `__Host-` cookie only over HTTPS. Without TLS, on this machine or in a home
    /// network, its name has no prefix, and any program on the same host can set it.
    fn new(name: &str, max_age_seconds: i64, console_url: &str) -> Self {
        let is_https = console_url.starts_with("https:");
        let prefix = if is_https { "__Host-" } else { "" };
        Self {
            name: format!("{prefix}{name}"),
            max_age_seconds,
            is_https,
        }
    }

    /// The value that the browser sent. None if it is absent, repeated or not ours.
    pub(crate) fn value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let value = self.any_value(headers)?;
        (value.len() == VALUE_BYTES && value.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then_some(value)
    }

    /// None if it is absent or repeated.
    fn any_value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|cookies| cookies.to_str().ok());
        let pairs = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs
            .filter(|(name, _)| *name == self.name)
            .map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none())
    }

    /// The browser's value, or a new one. Several sessions of one browser share it.
    pub(crate) fn value_or_new(&self, headers: &HeaderMap) -> SecretString {
        let value = self.value(headers).map(SecretString::from);
        value.unwrap_or_else(bellbird_storage::new_token)
    }

    /// `SameSite=Lax`, because the provider's page sends the browser back here.
    pub(crate) fn header(&self, value: &str) -> Option<HeaderValue> {
        self.with_age(value, self.max_age_seconds)
    }

    pub(crate) fn has_name_of(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// Takes the cookie from the browser.
    pub(crate) fn removal(&self) -> Option<HeaderValue> {
        self.with_age("", 0)
    }

    fn with_age(&self, value: &str, max_age_seconds: i64) -> Option<HeaderValue> {
        let Self { name, is_https, .. } = self;
        let secure = if *is_https { "; Secure" } else { "" };
        let cookie = format!(
            "{name}={value}; Path=/; Max-Age={max_age_seconds}; HttpOnly; SameSite=Lax{secure}"
        );
        let mut header = HeaderValue::from_str(&cookie).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn cookie_is_bound_to_the_host_over_https() {
        let text = "a".repeat(64);
        let header = |url| {
            Cookies::new(url)
                .browser
                .header(&text)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        let flags = "Path=/; Max-Age=3600; HttpOnly; SameSite=Lax";
        assert_eq!(
            header("https://b.example/x"),
            format!("__Host-bellbird={text}; {flags}; Secure")
        );
        assert_eq!(
            header("http://127.0.0.1:8081"),
            format!("bellbird={text}; {flags}")
        );
        let link = Cookies::new("https://b.example")
            .link
            .header(&text)
            .unwrap();
        assert!(link.is_sensitive());
        let flags = "Path=/; Max-Age=1800; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(
            link.to_str().unwrap(),
            format!("__Host-bellbird-link={text}; {flags}")
        );
    }

    #[test]
    fn text_comes_back_as_it_was() {
        let cookie = Cookies::new("http://127.0.0.1:8081").page;
        let asked = |page: &str| {
            let header = cookie.text_header(page)?;
            let (sent, _) = header.to_str().unwrap().split_once(';')?;
            let sent = [(COOKIE, HeaderValue::from_str(sent).unwrap())];
            cookie.text(&sent.into_iter().collect())
        };
        for page in ["/transactions?search=%22", "/settings", ""] {
            assert_eq!(asked(page).as_deref(), Some(page));
        }
        assert_eq!(asked(&"/x".repeat(500)), None);
    }

    #[test]
    fn only_a_single_value_of_ours_counts() {
        let cookie = Cookies::new("https://b.example").browser;
        let value = |headers: &[&str]| {
            let headers = headers
                .iter()
                .map(|text| (COOKIE, HeaderValue::from_str(text).unwrap()));
            cookie.value(&headers.collect()).map(str::to_owned)
        };
        let ours = format!("__Host-bellbird={}", "0".repeat(64));
        let link = format!("__Host-bellbird-link={}", "1".repeat(64));
        assert_eq!(
            value(&[&format!("a=b; {ours}; {link}")]),
            Some("0".repeat(64))
        );
        for wrong in [
            format!("{ours}0"),
            ours.replace("__Host-", ""),
            format!("{ours}; {ours}"),
            "x".to_owned(),
            link,
        ] {
            assert_eq!(value(&[&wrong]), None, "{wrong}");
        }
        let sent = [(COOKIE, HeaderValue::from_str(&ours).unwrap())]
            .into_iter()
            .collect();
        assert_eq!(cookie.value_or_new(&sent).expose_secret(), "0".repeat(64));
        let new = cookie.value_or_new(&HeaderMap::new());
        assert_ne!(new.expose_secret(), "0".repeat(64));
    }
}
