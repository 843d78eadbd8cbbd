//! Rows on fixed days in Australia: pay, rent, interest and repayments. Every payer and payee is
//! invented.

use super::template::{Category, Extra, Kind, Template, known, plain, shop};

/// An everyday account. Each row has its interval in days.
pub(crate) static HOUSEHOLD: &[(u32, Template)] = &[
    (
        14,
        Template {
            extra: Extra::DirectEntry("301234"),
            reference: "SALARY",
            ..plain(
                "PAY/SALARY FROM EUCALYPT DESIGN PTY LTD",
                Kind::TransferReceived,
                known("INCOME", "INCOME_SALARY"),
                (312_450, 312_450),
                true,
            )
        },
    ),
    (
        7,
        plain(
            "RENT HARRIS & DAUGHTERS REALTY",
            Kind::DirectDebit,
            known("RENT_AND_UTILITIES", "RENT_AND_UTILITIES_RENT"),
            (62_000, 62_000),
            false,
        ),
    ),
    (
        91,
        Template {
            extra: Extra::Bpay {
                code: "234567",
                name: "Sunfield Energy",
            },
            reference: "Quarterly bill",
            ..plain(
                "BPAY SUNFIELD ENERGY",
                Kind::Payment,
                known(
                    "RENT_AND_UTILITIES",
                    "RENT_AND_UTILITIES_GAS_AND_ELECTRICITY",
                ),
                (18_000, 52_000),
                false,
            )
        },
    ),
    (
        30,
        shop(
            "GUMTREE MOBILE PTY",
            "Gumtree Mobile",
            "4814",
            "RENT_AND_UTILITIES",
            "RENT_AND_UTILITIES_TELEPHONE",
            (4900, 4900),
        ),
    ),
    (
        30,
        plain(
            "TRANSFER TO CARD",
            Kind::TransferSent,
            known("LOAN_PAYMENTS", "LOAN_PAYMENTS_CREDIT_CARD_PAYMENT"),
            (80_000, 240_000),
            false,
        ),
    ),
    (
        30,
        plain(
            "HOME LOAN REPAYMENT",
            Kind::DirectDebit,
            known("LOAN_PAYMENTS", "LOAN_PAYMENTS_MORTGAGE_PAYMENT"),
            (214_500, 214_500),
            false,
        ),
    ),
    (
        30,
        plain(
            "TRANSFER TO SAVER",
            Kind::TransferSent,
            known("TRANSFER_OUT", "TRANSFER_OUT_SAVINGS"),
            (30_000, 50_000),
            false,
        ),
    ),
    (
        30,
        plain(
            "ACCOUNT KEEPING FEE",
            Kind::Fee,
            known("BANK_FEES", "BANK_FEES_OTHER"),
            (500, 500),
            false,
        ),
    ),
    (
        28,
        Template {
            extra: Extra::Bpay {
                code: "998877",
                name: "Southern Health Fund",
            },
            ..plain(
                "SOUTHERN HEALTH FUND PREMIUM",
                Kind::DirectDebit,
                Category::Absent,
                (22_310, 22_310),
                false,
            )
        },
    ),
];

/// A savings account.
pub(crate) static SAVING: &[(u32, Template)] = &[
    (
        30,
        plain(
            "TRANSFER FROM EVERYDAY",
            Kind::TransferReceived,
            known("TRANSFER_IN", "TRANSFER_IN_SAVINGS"),
            (30_000, 50_000),
            true,
        ),
    ),
    (
        30,
        plain(
            "INTEREST PAID",
            Kind::InterestPaid,
            known("INCOME", "INCOME_INTEREST_EARNED"),
            (1200, 9800),
            true,
        ),
    ),
    (
        30,
        plain(
            "BONUS INTEREST",
            Kind::InterestPaid,
            known("INCOME", "INCOME_INTEREST_EARNED"),
            (800, 4500),
            true,
        ),
    ),
    (
        121,
        plain(
            "WITHDRAWAL TO EVERYDAY",
            Kind::TransferSent,
            known("TRANSFER_OUT", "TRANSFER_OUT_SAVINGS"),
            (50_000, 200_000),
            false,
        ),
    ),
];

/// The rows that a credit card's bank adds to purchases.
pub(crate) static CARD: &[(u32, Template)] = &[
    (
        30,
        plain(
            "PAYMENT RECEIVED THANK YOU",
            Kind::TransferReceived,
            known("LOAN_PAYMENTS", "LOAN_PAYMENTS_CREDIT_CARD_PAYMENT"),
            (80_000, 240_000),
            true,
        ),
    ),
    (
        90,
        plain(
            "INTEREST CHARGED ON PURCHASES",
            Kind::InterestCharged,
            known("BANK_FEES", "BANK_FEES_INTEREST_CHARGE"),
            (310, 4800),
            false,
        ),
    ),
    (
        365,
        plain(
            "ANNUAL CARD FEE",
            Kind::Fee,
            known("BANK_FEES", "BANK_FEES_OTHER"),
            (9900, 9900),
            false,
        ),
    ),
];

pub(crate) static MORTGAGE: &[(u32, Template)] = &[
    (
        30,
        plain(
            "REPAYMENT RECEIVED",
            Kind::TransferReceived,
            known("LOAN_PAYMENTS", "LOAN_PAYMENTS_MORTGAGE_PAYMENT"),
            (214_500, 214_500),
            true,
        ),
    ),
    (
        30,
        plain(
            "INTEREST CHARGED",
            Kind::InterestCharged,
            Category::Absent,
            (158_000, 166_000),
            false,
        ),
    ),
    (
        30,
        plain(
            "LOAN SERVICE FEE",
            Kind::Fee,
            known("BANK_FEES", "BANK_FEES_OTHER"),
            (800, 800),
            false,
        ),
    ),
];

/// A term deposit, with few rows.
pub(crate) static DEPOSIT: &[(u32, Template)] = &[(
    91,
    plain(
        "TERM DEPOSIT INTEREST",
        Kind::InterestPaid,
        known("INCOME", "INCOME_INTEREST_EARNED"),
        (41_000, 48_000),
        true,
    ),
)];

pub(crate) static TRUST: &[(u32, Template)] = &[
    (
        60,
        plain(
            "DEPOSIT HELD IN TRUST",
            Kind::TransferReceived,
            Category::Null,
            (100_000, 900_000),
            true,
        ),
    ),
    (
        60,
        plain(
            "DISBURSEMENT",
            Kind::TransferSent,
            known("TRANSFER_OUT", "TRANSFER_OUT_OTHER_TRANSFER_OUT"),
            (90_000, 800_000),
            false,
        ),
    ),
];

pub(crate) static TRAVELLING: &[(u32, Template)] = &[
    (
        45,
        plain(
            "LOAD FROM EVERYDAY",
            Kind::TransferReceived,
            known("TRANSFER_IN", "TRANSFER_IN_ACCOUNT_TRANSFER"),
            (20_000, 150_000),
            true,
        ),
    ),
    (
        40,
        shop(
            "TRATTORIA SOLE ROMA IT",
            "Trattoria Sole",
            "5812",
            "FOOD_AND_DRINK",
            "FOOD_AND_DRINK_RESTAURANT",
            (2100, 12000),
        ),
    ),
    (
        50,
        shop(
            "PENSION ALPENBLICK",
            "Pension Alpenblick",
            "7011",
            "TRAVEL",
            "TRAVEL_LODGING",
            (9000, 38000),
        ),
    ),
];
