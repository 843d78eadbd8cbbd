//! The daily spending of a New Zealand household. Every shop and agency is invented.

use super::template::{
    Enriched, Meta, Template, bill, fields, from_account, incoming, online, plain, shop,
};

/// Places of branches.
pub(crate) const PLACES: &[&str] = &[
    "AUCKLAND",
    "PONSONBY",
    "TAKAPUNA",
    "HAMILTON",
    "TAURANGA",
    "ROTORUA",
    "NAPIER",
    "WELLINGTON",
    "WHANGĀREI",
    "NELSON",
    "CHRISTCHURCH",
    "DUNEDIN",
];

/// Templates of daily spending. They cover every group of codes, rows without enrichment, and every
/// type that does not occur on fixed days.
pub(crate) static SPENDING: &[Template] = &[
    shop(
        "TUI STREET GROCER",
        "Tui Street Grocer",
        "Supermarkets and grocery stores",
        (450, 24_900),
    ),
    Template {
        enriched: Some(Enriched {
            merchant: "Paddock Fresh",
            website: Some("https://paddockfresh.example"),
            nzbn: Some("9429000000017"),
            code: super::nzfcc::named("Supermarkets and grocery stores"),
        }),
        ..shop(
            "PADDOCK FRESH",
            "Paddock Fresh",
            "Supermarkets and grocery stores",
            (320, 18_900),
        )
    },
    shop(
        "FOUR SQUARES DAIRY",
        "Four Squares Dairy",
        "Convenience stores",
        (200, 3900),
    ),
    shop(
        "KŌWHAI BAKEHOUSE",
        "Kōwhai Bakehouse",
        "Bakeries",
        (450, 3200),
    ),
    shop(
        "HARBOUR FISH CO",
        "Harbour Fish Co",
        "Fish and seafood supplies",
        (1400, 8800),
    ),
    shop(
        "LONG WHITE COFFEE",
        "Long White Coffee",
        "Cafes and restaurants",
        (450, 2450),
    ),
    shop(
        "LONG WHITE COFFEE",
        "Long White Coffee",
        "Cafes and restaurants",
        (450, 2450),
    ),
    shop(
        "THE FAT PŪKEKO",
        "The Fat Pūkeko",
        "Bars, pubs, nightclubs",
        (900, 9800),
    ),
    shop("KUMARA FRY", "Kumara Fry", "Fast food stores", (650, 3900)),
    shop(
        "BOTTLE & BARREL",
        "Bottle & Barrel",
        "Liquor stores",
        (1200, 8900),
    ),
    shop("WAKA FUEL", "Waka Fuel", "Fuel stations", (3500, 14_800)),
    shop(
        "SOUTHERN CHARGE",
        "Southern Charge",
        "Electric vehicle charging services",
        (800, 3900),
    ),
    shop(
        "METLINE TAP",
        "Metline",
        "Bus and shuttle transport services",
        (150, 900),
    ),
    shop(
        "METLINE TAP",
        "Metline",
        "Bus and shuttle transport services",
        (150, 900),
    ),
    shop(
        "HARBOUR FERRIES",
        "Harbour Ferries",
        "Boat transport services",
        (900, 4400),
    ),
    shop(
        "KEA RIDES",
        "Kea Rides",
        "Taxi, rideshare, and on-demand transport services",
        (980, 5600),
    ),
    shop(
        "CITY PARKING BUILDING",
        "City Parking",
        "Parking services",
        (400, 3200),
    ),
    shop("NORTHERN TOLL", "Northern Toll", "Toll fees", (240, 520)),
    shop(
        "THE SHED & CO",
        "The Shed & Co",
        "General retail stores",
        (900, 24_900),
    ),
    shop(
        "RED BARN VARIETY",
        "Red Barn",
        "Variety stores",
        (500, 9900),
    ),
    shop(
        "MERINO & SONS",
        "Merino & Sons",
        "Clothing stores",
        (2900, 28_900),
    ),
    shop(
        "JANDAL HOUSE",
        "Jandal House",
        "Shoe stores",
        (2900, 19_900),
    ),
    shop(
        "WIRED ELECTRONICS",
        "Wired Electronics",
        "Electronic and appliance stores",
        (1900, 149_900),
    ),
    shop(
        "PAGE AND PŪRĀKAU",
        "Page and Pūrākau",
        "Book stores",
        (1499, 7999),
    ),
    shop(
        "SPOKE & CHAIN",
        "Spoke & Chain",
        "Bicycle stores, rentals, and repairs",
        (1500, 24_900),
    ),
    shop(
        "TĪTOKI BUILDING CENTRE",
        "Tītoki Building Centre",
        "Building supplies",
        (1200, 48_000),
    ),
    shop(
        "HAMMER HARDWARE STORE",
        "Hammer Hardware",
        "Hardware equipment and supplies",
        (890, 22_000),
    ),
    shop(
        "GREEN THUMB NURSERY",
        "Green Thumb",
        "Nurseries and garden supplies",
        (900, 14_500),
    ),
    shop(
        "FLATPACK & CO",
        "Flatpack & Co",
        "Home furnishing and repair stores",
        (2500, 89_000),
    ),
    shop(
        "HARAKEKE PHARMACY",
        "Harakeke Pharmacy",
        "Pharmacies",
        (500, 6400),
    ),
    shop(
        "MIRAMAR MEDICAL",
        "Miramar Medical",
        "Doctors and physicians",
        (1950, 9500),
    ),
    shop(
        "BRIGHT SMILE DENTAL",
        "Bright Smile",
        "Dental services",
        (9900, 68_000),
    ),
    shop(
        "PAWS & CLAWS VETS",
        "Paws & Claws",
        "Veterinary services",
        (6500, 42_000),
    ),
    shop(
        "SHEAR DELIGHT",
        "Shear Delight",
        "Haircuts and treatments",
        (3500, 18_000),
    ),
    shop(
        "IRON FERN GYM",
        "Iron Fern Gym",
        "Gyms, fitness, aquatic facilities, yoga, pilates",
        (1495, 3990),
    ),
    shop("GLOW COSMETICS", "Glow", "Cosmetic supplies", (1200, 9900)),
    shop("THE LANTERN CINEMA", "The Lantern", "Cinemas", (1800, 6200)),
    shop(
        "TE WHARE LOTTO",
        "Te Whare Lotto",
        "Casino, lottery, and other gambling services",
        (700, 2400),
    ),
    online(
        "STREAMLY SUBSCRIPTION",
        "Streamly",
        "https://streamly.example",
        "Media and entertainment streaming services",
        (1299, 2499),
    ),
    online(
        "PIXELHUT GAMES",
        "Pixelhut",
        "https://pixelhut.example",
        "Digital gaming products and services",
        (999, 11_999),
    ),
    online(
        "KERERŪ AIR",
        "Kererū Air",
        "https://kereru-air.example",
        "Air transport services",
        (8900, 89_900),
    ),
    online(
        "BOOKABED",
        "Bookabed",
        "https://bookabed.example",
        "Hotels, motels, and other temporary accommodation",
        (11_900, 55_000),
    ),
    Template {
        meta: Meta::Conversion {
            currency: "AUD",
            rate: 9137,
        },
        ..shop(
            "BOOMERANG DINER SYDNEY",
            "Boomerang Diner",
            "Cafes and restaurants",
            (1900, 9800),
        )
    },
    Template {
        meta: Meta::Conversion {
            currency: "USD",
            rate: 6012,
        },
        ..online(
            "CLOUDDESK.EXAMPLE",
            "Clouddesk",
            "https://clouddesk.example",
            "Personal software (not elsewhere classified)",
            (990, 4990),
        )
    },
    shop("POSTHOUSE", "Posthouse", "Postal services", (350, 4200)),
    shop(
        "SUDS LAUNDRETTE",
        "Suds",
        "Laundry and drycleaning",
        (600, 4200),
    ),
    shop(
        "COASTAL AUTO REPAIRS",
        "Coastal Auto",
        "Automotive repair and servicing",
        (9900, 120_000),
    ),
    shop(
        "HARBOUR COUNCIL",
        "Harbour Council",
        "Local government",
        (350, 45_000),
    ),
    shop(
        "TRANSPORT AGENCY",
        "Transport Agency",
        "National government services",
        (4300, 12_900),
    ),
    shop(
        "RESCUE HELICOPTER TRUST",
        "Rescue Helicopter Trust",
        "Welfare and charity",
        (1000, 10_000),
    ),
    // Templates without enrichment follow.
    Template {
        meta: Meta::Card,
        ..plain("EFTPOS", "EFTPOS PURCHASE TERMINAL 00417", (300, 6000))
    },
    Template {
        meta: Meta::Card,
        ..plain("ATM", "ATM WITHDRAWAL", (2000, 20_000))
    },
    Template {
        meta: from_account("dinner", "thanks", "12-3077-0123456-00"),
        ..plain("PAYMENT", "PAYMENT TO S RIVERS", (1000, 12_000))
    },
    Template {
        meta: from_account("half", "power bill", "38-9010-0654321-00"),
        ..incoming("DIRECT CREDIT", "M TAN", (800, 9000))
    },
    Template {
        meta: fields("refund", "", "00417"),
        ..incoming("CREDIT", "REFUND PADDOCK FRESH", (300, 5000))
    },
    plain("DEBIT", "SHEEP & CO ONLINE", (1200, 8800)),
    plain("FEE", "FOREIGN CURRENCY FEE", (15, 900)),
];

/// Purchases on a credit card; its bank gives each the type `CREDIT CARD`
/// (docs/providers/akahu.md#transaction-types).
pub(crate) static CARD_SPENDING: &[Template] = &[
    card(
        "PADDOCK FRESH",
        "Paddock Fresh",
        "Supermarkets and grocery stores",
        (1200, 24_900),
    ),
    card(
        "LONG WHITE COFFEE",
        "Long White Coffee",
        "Cafes and restaurants",
        (450, 2450),
    ),
    card("WAKA FUEL", "Waka Fuel", "Fuel stations", (3500, 14_800)),
    card(
        "KERERŪ AIR",
        "Kererū Air",
        "Air transport services",
        (8900, 89_900),
    ),
    card(
        "MERINO & SONS",
        "Merino & Sons",
        "Clothing stores",
        (2900, 28_900),
    ),
    card("THE LANTERN CINEMA", "The Lantern", "Cinemas", (1800, 6200)),
    Template {
        meta: Meta::Conversion {
            currency: "USD",
            rate: 5988,
        },
        ..card(
            "GADGETS DIRECT",
            "Gadgets Direct",
            "Computer equipment",
            (2900, 64_900),
        )
    },
    plain("CREDIT CARD", "CARD PURCHASE UNKNOWN MERCHANT", (300, 9900)),
];

const fn card(
    text: &'static str,
    merchant: &'static str,
    category: &str,
    cents: (u32, u32),
) -> Template {
    Template {
        kind: "CREDIT CARD",
        meta: Meta::Card,
        ..bill(text, merchant, category, cents)
    }
}

/// A foreign-currency wallet: many small amounts with the time of day.
pub(crate) static WALLET_SPENDING: &[Template] = &[
    plain("DEBIT", "Coffee Collective", (450, 2900)),
    plain("DEBIT", "Night market", (900, 4900)),
    incoming("CREDIT", "Top up", (2000, 20_000)),
    incoming("CREDIT", "From Mei", (500, 6000)),
];
