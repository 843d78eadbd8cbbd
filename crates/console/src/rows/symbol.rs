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
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (day, rest) = code.split_at_checked(6)?;
    let (year, month_and_day) = day.split_at_checked(2)?;
    let (month, of_month) = month_and_day.split_at_checked(2)?;
    let date = format!("20{year}-{month}-{of_month}").parse::<Date>();
    let date = date.ok().filter(|_| is_number(day))?;
    let kind = match rest.get(..1)? {
        "C" => "call",
        "P" => "put",
        _ => return None,
    };
    let (whole, thousandths) = rest.get(1..)?.split_at_checked(5)?;
    if underlying.is_empty() || !is_number(whole) || !is_number(thousandths) {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let strike = match thousandths.trim_end_matches('0') {
        "" => whole.to_owned(),
        places => format!("{whole}.{places}"),
    };
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
