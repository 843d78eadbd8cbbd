//! Resolves the host names of endpoints and vets every address.
//!
//! The HTTP client connects only to addresses from this resolver. So DNS rebinding, where a name
//! changes its address between a check and the connection, has no effect. Responses are never
//! cached: each new connection resolves and vets again.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use hyper_util::client::legacy::connect::dns;
use tower::Service;

use crate::target::{Rules, is_allowed};

/// Maximum time to resolve a name, with both address families and retries.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to wait for a name server before the next try.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRIES_MAX: usize = 1;
/// Maximum number of addresses to try for one name.
const ADDRESSES_MAX: usize = 16;

/// Cloning is cheap.
#[derive(Clone)]
pub struct Resolver {
    names: TokioResolver,
    rules: Rules,
}

/// Why a name could not be used. Never contains the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the name resolves to an address that is not allowed")]
    NotAllowed,
    /// The name does not exist, or has no address.
    #[error("the name has no address")]
    NotFound,
    /// The name servers failed or did not respond.
    #[error("the name could not be resolved")]
    Unavailable,
}

impl Resolver {
    /// Uses the hosts file and then the name servers of the system. Reads both settings once. If
    /// the system has no name server, only names in the hosts file resolve.
    ///
    /// Fails with a sentence for the operator.
    pub fn from_system(rules: Rules) -> Result<Self, String> {
        let builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
            tracing::warn!(%error, "no system name server found, using the hosts file only");
            let no_servers = ResolverConfig::from_name_servers(Vec::new());
            TokioResolver::builder_with_config(no_servers, TokioRuntimeProvider::default())
        });
        Self::build(builder, rules)
    }

    fn build(
        mut builder: ResolverBuilder<TokioRuntimeProvider>,
        rules: Rules,
    ) -> Result<Self, String> {
        let options: &mut ResolverOpts = builder.options_mut();
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = QUERY_TIMEOUT;
        options.attempts = RETRIES_MAX;
        let names = builder
            .build()
            .map_err(|error| format!("could not set up the DNS resolver: {error}"))?;
        Ok(Self { names, rules })
    }

    /// Resolves a name to at most 16 addresses, IPv4 first. One blocked address rejects the whole
    /// name: a mix of public and private addresses is a mistake or an attack.
    pub async fn vet(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut name = Name::from_ascii(host).map_err(|_| ResolveError::NotFound)?;
        // Fully qualified, so that the system's search domains are not appended.
        name.set_fqdn(true);
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.names.lookup_ip(name)).await;
        let found = match lookup {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if error.is_no_records_found() => return Err(ResolveError::NotFound),
            Ok(Err(_)) | Err(_) => return Err(ResolveError::Unavailable),
        };
        if !found.iter().all(|address| is_allowed(address, self.rules)) {
            return Err(ResolveError::NotAllowed);
        }
        let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX).collect();
        if addresses.is_empty() {
            Err(ResolveError::NotFound)
        } else {
            Ok(addresses)
        }
    }
}

/// Called by the HTTP client, which sets the port itself.
impl Service<dns::Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            let addresses = resolver.vet(name.as_str()).await?;
            let sockets: Vec<SocketAddr> = addresses
                .into_iter()
                .map(|address| SocketAddr::new(address, 0))
                .collect();
            Ok(sockets.into_iter())
        })
    }
}

#[cfg(any(test, feature = "test-support"))]
mod test_support;
#[cfg(test)]
pub(crate) mod tests;
