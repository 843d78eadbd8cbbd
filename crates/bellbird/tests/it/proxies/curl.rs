//! `curl` as a client of a proxy: https, with the proxy's own certificate authority.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

pub(super) struct Curl {
    /// Holds the bodies and headers of responses.
    pub(super) folder: PathBuf,
    pub(super) authority: PathBuf,
    pub(super) port: u16,
}

#[derive(Debug)]
pub(super) struct Response {
    /// 0 if the connection was closed without a response.
    pub(super) status: u16,
    headers: String,
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(super) fn header(&self, name: &str) -> &str {
        self.find_header(name)
            .unwrap_or_else(|| panic!("no {name} in {}", self.headers))
    }

    pub(super) fn find_header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    pub(super) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let fields = self
            .headers
            .lines()
            .filter_map(|line| line.split_once(": "));
        fields
            .filter(move |(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

impl Curl {
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command
            .env_clear()
            .args(["--silent", "--max-time", "60", "--noproxy", "*", "--cacert"])
            .arg(&self.authority);
        command.args([
            "--resolve",
            &format!("localhost:{}:127.0.0.1", self.port),
            "--write-out",
            "%{http_code}",
        ]);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(super) fn send(&self, arguments: &[&str]) -> Response {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let [headers, body] =
            ["headers", "body"].map(|part| self.folder.join(format!("curl-{number}-{part}")));
        let mut command = self.command(arguments);
        command
            .arg("--dump-header")
            .arg(&headers)
            .arg("--output")
            .arg(&body);
        let output = command.output().unwrap();
        Response {
            status: String::from_utf8(output.stdout).unwrap().parse().unwrap(),
            headers: std::fs::read_to_string(headers).unwrap_or_default(),
            body: std::fs::read(body).unwrap_or_default(),
        }
    }
}
