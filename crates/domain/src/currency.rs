//! Currency codes.

use std::fmt;

/// An ISO 4217 code: three capital letters. Not checked against the list, which changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// ISO 4217's own code for "no currency known".
    pub const UNKNOWN: Self = Self(*b"XXX");

    /// Reads three ASCII letters of any case; anything else is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 3] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(u8::is_ascii_alphabetic).then(|| Self(bytes.map(|byte| byte.to_ascii_uppercase())))
    }

    /// The code in capital letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }

    /// Decimal places of the smallest unit, by ISO 4217's list of January 2024. Two for a code that is not on it, and for
    /// those that have none.
    #[must_use]
    pub fn minor_unit_digits(&self) -> u32 {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG" | b"RWF" | b"UGX"
            | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
            b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => 3,
            b"CLF" | b"UYW" => 4,
            _ => 2,
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl serde::Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_three_letters_and_nothing_else() {
        assert_eq!(Currency::parse("aud").map(|code| code.to_string()).as_deref(), Some("AUD"));
        for text in ["", "AU", "AUDD", "A1D", "A$D", "ÄUD", "ÄU"] {
            assert_eq!(Currency::parse(text), None, "{text}");
        }
    }

    /// ISO 4217's list, all codes whose smallest unit is not a hundredth.
    #[test]
    fn minor_units_as_iso_4217_lists_them() {
        let listed = |digits: u32, codes: &str| {
            for code in codes.split(' ') {
                assert_eq!(Currency::parse(code).expect("a code").minor_unit_digits(), digits, "{code}");
            }
        };
        listed(0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF");
        listed(3, "BHD IQD JOD KWD LYD OMR TND");
        listed(4, "CLF UYW");
        // Two, also where it is not a hundredth (MGA, MRU), for what was withdrawn, and for what has none.
        listed(
            2,
            "AUD NZD USD EUR GBP CHF CNY HKD SGD INR MXN MGA MRU HUF IDR TWD COP CRC LAK SLE VED ZWG XCG CHE COU USN",
        );
        listed(2, "HRK MRO XAU XDR XXX ZZZ BTC");
    }
}
