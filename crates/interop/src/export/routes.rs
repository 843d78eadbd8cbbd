//! `GET /v1/export/...`: parameters, headers and errors of files. What goes into a file is in `file.rs`.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bellbird_domain::{AccountId, ConnectionId, Span};
use bellbird_requests::extract::{ProviderCalls, Query};
use bellbird_requests::live::problem_for_category;
use bellbird_requests::params::{DateBound, Id};
use bellbird_requests::routes::DoorTable;
use bellbird_requests::{Admitted, Class, Credentials, Door, Problem, Route, route};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Version};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::FileBody;
use super::file::{Export, FileRequest};
use super::format::{FileFormat, Resource};
use super::source::{Selection, SelectionError};
use crate::Interop;

type ConnectionParam = Id<ConnectionId>;
type AccountParam = Id<AccountId>;

static ROUTES: [Route; 1] = [route("/v1/export/transactions.jsonl", Class::Live)];

pub(crate) fn door(interop: Interop) -> Door {
    let table = DoorTable {
        prefix: "/v1/export",
        routes: &ROUTES,
        credentials: Credentials::Bearer,
        deny: |problem| problem.into_response(),
    };
    let mut router = Router::new();
    for route in &ROUTES {
        let format = FileFormat { resource: Resource::Transactions };
        let answer = move |state: State<Interop>, admitted, version, method, query: Query<TransactionsFile>| async move {
            let asked = query.0;
            let asked = Asked { format, connection_id: asked.connection_id, account_id: asked.account_id, span: Span { from: asked.from.map(|b| b.0), to: asked.to.map(|b| b.0) } };
            export_file(&state.0, admitted, version, method, route, asked).await
        };
        router = router.route(route.path, get(answer));
    }
    Door { table, router: router.with_state(interop) }
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct TransactionsFile {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: Option<ConnectionParam>,
    /// One account: an `id` from `/v1/accounts`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
    /// The oldest end, inclusive, as of `/v1/transactions`. Default: 30 days (720 hours) ago.
    #[param(inline, example = "2026-10-01")]
    from: Option<DateBound>,
    /// The newest end, inclusive, as of `/v1/transactions`. Default: now.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    to: Option<DateBound>,
}

/// What a request asks for.
struct Asked {
    format: FileFormat,
    connection_id: Option<ConnectionParam>,
    account_id: Option<AccountParam>,
    span: Span,
}

async fn export_file(
    interop: &Interop,
    admitted: Admitted,
    version: Version,
    method: Method,
    route: &'static Route,
    asked: Asked,
) -> Result<Response, Problem> {
    if version < Version::HTTP_11 {
        // Such an answer ends where the connection ends, so a file that was cut off would look whole.
        let message = "Files need HTTP/1.1: with an older version, a file that breaks off looks complete";
        return Err(Problem::BadRequest { message: message.into(), details: Vec::new() });
    }
    let Admitted { caller, now, .. } = admitted;
    let category = asked.format.resource.category();
    let connection_id = asked.connection_id.map(|Id(id)| id.ok_or(Problem::NotFound("Connection"))).transpose()?;
    let account_id = asked.account_id.map(|Id(id)| id.ok_or(Problem::NotFound("Account"))).transpose()?;
    let selection = Selection { connection_id, account_id };
    let request = FileRequest { format: asked.format, selection, span: asked.span };
    let access = interop.access.clone();
    let opened = Export::open(access.reads().clone(), access.storage(), caller.clone(), request, now).await;
    let export = opened.map_err(|error| match error {
        SelectionError::Connection(error) => problem_for_category(&error, "Connection", category),
        SelectionError::Account(error) => problem_for_category(&error, "Account", category),
    })?;
    let name = export.name().content_disposition();
    let mut response = if method == Method::HEAD {
        Response::new(Body::from_stream(futures_util::stream::empty::<Result<bytes::Bytes, super::body::CutOff>>()))
    } else {
        let file = FileBody::begin(access, route.class, caller, route.path, export).await?;
        let calls = ProviderCalls(file.provider_calls());
        let mut response = Response::new(file.into_body());
        response.extensions_mut().insert(calls);
        response
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CONTENT_DISPOSITION, name);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
