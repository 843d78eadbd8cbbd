//! `bellbird mcp`: passes MCP messages between standard input and output and a running service.
//!
//! It writes no responses of its own, apart from failures of the transport, so it works in both
//! eras of the protocol, as the service does.

mod bridge;
mod lines;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::anyhow;
use bellbird_interop::mcp::message::Message;
use bellbird_interop::mcp::rpc::{Id, RpcError};
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use bridge::Bridge;
use lines::{Line, Output};

/// Requests that run at the same time.
const REQUESTS_MAX: usize = 32;

pub(super) async fn run() -> anyhow::Result<()> {
    let bridge = Arc::new(Bridge::from_process().map_err(anyhow::Error::msg)?);
    let mut input = lines::read_stdin();
    let output = Output::open();
    let mut requests = Requests {
        bridge,
        output: output.sender.clone(),
        tasks: JoinSet::new(),
        running: HashMap::new(),
    };
    loop {
        tokio::select! {
            line = input.recv() => match line {
                Some(Line::Whole(line)) => requests.take(line).await,
                Some(Line::TooLong) => requests.reject(None, too_long()).await,
                Some(Line::Failed(error)) => return Err(anyhow!(error).context("could not read standard input")),
                None => break,
            },
            Some(ended) = requests.tasks.join_next() => requests.remove(ended.ok()),
            // The client has gone.
            () = output.sender.closed() => return Ok(()),
        }
    }
    // Waits for the requests that came before the end of the input. Each has a deadline.
    while let Some(ended) = requests.tasks.join_next().await {
        requests.remove(ended.ok());
    }
    drop(requests);
    output.finish().await;
    Ok(())
}

fn too_long() -> RpcError {
    RpcError::of_status(StatusCode::PAYLOAD_TOO_LARGE, "The message is too long")
}

struct Requests {
    bridge: Arc<Bridge>,
    output: mpsc::Sender<Vec<u8>>,
    tasks: JoinSet<Id>,
    running: HashMap<Id, AbortHandle>,
}

impl Requests {
    async fn take(&mut self, line: Vec<u8>) {
        let request = match Message::parse(&line) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification(notification)) => {
                // The service keeps nothing between requests, so other notifications mean nothing
                // to it.
                if notification.method == "notifications/cancelled"
                    && let Some(id) = notification.params.get("requestId").and_then(Id::of)
                    && let Some(task) = self.running.remove(&id)
                {
                    task.abort();
                }
                return;
            }
            Ok(Message::Response) => return,
            Err(unreadable) => return self.reject(unreadable.id, unreadable.error).await,
        };
        let id = request.id.clone();
        if self.running.len() >= REQUESTS_MAX || self.running.contains_key(&id) {
            let error = RpcError::of_status(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests at once, or an id twice",
            );
            return self.reject(Some(id), error).await;
        }
        let (bridge, output) = (Arc::clone(&self.bridge), self.output.clone());
        let task = self.tasks.spawn(async move {
            let response = bridge.call(&request, line).await;
            let _ = output.send(response).await;
            request.id
        });
        self.running.insert(id, task);
    }

    async fn reject(&self, id: Option<Id>, error: RpcError) {
        let _ = self.output.send(error.body(id.as_ref())).await;
    }

    /// `None`: the request was cancelled, and is removed already.
    fn remove(&mut self, ended: Option<Id>) {
        if let Some(id) = ended {
            self.running.remove(&id);
        }
    }
}
