//! Symbols of securities as people read them.

use jiff::civil::Date;

use crate::pages::names::sanitized;
use crate::pages::shown_day;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) text: String,
    /// The symbol as the broker writes it, if the text is another.
    pub(crate) raw: Option<String>,
}

impl Symbol {
    pub(crate) fn new(symbol: &str) -> Self {
        let raw = sanitized(symbol);
        match option_name(&raw) {
            Some(text) => Self {
                text,
                raw: Some(raw),
            },
            None => Self {
                text: raw,
                raw: None,
            },
        }
    }
}

/// Reads a symbol of the Options Clearing Corporation: the underlying, then `YYMMDD`, `C` or `P`,
/// and the strike price in thousandths as eight digits. `EXRB  270115C00200000` is
/// `EXRB 15 Jan 2027 call 200`.
fn option_name(symbol: &str) -> Option<String> {
    const CODE_CHARS: usize = 15;
    let at = symbol.len().checked_sub(CODE_CHARS)?;
    let (underlying, code) = symbol.split_at_checked(at)?;
    let underlying = underlying.trim();
    let (day, rest) = code.split_at_checked(6)?;
    let (kind, strike) = rest.split_at_checked(1)?;
    let kind = match kind {
        "C" => "call",
        "P" => "put",
        _ => return None,
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if underlying.is_empty() || !is_number(day) || !is_number(strike) {
        return None;
    }
    // Not `%y`, for which 69 and later are years of the last century.
    let date = Date::strptime("%Y%m%d", format!("20{day}")).ok()?;
    let thousandths: u32 = strike.parse().ok()?;
    let strike = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    let strike = strike.trim_end_matches('0').trim_end_matches('.');
    Some(format!("{underlying} {} {kind} {strike}", shown_day(date)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_readable() {
        for (symbol, text) in [
            ("EXRB  270115C00200000", "EXRB 15 Jan 2027 call 200"),
            ("EXTM  270319P00012500", "EXTM 19 Mar 2027 put 12.5"),
            ("A 270101C00000500", "A 1 Jan 2027 call 0.5"),
            ("A 700101C00000500", "A 1 Jan 2070 call 0.5"),
        ] {
            let symbol_of = Symbol::new(symbol);
            assert_eq!(symbol_of.text, text);
            assert_eq!(symbol_of.raw.as_deref(), Some(symbol));
        }
        for symbol in [
            "EXRB",
            "",
            "270115C00200000",
            "EXRB  271315C00200000",
            "EXRB  270115X00200000",
            "EXRB  27+115C00200000",
            "EXRB  270115C0020000é",
            "./EXSG27C6300",
            "EXGB 4.25 2033",
            "ééééééééééé",
        ] {
            let unchanged = Symbol {
                text: symbol.to_owned(),
                raw: None,
            };
            assert_eq!(Symbol::new(symbol), unchanged);
        }
    }
}
