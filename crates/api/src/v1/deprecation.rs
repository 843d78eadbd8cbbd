//! Headers that declare a deprecation: requests for transactions without `accountId`.

use http::header::HeaderName;

pub(crate) const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
pub(crate) const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// From this date on, `accountId` is required.
pub(crate) const SUNSET_DATE: &str = "Wed, 01 Sep 2027 00:00:00 GMT";
