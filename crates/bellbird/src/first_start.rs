//! The first start: where there is no installation, makes a data folder with a master key, a
//! database and a settings file that says where both are.
//!
//! Everything is made under a lock on the folder. A mark stays in the folder until the settings
//! file, which is written last, names a complete installation. A process that is killed before
//! leaves the mark, so that the next start goes on. Without the mark, a key without its database,
//! or a database without its key, is an installation that has lost something, and is left as it is.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::Actor;
use bellbird_storage::{Storage, random_bytes};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use crate::config::place::{DATA_DIR, SETTINGS_FILE};
use crate::config::{Origin, Settings};
use crate::wiring;

pub const KEY_FILE: &str = "master.key";
pub const DATABASE_FILE: &str = "bellbird.db";
/// What to do about [`FirstStart::is_open_to_others`].
pub const OPEN_TO_OTHERS: &str = "other users may read or write in the data folder, so take these rights away with \
                                  `chmod 700`";
/// Is there while a first start is not complete.
const MARK: &str = "first-start";

/// A first start that has begun: the folder has its key, and is locked.
pub struct FirstStart {
    folder: PathBuf,
    /// Whether other users may read or write in the folder.
    pub is_open_to_others: bool,
    /// Free again when this is dropped.
    _lock: File,
}

/// A random master key with this id, as secrets.key has it.
pub fn new_master_key(id: &str) -> String {
    format!("{id}:{}", STANDARD.encode(random_bytes::<32>().as_slice()))
}

impl FirstStart {
    /// Makes the folder with the key, or goes on with those of a start that was interrupted. The
    /// settings have `public_url` as the URL of API and console.
    ///
    /// Returns `None` if another process has made the whole installation meanwhile.
    ///
    /// # Errors
    /// With a message for the operator, if the folder has a part of an installation, or another
    /// process makes its first start there.
    pub fn begin(folder: &Path, public_url: Option<&str>) -> anyhow::Result<Option<Self>> {
        let shown = folder.display();
        let is_open_to_others = make_folder(folder).with_context(|| {
            format!(
                "could not make the data folder {shown}, name another with --data-dir or {DATA_DIR}"
            )
        })?;
        let lock = File::open(folder)
            .with_context(|| format!("could not open the data folder {shown}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another Bellbird makes its first start in {shown} at the moment")
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).context(format!("could not lock the data folder {shown}"));
            }
        }
        let first = Self {
            folder: folder.to_owned(),
            is_open_to_others,
            _lock: lock,
        };
        if first.has(SETTINGS_FILE) {
            return Ok(None);
        }
        first.check_parts()?;
        first.make_files(public_url).map_err(|error| {
            // As with a folder of the host that is a container's volume.
            let owner = match error.kind() {
                io::ErrorKind::PermissionDenied => format!(
                    ", which has to belong to the Unix user of this process (uid {})",
                    rustix::process::geteuid().as_raw()
                ),
                _ => String::new(),
            };
            let text = format!("could not write into the data folder {shown}{owner}");
            anyhow::Error::new(error).context(text)
        })?;
        Ok(Some(first))
    }

    /// The settings file before it has its name.
    pub fn draft(&self) -> PathBuf {
        self.folder.join(draft_name(SETTINGS_FILE))
    }

    /// Makes the database with `settings`, which are those of the draft, and completes the
    /// installation. The audit says that `actor` did.
    pub async fn complete(self, settings: &Settings, actor: Actor) -> anyhow::Result<()> {
        let sealer = wiring::required_sealer(settings).await?;
        let storage = wiring::open(settings, sealer).await?;
        let made = make_database(&storage, actor).await;
        storage.close().await;
        made?;
        let commit = || -> io::Result<()> {
            fs::rename(self.draft(), self.folder.join(SETTINGS_FILE))?;
            sync(&self.folder)?;
            // Another start may have seen the settings, and removed it.
            remove(&self.folder.join(MARK))?;
            sync(&self.folder)
        };
        commit().with_context(|| {
            format!(
                "could not write {}",
                self.folder.join(SETTINGS_FILE).display()
            )
        })?;
        tracing::warn!(
            folder = %self.folder.display(),
            master_key = %self.folder.join(KEY_FILE).display(),
            database = %self.folder.join(DATABASE_FILE).display(),
            settings = %self.folder.join(SETTINGS_FILE).display(),
            "first start: installation made, keep a copy of the master key elsewhere"
        );
        if self.is_open_to_others {
            tracing::warn!(folder = %self.folder.display(), "{OPEN_TO_OTHERS}");
        }
        Ok(())
    }

    /// Fails if the folder has a part of an installation, which no interrupted start has left.
    fn check_parts(&self) -> anyhow::Result<()> {
        let has_key = self.has(KEY_FILE);
        // A service leaves its lock.
        let was_used = self.has(DATABASE_FILE) || self.has(&format!("{DATABASE_FILE}-lock"));
        // Every start makes the key first.
        if was_used && !has_key {
            bail!(lost_key(&self.folder));
        }
        if has_key && !has_database(&self.folder) && !self.has(MARK) {
            let there = "copy a backup to that place, start again, and then run `bellbird restore --decide`";
            bail!(lost_database(&self.folder, there));
        }
        Ok(())
    }

    fn make_files(&self, public_url: Option<&str>) -> io::Result<()> {
        // Not where only the settings are made again: if that fails, what is lost next would pass
        // for something that was never made.
        if !(self.has(KEY_FILE) && has_database(&self.folder)) {
            let mark =
                "Bellbird has begun its first start in this folder. The next start goes on.\n";
            self.write(MARK, mark)?;
        }
        if !self.has(KEY_FILE) {
            self.write(KEY_FILE, &format!("{}\n", new_master_key("main")))?;
        }
        self.write_draft(SETTINGS_FILE, &settings_text(public_url))
    }

    fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Writes a file that is there as a whole or not at all.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.write_draft(name, text)?;
        fs::rename(self.folder.join(draft_name(name)), self.folder.join(name))?;
        sync(&self.folder)
    }

    fn write_draft(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(draft_name(name));
        // A draft that an earlier start or another user has left is not written into: whoever has
        // it open would read the key.
        remove(&path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())?;
        give_to_owner(&file, &self.folder);
        file.sync_all()
    }
}

async fn make_database(storage: &Storage, actor: Actor) -> anyhow::Result<()> {
    storage
        .migrate()
        .await
        .context("could not make the database")?;
    storage.secrets().check_sealing_key().await?;
    let mut change = storage.begin_change(actor, Timestamp::now()).await?;
    // A start that was interrupted may have marked it.
    if bellbird_management::first_start::begin(&mut change).await? {
        change.commit().await?;
    }
    Ok(())
}

/// Fails for an installation that a first start has made, and that has lost its database since. A
/// new one would hide that, and the connections of the old one would be gone.
pub fn check_database(settings: &Settings) -> anyhow::Result<()> {
    let Some(folder) = made_in(settings) else {
        return Ok(());
    };
    let _ = remove(&folder.join(MARK));
    if has_database(&folder) {
        return Ok(());
    }
    bail!(lost_database(
        &folder,
        "restore a backup with `bellbird restore`"
    ))
}

/// The folder of an installation that a first start has made: its settings, key and database are
/// all there.
pub fn made_in(settings: &Settings) -> Option<PathBuf> {
    let folder = settings.file.as_ref()?.parent()?;
    let Some(Origin::SecretFile(key)) = settings.origin("secrets.key") else {
        return None;
    };
    let database = Storage::sqlite_path(settings.database.url.expose_secret())?;
    // They are relative if the settings were found in the working directory.
    let is_in_folder =
        |path: &Path, name| absolute(path).is_ok_and(|path| path == folder.join(name));
    let is_made = is_in_folder(key, KEY_FILE) && is_in_folder(&database, DATABASE_FILE);
    is_made.then(|| folder.to_owned())
}

/// An empty file is none.
fn has_database(folder: &Path) -> bool {
    fs::metadata(folder.join(DATABASE_FILE)).is_ok_and(|file| file.len() > 0)
}

/// `restore` says how to get a backup back. The command for it needs the settings file.
fn lost_database(folder: &Path, restore: &str) -> String {
    let (database, key) = (folder.join(DATABASE_FILE), folder.join(KEY_FILE));
    let state = if database.exists() {
        "empty"
    } else {
        "not there"
    };
    format!(
        "the database {} is {state}, but its master key {} is there, so this is no first start: {restore}, or move \
         the folder {} away to start over",
        database.display(),
        key.display(),
        folder.display()
    )
}

fn lost_key(folder: &Path) -> String {
    let (database, key) = (folder.join(DATABASE_FILE), folder.join(KEY_FILE));
    format!(
        "the master key {} is not there, but its database {} is or was there, so this is no first start: put your copy \
         of the key there. If it is lost, docs/secrets.md#if-the-key-is-lost says what still works, and to start over, \
         move the folder {} away",
        key.display(),
        database.display(),
        folder.display()
    )
}

/// Strings of JSON are strings of TOML.
fn settings_text(public_url: Option<&str>) -> String {
    let quoted = |text: String| serde_json::Value::String(text).to_string();
    let public = public_url.map(|url| quoted(url.to_owned()));
    let public =
        public.map(|url| format!("\n[api]\npublic_url = {url}\n\n[console]\npublic_url = {url}\n"));
    let public = public.unwrap_or_default();
    format!(
        "# Settings of the Bellbird in this folder, made by its first start. bellbird.example.toml has all of them.\n\
         # What is set here or in the environment overrides what was entered in the console. Relative paths begin at\n\
         # this folder, so it can be moved as a whole while the service is stopped.\n\n\
         [database]\n\
         # Users, hashes of API keys, connections and webhooks.\n\
         url = \"sqlite:{DATABASE_FILE}\"\n\n\
         [backup]\n\
         # Where the service copies the database every day. Copy the files to another machine.\n\
         folder = \"backups\"\n\n\
         [secrets]\n\
         # Opens the credentials in the database. Keep a copy elsewhere: without it, a backup is worth little.\n\
         key_file = \"{KEY_FILE}\"\n{public}"
    )
}

fn draft_name(name: &str) -> String {
    format!(".{name}.new")
}

/// Makes the folder for its user alone. One that is there and empty is tightened. Returns whether
/// other users may read or write in it: a group that may only read was let in on purpose.
fn make_folder(folder: &Path) -> io::Result<bool> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
        Ok(()) => return Ok(false),
    }
    let is_open = fs::metadata(folder)?.mode() & 0o027 != 0;
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut files| files.next().is_none());
    // Only its owner may.
    let tighten = || fs::set_permissions(folder, Permissions::from_mode(0o700)).is_ok();
    Ok(is_open && !(is_empty() && tighten()))
}

/// What root makes in the folder of the service's user belongs to that user. Only root can do that.
/// Otherwise the file stays with this user, whom the group of the folder may let write there.
fn give_to_owner(file: &File, folder: &Path) {
    if let (Ok(own), Ok(owner)) = (file.metadata(), fs::metadata(folder))
        && own.uid() != owner.uid()
    {
        let _ = fchown(file, Some(owner.uid()), Some(owner.gid()));
    }
}

/// Succeeds also if it is not there.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
