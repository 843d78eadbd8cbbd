//! What is around the content of every page.

use bellbird_providers::Registry;
use http::Uri;

use super::names::sanitized;
use crate::local::is_loopback_url;
use crate::settings::{ConsoleSettings, Site};

/// Paths are below the path of the console's public URL, which a proxy may have added.
#[derive(Default)]
pub(crate) struct Frame {
    /// The prefix of all paths, without a trailing slash; usually empty.
    pub(crate) root: String,
    pub(crate) operator: Option<String>,
    /// Whether this is `bellbird demo`, whose pages offer a new link URL, and sign in without a
    /// link.
    pub(crate) is_demo: bool,
    /// Which providers are enabled, and simulated, now.
    pub(crate) providers: Registry,
    /// Whether the logos of simulated providers are below the console.
    pub(crate) serves_sandbox: bool,
    /// Whether the console is on this machine only, without TLS.
    pub(crate) is_on_loopback: bool,
}

impl Frame {
    pub(crate) fn new(settings: &ConsoleSettings, site: &Site, providers: Registry) -> Self {
        let url = site.console_url.parse::<Uri>().unwrap_or_default();
        let root = url.path().trim_end_matches('/').to_owned();
        Self {
            root,
            operator: settings.operator_name.as_deref().map(sanitized),
            is_demo: site.demo.is_some(),
            serves_sandbox: site.serves_sandbox,
            providers,
            is_on_loopback: site.console_url.starts_with("http:")
                && is_loopback_url(&site.console_url),
        }
    }
}
