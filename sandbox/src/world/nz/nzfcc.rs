//! NZFCC, the New Zealand Financial Category Codes. The table has every spending code with its real
//! id, name and group (docs/providers/akahu.md#spending-codes). The ids of income codes are
//! unknown, so none is here.

/// A group of `personal_finance`, the only grouping that exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) group: &'static Group,
}

const fn code(id: &'static str, name: &'static str, group: &'static Group) -> Code {
    Code { id, name, group }
}

/// Finds a code by name. The world's data use names, and a wrong name does not compile.
pub(super) const fn named(name: &str) -> &'static Code {
    let mut index = 0;
    while !same(CODES[index].name.as_bytes(), name.as_bytes()) {
        index += 1;
    }
    &CODES[index]
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

static APPEARANCE: Group = Group {
    id: "group_clasr0ysw0010hk4mf2dca4y8",
    name: "Appearance",
};
static EDUCATION: Group = Group {
    id: "group_clasr0ysw000zhk4m0cru14rw",
    name: "Education",
};
static FOOD: Group = Group {
    id: "group_clasr0ysw000xhk4mf7mg2j1z",
    name: "Food",
};
static HEALTH: Group = Group {
    id: "group_clasr0ysw000yhk4mddaobwu7",
    name: "Health",
};
static HOUSEHOLD: Group = Group {
    id: "group_clasr0ysw000uhk4m20nvc6m1",
    name: "Household",
};
static HOUSING: Group = Group {
    id: "group_clasr0ysw000thk4mefilhht7",
    name: "Housing",
};
static LIFESTYLE: Group = Group {
    id: "group_clasr0ysw0011hk4m6hlk9fq0",
    name: "Lifestyle",
};
static PROFESSIONAL_SERVICES: Group = Group {
    id: "group_clasr0ysw0012hk4mgru5dgy7",
    name: "Professional Services",
};
static TRANSPORT: Group = Group {
    id: "group_clasr0ysw000whk4m577xhmf3",
    name: "Transport",
};
static UTILITIES: Group = Group {
    id: "group_clasr0ysw000vhk4m46ce9nrt",
    name: "Utilities",
};

/// All codes, sorted by group.
#[rustfmt::skip]
pub(crate) static CODES: &[Code] = &[
    code("nzfcc_ckouvvye7001s08mld9hj5q2y", "Apparel and accessory stores", &APPEARANCE),
    code("nzfcc_ckouvvyc1001l08ml50ov60j5", "Child and infant clothing", &APPEARANCE),
    code("nzfcc_ckouvvye6001r08mlhgal82ou", "Clothing alteration and repair", &APPEARANCE),
    code("nzfcc_ckouvvzke007908mlc4640b4h", "Clothing rental", &APPEARANCE),
    code("nzfcc_ckouvvydo001q08ml4xvgfhgl", "Clothing stores", &APPEARANCE),
    code("nzfcc_ckouvvypb003208mld49dca8l", "Cosmetic supplies", &APPEARANCE),
    code("nzfcc_ckouvvygg002308ml8p0z179o", "Fabric, sewing, knitting, and related supplies", &APPEARANCE),
    code("nzfcc_ckouvvzm2007g08ml8m0q4ury", "Haircuts and treatments", &APPEARANCE),
    code("nzfcc_ckouvvyn4002t08ml54k15mgr", "Secondhand and opportunity stores", &APPEARANCE),
    code("nzfcc_ckouvvycl001o08ml7wxo8w4j", "Shoe stores", &APPEARANCE),
    code("nzfcc_ckouvvxkq000008mlfvf6gi1f", "Uniforms and commercial clothing", &APPEARANCE),
    code("nzfcc_ckouvvyqy003b08ml65aj5svx", "Watch, clock, and jewellery stores and services", &APPEARANCE),
    code("nzfcc_ckouvvyjq002g08mlc0h7f3ke", "Book stores", &EDUCATION),
    code("nzfcc_ckouvvzc5006408mlbq4td5dm", "Childcare services", &EDUCATION),
    code("nzfcc_ckouvvzds006a08ml118e2eta", "Education (not elsewhere classified)", &EDUCATION),
    code("nzfcc_cl37t9teq000009jwdq7dgqzi", "Libraries", &EDUCATION),
    code("nzfcc_ckouvvylz002l08ml6nra9enk", "Newspapers, magazines, and literary subscriptions", &EDUCATION),
    code("nzfcc_ckouvvzjc007408mlh0ev5y3t", "Performing art training", &EDUCATION),
    code("nzfcc_ckouvvzd6006508mle0ctar1e", "Primary and secondary schools", &EDUCATION),
    code(
        "nzfcc_ckouvvzd7006608mlh6652doj",
        "Universities, professional schools, and other tertiary education",
        &EDUCATION,
    ),
    code("nzfcc_ckouvvy98001a08ml3l180boh", "Bakeries", &FOOD),
    code("nzfcc_ckouvvyaa001b08ml4uj9b2qc", "Convenience stores", &FOOD),
    code("nzfcc_clahchmg0000108mo8cnf2bs2", "Fish and seafood supplies", &FOOD),
    code("nzfcc_ckouvvy8o001808ml9ld14mx1", "Ice cream, gelato, nut, and confectionary stores", &FOOD),
    code("nzfcc_ckpyo79om000009kw58cq8czp", "Meal kit stores", &FOOD),
    code("nzfcc_ckouvvy8m001708ml68px9wcf", "Meat supplies", &FOOD),
    code("nzfcc_ckpyo8lga000109kw7pyhcdxw", "Specialty food stores", &FOOD),
    code("nzfcc_ckouvvy84001608ml5p6z4d8j", "Supermarkets and grocery stores", &FOOD),
    code("nzfcc_ckouvvzfh006l08mldtd37dvx", "Chiropodists and podiatrists", &HEALTH),
    code("nzfcc_ckouvvzfd006i08ml2xnjeo2m", "Chiropractors and osteopaths", &HEALTH),
    code("nzfcc_ckouvvzfy006m08ml2tqk0qni", "Dental and medical laboratories", &HEALTH),
    code("nzfcc_ckouvvzeu006f08ml3vuf6fub", "Dental services", &HEALTH),
    code("nzfcc_ckouvvzed006e08ml8jxcfkbq", "Doctors and physicians", &HEALTH),
    code("nzfcc_ckouvvywj004608mlho382gvn", "Gyms, fitness, aquatic facilities, yoga, pilates", &HEALTH),
    code("nzfcc_cl9c9l15j000009kv8ml01tk7", "Hospices", &HEALTH),
    code("nzfcc_ckouvvzeb006c08mlakege133", "Hospitals and emergency care", &HEALTH),
    code("nzfcc_ckouvvzec006d08ml1xjz1di1", "Medical products and supplies (not elsewhere classified)", &HEALTH),
    code("nzfcc_cl9rwlp2s000009l3gmy97xxj", "Medical services (not elsewhere classified)", &HEALTH),
    code("nzfcc_ckouvvzfg006k08ml56i13bn6", "Optometrists and eyewear", &HEALTH),
    code("nzfcc_ckouvvyn3002s08mle90qdtmo", "Pharmacies", &HEALTH),
    code("nzfcc_cl2pa65jm000009mfh2jm7d4m", "Physiotherapy and massage therapy", &HEALTH),
    code(
        "nzfcc_ckouvvzh3006p08ml37o7790t",
        "Psychology, psychiatric, counselling, and other mental health services",
        &HEALTH,
    ),
    code("nzfcc_ckouvvziq006z08mldbw7eyne", "Sports and athletic clubs", &HEALTH),
    code("nzfcc_ckouvvzh1006o08mlbn8m2q1f", "Veterinary services", &HEALTH),
    code("nzfcc_ckouvvxvv000h08ml7xbxeoht", "Agricultural supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvyn5002u08mlbacc93hw", "Antique stores and repair", &HOUSEHOLD),
    code("nzfcc_ckouvvz38005408mlhr8a57nj", "Appliance and furniture rentals", &HOUSEHOLD),
    code("nzfcc_ckouvvyqe003808ml73z05dr5", "Appliance repair and services", &HOUSEHOLD),
    code("nzfcc_ckouvvxus000e08mlem1o2ha2", "Building and carpentry services", &HOUSEHOLD),
    code("nzfcc_ckouvvxz6000m08ml620k803p", "Building supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvxwg000j08ml6bpqetr6", "Chemical products and services", &HOUSEHOLD),
    code("nzfcc_cmdmif9e7000008jr2s86elu1", "Child support", &HOUSEHOLD),
    code("nzfcc_ckouvvz9v005p08mlbaeeakka", "Cleaning, sanitation, and pest control services", &HOUSEHOLD),
    code("nzfcc_ckouvvy21000u08mlfernbp2r", "Computer equipment", &HOUSEHOLD),
    code("nzfcc_ckouvvxtm000a08mlc33qf5sm", "Concrete services", &HOUSEHOLD),
    code("nzfcc_ckouvvz86005e08mlc63abinn", "Consumer electronics repair and services", &HOUSEHOLD),
    code("nzfcc_ckouvvyet001x08ml59qzamy4", "Curtains, blinds, and window coverings", &HOUSEHOLD),
    code("nzfcc_ckouvvxu8000c08mlc95b5sfd", "Electrical supplies and services", &HOUSEHOLD),
    code("nzfcc_ckouvvyge002108mlfe0l2thb", "Electronic and appliance stores", &HOUSEHOLD),
    code("nzfcc_ckouvvyfa001y08mlgbl1f1vu", "Fireplaces and supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvyes001w08mleewb7dfd", "Floor covering stores", &HOUSEHOLD),
    code("nzfcc_ckouvvybd001f08ml8w4y3yor", "General retail stores", &HOUSEHOLD),
    code("nzfcc_ckouvvxz8000n08ml5gcoffpm", "Hardware equipment and supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvxu5000b08ml7aske9u7", "Heating, cooling, and ventilation equipment and services", &HOUSEHOLD),
    code("nzfcc_ckouvvyfc001z08ml7yeugcst", "Home furnishing and repair stores", &HOUSEHOLD),
    code(
        "nzfcc_ckouvvy0c000p08mlh2606qt0",
        "Industrial and commercial supplies (not elsewhere classified)",
        &HOUSEHOLD,
    ),
    code("nzfcc_ckouvvz1k004y08ml25j2erby", "Insurance", &HOUSEHOLD),
    code("nzfcc_ckouvvxvc000g08ml2oiybbks", "Landscaping, garden, and horticultural services", &HOUSEHOLD),
    code("nzfcc_ckouvvzkg007b08mlh3higeon", "Laundry and drycleaning", &HOUSEHOLD),
    code(
        "nzfcc_ckouvvxuq000d08ml81pqa16w",
        "Masonry, stonework, tiling, plastering, and insulation services",
        &HOUSEHOLD,
    ),
    code("nzfcc_ckouvvymi002o08mlgf5wdvfj", "Nurseries and garden supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvy0t000q08mlhm1r54o5", "Painting supplies and services", &HOUSEHOLD),
    code("nzfcc_ckouvvypt003408mle59z71f4", "Pets and related supplies, accommodation, and services", &HOUSEHOLD),
    code("nzfcc_ckouvvy0a000o08mlfln095js", "Plumbing and gasfitting supplies and services", &HOUSEHOLD),
    code("nzfcc_ckouvvyr0003d08ml0xgx2x58", "Repair and servicing (not elsewhere classified)", &HOUSEHOLD),
    code("nzfcc_ckouvvxt3000908mlb6xj9x5z", "Roofing services", &HOUSEHOLD),
    code("nzfcc_ckouvvypx003708ml1ju5813w", "Shoe and leather repair, keycutting, or engraving", &HOUSEHOLD),
    code("nzfcc_ckouvvypw003608mld98b9yes", "Specialty retail stores (not elsewhere classified)", &HOUSEHOLD),
    code("nzfcc_ckouvvyi2002b08mlh2elakks", "Stationery and office supplies", &HOUSEHOLD),
    code("nzfcc_ckouvvyzv004n08mlae0hf8u1", "Storage facilities", &HOUSEHOLD),
    code("nzfcc_ckouvvypv003508mlda344tpi", "Swimming pools, supplies, and services", &HOUSEHOLD),
    code("nzfcc_ckouvvxva000f08ml7fibefq1", "Trade services (not elsewhere classified)", &HOUSEHOLD),
    code("nzfcc_ckouvvybf001g08mlczajat62", "Variety stores", &HOUSEHOLD),
    code("nzfcc_ckq5t8pp9000009jvbego537k", "Waste and recycling services", &HOUSEHOLD),
    code("nzfcc_ckouvvxrz000608ml3pgqfx3i", "Welding, fabrication, and metal services", &HOUSEHOLD),
    code("nzfcc_cl2pdepxy000009i4bdn9hzfb", "Body corporate", &HOUSING),
    code("nzfcc_cl2pbn9e4000009mp382ddhbq", "Local government", &HOUSING),
    code("nzfcc_cl2pae1ns000009jt55t2cdir", "Rent for permanent accommodation", &HOUSING),
    code("nzfcc_ckouvvzdt006b08mlc16xeila", "Retirement accommodation", &HOUSING),
    code("nzfcc_ckouvvyy7004g08mlc3hedgqz", "Air transport services", &LIFESTYLE),
    code("nzfcc_clahcjf2o000208jtb9krgphr", "Airports", &LIFESTYLE),
    code("nzfcc_ckouvvyo7002z08ml9oy0a5q1", "Art and craft supplies", &LIFESTYLE),
    code("nzfcc_ckouvvyo8003008ml29qq5hn8", "Art stores, dealers, and galleries", &LIFESTYLE),
    code(
        "nzfcc_ckouvvzju007608mldg1lf61f",
        "Attractions, museums, zoos, amusement parks, circuses, exhibits",
        &LIFESTYLE,
    ),
    code("nzfcc_ckouvvyvh004108mlfau3hrm2", "Bars, pubs, nightclubs", &LIFESTYLE),
    code("nzfcc_ckouvvyi5002d08ml106b4vlx", "Boat dealers", &LIFESTYLE),
    code("nzfcc_ckouvvz37005308mla176dhu7", "Boat rentals", &LIFESTYLE),
    code("nzfcc_ckouvvyw1004408mlhy158i7j", "Cafes and restaurants", &LIFESTYLE),
    code("nzfcc_cmdnn9y8k000008l2hv032iec", "Cash withdrawals", &LIFESTYLE),
    code("nzfcc_ckouvvzit007208ml20wedcsf", "Casino, lottery, and other gambling services", &LIFESTYLE),
    code("nzfcc_ckouvvyw0004308ml42nd6gao", "Caterers", &LIFESTYLE),
    code("nzfcc_ckouvvyau001d08mlecosa2ds", "Cigarette, vape, and other smoking products", &LIFESTYLE),
    code("nzfcc_ckouvvzhm006s08ml5q7r9iof", "Cinemas", &LIFESTYLE),
    code("nzfcc_ckouvvzn8007k08ml806zcml0", "Cosmetic, health spas, and relaxation massage services", &LIFESTYLE),
    code("nzfcc_ckouvvzm5007i08mlcxn8dmcb", "Dating and matchmaking services", &LIFESTYLE),
    code("nzfcc_ckouvvzjv007708mldu57h4em", "Digital gaming products and services", &LIFESTYLE),
    code("nzfcc_ckouvvymj002p08ml2n2da6nf", "Duty free stores", &LIFESTYLE),
    code("nzfcc_ckouvvzi5006v08mlg3pndlk0", "Entertainment (not elsewhere classified)", &LIFESTYLE),
    code("nzfcc_ckouvvzi7006w08ml6blq7e83", "Events and tickets (not elsewhere classified)", &LIFESTYLE),
    code("nzfcc_ckouvvywi004508mlacrd41wf", "Fast food stores", &LIFESTYLE),
    code("nzfcc_ckouvvxwd000i08ml5o99fokj", "Floral supplies and services", &LIFESTYLE),
    code("nzfcc_ckouvvyo6002y08mlfafxgd3o", "Gift and souvenir stores", &LIFESTYLE),
    code("nzfcc_ckouvvzis007108ml1fj7f1md", "Golf courses", &LIFESTYLE),
    code("nzfcc_ckouvvyjt002i08mlbpv4gyx0", "Hobby, toy, and physical game stores", &LIFESTYLE),
    code("nzfcc_ckouvvyux003x08mlgwyo6uq6", "Hotels, motels, and other temporary accommodation", &LIFESTYLE),
    code("nzfcc_ckouvvyac001c08mlbyp5doni", "Liquor stores", &LIFESTYLE),
    code("nzfcc_ckouvvyhl002a08ml39u6clb6", "Marinas, marine supplies, and marine services", &LIFESTYLE),
    code("nzfcc_ckouvvzhn006t08mlg81xhlbx", "Media and entertainment streaming services", &LIFESTYLE),
    code("nzfcc_ckouvvyvg004008ml6zun9stl", "Motor parks, campgrounds, holiday parks, recreational camps", &LIFESTYLE),
    code("nzfcc_ckouvvyn2002r08ml4n8t4uja", "Musical equipment, recordings, and supplies", &LIFESTYLE),
    code("nzfcc_ckouvvzll007f08ml4qgd4xud", "Photography equipment and services", &LIFESTYLE),
    code("nzfcc_ckouvvyio002f08ml0kh60x4i", "Sports equipment and supplies", &LIFESTYLE),
    code("nzfcc_ckouvvzjd007508mld8zqd622", "Theatre, concerts, and other artistic performances", &LIFESTYLE),
    code("nzfcc_ckouvvyzc004l08mlhc8da1l3", "Travel agencies and tour operators", &LIFESTYLE),
    code("nzfcc_ckouvvzh4006q08mla1rt5w8j", "Welfare and charity", &LIFESTYLE),
    code("nzfcc_ckphrdp9f000008ml5t9g7d0m", "Wineries, breweries, and distilleries", &LIFESTYLE),
    code(
        "nzfcc_ckouvvz87005f08mlfta1ecg6",
        "Accountancy, bookkeeping, auditing, and tax services",
        &PROFESSIONAL_SERVICES,
    ),
    code("nzfcc_ckouvvz9d005n08ml5by905rq", "Advertising and marketing services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz6k005908mlaluc5mhg", "Architect, engineering, and surveying services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzb0005x08mldzw1a2lr", "Business services (not elsewhere classified)", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckpymsz13000009l2alfj3mw4", "Business software and cloud services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvyzx004p08mlds5v33k7", "Courier and freight delivery services", &PROFESSIONAL_SERVICES),
    code("nzfcc_cmdnn5som001608ky71g13j00", "Debt repayments", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzah005u08ml8vyq4fhw", "Employment and career services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzbl006108ml1c9o0tn8", "Event venue and equipment rental", &PROFESSIONAL_SERVICES),
    code("nzfcc_cl2pgeu3q000109i4368cg786", "Financial advice and wealth management", &PROFESSIONAL_SERVICES),
    code(
        "nzfcc_ckouvvzc2006208ml5mg1cxf7",
        "Financial asset brokers, exchanges, and managed funds",
        &PROFESSIONAL_SERVICES,
    ),
    code("nzfcc_ckouvvz23005008ml7hg16o7w", "Financial services (not elsewhere classified)", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz22004z08ml32530yob", "Foreign exchange and money transfer services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzm3007h08mlfc7l56zp", "Funeral, death, and memorial services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz7m005b08mlgher9mt4", "IT and software development services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz88005g08mlb63z0a4l", "Legal services", &PROFESSIONAL_SERVICES),
    code("nzfcc_cl15vdeg8000009l32o2v1ory", "Lending services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz9u005o08ml2oi20hre", "Management consulting", &PROFESSIONAL_SERVICES),
    code(
        "nzfcc_ckouvvzpe007t08mlfiorez29",
        "Membership organisations (not elsewhere classified)",
        &PROFESSIONAL_SERVICES,
    ),
    code("nzfcc_ckouvvzbk006008ml1ks82is1", "National government services", &PROFESSIONAL_SERVICES),
    code("nzfcc_cl2pkk8ir000009mu1xi353mv", "Personal software (not elsewhere classified)", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzow007r08ml5eqa16dv", "Political organisations", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz0g004r08ml7f3hcr57", "Postal services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvxni000208mlbhugb1za", "Printing, publishing, and signmaking services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzbi005y08ml37j1haap", "Professional services (not elsewhere classified)", &PROFESSIONAL_SERVICES),
    code("nzfcc_cl2pn4a9q000009mj374t2o6n", "Real estate services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvznt007o08mlfyzdaj9q", "Religious organisations", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzay005v08mlfxmbal3g", "Security stores and services", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvzbj005z08mle3z667go", "Tax payments", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvz4d005808mlciyi37f8", "Testing laboratories (non medical)", &PROFESSIONAL_SERVICES),
    code("nzfcc_ckouvvytt003r08ml0nc1h7im", "Automotive body repair and painting services", &TRANSPORT),
    code("nzfcc_ckouvvy4q001008ml3dl13w1q", "Automotive parts and accessories", &TRANSPORT),
    code("nzfcc_ckouvvyuc003t08mlb3v45h5p", "Automotive repair and servicing", &TRANSPORT),
    code("nzfcc_ckouvvyin002e08ml5ahteewu", "Bicycle stores, rentals, and repairs", &TRANSPORT),
    code("nzfcc_ckouvvyx4004a08ml4rop060m", "Boat transport services", &TRANSPORT),
    code("nzfcc_clahcegjo000008l250of62eq", "Bus and shuttle transport services", &TRANSPORT),
    code("nzfcc_ckouvvz4a005508ml8yfj5utb", "Car and motorcycle rentals", &TRANSPORT),
    code("nzfcc_ckouvvyrj003f08mldndoev9v", "Car, truck, and motorcycle dealers", &TRANSPORT),
    code("nzfcc_cl2pjr2ou000009l8hi2se31x", "Electric vehicle charging services", &TRANSPORT),
    code("nzfcc_ckouvvytq003o08mlbcy57jft", "Fuel stations", &TRANSPORT),
    code("nzfcc_ckouvvyza004j08ml2jqr21bt", "Parking services", &TRANSPORT),
    code("nzfcc_ckouvvyxm004c08mlexbea79o", "Taxi, rideshare, and on-demand transport services", &TRANSPORT),
    code("nzfcc_ckouvvyy9004i08mlcl4jhggy", "Toll fees", &TRANSPORT),
    code("nzfcc_ckouvvyuv003v08ml7434fnid", "Towing services", &TRANSPORT),
    code("nzfcc_clahcfil5000008mogwg5hdr7", "Train and rail transport services", &TRANSPORT),
    code("nzfcc_ckouvvyy8004h08ml568d813k", "Transport services (not elsewhere classified)", &TRANSPORT),
    code("nzfcc_ckouvvz4b005608ml2ygi4sq1", "Truck, trailer, machinery, and equipment rentals", &TRANSPORT),
    code("nzfcc_ckouvvyso003n08ml83zy0lyv", "Tyre stores", &TRANSPORT),
    code("nzfcc_ckouvvys3003i08mlhtk95p7h", "Vehicle dealers (not elsewhere classified)", &TRANSPORT),
    code("nzfcc_ckouvvxsi000708mlgk8ogd33", "Electricity and gas services", &UTILITIES),
    code("nzfcc_clahc65qk000008jt7nug6ag9", "Electricity services", &UTILITIES),
    code("nzfcc_clahc7wwq000108jt06fy6lvo", "Gas services", &UTILITIES),
    code("nzfcc_cl2pejp4g000109mae32z2zhb", "Internet services", &UTILITIES),
    code("nzfcc_ckouvvz0y004t08ml8zey1jiv", "Telecommunication services", &UTILITIES),
    code("nzfcc_cl2pehre5000009ma7a3rdh1b", "Water and sanitation services", &UTILITIES),
];
