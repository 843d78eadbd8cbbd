//! Runs the built program: commands that end, and commands that run until a signal.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::port::free_port;

pub(crate) const ANY_PORTS: &str =
    "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
pub(crate) const ANY_SANDBOX_PORTS: &str =
    "--fiskil-listen 127.0.0.1:0 --akahu-listen 127.0.0.1:0 --snaptrade-listen 127.0.0.1:0";
pub(crate) const MASTER_KEY: &str = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// A new folder in which commands run. Their environment holds only the variables that a test sets.
pub(crate) struct Workdir {
    pub(crate) folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Workdir {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            variables: Vec::new(),
        }
    }

    /// The folder as commands name it, without symbolic links.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// Where a first start makes an installation, and where commands find it.
    pub(crate) fn data_folder(&self) -> PathBuf {
        self.path().join("data")
    }

    /// A folder with a migrated database.
    pub(crate) fn migrated() -> Self {
        let workdir = Self::new();
        workdir.json("migrate");
        workdir
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Takes back all variables that begin so.
    pub(crate) fn unset(&mut self, prefix: &str) {
        self.variables.retain(|(name, _)| !name.starts_with(prefix));
    }

    /// A command. `line` holds its arguments, separated by spaces.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellbird"));
        command
            .args(line.split(' ').filter(|part| !part.is_empty()))
            .current_dir(self.folder.path())
            .env_clear();
        command
            .env("TMPDIR", self.folder.path())
            .env("BELLBIRD_DATA_DIR", self.data_folder())
            .envs(self.variables.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Standard output of a command that succeeds without a word on standard error.
    pub(crate) fn text(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(errors(&output), "", "{line}");
        assert_eq!(output.status.code(), Some(0), "{line}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that succeeds says on standard error. It writes nothing to standard output.
    pub(crate) fn said(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", errors(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
        errors(&output)
    }

    /// The secret that a command prints, alone on standard output, and what it says about it on
    /// standard error.
    pub(crate) fn secret(&self, line: &str) -> (String, String) {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", errors(&output));
        let secret = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(
            (secret.lines().count(), secret.trim_end().contains(' ')),
            (1, false),
            "{line}: {secret}"
        );
        (secret.trim_end().to_owned(), errors(&output))
    }

    /// The single line that a command prints with `--json`.
    pub(crate) fn json(&self, line: &str) -> Value {
        let text = self.text(&format!("{line} --json"));
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Standard error of a command that fails. It writes nothing to standard output, and with
    /// `--json` one value.
    pub(crate) fn error(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            errors(&output)
        );
        if line.contains("--json") {
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(printed["error"]["message"].is_string(), "{line}: {printed}");
        } else {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
        }
        errors(&output).trim_end().to_owned()
    }

    /// Imports the connection of these credentials for a user. Returns its id.
    pub(crate) fn import(&self, email: &str, credentials: &Value) -> String {
        let line = format!("connection import --user {email} --credentials - --json");
        let output = self.run_with_input(&line, &credentials.to_string());
        assert_eq!(
            (output.status.code(), errors(&output).as_str()),
            (Some(0), "")
        );
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        text(&imported[0], "id").to_owned()
    }

    /// Imports the first connection of a provider for `me@example.com`. `sandbox` describes itself.
    pub(crate) fn import_at(&self, sandbox: &Value, provider: &str) -> String {
        let mut all = sandbox["credentials"].as_array().unwrap().iter();
        let found = all.find(|credentials| credentials["provider"] == provider);
        self.import("me@example.com", found.unwrap())
    }

    /// What the doctor finds of one thing, such as `ok none stored`.
    pub(crate) fn doctor(&self, name: &str) -> Vec<String> {
        self.doctor_with(ANY_PORTS, name)
    }

    pub(crate) fn doctor_with(&self, options: &str, name: &str) -> Vec<String> {
        findings(&self.run(&format!("doctor --json {options}")), name)
    }

    /// Runs a command that reads standard input.
    pub(crate) fn run_with_input(&self, line: &str, input: &str) -> Output {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }
}

/// What a `doctor --json` has found of one thing.
pub(crate) fn findings(output: &Output, name: &str) -> Vec<String> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let of_name = checks.filter(|check| check["name"] == name);
    of_name
        .map(|check| format!("{} {}", text(check, "verdict"), text(check, "detail")))
        .collect()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that ends when this is dropped, so that a failed test leaves none behind.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running command. Dropping it kills the process.
pub(crate) struct RunningCommand {
    child: Process,
    pub(crate) out: BufReader<ChildStdout>,
    /// The first line of its output: the command is ready.
    pub(crate) ready_line: String,
}

impl RunningCommand {
    pub(crate) fn start(workdir: &Workdir, line: &str) -> Self {
        Self::spawn(workdir.command(line), line)
    }

    /// Appends the log to a file: a pipe that is not read would fill.
    pub(crate) fn start_with_log(workdir: &Workdir, line: &str, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = workdir.command(line);
        command.stderr(log);
        Self::spawn(command, line)
    }

    /// As [`Self::start_with_log`], run by another program that takes it as its last arguments.
    pub(crate) fn start_by(program: &[String], workdir: &Workdir, line: &str, log: &Path) -> Self {
        let inner = workdir.command(line);
        let mut command = Command::new(&program[0]);
        command
            .args(&program[1..])
            .arg(inner.get_program())
            .args(inner.get_args());
        command.current_dir(workdir.folder.path()).env_clear();
        command.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::options().create(true).append(true).open(log).unwrap());
        Self::spawn(command, line)
    }

    /// Of any program whose standard output is piped.
    pub(crate) fn spawn(mut command: Command, line: &str) -> Self {
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready_line = String::new();
        if out.read_line(&mut ready_line).unwrap() == 0 {
            panic!("{line}: {}", errors(&child.wait_with_output().unwrap()));
        }
        Self {
            child: Process(child),
            out,
            ready_line,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.ready_line).unwrap()
    }

    /// Sends a signal. Returns the exit status, the rest of standard output, and the log unless a
    /// file has it.
    pub(crate) fn stop(mut self, signal: &str) -> (Option<i32>, String, String) {
        send_signal(self.id(), signal);
        let (mut rest, mut log) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        if let Some(mut stderr) = self.child.0.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        (self.child.0.wait().unwrap().code(), rest, log)
    }
}

/// `-9` or `-STOP`, for example.
pub(crate) fn send_signal(process: u32, signal: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.args([signal, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "{signal}");
}

/// The metrics of a service, as Prometheus reads them.
pub(crate) async fn metrics(ops: &str) -> String {
    let page = reqwest::get(format!("{ops}/metrics")).await;
    page.unwrap().text().await.unwrap()
}

/// Addresses of a service, which it has again after a restart.
pub(crate) struct Addresses {
    pub(crate) api: String,
    pub(crate) console: String,
    pub(crate) ops: String,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        let [api, console, ops] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
        Self { api, console, ops }
    }

    pub(crate) fn options(&self) -> String {
        format!(
            "--api-listen {} --console-listen {} --ops-listen {}",
            self.api, self.console, self.ops
        )
    }
}

/// The list that a GET returns with this key.
pub(crate) async fn get_list(url: &str, key: &str) -> Vec<Value> {
    let (status, body) = get(url, Some(key)).await;
    assert_eq!(status, 200, "{url}: {body}");
    body["data"].as_array().unwrap().clone()
}

pub(crate) async fn get(url: &str, key: Option<&str>) -> (u16, Value) {
    let mut request = reqwest::Client::new().get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// The names of the members of an object.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    let members = value.as_object().unwrap();
    members.keys().map(String::as_str).collect()
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {value}"))
}
