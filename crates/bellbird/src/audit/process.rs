//! Finds the process that listens on a port of this machine.

use std::fs;
use std::io;
use std::path::Path;

/// The state of a socket that listens, in the tables of the kernel.
const LISTENING: &str = "0A";

#[derive(Debug, PartialEq, Eq)]
pub enum Listener {
    Process(u32),
    /// No process of this machine, or of this container.
    Nobody,
    /// One whose files this user may not see.
    Hidden,
}

pub fn listener_of(port: u16) -> io::Result<Listener> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(table) => sockets.extend(
                table
                    .lines()
                    .filter_map(|line| listening_socket(line, port)),
            ),
            // Without IPv6, there is no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() {
        return Ok(Listener::Nobody);
    }
    for process in fs::read_dir("/proc")?.flatten() {
        let Some(id) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if has_socket(&process.path(), &sockets) {
            return Ok(Listener::Process(id));
        }
    }
    Ok(Listener::Hidden)
}

/// The link of an open socket, from a line such as `0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0
/// 12345 ...`.
fn listening_socket(line: &str, port: u16) -> Option<String> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let (_, listens_on) = fields.get(1)?.rsplit_once(':')?;
    let is_it = *fields.get(3)? == LISTENING && u16::from_str_radix(listens_on, 16) == Ok(port);
    is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
}

/// False if this user may not see the files of the process.
fn has_socket(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut links = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| {
        sockets
            .iter()
            .any(|socket| link.as_os_str() == socket.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_this_process() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(
            listener_of(port).unwrap(),
            Listener::Process(std::process::id())
        );
        drop(socket);
        assert_eq!(listener_of(port).unwrap(), Listener::Nobody);
    }
}
