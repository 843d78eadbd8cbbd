//! Detects requests that a browser sends in advance, before the user opens the page.

use http::HeaderMap;

use crate::error_page::Failure;

/// Checks `Sec-Purpose` (<https://fetch.spec.whatwg.org/#sec-purpose-header>) and the older headers
/// `Purpose` and `X-Moz`.
pub(crate) fn reject_prefetch(headers: &HeaderMap) -> Result<(), Failure> {
    let purposes = ["sec-purpose", "purpose", "x-moz"]
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok());
    let mut purposes = purposes.flat_map(|purpose| purpose.split([';', ',']));
    match purposes.any(|purpose| purpose.trim().starts_with("prefetch")) {
        true => Err(Failure::Prefetch),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_requests_are_recognised() {
        let headers = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
        };
        assert!(reject_prefetch(&headers("sec-purpose", "prefetch;prerender")).is_err());
        assert!(reject_prefetch(&headers("purpose", "prefetch")).is_err());
        assert!(reject_prefetch(&headers("sec-purpose", "something-else")).is_ok());
        assert!(reject_prefetch(&HeaderMap::new()).is_ok());
    }
}
