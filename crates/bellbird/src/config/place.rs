//! Where an installation is: the settings file that a command uses if none is named, and the data
//! folder that a first start makes.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};

pub const SETTINGS_FILE: &str = "bellbird.toml";
/// Settings that belong to the machine and not to a data folder.
const MACHINE_SETTINGS: &str = "/etc/bellbird/bellbird.toml";
/// The database of settings that name none.
const DATABASE_HERE: &str = "bellbird.db";
/// Names the data folder.
pub const DATA_DIR: &str = "BELLBIRD_DATA_DIR";
/// The data folder of root, and of the package's service, whose user owns it.
const SYSTEM_FOLDER: &str = "/var/lib/bellbird";

/// What decides where an installation is. Collected once.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--data-dir`.
    pub flag: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    data_home: Option<PathBuf>,
    home: Option<PathBuf>,
    /// Whether this is root, or the user of the package's service.
    has_system_folder: bool,
    /// Whether the environment names a database or a master key.
    names_installation: bool,
}

/// A settings file that no flag names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundFile {
    /// In the working directory.
    Here,
    /// In the data folder, in that of the package's service, or in `/etc`.
    Elsewhere(PathBuf),
    None,
}

impl Surroundings {
    pub fn of_process(flag: Option<PathBuf>) -> Self {
        let path = |name| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let names = ["BELLBIRD_DATABASE__URL", "BELLBIRD_SECRETS__KEY"];
        let user = rustix::process::geteuid();
        let owner = fs::metadata(SYSTEM_FOLDER).map(|folder| folder.uid());
        Self {
            flag,
            data_dir: path(DATA_DIR),
            data_home: path("XDG_DATA_HOME").filter(|path| path.is_absolute()),
            home: path("HOME").filter(|path| path.is_absolute()),
            has_system_folder: user.is_root() || owner.is_ok_and(|owner| owner == user.as_raw()),
            names_installation: names
                .iter()
                .any(|name| is_set(name) || is_set(&format!("{name}_FILE"))),
        }
    }

    /// The data folder, with its absolute path. `None` if nothing says where it is.
    pub fn data_folder(&self) -> Option<PathBuf> {
        let named = self.flag.as_ref().or(self.data_dir.as_ref()).cloned();
        let folder = named.or_else(|| {
            // The service's user has a home as well, in which the service does not look.
            if self.has_system_folder {
                return Some(SYSTEM_FOLDER.into());
            }
            let home = || Some(self.home.as_ref()?.join(".local/share"));
            Some(self.data_home.clone().or_else(home)?.join("bellbird"))
        })?;
        Some(absolute(&folder).unwrap_or(folder))
    }

    /// Whether nothing says where an installation is, so that a start is the first one. A database
    /// in the working directory is that of a start with the key in the environment.
    pub fn is_first_start(&self) -> bool {
        let has_database = || Path::new(DATABASE_HERE).exists() && !self.is_named_or_here();
        !self.names_installation && self.settings_file() == FoundFile::None && !has_database()
    }

    /// Whether the data folder is the working directory, or `--data-dir` names it.
    fn is_named_or_here(&self) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let folder = self.data_folder().and_then(|folder| real(&folder));
        self.flag.is_some() || (folder.is_some() && folder == real(Path::new(".")))
    }

    /// The settings file that a command uses: that of `--data-dir`, of the working directory, of
    /// the data folder, of the package's service, of the machine. An environment that names a
    /// database or a key is complete, so that only the working directory may add to it.
    pub fn settings_file(&self) -> FoundFile {
        let folder = self.data_folder();
        if self.flag.is_some() {
            let file = folder.map(|folder| folder.join(SETTINGS_FILE));
            return first_of(file.filter(|file| is_there(file)));
        }
        // One that this user may not see, as that of root may be, holds nothing for them.
        if Path::new(SETTINGS_FILE).exists() {
            return FoundFile::Here;
        }
        if self.names_installation {
            return FoundFile::None;
        }
        let is_named = self.data_dir.is_some();
        let is_of_machine = !is_named || folder.as_deref() == Some(Path::new(SYSTEM_FOLDER));
        let in_folder = folder.map(|folder| folder.join(SETTINGS_FILE));
        // The home of another user is not theirs either. What somebody has named is there, so that
        // they learn who may read it.
        let own = in_folder.filter(|file| {
            if is_named {
                is_there(file)
            } else {
                file.exists()
            }
        });
        let of_machine = of_machine();
        let of_machine = of_machine
            .into_iter()
            .filter(|file| is_of_machine && is_there(file));
        first_of(own.into_iter().chain(of_machine))
    }
}

/// Where the settings of the package's service are, and those that belong to the machine.
pub fn of_machine() -> [PathBuf; 2] {
    [
        Path::new(SYSTEM_FOLDER).join(SETTINGS_FILE),
        MACHINE_SETTINGS.into(),
    ]
}

fn first_of(files: impl IntoIterator<Item = PathBuf>) -> FoundFile {
    let first = files.into_iter().next();
    first.map_or(FoundFile::None, FoundFile::Elsewhere)
}

/// Whether there is a file, also if this user may not see it.
fn is_there(path: &Path) -> bool {
    match path.try_exists() {
        Ok(exists) => exists,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

/// What to do about a file that cannot be read, as the end of a message. Empty if it is not about
/// the Unix user.
pub(super) fn advice(path: &Path, error: &io::Error) -> String {
    if error.kind() != ErrorKind::PermissionDenied {
        return String::new();
    }
    let sudo = match path.ancestors().find_map(reader_of) {
        Some(user) => format!("sudo -u {user}"),
        None => "sudo".to_owned(),
    };
    format!(": another Unix user may, so run `{sudo} bellbird` in place of `bellbird`")
}

/// The user, not root, who may read the file: its owner, or the one whose group it has.
fn reader_of(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    if file.uid() != 0 {
        return user_name(file.uid());
    }
    if file.gid() == 0 {
        return None;
    }
    let group = name_of(&fs::read_to_string("/etc/group").ok()?, file.gid())?;
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let is_user = users
        .lines()
        .any(|line| line.split(':').next() == Some(&group));
    is_user.then_some(group)
}

pub fn user_name(uid: u32) -> Option<String> {
    name_of(&fs::read_to_string("/etc/passwd").ok()?, uid)
}

/// The name with an id in `/etc/passwd` or `/etc/group`.
fn name_of(lines: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    lines.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)? == id).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_folder_is_the_named_one_else_that_of_the_user() {
        let person = Surroundings {
            home: Some("/home/ada".into()),
            ..Surroundings::default()
        };
        let root = Surroundings {
            has_system_folder: true,
            ..person.clone()
        };
        let with_data_home = Surroundings {
            data_home: Some("/data/ada".into()),
            ..person.clone()
        };
        let with_variable = Surroundings {
            data_dir: Some("/data".into()),
            ..root.clone()
        };
        let with_flag = Surroundings {
            flag: Some("/srv/bellbird".into()),
            ..with_variable.clone()
        };
        for (surroundings, folder) in [
            (&person, "/home/ada/.local/share/bellbird"),
            (&with_data_home, "/data/ada/bellbird"),
            (&root, "/var/lib/bellbird"),
            (&with_variable, "/data"),
            (&with_flag, "/srv/bellbird"),
        ] {
            assert_eq!(surroundings.data_folder(), Some(folder.into()));
        }
        assert_eq!(Surroundings::default().data_folder(), None);
    }

    #[test]
    fn settings_of_the_data_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let surroundings = Surroundings {
            data_dir: Some(folder.path().into()),
            ..Surroundings::default()
        };
        assert_eq!(surroundings.settings_file(), FoundFile::None);
        let file = folder.path().join(SETTINGS_FILE);
        fs::write(&file, "").unwrap();
        assert_eq!(
            surroundings.settings_file(),
            FoundFile::Elsewhere(file.clone())
        );
        let complete = Surroundings {
            names_installation: true,
            ..surroundings
        };
        assert_eq!(complete.settings_file(), FoundFile::None);
    }

    #[test]
    fn names_are_those_of_ids() {
        let lines = "root:x:0:0:root:/root:/bin/sh\nbellbird:x:998:997::/var/lib/bellbird:\n";
        assert_eq!(name_of(lines, 998).as_deref(), Some("bellbird"));
        assert_eq!(name_of(lines, 99), None);
    }
}
