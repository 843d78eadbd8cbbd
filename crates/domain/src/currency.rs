//! ISO 4217 currency codes and the number of decimal places of each.

use std::fmt;

/// Three capital letters. Not checked against the ISO 4217 list, because that list changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// ISO 4217's own code for "no currency".
    pub const UNKNOWN: Self = Self(*b"XXX");

    /// Parses three ASCII letters of any case. Returns `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 3] = text.as_bytes().try_into().ok()?;
        bytes
            .iter()
            .all(u8::is_ascii_alphabetic)
            .then(|| Self(bytes.map(|byte| byte.to_ascii_uppercase())))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }

    /// Decimal places of the smallest unit, from the ISO 4217 list of January 2024. Codes outside
    /// that list, and codes without a smallest unit, have two.
    #[must_use]
    pub fn minor_unit_digits(&self) -> u32 {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG"
            | b"RWF" | b"UGX" | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
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
    fn accepts_exactly_three_letters() {
        assert_eq!(
            Currency::parse("aud")
                .map(|code| code.to_string())
                .as_deref(),
            Some("AUD")
        );
        for text in ["", "AU", "AUDD", "A1D", "A$D", "ÄUD", "ÄU"] {
            assert_eq!(Currency::parse(text), None, "{text}");
        }
    }

    /// Covers all codes on the ISO 4217 list whose smallest unit is not a hundredth.
    #[test]
    fn minor_units_match_iso_4217() {
        let listed = |digits: u32, codes: &str| {
            for code in codes.split(' ') {
                assert_eq!(
                    Currency::parse(code).expect("a code").minor_unit_digits(),
                    digits,
                    "{code}"
                );
            }
        };
        listed(
            0,
            "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
        );
        listed(3, "BHD IQD JOD KWD LYD OMR TND");
        listed(4, "CLF UYW");
        // Two places: MGA and MRU (whose unit is a fifth), withdrawn codes, and codes without a
        // smallest unit.
        listed(
            2,
            "AUD NZD USD EUR GBP CHF CNY HKD SGD INR MXN MGA MRU HUF IDR TWD COP CRC LAK SLE VED ZWG XCG CHE COU USN",
        );
        listed(2, "HRK MRO XAU XDR XXX ZZZ BTC");
    }
}
