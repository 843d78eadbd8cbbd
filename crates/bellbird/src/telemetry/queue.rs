//! Queue of log lines. A logging thread only copies its line into a shared buffer; a writer thread writes the buffered
//! lines to standard error, many in one call.
//!
//! `tracing-appender` also has a writer thread, but it allocates, wakes and writes once per line.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Size limit of the buffer. If the log's reader stalls, further lines are dropped and counted.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long lines are collected before they are written together.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    dropped: u64,
    ending: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
pub(super) struct LineQueue(Arc<Shared>);

/// Dropping it writes the remaining lines and ends the thread.
pub(super) struct QueueGuard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LineQueue {
    /// Starts the writer thread. If the system cannot start one, lines are dropped.
    pub(super) fn start(out: impl Write + Send + 'static) -> (Self, QueueGuard) {
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&thread_shared, out));
        (Self(Arc::clone(&shared)), QueueGuard { shared, thread: thread.ok() })
    }
}

impl Write for &LineQueue {
    /// Queues one whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.lines.len() + line.len() > BYTES_MAX {
            state.dropped += 1;
            return Ok(line.len());
        }
        let thread_waits = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        drop(state);
        if thread_waits {
            self.0.changed.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The writer thread. It runs until the guard is dropped. Write errors are ignored: there is nowhere to report them.
fn write_all(shared: &Shared, mut out: impl Write) {
    let mut batch = Vec::new();
    loop {
        let mut state = shared.lock();
        while state.lines.is_empty() && !state.ending {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.ending {
            state = shared.changed.wait_timeout(state, FLUSH_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut batch, &mut state.lines);
        let (dropped, ending) = (std::mem::take(&mut state.dropped), state.ending);
        drop(state);
        if dropped > 0 {
            let _ = writeln!(batch, "{{\"level\":\"WARN\",\"message\":\"{dropped} log lines dropped\"}}");
        }
        let _ = out.write_all(&batch).and_then(|()| out.flush());
        batch.clear();
        if ending {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A writer that blocks until the test receives each write.
    struct BlockingWriter(SyncSender<Vec<u8>>);

    impl Write for BlockingWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (LineQueue, QueueGuard, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        let (queue, guard) = LineQueue::start(BlockingWriter(sender));
        (queue, guard, receiver)
    }

    #[test]
    fn lines_are_written_in_order_and_many_at_once() {
        let (queue, guard, receiver) = start();
        for number in 0..1_000 {
            writeln!(&queue, "line {number}").unwrap();
        }
        let reader = std::thread::spawn(move || receiver.iter().collect::<Vec<_>>());
        drop(guard);
        drop(queue);
        let writes = reader.join().unwrap();
        let text = String::from_utf8(writes.concat()).unwrap();
        assert!(text.lines().enumerate().all(|(number, line)| line == format!("line {number}")));
        assert_eq!(text.lines().count(), 1_000);
        assert!(writes.len() < 10, "{} writes", writes.len());
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted() {
        let (queue, guard, receiver) = start();
        let line = [b'x'; 1024];
        let sent = 3 * BYTES_MAX / line.len();
        for _ in 0..sent {
            assert_eq!((&queue).write(&line).unwrap(), line.len());
        }
        let reader = std::thread::spawn(move || receiver.iter().flatten().collect::<Vec<u8>>());
        drop(guard);
        let written = String::from_utf8(reader.join().unwrap()).unwrap();
        let kept = written.bytes().filter(|byte| *byte == b'x').count() / line.len();
        let dropped: usize = written
            .split("\"message\":\"")
            .skip(1)
            .map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(kept + dropped, sent);
        assert!(dropped > 0);
    }
}
