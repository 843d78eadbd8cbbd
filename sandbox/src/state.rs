//! The state files of a sandbox: one for each provider, so that consents outlive the process, and
//! one for the keys of all.
//!
//! A new file is written beside the old one and takes its place when it is whole, so that a
//! process that is killed leaves one or the other.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Options;
use crate::world::rng::{Rng, label};

/// Of the states. It grows with each change of what they have, and of the lists of the world by
/// which they name things.
pub(crate) const VERSION: u32 = 3;

/// What changes on pages is saved this often at most, because anybody may open them.
const PAGE_SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Where a provider saves its state.
pub(crate) struct StateFile {
    path: PathBuf,
    /// Held while it is written, with what it has now.
    saved: Mutex<Vec<u8>>,
    page_saves: Mutex<PageSaves>,
}

#[derive(Default)]
struct PageSaves {
    last_at: Option<Instant>,
    is_pending: bool,
}

impl StateFile {
    pub(crate) fn new(folder: &Path, provider: &str) -> Self {
        Self {
            path: path(folder, provider),
            saved: Mutex::default(),
            page_saves: Mutex::default(),
        }
    }

    /// When to save what a page has changed. `None` if a save that is pending will.
    pub(crate) fn claim_page_save(&self) -> Option<Duration> {
        let mut saves = self.page_saves.lock();
        if saves.is_pending {
            return None;
        }
        saves.is_pending = true;
        let since = saves.last_at.map_or(PAGE_SAVE_INTERVAL, |at| at.elapsed());
        Some(PAGE_SAVE_INTERVAL.saturating_sub(since))
    }

    /// Whether a page has changed what the file has not.
    pub(crate) fn is_save_pending(&self) -> bool {
        self.page_saves.lock().is_pending
    }

    /// Writes the state that `state` returns, unless the file has it.
    pub(crate) fn save(
        &self,
        state: impl FnOnce() -> Result<Vec<u8>, serde_json::Error>,
    ) -> io::Result<()> {
        // Taken before the state is read, so that the last to write has the newest one.
        let mut saved = self.saved.lock();
        *self.page_saves.lock() = PageSaves {
            last_at: Some(Instant::now()),
            is_pending: false,
        };
        let state = state()?;
        if *saved == state {
            return Ok(());
        }
        write(&self.path, &state)?;
        *saved = state;
        Ok(())
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut maker = fs::DirBuilder::new();
    maker.recursive(true).mode(0o700).create(folder)?;
    let whole = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&whole)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&whole, path)?;
    File::open(folder)?.sync_all()
}

/// The content of a file. `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some),
    }
}

/// Draws the keys and secrets of the app.
pub(crate) enum Keys {
    Seed(u64),
    /// A sandbox with a state runs beside a service, where anybody knows the seed, and could sign
    /// events of its providers.
    Random(Vec<u8>),
}

impl Keys {
    const BYTES: usize = 32;

    /// Those of the state, which gets some if it has none.
    pub(crate) fn load(options: &Options) -> io::Result<Self> {
        let Some(folder) = &options.state else {
            return Ok(Self::Seed(options.seed));
        };
        let path = folder.join("keys");
        match read(&path)? {
            Some(bytes) if bytes.len() == Self::BYTES => return Ok(Self::Random(bytes)),
            Some(_) => {
                let path = path.display();
                return Err(io::Error::other(format!(
                    "the keys {path} cannot be read. Delete it, start again, and link again"
                )));
            }
            None => {}
        }
        let mut bytes = vec![0; Self::BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
        write(&path, &bytes)?;
        Ok(Self::Random(bytes))
    }

    /// Draws one key. A key says nothing about another one.
    pub(crate) fn rng(&self, key: &str) -> Rng {
        match self {
            Self::Seed(seed) => Rng::new(*seed, label(&["key", key])),
            Self::Random(bytes) => {
                let hash = digest(&SHA256, &[bytes, key.as_bytes()].concat());
                let mut seed = [0; 8];
                seed.copy_from_slice(&hash.as_ref()[..8]);
                Rng::new(u64::from_be_bytes(seed), 0)
            }
        }
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
    let Some(text) = read(&path)? else {
        return Ok(None);
    };
    let refuse = |why: String| {
        let path = path.display();
        io::Error::other(format!(
            "the state {path} {why}. Delete it, start again, and link again"
        ))
    };
    let unreadable = |error: serde_json::Error| refuse(format!("cannot be read: {error}"));
    let of: Versioned = serde_json::from_slice(&text).map_err(unreadable)?;
    if of.version != Some(VERSION) {
        return Err(refuse("is of another version of the sandbox".to_owned()));
    }
    serde_json::from_slice(&text).map(Some).map_err(unreadable)
}

/// What each version of a state has. The first had no number.
#[derive(Deserialize)]
struct Versioned {
    version: Option<u32>,
}

fn path(folder: &Path, provider: &str) -> PathBuf {
    folder.join(format!("{provider}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_saved_once_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path(), "akahu");
        assert_eq!(file.claim_page_save(), Some(Duration::ZERO));
        assert_eq!(file.claim_page_save(), None, "one is pending");
        assert!(file.is_save_pending());
        let begun = Instant::now();
        file.save(|| Ok(b"{}".to_vec())).unwrap();
        assert!(!file.is_save_pending());
        let wait = file.claim_page_save().unwrap();
        // The disk may have taken most of it.
        let least = PAGE_SAVE_INTERVAL.saturating_sub(begun.elapsed());
        assert!((least..=PAGE_SAVE_INTERVAL).contains(&wait), "{wait:?}");
    }

    #[test]
    fn each_state_has_keys_of_its_own() {
        let draw = |folder: Option<&Path>, key: &str| {
            let options = Options {
                state: folder.map(Path::to_owned),
                ..Options::default()
            };
            Keys::load(&options).unwrap().rng(key).next()
        };
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = [folders[0].path(), folders[1].path()];
        assert_eq!(draw(Some(one), "a"), draw(Some(one), "a"));
        assert_ne!(draw(Some(one), "a"), draw(Some(one), "b"));
        assert_ne!(draw(Some(one), "a"), draw(Some(other), "a"));
        assert_ne!(draw(Some(one), "a"), draw(None, "a"));
        assert_eq!(draw(None, "a"), draw(None, "a"));
    }
}
