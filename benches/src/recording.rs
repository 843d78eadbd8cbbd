//! Runs the real sandbox, and records its responses for the provider of fixed bytes
//! (`provider.rs`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::client;
use crate::process::Server;
use crate::provider::{Answers, TRANSACTIONS};

/// Rows of the recorded page of transactions.
pub(crate) const PAGE_ROWS: u32 = 200;
/// Accounts of the recorded connection.
pub(crate) const ACCOUNTS: usize = 60;

/// Address and credentials with which the service calls Fiskil.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    pub(crate) client_id: String,
    pub(crate) client_secret: String,
    /// The JSON that `bellbird connection import` reads.
    pub(crate) credentials: Value,
}

impl Access {
    /// Reads Fiskil's access and the first credentials from the sandbox's description.
    pub(crate) fn read(description: &Value) -> anyhow::Result<Self> {
        let fiskil = &description["fiskil"];
        Ok(Self {
            address: text(&fiskil["baseUrl"])?
                .trim_start_matches("http://")
                .parse()?,
            client_id: text(&fiskil["clientId"])?,
            client_secret: text(&fiskil["clientSecret"])?,
            credentials: description["credentials"][0].clone(),
        })
    }

    pub(crate) async fn token(&self) -> anyhow::Result<String> {
        let body = json!({ "client_id": self.client_id, "client_secret": self.client_secret });
        let token = client::json(self.address, &client::post("/v1/token", &body)).await?;
        token["token"]
            .as_str()
            .map(str::to_owned)
            .context("the token response has no token")
    }

    /// The request for a page of the user's data, with the API version that the adapter sends.
    pub(crate) fn page(&self, token: &str, path: &str, more: &str) -> anyhow::Result<Vec<u8>> {
        let end_user_id = text(&self.credentials["endUserId"])?;
        let path = format!("{path}?end_user_id={end_user_id}&page%5Bsize%5D=1000{more}");
        Ok(client::with_header(
            client::get(&path, Some(token)),
            "x-fiskil-version: v3",
        ))
    }
}

/// A string of the sandbox's description.
pub(crate) fn text(value: &Value) -> anyhow::Result<String> {
    value
        .as_str()
        .map(str::to_owned)
        .context("the sandbox's description lacks a value")
}

/// Starts `bellbird sandbox`. Its busiest account has `rows` transactions.
pub(crate) fn start_sandbox(binary: &Path, rows: u32) -> anyhow::Result<(Server, Access)> {
    let (server, description) = start_with_description(binary, rows)?;
    Ok((server, Access::read(&description)?))
}

/// As [`start_sandbox`], and returns the whole description that the sandbox prints.
pub(crate) fn start_with_description(binary: &Path, rows: u32) -> anyhow::Result<(Server, Value)> {
    let mut command = Command::new(binary);
    command.args(["sandbox", "--json", "--rows", &rows.to_string()]);
    command.args(
        ["--fiskil-listen", "--akahu-listen", "--snaptrade-listen"]
            .map(|flag| format!("{flag}=127.0.0.1:0")),
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Server::start(&mut command, ([127, 0, 0, 1], 0).into())?;
    let description: Value = serde_json::from_str(&server.first_line()?)
        .context("the sandbox printed no description")?;
    server.address = Access::read(&description)?.address;
    Ok((server, description))
}

/// Sends the sandbox every request that the service will send, and keeps the responses.
pub(crate) async fn record(binary: &Path) -> anyhow::Result<(Answers, Access)> {
    let (_sandbox, access) = start_sandbox(binary, PAGE_ROWS)?;
    let id = |name: &str| {
        access.credentials[name]
            .as_str()
            .context("the credentials lack an id")
    };
    let (end_user_id, arrangement_id) = (id("endUserId")?, id("arrangementId")?);
    let token = access.token().await?;
    let ask = async |path: &str, more: &str| {
        client::text(access.address, &access.page(&token, path, more)?).await
    };
    add_accounts(
        &access,
        end_user_id,
        arrangement_id,
        &ask("/v1/banking/accounts", "").await?,
    )
    .await?;
    let mut answers = HashMap::new();
    for path in [
        "/v1/consent",
        "/v1/banking/accounts",
        "/v1/banking/balances",
    ] {
        answers.insert(path.to_owned(), ask(path, "").await?);
    }
    let token = json!({ "token": "recorded", "token_type": "Bearer", "expires_in": 86_400 });
    answers.insert("/v1/token".to_owned(), token.to_string());
    for account_id in account_ids(&answers["/v1/banking/accounts"], arrangement_id)? {
        let filter = format!("&status=POSTED&from=2000-01-01T00:00:00Z&account_id={account_id}");
        let page = ask(TRANSACTIONS, &filter).await?;
        if page.matches("\"posting_date_time\"").count() == PAGE_ROWS as usize {
            ensure!(
                !page.contains("\"next\":\""),
                "the recorded page has a next page"
            );
            answers.insert(TRANSACTIONS.to_owned(), page);
        }
    }
    ensure!(
        answers.contains_key(TRANSACTIONS),
        "no account has {PAGE_ROWS} rows"
    );
    Ok((Answers(answers), access))
}

/// The account ids of one consent.
fn account_ids(page: &str, arrangement_id: &str) -> anyhow::Result<Vec<String>> {
    let page: Value = serde_json::from_str(page)?;
    let accounts = page["accounts"]
        .as_array()
        .context("the response has no accounts")?
        .iter();
    let matching = accounts.filter(|account| account["arrangement_id"] == arrangement_id);
    Ok(matching
        .filter_map(|account| account["account_id"].as_str().map(str::to_owned))
        .collect())
}

async fn add_accounts(
    access: &Access,
    end_user_id: &str,
    arrangement_id: &str,
    page: &str,
) -> anyhow::Result<()> {
    for number in account_ids(page, arrangement_id)?.len()..ACCOUNTS {
        let account = json!({
            "endUserId": end_user_id,
            "arrangementId": arrangement_id,
            "display_name": format!("Bench Account {number:02}"),
            "masked_number": format!("xxx-xxx xxxxx{number:04}"),
        });
        client::text(
            access.address,
            &client::post("/__control/accounts", &account),
        )
        .await?;
    }
    Ok(())
}
