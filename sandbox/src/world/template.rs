//! The form of a row: what all rows of one kind have in common.

/// What moved the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    DirectDebit,
    Fee,
    InterestCharged,
    InterestPaid,
    Other,
    Payment,
    TransferIncoming,
    TransferOutgoing,
}

/// What the provider's enrichment makes of it: primary and secondary category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Category {
    Known(&'static str, &'static str),
    /// The row does not mention a category.
    Absent,
    /// The row says that there is none.
    Null,
}

/// What some payment systems add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// A bill paid by its code.
    Bpay {
        code: &'static str,
        name: &'static str,
    },
    /// A payment between banks at once, with the other side's name.
    Npp(&'static str),
    /// Direct entry, with the sender's number.
    DirectEntry(&'static str),
}

/// A kind of row: texts, categories and the range of its amounts.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) text: &'static str,
    /// Shops have many branches: the text goes on with a place.
    pub(crate) placed: bool,
    pub(crate) merchant: Option<&'static str>,
    pub(crate) merchant_code: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) category: Category,
    /// Least and most, in cents.
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
        placed: true,
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
        placed: false,
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

/// A category that the provider knows.
pub(super) const fn known(primary: &'static str, secondary: &'static str) -> Category {
    Category::Known(primary, secondary)
}
