//! New Zealand's institutions. Their ids are real (docs/providers/akahu.md#institutions), their
//! names invented.

pub(crate) struct Institution {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) official: Option<Official>,
}

/// What an official connection has beyond a classic one.
pub(crate) struct Official {
    pub(crate) classic: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) deadline: Option<&'static str>,
}

const fn classic(id: &'static str, name: &'static str) -> Institution {
    Institution {
        id,
        name,
        official: None,
    }
}

/// Olivia's everyday bank.
pub(crate) const KAURI: &str = "conn_cjgaawozb000001nyd111xixr";
/// Olivia's savings and investments.
pub(crate) const POHUTUKAWA: &str = "conn_ck5rhsdbv0000ftx1bmdu9zas";
/// Connected through open banking.
pub(crate) const RIMU: &str = "conn_cm4hlog270000914n33hj6tqq";
/// Has the odd rows.
pub(crate) const KAHIKATEA: &str = "conn_cjgaaozdo000001mrnqmkl1m0";
/// Rejects Tama's login.
pub(crate) const TOTARA: &str = "conn_cjgab6fis000001qsytf1semy";

pub(crate) static INSTITUTIONS: &[Institution] = &[
    classic(KAURI, "Kauri Example Bank"),
    classic("conn_cjgaaqcna000001ldwof8tvj0", "Rimu Example Bank"),
    Institution {
        id: RIMU,
        name: "Rimu Example Bank",
        official: Some(Official {
            classic: "conn_cjgaaqcna000001ldwof8tvj0",
            mode: "migration",
            deadline: Some("2027-03-31"),
        }),
    },
    classic("conn_cjgaatd57000001pe1t1z0iy9", "Mātai Example Bank"),
    classic("conn_cjgaac5at000001qi2yw8ftil", "Nīkau Example Bank"),
    classic(KAHIKATEA, "Kahikatea Example Bank"),
    classic(TOTARA, "Tōtara Example Savings"),
    classic(
        "conn_cjgab1c8e000001pmyxrkhova",
        "Mānuka Example Co-operative",
    ),
    classic(POHUTUKAWA, "Pōhutukawa Example Wealth"),
    classic("conn_ckydkmy3r000009mde2sx2i4d", "Harakeke Example Rural"),
];

pub(crate) fn find(id: &str) -> Option<&'static Institution> {
    INSTITUTIONS.iter().find(|known| known.id == id)
}
