//! Checks the URL to which a browser returns from a link session. The redirect to it carries the
//! app's state, so it leads to an origin that the operator has allowed, or nowhere.

use bellbird_providers::linking::Url;
use bellbird_providers::settings::has_safe_scheme;
use uuid::Uuid;

const URL_BYTES_MAX: usize = 1_000;
/// What a return adds to the query.
const SESSION_PARAM: &str = "session";
const STATE_PARAM: &str = "state";

/// A web origin, as browsers write it: `https://app.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnOrigin(String);

impl ReturnOrigin {
    /// None unless the text is an origin as browsers write it, and http only for this machine.
    pub fn parse(text: &str) -> Option<Self> {
        let url: Url = text.parse().ok()?;
        // `*` would be a host, and no pattern.
        let is_origin = has_safe_scheme(&url)
            && url.origin().ascii_serialization() == text
            && !text.contains('*');
        is_origin.then(|| Self(text.to_owned()))
    }
}

/// Why a URL is not accepted. Each text completes "the return URL".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReturnUrlError {
    #[error("is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("has a character that must be percent-encoded, or a host that must be in Punycode")]
    Characters,
    #[error("is not an absolute URL")]
    NotAbsolute,
    #[error("must begin with https://, or with http:// on this machine")]
    Scheme,
    #[error("has a user name")]
    UserName,
    #[error("has a fragment")]
    Fragment,
    #[error(
        "is not written as browsers write it: no default port, no upper case in the host, no `..`"
    )]
    NotNormal,
    #[error("has `//` in its path, or an encoded dot, slash or control character")]
    Path,
    #[error("has `{SESSION_PARAM}` or `{STATE_PARAM}` in its query, which the return adds")]
    Query,
    #[error(
        "is not of an origin in admin.return_origins: add its origin there, and restart the service"
    )]
    Origin,
}

/// A URL that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnUrl(Url);

/// Where a browser returns from a link session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppReturn {
    pub url: String,
    /// The host and port of the app, for people.
    pub host: String,
}

impl ReturnUrl {
    /// Accepts a URL of an allowed origin. It must be as browsers write it, so that no other parser
    /// reads another host or path from it.
    pub fn check(text: &str, origins: &[ReturnOrigin]) -> Result<Self, ReturnUrlError> {
        use ReturnUrlError::{
            Characters, Fragment, NotAbsolute, NotNormal, Origin, Path, Query, Scheme, TooLong,
            UserName,
        };
        let require = |holds: bool, error| if holds { Ok(()) } else { Err(error) };
        require(text.len() <= URL_BYTES_MAX, TooLong)?;
        require(
            text.bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\'),
            Characters,
        )?;
        let url: Url = text.parse().map_err(|_| NotAbsolute)?;
        require(has_safe_scheme(&url), Scheme)?;
        require(
            url.username().is_empty() && url.password().is_none(),
            UserName,
        )?;
        require(url.fragment().is_none(), Fragment)?;
        // Browsers add the slash behind a host.
        require(
            url.as_str() == text || url.as_str().strip_suffix('/') == Some(text),
            NotNormal,
        )?;
        require(!has_trick(url.path()), Path)?;
        require(
            !url.query_pairs()
                .any(|(name, _)| name == SESSION_PARAM || name == STATE_PARAM),
            Query,
        )?;
        let origin = url.origin().ascii_serialization();
        require(origins.iter().any(|allowed| allowed.0 == origin), Origin)?;
        Ok(Self(url))
    }

    /// The return from a link session, with its id and the app's state.
    pub(crate) fn of_session(mut self, session: Uuid, state: Option<&str>) -> AppReturn {
        let mut pairs = self.0.query_pairs_mut();
        pairs.append_pair(SESSION_PARAM, &session.to_string());
        if let Some(state) = state {
            pairs.append_pair(STATE_PARAM, state);
        }
        drop(pairs);
        AppReturn {
            host: self.0.authority().to_owned(),
            url: self.0.into(),
        }
    }
}

/// Whether a server behind the origin may read another path: one of another host, or outside of a
/// folder.
fn has_trick(path: &str) -> bool {
    let mut encoded = path.split('%').skip(1).map(|rest| {
        rest.get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
    });
    let is_trick = |byte: Option<u8>| {
        byte.is_none_or(|byte| matches!(byte, 0..0x20 | 0x7f | b'.' | b'/' | b'\\'))
    };
    path.contains("//") || encoded.any(is_trick)
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use proptest::prelude::*;

    use super::*;

    const ALLOWED: [&str; 5] = [
        "https://app.example.com",
        "https://app.example.com:8443",
        "https://xn--bcher-kva.example",
        "http://localhost:3000",
        "http://[::1]:3000",
    ];

    fn origins() -> Vec<ReturnOrigin> {
        ALLOWED
            .iter()
            .map(|origin| ReturnOrigin::parse(origin).expect(origin))
            .collect()
    }

    fn check(text: &str) -> Result<ReturnUrl, ReturnUrlError> {
        ReturnUrl::check(text, &origins())
    }

    #[test]
    fn origins_are_exact() {
        for wrong in [
            "app.example.com",
            "https://app.example.com/",
            "https://app.example.com/path",
            "https://App.example.com",
            "https://app.example.com:443",
            "https://user@app.example.com",
            "https://b\u{fc}cher.example",
            "https://*.example.com",
            "http://app.example.com",
            "http://192.168.0.1",
            "null",
            "data:text/html,x",
            "",
        ] {
            assert_eq!(ReturnOrigin::parse(wrong), None, "{wrong}");
        }
        for right in [
            "https://192.0.2.1",
            "http://127.0.0.1:8000",
            "http://localhost",
        ] {
            assert!(ReturnOrigin::parse(right).is_some(), "{right}");
        }
        let checked = ReturnUrl::check("https://app.example.com/", &[]);
        assert_eq!(checked, Err(ReturnUrlError::Origin), "none by default");
    }

    #[test]
    fn urls_of_allowed_origins_are_accepted() {
        for origin in ALLOWED {
            for rest in [
                "",
                "/",
                "/back",
                "/a/b.html",
                "/back?x=1&y=%20a",
                "/?next=https://evil.example",
                "/%20%C3%A4",
            ] {
                let url = format!("{origin}{rest}");
                assert!(check(&url).is_ok(), "{url}: {:?}", check(&url));
            }
        }
    }

    #[test]
    fn all_other_urls_are_rejected() {
        let of_length = |length: usize| format!("{:a<length$}", "https://app.example.com/");
        assert!(check(&of_length(URL_BYTES_MAX)).is_ok());
        let too_long = of_length(URL_BYTES_MAX + 1);
        let rejected: [(ReturnUrlError, &[&str]); 10] = [
            (ReturnUrlError::TooLong, &[too_long.as_str()]),
            (
                ReturnUrlError::Origin,
                &[
                    "https://evil.example/",
                    "https://app.example.com.evil.example/",
                    "https://evilapp.example.com/",
                    "https://example.com/",
                    "https://app.example.com:444/",
                    "https://app.example.com./",
                    "http://localhost/",
                    "https://localhost:3000/",
                    "http://127.0.0.1:3000/",
                    // Cyrillic letters that look like `apple`.
                    "https://xn--80ak6aa92e.com/",
                ],
            ),
            (
                // Other schemes and opaque origins.
                ReturnUrlError::Scheme,
                &[
                    "http://app.example.com/",
                    "ftp://app.example.com/",
                    "javascript:alert(1)",
                    "data:text/html,https://app.example.com/",
                    "blob:https://app.example.com/0",
                    "file:///etc/passwd",
                    "view-source:https://app.example.com/",
                    "app.example.com:8443/",
                    "bellbird://app.example.com/",
                ],
            ),
            (
                ReturnUrlError::NotAbsolute,
                &[
                    "",
                    "/back",
                    "//app.example.com/",
                    "//evil.example",
                    "app.example.com",
                    "https://",
                    "https://[::1",
                ],
            ),
            (
                ReturnUrlError::UserName,
                &[
                    "https://user@app.example.com/",
                    "https://user:word@app.example.com/",
                    "https://:word@app.example.com/",
                    "https://app.example.com@evil.example/",
                ],
            ),
            (
                ReturnUrlError::Fragment,
                &["https://app.example.com/#", "https://app.example.com/?x#y"],
            ),
            (
                ReturnUrlError::Characters,
                &[
                    // Hosts that look alike.
                    "https://b\u{fc}cher.example/",
                    "https://\u{430}pp.example.com/",
                    "https://\u{ff41}pp.example.com/",
                    "https://app\u{3002}example.com/",
                    "https://app.example.com\u{2044}evil.example/",
                    "https://app.exam\u{ad}ple.com/",
                    // Backslashes and control characters.
                    "https:\\\\app.example.com\\",
                    "https://evil.example\\@app.example.com/",
                    "https://app.example.com/\\evil.example",
                    "https://app.example.com\t/",
                    "https://app.exam\nple.com/",
                    "https://app.example.com/\r\nSet-Cookie:x",
                    "https://app.example.com/\0",
                    "https://app.example.com/\u{7f}",
                    " https://app.example.com/",
                    "https://app.example.com/ ",
                ],
            ),
            (
                ReturnUrlError::NotNormal,
                &[
                    "https://@app.example.com/",
                    "https://:@app.example.com/",
                    "HTTPS://app.example.com/",
                    "https://APP.example.com/",
                    "https://app.example.com:443/",
                    "https://app.example.com?x=1",
                    "https:app.example.com/",
                    "https:///app.example.com/",
                    "https://%61pp.example.com/",
                    "http://[0:0::1]:3000/",
                    "http://0x7f.1:3000/",
                    "https://app.example.com/<x>",
                    "https://app.example.com/..//evil.example",
                    "https://app.example.com/../x",
                    "https://app.example.com/a/./b",
                    "https://app.example.com/%2e%2e/",
                    "https://app.example.com/a/.%2E",
                ],
            ),
            (
                ReturnUrlError::Path,
                &[
                    "https://app.example.com//evil.example",
                    "https://app.example.com/a//b",
                    "https://app.example.com/%2f%2Fevil.example",
                    "https://app.example.com/%5Cevil.example",
                    "https://app.example.com/a%2e",
                    "https://app.example.com/%0d%0aSet-Cookie:x",
                    "https://app.example.com/%00",
                    "https://app.example.com/%7F",
                    "https://app.example.com/%",
                    "https://app.example.com/%zz",
                ],
            ),
            (
                ReturnUrlError::Query,
                &[
                    "https://app.example.com/?session=1",
                    "https://app.example.com/?a=b&st%61te=1",
                ],
            ),
        ];
        for (error, urls) in rejected {
            for url in urls {
                assert_eq!(check(url), Err(error), "{url:?}");
            }
        }
    }

    #[test]
    fn return_has_session_and_state() {
        let session = Uuid::nil();
        let returned = |url: &str, state| check(url).expect(url).of_session(session, state);
        let plain = returned("https://app.example.com:8443", None);
        assert_eq!(
            plain.url,
            format!("https://app.example.com:8443/?session={session}")
        );
        assert_eq!(plain.host, "app.example.com:8443");
        let state = "a&session=b#c \u{fc}\"<";
        for (url, before) in [
            ("https://app.example.com/x", "?"),
            ("https://app.example.com/x?y=1", "?y=1&"),
        ] {
            let returned: Url = returned(url, Some(state)).url.parse().expect("a URL");
            let base = "https://app.example.com/x";
            assert!(
                returned
                    .as_str()
                    .starts_with(&format!("{base}{before}session={session}&state=")),
                "{returned}"
            );
            let states = returned.query_pairs().filter(|(name, _)| name == "state");
            assert_eq!(
                states
                    .map(|(_, value)| value.into_owned())
                    .collect::<Vec<_>>(),
                [state]
            );
            assert!(returned.fragment().is_none() && returned.as_str().is_ascii());
        }
    }

    /// Parts of URLs, also harmful ones, in any order.
    fn hostile_url() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(ALLOWED.to_vec()).prop_map(str::to_owned),
            prop::sample::select(vec![
                "https://",
                "http://",
                "//",
                "/",
                "\\",
                "@",
                ":",
                "?",
                "#",
                "%",
                "..",
                ".",
                ";",
                "app.example.com",
                "evil.example",
                "localhost",
                "[::1]",
                ":3000",
                ":443",
                "%2e",
                "%2f",
                "%5c",
                "%00",
                "&",
                "=",
                "\t",
                "\n",
                " ",
                "\u{ff41}",
                "\u{3002}",
                "xn--",
                "javascript:",
                "data:",
                "user:word@",
                "|",
                "^",
                "[",
                "]",
                "{",
                "\"",
                "<",
                "'",
            ])
            .prop_map(str::to_owned),
            "[ -~]{0,4}",
            "\\PC{0,3}",
        ];
        let start = prop_oneof![
            3 => prop::sample::select(ALLOWED.to_vec()).prop_map(str::to_owned),
            1 => prop::sample::select(vec!["", "https://", "http://", "//"]).prop_map(str::to_owned),
        ];
        (start, prop::collection::vec(part, 0..6))
            .prop_map(|(start, parts)| start + &parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Two parsers read an allowed origin from what is accepted, and from the redirect.
        #[test]
        fn accepted_urls_are_of_allowed_origins(text in hostile_url(), state in "\\PC{0,20}") {
            let Ok(url) = check(&text) else { return Ok(()) };
            let returned = url.of_session(Uuid::nil(), Some(&state));
            for text in [text, returned.url] {
                let url: Url = text.parse().expect("a URL");
                prop_assert!(ALLOWED.contains(&url.origin().ascii_serialization().as_str()), "{}", text);
                let uri: Uri = text.parse().map_err(|error| {
                    TestCaseError::fail(format!("{text}: {error}"))
                })?;
                let origin = format!("{}://{}", uri.scheme_str().unwrap_or_default(), uri.authority().expect("a host"));
                prop_assert!(ALLOWED.contains(&origin.as_str()), "{}", text);
                prop_assert_eq!(uri.path(), url.path());
            }
        }
    }
}
