//! Detects requests that a browser sends in advance, before the user opens the page.

use http::HeaderMap;

use crate::error_page::Failure;

pub(crate) fn reject_prefetch(headers: &HeaderMap) -> Result<(), Failure> {
    match is_prefetch(headers) {
        true => Err(Failure::Prefetch),
        false => Ok(()),
    }
}

/// Checks `Sec-Purpose` (<https://fetch.spec.whatwg.org/#sec-purpose-header>) and the older headers
/// `Purpose` and `X-Moz`.
fn is_prefetch(headers: &HeaderMap) -> bool {
    let purposes = ["sec-purpose", "purpose", "x-moz"]
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok());
    purposes
        .flat_map(|purpose| purpose.split([';', ',']))
        .any(|purpose| purpose.trim().starts_with("prefetch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_requests_are_recognised() {
        let headers = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
        };
        assert!(is_prefetch(&headers("sec-purpose", "prefetch;prerender")));
        assert!(is_prefetch(&headers("purpose", "prefetch")));
        assert!(!is_prefetch(&headers("sec-purpose", "something-else")));
        assert!(!is_prefetch(&HeaderMap::new()));
    }
}
