//! Small state between requests: cache, page map, rate limit.
