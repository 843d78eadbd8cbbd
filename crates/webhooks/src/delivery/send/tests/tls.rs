//! TLS: which certificates the client accepts, connection reuse, and peers that never read.

use std::sync::LazyLock;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{AlertDescription, ClientConfig, ServerConfig};
use rustls_platform_verifier::Verifier;
use tokio::task::yield_now;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::target::resolver::tests::name_server::{MockAnswer, NameServer};

const HOST: &str = "hooks.example.com";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The test authority. The clients of this file trust it in addition to the system's authorities.
static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = params(&[]);
    // Needs its own name. With the default name, a self-signed certificate would count as issued by
    // it, with a bad signature.
    params
        .distinguished_name
        .push(DnType::CommonName, "Authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
});

/// Valid from yesterday until tomorrow.
#[expect(
    clippy::disallowed_methods,
    reason = "certificates are checked against the system clock"
)]
fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    let now =
        rcgen::date_time_ymd(1970, 1, 1) + SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (params.not_before, params.not_after) = (now - DAY, now + DAY);
    params
}

/// The certificate of an endpoint, with its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    fn issued(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.signed_by(&key, &AUTHORITY).unwrap().into(),
            key,
        }
    }

    fn valid() -> Self {
        Self::issued(&params(&[HOST]))
    }

    fn self_signed() -> Self {
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params(&[HOST]).self_signed(&key).unwrap().into(),
            key,
        }
    }

    fn for_another_name() -> Self {
        Self::issued(&params(&[
            "hooks.example.org",
            "example.com",
            "api.hooks.example.com",
        ]))
    }

    fn expired() -> Self {
        let mut params = params(&[HOST]);
        (params.not_before, params.not_after) = (params.not_before - DAY, params.not_before);
        Self::issued(&params)
    }
}

/// An endpoint on loopback that speaks TLS.
struct TlsPeer {
    peer: Peer,
    handshakes: Arc<AtomicUsize>,
    /// Notified after each completed handshake.
    shaken: Arc<Notify>,
    /// The client's alert for each failed handshake.
    alerts: Arc<Mutex<Vec<AlertDescription>>>,
}

impl TlsPeer {
    async fn new<F>(
        identity: Identity,
        serve: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let acceptor = acceptor(&identity);
        let serve = Arc::new(serve);
        let (handshakes, shaken, alerts) =
            <(Arc<AtomicUsize>, Arc<Notify>, Arc<Mutex<Vec<_>>>)>::default();
        let recorders = (
            Arc::clone(&handshakes),
            Arc::clone(&shaken),
            Arc::clone(&alerts),
        );
        let peer = Peer::new(move |stream| {
            let accepting = acceptor.accept(stream);
            let (serve, (handshakes, shaken, alerts)) = (Arc::clone(&serve), recorders.clone());
            async move {
                match accepting.await {
                    Ok(stream) => {
                        handshakes.fetch_add(1, Ordering::SeqCst);
                        shaken.notify_one();
                        serve(stream).await;
                    }
                    Err(error) => alerts.lock().push(alert(&error)),
                }
            }
        })
        .await;
        Self {
            peer,
            handshakes,
            shaken,
            alerts,
        }
    }

    /// Accepts every message.
    async fn accepting(identity: Identity) -> Self {
        Self::new(identity, |mut stream| async move {
            while request_of(&mut stream).await.is_some() {
                stream
                    .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                    .await
                    .unwrap();
            }
        })
        .await
    }

    fn url(&self) -> Url {
        format!("https://{HOST}:{}/hook", self.peer.address.port())
            .parse()
            .unwrap()
    }

    fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }
}

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
    let config = ServerConfig::builder().with_no_client_auth();
    TlsAcceptor::from(Arc::new(
        config
            .with_single_cert(vec![identity.certificate.clone()], key)
            .unwrap(),
    ))
}

fn alert(error: &io::Error) -> AlertDescription {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(&rustls::Error::AlertReceived(alert)) => alert,
        _ => panic!("{error:?}"),
    }
}

/// Resolves all names to loopback. Verifies certificates like [`Client::new`], but also trusts
/// [`AUTHORITY`].
async fn trusting() -> Client {
    let server = NameServer::new(|_| MockAnswer::addresses(&["127.0.0.1"])).await;
    let resolver = Resolver::with_name_servers(&[server.address], DEVELOPMENT).unwrap();
    let builder = ClientConfig::builder();
    let roots = [AUTHORITY.der().clone()];
    let verifier =
        Verifier::new_with_extra_roots(roots, Arc::clone(builder.crypto_provider())).unwrap();
    let tls = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Client::with_tls(tls, resolver, DEVELOPMENT, TIMEOUT)
}

/// The short time to connect leaves time to answer.
#[tokio::test]
async fn tls_connection_is_reused() {
    for connect_time in [ConnectTime::Usual, ConnectTime::Short] {
        let endpoint = TlsPeer::accepting(Identity::valid()).await;
        let (client, url) = (trusting().await, endpoint.url());
        for _ in 0..2 {
            let exchange = client.send(&url, message("{}"), connect_time).await;
            let outcome = (exchange.status, exchange.error);
            assert_eq!(outcome, (Some(204), None), "{connect_time:?}");
            // Lets the connection return to the pool.
            yield_now().await;
        }
        let connected = (endpoint.handshakes(), endpoint.peer.connections());
        assert_eq!(connected, (1, 1), "{connect_time:?}");
    }
}

/// The peer accepts the connection and never shakes hands.
#[tokio::test(start_paused = true)]
async fn short_connect_time_includes_tls() {
    for (connect_time, limit) in [
        (ConnectTime::Short, SHORT_CONNECT_TIMEOUT),
        (ConnectTime::Usual, TIMEOUT),
    ] {
        let peer =
            Peer::new(|mut stream| async move { while stream.read_u8().await.is_ok() {} }).await;
        let url: Url = format!("https://{HOST}:{}/hook", peer.address.port())
            .parse()
            .unwrap();
        let exchange = trusting()
            .await
            .send(&url, message("{}"), connect_time)
            .await;
        let outcome = (exchange.status, exchange.error);
        assert_eq!(outcome, (None, Some("no response in time")));
        assert_eq!(exchange.duration.as_secs(), limit.as_secs());
    }
}

#[tokio::test]
async fn connecting_alone_finishes_tls() {
    let endpoint = TlsPeer::accepting(Identity::valid()).await;
    trusting()
        .await
        .connect(&endpoint.url(), ConnectTime::Usual)
        .await
        .unwrap();
    endpoint.peer.ended.notified().await;
    assert_eq!(endpoint.handshakes(), 1);
    let endpoint = TlsPeer::accepting(Identity::self_signed()).await;
    assert_eq!(
        trusting()
            .await
            .connect(&endpoint.url(), ConnectTime::Usual)
            .await
            .unwrap_err()
            .error,
        Some("TLS failed")
    );
}

#[tokio::test]
async fn untrusted_certificate_gets_no_request() {
    for (identity, alert) in [
        (Identity::self_signed(), AlertDescription::UnknownCA),
        (
            Identity::for_another_name(),
            AlertDescription::BadCertificate,
        ),
        (Identity::expired(), AlertDescription::CertificateExpired),
    ] {
        let endpoint = TlsPeer::accepting(identity).await;
        let exchange = post(&trusting().await, &endpoint.url()).await;
        assert_eq!(exchange.status, None, "{alert:?}");
        assert_eq!(exchange.error, Some("TLS failed"), "{alert:?}");
        endpoint.peer.ended.notified().await;
        assert_eq!(endpoint.alerts.lock()[..], [alert]);
        assert_eq!(endpoint.handshakes(), 0);
    }
}

#[tokio::test]
async fn test_authority_is_not_trusted_by_default() {
    let endpoint = TlsPeer::accepting(Identity::valid()).await;
    let server = NameServer::new(|_| MockAnswer::addresses(&["127.0.0.1"])).await;
    let resolver = Resolver::with_name_servers(&[server.address], DEVELOPMENT).unwrap();
    let client = Client::new(resolver, DEVELOPMENT, TIMEOUT).unwrap();
    let error = post(&client, &endpoint.url()).await.error;
    assert_eq!(error, Some("TLS failed"));
    endpoint.peer.ended.notified().await;
    assert_eq!(endpoint.alerts.lock()[..], [AlertDescription::UnknownCA]);
}

/// Sends more than the socket buffers hold, and expects a timeout. Pauses time after the handshake,
/// which takes real time.
async fn assert_times_out(endpoint: &TlsPeer) {
    let (client, url) = (trusting().await, endpoint.url());
    let sending = client.send(
        &url,
        message(vec![b' '; 32 * 1024 * 1024]),
        ConnectTime::Usual,
    );
    let pausing = async {
        endpoint.shaken.notified().await;
        tokio::time::pause();
    };
    let (exchange, ()) = tokio::join!(sending, pausing);
    assert_eq!(exchange.status, None);
    assert_eq!(exchange.error, Some("no response in time"));
    assert_eq!(exchange.duration.as_secs(), TIMEOUT.as_secs());
}

#[tokio::test]
async fn tls_peer_that_never_reads_times_out() {
    let endpoint = TlsPeer::new(Identity::valid(), |stream| async move {
        let (mut stream, _) = stream.into_inner();
        tokio::time::sleep(TIMEOUT * 2).await;
        let mut read = [0; 65536];
        while stream.read(&mut read).await.is_ok_and(|length| length > 0) {}
    })
    .await;
    assert_times_out(&endpoint).await;
    endpoint.peer.ended.notified().await;
}

#[tokio::test]
async fn socket_closes_when_peer_never_reads() {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&resets);
    let endpoint = TlsPeer::new(Identity::valid(), move |stream| {
        let counted = Arc::clone(&counted);
        async move {
            let (mut stream, _) = stream.into_inner();
            tokio::time::sleep(TIMEOUT * 10).await;
            // A write to a closed socket resets the connection, a moment later. An open socket
            // takes bytes until its buffers are full.
            while stream.write_all(b"x").await.is_ok() {
                yield_now().await;
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    assert_times_out(&endpoint).await;
    endpoint.peer.ended.notified().await;
    assert_eq!(resets.load(Ordering::SeqCst), 1);
}
