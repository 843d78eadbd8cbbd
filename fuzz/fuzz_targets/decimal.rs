//! Parses decimals. It checks that digits and sign stay unchanged, and that the plain form parses
//! to itself.

#![no_main]

use bellbird_domain::decimal::ZEROS_MAX;
use bellbird_domain::{Currency, Decimal, MinorUnits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(decimal) = Decimal::parse(text) else {
        assert!(!is_plain(text), "a plain decimal was rejected");
        return;
    };
    let shown = decimal.as_str();
    assert!(is_plain(shown), "not in plain notation");
    assert!(
        shown.len() <= text.len() + ZEROS_MAX,
        "longer than the limit"
    );
    let nonzero = shown.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    assert!(nonzero || !decimal.is_negative(), "a negative zero");
    assert_eq!(
        Decimal::parse(shown).as_ref().map(Decimal::as_str),
        Ok(shown),
        "the plain form is not canonical"
    );
    if is_plain(text) {
        let zero_without_sign = text.strip_prefix('-').filter(|_| !nonzero);
        assert_eq!(
            shown,
            zero_without_sign.unwrap_or(text),
            "digits were changed"
        );
    }
    // An exponent moves the decimal point and adds zeros. The digits between leading and trailing
    // zeros stay.
    let mantissa = text.split(['e', 'E']).next().unwrap_or("");
    assert_eq!(
        significant(shown),
        significant(mantissa),
        "digits were changed"
    );
    assert_eq!(
        decimal.is_negative(),
        text.starts_with('-') && nonzero,
        "the sign was changed"
    );
    assert_eq!(format!("{decimal:?}"), "Decimal(..)");
    // Yen has no decimal places, so rounding gives the whole part or the next number.
    let yen = MinorUnits::of(&decimal, Currency::parse("JPY").expect("a currency"));
    let yen = yen.as_str();
    assert!(!yen.contains('.') && is_plain(yen), "not a whole number");
    let whole = shown
        .split('.')
        .next()
        .unwrap_or("")
        .trim_start_matches('-')
        .trim_start_matches('0');
    let units = yen.trim_start_matches('-').trim_start_matches('0');
    assert!(
        units.len() == whole.len() || units.len() == whole.len() + 1,
        "wrong magnitude"
    );
});

/// Matches `-?[0-9]+(\.[0-9]+)?`. A zero may have a sign.
fn is_plain(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    unsigned
        .split_once('.')
        .map_or(digits(unsigned), |(whole, fraction)| {
            digits(whole) && digits(fraction)
        })
}

fn significant(text: &str) -> String {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}
