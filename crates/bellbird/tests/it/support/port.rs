//! Ports for servers that cannot choose one and say which.

use std::fs::{self, File};
use std::net::TcpListener;

/// A port that no other test is given before this process ends. It is below those that the kernel
/// gives to outgoing connections, so a server that starts again finds it free, and below those that
/// `scripts/test-postgres` tries.
pub(crate) fn free_port() -> u16 {
    let locks = std::env::temp_dir().join("bellbird-test-ports");
    fs::create_dir_all(&locks).unwrap();
    loop {
        let port = 10_000 + u16::try_from(uuid::Uuid::new_v4().as_u128() % 10_000).unwrap();
        let lock = File::create(locks.join(port.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            // Locked as long as it is open.
            std::mem::forget(lock);
            return port;
        }
    }
}
