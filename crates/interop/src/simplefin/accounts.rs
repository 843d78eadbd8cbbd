//! `GET /simplefin/accounts`: selects the accounts of a request, and streams the account set.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::json::write_json;
use bellbird_api::front::log::add_provider_calls;
use bellbird_api::front::{Authorized, Problem};
use bellbird_domain::{Account, Connection, ConnectionStatus};
use futures_util::stream::{self, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Uri};
use tokio::task::JoinError;

use super::SimpleFin;
use super::findings::Finding;
use super::params::SetParams;
use super::read::{AccountReads, AccountsRequest, ReadAccount, RequestedAccount};
use super::view::ConnectionView;

/// Accounts in one response.
const ACCOUNTS_MAX: u32 = 500;

pub(super) async fn list_accounts(
    State(server): State<SimpleFin>,
    Authorized { caller, now, permit, .. }: Authorized,
    uri: Uri,
) -> Result<Response, Problem> {
    let params = SetParams::read(uri.query())?;
    let call = server.interop.access.call_context(&caller);
    let request = Arc::new(AccountsRequest { server, caller, now, _permit: permit, call, params });
    let mut set = AccountSet::select(request).await?;
    // Nothing is sent before the first account is there: until then, a failure can still be the whole response.
    let first = set.next().await.map_err(|_| Problem::Internal)?;
    if let (None, Some(problem)) = (&first, set.problem.take()) {
        return Err(problem);
    }
    add_provider_calls(set.request.call.calls());
    let mut response = Response::new(body(set, first));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The response to a request, while it is sent.
struct AccountSet {
    request: Arc<AccountsRequest>,
    connections: Vec<Arc<Connection>>,
    reads: AccountReads,
    findings: Vec<Finding>,
    /// What to respond if no account can be shown. None if the account set says it: the requested accounts are gone.
    problem: Option<Problem>,
}

impl AccountSet {
    /// Finds the requested accounts among those of the caller, and starts to read them.
    async fn select(request: Arc<AccountsRequest>) -> Result<Self, Problem> {
        let (storage, user_id) = (request.server.interop.access.storage(), request.caller.user_id);
        let connections = storage.connections().list(user_id).await?;
        let (accounts, total) = storage.accounts().list(user_id, ACCOUNTS_MAX, 0).await?;
        let is_cut = total > accounts.len() as u64;
        let names = shown_names(&accounts);
        let mut wanted = request.params.accounts.ids.clone();
        let mut chosen = Vec::new();
        for (account, name) in accounts.into_iter().zip(names) {
            if wanted.as_mut().is_none_or(|wanted| wanted.remove(&account.id)) {
                chosen.push((account, name));
            }
        }
        // Requested accounts beyond the first ones.
        let others: Vec<_> = wanted.iter().flatten().copied().filter(|_| is_cut).collect();
        if !others.is_empty() {
            for account in storage.accounts().find(user_id, &others).await? {
                wanted.as_mut().map(|wanted| wanted.remove(&account.id));
                let name = account.name.clone();
                chosen.push((account, name));
            }
        }
        let mut findings = Vec::new();
        if request.params.accounts.has_unknown || wanted.as_ref().is_some_and(|wanted| !wanted.is_empty()) {
            findings.push(Finding::unknown_account());
        }
        if request.params.is_mistaken() {
            findings.push(Finding::mistaken_window());
        }
        if is_cut && wanted.is_none() {
            findings.push(Finding::too_many_accounts(chosen.len()));
        }
        let (connections, accounts) = join_accounts(connections, chosen);
        let broken = connections.iter().filter(|connection| connection.status != ConnectionStatus::Active);
        findings.extend(broken.map(|connection| Finding::attention(connection, connection.status)));
        let reads = AccountReads::start(&request, accounts);
        Ok(Self { request, connections, reads, findings, problem: None })
    }

    /// The JSON of the next account that could be read. The others are named in the findings.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, JoinError> {
        while let Some(ReadAccount { account, outcome, .. }) = self.reads.next().await? {
            let RequestedAccount { account, name, connection } = &*account;
            let problem = match outcome {
                Ok(read) => {
                    let cut = read.cut_at.map(|rows| Finding::cut(connection, account.id, name, rows));
                    self.findings.extend(cut);
                    return Ok(Some(read.json));
                }
                Err(problem) => problem,
            };
            if let Problem::Reconnect(status) = problem
                && !self.findings.iter().any(|finding| finding.is_attention_to(connection.id))
            {
                self.findings.push(Finding::attention(connection, status));
            }
            self.findings.push(Finding::failed(connection, account.id, name));
            // Actual advises to unlink an account that a set lacks, also one whose user only has to reconnect.
            let longest_wait = self.problem.as_ref().and_then(Problem::retry_after);
            if !matches!(problem, Problem::NotFound(_)) && problem.retry_after() >= longest_wait {
                self.problem = Some(problem);
            }
        }
        Ok(None)
    }

    fn write_end(&self, out: &mut Vec<u8>) {
        let root_url = &self.request.server.inner.root_url;
        let connections: Vec<_> = self.connections.iter().map(|one| ConnectionView::new(one, root_url)).collect();
        out.extend_from_slice(br#"],"connections":"#);
        write_json(&connections, out);
        out.extend_from_slice(br#","errlist":"#);
        write_json(&self.findings, out);
        out.extend_from_slice(br#","errors":"#);
        write_json(&self.findings.iter().map(Finding::text).collect::<Vec<_>>(), out);
        out.push(b'}');
    }
}

/// The account set, account by account. Connections and errors come last, when they are known. It breaks off if a read
/// panics.
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
    Body::from_stream(stream::iter([Ok::<_, JoinError>(start)]).chain(rest))
}

/// Gives each account its connection. Returns the connections that have any of them.
fn join_accounts(
    connections: Vec<Connection>,
    accounts: Vec<(Account, String)>,
) -> (Vec<Arc<Connection>>, Vec<RequestedAccount>) {
    let is_used = |connection: &Connection| accounts.iter().any(|(account, _)| account.connection_id == connection.id);
    let connections: Vec<_> = connections.into_iter().filter(is_used).map(Arc::new).collect();
    let mut joined = Vec::new();
    for (account, name) in accounts {
        // None if the connection was removed between the two reads.
        if let Some(connection) = connections.iter().find(|other| other.id == account.connection_id) {
            joined.push(RequestedAccount { account, name, connection: Arc::clone(connection) });
        }
    }
    (connections, joined)
}

/// The names of the accounts, with the masked number behind a name that several have: SimpleFIN has no member for it.
fn shown_names(accounts: &[Account]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for account in accounts {
        *counts.entry(&account.name).or_default() += 1;
    }
    let name = |account: &Account| match &account.number {
        Some(number) if counts.get(account.name.as_str()) > Some(&1) => {
            format!("{} ({})", account.name, number.as_str())
        }
        _ => account.name.clone(),
    };
    accounts.iter().map(name).collect()
}
