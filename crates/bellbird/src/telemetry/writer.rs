//! The log thread: `tracing-appender` over a writer that collects lines for a moment.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait for the thread. If the log's reader stalls, further lines are dropped and
/// counted.
const LINES_MAX: usize = 8_192;
const BUFFER_BYTES: usize = 64 * 1024;

/// How long lines are collected before they are written together.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the thread. Dropping the guard writes the remaining lines.
pub(super) fn start(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let writer = Batched(BufWriter::with_capacity(BUFFER_BYTES, out));
    NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(writer)
}

/// The thread flushes whenever no line is queued, which may be after every line. A pause after each
/// flush lets lines queue up, so that neither the thread is woken nor a system call made for each.
struct Batched<W: Write>(BufWriter<W>);

impl<W: Write> Write for Batched<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.0.flush();
        std::thread::sleep(FLUSH_INTERVAL);
        flushed
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

    fn start_blocked() -> (NonBlocking, WorkerGuard, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        let (lines, guard) = start(BlockingWriter(sender));
        (lines, guard, receiver)
    }

    #[test]
    fn lines_are_written_in_order_and_many_at_once() {
        let (mut lines, guard, receiver) = start_blocked();
        for number in 0..1_000 {
            lines
                .write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        let reader = std::thread::spawn(move || receiver.iter().collect::<Vec<_>>());
        drop(guard);
        drop(lines);
        let writes = reader.join().unwrap();
        let text = String::from_utf8(writes.concat()).unwrap();
        assert!(
            text.lines()
                .enumerate()
                .all(|(number, line)| line == format!("line {number}"))
        );
        assert_eq!(text.lines().count(), 1_000);
        assert!(writes.len() < 10, "{} writes", writes.len());
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted() {
        let (mut lines, guard, receiver) = start_blocked();
        let dropped = lines.error_counter();
        let line = [b'x'; 1024];
        let sent = 3 * LINES_MAX;
        for _ in 0..sent {
            lines.write_all(&line).unwrap();
        }
        let reader =
            std::thread::spawn(move || receiver.iter().map(|bytes| bytes.len()).sum::<usize>());
        drop(guard);
        drop(lines);
        let kept = reader.join().unwrap() / line.len();
        assert_eq!(kept + dropped.dropped_lines(), sent);
        assert!(dropped.dropped_lines() > 0);
    }
}
