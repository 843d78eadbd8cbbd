//! Six cookies. The first binds consent sessions to a browser, and its value is random and means
//! nothing else. The second holds the link token from which the browser last started a session, so
//! that a result page can lead back to the link without naming it. The third says who is signed in.
//! The fourth stays when the user signs out, and says that a user has signed in here before. The
//! fifth binds a sign-in at the identity provider to the browser. The sixth names the page that was
//! asked for before a sign-in.

use bellbird_storage::SESSION_MAX;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use secrecy::SecretString;

/// Longer than a consent session, so that the user can return to its link URL afterwards.
const BROWSER_MAX_AGE_SECONDS: u32 = 3600;
/// As long as a link works at most.
const LINK_MAX_AGE_SECONDS: u32 = 1800;
/// How long a browser may be at the identity provider.
const IDENTITY_PROVIDER_MAX_AGE_SECONDS: u32 = 600;
/// How long a sign-in may take, to lead to the page that was asked for. As long as its link works.
const PAGE_MAX_AGE_SECONDS: u32 = 600;
/// As long as browsers keep a cookie at most.
const KNOWN_BROWSER_MAX_AGE_SECONDS: u32 = 400 * 86_400;
/// Of all values but that of a page. All are hexadecimal.
const VALUE_BYTES: usize = 64;
const PAGE_VALUE_BYTES_MAX: usize = 1_024;

/// Name, lifetime and flags of a cookie.
pub(crate) struct Cookie {
    name: String,
    max_age_seconds: u32,
    is_https: bool,
}

impl Cookie {
    /// Binds consent sessions to a browser.
    pub(crate) fn of_browser(console_url: &str) -> Self {
        Self::new("bellbird", BROWSER_MAX_AGE_SECONDS, console_url)
    }

    /// Holds the token of a link.
    pub(crate) fn of_link(console_url: &str) -> Self {
        Self::new("bellbird-link", LINK_MAX_AGE_SECONDS, console_url)
    }

    /// Says who is signed in. The browser keeps it for as long as a session can last, because a
    /// session that is used lasts longer than it was to at first.
    pub(crate) fn of_session(console_url: &str) -> Self {
        let max_age_seconds = u32::try_from(SESSION_MAX.as_secs()).unwrap_or(u32::MAX);
        Self::new("bellbird-session", max_age_seconds, console_url)
    }

    /// Holds the secret of a sign-in at the identity provider.
    pub(crate) fn of_identity_provider(console_url: &str) -> Self {
        Self::new(
            "bellbird-oidc",
            IDENTITY_PROVIDER_MAX_AGE_SECONDS,
            console_url,
        )
    }

    /// Says in which browser users have signed in.
    pub(crate) fn of_known_browser(console_url: &str) -> Self {
        Self::new("bellbird-known", KNOWN_BROWSER_MAX_AGE_SECONDS, console_url)
    }

    /// Holds the page that was asked for, as [`Self::page_header`] writes it.
    pub(crate) fn of_page(console_url: &str) -> Self {
        Self::new("bellbird-page", PAGE_MAX_AGE_SECONDS, console_url)
    }

    /// The path and query of a page. None: they are too long to be kept.
    pub(crate) fn page_header(&self, page: &str) -> Option<HeaderValue> {
        let value = hex::encode(page);
        (value.len() <= PAGE_VALUE_BYTES_MAX).then(|| self.header(&value))?
    }

    /// What the browser says that it asked for, which may be anything.
    pub(crate) fn page(&self, headers: &HeaderMap) -> Option<String> {
        let page = self.any_value(headers)?;
        let page = hex::decode(page.get(..PAGE_VALUE_BYTES_MAX).unwrap_or(page)).ok()?;
        String::from_utf8(page).ok()
    }

    /// Browsers store a `__Host-` cookie only over HTTPS. Without TLS, on this machine or in a home
    /// network, its name has no prefix, and any program on the same host can set it.
    fn new(name: &str, max_age_seconds: u32, console_url: &str) -> Self {
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
    pub(crate) fn value_or(&self, headers: &HeaderMap, new: SecretString) -> SecretString {
        self.value(headers).map_or(new, SecretString::from)
    }

    /// `SameSite=Lax`, because the provider's page sends the browser back here.
    pub(crate) fn header(&self, value: &str) -> Option<HeaderValue> {
        self.with_age(value, self.max_age_seconds)
    }

    /// Takes the cookie from the browser.
    pub(crate) fn removal(&self) -> Option<HeaderValue> {
        self.with_age("", 0)
    }

    fn with_age(&self, value: &str, max_age_seconds: u32) -> Option<HeaderValue> {
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
            Cookie::of_browser(url)
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
        let link = Cookie::of_link("https://b.example").header(&text).unwrap();
        assert!(link.is_sensitive());
        let flags = "Path=/; Max-Age=1800; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(
            link.to_str().unwrap(),
            format!("__Host-bellbird-link={text}; {flags}")
        );
    }

    #[test]
    fn page_comes_back_as_it_was() {
        let cookie = Cookie::of_page("http://127.0.0.1:8081");
        let asked = |page: &str| {
            let header = cookie.page_header(page)?;
            let (sent, _) = header.to_str().unwrap().split_once(';')?;
            let sent = [(COOKIE, HeaderValue::from_str(sent).unwrap())];
            cookie.page(&sent.into_iter().collect())
        };
        for page in ["/transactions?search=%22", "/settings", ""] {
            assert_eq!(asked(page).as_deref(), Some(page));
        }
        assert_eq!(asked(&"/x".repeat(500)), None);
    }

    #[test]
    fn only_a_single_value_of_ours_counts() {
        let cookie = Cookie::of_browser("https://b.example");
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
        assert_eq!(
            cookie.value_or(&sent, "new".into()).expose_secret(),
            "0".repeat(64)
        );
        assert_eq!(
            cookie
                .value_or(&HeaderMap::new(), "new".into())
                .expose_secret(),
            "new"
        );
    }
}
