//! Lines for stderr that hold nobody up: whoever writes puts them into a bounded buffer, and a thread of its own passes them
//! on.
//!
//! A pipe that nobody reads takes 64 KiB, and then no write to it returns. Beyond 1 MiB lines are dropped; how
//! many is counted, and said once the reader takes lines again. [`LineWriter::flush_within`] waits for what is in the buffer, a
//! bounded time: for the end of a process.
//!
//! `tracing-appender` has a writer like this. It bounds lines instead of bytes, says nothing of what it has dropped, and where
//! it cannot end in time it prints on stdout, which is for results.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{IntCounter, Registry};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait to be written: some 4,000 lines. As many may be on their way.
const BYTES_MAX: usize = 1 << 20;
/// Bytes beyond [`BYTES_MAX`] for lines that are not of the log: what a command ends with comes last.
const NOTES_BYTES_MAX: usize = 1 << 16;
/// Capacity the thread keeps once a larger burst is written.
const KEPT_BYTES_MAX: usize = 1 << 16;

static STDERR: LazyLock<LineWriter> = LazyLock::new(|| {
    LineWriter::start(output(), |dropped| {
        tracing::warn!(dropped, "lines of the log were dropped: nobody read stderr");
    })
});

/// The one writer to stderr of this process.
pub fn stderr() -> &'static LineWriter {
    &STDERR
}

/// Stderr by a descriptor of its own: a write that blocks holds no lock of the standard library's.
#[cfg(unix)]
fn output() -> Box<dyn Write + Send> {
    use std::os::fd::AsFd as _;
    match io::stderr().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(std::fs::File::from(descriptor)),
        Err(_) => Box::new(io::stderr()),
    }
}

#[cfg(not(unix))]
fn output() -> Box<dyn Write + Send> {
    Box::new(io::stderr())
}

/// See the module. Clones share the buffer.
#[derive(Debug, Clone)]
pub struct LineWriter(Arc<SharedLines>);

#[derive(Debug)]
struct SharedLines {
    state: Mutex<LinesState>,
    /// Lines wait, or have been written.
    changed: Condvar,
    dropped: IntCounter,
}

#[derive(Debug, Default)]
struct LinesState {
    waiting: Vec<u8>,
    is_writing: bool,
    /// Dropped since that was last said.
    dropped: u64,
}

impl LineWriter {
    /// Starts the thread that writes to `out`. It calls `on_dropped` with the number of lines that were dropped, once `out` has
    /// taken others again.
    ///
    /// # Panics
    /// Never: the name of the metric is a constant.
    fn start(out: impl Write + Send + 'static, on_dropped: impl Fn(u64) + Send + 'static) -> Self {
        let help = "Lines of the log that were dropped because nobody read stderr.";
        let dropped = IntCounter::new("llmx_log_lines_dropped_total", help).expect("the constant is a metric's name");
        let lines = Arc::new(SharedLines { state: Mutex::default(), changed: Condvar::new(), dropped });
        let shared = Arc::clone(&lines);
        // Without a thread nothing is written: a process that cannot start one cannot start a runtime either.
        let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.drive(out, on_dropped));
        Self(lines)
    }

    /// Shows in a registry how many lines were dropped.
    ///
    /// # Errors
    /// [`prometheus::Error::AlreadyReg`] when it has them.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.0.dropped.clone()))
    }

    /// Writes what is no line of the log, and has room beyond it.
    pub fn note(&self, text: &str) {
        self.0.push(text.as_bytes(), BYTES_MAX + NOTES_BYTES_MAX);
    }

    /// Waits until everything is written, at most so long. Returns whether it is.
    pub fn flush_within(&self, limit: Duration) -> bool {
        let is_left = |state: &mut LinesState| state.is_writing || !state.waiting.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), limit, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Each write is one line.
impl Write for &LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, BYTES_MAX);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl SharedLines {
    fn lock(&self) -> MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line unless more than `bytes_max` would wait then.
    fn push(&self, line: &[u8], bytes_max: usize) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > bytes_max {
            state.dropped += 1;
            self.dropped.inc();
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.changed.notify_all();
    }

    fn drive(&self, mut out: impl Write, on_dropped: impl Fn(u64)) {
        let mut lines = Vec::new();
        loop {
            self.take(&mut lines);
            // A reader that went away takes nothing, and nobody is left to be told.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            lines.clear();
            lines.shrink_to(KEPT_BYTES_MAX);
            let dropped = std::mem::take(&mut self.lock().dropped);
            if dropped > 0 {
                on_dropped(dropped);
            }
        }
    }

    /// Waits for lines and swaps them with a buffer that is empty.
    fn take(&self, lines: &mut Vec<u8>) {
        let mut state = self.lock();
        state.is_writing = false;
        self.changed.notify_all();
        let waiting = self.changed.wait_while(state, |state| state.waiting.is_empty());
        state = waiting.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Longest a test waits for something that must happen.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn whoever_logs_never_waits_and_what_is_dropped_is_counted_and_said_once_lines_flow() {
        let (out, pipe) = Pipe::new();
        let (said, dropped) = channel();
        let writer = LineWriter::start(out, move |count| said.send(count).unwrap());
        let line = |number: usize| format!("{number:0>65535}\n");
        let sent = 3 * BYTES_MAX / line(0).len();
        for number in 0..sent {
            (&writer).write_all(line(number).as_bytes()).unwrap();
        }
        writer.note("the last\n");
        assert!(!writer.flush_within(Duration::from_millis(1)), "nobody reads");
        let expected = writer.0.dropped.get();
        assert!(expected > 0, "nothing was dropped of {sent} lines");

        pipe.open.send(()).unwrap();
        assert!(writer.flush_within(PATIENCE));
        assert_eq!(dropped.recv_timeout(PATIENCE).unwrap(), expected);
        let written = pipe.written();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!((lines.len() as u64, lines.last()), (sent as u64 - expected + 1, Some(&"the last")));
        // Which ones were dropped depends on when the thread took its first.
        let numbers: Vec<usize> = lines[..lines.len() - 1]
            .iter()
            .map(|line| line.trim_start_matches('0').parse().unwrap_or_default())
            .collect();
        assert!(numbers.is_sorted_by(|before, after| before < after), "in the order they were logged: {numbers:?}");
        for (number, written) in numbers.iter().zip(&lines) {
            assert!(*written == line(*number).trim_end(), "line {number} is whole");
        }
    }

    #[test]
    fn what_was_written_before_a_flush_has_left_after_it() {
        let (out, pipe) = Pipe::new();
        pipe.open.send(()).unwrap();
        let writer = LineWriter::start(out, |_| {});
        assert!(writer.flush_within(PATIENCE), "nothing to write is written");
        for number in 0..100 {
            (&writer).write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        assert!(writer.flush_within(PATIENCE));
        assert_eq!(pipe.written().lines().count(), 100);
        assert_eq!(writer.0.dropped.get(), 0);
    }

    /// Takes nothing until it is opened.
    struct Pipe {
        open: Sender<()>,
        taken: Receiver<Vec<u8>>,
    }

    struct PipeEnd {
        opened: Receiver<()>,
        is_open: bool,
        taken: Sender<Vec<u8>>,
    }

    impl Pipe {
        fn new() -> (PipeEnd, Self) {
            let ((open, opened), (sender, taken)) = (channel(), channel());
            (PipeEnd { opened, is_open: false, taken: sender }, Self { open, taken })
        }

        fn written(&self) -> String {
            String::from_utf8(self.taken.try_iter().flatten().collect()).unwrap()
        }
    }

    impl Write for PipeEnd {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_open {
                self.opened.recv().map_err(io::Error::other)?;
                self.is_open = true;
            }
            self.taken.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
