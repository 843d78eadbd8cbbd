//! `GET /v1/export/...`: paths, parameters and headers of files. What goes into a file is in
//! `file.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, State};
use axum::response::Response;
use bellbird_api::http::documented::{ProfessionalErrors, ProviderErrors};
use bellbird_api::http::log::add_provider_calls;
use bellbird_api::http::problem::problem_from_read;
use bellbird_api::http::{Authorized, Problem, Query, Routes, UserState};
use bellbird_api::serve::ResponseTimeout;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, TRAILER, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Version};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Type};
use utoipa::openapi::{
    Content, Header, OpenApiBuilder, RefOr, Required, Response as ResponseDocs, ResponseBuilder,
};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::body::{CutOff, FileBody, ROWS_TRAILER, problem_of_format};
use super::file::{Export, OpenError};
use super::formats::{Format, LeftOut, Resource};
use super::queries::{FileQuery, HoldingsFileQuery, TradesFileQuery};
use super::request::FileRequest;
use crate::Interop;

/// A file holds a connection's opened credentials, and a place among its key's concurrent requests.
const FILE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A connection that the file lacks, and why. One line for each.
const LEFT_OUT: HeaderName = HeaderName::from_static("bellbird-left-out");

/// The routes of files. Each format has one, so that log and metrics name it.
pub fn routes() -> Routes<Interop> {
    let live = files(routes!(export_transactions), Resource::Transactions);
    let trades = files(routes!(export_trades), Resource::Trades);
    let holdings = files(routes!(export_holdings), Resource::Holdings);
    Routes::new()
        .users_with_codes(|interop: &Interop| &interop.context.quotas().live, live)
        .users_with_codes(
            |interop| &interop.context.quotas().brokerage,
            trades.merge(holdings),
        )
}

fn files(
    (schemas, paths, handler): UtoipaMethodRouter<UserState<Interop>>,
    resource: Resource,
) -> OpenApiRouter<UserState<Interop>> {
    let components = ComponentsBuilder::new().schemas_from_iter(schemas).build();
    let document = OpenApiBuilder::new()
        .paths(paths)
        .components(Some(components));
    let router = OpenApiRouter::with_openapi(document.build());
    resource.formats().fold(router, |router, format| {
        let path = format!("/v1/export/{}.{}", resource.as_str(), format.as_str());
        router.route(&path, handler.clone())
    })
}

/// Export transactions
///
/// The rows of `/v1/transactions` as a file, read live from the provider while it is sent, newest
/// first. With `accountId` it has one account, with `connectionId` all accounts of that connection,
/// and with neither all bank accounts of the user. `ofx`, `qif` and the layout `ynab` hold one
/// account, so they need `accountId`. Every `csv` but that layout ends its lines with the account's
/// `institutionName` and `accountNumber`, as `/v1/accounts` has them.
///
/// A file that cannot be completed is broken off: the transfer fails, and what was received is not
/// a whole file. A failure before the first byte is the usual error. With `partial=true`, a file of
/// several connections leaves out those that cannot be read when it begins, unless that is all of
/// them, and names each in `Bellbird-Left-Out`. The last line of a `jsonl` then has the member
/// `leftOut` only, a list of them. One request is one of the concurrent requests of the key until
/// the file ends. `HEAD` calls no provider. Needs HTTP/1.1.
#[utoipa::path(
    get, path = "/v1/export/transactions.{format}", tag = "Files",
    params(TransactionsFile, FileQuery),
    responses(
        TransactionsFile,
        (
            status = 400,
            description = "A parameter is invalid (one `details` entry each), `accountId` is \
                           missing for a format of one account, the format cannot hold the rows, \
                           the connection is not a banking connection, or the request is not \
                           HTTP/1.1.",
        ),
        ProviderErrors,
    ),
)]
async fn export_transactions(
    State(interop): State<Interop>,
    authorized: Authorized,
    request: FileHead,
    Query(query): Query<FileQuery>,
) -> Result<Response, Problem> {
    export(interop, authorized, request, Resource::Transactions, query).await
}

/// Export trades
///
/// The rows of `/v1/trades` as a file, account after account, each newest first. Without
/// `connectionId` and `accountId` it has all brokerage accounts of the user. Otherwise as the
/// export of transactions. Needs the Professional plan.
#[utoipa::path(
    get, path = "/v1/export/trades.{format}", tag = "Files",
    params(TableFile, TradesFileQuery),
    responses(
        TableFile,
        (status = 400, description = BROKERAGE_FILE),
        ProviderErrors,
        ProfessionalErrors,
    ),
)]
async fn export_trades(
    State(interop): State<Interop>,
    authorized: Authorized,
    request: FileHead,
    Query(query): Query<TradesFileQuery>,
) -> Result<Response, Problem> {
    export(interop, authorized, request, Resource::Trades, query.into()).await
}

/// Export holdings
///
/// The rows of `/v1/holdings` as a file, read live and not from the cache. Without `connectionId`
/// and `accountId` it has all brokerage accounts of the user. Otherwise as the export of
/// transactions. Needs the Professional plan.
#[utoipa::path(
    get, path = "/v1/export/holdings.{format}", tag = "Files",
    params(TableFile, HoldingsFileQuery),
    responses(
        TableFile,
        (status = 400, description = BROKERAGE_FILE),
        ProviderErrors,
        ProfessionalErrors,
    ),
)]
async fn export_holdings(
    State(interop): State<Interop>,
    authorized: Authorized,
    request: FileHead,
    Query(query): Query<HoldingsFileQuery>,
) -> Result<Response, Problem> {
    export(
        interop,
        authorized,
        request,
        Resource::Holdings,
        query.into(),
    )
    .await
}

const BROKERAGE_FILE: &str = "A parameter is invalid (one `details` entry each), the connection is not a brokerage \
    connection, or the request is not HTTP/1.1.";

/// What the head of a request says about the file.
struct FileHead {
    format: Format,
    route: MatchedPath,
    is_head: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for FileHead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if parts.version < Version::HTTP_11 {
            // Such a response ends where the connection ends, so a file that was cut off would seem
            // whole.
            return Err(Problem::bad_request(
                "Files need HTTP/1.1: with an older version, a file that breaks off looks whole",
            ));
        }
        let route = parts.extensions.get::<MatchedPath>().cloned();
        let route = route.ok_or(Problem::NoSuchPath)?;
        let format = route.as_str().rsplit_once('.');
        let format = format.and_then(|(_, format)| Format::from_name(format));
        Ok(Self {
            format: format.ok_or(Problem::NoSuchPath)?,
            route,
            is_head: parts.method == Method::HEAD,
        })
    }
}

/// Describes a file of transactions, and its format in the path.
struct TransactionsFile;

impl utoipa::IntoParams for TransactionsFile {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![format_parameter(Resource::Transactions)]
    }
}

impl utoipa::IntoResponses for TransactionsFile {
    fn responses() -> BTreeMap<String, RefOr<ResponseDocs>> {
        file_response(Resource::Transactions)
    }
}

/// Describes a file of trades or holdings, which have the same formats.
struct TableFile;

impl utoipa::IntoParams for TableFile {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![format_parameter(Resource::Trades)]
    }
}

impl utoipa::IntoResponses for TableFile {
    fn responses() -> BTreeMap<String, RefOr<ResponseDocs>> {
        file_response(Resource::Trades)
    }
}

fn format_parameter(resource: Resource) -> Parameter {
    let formats: Vec<_> = resource.formats().map(Format::as_str).collect();
    let text = ObjectBuilder::new().schema_type(Type::String);
    ParameterBuilder::new()
        .name("format")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The format."))
        .example(formats.first().map(|format| (*format).into()))
        .schema(Some(text.enum_values(Some(formats))))
        .build()
}

fn file_response(resource: Resource) -> BTreeMap<String, RefOr<ResponseDocs>> {
    let text = || Content::new(Some(ObjectBuilder::new().schema_type(Type::String)));
    let file = ResponseBuilder::new()
        .description("The file.")
        .header("Content-Disposition", Header::default())
        .header("Bellbird-Left-Out", Header::default());
    let file = resource.formats().fold(file, |file, format| {
        file.content(media_type(format), text())
    });
    [("200".to_owned(), file.into())].into()
}

/// The content type without its parameters.
fn media_type(format: Format) -> &'static str {
    format.content_type().split(';').next().unwrap_or_default()
}

async fn export(
    Interop { context, .. }: Interop,
    authorized: Authorized,
    FileHead {
        format,
        route,
        is_head,
    }: FileHead,
    resource: Resource,
    query: FileQuery,
) -> Result<Response, Problem> {
    let request = FileRequest {
        resource,
        format,
        options: query.options(format)?,
        connection_id: query
            .connection_id
            .map(|id| id.require("Connection"))
            .transpose()?,
        account_id: query
            .account_id
            .map(|id| id.require("Account"))
            .transpose()?,
        dates: query.dates(),
        partial: query.is_partial(),
    };
    let opened = Export::open(
        context.reads().clone(),
        context.storage(),
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
        let problem = problem_from_read(&error, noun, wrong_category(resource));
        if let Some(id) = connection_id {
            problem.at(id)
        } else {
            problem
        }
    })?;
    let name = export.name().content_disposition();
    let mut left_out = Vec::new();
    let mut response = if is_head {
        // As without a known length.
        Response::new(Body::from_stream(stream::empty::<Result<Bytes, CutOff>>()))
    } else {
        let file = FileBody::begin(context, route, authorized, export).await?;
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
