//! `/transactions`: the transactions of all banks. The page is sent at once with its filters, then
//! the rows: those that are there after a moment, and all of them when every bank has answered.

use bellbird_api::http::{QuotaClass, Quotas};
use bellbird_domain::{Category, ConnectionCategory, Transaction};
use bellbird_interop::export::formats::CsvLines;
use bellbird_reads::Transactions;
use http::{Uri, Version};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::filter::{Filter, Period};
use super::list::RowList;
use super::row::{Facts, Row, shown_text, shown_time};
use super::{ListKind, RowsPage, file, page};
use crate::error_page::PageResult;
use crate::pages::Money;
use crate::pages::names::sanitized;
use crate::session::Session;

const NO_TEXT: &str = "No description";

impl ListKind for Transactions {
    const PAGE: &'static RowsPage = &RowsPage {
        category: ConnectionCategory::Banking,
        is_cached: false,
        path: "/transactions",
        anchor: "",
        name: "transactions",
        title: "Transactions",
        bank: "bank",
        what_shows: "its transactions show",
        awaited: "Asking your banks",
        periods: &[
            Period::ThirtyDays,
            Period::ThisMonth,
            Period::LastMonth,
            Period::Months(3),
            Period::Months(12),
        ],
        search_placeholder: "Name or amount",
        has_categories: true,
        columns: &[
            "Date",
            "Account",
            "Bank",
            "Description",
            "Merchant",
            "Category",
            "Amount",
            "Currency",
            "Status",
            "Id",
        ],
    };

    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.live
    }

    fn day(_: &Transaction<'_>, day: Date, _: &TimeZone) -> Date {
        day
    }

    fn is_wanted(row: &Transaction<'_>, filter: &Filter) -> bool {
        let currency = row.actual_currency();
        let currency = currency.as_str();
        let texts = [
            Some(&*row.description),
            row.merchant_name.as_deref(),
            row.reference.as_deref(),
            row.category.map(Category::label),
        ];
        filter.has_category(row.category)
            && filter.has_currency(currency)
            && filter.finds(texts.into_iter().flatten(), Some(&row.amount), currency)
    }

    fn shown(row: &Transaction<'_>, day: Date, zone: &TimeZone) -> Row {
        let text = |text: &str| Some(sanitized(text)).filter(|text| !text.trim().is_empty());
        let description = text(&row.description);
        // The merchant, or else the description.
        let (title, text) = match row.merchant_name.as_deref().and_then(text) {
            Some(merchant) => {
                let other = description.filter(|text| *text != merchant);
                (merchant, other)
            }
            None => (description.unwrap_or_else(|| NO_TEXT.to_owned()), None),
        };
        let currency = row.actual_currency();
        let amount = Money::new(currency.as_str(), row.amount.as_str());
        let time = row.day.is_none().then(|| shown_time(row.instant, zone));
        Row {
            day,
            account: row.account.id,
            detail: Vec::from_iter(row.category.map(|one| one.label().to_owned())),
            facts: Facts::default()
                .and_unless(&title, "Description", &row.description)
                .and("More", row.extended_description.as_ref())
                .and("Reference", row.reference.as_ref())
                .and_exact("Amount", Some(&amount.number))
                .and("Time", time)
                .and(
                    "Executed",
                    row.executed.as_ref().map(|at| shown_text(at, zone)),
                )
                .and("Type", row.provider_type.as_ref())
                .and("Merchant category", row.merchant_category_code.as_ref())
                .and("Id", Some(&row.id)),
            title,
            text,
            amount: Some(amount),
        }
    }

    fn write(row: &Transaction<'_>, lines: &mut CsvLines, out: &mut Vec<u8>) {
        let currency = row.actual_currency();
        lines.text(&row.description, out);
        lines.text(row.merchant_name.as_deref().unwrap_or_default(), out);
        lines.plain(row.category.map_or("", Category::label), out);
        lines.plain(row.amount.as_str(), out);
        lines.plain(currency.as_str(), out);
        lines.plain("posted", out);
        lines.text(&row.id, out);
    }
}

/// `GET /transactions`
pub(crate) async fn show(session: Session, uri: Uri) -> PageResult {
    let parts = RowList::parts::<Transactions>;
    page::show(session, Transactions::PAGE, uri.query(), parts).await
}

/// `GET /transactions.ofx`, of one account. Passes the file of the API on while it is read.
pub(crate) async fn download_ofx(session: Session, version: Version, uri: Uri) -> PageResult {
    let list = RowList::load(session, Transactions::PAGE, uri.query()).await?;
    let account = list.filter.account;
    let found = account.and_then(|id| list.linked.find(id));
    let (Some((bank, _)), Some(query)) = (found, list.api_query(account)) else {
        let why = "Choose an account and its days again.";
        return Ok(file::no_file(&list, why));
    };
    let path = format!("/v1/export/transactions.ofx?{query}");
    let opened = list.session.api.open(&list.session.caller, &path, version);
    let opened = opened.await;
    Ok(opened.unwrap_or_else(|error| file::bank_not_read(&list, bank, error)))
}
