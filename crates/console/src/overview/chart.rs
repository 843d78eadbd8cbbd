//! Lengths of bars. They are drawn from whole hundredths, and the exact amounts stand beside them.

use bellbird_domain::Decimal;

use crate::pages::Number;

/// The height of a chart, and the width of the longest bar of a list, in their own units.
const LENGTH: u32 = 200;
/// Characters of a label that fit beside a chart.
const LABEL_CHARS_MAX: usize = 9;
/// No amount counts as larger.
const SIZE_MAX: u128 = u128::MAX / 10_000;

/// An amount without its sign in hundredths. A larger one than fits counts as the largest.
pub(super) fn size_of_amount(amount: &Decimal<'_>) -> u128 {
    let text = amount.as_str().trim_start_matches('-');
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let hundredths: String = places.chars().chain("00".chars()).take(2).collect();
    format!("{whole}{hundredths}")
        .parse()
        .map_or(SIZE_MAX, |size: u128| size.min(SIZE_MAX))
}

/// At least 1 for what is not 0, so that a bar shows.
pub(super) fn scaled(size: u128, max: u128) -> u32 {
    if size == 0 || max == 0 {
        return 0;
    }
    u32::try_from(size * u128::from(LENGTH) / max)
        .unwrap_or(LENGTH)
        .clamp(1, LENGTH)
}

/// The size at the top of a chart: the next number that has one digit before its zeros.
pub(super) fn top_of(max: u128) -> u128 {
    let mut unit = 100;
    loop {
        for factor in 1..10 {
            if unit * factor >= max {
                return unit * factor;
            }
        }
        unit *= 10;
    }
}

/// The labels at the top and in the middle of a chart. None: they do not fit.
pub(super) fn labels_of(top: u128) -> Option<[String; 2]> {
    let label = |size: u128| {
        let text = format!("{}.{:02}", size / 100, size % 100);
        Number::quantity(&text).text
    };
    let labels = [label(top), label(top / 2)];
    labels
        .iter()
        .all(|label| label.len() <= LABEL_CHARS_MAX)
        .then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_length_of_their_amount() {
        let size = |text: &str| size_of_amount(&Decimal::parse(text).unwrap());
        assert_eq!(size("-12.3"), 1_230);
        assert_eq!(size("12.345"), 1_234);
        assert_eq!(size("7"), 700);
        let huge = size(&"9".repeat(60));
        assert_eq!(scaled(huge, huge), LENGTH);
        assert_eq!(scaled(size("50"), size("100")), LENGTH / 2);
        assert_eq!(scaled(size("0.01"), size("1000000")), 1);
        assert_eq!(scaled(0, 100), 0);
        assert_eq!(scaled(0, 0), 0);
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (max, top, labels) in [
            (0, 100, Some(["1", "0.5"])),
            (101, 200, Some(["2", "1"])),
            (2_366_337, 3_000_000, Some(["30,000", "15,000"])),
            (500_000, 500_000, Some(["5,000", "2,500"])),
            (4_348_304, 5_000_000, Some(["50,000", "25,000"])),
            (999_999_999, 1_000_000_000, None),
        ] {
            assert_eq!(top_of(max), top);
            let expected = labels.map(|labels| labels.map(str::to_owned));
            assert_eq!(labels_of(top), expected);
        }
        assert!(top_of(SIZE_MAX) >= SIZE_MAX);
    }
}
