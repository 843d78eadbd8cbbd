//! Extractors: the caller, the query parameters, and the connection that a request is about.
//!
//! The caller and the connection exist for the state [`UserState`] only, which a handler gets only
//! in a group of routes with a quota class. So a handler that needs a caller cannot be an open
//! route.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use bellbird_domain::{AccountId, Caller, ConnectionCategory, DateFilter, Page};
use bellbird_reads::{ConnectionContext, QueryKey, ReadError, WindowKey};
use http::request::Parts;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::http::context::ApiContext;
use crate::http::parameters::{self, AccountParam, ConnectionParam, DateBound, Id, RawParams};
use crate::http::problem::{Problem, problem_for_category};
use crate::http::quota::{LivePermit, QuotaClass};

/// A request that passed the guard: its key is valid, its plan is sufficient, and its quota is not
/// used up.
#[derive(Clone)]
#[non_exhaustive]
pub struct Authorized {
    pub caller: Caller,
    /// The time at which the guard received the request.
    pub now: Timestamp,
    pub permit: LivePermit,
    pub quota: QuotaClass,
}

/// The state of handlers for users. Only [`Interface::add`](crate::http::Interface::add) makes one,
/// for routes behind the guard.
#[derive(Clone)]
pub struct UserState<S> {
    state: S,
    context: ApiContext,
}

impl<S> UserState<S> {
    pub(crate) fn new(state: S, context: ApiContext) -> Self {
        Self { state, context }
    }

    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<S: Send + Sync> FromRequestParts<UserState<S>> for Authorized {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &UserState<S>) -> Result<Self, Problem> {
        let authorized = parts.extensions.get::<Self>().cloned();
        authorized.ok_or(Problem::Internal)
    }
}

/// The query parameters of an endpoint.
pub struct Query<T>(pub T);

/// A query or a body without parameters.
#[derive(Deserialize)]
pub struct NoParams {}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(read_query(parts)?))
    }
}

fn read_query<T: DeserializeOwned>(parts: &Parts) -> Result<T, Problem> {
    Ok(parameters::read(RawParams::Query(
        parts.uri.query().unwrap_or_default(),
    ))?)
}

impl<T> Id<T> {
    /// The id. Text that is not an id is treated as an unknown one.
    pub fn require(self, noun: &'static str) -> Result<T, Problem> {
        self.0.ok_or(Problem::NotFound(noun))
    }
}

/// The range between the parameters `from` and `to`.
pub fn date_filter(from: Option<DateBound>, to: Option<DateBound>) -> DateFilter {
    let bound = |date: Option<DateBound>| date.map(|DateBound(bound)| bound);
    DateFilter {
        from: bound(from),
        to: bound(to),
    }
}

/// Query parameters that name a connection, and perhaps one of its accounts.
pub trait ConnectionQuery: DeserializeOwned + Send {
    fn ids(&self) -> (ConnectionParam, Option<AccountParam>);
}

/// The banking connection of the caller that the query names.
pub struct BankingConnection<Q>(pub Selected<Q>);

/// The brokerage connection of the caller that the query names.
pub struct BrokerageConnection<Q>(pub Selected<Q>);

/// A connection of the caller, and the query that named it.
pub struct Selected<Q> {
    pub context: Arc<ConnectionContext>,
    /// An account of the connection, or none for all of them.
    pub account_id: Option<AccountId>,
    pub query: Q,
}

impl<Q> Selected<Q> {
    /// The rows of this connection that the caller asks for.
    pub(crate) fn window(&self, caller: &Caller, dates: DateFilter, page: Page) -> WindowKey {
        let query = QueryKey {
            key_id: caller.key_id,
            connection_id: self.context.connection.id,
            account_id: self.account_id,
            dates,
        };
        WindowKey { query, page }
    }

    /// The requested accounts.
    pub fn account_ids(&self) -> Vec<AccountId> {
        let accounts = self
            .context
            .accounts_of(self.account_id)
            .into_iter()
            .flatten();
        accounts.map(|account| account.id).collect()
    }
}

impl<S: Send + Sync, Q: ConnectionQuery> FromRequestParts<UserState<S>> for BankingConnection<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &UserState<S>) -> Result<Self, Problem> {
        let category = ConnectionCategory::Banking;
        select(state, parts, category).await.map(Self)
    }
}

impl<S: Send + Sync, Q: ConnectionQuery> FromRequestParts<UserState<S>> for BrokerageConnection<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &UserState<S>) -> Result<Self, Problem> {
        let category = ConnectionCategory::Brokerage;
        select(state, parts, category).await.map(Self)
    }
}

/// Finds the caller's connection, checks its category, and then that it has the requested account.
async fn select<S: Send + Sync, Q: ConnectionQuery>(
    state: &UserState<S>,
    parts: &mut Parts,
    category: ConnectionCategory,
) -> Result<Selected<Q>, Problem> {
    let problem = |error: ReadError| problem_for_category(&error, "Connection", category);
    let query: Q = read_query(parts)?;
    let (connection_id, account_id) = query.ids();
    let connection_id = connection_id.require("Connection")?;
    let Authorized { caller, .. } = parts.extensions.get().ok_or(Problem::Internal)?;
    let reads = state.context.reads();
    let failed = |error| problem(error).at(connection_id);
    let context = reads.load_context(caller, connection_id).await;
    let context = context.map_err(failed)?;
    context.require_category(category).map_err(problem)?;
    let account_id = account_id.map(|id| id.require("Account")).transpose()?;
    context
        .accounts_of(account_id)
        .map_err(|error| problem_for_category(&error, "Account", category))?;
    reads.require_consent(&context).map_err(failed)?;
    Ok(Selected {
        context,
        account_id,
        query,
    })
}
