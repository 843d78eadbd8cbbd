//! The state files of a sandbox: one for each provider, so that consents outlive the process.
//!
//! A file is written anew beside the old one and takes its place when it is whole, so that a
//! process that is killed leaves one or the other.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::Options;

/// Where a provider saves its state.
pub(crate) struct StateFile {
    path: PathBuf,
    /// Held while it is written, with what it has now.
    saved: Mutex<Vec<u8>>,
}

impl StateFile {
    pub(crate) fn new(folder: &Path, provider: &str) -> Self {
        Self {
            path: path(folder, provider),
            saved: Mutex::default(),
        }
    }

    /// Writes the state that `state` returns, unless the file has it.
    pub(crate) fn save(
        &self,
        state: impl FnOnce() -> Result<Vec<u8>, serde_json::Error>,
    ) -> io::Result<()> {
        // Taken before the state is read, so that the last to write has the newest one.
        let mut saved = self.saved.lock();
        let state = state()?;
        if *saved == state {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700).create(folder)?;
        let whole = self.path.with_extension("new");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&whole)?;
        file.write_all(&state)?;
        file.sync_all()?;
        fs::rename(&whole, &self.path)?;
        File::open(folder)?.sync_all()?;
        *saved = state;
        Ok(())
    }
}

/// The state of an earlier sandbox. `None` if there is none.
pub(crate) fn load<T: DeserializeOwned>(
    options: &Options,
    provider: &str,
) -> io::Result<Option<T>> {
    let Some(folder) = &options.state else {
        return Ok(None);
    };
    let path = path(folder, provider);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let state = serde_json::from_slice(&text).map_err(|error| {
        let path = path.display();
        io::Error::other(format!(
            "the state {path} cannot be read: {error}. Delete it, and link again"
        ))
    });
    state.map(Some)
}

fn path(folder: &Path, provider: &str) -> PathBuf {
    folder.join(format!("{provider}.json"))
}
