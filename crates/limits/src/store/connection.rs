//! The connection to the server, or to the nodes of a cluster. It reconnects by itself.

use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    Cmd, ConnectionInfo, IntoConnectionInfo as _, Pipeline, RedisFuture, RedisResult, Value,
};

/// The connection is closed if sent data stays unacknowledged for this long.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a command follows a slot to another node. A fail-over needs one.
const CLUSTER_RETRIES: u32 = 3;

/// Cheap to clone.
#[derive(Clone)]
pub(super) enum Connection {
    One(ConnectionManager),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Connects when it is first used. A cluster may have the URLs of several nodes, separated by
    /// commas. Any of them tells the others.
    pub(super) fn open(
        urls: &str,
        is_cluster: bool,
        connect_timeout: Duration,
    ) -> RedisResult<Self> {
        if is_cluster {
            let nodes: Vec<_> = urls
                .split(',')
                .map(|url| url.trim().into_connection_info())
                .collect::<Result<_, _>>()?;
            let client = ClusterClient::builder(nodes)
                .tcp_settings(tcp_settings())
                .retries(CLUSTER_RETRIES)
                .build()?;
            let config = ClusterConfig::new().set_connection_timeout(connect_timeout);
            return Ok(Self::Cluster(
                client.get_pending_async_connection_with_config(config),
            ));
        }
        let info: ConnectionInfo = urls.into_connection_info()?;
        let client = redis::Client::open(info.set_tcp_settings(tcp_settings()))?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(None);
        Ok(Self::One(ConnectionManager::new_lazy_with_config(
            client, config,
        )?))
    }
}

fn tcp_settings() -> TcpSettings {
    TcpSettings::default()
        .set_nodelay(true)
        .set_user_timeout(TCP_TIMEOUT)
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
