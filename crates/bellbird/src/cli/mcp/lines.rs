//! Messages as lines of standard input and output. Two threads wait for the pipes.

use std::io::{self, BufRead, Read as _, Write as _};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

/// Longest message of the client. The service reads 64 KiB, and says so.
const LINE_BYTES_MAX: usize = 256 * 1024;
/// Lines that wait in either direction.
const LINES_MAX: usize = 16;

pub(super) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    TooLong,
    Failed(io::Error),
}

/// The lines of standard input. Ends with it.
pub(super) fn read_stdin() -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        while let Some(line) = next(&mut input) {
            let is_last = matches!(line, Line::Failed(_));
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// The next line that is not empty.
fn next(input: &mut impl BufRead) -> Option<Line> {
    loop {
        let mut line = Vec::new();
        // One byte more, so that a line of the greatest length is distinguished from a longer one.
        match input
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut line)
        {
            Ok(0) => return None,
            Ok(_) if line.len() > LINE_BYTES_MAX && line.last() != Some(&b'\n') => {
                return Some(
                    input
                        .skip_until(b'\n')
                        .map_or_else(Line::Failed, |_| Line::TooLong),
                );
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => return Some(Line::Whole(line.trim_ascii().to_vec())),
            Err(error) => return Some(Line::Failed(error)),
        }
    }
}

/// Standard output. Its sender is closed once the client has closed its end.
pub(super) struct Output {
    pub sender: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Output {
    /// Writes each message as a line.
    pub(super) fn open() -> Self {
        let (sender, mut lines) = mpsc::channel::<Vec<u8>>(LINES_MAX);
        let thread = std::thread::spawn(move || {
            let mut output = io::stdout().lock();
            while let Some(mut line) = lines.blocking_recv() {
                line.push(b'\n');
                if output
                    .write_all(&line)
                    .and_then(|()| output.flush())
                    .is_err()
                {
                    return;
                }
            }
        });
        Self { sender, thread }
    }

    /// Waits until all lines are written. No other sender may be left.
    pub(super) async fn finish(self) {
        drop(self.sender);
        let thread = self.thread;
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_or_too_long() {
        let longest = "x".repeat(LINE_BYTES_MAX);
        let input = format!("one\r\n\n  \n{longest}\n{longest}y\ntwo");
        let mut input = input.as_bytes();
        let mut shown = Vec::new();
        while let Some(line) = next(&mut input) {
            shown.push(match line {
                Line::Whole(line) => line.len().to_string(),
                Line::TooLong => "too long".to_owned(),
                Line::Failed(error) => error.to_string(),
            });
        }
        assert_eq!(shown, ["3", "262144", "too long", "3"]);
    }
}
