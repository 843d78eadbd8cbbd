//! Looks up the names of endpoints, and vets every address that it finds.
//!
//! The connection asks this resolver itself and goes to the addresses that were vetted, so a name that changes its answer
//! between a check and the connection gains nothing. No answer is remembered for the next connection, whatever time to live
//! it has: each connection begins with a look-up that is vetted by the rules.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use hyper_util::client::legacy::connect::dns;
use tower::Service;

use crate::target::{Rules, is_allowed};

/// How long one look-up may take, both families of addresses and repetitions included.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one name server is waited for before it is asked again.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a question is repeated.
const REPETITIONS_MAX: usize = 1;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Finds the addresses of endpoints. Cloning is cheap.
#[derive(Clone)]
pub struct Resolver {
    names: TokioResolver,
    rules: Rules,
}

/// Why a name leads nowhere. Never holds the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// At least one of its addresses is not allowed.
    #[error("the name leads to an address that is not allowed")]
    NotAllowed,
    /// There is no such name, or it has no address.
    #[error("the name has no address")]
    NotFound,
    /// The name servers did not say.
    #[error("the name could not be looked up")]
    Unanswered,
}

impl Resolver {
    /// Asks the name servers of the system, after its file of hosts. Both are read once, here. Where the system names no
    /// server, only what that file has is found.
    ///
    /// # Errors
    /// A sentence when that cannot be set up.
    pub fn from_system(rules: Rules) -> Result<Self, String> {
        let builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
            tracing::warn!(%error, "the system names no name server: endpoints are found in its file of hosts only");
            let nobody = ResolverConfig::from_name_servers(Vec::new());
            TokioResolver::builder_with_config(nobody, TokioRuntimeProvider::default())
        });
        Self::build(builder, rules)
    }

    /// Asks these name servers over UDP, and no file. For tests, which have name servers of their own.
    ///
    /// # Errors
    /// A sentence when that cannot be set up.
    pub fn asking(servers: &[SocketAddr], rules: Rules) -> Result<Self, String> {
        let servers = servers.iter().map(|server| {
            let mut over_udp = ConnectionConfig::udp();
            over_udp.port = server.port();
            NameServerConfig::new(server.ip(), true, vec![over_udp])
        });
        let config = ResolverConfig::from_name_servers(servers.collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        Self::build(builder, rules)
    }

    fn build(mut builder: ResolverBuilder<TokioRuntimeProvider>, rules: Rules) -> Result<Self, String> {
        let options: &mut ResolverOpts = builder.options_mut();
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = QUESTION_TIMEOUT;
        options.attempts = REPETITIONS_MAX;
        let names = builder.build().map_err(|error| unusable(&error))?;
        Ok(Self { names, rules })
    }

    /// The addresses of a name, IPv4 first, at most 16. One that is not allowed spoils all of them: a name that mixes public
    /// and private addresses is a mistake or an attempt.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn vet(&self, host: &str) -> Result<Vec<IpAddr>, Refusal> {
        let mut name = Name::from_ascii(host).map_err(|_| Refusal::NotFound)?;
        // Taken as a whole: the system's search domains make no other name of it.
        name.set_fqdn(true);
        let looked_up = tokio::time::timeout(LOOKUP_TIMEOUT, self.names.lookup_ip(name)).await;
        let found = match looked_up {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if error.is_no_records_found() => return Err(Refusal::NotFound),
            Ok(Err(_)) | Err(_) => return Err(Refusal::Unanswered),
        };
        if !found.iter().all(|address| is_allowed(address, self.rules)) {
            return Err(Refusal::NotAllowed);
        }
        let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX).collect();
        if addresses.is_empty() { Err(Refusal::NotFound) } else { Ok(addresses) }
    }
}

fn unusable(error: &NetError) -> String {
    format!("the system's name servers cannot be used: {error}")
}

/// What a connection asks. The ports are left to it.
impl Service<dns::Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Refusal>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.vet(name.as_str()).await?;
            let sockets: Vec<SocketAddr> = addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(sockets.into_iter())
        })
    }
}

#[cfg(test)]
pub(crate) mod peer;
#[cfg(test)]
mod tests;
