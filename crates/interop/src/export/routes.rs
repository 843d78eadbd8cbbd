//! `GET /v1/export/...`: paths, parameters and headers of files. What goes into a file is in `file.rs`.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use bellbird_api::front::extract::ProviderCalls;
use bellbird_api::front::live::problem_for_category;
use bellbird_api::front::parameters::Id;
use bellbird_api::front::routes::DoorTable;
use bellbird_api::front::{Access, Admitted, Class, Credentials, Door, Problem, Route, route};
use bellbird_reads::ReadError;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Uri, Version};
use serde::de::DeserializeOwned;
use utoipa::OpenApi;

use super::body::{CutOff, FileBody, problem_of_format};
use super::file::Export;
use super::formats::Format;
use super::queries::{
    Asked, HoldingsFileQuery, TableFormat, TradesFileQuery, TransactionsFileQuery, TransactionsFormat, read,
};
use super::request::{FileRequest, Resource, Selection};
use super::source::OpenError;
use crate::Interop;

/// A path for each file, so that log and metrics name the format.
static ROUTES: [Route; 10 + cfg!(feature = "parquet") as usize] = [
    route("/v1/export/transactions.csv", Class::Live),
    route("/v1/export/transactions.jsonl", Class::Live),
    route("/v1/export/transactions.ofx", Class::Live),
    route("/v1/export/transactions.qif", Class::Live),
    route("/v1/export/transactions.journal", Class::Live),
    route("/v1/export/transactions.beancount", Class::Live),
    #[cfg(feature = "parquet")]
    route("/v1/export/transactions.parquet", Class::Live),
    route("/v1/export/trades.csv", Class::Brokerage),
    route("/v1/export/trades.jsonl", Class::Brokerage),
    route("/v1/export/holdings.csv", Class::Brokerage),
    route("/v1/export/holdings.jsonl", Class::Brokerage),
];

/// A path, and the file behind it.
#[derive(Clone, Copy)]
struct Place {
    route: &'static Route,
    resource: Resource,
    format: Format,
}

impl Place {
    fn of(route: &'static Route) -> Option<Self> {
        let (resource, format) = route.path.strip_prefix("/v1/export/")?.split_once('.')?;
        Some(Self { route, resource: Resource::from_name(resource)?, format: Format::from_name(format)? })
    }
}

pub(crate) fn door(interop: Interop) -> Door {
    let table = DoorTable {
        prefix: "/v1/export",
        routes: &ROUTES,
        credentials: Credentials::Bearer,
        deny: |problem| problem.into_response(),
    };
    let mut router = Router::new();
    for place in ROUTES.iter().filter_map(Place::of) {
        let handler = match place.resource {
            Resource::Transactions => transactions(place),
            Resource::Trades => trades(place),
            Resource::Holdings => holdings(place),
        };
        router = router.route(place.route.path, handler);
    }
    Door { table, router: router.with_state(interop) }
}

#[derive(OpenApi)]
#[openapi(paths(transactions, trades, holdings))]
struct Description;

/// The paths of this door for the OpenAPI document.
#[must_use]
pub fn documented() -> utoipa::openapi::OpenApi {
    #[cfg_attr(not(feature = "parquet"), expect(unused_mut))]
    let mut document = Description::openapi();
    #[cfg(feature = "parquet")]
    describe_parquet(&mut document);
    document
}

/// The type of a format that only some builds have.
#[cfg(feature = "parquet")]
fn describe_parquet(document: &mut utoipa::openapi::OpenApi) {
    use utoipa::openapi::{Content, RefOr};

    let path = document.paths.paths.get_mut("/v1/export/transactions.{format}");
    let operation = path.and_then(|path| path.get.as_mut());
    if let Some(RefOr::T(file)) = operation.and_then(|operation| operation.responses.responses.get_mut("200")) {
        file.content.insert(Format::Parquet.content_type().to_owned(), RefOr::T(Content::default()));
    }
}

/// Export transactions
///
/// The rows of `/v1/transactions` as a file, read live from the provider while it is sent, newest first. With
/// `accountId` it has one account, with `connectionId` all accounts of that connection, and with neither all bank
/// accounts of the user. `ofx`, `qif` and the layout `ynab` hold one account, so they need `accountId`.
///
/// A file that cannot be completed is broken off: the transfer fails, and what was received is not a whole file. A
/// failure before the first byte is the usual error. One request is one of the concurrent requests of the key until the
/// file ends. `HEAD` calls no provider. Needs HTTP/1.1.
#[utoipa::path(
    operation_id = "export_transactions",
    get,
    path = "/v1/export/transactions.{format}",
    tag = "Files",
    params(
        ("format" = inline(TransactionsFormat), Path, description = "The format.", example = "csv"),
        TransactionsFileQuery
    ),
    responses((status = 200, description = "The file.", content(
        (String = "text/csv"),
        (String = "application/x-ndjson"),
        (String = "application/x-ofx"),
        (String = "application/qif"),
        (String = "text/plain"),
    )))
)]
fn transactions(place: Place) -> MethodRouter<Interop> {
    handler::<TransactionsFileQuery>(place)
}

/// Export trades
///
/// The rows of `/v1/trades` as a file, account after account, each newest first. Without `connectionId` and `accountId`
/// it has all brokerage accounts of the user. Otherwise as the export of transactions. Needs the Professional plan.
#[utoipa::path(
    operation_id = "export_trades",
    get,
    path = "/v1/export/trades.{format}",
    tag = "Files",
    params(("format" = inline(TableFormat), Path, description = "The format.", example = "csv"), TradesFileQuery),
    responses((status = 200, description = "The file.", content(
        (String = "text/csv"),
        (String = "application/x-ndjson"),
    )))
)]
fn trades(place: Place) -> MethodRouter<Interop> {
    handler::<TradesFileQuery>(place)
}

/// Export holdings
///
/// The rows of `/v1/holdings` as a file, read live and not from the cache. Without `connectionId` and `accountId` it
/// has all brokerage accounts of the user. Otherwise as the export of transactions. Needs the Professional plan.
#[utoipa::path(
    operation_id = "export_holdings",
    get,
    path = "/v1/export/holdings.{format}",
    tag = "Files",
    params(("format" = inline(TableFormat), Path, description = "The format.", example = "csv"), HoldingsFileQuery),
    responses((status = 200, description = "The file.", content(
        (String = "text/csv"),
        (String = "application/x-ndjson"),
    )))
)]
fn holdings(place: Place) -> MethodRouter<Interop> {
    handler::<HoldingsFileQuery>(place)
}

fn handler<Q: Into<Asked> + DeserializeOwned + utoipa::IntoParams + Send + 'static>(
    place: Place,
) -> MethodRouter<Interop> {
    get(async move |State(interop): State<Interop>, admitted: Admitted, version: Version, method: Method, uri: Uri| {
        if version < Version::HTTP_11 {
            // Such an answer ends where the connection ends, so a file that was cut off would seem whole.
            let message = "Files need HTTP/1.1: with an older version, a file that breaks off looks whole";
            return Err(Problem::BadRequest { message: message.into(), details: Vec::new() });
        }
        let query: Q = read(uri.query())?;
        export(interop.access, admitted, method, place, query.into()).await
    })
}

async fn export(
    access: Access,
    Admitted { caller, now, .. }: Admitted,
    method: Method,
    place: Place,
    asked: Asked,
) -> Result<Response, Problem> {
    let request = FileRequest {
        resource: place.resource,
        format: place.format,
        options: asked.options(place.format)?,
        selection: Selection {
            connection_id: asked.connection_id.map(|Id(id)| id.ok_or(Problem::NotFound("Connection"))).transpose()?,
            account_id: asked.account_id.map(|Id(id)| id.ok_or(Problem::NotFound("Account"))).transpose()?,
        },
        span: asked.span,
    };
    let category = place.resource.category();
    let opened = Export::open(access.reads().clone(), access.storage(), caller.clone(), request, now).await;
    let export = opened.map_err(|error| match error {
        OpenError::Connection(ReadError::WrongCategory) | OpenError::Account(ReadError::WrongCategory) => {
            Problem::BadRequest { message: wrong_category(place.resource).into(), details: Vec::new() }
        }
        OpenError::Connection(error) => problem_for_category(&error, "Connection", category),
        OpenError::Account(error) => problem_for_category(&error, "Account", category),
        OpenError::Format(error) => problem_of_format(error),
    })?;
    let name = export.name().content_disposition();
    let mut response = if method == Method::HEAD {
        // As without a known length.
        Response::new(Body::from_stream(stream::empty::<Result<Bytes, CutOff>>()))
    } else {
        let file = FileBody::begin(access, place.route, caller, export).await?;
        let calls = ProviderCalls(file.provider_calls());
        let mut response = Response::new(file.into_body());
        response.extensions_mut().insert(calls);
        response
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(place.format.content_type()));
    headers.insert(CONTENT_DISPOSITION, name);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Says which files there are, because a client that names only an account may not know what it is.
fn wrong_category(requested: Resource) -> &'static str {
    match requested {
        Resource::Transactions => {
            "The connection must be a banking connection: of a brokerage connection, take trades or holdings as csv \
             or jsonl"
        }
        Resource::Trades | Resource::Holdings => {
            "The connection must be a brokerage connection: of a banking connection, take transactions"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_is_documented() {
        let document = serde_json::to_value(documented()).unwrap();
        let operation = &document["paths"]["/v1/export/transactions.{format}"]["get"];
        let formats = operation["parameters"][0]["schema"]["enum"].as_array().unwrap();
        assert!(formats.iter().any(|format| format == "parquet"), "{formats:?}");
        assert!(!operation["responses"]["200"]["content"]["application/vnd.apache.parquet"].is_null());
    }

    #[test]
    fn every_file_has_a_path() {
        let of_routes: Vec<_> =
            ROUTES.iter().filter_map(Place::of).map(|place| (place.resource, place.format)).collect();
        let files =
            Resource::ALL.into_iter().flat_map(|resource| resource.formats().map(move |format| (resource, format)));
        assert_eq!(of_routes, files.collect::<Vec<_>>());
        for place in ROUTES.iter().filter_map(Place::of) {
            let is_brokerage = place.route.class == Class::Brokerage;
            assert_eq!(is_brokerage, place.resource != Resource::Transactions, "{}", place.route.path);
        }
    }
}
