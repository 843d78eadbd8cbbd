//! Maps Akahu's categories and transaction types to the sixteen categories of the domain.
//!
//! Ids and names are NZFCC codes and their groups (docs/providers/akahu.md#spending-codes). The mapping is our own.
//! Codes and groups do not cover income, transfers and fees (docs/providers/akahu.md#categories), so type and sign
//! decide there.

use bellbird_domain::Category::{
    self, BankFees, Entertainment, FoodAndDrink, GovernmentAndNonProfit, HomeImprovement, Income, LoanPayments,
    Medical, Merchandise, PersonalCare, RentAndUtilities, Services, TransferIn, TransferOut, Transportation, Travel,
};
use bellbird_domain::Decimal;

use super::wire;
use crate::text::Text;

/// The provider's category has no counterpart in the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown;

/// The category of a row. None if neither category nor type determines it.
pub(super) fn category(
    sent: Option<&wire::Category<'_>>,
    kind: Option<&str>,
    amount: &Decimal<'_>,
) -> Result<Option<Category>, Unknown> {
    match sent {
        Some(sent) => by_category(sent, amount).ok_or(Unknown).map(Some),
        None => Ok(kind.and_then(|kind| by_type(kind, amount))),
    }
}

fn by_category(sent: &wire::Category<'_>, amount: &Decimal<'_>) -> Option<Category> {
    let group = sent.groups.as_ref().and_then(|groups| groups.personal_finance.as_ref());
    find(CODES, sent.id.as_ref()).or_else(|| find(GROUPS, group?.id.as_ref())).or_else(|| {
        (group.is_none() && is_positive(amount)).then(|| by_name_of_credit(sent.name.as_ref().map_or("", Text::as_str)))
    })
}

/// A category without a spending group is one of money received (docs/providers/akahu.md#categories).
fn by_name_of_credit(name: &str) -> Category {
    let name = name.to_lowercase();
    if ["refund", "withdrawal", "transfer", "loan"].iter().any(|word| name.contains(word)) {
        TransferIn
    } else {
        Income
    }
}

/// Types that determine a category without doubt.
fn by_type(kind: &str, amount: &Decimal<'_>) -> Option<Category> {
    match kind {
        "FEE" => Some(BankFees),
        "INTEREST" if is_positive(amount) => Some(Income),
        "TAX" => Some(GovernmentAndNonProfit),
        "TRANSFER" if amount.is_negative() => Some(TransferOut),
        "TRANSFER" => Some(TransferIn),
        _ => None,
    }
}

fn is_positive(amount: &Decimal<'_>) -> bool {
    !amount.is_negative() && amount.as_str().bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

fn find(table: &[(&str, Category)], id: Option<&Text<'_>>) -> Option<Category> {
    let id = id?.as_str();
    table.binary_search_by_key(&id, |(key, _)| key).ok().map(|at| table[at].1)
}

/// The groups of `personal_finance`, sorted by id. They apply to codes that are not in [`CODES`].
#[rustfmt::skip]
const GROUPS: &[(&str, Category)] = &[
    ("group_clasr0ysw000thk4mefilhht7", RentAndUtilities), // Housing
    ("group_clasr0ysw000uhk4m20nvc6m1", Merchandise), // Household
    ("group_clasr0ysw000vhk4m46ce9nrt", RentAndUtilities), // Utilities
    ("group_clasr0ysw000whk4m577xhmf3", Transportation), // Transport
    ("group_clasr0ysw000xhk4mf7mg2j1z", FoodAndDrink), // Food
    ("group_clasr0ysw000yhk4mddaobwu7", Medical), // Health
    ("group_clasr0ysw000zhk4m0cru14rw", Services), // Education
    ("group_clasr0ysw0010hk4mf2dca4y8", Merchandise), // Appearance
    ("group_clasr0ysw0011hk4m6hlk9fq0", Entertainment), // Lifestyle
    ("group_clasr0ysw0012hk4mgru5dgy7", Services), // Professional Services
];

/// All 181 spending codes, sorted by id.
#[rustfmt::skip]
const CODES: &[(&str, Category)] = &[
    ("nzfcc_ckouvvxkq000008mlfvf6gi1f", Merchandise), // Uniforms and commercial clothing
    ("nzfcc_ckouvvxni000208mlbhugb1za", Services), // Printing, publishing, and signmaking services
    ("nzfcc_ckouvvxrz000608ml3pgqfx3i", HomeImprovement), // Welding, fabrication, and metal services
    ("nzfcc_ckouvvxsi000708mlgk8ogd33", RentAndUtilities), // Electricity and gas services
    ("nzfcc_ckouvvxt3000908mlb6xj9x5z", HomeImprovement), // Roofing services
    ("nzfcc_ckouvvxtm000a08mlc33qf5sm", HomeImprovement), // Concrete services
    ("nzfcc_ckouvvxu5000b08ml7aske9u7", HomeImprovement), // Heating, cooling, and ventilation equipment and services
    ("nzfcc_ckouvvxu8000c08mlc95b5sfd", HomeImprovement), // Electrical supplies and services
    ("nzfcc_ckouvvxuq000d08ml81pqa16w", HomeImprovement), // Masonry, stonework, tiling, plastering, insulation
    ("nzfcc_ckouvvxus000e08mlem1o2ha2", HomeImprovement), // Building and carpentry services
    ("nzfcc_ckouvvxva000f08ml7fibefq1", HomeImprovement), // Trade services (not elsewhere classified)
    ("nzfcc_ckouvvxvc000g08ml2oiybbks", HomeImprovement), // Landscaping, garden, and horticultural services
    ("nzfcc_ckouvvxvv000h08ml7xbxeoht", Merchandise), // Agricultural supplies
    ("nzfcc_ckouvvxwd000i08ml5o99fokj", Merchandise), // Floral supplies and services
    ("nzfcc_ckouvvxwg000j08ml6bpqetr6", Merchandise), // Chemical products and services
    ("nzfcc_ckouvvxz6000m08ml620k803p", HomeImprovement), // Building supplies
    ("nzfcc_ckouvvxz8000n08ml5gcoffpm", HomeImprovement), // Hardware equipment and supplies
    ("nzfcc_ckouvvy0a000o08mlfln095js", HomeImprovement), // Plumbing and gasfitting supplies and services
    ("nzfcc_ckouvvy0c000p08mlh2606qt0", Merchandise), // Industrial and commercial supplies (not elsewhere classified)
    ("nzfcc_ckouvvy0t000q08mlhm1r54o5", HomeImprovement), // Painting supplies and services
    ("nzfcc_ckouvvy21000u08mlfernbp2r", Merchandise), // Computer equipment
    ("nzfcc_ckouvvy4q001008ml3dl13w1q", Transportation), // Automotive parts and accessories
    ("nzfcc_ckouvvy84001608ml5p6z4d8j", FoodAndDrink), // Supermarkets and grocery stores
    ("nzfcc_ckouvvy8m001708ml68px9wcf", FoodAndDrink), // Meat supplies
    ("nzfcc_ckouvvy8o001808ml9ld14mx1", FoodAndDrink), // Ice cream, gelato, nut, and confectionary stores
    ("nzfcc_ckouvvy98001a08ml3l180boh", FoodAndDrink), // Bakeries
    ("nzfcc_ckouvvyaa001b08ml4uj9b2qc", FoodAndDrink), // Convenience stores
    ("nzfcc_ckouvvyac001c08mlbyp5doni", FoodAndDrink), // Liquor stores
    ("nzfcc_ckouvvyau001d08mlecosa2ds", Merchandise), // Cigarette, vape, and other smoking products
    ("nzfcc_ckouvvybd001f08ml8w4y3yor", Merchandise), // General retail stores
    ("nzfcc_ckouvvybf001g08mlczajat62", Merchandise), // Variety stores
    ("nzfcc_ckouvvyc1001l08ml50ov60j5", Merchandise), // Child and infant clothing
    ("nzfcc_ckouvvycl001o08ml7wxo8w4j", Merchandise), // Shoe stores
    ("nzfcc_ckouvvydo001q08ml4xvgfhgl", Merchandise), // Clothing stores
    ("nzfcc_ckouvvye6001r08mlhgal82ou", Services), // Clothing alteration and repair
    ("nzfcc_ckouvvye7001s08mld9hj5q2y", Merchandise), // Apparel and accessory stores
    ("nzfcc_ckouvvyes001w08mleewb7dfd", HomeImprovement), // Floor covering stores
    ("nzfcc_ckouvvyet001x08ml59qzamy4", HomeImprovement), // Curtains, blinds, and window coverings
    ("nzfcc_ckouvvyfa001y08mlgbl1f1vu", HomeImprovement), // Fireplaces and supplies
    ("nzfcc_ckouvvyfc001z08ml7yeugcst", HomeImprovement), // Home furnishing and repair stores
    ("nzfcc_ckouvvyge002108mlfe0l2thb", Merchandise), // Electronic and appliance stores
    ("nzfcc_ckouvvygg002308ml8p0z179o", Merchandise), // Fabric, sewing, knitting, and related supplies
    ("nzfcc_ckouvvyhl002a08ml39u6clb6", Entertainment), // Marinas, marine supplies, and marine services
    ("nzfcc_ckouvvyi2002b08mlh2elakks", Merchandise), // Stationery and office supplies
    ("nzfcc_ckouvvyi5002d08ml106b4vlx", Merchandise), // Boat dealers
    ("nzfcc_ckouvvyin002e08ml5ahteewu", Transportation), // Bicycle stores, rentals, and repairs
    ("nzfcc_ckouvvyio002f08ml0kh60x4i", Merchandise), // Sports equipment and supplies
    ("nzfcc_ckouvvyjq002g08mlc0h7f3ke", Merchandise), // Book stores
    ("nzfcc_ckouvvyjt002i08mlbpv4gyx0", Merchandise), // Hobby, toy, and physical game stores
    ("nzfcc_ckouvvylz002l08ml6nra9enk", Merchandise), // Newspapers, magazines, and literary subscriptions
    ("nzfcc_ckouvvymi002o08mlgf5wdvfj", HomeImprovement), // Nurseries and garden supplies
    ("nzfcc_ckouvvymj002p08ml2n2da6nf", Merchandise), // Duty free stores
    ("nzfcc_ckouvvyn2002r08ml4n8t4uja", Merchandise), // Musical equipment, recordings, and supplies
    ("nzfcc_ckouvvyn3002s08mle90qdtmo", Medical), // Pharmacies
    ("nzfcc_ckouvvyn4002t08ml54k15mgr", Merchandise), // Secondhand and opportunity stores
    ("nzfcc_ckouvvyn5002u08mlbacc93hw", Merchandise), // Antique stores and repair
    ("nzfcc_ckouvvyo6002y08mlfafxgd3o", Merchandise), // Gift and souvenir stores
    ("nzfcc_ckouvvyo7002z08ml9oy0a5q1", Merchandise), // Art and craft supplies
    ("nzfcc_ckouvvyo8003008ml29qq5hn8", Merchandise), // Art stores, dealers, and galleries
    ("nzfcc_ckouvvypb003208mld49dca8l", PersonalCare), // Cosmetic supplies
    ("nzfcc_ckouvvypt003408mle59z71f4", Merchandise), // Pets and related supplies, accommodation, and services
    ("nzfcc_ckouvvypv003508mlda344tpi", HomeImprovement), // Swimming pools, supplies, and services
    ("nzfcc_ckouvvypw003608mld98b9yes", Merchandise), // Specialty retail stores (not elsewhere classified)
    ("nzfcc_ckouvvypx003708ml1ju5813w", Services), // Shoe and leather repair, keycutting, or engraving
    ("nzfcc_ckouvvyqe003808ml73z05dr5", HomeImprovement), // Appliance repair and services
    ("nzfcc_ckouvvyqy003b08ml65aj5svx", Merchandise), // Watch, clock, and jewellery stores and services
    ("nzfcc_ckouvvyr0003d08ml0xgx2x58", Services), // Repair and servicing (not elsewhere classified)
    ("nzfcc_ckouvvyrj003f08mldndoev9v", Transportation), // Car, truck, and motorcycle dealers
    ("nzfcc_ckouvvys3003i08mlhtk95p7h", Transportation), // Vehicle dealers (not elsewhere classified)
    ("nzfcc_ckouvvyso003n08ml83zy0lyv", Transportation), // Tyre stores
    ("nzfcc_ckouvvytq003o08mlbcy57jft", Transportation), // Fuel stations
    ("nzfcc_ckouvvytt003r08ml0nc1h7im", Transportation), // Automotive body repair and painting services
    ("nzfcc_ckouvvyuc003t08mlb3v45h5p", Transportation), // Automotive repair and servicing
    ("nzfcc_ckouvvyuv003v08ml7434fnid", Transportation), // Towing services
    ("nzfcc_ckouvvyux003x08mlgwyo6uq6", Travel), // Hotels, motels, and other temporary accommodation
    ("nzfcc_ckouvvyvg004008ml6zun9stl", Travel), // Motor parks, campgrounds, holiday parks, recreational camps
    ("nzfcc_ckouvvyvh004108mlfau3hrm2", FoodAndDrink), // Bars, pubs, nightclubs
    ("nzfcc_ckouvvyw0004308ml42nd6gao", FoodAndDrink), // Caterers
    ("nzfcc_ckouvvyw1004408mlhy158i7j", FoodAndDrink), // Cafes and restaurants
    ("nzfcc_ckouvvywi004508mlacrd41wf", FoodAndDrink), // Fast food stores
    ("nzfcc_ckouvvywj004608mlho382gvn", PersonalCare), // Gyms, fitness, aquatic facilities, yoga, pilates
    ("nzfcc_ckouvvyx4004a08ml4rop060m", Transportation), // Boat transport services
    ("nzfcc_ckouvvyxm004c08mlexbea79o", Transportation), // Taxi, rideshare, and on-demand transport services
    ("nzfcc_ckouvvyy7004g08mlc3hedgqz", Travel), // Air transport services
    ("nzfcc_ckouvvyy8004h08ml568d813k", Transportation), // Transport services (not elsewhere classified)
    ("nzfcc_ckouvvyy9004i08mlcl4jhggy", Transportation), // Toll fees
    ("nzfcc_ckouvvyza004j08ml2jqr21bt", Transportation), // Parking services
    ("nzfcc_ckouvvyzc004l08mlhc8da1l3", Travel), // Travel agencies and tour operators
    ("nzfcc_ckouvvyzv004n08mlae0hf8u1", Services), // Storage facilities
    ("nzfcc_ckouvvyzx004p08mlds5v33k7", Services), // Courier and freight delivery services
    ("nzfcc_ckouvvz0g004r08ml7f3hcr57", Services), // Postal services
    ("nzfcc_ckouvvz0y004t08ml8zey1jiv", RentAndUtilities), // Telecommunication services
    ("nzfcc_ckouvvz1k004y08ml25j2erby", Services), // Insurance
    ("nzfcc_ckouvvz22004z08ml32530yob", TransferOut), // Foreign exchange and money transfer services
    ("nzfcc_ckouvvz23005008ml7hg16o7w", Services), // Financial services (not elsewhere classified)
    ("nzfcc_ckouvvz37005308mla176dhu7", Entertainment), // Boat rentals
    ("nzfcc_ckouvvz38005408mlhr8a57nj", Services), // Appliance and furniture rentals
    ("nzfcc_ckouvvz4a005508ml8yfj5utb", Travel), // Car and motorcycle rentals
    ("nzfcc_ckouvvz4b005608ml2ygi4sq1", Transportation), // Truck, trailer, machinery, and equipment rentals
    ("nzfcc_ckouvvz4d005808mlciyi37f8", Services), // Testing laboratories (non medical)
    ("nzfcc_ckouvvz6k005908mlaluc5mhg", Services), // Architect, engineering, and surveying services
    ("nzfcc_ckouvvz7m005b08mlgher9mt4", Services), // IT and software development services
    ("nzfcc_ckouvvz86005e08mlc63abinn", Services), // Consumer electronics repair and services
    ("nzfcc_ckouvvz87005f08mlfta1ecg6", Services), // Accountancy, bookkeeping, auditing, and tax services
    ("nzfcc_ckouvvz88005g08mlb63z0a4l", Services), // Legal services
    ("nzfcc_ckouvvz9d005n08ml5by905rq", Services), // Advertising and marketing services
    ("nzfcc_ckouvvz9u005o08ml2oi20hre", Services), // Management consulting
    ("nzfcc_ckouvvz9v005p08mlbaeeakka", Services), // Cleaning, sanitation, and pest control services
    ("nzfcc_ckouvvzah005u08ml8vyq4fhw", Services), // Employment and career services
    ("nzfcc_ckouvvzay005v08mlfxmbal3g", Services), // Security stores and services
    ("nzfcc_ckouvvzb0005x08mldzw1a2lr", Services), // Business services (not elsewhere classified)
    ("nzfcc_ckouvvzbi005y08ml37j1haap", Services), // Professional services (not elsewhere classified)
    ("nzfcc_ckouvvzbj005z08mle3z667go", GovernmentAndNonProfit), // Tax payments
    ("nzfcc_ckouvvzbk006008ml1ks82is1", GovernmentAndNonProfit), // National government services
    ("nzfcc_ckouvvzbl006108ml1c9o0tn8", Services), // Event venue and equipment rental
    ("nzfcc_ckouvvzc2006208ml5mg1cxf7", TransferOut), // Financial asset brokers, exchanges, and managed funds
    ("nzfcc_ckouvvzc5006408mlbq4td5dm", Services), // Childcare services
    ("nzfcc_ckouvvzd6006508mle0ctar1e", Services), // Primary and secondary schools
    ("nzfcc_ckouvvzd7006608mlh6652doj", Services), // Universities, professional schools, and other tertiary education
    ("nzfcc_ckouvvzds006a08ml118e2eta", Services), // Education (not elsewhere classified)
    ("nzfcc_ckouvvzdt006b08mlc16xeila", RentAndUtilities), // Retirement accommodation
    ("nzfcc_ckouvvzeb006c08mlakege133", Medical), // Hospitals and emergency care
    ("nzfcc_ckouvvzec006d08ml1xjz1di1", Medical), // Medical products and supplies (not elsewhere classified)
    ("nzfcc_ckouvvzed006e08ml8jxcfkbq", Medical), // Doctors and physicians
    ("nzfcc_ckouvvzeu006f08ml3vuf6fub", Medical), // Dental services
    ("nzfcc_ckouvvzfd006i08ml2xnjeo2m", Medical), // Chiropractors and osteopaths
    ("nzfcc_ckouvvzfg006k08ml56i13bn6", Medical), // Optometrists and eyewear
    ("nzfcc_ckouvvzfh006l08mldtd37dvx", Medical), // Chiropodists and podiatrists
    ("nzfcc_ckouvvzfy006m08ml2tqk0qni", Medical), // Dental and medical laboratories
    ("nzfcc_ckouvvzh1006o08mlbn8m2q1f", Medical), // Veterinary services
    ("nzfcc_ckouvvzh3006p08ml37o7790t", Medical), // Psychology, counselling, other mental health services
    ("nzfcc_ckouvvzh4006q08mla1rt5w8j", GovernmentAndNonProfit), // Welfare and charity
    ("nzfcc_ckouvvzhm006s08ml5q7r9iof", Entertainment), // Cinemas
    ("nzfcc_ckouvvzhn006t08mlg81xhlbx", Entertainment), // Media and entertainment streaming services
    ("nzfcc_ckouvvzi5006v08mlg3pndlk0", Entertainment), // Entertainment (not elsewhere classified)
    ("nzfcc_ckouvvzi7006w08ml6blq7e83", Entertainment), // Events and tickets (not elsewhere classified)
    ("nzfcc_ckouvvziq006z08mldbw7eyne", Entertainment), // Sports and athletic clubs
    ("nzfcc_ckouvvzis007108ml1fj7f1md", Entertainment), // Golf courses
    ("nzfcc_ckouvvzit007208ml20wedcsf", Entertainment), // Casino, lottery, and other gambling services
    ("nzfcc_ckouvvzjc007408mlh0ev5y3t", Services), // Performing art training
    ("nzfcc_ckouvvzjd007508mld8zqd622", Entertainment), // Theatre, concerts, and other artistic performances
    ("nzfcc_ckouvvzju007608mldg1lf61f", Entertainment), // Attractions, museums, zoos, amusement parks, circuses
    ("nzfcc_ckouvvzjv007708mldu57h4em", Entertainment), // Digital gaming products and services
    ("nzfcc_ckouvvzke007908mlc4640b4h", Services), // Clothing rental
    ("nzfcc_ckouvvzkg007b08mlh3higeon", PersonalCare), // Laundry and drycleaning
    ("nzfcc_ckouvvzll007f08ml4qgd4xud", Services), // Photography equipment and services
    ("nzfcc_ckouvvzm2007g08ml8m0q4ury", PersonalCare), // Haircuts and treatments
    ("nzfcc_ckouvvzm3007h08mlfc7l56zp", Services), // Funeral, death, and memorial services
    ("nzfcc_ckouvvzm5007i08mlcxn8dmcb", Services), // Dating and matchmaking services
    ("nzfcc_ckouvvzn8007k08ml806zcml0", PersonalCare), // Cosmetic, health spas, and relaxation massage services
    ("nzfcc_ckouvvznt007o08mlfyzdaj9q", GovernmentAndNonProfit), // Religious organisations
    ("nzfcc_ckouvvzow007r08ml5eqa16dv", GovernmentAndNonProfit), // Political organisations
    ("nzfcc_ckouvvzpe007t08mlfiorez29", GovernmentAndNonProfit), // Membership organisations (not elsewhere classified)
    ("nzfcc_ckphrdp9f000008ml5t9g7d0m", FoodAndDrink), // Wineries, breweries, and distilleries
    ("nzfcc_ckpymsz13000009l2alfj3mw4", Services), // Business software and cloud services
    ("nzfcc_ckpyo79om000009kw58cq8czp", FoodAndDrink), // Meal kit stores
    ("nzfcc_ckpyo8lga000109kw7pyhcdxw", FoodAndDrink), // Specialty food stores
    ("nzfcc_ckq5t8pp9000009jvbego537k", RentAndUtilities), // Waste and recycling services
    ("nzfcc_cl15vdeg8000009l32o2v1ory", LoanPayments), // Lending services
    ("nzfcc_cl2pa65jm000009mfh2jm7d4m", Medical), // Physiotherapy and massage therapy
    ("nzfcc_cl2pae1ns000009jt55t2cdir", RentAndUtilities), // Rent for permanent accommodation
    ("nzfcc_cl2pbn9e4000009mp382ddhbq", GovernmentAndNonProfit), // Local government
    ("nzfcc_cl2pdepxy000009i4bdn9hzfb", RentAndUtilities), // Body corporate
    ("nzfcc_cl2pehre5000009ma7a3rdh1b", RentAndUtilities), // Water and sanitation services
    ("nzfcc_cl2pejp4g000109mae32z2zhb", RentAndUtilities), // Internet services
    ("nzfcc_cl2pgeu3q000109i4368cg786", Services), // Financial advice and wealth management
    ("nzfcc_cl2pjr2ou000009l8hi2se31x", Transportation), // Electric vehicle charging services
    ("nzfcc_cl2pkk8ir000009mu1xi353mv", Services), // Personal software (not elsewhere classified)
    ("nzfcc_cl2pn4a9q000009mj374t2o6n", Services), // Real estate services
    ("nzfcc_cl37t9teq000009jwdq7dgqzi", Services), // Libraries
    ("nzfcc_cl9c9l15j000009kv8ml01tk7", Medical), // Hospices
    ("nzfcc_cl9rwlp2s000009l3gmy97xxj", Medical), // Medical services (not elsewhere classified)
    ("nzfcc_clahc65qk000008jt7nug6ag9", RentAndUtilities), // Electricity services
    ("nzfcc_clahc7wwq000108jt06fy6lvo", RentAndUtilities), // Gas services
    ("nzfcc_clahcegjo000008l250of62eq", Transportation), // Bus and shuttle transport services
    ("nzfcc_clahcfil5000008mogwg5hdr7", Transportation), // Train and rail transport services
    ("nzfcc_clahchmg0000108mo8cnf2bs2", FoodAndDrink), // Fish and seafood supplies
    ("nzfcc_clahcjf2o000208jtb9krgphr", Travel), // Airports
    ("nzfcc_cmdmif9e7000008jr2s86elu1", GovernmentAndNonProfit), // Child support
    ("nzfcc_cmdnn5som001608ky71g13j00", LoanPayments), // Debt repayments
    ("nzfcc_cmdnn9y8k000008l2hv032iec", TransferOut), // Cash withdrawals
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_complete_and_sorted() {
        assert_eq!((GROUPS.len(), CODES.len()), (10, 181));
        for table in [GROUPS, CODES] {
            assert!(table.is_sorted_by(|one, other| one.0 < other.0), "binary search needs it");
        }
        assert!(CODES.iter().all(|(id, _)| id.starts_with("nzfcc_") && id.len() == "nzfcc_".len() + 25));
        for (id, expected) in [
            ("nzfcc_ckouvvyw1004408mlhy158i7j", FoodAndDrink), // Cafes and restaurants
            ("nzfcc_cmdnn9y8k000008l2hv032iec", TransferOut),  // Cash withdrawals
            ("nzfcc_cmdnn5som001608ky71g13j00", LoanPayments), // Debt repayments
            ("nzfcc_ckouvvyux003x08mlgwyo6uq6", Travel),       // Hotels
            ("nzfcc_ckouvvytq003o08mlbcy57jft", Transportation), // Fuel stations
            ("nzfcc_ckouvvz1k004y08ml25j2erby", Services),     // Insurance
        ] {
            assert_eq!(find(CODES, Some(&Text(id.into()))), Some(expected), "{id}");
        }
        assert_eq!(find(CODES, Some(&Text("nzfcc_".into()))), None);
    }

    #[test]
    fn category_rules_apply_in_order() {
        const CAFE: &str = "nzfcc_ckouvvyw1004408mlhy158i7j";
        let lifestyle = |id: &str, name: &str| {
            let group = r#"{"personal_finance": {"_id": "group_clasr0ysw0011hk4m6hlk9fq0", "name": "Lifestyle"}}"#;
            format!(r#"{{"_id": "{id}", "name": "{name}", "groups": {group}}}"#)
        };
        let bare = |id: &str, name: &str| format!(r#"{{"_id": "{id}", "name": "{name}"}}"#);
        let odd = r#"{"_id": "nzfcc_new", "name": "Dividends", "groups": {"personal_finance": {"_id": "group_new"}}}"#;
        for (sent, kind, amount, expected) in [
            // The code decides, before its group; money back keeps it.
            (lifestyle(CAFE, "Cafes and restaurants"), "EFTPOS", "-15.90", Ok(Some(FoodAndDrink))),
            (lifestyle(CAFE, "Cafes and restaurants"), "CREDIT", "15.90", Ok(Some(FoodAndDrink))),
            (bare(CAFE, "Cafes and restaurants"), "TRANSFER", "15.90", Ok(Some(FoodAndDrink))),
            // Then the group, also for money in.
            (lifestyle("nzfcc_new", "Loan of toys"), "FEE", "-1", Ok(Some(Entertainment))),
            (lifestyle("nzfcc_new", "Loan of toys"), "FEE", "1", Ok(Some(Entertainment))),
            // Then the sign and the name.
            (bare("nzfcc_new", "Salary or wages"), "DIRECT CREDIT", "2500", Ok(Some(Income))),
            (bare("nzfcc_new", "Tax REFUNDS"), "TAX", "0.01", Ok(Some(TransferIn))),
            (bare("nzfcc_new", "KiwiSaver withdrawal"), "CREDIT", "1", Ok(Some(TransferIn))),
            (bare("nzfcc_new", "Transfers from others"), "CREDIT", "1", Ok(Some(TransferIn))),
            (bare("nzfcc_new", "Home Loan received"), "CREDIT", "1", Ok(Some(TransferIn))),
            // An unknown group is still a spending group, so money in may be a refund.
            (odd.to_owned(), "CREDIT", "8.20", Err(Unknown)),
            (r#"{"_id": "nzfcc_new", "groups": {}}"#.to_owned(), "CREDIT", "1", Ok(Some(Income))),
            (bare("nzfcc_new", "Salary or wages"), "DEBIT", "-2500", Err(Unknown)),
            (bare("nzfcc_new", "Salary or wages"), "FEE", "0.00", Err(Unknown)),
            // Without a category only an unambiguous type decides.
            ("null".to_owned(), "FEE", "-5", Ok(Some(BankFees))),
            ("null".to_owned(), "FEE", "5", Ok(Some(BankFees))),
            ("null".to_owned(), "INTEREST", "0.30", Ok(Some(Income))),
            ("null".to_owned(), "INTEREST", "-0.30", Ok(None)),
            ("null".to_owned(), "INTEREST", "0.00", Ok(None)),
            ("null".to_owned(), "TAX", "-3", Ok(Some(GovernmentAndNonProfit))),
            ("null".to_owned(), "TAX", "3", Ok(Some(GovernmentAndNonProfit))),
            ("null".to_owned(), "TRANSFER", "-3", Ok(Some(TransferOut))),
            ("null".to_owned(), "TRANSFER", "3", Ok(Some(TransferIn))),
            ("null".to_owned(), "TRANSFER", "0", Ok(Some(TransferIn))),
            ("null".to_owned(), "LOAN", "-3", Ok(None)),
            ("null".to_owned(), "ATM", "-3", Ok(None)),
            ("null".to_owned(), "CREDIT CARD", "3", Ok(None)),
            ("null".to_owned(), "DIRECT CREDIT", "3", Ok(None)),
            ("null".to_owned(), "SOMETHING NEW", "3", Ok(None)),
            ("null".to_owned(), "", "3", Ok(None)),
        ] {
            let read: Option<wire::Category<'_>> = serde_json::from_str(&sent).unwrap();
            let kind_of_row = (!kind.is_empty()).then_some(kind);
            let found = category(read.as_ref(), kind_of_row, &Decimal::parse(amount).unwrap());
            assert_eq!(found, expected, "{sent} {kind} {amount}");
        }
    }
}
