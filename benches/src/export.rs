//! Compares a file of 100,000 rows with reading the same rows in windows: processor time of the
//! service, and its memory.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::HttpArgs;
use crate::client::{self, Connection};
use crate::figures::{Figure, Report, progress};
use crate::process::{Clock, Server, resident_mb};
use crate::recording;
use crate::service::{self, Workdir};

const CPU: &str = "processor time of 100,000 rows, ms";
const MEMORY: &str = "memory, MB";
const WINDOWS: &str = "windows of 500";
const ROWS: u32 = 100_000;
/// Memory is compared with that after these rows.
const FIRST_ROWS: usize = 1_000;
/// The most that a file may cost, in times of the windows.
const RATIO_MAX: f64 = 1.3;
/// The most that memory may grow after [`FIRST_ROWS`].
const GROWTH_MB: f64 = 5.0;
/// Wait after a round: the service buffers log lines this long, and writing them belongs to the
/// round.
const LOG_FLUSH_WAIT: Duration = Duration::from_millis(30);

/// The end of a whole response.
const END: &[u8] = b"\r\n0\r\n\r\n";

/// A format, and the bytes that each row of it has once.
const FORMATS: [(&str, &[u8]); 7] = [
    ("csv", b"\n"),
    ("csv&layout=ynab", b"\n"),
    ("jsonl", b"\n"),
    ("ofx", b"<STMTTRN>"),
    ("qif", b"\n^"),
    ("journal", b"id: "),
    ("beancount", b"  id: "),
];

#[derive(Default)]
struct Rounds {
    cpu: Vec<f64>,
    growth: Vec<f64>,
    most: Vec<f64>,
}

/// Each round reads the account in windows, then as a file of each selected format.
pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let name = |format: &str| format!("export {}", format.replace("&layout=", ", "));
    let selected: Vec<_> = FORMATS
        .into_iter()
        .filter(|(format, _)| args.is_selected(&name(format)))
        .collect();
    if selected.is_empty() {
        return Ok(());
    }
    let binary = service::binary(&args.program)?;
    progress(&format!("exporting {ROWS} rows of the sandbox"));
    let (_sandbox, access) = recording::start_sandbox(&binary, ROWS)?;
    let folder = tempfile::Builder::new()
        .prefix("bellbird-bench-")
        .tempdir()?;
    let (workdir, connection_id) = Workdir::with_user(&binary, folder.path().to_owned(), access)?;
    let keys = workdir.keys(1)?;
    let key = keys.first().context("a key is needed")?;
    let (service, _) = workdir.serve().await?;
    let path = service::path_to_rows(service.address, key, &connection_id, 5_000).await?;
    let query = path
        .split_once('?')
        .context("the path has no query")?
        .1
        .replace("&limit=200", "");
    // The first of each warms up.
    walk(&service, key, &query).await?;
    let mut walked = Vec::new();
    let mut rounds: Vec<Rounds> = selected.iter().map(|_| Rounds::default()).collect();
    for _ in 0..args.rounds {
        walked.push(cost(&service, walk(&service, key, &query)).await?.0);
        for ((format, mark), rounds) in selected.iter().zip(&mut rounds) {
            let (extension, layout) = format.split_at(format.find('&').unwrap_or(format.len()));
            let path = format!("/v1/export/transactions.{extension}?{query}{layout}");
            let (cpu, memory) = cost(&service, export(&service, key, &path, mark)).await?;
            rounds.cpu.push(cpu);
            rounds.growth.push(memory.end - memory.first);
            rounds.most.push(memory.most);
        }
    }
    for ((format, _), rounds) in selected.iter().zip(&rounds) {
        let name = name(format);
        report.add(Figure::compared(
            &name,
            CPU,
            WINDOWS,
            &rounds.cpu,
            &walked,
            Some(RATIO_MAX),
        ));
        let growth = format!("{name}, growth after row 1,000");
        report.add(Figure::single(
            &growth,
            MEMORY,
            &rounds.growth,
            Some(GROWTH_MB),
        ));
        report.add(Figure::single(
            &format!("{name}, most"),
            MEMORY,
            &rounds.most,
            None,
        ));
    }
    Ok(())
}

/// Processor time of the service while `work` runs, in milliseconds.
async fn cost<T>(
    service: &Server,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(f64, T)> {
    let start = Clock::read(&service.ids())?;
    let done = work.await?;
    tokio::time::sleep(LOG_FLUSH_WAIT).await;
    Ok((Clock::read(&service.ids())?.since(&start) / 1e3, done))
}

/// Reads all rows in the largest windows that the API has.
async fn walk(service: &Server, key: &str, query: &str) -> anyhow::Result<()> {
    let mut connection = Connection::open(service.address).await?;
    let mut offset = 0;
    loop {
        let path = format!("/v1/transactions?{query}&limit=500&offset={offset}");
        let response = connection.ask(&client::get(&path, Some(key))).await?;
        ensure!(response.status == 200, "a window got {}", response.status);
        let page: Value = serde_json::from_slice(response.body)?;
        offset += page["data"].as_array().map_or(0, Vec::len);
        if page["pagination"]["hasMore"] != Value::Bool(true) {
            break;
        }
    }
    ensure!(offset == ROWS as usize, "{offset} rows of {ROWS} were seen");
    Ok(())
}

/// Memory of the service during an export, in megabytes.
struct Memory {
    /// After [`FIRST_ROWS`].
    first: f64,
    most: f64,
    end: f64,
}

/// Reads a file to its end, and counts its rows by `mark`.
async fn export(service: &Server, key: &str, path: &str, mark: &[u8]) -> anyhow::Result<Memory> {
    let mut stream = TcpStream::connect(service.address).await?;
    stream
        .write_all(&client::with_header(
            client::get(path, Some(key)),
            "connection: close",
        ))
        .await?;
    let mut memory = Memory {
        first: 0.0,
        most: 0.0,
        end: 0.0,
    };
    let (mut bytes, mut kept, mut rows, mut sampled) = (vec![0; 256 * 1024], 0, 0, 0);
    let (mut head, mut end) = (Vec::new(), Vec::new());
    loop {
        let count = stream.read(&mut bytes[kept..]).await?;
        if count == 0 {
            break;
        }
        if head.is_empty() {
            head = bytes[..count.min(15)].to_vec();
        }
        let filled = kept + count;
        rows += bytes[..filled]
            .windows(mark.len())
            .filter(|window| *window == mark)
            .count();
        // One may begin at the end of what was read.
        kept = (mark.len() - 1).min(filled);
        end.extend_from_slice(&bytes[filled.saturating_sub(END.len())..filled]);
        end.drain(..end.len().saturating_sub(END.len()));
        bytes.copy_within(filled - kept..filled, 0);
        if rows >= FIRST_ROWS && rows >= sampled {
            memory.end = resident_mb(service.id())?;
            memory.most = memory.most.max(memory.end);
            if sampled == 0 {
                memory.first = memory.end;
            }
            sampled = rows + FIRST_ROWS;
        }
    }
    memory.end = resident_mb(service.id())?;
    ensure!(
        head.starts_with(b"HTTP/1.1 200"),
        "got {}",
        String::from_utf8_lossy(&head)
    );
    ensure!(end == END, "the file was cut off");
    // The sizes of chunks are lines too, and one may lie within what marks a row.
    ensure!(
        rows.abs_diff(ROWS as usize) < ROWS as usize / 50,
        "{rows} rows of {ROWS} were seen"
    );
    Ok(memory)
}
