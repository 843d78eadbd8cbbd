//! Log lines on their way to standard error. Whoever logs only copies its line into a shared buffer; one thread writes
//! what has gathered there, many lines in one call.
//!
//! `tracing-appender` has a thread too, but it allocates each line, wakes the thread for it, and writes it by itself.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait. When the reader of the log stands still, lines beyond it are dropped and counted.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(10);

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

/// The near end of the queue.
#[derive(Clone)]
pub(super) struct LineQueue(Arc<Shared>);

/// Writes the rest, and ends the thread, when dropped.
pub(super) struct QueueGuard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LineQueue {
    /// Starts the thread. Without one (the system has no more), lines are dropped.
    pub(super) fn start(out: impl Write + Send + 'static) -> (Self, QueueGuard) {
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&thread_shared, out));
        (Self(Arc::clone(&shared)), QueueGuard { shared, thread: thread.ok() })
    }
}

impl Write for &LineQueue {
    /// Takes one whole line, or drops it.
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

/// The thread: takes what has gathered, writes it, until the guard is dropped. An error has nobody to be told to.
fn write_all(shared: &Shared, mut out: impl Write) {
    let mut batch = Vec::new();
    loop {
        let mut state = shared.lock();
        while state.lines.is_empty() && !state.ending {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.ending {
            state = shared.changed.wait_timeout(state, GATHER).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut batch, &mut state.lines);
        let (dropped, ending) = (std::mem::take(&mut state.dropped), state.ending);
        drop(state);
        if dropped > 0 {
            let _ = writeln!(batch, "{{\"level\":\"WARN\",\"message\":\"{dropped} log lines were dropped\"}}");
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

    /// Hands each write over, and takes as long as the test wants.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
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
        let (queue, guard) = LineQueue::start(Slow(sender));
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
