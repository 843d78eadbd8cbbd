//! The daily spending of an Australian household. Every shop and agency is invented.

use super::template::{Category, Extra, Kind, Template, known, plain, shop};

/// Places of branches.
pub(crate) const PLACES: &[&str] = &[
    "NEWTOWN NSW",
    "MARRICKVILLE NSW",
    "SURRY HILLS NSW",
    "PARRAMATTA NSW",
    "BONDI JUNCTION NSW",
    "WOLLONGONG NSW",
    "FITZROY VIC",
    "SOUTH BANK QLD",
    "HOBART TAS",
    "GLENELG SA",
    "FREMANTLE WA",
    "SYDNEY",
];

/// Templates of daily spending; repeated entries are more likely. They cover everything of the sixteen categories that
/// does not occur on fixed days. They also cover rows without a category, with `null` and with an unknown one.
pub(crate) static SPENDING: &[Template] = &[
    shop(
        "BILLYCART GROCER 0412",
        "Billycart Grocer",
        "5411",
        "FOOD_AND_DRINK",
        "FOOD_AND_DRINK_GROCERIES",
        (450, 18900),
    ),
    shop("PADDOCK & PANTRY 77", "Paddock & Pantry", "5411", "FOOD_AND_DRINK", "FOOD_AND_DRINK_GROCERIES", (320, 9900)),
    shop("MAGPIE LANE COFFEE", "Magpie Lane Coffee", "5814", "FOOD_AND_DRINK", "FOOD_AND_DRINK_COFFEE", (420, 1450)),
    shop("SQ *SLOW POUR", "Slow Pour", "5814", "FOOD_AND_DRINK", "FOOD_AND_DRINK_COFFEE", (450, 980)),
    shop("GOLDEN WOK NOODLE BAR", "Golden Wok", "5812", "FOOD_AND_DRINK", "FOOD_AND_DRINK_RESTAURANT", (1450, 8600)),
    shop("HARBOUR METRO TAP", "Harbour Metro", "4111", "TRANSPORTATION", "TRANSPORTATION_PUBLIC_TRANSIT", (280, 1830)),
    shop("HARBOUR METRO TAP", "Harbour Metro", "4111", "TRANSPORTATION", "TRANSPORTATION_PUBLIC_TRANSIT", (280, 1830)),
    shop("KOALA FUEL 2204", "Koala Fuel", "5542", "TRANSPORTATION", "TRANSPORTATION_GAS", (3500, 11800)),
    shop(
        "WALLABY RIDES",
        "Wallaby Rides",
        "4121",
        "TRANSPORTATION",
        "TRANSPORTATION_TAXIS_AND_RIDE_SHARES",
        (980, 5600),
    ),
    shop("TOWN & CO DEPT STORE", "Town & Co", "5311", "MERCHANDISE", "MERCHANDISE_DEPARTMENT_STORES", (1500, 24900)),
    shop(
        "PAGE 88 BOOKS",
        "Page 88 Books",
        "5942",
        "MERCHANDISE",
        "MERCHANDISE_BOOKSTORES_AND_NEWSSTANDS",
        (1299, 7999),
    ),
    shop("STREAMLY.EXAMPLE", "Streamly", "5815", "ENTERTAINMENT", "ENTERTAINMENT_TV_AND_MOVIES", (1099, 2299)),
    shop("THE LANTERN CINEMA", "The Lantern", "7832", "ENTERTAINMENT", "ENTERTAINMENT_TV_AND_MOVIES", (1900, 6200)),
    shop(
        "CORNER STREET PHARMACY",
        "Corner Street Pharmacy",
        "5912",
        "MEDICAL",
        "MEDICAL_PHARMACIES_AND_SUPPLEMENTS",
        (770, 6400),
    ),
    shop(
        "DR A LINDEN FAMILY PRACTICE",
        "Linden Family Practice",
        "8011",
        "MEDICAL",
        "MEDICAL_PRIMARY_CARE",
        (4120, 11000),
    ),
    shop(
        "SHEAR MADNESS HAIR",
        "Shear Madness",
        "7230",
        "PERSONAL_CARE",
        "PERSONAL_CARE_HAIR_AND_BEAUTY",
        (3500, 18000),
    ),
    shop(
        "IRON SHED GYM",
        "Iron Shed Gym",
        "7997",
        "PERSONAL_CARE",
        "PERSONAL_CARE_GYMS_AND_FITNESS_CENTERS",
        (1795, 3990),
    ),
    shop(
        "TIMBER & TAP HARDWARE",
        "Timber & Tap",
        "5200",
        "HOME_IMPROVEMENT",
        "HOME_IMPROVEMENT_HARDWARE",
        (890, 32000),
    ),
    shop("KESTREL AIRWAYS 9087", "Kestrel Airways", "4511", "TRAVEL", "TRAVEL_FLIGHTS", (12900, 89900)),
    shop("SEAVIEW MOTOR INN", "Seaview Motor Inn", "7011", "TRAVEL", "TRAVEL_LODGING", (11900, 45000)),
    shop("RED GUM MECHANICAL", "Red Gum Mechanical", "7538", "SERVICES", "SERVICES_AUTOMOTIVE", (9900, 98000)),
    shop("LITTLE SPROUTS CHILDCARE", "Little Sprouts", "8351", "SERVICES", "SERVICES_CHILDCARE", (8800, 46000)),
    shop(
        "INNER WEST CITY HALL PARKING",
        "City Hall",
        "9399",
        "GOVERNMENT_AND_NON_PROFIT",
        "GOVERNMENT_AND_NON_PROFIT_GOVERNMENT_DEPARTMENTS_AND_AGENCIES",
        (350, 2700),
    ),
    shop(
        "BUSHFIRE RELIEF DONATION",
        "Bushfire Relief",
        "8398",
        "GOVERNMENT_AND_NON_PROFIT",
        "GOVERNMENT_AND_NON_PROFIT_DONATIONS",
        (1000, 10000),
    ),
    plain(
        "INTERNATIONAL TRANSACTION FEE",
        Kind::Fee,
        known("BANK_FEES", "BANK_FEES_FOREIGN_TRANSACTION_FEES"),
        (15, 900),
        false,
    ),
    plain("ATM OPERATOR FEE", Kind::Fee, known("BANK_FEES", "BANK_FEES_ATM_FEES"), (200, 300), false),
    Template {
        extra: Extra::Npp("Sam Rivers"),
        reference: "dinner",
        ..plain(
            "OSKO PAYMENT TO SAM RIVERS",
            Kind::TransferSent,
            known("TRANSFER_OUT", "TRANSFER_OUT_ACCOUNT_TRANSFER"),
            (1000, 12000),
            false,
        )
    },
    Template {
        extra: Extra::Npp("Mei Tan"),
        reference: "my half of the bill",
        ..plain(
            "OSKO PAYMENT FROM MEI TAN",
            Kind::TransferReceived,
            known("TRANSFER_IN", "TRANSFER_IN_ACCOUNT_TRANSFER"),
            (800, 9000),
            true,
        )
    },
    plain("REFUND BILLYCART GROCER", Kind::Other, Category::Absent, (300, 5000), true),
    plain("VISA PURCHASE 000000 UNKNOWN TERMINAL", Kind::Payment, Category::Null, (100, 4000), false),
    // An invented primary category: a real provider may add values at any time (docs/providers/fiskil.md#versions).
    shop("PAWS & CLAWS VET", "Paws & Claws", "0742", "PETS", "PETS_VETERINARY", (2500, 32000)),
    Template {
        merchant: None,
        merchant_code: None,
        ..shop("EFTPOS WITHDRAWAL CORNER SHOP", "", "", "FOOD_AND_DRINK", "FOOD_AND_DRINK_OTHER", (500, 6000))
    },
];
