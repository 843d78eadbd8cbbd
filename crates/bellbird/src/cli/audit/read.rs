//! Reads the newest rows of each connection through the service.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bellbird_domain::ApiKey;
use bellbird_providers::http::pool::{self, Pool};
use bytes::Bytes;
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body_util::Full;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Gap;
use crate::audit::strings::Strings;
use crate::cli::service_client::{TIMEOUT, connect};
use crate::config::client::URL;

/// Rows of so many days are read.
pub(super) const DAYS: i64 = 90;
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A page of `/v1/accounts`.
const ACCOUNTS_LIMIT: u64 = 200;

pub(super) struct Service {
    pool: Pool,
    url: String,
    authorization: HeaderValue,
}

#[derive(Default)]
pub(super) struct Read {
    pub connections: usize,
    pub rows: u64,
    /// Connections that could not be read.
    pub gaps: Vec<Gap>,
}

impl Service {
    pub(super) fn new(url: &str, key: &ApiKey) -> anyhow::Result<Self> {
        let (pool, authorization) = connect(key).map_err(anyhow::Error::msg)?;
        Ok(Self {
            pool,
            url: url.to_owned(),
            authorization,
        })
    }

    /// Adds the strings of all rows. Names of connections and accounts are added to what is known.
    /// Closes its connections to the service, which may hold rows.
    pub(super) async fn read_rows(
        self,
        known: &mut Vec<String>,
        strings: &mut Strings,
    ) -> anyhow::Result<Read> {
        let connections = self.json("/v1/connections").await?;
        known.extend(texts(&connections, "institutionName"));
        self.add_account_names(known).await?;
        let mut read = Read::default();
        for connection in items(&connections) {
            let [id, category, status] = ["id", "category", "status"]
                .map(|member| connection[member].as_str().unwrap_or_default());
            let what = format!("connection {id}");
            if status != "active" {
                read.gaps.push(Gap::chosen(
                    what,
                    format!("it is {status}, so reconnect it to have its rows searched"),
                ));
                continue;
            }
            match self.add_rows(id, category, strings).await {
                Ok(rows) => {
                    read.connections += 1;
                    read.rows += rows;
                }
                Err(error) => read.gaps.push(Gap::failed(what, format!("{error:#}"))),
            }
        }
        Ok(read)
    }

    async fn add_account_names(&self, known: &mut Vec<String>) -> anyhow::Result<()> {
        for offset in (0..).step_by(ACCOUNTS_LIMIT as usize) {
            let page = self
                .json(&format!(
                    "/v1/accounts?limit={ACCOUNTS_LIMIT}&offset={offset}"
                ))
                .await?;
            known.extend(texts(&page, "name"));
            if page["pagination"]["hasMore"] != true {
                break;
            }
        }
        Ok(())
    }

    /// Reads a file, because the service caches no response of that.
    async fn add_rows(
        &self,
        id: &str,
        category: &str,
        strings: &mut Strings,
    ) -> anyhow::Result<u64> {
        let list = if category == "brokerage" {
            "trades"
        } else {
            "transactions"
        };
        let from = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * DAYS))?;
        let body = self
            .get(&format!(
                "/v1/export/{list}.jsonl?connectionId={id}&from={from:.0}"
            ))
            .await?;
        let mut rows = 0;
        for line in body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let row: Value = serde_json::from_slice(line)
                .ok()
                .context("the service sent a row that is not JSON")?;
            strings.add_row(&row);
            rows += 1;
        }
        Ok(rows)
    }

    async fn json(&self, path: &str) -> anyhow::Result<Value> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body)
            .ok()
            .with_context(|| format!("{} is not the API of Bellbird: see {URL}", self.url))
    }

    /// Waits if the service says so.
    async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        loop {
            let sent = tokio::time::timeout(TIMEOUT, self.send(path)).await;
            let (status, retry_after, body) =
                sent.map_err(|_| anyhow!("the service did not respond in time"))??;
            match (status, retry_after) {
                (StatusCode::OK, _) => return Ok(body),
                (StatusCode::TOO_MANY_REQUESTS, Some(seconds)) => {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                (status, _) => {
                    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let message = error["error"]["message"].as_str().unwrap_or("see its log");
                    bail!("the service responds with {}: {message}", status.as_u16());
                }
            }
        }
    }

    async fn send(&self, path: &str) -> anyhow::Result<(StatusCode, Option<u64>, Bytes)> {
        let url = &self.url;
        let request = http::Request::get(format!("{url}{path}"))
            .header(AUTHORIZATION, self.authorization.clone())
            .body(Full::default())?;
        let response = self.pool.send(request).await;
        let response =
            response.map_err(|_| anyhow!("the service at {url} does not respond: see {URL}"))?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = pool::read(response.into_body(), BODY_BYTES_MAX).await;
        let body = body.map_err(|error| match error {
            pool::ReadError::TooLarge => anyhow!("it has more than {BODY_BYTES_MAX} bytes of rows"),
            pool::ReadError::CutOff => anyhow!("the service broke off the response"),
        })?;
        Ok((status, retry_after, body))
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["data"].as_array().into_iter().flatten()
}

/// The texts that the items of a list have in one field.
fn texts(list: &Value, field: &str) -> impl Iterator<Item = String> {
    items(list).filter_map(move |item| item[field].as_str().map(str::to_owned))
}
