//! A resolver with name servers of a test.

use std::net::SocketAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use super::Resolver;
use crate::target::Rules;

impl Resolver {
    /// Uses these name servers over UDP, and no hosts file.
    pub fn with_name_servers(servers: &[SocketAddr], rules: Rules) -> Result<Self, String> {
        let servers = servers.iter().map(|server| {
            let mut over_udp = ConnectionConfig::udp();
            over_udp.port = server.port();
            NameServerConfig::new(server.ip(), true, vec![over_udp])
        });
        let config = ResolverConfig::from_name_servers(servers.collect());
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        Self::build(builder, rules)
    }
}
