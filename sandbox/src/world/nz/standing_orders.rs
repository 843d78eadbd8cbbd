//! Rows on fixed days in New Zealand: pay, rent, interest and repayments. Every payer and payee is
//! invented.

use super::template::{Template, bill, fields, from_account, incoming, plain};

/// The interval in days, and the row.
pub(crate) type StandingOrders = &'static [(u32, Template)];

/// An everyday account.
pub(crate) static HOUSEHOLD: StandingOrders = &[
    (
        14,
        Template {
            meta: from_account("SALARY", "FERN DESIGN", "02-0192-0044556-00"),
            ..incoming(
                "DIRECT CREDIT",
                "FERN DESIGN LTD SALARY",
                (284_615, 284_615),
            )
        },
    ),
    (
        7,
        Template {
            kind: "STANDING ORDER",
            meta: fields("RENT", "", "12 KŌWHAI ST"),
            ..bill(
                "HARBOUR RENTALS",
                "Harbour Rentals",
                "Rent for permanent accommodation",
                (61_000, 61_000),
            )
        },
    ),
    (
        30,
        bill(
            "SUNFIELD POWER",
            "Sunfield Power",
            "Electricity services",
            (9000, 32_000),
        ),
    ),
    (
        30,
        bill(
            "FIBREFAST BROADBAND",
            "Fibrefast",
            "Internet services",
            (8900, 8900),
        ),
    ),
    (
        30,
        bill(
            "GUMBOOT MOBILE",
            "Gumboot Mobile",
            "Telecommunication services",
            (4500, 4500),
        ),
    ),
    (
        30,
        bill(
            "TŌTARA INSURANCE",
            "Tōtara Insurance",
            "Insurance",
            (7420, 7420),
        ),
    ),
    (
        14,
        Template {
            meta: fields("HOME LOAN", "", "REPAYMENT"),
            ..plain("LOAN", "LOAN REPAYMENT", (121_450, 121_450))
        },
    ),
    (
        30,
        plain("TRANSFER", "TRANSFER TO RAINY DAY SAVER", (30_000, 50_000)),
    ),
    (
        60,
        incoming(
            "TRANSFER",
            "TRANSFER FROM RAINY DAY SAVER",
            (20_000, 90_000),
        ),
    ),
    (
        30,
        plain("PAYMENT", "CARD PAYMENT LOW RATE VISA", (80_000, 240_000)),
    ),
    (30, plain("FEE", "MONTHLY ACCOUNT FEE", (500, 500))),
    (30, incoming("INTEREST", "CREDIT INTEREST", (12, 340))),
    (90, plain("INTEREST", "OVERDRAFT INTEREST", (35, 980))),
    (30, plain("TAX", "WITHHOLDING TAX", (4, 110))),
    (360, incoming("TAX", "TAX REFUND", (18_000, 64_000))),
    (180, incoming("FEE", "FEE REVERSAL", (500, 500))),
    (
        60,
        bill(
            "DEBTWISE INSTALMENT",
            "Debtwise",
            "Debt repayments",
            (12_000, 12_000),
        ),
    ),
    (180, incoming("LOAN", "LOAN ADVANCE", (50_000, 200_000))),
];

/// A savings account.
pub(crate) static SAVING: StandingOrders = &[
    (
        30,
        incoming("TRANSFER", "TRANSFER FROM EVERYDAY", (30_000, 50_000)),
    ),
    (
        60,
        plain("TRANSFER", "TRANSFER TO EVERYDAY", (20_000, 90_000)),
    ),
    (30, incoming("INTEREST", "CREDIT INTEREST", (1200, 9800))),
    (30, plain("TAX", "WITHHOLDING TAX", (390, 3200))),
];

/// The rows that a credit card's bank adds to purchases.
pub(crate) static CARD: StandingOrders = &[
    (
        30,
        incoming(
            "CREDIT CARD",
            "PAYMENT RECEIVED THANK YOU",
            (80_000, 240_000),
        ),
    ),
    (90, plain("INTEREST", "INTEREST ON PURCHASES", (310, 4800))),
    (360, plain("FEE", "CARD FEE", (4000, 4000))),
];

pub(crate) static LOAN: StandingOrders = &[
    (14, incoming("LOAN", "LOAN REPAYMENT", (121_450, 121_450))),
    (30, plain("INTEREST", "LOAN INTEREST", (158_000, 166_000))),
    (
        180,
        incoming("PAYMENT", "LUMP SUM REPAYMENT", (100_000, 500_000)),
    ),
];

pub(crate) static DEPOSIT: StandingOrders = &[
    (
        90,
        incoming("INTEREST", "TERM DEPOSIT INTEREST", (41_000, 48_000)),
    ),
    (90, plain("TAX", "WITHHOLDING TAX", (13_500, 15_800))),
];

/// An account in another currency.
pub(crate) static FOREIGN: StandingOrders = &[
    (
        45,
        incoming(
            "DIRECT CREDIT",
            "INWARD PAYMENT CLOUD ROYALTIES",
            (20_000, 150_000),
        ),
    ),
    (60, plain("PAYMENT", "OUTWARD PAYMENT", (10_000, 90_000))),
    (90, plain("FEE", "OUTWARD PAYMENT FEE", (1500, 1500))),
];

/// Shares and funds.
pub(crate) static INVESTING: StandingOrders = &[
    (30, incoming("CREDIT", "Deposit", (20_000, 40_000))),
    (
        30,
        plain("DEBIT", "Buy Southern Index Fund", (20_000, 40_000)),
    ),
    (90, incoming("CREDIT", "Dividend", (800, 6400))),
];
