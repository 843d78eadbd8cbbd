//! Short words for what many tests of texts and of commands do.

use serde_json::Value;

use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, get, text};

#[track_caller]
pub(crate) fn assert_has(text: &str, words: &str) {
    assert!(text.contains(words), "no {words:?} in {text}");
}

#[track_caller]
pub(crate) fn assert_lacks(text: &str, words: &str) {
    assert!(!text.contains(words), "{words:?} in {text}");
}

#[track_caller]
pub(crate) fn assert_starts(text: &str, words: &str) {
    assert!(text.starts_with(words), "{text} begins without {words:?}");
}

#[track_caller]
pub(crate) fn assert_ends(text: &str, words: &str) {
    assert!(text.ends_with(words), "{text} ends without {words:?}");
}

impl Workdir {
    /// A new folder in which a service finds its master key.
    pub(crate) fn with_key() -> Self {
        let mut workdir = Self::new();
        workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
        workdir
    }

    /// A folder with a migrated database, and with a master key.
    pub(crate) fn migrated_with_key() -> Self {
        let mut workdir = Self::migrated();
        workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
        workdir
    }

    /// The JSON that a command prints, however it ends.
    pub(crate) fn printed(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json"));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A field of what a command prints with `--json`.
    pub(crate) fn field(&self, line: &str, name: &str) -> String {
        text(&self.json(line), name).to_owned()
    }

    /// Starts a command that listens at any free ports, and prints them as JSON.
    pub(crate) fn start(&self, line: &str) -> RunningCommand {
        RunningCommand::start(self, &format!("{line} --json {ANY_PORTS}"))
    }
}

impl RunningCommand {
    /// One of the URLs that it has printed, such as `apiUrl`.
    pub(crate) fn url(&self, name: &str) -> String {
        text(&self.json(), name).to_owned()
    }

    /// What it says at a path of one of its listeners, such as `apiUrl`.
    pub(crate) async fn get(&self, listener: &str, path: &str) -> (u16, Value) {
        get(&format!("{}{path}", self.url(listener)), None).await
    }

    /// Ends it as a service manager does. Returns its log.
    pub(crate) fn end(self) -> String {
        let (code, _, log) = self.stop("-TERM");
        assert_eq!(code, Some(0), "{log}");
        log
    }
}
