//! `GET /simplefin/accounts`: selects the accounts of a request, and streams the account set.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bellbird_api::http::json::{json_bytes, write_json};
use bellbird_api::http::log::add_provider_calls;
use bellbird_api::http::{Authorized, Problem};
use bellbird_api::serve::ResponseTimeout;
use bellbird_domain::{Account, AccountId, Connection, ConnectionStatus, Currency};
use bellbird_reads::{SelectError, Selected, Selection, UnreadableConnection};
use futures_util::stream::{self, StreamExt as _};
use http::Uri;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot::error::RecvError;

use super::findings::Finding;
use super::params::SetParams;
use super::read::{AccountReads, AccountsRequest, ReadAccount, problem_of};
use super::view::{RequestedAccount, SetConnection};
use crate::Interop;

/// Accounts in one response.
const ACCOUNTS_MAX: u32 = 500;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn list_accounts(
    State(interop): State<Interop>,
    Authorized {
        caller,
        now,
        permit,
        ..
    }: Authorized,
    uri: Uri,
) -> Result<Response, Problem> {
    let params = SetParams::read(uri.query())?;
    let call = interop.context.call_context(&caller);
    let request = Arc::new(AccountsRequest {
        interop,
        caller,
        now,
        _permit: permit,
        call,
        params,
    });
    let mut set = AccountSet::select(request).await?;
    // Nothing is sent before the first account is there: until then, a failure can still be the
    // whole response.
    let first = set.next().await.map_err(|_| Problem::Internal)?;
    if let (None, Some(problem)) = (&first, set.problem.take()) {
        return Err(problem);
    }
    add_provider_calls(set.request.call.calls());
    let mut response = json_bytes(body(set, first));
    response
        .extensions_mut()
        .insert(ResponseTimeout(RESPONSE_TIMEOUT));
    Ok(response)
}

/// The response to a request, while it is sent.
struct AccountSet {
    request: Arc<AccountsRequest>,
    connections: Vec<Connection>,
    reads: AccountReads,
    /// The room of the account that is being sent.
    sending: Option<OwnedSemaphorePermit>,
    findings: Vec<Finding>,
    /// What to respond if no account can be shown. None if the account set says it: the requested
    /// accounts are gone.
    problem: Option<Problem>,
}

impl AccountSet {
    /// Finds the requested accounts, and starts to read them.
    async fn select(request: Arc<AccountsRequest>) -> Result<Self, Problem> {
        let api = &request.interop.context;
        let ids = request.params.accounts.ids.as_deref();
        let selection = Selection {
            account_ids: ids,
            ..Selection::default()
        };
        let found = api.reads().select(&request.caller, selection).await;
        let Selected {
            connections: found,
            unknown,
        } = found.map_err(|error| match error {
            SelectError::Connection(error) | SelectError::Account(error) => problem_of(&error),
        })?;
        let (all, _) = api
            .storage()
            .accounts()
            .list(request.caller.user_id, ACCOUNTS_MAX, 0)
            .await?;
        let (mut accounts, mut connections, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        for connection in found {
            match connection {
                Ok(selected) => {
                    connections.push(selected.context.connection.clone());
                    accounts.extend(selected.accounts().map(|account| RequestedAccount {
                        account: account.clone(),
                        name: shown_name(account),
                        selected: selected.with_accounts(vec![account.id]),
                    }));
                }
                Err(failed) => {
                    connections.push(failed.connection.clone());
                    unreadable.push(failed);
                }
            }
        }
        // The order of `/v1/accounts`.
        accounts.sort_by_cached_key(|shown| (shown.account.name.clone(), shown.account.id));
        let mut findings = Vec::new();
        if request.params.accounts.has_unknown || !unknown.is_empty() {
            findings.push(Finding::unknown_account());
        }
        if request.params.is_mistaken() {
            findings.push(Finding::mistaken_window());
        }
        if accounts.len() > ACCOUNTS_MAX as usize {
            accounts.truncate(ACCOUNTS_MAX as usize);
            findings.push(Finding::too_many_accounts(accounts.len()));
        }
        connections.retain(|connection| {
            accounts
                .iter()
                .any(|shown| shown.account.connection_id == connection.id)
                || unreadable
                    .iter()
                    .any(|failed| failed.connection.id == connection.id)
        });
        let broken = connections
            .iter()
            .filter(|connection| connection.status != ConnectionStatus::Active);
        findings.extend(broken.map(|connection| Finding::attention(connection, connection.status)));
        let reads = AccountReads::start(&request, accounts);
        let mut set = Self {
            request: Arc::clone(&request),
            connections,
            reads,
            sending: None,
            findings,
            problem: None,
        };
        for UnreadableConnection {
            connection, error, ..
        } in unreadable
        {
            let accounts = all
                .iter()
                .filter(|account| account.connection_id == connection.id);
            for account in
                accounts.filter(|account| ids.is_none_or(|ids| ids.contains(&account.id)))
            {
                set.leave_out(
                    &connection,
                    account.id,
                    &shown_name(account),
                    problem_of(&error),
                );
            }
        }
        Ok(set)
    }

    /// The JSON of the next account that could be read. The others are named in the findings.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, RecvError> {
        while let Some(ReadAccount { account, outcome }) = self.reads.next().await? {
            let RequestedAccount {
                account,
                name,
                selected,
            } = &*account;
            let connection = &selected.context.connection;
            match outcome {
                Ok(read) => {
                    let cut = read
                        .cut_at
                        .map(|rows| Finding::cut(connection, account.id, name, rows));
                    self.findings.extend(cut);
                    self.sending = read.room;
                    return Ok(Some(read.json));
                }
                Err(problem) => self.leave_out(connection, account.id, name, problem),
            }
        }
        Ok(None)
    }

    fn leave_out(&mut self, connection: &Connection, id: AccountId, name: &str, problem: Problem) {
        if let Problem::Reconnect { status, .. } = problem
            && !self
                .findings
                .iter()
                .any(|finding| finding.is_attention_to(connection.id))
        {
            self.findings.push(Finding::attention(connection, status));
        }
        self.findings.push(Finding::failed(connection, id, name));
        // Actual advises to unlink an account that a set lacks, also one whose user only has to
        // reconnect.
        let longest_wait = self.problem.as_ref().and_then(Problem::retry_after);
        if !matches!(problem, Problem::NotFound(_)) && problem.retry_after() >= longest_wait {
            self.problem = Some(problem);
        }
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        let root_url = self.request.interop.simplefin_url();
        let connections: Vec<_> = self
            .connections
            .iter()
            .map(|one| SetConnection::new(one, &root_url))
            .collect();
        out.extend_from_slice(br#"],"connections":"#);
        write_json(&connections, out);
        out.extend_from_slice(br#","errlist":"#);
        write_json(&self.findings, out);
        out.extend_from_slice(br#","errors":"#);
        write_json(
            &self.findings.iter().map(Finding::text).collect::<Vec<_>>(),
            out,
        );
        out.push(b'}');
    }
}

/// The account set, account by account. Connections and errors come last, when they are known. It
/// breaks off if a read panics.
fn body(set: AccountSet, first: Option<Vec<u8>>) -> Body {
    let mut start = br#"{"accounts":["#.to_vec();
    let Some(first) = first else {
        set.write_end(&mut start);
        return Body::from(start);
    };
    start.extend(first);
    let rest = stream::try_unfold(Some(set), |set| async move {
        let Some(mut set) = set else { return Ok(None) };
        let mut chunk = Vec::new();
        match set.next().await? {
            Some(account) => {
                chunk.push(b',');
                chunk.extend(account);
                Ok(Some((chunk, Some(set))))
            }
            None => {
                set.write_end(&mut chunk);
                Ok(Some((chunk, None)))
            }
        }
    });
    Body::from_stream(stream::iter([Ok::<_, RecvError>(start)]).chain(rest))
}

/// The name of an account behind its currency and last digits, which SimpleFIN has no members for
/// that all programs show. They come first because lists cut the end of a name, and always because
/// a name has to stay when the user links another account.
fn shown_name(account: &Account) -> String {
    let currency = Some(account.currency).filter(|currency| *currency != Currency::UNKNOWN);
    let digits = account
        .number
        .as_ref()
        .map(|number| number.as_str().trim_start_matches('x'));
    let parts = [
        currency.as_ref().map(Currency::as_str),
        digits,
        Some(&account.name),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
