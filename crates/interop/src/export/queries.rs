//! The parameters of a file. The OpenAPI document describes them from the same structs.

use bellbird_api::http::Problem;
use bellbird_api::http::extract::date_filter;
use bellbird_api::http::parameters::{AccountParam, ConnectionParam, DateBound};
use bellbird_domain::DateFilter;
use serde::{Deserialize, Deserializer, de};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

use super::formats::{Format, Layout, Options};

/// The parameters of a file of transactions. Other files have some of them.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct FileQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(super) connection_id: Option<ConnectionParam>,
    /// One account: an `id` from `/v1/accounts`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(super) account_id: Option<AccountParam>,
    /// The oldest end, inclusive, as of `/v1/transactions`. Default: 30 days (720 hours) ago.
    #[param(inline, example = "2026-10-01")]
    from: Option<DateBound>,
    /// The newest end, inclusive, as of `/v1/transactions`. Default: now.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    to: Option<DateBound>,
    /// For `csv`: the columns that YNAB imports, in place of those with the names of
    /// `/v1/transactions`.
    #[param(inline, example = "ynab")]
    layout: Option<LayoutParam>,
    /// For `csv`: `true` begins the file with a byte order mark, by which Excel recognises UTF-8.
    /// Default: `false`.
    #[param(inline, example = true)]
    byte_order_mark: Option<Flag>,
    /// For `csv`: `true` puts `'` before texts that spreadsheets would run as formulas. Default:
    /// `false`.
    #[param(inline, example = true)]
    quote_formulas: Option<Flag>,
    /// `true` leaves out connections that cannot be read, and names them in `Bellbird-Left-Out`.
    /// Default: `false`.
    #[param(inline, example = true)]
    partial: Option<Flag>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct TradesFileQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: Option<ConnectionParam>,
    /// One account: an `id` from `/v1/accounts`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
    /// The oldest end, inclusive, as of `/v1/trades`. Default: chosen by the broker.
    #[param(inline, example = "2026-10-01")]
    from: Option<DateBound>,
    /// The newest end, inclusive, as of `/v1/trades`. Default: chosen by the broker.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    to: Option<DateBound>,
    /// For `csv`: `true` begins the file with a byte order mark, by which Excel recognises UTF-8.
    /// Default: `false`.
    #[param(inline, example = true)]
    byte_order_mark: Option<Flag>,
    /// For `csv`: `true` puts `'` before texts that spreadsheets would run as formulas. Default:
    /// `false`.
    #[param(inline, example = true)]
    quote_formulas: Option<Flag>,
    /// `true` leaves out connections that cannot be read, and names them in `Bellbird-Left-Out`.
    /// Default: `false`.
    #[param(inline, example = true)]
    partial: Option<Flag>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct HoldingsFileQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: Option<ConnectionParam>,
    /// One account: an `id` from `/v1/accounts`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
    /// For `csv`: `true` begins the file with a byte order mark, by which Excel recognises UTF-8.
    /// Default: `false`.
    #[param(inline, example = true)]
    byte_order_mark: Option<Flag>,
    /// For `csv`: `true` puts `'` before texts that spreadsheets would run as formulas. Default:
    /// `false`.
    #[param(inline, example = true)]
    quote_formulas: Option<Flag>,
    /// `true` leaves out connections that cannot be read, and names them in `Bellbird-Left-Out`.
    /// Default: `false`.
    #[param(inline, example = true)]
    partial: Option<Flag>,
}

impl FileQuery {
    pub(super) fn dates(&self) -> DateFilter {
        date_filter(self.from, self.to)
    }

    pub(super) fn is_partial(&self) -> bool {
        self.partial.is_some_and(|Flag(is_set)| is_set)
    }

    /// Fails if an option of CSV is set for another format, which would ignore it.
    pub(super) fn options(&self, format: Format) -> Result<Options, Problem> {
        let options = [
            ("layout", self.layout.is_some()),
            ("byteOrderMark", self.byte_order_mark.is_some()),
            ("quoteFormulas", self.quote_formulas.is_some()),
        ];
        let details: Vec<_> = options
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| format!("{name}: Must be given for csv only"))
            .collect();
        if format != Format::Csv && !details.is_empty() {
            return Err(Problem::BadRequest {
                message: "Invalid query parameters".into(),
                details,
            });
        }
        Ok(Options {
            layout: self
                .layout
                .map_or(Layout::Wide, |LayoutParam(layout)| layout),
            byte_order_mark: self.byte_order_mark.is_some_and(|Flag(is_set)| is_set),
            quote_formulas: self.quote_formulas.is_some_and(|Flag(is_set)| is_set),
        })
    }
}

impl From<TradesFileQuery> for FileQuery {
    fn from(query: TradesFileQuery) -> Self {
        Self {
            connection_id: query.connection_id,
            account_id: query.account_id,
            from: query.from,
            to: query.to,
            layout: None,
            byte_order_mark: query.byte_order_mark,
            quote_formulas: query.quote_formulas,
            partial: query.partial,
        }
    }
}

impl From<HoldingsFileQuery> for FileQuery {
    fn from(query: HoldingsFileQuery) -> Self {
        Self {
            connection_id: query.connection_id,
            account_id: query.account_id,
            from: None,
            to: None,
            layout: None,
            byte_order_mark: query.byte_order_mark,
            quote_formulas: query.quote_formulas,
            partial: query.partial,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct LayoutParam(Layout);

impl<'de> Deserialize<'de> for LayoutParam {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match String::deserialize(input)?.as_str() {
            "ynab" => Ok(Self(Layout::Ynab)),
            _ => Err(de::Error::custom("ynab")),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Flag(bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match String::deserialize(input)?.as_str() {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(de::Error::custom("true or false")),
        }
    }
}

impl utoipa::PartialSchema for LayoutParam {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(["ynab"]))
            .into()
    }
}

impl utoipa::PartialSchema for Flag {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Boolean).into()
    }
}

impl utoipa::ToSchema for LayoutParam {}
impl utoipa::ToSchema for Flag {}
