//! Profiles the service: puts load on one endpoint, runs `perf record`, and prints the report.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::ProfileArgs;
use crate::compare::Setup;
use crate::figures::progress;
use crate::service;

pub(crate) async fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    let clients = args.connections as usize;
    let setup = Setup::create(&service::binary(&args.program)?, clients).await?;
    let mut client_pool = setup
        .client_pool(setup.endpoint(&args.endpoint)?, clients)
        .await?;
    client_pool.run(1_000).await?;
    let mut record = Command::new("perf");
    record
        .args(["record", "--quiet", "--event", "cpu-clock", "--output"])
        .arg(&args.output);
    if args.callers {
        record.args(["--freq", "997", "--call-graph", "dwarf,16384"]);
    } else {
        record.args(["--freq", "4999"]);
    }
    record.args([
        "--pid",
        &setup.service.id().to_string(),
        "--",
        "sleep",
        &args.seconds.to_string(),
    ]);
    let mut recording = record
        .stdin(Stdio::null())
        .spawn()
        .context("perf is not installed; on Debian: apt-get install linux-perf")?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let mut requests = 0;
    while Instant::now() < until {
        requests += client_pool.run(500).await?.len();
    }
    ensure!(recording.wait()?.success(), "perf record failed");
    progress(&format!("{requests} requests in {} s", args.seconds));
    let mut report = Command::new("perf");
    report.args([
        "report",
        "--stdio",
        "--no-children",
        "--percent-limit",
        "0.7",
        "--call-graph",
        "none",
    ]);
    ensure!(
        report.arg("--input").arg(&args.output).status()?.success(),
        "perf report failed"
    );
    Ok(())
}
