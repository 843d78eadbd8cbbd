//! Pagination of lists: `limit` and `offset`, their defaults, maxima and parsing.

/// The default and maximum of a list's `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Used when the request has no `limit`.
    pub default: u32,
    /// Larger values are clamped to this.
    pub max: u32,
}

pub const ACCOUNTS: PageLimits = PageLimits {
    default: 50,
    max: 200,
};
pub const TRANSACTIONS: PageLimits = PageLimits {
    default: 200,
    max: 500,
};
pub const TRADES: PageLimits = PageLimits {
    default: 200,
    max: 500,
};

/// The window of a list that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Page {
    /// Maximum number of rows, at least 1.
    pub limit: u32,
    /// Rows to skip. May lie past the end of the list.
    pub offset: u64,
}

impl Page {
    /// Number of the first row after the window.
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.limit))
    }
}

/// Why a `limit` or an `offset` was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageError {
    /// `limit` is not a whole number of at least 1.
    Limit,
    /// `offset` is not a whole number.
    Offset,
}

/// Parses a `limit`: ASCII digits of any length, at least 1, clamped to the maximum.
pub fn parse_limit(text: &str, limits: PageLimits) -> Result<u32, PageError> {
    let number = parse_digits(text).ok_or(PageError::Limit)?;
    if number == 0 {
        return Err(PageError::Limit);
    }
    Ok(u32::try_from(number).unwrap_or(u32::MAX).min(limits.max))
}

/// Parses an `offset`: ASCII digits of any length, clamped to 2^53 - 1. Accepts `-0` as zero.
pub fn parse_offset(text: &str) -> Result<u64, PageError> {
    match text.strip_prefix('-') {
        Some(rest) if parse_digits(rest) == Some(0) => Ok(0),
        Some(_) => Err(PageError::Offset),
        None => parse_digits(text).ok_or(PageError::Offset),
    }
}

/// Maximum offset: the largest whole number that every JSON parser keeps exactly (2^53 - 1).
const OFFSET_MAX: u64 = (1 << 53) - 1;

fn parse_digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse::<u64>().unwrap_or(OFFSET_MAX).min(OFFSET_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_parsed_and_clamped() {
        for (text, expected) in [
            ("1", Ok(1)),
            ("0050", Ok(50)),
            ("200", Ok(200)),
            ("201", Ok(200)),
            ("99999999999999999999999999", Ok(200)),
            ("0", Err(PageError::Limit)),
            ("", Err(PageError::Limit)),
            ("-1", Err(PageError::Limit)),
            ("+1", Err(PageError::Limit)),
            ("1.0", Err(PageError::Limit)),
            (" 1", Err(PageError::Limit)),
            ("٣", Err(PageError::Limit)),
        ] {
            assert_eq!(parse_limit(text, ACCOUNTS), expected, "{text:?}");
        }
    }

    #[test]
    fn offset_is_parsed_and_clamped() {
        assert_eq!(parse_offset("0"), Ok(0));
        assert_eq!(parse_offset("-0"), Ok(0));
        assert_eq!(parse_offset("12000"), Ok(12_000));
        assert_eq!(parse_offset("99999999999999999999999999"), Ok(OFFSET_MAX));
        for text in ["-1", "", "-", "1e3", "+0", "0x10"] {
            assert_eq!(parse_offset(text), Err(PageError::Offset), "{text:?}");
        }
    }
}
