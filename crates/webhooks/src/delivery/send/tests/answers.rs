//! Responses of endpoints, and their failures.

use std::process::Command;

use super::*;

#[tokio::test]
async fn request_is_sent_as_signed() {
    let received = Arc::new(parking_lot::Mutex::new(String::new()));
    let sink = Arc::clone(&received);
    let peer = Peer::new(move |mut stream| {
        let sink = Arc::clone(&sink);
        async move {
            *sink.lock() = request_of(&mut stream).await.unwrap();
            stream.write_all(status("200 OK").as_bytes()).await.unwrap();
        }
    })
    .await;
    let exchange = post(&client(DEVELOPMENT), &peer.url("http")).await;
    assert!(exchange.is_success());
    assert_eq!(exchange.status, Some(200));
    assert_eq!(exchange.error, None);
    assert_eq!(exchange.retry_after, None);
    let received = received.lock().clone();
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, r#"{"type":"endpoint.ping"}"#);
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /hook?x=1 HTTP/1.1");
    lines.sort_unstable();
    let expected = [
        "bellbird-endpoint: 0191e7a0-7c3b-7def-8000-00aabbccddff".to_owned(),
        "content-length: 24".to_owned(),
        "content-type: application/json".to_owned(),
        format!("host: {}", peer.address),
        concat!("user-agent: Bellbird/", env!("CARGO_PKG_VERSION")).to_owned(),
        "webhook-id: 0191e7a0-7c3b-7def-8000-00aabbccddee".to_owned(),
        "webhook-signature: v1,one v1,two".to_owned(),
        format!("webhook-timestamp: {SENT_AT}"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn success_depends_on_the_status() {
    for (line, expected) in [
        ("204 No Content", None),
        ("299 Fine", None),
        ("304 Not Modified", Some("redirect")),
        ("400 Bad Request", Some("rejected")),
        ("410 Gone", Some("rejected")),
        ("429 Too Many Requests", Some("rejected")),
        ("503 Service Unavailable", Some("rejected")),
        ("999 Whatever", Some("rejected")),
    ] {
        let peer = Peer::answering(status(line)).await;
        let outcome = outcome(&peer.url("http")).await;
        assert_eq!(outcome, (line[..3].parse().ok(), expected), "{line}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for code in ["301", "302", "303", "307", "308"] {
        let elsewhere = Peer::answering(status("200 OK")).await;
        let location = elsewhere.url("http");
        let answer =
            format!("HTTP/1.1 {code} There\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let peer = Peer::answering(answer).await;
        let outcome = outcome(&peer.url("http")).await;
        assert_eq!(outcome, (code.parse().ok(), Some("redirect")));
        assert_eq!(peer.connections(), 1);
        assert_eq!(elsewhere.connections(), 0);
    }
}

#[tokio::test]
async fn retry_after_is_returned() {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(SENT_AT as u64 + 90));
    for (value, expected) in [("120", 120), (date.as_str(), 90)] {
        let answer =
            format!("HTTP/1.1 429 Slow down\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let peer = Peer::answering(answer).await;
        let exchange = post(&client(DEVELOPMENT), &peer.url("http")).await;
        assert_eq!(exchange.status, Some(429));
        assert_eq!(exchange.error, Some("rejected"));
        assert_eq!(exchange.retry_after, Some(Duration::from_secs(expected)));
    }
}

#[test]
fn retry_after_parses_seconds_and_dates() {
    let day = 24 * 60 * 60;
    for (value, expected) in [
        ("0", Some(0)),
        (" 30 ", Some(30)),
        ("86401", Some(day)),
        ("99999999999999999999999999", Some(day)),
        ("Fri, 15 Jan 2027 08:00:30 GMT", Some(30)),
        ("Fri, 15 Jan 2027 07:59:00 GMT", Some(0)),
        ("Fri, 15 Jan 2077 08:00:00 GMT", Some(day)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
    ] {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
        let found = retry_after(&headers, SENT_AT);
        assert_eq!(found, expected.map(Duration::from_secs), "{value:?}");
    }
    assert_eq!(retry_after(&HeaderMap::new(), SENT_AT), None);
}

#[tokio::test]
async fn too_large_head_is_invalid() {
    let peer = Peer::new(|mut stream| async move {
        request_of(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.unwrap();
        while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
    })
    .await;
    assert_fails(&peer.url("http"), "invalid response").await;
    peer.ended.notified().await;
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n",
        "x: y\r\n".repeat(HEADERS_MAX)
    );
    let peer = Peer::answering(many).await;
    assert_fails(&peer.url("http"), "invalid response").await;
}

#[tokio::test]
async fn non_http_response_is_invalid() {
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 two OK\r\n\r\n",
        "\u{0}\u{0}\u{0}\r\n\r\n",
    ] {
        let peer = Peer::answering(answer).await;
        assert_fails(&peer.url("http"), "invalid response").await;
    }
}

#[tokio::test(start_paused = true)]
async fn slow_head_and_interim_responses_end_at_the_deadline() {
    for (begin, again) in [
        ("HTTP/1.1 200 OK\r\nx: ", "x"),
        ("", "HTTP/1.1 102 Processing\r\n\r\n"),
    ] {
        let peer = Peer::new(move |mut stream| async move {
            request_of(&mut stream).await;
            stream.write_all(begin.as_bytes()).await.unwrap();
            while stream.write_all(again.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
        .await;
        let exchange = post(&client(DEVELOPMENT), &peer.url("http")).await;
        let outcome = (exchange.status, exchange.error);
        assert_eq!(outcome, (None, Some("no response in time")), "{again}");
        assert_eq!(exchange.duration.as_secs(), TIMEOUT.as_secs(), "{again}");
        peer.ended.notified().await;
    }
}

#[tokio::test(start_paused = true)]
async fn silent_endpoint_times_out() {
    let peer =
        Peer::new(|mut stream| async move { while request_of(&mut stream).await.is_some() {} })
            .await;
    assert_fails(&peer.url("http"), "no response in time").await;
    peer.ended.notified().await;
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_never_reads_times_out() {
    let peer = Peer::new(|stream| async move {
        stream.readable().await.unwrap();
        tokio::time::sleep(TIMEOUT * 2).await;
        // Only the bytes in the socket buffers are left to read.
        let mut stream = stream;
        let mut read = [0; 65536];
        while stream.read(&mut read).await.is_ok_and(|length| length > 0) {}
    })
    .await;
    let (url, large) = (peer.url("http"), message(vec![b' '; 32 * 1024 * 1024]));
    let exchange = client(DEVELOPMENT)
        .send(&url, large, ConnectTime::Usual)
        .await;
    let outcome = (exchange.status, exchange.error);
    assert_eq!(outcome, (None, Some("no response in time")));
    peer.ended.notified().await;
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_cut_off() {
    for head in [
        "transfer-encoding: chunked\r\n\r\n",
        "content-length: 1000\r\n\r\n",
        "\r\n",
    ] {
        let peer = Peer::new(move |mut stream| async move {
            request_of(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\n{head}");
            stream.write_all(head.as_bytes()).await.unwrap();
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let client = client(DEVELOPMENT);
        let started = Instant::now();
        let exchange = post(&client, &peer.url("http")).await;
        assert!(exchange.is_success());
        let elapsed = started.elapsed();
        assert!(elapsed < BODY_TIMEOUT * 2, "{elapsed:?}");
        peer.ended.notified().await;
        assert!(post(&client, &peer.url("http")).await.is_success());
        assert_eq!(peer.connections(), 2);
    }
}

#[tokio::test]
async fn huge_body_is_not_read() {
    const GIGABYTE: usize = 1 << 30;
    for head in [
        format!("content-length: {GIGABYTE}\r\n\r\n"),
        "\r\n".to_owned(),
    ] {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let peer = Peer::new(move |mut stream| {
            let (head, counted) = (head.clone(), Arc::clone(&counted));
            async move {
                request_of(&mut stream).await;
                let head = format!("HTTP/1.1 200 OK\r\n{head}");
                stream.write_all(head.as_bytes()).await.unwrap();
                let part = [b'x'; 65536];
                while counted.load(Ordering::SeqCst) < GIGABYTE
                    && stream.write_all(&part).await.is_ok()
                {
                    counted.fetch_add(part.len(), Ordering::SeqCst);
                }
            }
        })
        .await;
        assert_eq!(outcome(&peer.url("http")).await, (Some(200), None));
        peer.ended.notified().await;
        // Only the socket buffers were filled.
        let written = written.load(Ordering::SeqCst);
        assert!(written < GIGABYTE / 16, "{written}");
    }
}

#[tokio::test]
async fn connection_is_reused_after_a_small_body() {
    for (length, connections) in [(0, 1), (100, 1), (4096, 1), (100_000, 3)] {
        let body = "x".repeat(length);
        let plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        let chunked = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        );
        let other = match length {
            0 => status("200 OK"),
            _ => chunked,
        };
        for answer in [plain, other] {
            let peer = Peer::answering(answer).await;
            let client = client(DEVELOPMENT);
            for _ in 0..3 {
                assert!(post(&client, &peer.url("http")).await.is_success());
                // Lets the connection return to the pool.
                tokio::task::yield_now().await;
            }
            assert_eq!(peer.connections(), connections, "{length}");
        }
    }
}

#[tokio::test]
async fn closed_connection_is_reported() {
    let resetting = Peer::new(|mut stream| async move {
        request_of(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let closing = Peer::new(|mut stream| async move { drop(request_of(&mut stream).await) }).await;
    let midway = Peer::new(|mut stream| async move {
        request_of(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.unwrap();
    })
    .await;
    for peer in [resetting, closing, midway] {
        assert_fails(&peer.url("http"), "connection lost").await;
    }
}

#[tokio::test]
async fn closed_port_is_not_reached() {
    // It does not listen, and nobody else gets its port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://{address}/").parse().unwrap();
        assert_fails(&url, "connection refused").await;
    }
}

#[tokio::test]
async fn plain_text_peer_fails_tls() {
    let plain = Peer::new(|mut stream| async move {
        let answer = status("400 Bad Request");
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let closing = Peer::new(|stream| async move { stream.readable().await.unwrap() }).await;
    for peer in [plain, closing] {
        assert_fails(&peer.url("https"), "TLS failed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn handshake_counts_against_the_deadline() {
    let peer = Peer::new(|mut stream| async move {
        let mut hello = Vec::new();
        while stream
            .read_buf(&mut hello)
            .await
            .is_ok_and(|length| length > 0)
        {}
    })
    .await;
    assert_fails(&peer.url("https"), "no response in time").await;
    peer.ended.notified().await;
}

/// Runs another test of this file in its own process, with a proxy in the environment.
#[test]
fn environment_proxies_are_ignored() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let mut run = Command::new(std::env::current_exe().unwrap());
    let test = "delivery::send::tests::answers::request_is_sent_as_signed";
    run.args(["--exact", test]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        run.env(name, &address).env(name.to_lowercase(), &address);
    }
    run.env_remove("NO_PROXY").env_remove("no_proxy");
    let done = run.output().unwrap();
    let has_passed = String::from_utf8_lossy(&done.stdout).contains("1 passed");
    assert!(done.status.success() && has_passed, "{done:?}");
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err());
}
