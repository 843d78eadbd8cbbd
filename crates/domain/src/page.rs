//! Pages of a list: what was asked for, what is said about it.

/// The bounds of a list's `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// When none is given.
    pub default: u32,
    /// Larger values are clamped to it.
    pub max: u32,
}

/// Accounts: 50 by default, 200 at most.
pub const ACCOUNTS: PageLimits = PageLimits { default: 50, max: 200 };
/// Transactions: 200 by default, 500 at most.
pub const TRANSACTIONS: PageLimits = PageLimits { default: 200, max: 500 };
/// Of `/v1/trades`.
pub const TRADES: PageLimits = PageLimits { default: 200, max: 500 };

/// A window of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Page {
    /// Rows at most, at least 1.
    pub limit: u32,
    /// Rows to skip. May lie past any end.
    pub offset: u64,
}

impl Page {
    /// The first row behind the window.
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.limit))
    }
}

/// Why a `limit` or an `offset` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageError {
    /// `limit` is not a whole number of at least 1.
    Limit,
    /// `offset` is not a whole number.
    Offset,
}

/// Reads a `limit`: ASCII digits of any length, clamped to the maximum.
///
/// # Errors
/// [`PageError::Limit`] when it is anything else, or zero.
pub fn parse_limit(text: &str, limits: PageLimits) -> Result<u32, PageError> {
    let number = parse_digits(text).ok_or(PageError::Limit)?;
    if number == 0 {
        return Err(PageError::Limit);
    }
    Ok(u32::try_from(number).unwrap_or(u32::MAX).min(limits.max))
}

/// Reads an `offset`: ASCII digits of any length; what does not fit lies past every end. `-0` is zero.
///
/// # Errors
/// [`PageError::Offset`] when it is anything else.
pub fn parse_offset(text: &str) -> Result<u64, PageError> {
    match text.strip_prefix('-') {
        Some(rest) if parse_digits(rest) == Some(0) => Ok(0),
        Some(_) => Err(PageError::Offset),
        None => parse_digits(text).ok_or(PageError::Offset),
    }
}

/// The largest offset that is told apart: the largest whole number that every JSON reader keeps exactly (2^53 - 1).
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
    fn limits() {
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
    fn offsets() {
        assert_eq!(parse_offset("0"), Ok(0));
        assert_eq!(parse_offset("-0"), Ok(0));
        assert_eq!(parse_offset("12000"), Ok(12_000));
        assert_eq!(parse_offset("99999999999999999999999999"), Ok(OFFSET_MAX));
        for text in ["-1", "", "-", "1e3", "+0", "0x10"] {
            assert_eq!(parse_offset(text), Err(PageError::Offset), "{text:?}");
        }
    }
}
