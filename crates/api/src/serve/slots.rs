//! The open connections of a listener: how many each client address has, and which one to close for
//! a new one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::serve::ResponseTimeout;
use axum::body::{Body, Bytes};
use axum::response::Response;
use bellbird_limits::client_address::{Network, rate_limit_key};
use http::HeaderValue;
use http::header::CONNECTION;
use http_body::{Body as _, Frame};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

#[derive(Default)]
pub(super) struct Slots {
    open: Arc<Mutex<Open>>,
    is_stopping: Arc<AtomicBool>,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Arc<Connection>>,
    next_id: u64,
}

struct Connection {
    /// Absent for a trusted proxy, which has no limit of its own.
    address: Option<IpAddr>,
    /// Since when the client may send a request. None while one is handled.
    idle_since: Mutex<Option<Instant>>,
    /// Whether a body is being sent that was not complete when its response began.
    is_streaming: AtomicBool,
    closed: CancellationToken,
}

/// An open connection. Dropping it gives the slot back.
pub(super) struct Slot {
    id: u64,
    connection: Arc<Connection>,
    open: Arc<Mutex<Open>>,
    is_stopping: Arc<AtomicBool>,
}

impl Slots {
    /// From now on, each connection ends with the response that begins next.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Registers a connection that was accepted at `now`. An address that already has `max`
    /// connections loses the one that has been idle longest. None if none of them has been idle for
    /// `idle_min`.
    pub(super) fn open(
        &self,
        peer: IpAddr,
        trusted_proxies: &[Network],
        max: usize,
        idle_min: Duration,
        now: Instant,
    ) -> Option<Slot> {
        let is_proxy = trusted_proxies.iter().any(|network| network.contains(peer));
        let address = (!is_proxy).then(|| rate_limit_key(peer));
        let mut open = self.open.lock();
        if address.is_some()
            && open.of(address).count() >= max
            && !open.close_longest_idle(address, idle_min, now)
        {
            return None;
        }
        let connection = Arc::new(Connection {
            address,
            idle_since: Mutex::new(Some(now)),
            is_streaming: AtomicBool::new(false),
            closed: CancellationToken::new(),
        });
        let id = open.next_id;
        open.next_id += 1;
        open.connections.insert(id, Arc::clone(&connection));
        let (open, is_stopping) = (Arc::clone(&self.open), Arc::clone(&self.is_stopping));
        Some(Slot {
            id,
            connection,
            open,
            is_stopping,
        })
    }

    /// Closes the connection that has been idle longest, if one has been idle for `idle_min`,
    /// except `newest`.
    pub(super) fn close_longest_idle(&self, newest: &Slot, idle_min: Duration, now: Instant) {
        let mut open = self.open.lock();
        let kept = open.connections.remove(&newest.id);
        open.close_longest_idle(None, idle_min, now);
        open.connections
            .extend(kept.map(|connection| (newest.id, connection)));
    }

    /// Closes the connections whose clients have sent no whole request for `idle_min`, except while
    /// a response is streamed.
    pub(super) fn close_waiting(&self, idle_min: Duration, now: Instant) {
        for connection in self.open.lock().connections.values() {
            let is_waiting = connection
                .idle_since
                .lock()
                .is_some_and(|since| now.duration_since(since) >= idle_min);
            if is_waiting && !connection.is_streaming.load(Ordering::Relaxed) {
                connection.closed.cancel();
            }
        }
    }
}

impl Open {
    /// The connections of an address, or all.
    fn of(&self, address: Option<IpAddr>) -> impl Iterator<Item = (&u64, &Arc<Connection>)> {
        self.connections
            .iter()
            .filter(move |(_, connection)| address.is_none() || connection.address == address)
    }

    fn close_longest_idle(
        &mut self,
        address: Option<IpAddr>,
        idle_min: Duration,
        now: Instant,
    ) -> bool {
        let idle = self
            .of(address)
            .filter_map(|(id, connection)| Some(((*connection.idle_since.lock())?, *id)));
        let longest = idle
            .min()
            .filter(|(since, _)| now.duration_since(*since) >= idle_min);
        let Some(connection) = longest.and_then(|(_, id)| self.connections.remove(&id)) else {
            return false;
        };
        connection.closed.cancel();
        true
    }
}

impl Slot {
    pub(super) fn set_busy(&self) {
        *self.connection.idle_since.lock() = None;
    }

    pub(super) fn set_idle(&self, now: Instant) {
        *self.connection.idle_since.lock() = Some(now);
    }

    /// Watches a body that is made while it is sent. One that is complete already is left as it is.
    pub(super) fn watch(&self, mut response: Response) -> Response {
        if self.is_stopping.load(Ordering::Relaxed) {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        self.connection.is_streaming.store(true, Ordering::Relaxed);
        let timeout =
            response
                .extensions()
                .get::<ResponseTimeout>()
                .map(|ResponseTimeout(timeout)| {
                    let (end, closed) = (Instant::now() + *timeout, self.connection.closed.clone());
                    AbortOnDropHandle::new(tokio::spawn(async move {
                        tokio::time::sleep_until(end).await;
                        closed.cancel();
                    }))
                });
        let connection = Arc::clone(&self.connection);
        response.map(|body| {
            Body::new(StreamedBody {
                body,
                connection,
                _timeout: timeout,
            })
        })
    }

    /// Returns when the connection has to be closed: for another one, because its response takes
    /// too long, or because the service stops.
    pub(super) async fn closed(&self) {
        self.connection.closed.cancelled().await;
    }
}

/// A body that is made while it is sent. The connection is idle while the client reads, and busy
/// while the next frame is made, which may take long.
pub(super) struct StreamedBody {
    body: Body,
    connection: Arc<Connection>,
    _timeout: Option<AbortOnDropHandle<()>>,
}

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(task);
        *self.connection.idle_since.lock() = frame.is_ready().then(Instant::now);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        self.connection.is_streaming.store(false, Ordering::Relaxed);
        *self.connection.idle_since.lock() = Some(Instant::now());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.lock().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    /// Longer than a test.
    const IDLE_MIN: Duration = Duration::from_secs(3_600);

    fn open(slots: &Slots, peer: &str, now: Instant) -> Option<Slot> {
        let proxies = ["10.0.0.1".parse().unwrap()];
        slots.open(peer.parse().unwrap(), &proxies, 2, IDLE_MIN, now)
    }

    fn is_closed(slot: &Slot) -> bool {
        slot.connection.closed.is_cancelled()
    }

    #[test]
    fn address_replaces_its_own_longest_idle_connection() {
        let (slots, start) = (Slots::default(), Instant::now());
        let other = open(&slots, "2001:db8:2::1", start).unwrap();
        let first = open(&slots, "2001:db8:1::1", start).unwrap();
        let second = open(&slots, "2001:db8:1::2", start).unwrap();
        assert!(
            open(&slots, "2001:db8:1::3", start).is_none(),
            "too young to be closed"
        );
        let later = start + IDLE_MIN;
        first.set_busy();
        let third = open(&slots, "2001:db8:1::3", later).unwrap();
        assert_eq!(
            [&other, &first, &second, &third].map(is_closed),
            [false, false, true, false]
        );
        third.set_busy();
        assert!(
            open(&slots, "2001:db8:1::4", later + IDLE_MIN).is_none(),
            "all are busy"
        );
        drop(third);
        assert!(open(&slots, "2001:db8:1::4", later).is_some());
    }

    #[tokio::test]
    async fn streaming_connection_is_idle_only_while_the_client_reads() {
        let (slots, start) = (Slots::default(), Instant::now());
        let slot = open(&slots, "10.0.0.1", start).unwrap();
        let is_idle = || slot.connection.idle_since.lock().is_some();
        let (sender, frames) =
            tokio::sync::mpsc::unbounded_channel::<Result<Bytes, std::io::Error>>();
        let frames = futures_util::stream::unfold(frames, async |mut frames| {
            Some((frames.recv().await?, frames))
        });
        let mut body = slot
            .watch(Response::new(Body::from_stream(frames)))
            .into_body();
        slot.set_idle(start);
        assert!(body.frame().now_or_never().is_none());
        assert!(!is_idle(), "the next frame is being made");
        sender.send(Ok(Bytes::from_static(b"rows"))).unwrap();
        body.frame().await.unwrap().unwrap();
        assert!(is_idle(), "the client reads");
        drop(sender);
        assert!(body.frame().await.is_none());
        assert!(is_idle());
        let whole = slot.watch(Response::new(Body::from("four")));
        assert_eq!(
            whole.body().size_hint().exact(),
            Some(4),
            "a whole body keeps its length"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_takes_too_long_closes_its_connection() {
        let slots = Slots::default();
        let slot = open(&slots, "10.0.0.1", Instant::now()).unwrap();
        let response = |timeout| {
            let frames = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
            let mut response = Response::new(Body::from_stream(frames));
            response
                .extensions_mut()
                .insert(ResponseTimeout(Duration::from_secs(timeout)));
            slot.watch(response)
        };
        let ended = response(10);
        let _slow = response(60);
        drop(ended);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(!is_closed(&slot), "the end of a response ends its time");
        tokio::time::timeout(Duration::from_secs(2), slot.closed())
            .await
            .unwrap();
    }

    #[test]
    fn stop_closes_waiting_connections_only() {
        let (slots, start) = (Slots::default(), Instant::now());
        let open_at = |now| open(&slots, "10.0.0.1", now).unwrap();
        let all = [
            open_at(start),
            open_at(start + IDLE_MIN),
            open_at(start),
            open_at(start),
        ];
        let [_, _, busy, streaming] = &all;
        busy.set_busy();
        let frames = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let body = streaming.watch(Response::new(Body::from_stream(frames)));
        slots.close_waiting(IDLE_MIN, start + IDLE_MIN);
        assert_eq!(all.each_ref().map(is_closed), [true, false, false, false]);
        drop(body);
        slots.close_waiting(IDLE_MIN, Instant::now() + IDLE_MIN);
        assert_eq!(all.each_ref().map(is_closed), [true, false, false, true]);
    }

    #[test]
    fn proxy_has_no_limit_of_its_own() {
        let (slots, now) = (Slots::default(), Instant::now());
        let opened: Vec<Slot> = (0..100)
            .map(|_| open(&slots, "10.0.0.1", now).unwrap())
            .collect();
        assert!(!opened.iter().any(is_closed));
    }

    #[test]
    fn longest_idle_of_all_is_closed_but_never_the_newest() {
        let (slots, start) = (Slots::default(), Instant::now());
        let first = open(&slots, "10.0.0.1", start).unwrap();
        let second = open(&slots, "10.0.0.2", start + IDLE_MIN).unwrap();
        first.set_busy();
        first.set_idle(start + 2 * IDLE_MIN);
        let newest = open(&slots, "10.0.0.3", start).unwrap();
        for _ in 0..2 {
            slots.close_longest_idle(&newest, IDLE_MIN, start + 2 * IDLE_MIN);
            assert_eq!(
                [&first, &second, &newest].map(is_closed),
                [false, true, false]
            );
        }
        slots.close_longest_idle(&newest, IDLE_MIN, start + 3 * IDLE_MIN);
        assert_eq!(
            [&first, &second, &newest].map(is_closed),
            [true, true, false]
        );
    }
}
