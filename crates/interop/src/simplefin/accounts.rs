//! `GET /simplefin/accounts`: selects the accounts of a request, and streams the account set.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::json::write_json;
use bellbird_api::front::log::add_provider_calls;
use bellbird_api::front::{Authorized, Problem};
use bellbird_domain::{Account, Caller, Connection};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Uri};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::SimpleFin;
use super::collect::{Collector, End, Item, Job, Step};
use super::findings::Finding;
use super::params::Params;
use super::view::ConnectionView;

/// Accounts in one response.
const ACCOUNTS_MAX: u32 = 500;

pub(super) async fn list_accounts(
    State(server): State<SimpleFin>,
    Authorized { caller, now, permit, .. }: Authorized,
    uri: Uri,
) -> Result<Response, Problem> {
    let params = Params::read(uri.query())?;
    let (job, findings) = select(server, caller, now, params).await?;
    let collector = Collector::new(job, findings);
    let job = Arc::clone(collector.job());
    let mut steps = collector.start(permit);
    // Nothing is sent before the first account is there: until then, a failure can still be the whole response.
    let first = match steps.recv().await {
        Some(Step::End(End { problem: Some(problem), .. })) => return Err(problem),
        Some(first) => first,
        None => return Err(Problem::Internal),
    };
    add_provider_calls(job.call.calls());
    let mut response = Response::new(body(job, steps, first));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Finds the requested accounts among those of the caller.
async fn select(
    server: SimpleFin,
    caller: Caller,
    now: Timestamp,
    params: Params,
) -> Result<(Job, Vec<Finding>), Problem> {
    let storage = server.interop.access.storage();
    let connections = storage.connections().list(caller.user_id).await?;
    let (accounts, total) = storage.accounts().list(caller.user_id, ACCOUNTS_MAX, 0).await?;
    let is_cut = total > accounts.len() as u64;
    let names = shown_names(&accounts);
    let mut wanted = params.accounts.clone();
    let mut chosen = Vec::new();
    for (account, name) in accounts.into_iter().zip(names) {
        if wanted.as_mut().is_none_or(|wanted| wanted.remove(&account.id)) {
            chosen.push((account, name));
        }
    }
    // Requested accounts beyond the first ones.
    let others: Vec<_> = wanted.iter().flatten().copied().filter(|_| is_cut).collect();
    if !others.is_empty() {
        let found = storage.accounts().find(caller.user_id, &others).await?;
        for account in found {
            wanted.as_mut().map(|wanted| wanted.remove(&account.id));
            let name = account.name.clone();
            chosen.push((account, name));
        }
    }
    let mut findings = Vec::new();
    if params.has_unknown_account || wanted.as_ref().is_some_and(|wanted| !wanted.is_empty()) {
        findings.push(Finding::unknown_account());
    }
    if params.is_mistaken {
        findings.push(Finding::mistaken_window());
    }
    if is_cut && wanted.is_none() {
        findings.push(Finding::too_many_accounts(chosen.len()));
    }
    let (connections, items) = place(connections, chosen);
    let call = server.interop.access.call_context(&caller);
    Ok((Job { server, caller, now, call, params, connections, items }, findings))
}

/// Keeps the connections of these accounts.
fn place(connections: Vec<Connection>, accounts: Vec<(Account, String)>) -> (Vec<Connection>, Vec<Item>) {
    let is_used = |connection: &Connection| accounts.iter().any(|(account, _)| account.connection_id == connection.id);
    let connections: Vec<_> = connections.into_iter().filter(is_used).collect();
    let mut items = Vec::new();
    for (account, name) in accounts {
        // None if the connection was removed between the two reads.
        if let Some(connection) = connections.iter().position(|other| other.id == account.connection_id) {
            items.push(Item { account, name, connection });
        }
    }
    (connections, items)
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

/// The rest of the set is not sent: a read panicked.
#[derive(Debug, thiserror::Error)]
#[error("the account set was cut off")]
struct CutOff;

/// What a body sends next.
enum Part {
    Start(Step),
    Next,
    Nothing,
}

/// The account set, account by account. Connections and errors come last, when they are known.
fn body(job: Arc<Job>, steps: mpsc::Receiver<Step>, first: Step) -> Body {
    let start = (job, steps, Part::Start(first));
    Body::from_stream(stream::try_unfold(start, |(job, mut steps, part)| async move {
        let (mut chunk, step, comma) = match part {
            Part::Start(step) => (br#"{"accounts":["#.to_vec(), step, None),
            Part::Next => (Vec::new(), steps.recv().await.ok_or(CutOff)?, Some(b',')),
            Part::Nothing => return Ok(None),
        };
        let part = match step {
            Step::Account(account) => {
                chunk.extend(comma);
                chunk.extend_from_slice(&account);
                Part::Next
            }
            Step::End(end) => {
                write_end(&job, &end.findings, &mut chunk);
                Part::Nothing
            }
        };
        Ok::<_, CutOff>(Some((Bytes::from(chunk), (job, steps, part))))
    }))
}

fn write_end(job: &Job, findings: &[Finding], out: &mut Vec<u8>) {
    let root_url = &job.server.inner.root_url;
    let connections: Vec<_> = job.connections.iter().map(|one| ConnectionView::new(one, root_url)).collect();
    out.extend_from_slice(br#"],"connections":"#);
    write_json(&connections, out);
    out.extend_from_slice(br#","errlist":"#);
    write_json(&findings, out);
    out.extend_from_slice(br#","errors":"#);
    write_json(&findings.iter().map(Finding::text).collect::<Vec<_>>(), out);
    out.push(b'}');
}
