//! Securities that can be held and traded. Companies and funds are invented; coins and exchanges
//! have their real names.

use jiff::civil;

pub(crate) struct Exchange {
    pub(crate) code: &'static str,
    /// The market identifier code.
    pub(crate) mic: &'static str,
    pub(crate) name: &'static str,
    pub(crate) timezone: &'static str,
    pub(crate) close: &'static str,
    pub(crate) suffix: Option<&'static str>,
}

pub(crate) struct Security {
    /// The `kind` of `positions/all` (docs/providers/snaptrade.md#positions).
    pub(crate) kind: &'static str,
    /// An internal name for contracts; [`Security::ticker`] gives the real symbol, which depends on
    /// the day.
    pub(crate) symbol: &'static str,
    pub(crate) raw_symbol: &'static str,
    pub(crate) name: &'static str,
    pub(crate) currency: &'static str,
    pub(crate) exchange: Option<&'static Exchange>,
    /// The approximate price in cents, around which trades are drawn.
    pub(crate) cents: u32,
    pub(crate) shape: Shape,
}

/// What a contract has besides its name.
pub(crate) enum Shape {
    Plain,
    Option(Terms, &'static Security),
    Future {
        root: &'static str,
        months: i32,
        /// The multiplier. Some brokers send neither the day nor the multiplier.
        known: Option<&'static str>,
    },
    FutureOption(Terms, &'static Security),
    /// A contract for difference, or a token that stands for a share.
    Mirror(&'static Security),
}

pub(crate) struct Terms {
    pub(crate) call: bool,
    pub(crate) strike: &'static str,
    /// The expiry month, counted from the start's; negative for past ones. Options expire on the
    /// third Friday.
    pub(crate) months: i32,
    pub(crate) multiplier: Option<&'static str>,
}

impl Terms {
    pub(crate) const fn side(&self) -> &'static str {
        if self.call { "CALL" } else { "PUT" }
    }

    pub(crate) fn expires(&self, today: civil::Date) -> civil::Date {
        third_friday(today, self.months)
    }
}

/// The third Friday of the month that is `months` away.
pub(crate) fn third_friday(today: civil::Date, months: i32) -> civil::Date {
    let month = today.saturating_add(jiff::Span::new().months(months));
    month
        .nth_weekday_of_month(3, civil::Weekday::Friday)
        .unwrap_or(month)
}

impl Security {
    /// The symbol that is served; a contract's contains its month.
    pub(crate) fn ticker(&self, today: civil::Date) -> String {
        match &self.shape {
            Shape::Plain | Shape::Mirror(_) => self.symbol.to_owned(),
            // The OCC format: six places for the root, the strike in thousandths.
            Shape::Option(terms, under) => {
                let day = terms.expires(today);
                let side = if terms.call { 'C' } else { 'P' };
                format!(
                    "{:<6}{}{side}{:0>5}000",
                    under.symbol,
                    day.strftime("%y%m%d"),
                    terms.strike
                )
            }
            Shape::Future { root, months, .. } => {
                format!("/{root}{}", expiration_code(today, *months))
            }
            Shape::FutureOption(terms, under) => {
                let side = if terms.call { 'C' } else { 'P' };
                format!("./{}{side}{}", &under.ticker(today)[1..], terms.strike)
            }
        }
    }
}

/// The month letter and the year, as exchanges write them.
pub(crate) fn expiration_code(today: civil::Date, months: i32) -> String {
    const LETTERS: &[u8; 12] = b"FGHJKMNQUVXZ";
    let day = third_friday(today, months);
    let letter = char::from(LETTERS[day.month() as usize - 1]);
    format!("{letter}{}", day.strftime("%y"))
}

const fn new_york(code: &'static str, mic: &'static str, name: &'static str) -> Exchange {
    Exchange {
        code,
        mic,
        name,
        timezone: "America/New_York",
        close: "16:00:00",
        suffix: None,
    }
}

static NASDAQ: Exchange = new_york("NASDAQ", "XNAS", "NASDAQ");
static NYSE: Exchange = new_york("NYSE", "XNYS", "New York Stock Exchange");
static ARCA: Exchange = new_york("ARCA", "ARCX", "NYSE ARCA");
static CME: Exchange = Exchange {
    close: "17:00:00",
    ..new_york("CME", "XCME", "Chicago Mercantile Exchange")
};
static TSX: Exchange = Exchange {
    suffix: Some(".TO"),
    ..new_york("TSX", "XTSE", "Toronto Stock Exchange")
};
static ASX: Exchange = Exchange {
    timezone: "Australia/Sydney",
    suffix: Some(".AX"),
    ..new_york("ASX", "XASX", "Australian Securities Exchange")
};

const fn security(
    kind: &'static str,
    symbol: &'static str,
    name: &'static str,
    exchange: Option<&'static Exchange>,
    cents: u32,
) -> Security {
    Security {
        kind,
        symbol,
        raw_symbol: symbol,
        name,
        currency: "USD",
        exchange,
        cents,
        shape: Shape::Plain,
    }
}

const fn option(
    symbol: &'static str,
    name: &'static str,
    terms: Terms,
    under: &'static Security,
) -> Security {
    Security {
        shape: Shape::Option(terms, under),
        ..security("option", symbol, name, None, 640)
    }
}

pub(crate) static EXRB: Security = security(
    "stock",
    "EXRB",
    "Example Robotics Inc.",
    Some(&NASDAQ),
    18_432,
);
pub(crate) static WREN: Security = security(
    "stock",
    "WREN",
    "Wren Example Semiconductor Inc.",
    Some(&NASDAQ),
    61_275,
);
pub(crate) static FABL: Security = security(
    "stock",
    "FABL",
    "Fable Example Foods Corp. - Class B",
    Some(&NYSE),
    3_914,
);
pub(crate) static OTTR: Security = security(
    "adr",
    "OTTX",
    "Otter Example plc - Sponsored ADR",
    Some(&NYSE),
    5_207,
);
pub(crate) static EXTM: Security = security(
    "etf",
    "EXTM",
    "Example Total Market ETF",
    Some(&ARCA),
    29_118,
);
pub(crate) static EXDV: Security = security(
    "etf",
    "EXDV",
    "Example Dividend Growth ETF",
    Some(&ARCA),
    10_844,
);
pub(crate) static EXIF: Security =
    security("cef", "EXIF", "Example Income Fund", Some(&NYSE), 1_163);
pub(crate) static EXIFX: Security = security(
    "mutualfund",
    "EXIFX",
    "Example 500 Index Fund Admiral",
    None,
    48_806,
);
pub(crate) static EXMXX: Security = security(
    "mutualfund",
    "EXMXX",
    "Example Treasury Money Market Fund",
    None,
    100,
);
pub(crate) static EXGB: Security = Security {
    currency: "AUD",
    ..security(
        "bond",
        "EXGB 4.25 2033",
        "Example Government Bond 4.25% 21/04/2033",
        None,
        9_812,
    )
};
pub(crate) static EXPP: Security = Security {
    currency: "AUD",
    ..security(
        "other",
        "EXPP",
        "Example Private Placement Units",
        None,
        100,
    )
};
pub(crate) static WTL: Security = Security {
    raw_symbol: "WTX",
    currency: "AUD",
    ..security(
        "stock",
        "WTX.AX",
        "Wattle Example Mining Ltd",
        Some(&ASX),
        2_231,
    )
};
pub(crate) static VXB: Security = Security {
    raw_symbol: "VXB",
    currency: "CAD",
    ..security(
        "etf",
        "VXB.TO",
        "EXAMPLE CDN AGGREGATE BOND INDEX ETF",
        Some(&TSX),
        2_381,
    )
};
pub(crate) static MPL: Security = Security {
    raw_symbol: "MPX",
    currency: "CAD",
    ..security(
        "stock",
        "MPX.TO",
        "Maple Example Rail Ltd.",
        Some(&TSX),
        15_860,
    )
};
pub(crate) static BTC: Security = security("crypto", "BTC", "Bitcoin", None, 9_184_310);
pub(crate) static ETH: Security = security("crypto", "ETH", "Ethereum", None, 312_266);
pub(crate) static SOL: Security = security("crypto", "SOL", "Solana", None, 16_407);
/// The coin that pays for crypto trades.
pub(crate) static USDC: Security = security("crypto", "USDC", "USD Coin", None, 100);
pub(crate) static EXRB_TOKEN: Security = Security {
    shape: Shape::Mirror(&EXRB),
    ..security(
        "tokenized_asset",
        "EXRBx",
        "Example Robotics tokenized share",
        None,
        18_430,
    )
};
pub(crate) static EXTM_CFD: Security = Security {
    shape: Shape::Mirror(&EXTM),
    ..security("cfd", "EXTM.CFD", "Example Total Market CFD", None, 29_118)
};
pub(crate) static EXRB_CALL: Security = option(
    "EXRB call",
    "EXRB call 200",
    Terms {
        call: true,
        strike: "200",
        months: 2,
        multiplier: Some("100"),
    },
    &EXRB,
);
pub(crate) static EXTM_PUT: Security = option(
    "EXTM put",
    "EXTM put 280",
    Terms {
        call: false,
        strike: "280",
        months: 4,
        multiplier: Some("100"),
    },
    &EXTM,
);
/// Expired, so it occurs in trades only.
pub(crate) static WREN_PUT: Security = option(
    "WREN put",
    "WREN put 550",
    Terms {
        call: false,
        strike: "550",
        months: -2,
        multiplier: Some("100"),
    },
    &WREN,
);
pub(crate) static EXS: Security = Security {
    shape: Shape::Future {
        root: "EXS",
        months: 3,
        known: Some("50"),
    },
    ..security(
        "future",
        "EXS future",
        "Example 500 future",
        Some(&CME),
        612_450,
    )
};
pub(crate) static EXG: Security = Security {
    shape: Shape::Future {
        root: "EXG",
        months: 5,
        known: None,
    },
    ..security(
        "future",
        "EXG future",
        "Example Grain future",
        Some(&CME),
        45_125,
    )
};
pub(crate) static EXS_CALL: Security = Security {
    shape: Shape::FutureOption(
        Terms {
            call: true,
            strike: "6300",
            months: 3,
            multiplier: Some("50"),
        },
        &EXS,
    ),
    ..security(
        "future_option",
        "EXS future call",
        "Example 500 future call 6300",
        Some(&CME),
        8_850,
    )
};

/// Every security of the world.
pub(crate) static SECURITIES: &[&Security] = &[
    &EXRB,
    &WREN,
    &FABL,
    &OTTR,
    &EXTM,
    &EXDV,
    &EXIF,
    &EXIFX,
    &EXMXX,
    &EXGB,
    &EXPP,
    &WTL,
    &VXB,
    &MPL,
    &BTC,
    &ETH,
    &SOL,
    &USDC,
    &EXRB_TOKEN,
    &EXTM_CFD,
    &EXRB_CALL,
    &EXTM_PUT,
    &WREN_PUT,
    &EXS,
    &EXG,
    &EXS_CALL,
];
