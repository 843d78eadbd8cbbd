//! The listener over raw TCP: input that is not HTTP, too large or too slow, and shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::routing::get;
use bellbird_api::serve::{ServeOptions, listen, serve};
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::process::text;
use crate::support::words::{assert_ends, assert_has, assert_starts};

/// Long enough for a slow machine, and shorter than the time after which an idle connection is
/// closed anyway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<()>,
    /// Notified when a request reaches `/slow`.
    slow_reached: Arc<Notify>,
    /// Lets that request continue.
    release: Arc<Notify>,
}

async fn start(options: ServeOptions) -> Server {
    let (slow_reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (reached, released) = (Arc::clone(&slow_reached), Arc::clone(&release));
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route(
            "/peer",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()),
        )
        .route(
            "/headers",
            get(async |headers: HeaderMap| headers.len().to_string()),
        )
        .route("/large", get(async || vec![b'x'; 32 * 1024 * 1024]))
        .route(
            "/slow",
            get(async move || {
                reached.notify_one();
                released.notified().await;
                "done"
            }),
        )
        .fallback(async |uri: http::Uri| format!("path of {}", uri.path().len()));
    let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let stop = CancellationToken::new();
    let ended = tokio::spawn(serve(listener, router, options, stop.clone()));
    Server {
        address,
        stop,
        ended,
        slow_reached,
        release,
    }
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// Asks for a path on a connection that stays open.
async fn request(stream: &mut TcpStream, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

/// Asks for `/slow` on a new connection. The request has reached it, and waits.
async fn begin_slow(server: &Server) -> TcpStream {
    let mut stream = connect(server).await;
    request(&mut stream, "/slow").await;
    server.slow_reached.notified().await;
    stream
}

/// Asks for the greeting on a connection, which then is idle.
async fn greet(stream: &mut TcpStream) {
    request(stream, "/").await;
    read_answer(stream, "hello").await;
}

/// Reads until the server closes.
async fn read_rest(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    let read = tokio::time::timeout(ANSWER_TIMEOUT, stream.read_to_string(&mut answer));
    read.await.expect("answered").unwrap();
    answer
}

/// Asserts that the server closes a connection without another byte.
async fn assert_closed(stream: &mut TcpStream) {
    let mut chunk = [0; 16];
    let read = tokio::time::timeout(ANSWER_TIMEOUT, stream.read(&mut chunk));
    assert_eq!(read.await.expect("closed").unwrap_or(0), 0);
}

/// Sends bytes and reads until the server closes.
async fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = connect(server).await;
    let (mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    // The server may stop reading before everything is sent. The response is read all the same.
    let (_, read) = tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut answer));
    read.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads one response from a connection that stays open, until `end`.
async fn read_answer(stream: &mut TcpStream, end: &str) -> String {
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while !answer.ends_with(end.as_bytes()) {
        let count = stream.read(&mut chunk).await.unwrap();
        assert!(count > 0, "closed after {}", answer.escape_ascii());
        answer.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8(answer).unwrap()
}

/// Asserts that the response is the HTTP library's own, without a body, and that the connection was
/// closed after it.
fn assert_bare(answer: &str, status: &str) {
    let head = answer
        .strip_suffix("\r\n\r\n")
        .unwrap_or_else(|| panic!("no bare answer in {answer:?}"));
    assert_starts(head, &format!("HTTP/1.1 {status} "));
    assert_has(head, "\r\ncontent-length: 0");
}

#[tokio::test]
async fn router_answers_and_receives_the_peer() {
    let server = start(ServeOptions::default()).await;
    let mut stream = connect(&server).await;
    let own = stream.local_addr().unwrap().to_string();
    request(&mut stream, "/peer").await;
    assert_starts(&read_answer(&mut stream, &own).await, "HTTP/1.1 200 OK");
    // A second request on the same connection.
    request(&mut stream, "/").await;
    assert_starts(&read_answer(&mut stream, "hello").await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn non_http_input_gets_a_bare_400() {
    let server = start(ServeOptions::default()).await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n"[..],
        b"what is this\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET /\x7f\x01 HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        assert_bare(&exchange(&server, garbage).await, "400");
    }
    // After a request.
    for method in ["GET", "HEAD"] {
        let request = format!("{method} / HTTP/1.1\r\nhost: x\r\n\r\ngarbage\r\n\r\n");
        let answer = exchange(&server, request.as_bytes()).await;
        assert_starts(&answer, "HTTP/1.1 200 OK");
        assert_bare(&answer[answer.rfind("HTTP/1.1").unwrap()..], "400");
    }
    // A bad body does not delay the answer.
    let request =
        b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nnot a chunk\r\n";
    assert_ends(&exchange(&server, request).await, "hello");
    // HTTP/2 is not spoken.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(exchange(&server, preface).await, "");
}

#[tokio::test]
async fn head_is_read_up_to_the_librarys_limits() {
    let server = start(ServeOptions::default()).await;
    let url = |length: usize| {
        let path = "a".repeat(length);
        format!("GET /{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    };
    let headers = |count: usize, length: usize| {
        let value = "v".repeat(length);
        let fields: String = (0..count)
            .map(|at| format!("x-{at}: {value}\r\n"))
            .collect();
        format!("GET /headers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n")
    };
    // More than the API's own limits allow, so that it can respond with its error object.
    for (request, end) in [
        (url(60 * 1024), "path of 61441"),
        (headers(1, 80 * 1024), "\r\n\r\n3"),
        (headers(250, 250), "\r\n\r\n252"),
    ] {
        assert_ends(&exchange(&server, request.as_bytes()).await, end);
    }
    assert_bare(&exchange(&server, headers(300, 10).as_bytes()).await, "431");
    // The rest of such a request is not read, and the client may see the reset before the response.
    let mut stream = connect(&server).await;
    let _ = stream
        .write_all(headers(1, 3 * 1024 * 1024).as_bytes())
        .await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
}

#[tokio::test]
async fn silent_client_is_disconnected_and_slow_handler_is_not() {
    let options = ServeOptions {
        head_timeout: Duration::from_secs(1),
        ..ServeOptions::default()
    };
    let server = start(options).await;
    for beginning in [&b""[..], b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let answer = exchange(&server, beginning).await;
        assert_eq!(answer, "", "{}", String::from_utf8_lossy(beginning));
    }
    // The same for the second request of a connection.
    let mut stream = connect(&server).await;
    greet(&mut stream).await;
    stream.write_all(b"GET / HTT").await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);

    let mut stream = begin_slow(&server).await;
    // Two later connections have run into the limit. By now this one would have, too.
    assert_eq!(exchange(&server, b"").await, "");
    assert_eq!(exchange(&server, b"").await, "");
    server.release.notify_one();
    assert_starts(&read_answer(&mut stream, "done").await, "HTTP/1.1 200 OK");
    // From here on the connection is idle, and is closed.
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let options = ServeOptions {
        write_timeout: Duration::from_millis(50),
        connections_max: 1,
        ..ServeOptions::default()
    };
    let server = start(options).await;
    let mut greedy = connect(&server).await;
    request(&mut greedy, "/large").await;
    // Only one connection is allowed: this one gets its response after the other is closed.
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_ends(&exchange(&server, request).await, "hello");
}

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let server = start(ServeOptions {
        connections_max: 1,
        // Else the first one gives way as soon as it has been idle for a second.
        idle_min: Duration::MAX,
        ..ServeOptions::default()
    })
    .await;
    let mut first = begin_slow(&server).await;
    let mut second = connect(&server).await;
    request(&mut second, "/").await;
    server.release.notify_one();
    read_answer(&mut first, "done").await;
    let early = second.try_read(&mut [0; 16]);
    assert!(early.is_err(), "answered although the limit was reached");
    drop(first);
    read_answer(&mut second, "hello").await;
}

#[tokio::test]
async fn shutdown_drains_requests_and_stops_accepting() {
    let server = start(ServeOptions::default()).await;
    let mut idle = connect(&server).await;
    greet(&mut idle).await;
    let mut busy = begin_slow(&server).await;
    server.stop.cancel();
    let count = idle.read(&mut [0; 16]).await.unwrap();
    assert_eq!(count, 0, "an idle connection closes");
    assert!(TcpStream::connect(server.address).await.is_err() || !server.ended.is_finished());
    server.release.notify_one();
    assert_ends(&read_rest(&mut busy).await, "done");
    server.ended.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// A proxy may be sending it when the service stops, and cannot send a POST again.
#[tokio::test]
async fn open_connections_take_one_more_request_after_a_stop() {
    let server = start(ServeOptions {
        drain: ANSWER_TIMEOUT,
        ..ServeOptions::default()
    })
    .await;
    let (mut used, mut fresh) = (connect(&server).await, connect(&server).await);
    greet(&mut used).await;
    server.stop.cancel();
    // Until the socket is closed. The system may accept some of these before.
    while let Ok(mut stream) = TcpStream::connect(server.address).await {
        let _ = stream.shutdown().await;
    }
    for stream in [&mut used, &mut fresh] {
        let post = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab";
        stream.write_all(post).await.unwrap();
        let answer = read_rest(stream).await;
        assert_starts(&answer, "HTTP/1.1 405 ");
        assert_has(&answer, "\r\nconnection: close\r\n");
    }
    tokio::time::timeout(ANSWER_TIMEOUT, server.ended)
        .await
        .expect("nothing is left to wait for")
        .unwrap();
}

#[tokio::test]
async fn shutdown_has_a_deadline() {
    let server = start(ServeOptions {
        stop_timeout: Duration::from_millis(50),
        ..ServeOptions::default()
    })
    .await;
    let mut busy = begin_slow(&server).await;
    server.stop.cancel();
    server.ended.await.unwrap();
    assert_eq!(busy.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn unfinished_head_does_not_hold_up_the_stop() {
    let server = start(ServeOptions {
        stop_timeout: Duration::from_secs(300),
        ..ServeOptions::default()
    })
    .await;
    let (mut first, mut second) = (connect(&server).await, connect(&server).await);
    first.write_all(b"GET / HT").await.unwrap();
    greet(&mut second).await;
    second.write_all(b"GET / HTTP/1.1\r\nho").await.unwrap();
    let mut busy = begin_slow(&server).await;
    server.stop.cancel();
    for unfinished in [&mut first, &mut second] {
        assert_closed(unfinished).await;
    }
    // A request in flight finishes.
    server.release.notify_one();
    assert_ends(&read_rest(&mut busy).await, "done");
    server.ended.await.unwrap();
}

/// Opens a connection from an address of this machine.
async fn connect_from(server: &Server, address: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn get_from(server: &Server, address: [u8; 4]) -> String {
    let mut stream = connect_from(server, address).await;
    let get = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(get).await.unwrap();
    read_rest(&mut stream).await
}

#[tokio::test]
async fn one_address_leaves_connections_to_others() {
    bellbird_api::serve::raise_open_files_limit();
    let server = start(ServeOptions {
        idle_min: Duration::MAX,
        ..ServeOptions::default()
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..1_100 {
        held.push(connect_from(&server, [127, 0, 0, 1]).await);
    }
    assert_ends(&get_from(&server, [127, 0, 0, 2]).await, "hello");
    // The last one gets a response, and is closed.
    let answer = read_rest(held.last_mut().unwrap()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_starts(head, "HTTP/1.1 429 Too Many Requests\r\n");
    assert_has(head, "\r\nretry-after: 1\r\n");
    assert_has(head, &format!("\r\ncontent-length: {}\r\n", body.len()));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_has(text(&body["error"], "message"), "Too many connections");
}

#[tokio::test]
async fn trusted_proxy_may_open_all_connections() {
    let trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let options = ServeOptions {
        connections_per_address_max: 1,
        trusted_proxies,
        ..ServeOptions::default()
    };
    let server = start(options).await;
    let mut held = [connect(&server).await, connect(&server).await];
    for stream in &mut held {
        greet(stream).await;
    }
}

#[tokio::test]
async fn idle_connection_gives_way_to_a_new_one() {
    let options = ServeOptions {
        connections_max: 3,
        idle_min: Duration::ZERO,
        ..ServeOptions::default()
    };
    let server = start(options).await;
    let mut busy = connect_from(&server, [127, 0, 0, 1]).await;
    request(&mut busy, "/slow").await;
    server.slow_reached.notified().await;
    let mut idle = connect_from(&server, [127, 0, 0, 2]).await;
    let mut slow_head = connect_from(&server, [127, 0, 0, 3]).await;
    slow_head.write_all(b"GET / HT").await.unwrap();
    let mut newer = Vec::new();
    for last in [4, 5] {
        let mut stream = connect_from(&server, [127, 0, 0, last]).await;
        let greeted = tokio::time::timeout(ANSWER_TIMEOUT, greet(&mut stream));
        greeted.await.expect("answered");
        newer.push(stream);
    }
    for stream in [&mut idle, &mut slow_head] {
        assert_closed(stream).await;
    }
    server.release.notify_one();
    assert_starts(&read_answer(&mut busy, "done").await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn connection_handles_one_request_at_a_time() {
    let server = start(ServeOptions::default()).await;
    let mut stream = connect(&server).await;
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nGET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    server.slow_reached.notified().await;
    // A request on another connection has got its response, and the second one has not begun.
    assert_ends(&get_from(&server, [127, 0, 0, 1]).await, "hello");
    assert!(server.slow_reached.notified().now_or_never().is_none());
    server.release.notify_one();
    read_answer(&mut stream, "done").await;
    server.slow_reached.notified().await;
    server.release.notify_one();
    read_answer(&mut stream, "done").await;
}
