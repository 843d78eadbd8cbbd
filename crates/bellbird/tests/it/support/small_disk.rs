//! A file system of its own for a database, which a test fills. Needs root or sudo.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::Command;

use rustix::process::{getgid, getuid};
use tempfile::TempDir;

use crate::support::network::privileged;

pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// An empty file system in memory.
    pub(crate) fn new(mebibytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        let options = format!("size={mebibytes}m,mode=0700,uid={user},gid={group}");
        let mut mount = privileged("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "bellbird-test"]);
        run(mount.arg(folder.path()));
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves no byte free.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.path().join("filling")).unwrap();
        let block = vec![0; 64 * 1024];
        loop {
            match file.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Frees what [`Self::fill`] took.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.path().join("filling")).unwrap();
    }
}

impl Drop for SmallDisk {
    /// Also while a process still has a file of it open.
    fn drop(&mut self) {
        run(privileged("umount").arg("--lazy").arg(self.folder.path()));
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}
