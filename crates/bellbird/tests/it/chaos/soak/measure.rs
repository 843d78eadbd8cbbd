//! What a process holds: memory, open files and tasks.

use std::fmt;
use std::time::Duration;

use super::deployment::DisturbedDeployment;
use crate::support::process::metrics;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const POLLS_MIN: u32 = 25;
/// Long enough for idle connections and leases to end.
const POLLS_MAX: u32 = 5 * 120;

/// The figures of a process over some seconds in which no user did anything. Syncs go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) memory_kib: u64,
    pub(super) files_min: u64,
    pub(super) files_max: u64,
    pub(super) tasks_min: u64,
    pub(super) tasks_max: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory_kib,
            files_min,
            files_max,
            tasks_min,
            tasks_max,
        } = self;
        write!(
            f,
            "{memory_kib} KiB, {files_min} to {files_max} files, {tasks_min} to {tasks_max} tasks"
        )
    }
}

/// Measures until this is true of the figures.
pub(super) async fn measure(
    deployment: &DisturbedDeployment,
    is_enough: impl Fn(&Figures) -> bool,
) -> Figures {
    let (process, ops) = deployment.measured();
    let mut figures: Option<Figures> = None;
    for poll in 0..POLLS_MAX {
        let memory_kib = resident_kib(process);
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let files = u64::try_from(files.count()).unwrap();
        let tasks = tasks(&ops).await;
        let before = figures.unwrap_or(Figures {
            memory_kib,
            files_min: files,
            files_max: files,
            tasks_min: tasks,
            tasks_max: tasks,
        });
        let now = Figures {
            memory_kib: before.memory_kib.min(memory_kib),
            files_min: before.files_min.min(files),
            files_max: before.files_max.max(files),
            tasks_min: before.tasks_min.min(tasks),
            tasks_max: before.tasks_max.max(tasks),
        };
        figures = Some(now);
        if poll >= POLLS_MIN && is_enough(&now) {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    figures.unwrap()
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn tasks(ops: &str) -> u64 {
    let page = metrics(&format!("http://{ops}")).await;
    let mut lines = page.lines();
    let tasks = lines.find_map(|line| line.strip_prefix("bellbird_tasks "));
    tasks.unwrap().parse().unwrap()
}
