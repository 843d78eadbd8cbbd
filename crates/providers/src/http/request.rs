//! A request to a provider, as adapters build it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Method;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Builder;
use serde::Serialize;
use url::Url;

use crate::Error;

#[must_use]
pub fn with_path(url: &Url, segments: &[&str]) -> Url {
    let mut url = url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

#[must_use]
pub fn with_query(url: &Url, parameters: &[(&str, &str)]) -> Url {
    let mut url = url.clone();
    url.query_pairs_mut().extend_pairs(parameters);
    url
}

/// The call of a request that cannot be built fails, for example because a header has a line break.
pub struct RequestBuilder {
    head: Builder,
    /// `None` if a part of the request is not valid.
    body: Option<Bytes>,
    /// Whether a failed attempt is final.
    pub(super) is_once: bool,
}

impl RequestBuilder {
    #[must_use]
    pub fn new(method: Method, url: &Url) -> Self {
        let head = Builder::new()
            .method(method)
            .uri(url.as_str())
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Self {
            head,
            body: Some(Bytes::new()),
            is_once: false,
        }
    }

    #[must_use]
    pub fn get(url: &Url) -> Self {
        Self::new(Method::GET, url)
    }

    #[must_use]
    pub fn post(url: &Url, body: &impl Serialize) -> Self {
        Self::new(Method::POST, url).json(body)
    }

    #[must_use]
    pub fn delete(url: &Url) -> Self {
        Self::new(Method::DELETE, url)
    }

    #[must_use]
    pub fn json(self, body: &impl Serialize) -> Self {
        Self {
            body: serde_json::to_vec(body).ok().map(Bytes::from),
            ..self.header(CONTENT_TYPE.as_str(), "application/json")
        }
    }

    /// [`super::Client::call`] never repeats it, because the provider may have executed the call
    /// even if its response got lost.
    #[must_use]
    pub fn once(self) -> Self {
        Self {
            is_once: true,
            ..self
        }
    }

    #[must_use]
    pub fn header<V>(self, name: &'static str, value: V) -> Self
    where
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<hyper::http::Error>,
    {
        Self {
            head: self.head.header(name, value),
            ..self
        }
    }

    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.authorization(format!("Bearer {token}"))
    }

    #[must_use]
    pub fn basic(self, user: &str, password: &str) -> Self {
        self.authorization(format!(
            "Basic {}",
            STANDARD.encode(format!("{user}:{password}"))
        ))
    }

    fn authorization(self, text: String) -> Self {
        match HeaderValue::try_from(text) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.header(AUTHORIZATION.as_str(), value)
            }
            Err(_) => Self { body: None, ..self },
        }
    }

    pub(crate) fn build(self) -> Result<hyper::Request<Full<Bytes>>, Error> {
        let request = self
            .body
            .and_then(|body| self.head.body(Full::new(body)).ok());
        request.ok_or(Error::Malformed("the request could not be built"))
    }
}
