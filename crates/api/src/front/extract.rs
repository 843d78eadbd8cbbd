//! Extractors: the caller, the query parameters, and the connection that a request is about.
//!
//! The caller and the connection exist for the state [`Guarded`] only, which a handler gets only if
//! it was mounted with a quota class. So a handler that needs a caller cannot be mounted as an open
//! path.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use bellbird_domain::{AccountId, Caller, ConnectionCategory};
use bellbird_reads::{ConnectionContext, ReadError};
use http::request::Parts;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::front::access::Access;
use crate::front::parameters::{self, AccountParam, ConnectionParam, Id, RawParams};
use crate::front::problem::{Problem, problem_for_category};
use crate::front::quota::{LivePermit, QuotaClass};
use crate::front::route::Route;

/// A request that passed the guard: its key is valid, its plan is sufficient, and its quota is not
/// used up.
#[derive(Clone)]
#[non_exhaustive]
pub struct Authorized {
    pub caller: Caller,
    /// The time at which the guard received the request.
    pub now: Timestamp,
    pub permit: LivePermit,
    pub route: Arc<Route>,
    pub quota: QuotaClass,
}

/// The state of a handler behind the guard. Nothing else can make one.
#[derive(Clone)]
pub struct Guarded<S> {
    state: S,
    access: Access,
    authorized: Authorized,
}

impl<S> Guarded<S> {
    pub(crate) fn new(state: S, access: Access, authorized: Authorized) -> Self {
        Self {
            state,
            access,
            authorized,
        }
    }

    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<S: Send + Sync> FromRequestParts<Guarded<S>> for Authorized {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, guarded: &Guarded<S>) -> Result<Self, Problem> {
        Ok(guarded.authorized.clone())
    }
}

/// The query parameters of an endpoint.
pub struct Query<T>(pub T);

/// An endpoint without query parameters.
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

impl<S: Send + Sync, Q: ConnectionQuery> FromRequestParts<Guarded<S>> for BankingConnection<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, guarded: &Guarded<S>) -> Result<Self, Problem> {
        guarded
            .select(read_query(parts)?, ConnectionCategory::Banking)
            .await
            .map(Self)
    }
}

impl<S: Send + Sync, Q: ConnectionQuery> FromRequestParts<Guarded<S>> for BrokerageConnection<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, guarded: &Guarded<S>) -> Result<Self, Problem> {
        guarded
            .select(read_query(parts)?, ConnectionCategory::Brokerage)
            .await
            .map(Self)
    }
}

impl<S: Send + Sync> Guarded<S> {
    /// Finds the caller's connection, checks its category, and then that it has the requested
    /// account. Text that is not an id is treated as an unknown id.
    async fn select<Q: ConnectionQuery>(
        &self,
        query: Q,
        category: ConnectionCategory,
    ) -> Result<Selected<Q>, Problem> {
        let problem = |error: ReadError| problem_for_category(&error, "Connection", category);
        let (Id(connection_id), account_id) = query.ids();
        let connection_id = connection_id.ok_or(Problem::NotFound("Connection"))?;
        let context = self
            .access
            .reads()
            .connection_context(&self.authorized.caller, connection_id)
            .await;
        let context = context.map_err(|error| problem(error).at(connection_id))?;
        context.require_category(category).map_err(problem)?;
        let account_id = account_id
            .map(|Id(id)| id.ok_or(Problem::NotFound("Account")))
            .transpose()?;
        context
            .accounts_of(account_id)
            .map_err(|error| problem_for_category(&error, "Account", category))?;
        Ok(Selected {
            context,
            account_id,
            query,
        })
    }
}
