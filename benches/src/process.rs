//! Starts and stops measured processes, and reads their processor time and memory from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// Clock ticks per second in `/proc/PID/stat`; the same on every Linux that Rust supports.
const TICKS: f64 = 100.0;

/// A running process. Dropping it stops the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a command that listens on `address`.
    pub(crate) fn start(command: &mut Command, address: SocketAddr) -> anyhow::Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("could not start {}", program(command)))?;
        Ok(Self { child, address })
    }

    /// Starts a hidden subcommand of this program. It prints its address once it listens, and exits
    /// when its standard input closes.
    pub(crate) fn start_subcommand(name: &str, folder: Option<&Path>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(name)
            .args(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("could not start {name}"))?;
        let line = first_line(&mut child)?;
        let address = line
            .trim()
            .parse()
            .with_context(|| format!("{name} printed {line:?} instead of an address"))?;
        Ok(Self { child, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn first_line(&mut self) -> anyhow::Result<String> {
        first_line(&mut self.child)
    }

    /// The process and its children, such as nginx workers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let own = self.id();
        let parent = |id: &u32| stat(*id).and_then(|fields| fields.get(1)?.parse::<u32>().ok());
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        std::iter::once(own)
            .chain(all.filter(|id| parent(id) == Some(own)))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // TERM first: after a KILL of the master, nginx workers would keep running.
        let terminated = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        if terminated.is_ok_and(|status| status.success()) {
            for _ in 0..100 {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_line(child: &mut Child) -> anyhow::Result<String> {
    let out = child.stdout.take().context("no standard output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    Ok(line)
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// A port that is unused at this moment; another program may take it before the caller does.
pub(crate) fn unused_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

pub(crate) fn named(name: &str) -> Vec<u32> {
    let is_named = |id: &u32| {
        fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_named)
        .collect()
}

/// The fields of `/proc/PID/stat` after the process name.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

/// Processor time that processes have used so far.
pub(crate) struct Clock {
    /// Nanoseconds by process id and thread id.
    threads: BTreeMap<(u32, u32), u64>,
    /// Seconds of all processes, ended threads included, exact to 10 ms.
    ticks: f64,
}

impl Clock {
    pub(crate) fn read(ids: &[u32]) -> anyhow::Result<Self> {
        let mut threads = BTreeMap::new();
        let mut ticks = 0.0;
        for id in ids {
            for entry in
                fs::read_dir(format!("/proc/{id}/task")).context("a measured process has exited")?
            {
                let entry = entry?;
                let thread = entry.file_name().to_string_lossy().parse()?;
                // A thread may end after the listing and before the read.
                let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
                    continue;
                };
                threads.insert(
                    (*id, thread),
                    text.split(' ').next().unwrap_or_default().parse()?,
                );
            }
            let fields = stat(*id).context("a measured process has exited")?;
            for field in fields.get(11..13).context("a short stat line")? {
                ticks += field.parse::<f64>()? / TICKS;
            }
        }
        Ok(Self { threads, ticks })
    }

    /// Processor time since `earlier`, in microseconds. It is exact to the nanosecond while all
    /// threads live. The clock of a thread disappears when the thread ends, and then the process
    /// clock counts, which is exact to 10 ms.
    pub(crate) fn since(&self, earlier: &Self) -> f64 {
        if earlier
            .threads
            .keys()
            .any(|thread| !self.threads.contains_key(thread))
        {
            return (self.ticks - earlier.ticks) * 1e6;
        }
        let spent = self
            .threads
            .iter()
            .map(|(thread, now)| now - earlier.threads.get(thread).copied().unwrap_or(0));
        spent.sum::<u64>() as f64 / 1e3
    }
}

/// Resident memory (`VmRSS`) in megabytes (10^6 bytes).
pub(crate) fn resident_mb(id: u32) -> anyhow::Result<f64> {
    memory_mb(id, "VmRSS:")
}

/// The most resident memory so far (`VmHWM`) in megabytes.
pub(crate) fn peak_resident_mb(id: u32) -> anyhow::Result<f64> {
    memory_mb(id, "VmHWM:")
}

fn memory_mb(id: u32, name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/status"))
        .context("a measured process has exited")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_and_memory_are_read() {
        let own = [std::process::id()];
        let start = Clock::read(&own).unwrap();
        // Until what this process has run shows, on a busy machine too.
        while Clock::read(&own).unwrap().since(&start) <= 1_000.0 {}
        assert!(resident_mb(own[0]).unwrap() > 0.5);
    }
}
