//! Templates of Australian rows: the text, category and amount range that all rows of one kind
//! share.

/// How the money moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    DirectDebit,
    Fee,
    InterestCharged,
    InterestPaid,
    Other,
    Payment,
    TransferReceived,
    TransferSent,
}

/// The provider's enrichment: primary and secondary category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Category {
    Known(&'static str, &'static str),
    /// The row has no `category` member.
    Absent,
    /// The row's `category` is `null`.
    Null,
}

/// What some payment systems add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// A bill paid with a BPAY biller code.
    Bpay {
        code: &'static str,
        name: &'static str,
    },
    /// An instant payment between banks, with the other party's name.
    Npp(&'static str),
    /// Direct entry, with the sender's number.
    DirectEntry(&'static str),
}

/// A kind of row: texts, categories and the range of its amounts.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) text: &'static str,
    /// Shops have many branches, so the text ends with a place.
    pub(crate) has_place: bool,
    pub(crate) merchant: Option<&'static str>,
    pub(crate) merchant_code: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) category: Category,
    /// Minimum and maximum in cents.
    pub(crate) cents: (u32, u32),
    pub(crate) incoming: bool,
    pub(crate) extra: Extra,
    pub(crate) reference: &'static str,
}

/// A purchase in one of a shop's branches.
pub(super) const fn shop(
    text: &'static str,
    merchant: &'static str,
    code: &'static str,
    primary: &'static str,
    secondary: &'static str,
    cents: (u32, u32),
) -> Template {
    Template {
        text,
        has_place: true,
        merchant: Some(merchant),
        merchant_code: Some(code),
        kind: Kind::Payment,
        category: Category::Known(primary, secondary),
        cents,
        incoming: false,
        extra: Extra::Nothing,
        reference: "",
    }
}

/// A row without a merchant.
pub(super) const fn plain(
    text: &'static str,
    kind: Kind,
    category: Category,
    cents: (u32, u32),
    incoming: bool,
) -> Template {
    Template {
        text,
        has_place: false,
        merchant: None,
        merchant_code: None,
        kind,
        category,
        cents,
        incoming,
        extra: Extra::Nothing,
        reference: "",
    }
}

/// A category that the provider assigned.
pub(super) const fn known(primary: &'static str, secondary: &'static str) -> Category {
    Category::Known(primary, secondary)
}
