//! Sends one POST over HTTP/1.1 on its own connection.

use std::io;
use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::refused::Refused;

#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) url: String,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

/// The headers and body of an attempt.
#[derive(Debug, Clone)]
pub(super) struct SignedRequest {
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Destination {
    /// Parses a plain HTTP URL. HTTPS is not needed, because receivers run on the test's machine.
    pub(super) fn parse(url: &str) -> Result<Self, Refused> {
        const EXPECTED: &str = "\"url\" must be a URL such as http://127.0.0.1:8080/hooks, or null";
        let uri: Uri = url.parse().map_err(|_| EXPECTED)?;
        let authority = uri
            .authority()
            .filter(|_| uri.scheme_str() == Some("http"))
            .ok_or(EXPECTED)?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        Ok(Self {
            url: url.to_owned(),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }

    pub(super) fn is_this_machine(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

/// Posts a request and returns the status of the response. Redirects are not followed.
pub(super) async fn post(to: &Destination, sent: &SignedRequest) -> io::Result<u16> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    // Dropping the set aborts the connection however this call ends.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let mut request = Request::post(&to.path)
        .header(header::HOST, &to.authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    for (name, value) in &sent.headers {
        request = request.header(*name, value);
    }
    let request = request
        .body(Full::new(sent.body.clone()))
        .map_err(io::Error::other)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    Ok(response.status().as_u16())
}
