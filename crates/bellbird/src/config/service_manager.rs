//! What systemd tells a service that it starts with `Type=notify`: see `sd_notify(3)`.

use std::ffi::OsString;

/// The socket at which systemd waits to hear that the service is ready.
pub fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}
