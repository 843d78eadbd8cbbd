//! What the handlers that read from providers share: the caller's connection, and errors of a read.

use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, ConnectionCategory, ConnectionId};
use bellbird_reads::{ConnectionContext, ReadError};

use crate::front::access::Access;
use crate::front::parameters::Id;
use crate::front::problem::{Problem, problem_from_read};

/// Maps a failed read to an HTTP error. `category` is the category that the endpoint needs.
#[must_use]
pub fn problem_for_category(error: &ReadError, resource: &'static str, category: ConnectionCategory) -> Problem {
    let wrong_category = match category {
        ConnectionCategory::Banking => "The connection must be a banking connection",
        ConnectionCategory::Brokerage => "The connection must be a brokerage connection",
    };
    problem_from_read(error, resource, wrong_category)
}

impl Access {
    /// Finds the caller's connection and checks its category, and that it has the requested account. Text that is not
    /// an id is not found, like an unknown id. The category is checked before the account.
    pub async fn connection_context(
        &self,
        caller: &Caller,
        Id(connection_id): Id<ConnectionId>,
        account_id: Option<Id<AccountId>>,
        category: ConnectionCategory,
    ) -> Result<(Arc<ConnectionContext>, Option<AccountId>), Problem> {
        let problem = |error: ReadError| problem_for_category(&error, "Connection", category);
        let connection_id = connection_id.ok_or(Problem::NotFound("Connection"))?;
        let context = self.reads().connection_context(caller, connection_id).await.map_err(problem)?;
        context.require_category(category).map_err(problem)?;
        let account_id = account_id.map(|Id(id)| id.ok_or(Problem::NotFound("Account"))).transpose()?;
        context.accounts_of(account_id).map_err(|error| problem_for_category(&error, "Account", category))?;
        Ok((context, account_id))
    }

    /// Maps a failed read to an HTTP error.
    ///
    /// If the provider reports that the consent is gone, the connection may have been removed meanwhile: that is a 404.
    /// Otherwise the user must reconnect: that is a 503, and a background refresh updates the status.
    pub async fn after_failed_read(&self, caller: &Caller, context: &ConnectionContext, error: &ReadError) -> Problem {
        let ReadError::Reconnect(status) = error else {
            return problem_for_category(error, "Account", context.connection.category);
        };
        let id = context.connection.id;
        match self.inner.storage.connections().find(caller.user_id, id).await {
            Ok(Some(_)) => {
                self.inner.connections.refresh_in_background(caller.user_id, id);
                Problem::Reconnect(*status)
            }
            Ok(None) => Problem::NotFound("Connection"),
            Err(error) => Problem::from(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wrong_category_names_the_category_that_the_endpoint_needs() {
        let message = |category| problem_for_category(&ReadError::WrongCategory, "Account", category);
        let bad = |text: &'static str| Problem::BadRequest { message: text.into(), details: Vec::new() };
        assert_eq!(message(ConnectionCategory::Banking), bad("The connection must be a banking connection"));
        assert_eq!(message(ConnectionCategory::Brokerage), bad("The connection must be a brokerage connection"));
        let not_found = problem_for_category(&ReadError::NotFound, "Account", ConnectionCategory::Banking);
        assert_eq!(not_found, Problem::NotFound("Account"));
        let unavailable = ReadError::Unavailable { retry_after: Duration::from_millis(1_500) };
        let unavailable = problem_for_category(&unavailable, "Account", ConnectionCategory::Banking);
        assert_eq!(unavailable, Problem::ProviderUnavailable(2));
    }
}
