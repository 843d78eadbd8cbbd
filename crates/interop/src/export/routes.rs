//! `GET /v1/export/...`: paths, parameters and headers of files. What goes into a file is in
//! `file.rs`.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::log::add_provider_calls;
use bellbird_api::front::operation::PathDocs;
use bellbird_api::front::parameters::Id;
use bellbird_api::front::problem::problem_for_category;
use bellbird_api::front::{
    Authorized, Operation, Path, Problem, Query, QuotaClass, ResponseTimeout,
};
use bellbird_reads::ReadError;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, TRAILER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, Version};
use serde::de::DeserializeOwned;

use super::body::{CutOff, FileBody, ROWS_TRAILER, problem_of_format};
use super::file::{Export, OpenError};
use super::formats::{Format, LeftOut};
use super::queries::{FileQuery, HoldingsFileQuery, TradesFileQuery};
use super::request::{FileRequest, Resource};
use crate::Interop;

/// A file holds a connection's opened credentials, and a place among its key's concurrent requests.
const FILE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A connection that the file lacks, and why. One line for each.
const LEFT_OUT: HeaderName = HeaderName::from_static("bellbird-left-out");

/// The paths of files. Log and metrics name each format.
#[must_use]
pub fn paths() -> Vec<Path<Interop>> {
    vec![transactions(), trades(), holdings()]
}

/// The descriptions of the paths for the OpenAPI document.
#[must_use]
pub fn documented() -> Vec<PathDocs> {
    paths().into_iter().filter_map(Path::into_docs).collect()
}

fn live(interop: &Interop) -> &QuotaClass {
    &interop.access.quotas().live
}

fn brokerage(interop: &Interop) -> &QuotaClass {
    &interop.access.quotas().brokerage
}

fn transactions() -> Path<Interop> {
    let operation = operation("export_transactions", Resource::Transactions)
        .text(
            "Export transactions",
            "The rows of `/v1/transactions` as a file, read live from the provider while it is sent, newest first. \
             With `accountId` it has one account, with `connectionId` all accounts of that connection, and with \
             neither all bank accounts of the user. `ofx`, `qif` and the layout `ynab` hold one account, so they need \
             `accountId`. Every `csv` but that layout ends its lines with the account's `institutionName` and \
             `accountNumber`, as `/v1/accounts` has them.\n\n\
             A file that cannot be completed is broken off: the transfer fails, and what was received is not a whole \
             file. A failure before the first byte is the usual error. With `partial=true`, a file of several \
             connections leaves out those that cannot be read when it begins, unless that is all of them, and names \
             each in `Bellbird-Left-Out`. The last line of a `jsonl` then has the member `leftOut` only, a list of \
             them. One request is one of the concurrent requests of the key until the file ends. `HEAD` calls no \
             provider. Needs HTTP/1.1.",
        )
        .query::<FileQuery>()
        .error(
            400,
            "A parameter is invalid (one `details` entry each), `accountId` is missing for a format of one account, \
             the format cannot hold the rows, the connection is not a banking connection, or the request is not \
             HTTP/1.1.",
        );
    path::<FileQuery>(
        "/v1/export/transactions.{format}",
        live,
        Resource::Transactions,
        operation,
    )
}

fn trades() -> Path<Interop> {
    let operation = operation("export_trades", Resource::Trades)
        .text(
            "Export trades",
            "The rows of `/v1/trades` as a file, account after account, each newest first. Without `connectionId` and \
             `accountId` it has all brokerage accounts of the user. Otherwise as the export of transactions. Needs \
             the Professional plan.",
        )
        .query::<TradesFileQuery>()
        .error(400, BROKERAGE_FILE)
        .professional_errors();
    path::<TradesFileQuery>(
        "/v1/export/trades.{format}",
        brokerage,
        Resource::Trades,
        operation,
    )
}

fn holdings() -> Path<Interop> {
    let operation = operation("export_holdings", Resource::Holdings)
        .text(
            "Export holdings",
            "The rows of `/v1/holdings` as a file, read live and not from the cache. Without `connectionId` and \
             `accountId` it has all brokerage accounts of the user. Otherwise as the export of transactions. Needs \
             the Professional plan.",
        )
        .query::<HoldingsFileQuery>()
        .error(400, BROKERAGE_FILE)
        .professional_errors();
    path::<HoldingsFileQuery>(
        "/v1/export/holdings.{format}",
        brokerage,
        Resource::Holdings,
        operation,
    )
}

const BROKERAGE_FILE: &str = "A parameter is invalid (one `details` entry each), the connection is not a brokerage \
    connection, or the request is not HTTP/1.1.";

/// What the files of all resources have in common.
fn operation(id: &'static str, resource: Resource) -> Operation {
    let operation = Operation::new(id, "Files", "The file.")
        .headers(&["Content-Disposition", "Bellbird-Left-Out"])
        .provider_errors();
    resource.formats().fold(operation, |operation, format| {
        operation.text_file(media_type(format))
    })
}

/// The content type without its parameters.
fn media_type(format: Format) -> &'static str {
    format.content_type().split(';').next().unwrap_or_default()
}

fn path<Q: Into<FileQuery> + DeserializeOwned + Send + 'static>(
    path: &'static str,
    quota: fn(&Interop) -> &QuotaClass,
    resource: Resource,
    operation: Operation,
) -> Path<Interop> {
    let handler = async move |State(interop): State<Interop>,
                              authorized: Authorized,
                              version: Version,
                              method: Method,
                              Query(query): Query<Q>| {
        if version < Version::HTTP_11 {
            // Such a response ends where the connection ends, so a file that was cut off would seem
            // whole.
            let message =
                "Files need HTTP/1.1: with an older version, a file that breaks off looks whole";
            return Err(Problem::BadRequest {
                message: message.into(),
                details: Vec::new(),
            });
        }
        export(interop, authorized, method, resource, query.into()).await
    };
    let formats = resource.formats().map(Format::as_str).collect();
    Path::get(path, quota, handler)
        .with_values("format", formats)
        .described(operation)
}

async fn export(
    Interop { access, .. }: Interop,
    authorized: Authorized,
    method: Method,
    resource: Resource,
    query: FileQuery,
) -> Result<Response, Problem> {
    let format = authorized
        .route
        .path()
        .rsplit_once('.')
        .and_then(|(_, format)| Format::from_name(format));
    let format = format.ok_or(Problem::NoSuchPath)?;
    let request = FileRequest {
        resource,
        format,
        options: query.options(format)?,
        connection_id: query
            .connection_id
            .map(|Id(id)| id.ok_or(Problem::NotFound("Connection")))
            .transpose()?,
        account_id: query
            .account_id
            .map(|Id(id)| id.ok_or(Problem::NotFound("Account")))
            .transpose()?,
        span: query.span(),
        partial: query.is_partial(),
    };
    let category = resource.category();
    let opened = Export::open(
        access.reads().clone(),
        access.storage(),
        authorized.caller.clone(),
        request,
        authorized.now,
    )
    .await;
    let export = opened.map_err(|error| {
        let (error, noun, connection_id) = match error {
            OpenError::Connection(error) => (error, "Connection", request.connection_id),
            OpenError::Account(error) => (error, "Account", request.connection_id),
            OpenError::Open {
                connection_id,
                error,
            } => (error, "Connection", Some(connection_id)),
            OpenError::Format(error) => return problem_of_format(error),
        };
        if matches!(error, ReadError::WrongCategory) {
            return Problem::BadRequest {
                message: wrong_category(resource).into(),
                details: Vec::new(),
            };
        }
        let problem = problem_for_category(&error, noun, category);
        if let Some(id) = connection_id {
            problem.at(id)
        } else {
            problem
        }
    })?;
    let name = export.name().content_disposition();
    let mut left_out = Vec::new();
    let mut response = if method == Method::HEAD {
        // As without a known length.
        Response::new(Body::from_stream(stream::empty::<Result<Bytes, CutOff>>()))
    } else {
        let file = FileBody::begin(access, authorized, export).await?;
        add_provider_calls(file.provider_calls());
        left_out.extend_from_slice(file.left_out());
        Response::new(file.into_body())
    };
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(format.content_type()),
    );
    headers.insert(CONTENT_DISPOSITION, name);
    headers.insert(TRAILER, HeaderValue::from(ROWS_TRAILER));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    for LeftOut {
        connection_id,
        error,
        ..
    } in left_out
    {
        let value = HeaderValue::try_from(format!("{connection_id}; {error}"));
        headers.append(LEFT_OUT, value.map_err(|_| Problem::Internal)?);
    }
    response
        .extensions_mut()
        .insert(ResponseTimeout(FILE_TIMEOUT));
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
