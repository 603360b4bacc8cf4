//! What the program prints: results on stdout, everything else on stderr, what it waits for included, and the exit code; and
//! where its spans go.

pub mod traces;

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use ::gateway::GatewayError;
use bus::BusError;
use schemas::delivery::Disposition;
use serde::Serialize;
use telemetry::log::stderr::stderr;
use telemetry::log::{self, Format};
use telemetry::terminal;
use tokio::time::{Instant, sleep_until};
use traffic_gen::live::LiveError;

pub use telemetry::terminal::one_line;
pub use traces::tracer;

/// What comes at once is not announced.
const ANNOUNCED_AFTER: Duration = Duration::from_millis(500);
/// How often a wait is announced again.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(5);

/// How long stderr may take for what was logged, at the end and before results.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The name of the program that runs.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// What this program is called.
pub fn begin(program: &str) {
    // A process runs one program.
    let _ = PROGRAM.set(program.to_owned());
}

/// Why a command did not succeed, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// Exit code 1: the thing asked for failed.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 1, error: error.into() }
    }

    /// Exit code 2: bad usage or configuration.
    pub fn configuration(message: impl std::fmt::Display) -> Self {
        Self { code: 2, error: anyhow::anyhow!("{message}") }
    }

    /// Bad usage or configuration, or what failed.
    pub fn of(is_usage: bool, error: impl Into<anyhow::Error>) -> Self {
        Self { code: if is_usage { 2 } else { 1 }, error: error.into() }
    }

    /// The same, with a further remedy behind it.
    pub fn or(self, remedy: &str) -> Self {
        Self { code: self.code, error: anyhow::anyhow!("{}; {remedy}", with_causes(&self.error)) }
    }

    /// Prints the failure with its causes and gives the exit code. Only its first line begins like one of this program.
    pub fn report(self) -> ExitCode {
        // Behind what the log still holds: a reader may be slow.
        flush_logs();
        let program = PROGRAM.get().map_or("llmx", String::as_str);
        note(format_args!("{program}: {self}").to_string().replace('\n', "\n  "));
        ExitCode::from(self.code)
    }
}

schemas::shown!(Failure = |Self { error, .. }| "{}", with_causes(error));

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        if is_configuration(&error) { Self { code: 2, error } } else { Self::failed(error) }
    }
}

/// Whether an error that only shows while running lies in what was asked for or configured all the same.
fn is_configuration(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(BusError::Mismatch(_) | BusError::Unusable(_)))
            || matches!(cause.downcast_ref(), Some(LiveError::Rate(_) | LiveError::Load(_) | LiveError::Contractor(_)))
            || matches!(
                cause.downcast_ref(),
                Some(GatewayError::Config(_) | GatewayError::Setting(_) | GatewayError::Keys(_))
            )
    })
}

/// An error with its causes, leaving out those it has named itself, and the proxy that an HTTP request went through.
fn with_causes(error: &anyhow::Error) -> String {
    let told = error.chain().fold(String::new(), |told, cause| match cause.to_string() {
        cause if told.is_empty() => cause,
        cause if told.contains(&cause) => told,
        cause => format!("{told}: {cause}"),
    });
    let url = error.chain().find_map(|cause| cause.downcast_ref::<reqwest::Error>()?.url());
    told + &url.map_or_else(String::new, |url| proxy_note(url.as_str()))
}

/// That a proxy of the environment stands before an address, in brackets; nothing where none does.
pub fn proxy_note(url: &str) -> String {
    let named = agents::control::proxy_variable(url, |name| std::env::var(name).ok());
    named
        .map_or_else(String::new, |name| format!(" (through the proxy of {name}, unless NO_PROXY excepts the address)"))
}

/// The first cause, which names the fault; the outer ones only say that a request was sent.
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

/// Sends logs to stderr: what `LLMX_LOG` asks for, as `LLMX_LOG_FORMAT` says; by default as JSON unless it is a terminal.
pub fn start_logging() -> Outcome {
    let format = std::env::var("LLMX_LOG_FORMAT").ok();
    let format = Format::read(format.as_deref(), std::io::stderr().is_terminal())
        .map_err(|problem| Failure::configuration(format_args!("LLMX_LOG_FORMAT: {problem}")))?;
    log::start(std::env::var("LLMX_LOG").ok().as_deref(), format);
    Ok(())
}

/// Creates, or empties, a file to be written later, and the folder it is in: a path that cannot be written is better
/// found before than after.
pub fn create(path: &Path) -> Result<File, Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| File::create(path))
        .map_err(|error| Failure::configuration(format_args!("cannot write {}: {error}", path.display())))
}

/// Why stdout did not take all that was printed.
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Prints one line, or one document, on stdout. A reader that went away changes nothing: ending the process here would
/// leave behind what it has started. Any other fault is [`printed`]'s. Control characters other than its line feeds and
/// tabs become spaces.
pub fn print(text: impl std::fmt::Display) {
    match writeln!(std::io::stdout().lock(), "{}", terminal::lines(&text.to_string())) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = UNPRINTED.set(error.to_string());
        }
        Ok(()) | Err(_) => {}
    }
}

/// Whether stdout took all that was printed so far; a full disk does not.
pub fn printed() -> Outcome {
    match UNPRINTED.get() {
        Some(error) => Err(unprinted(error)),
        None => Ok(()),
    }
}

fn unprinted(error: impl std::fmt::Display) -> Failure {
    Failure::failed(anyhow::anyhow!("cannot write to stdout: {error}"))
}

/// Prints what is answered instead of running a command: help and version on stdout, wrong usage on stderr.
pub fn print_instead(answer: &clap::Error) -> ExitCode {
    let written = answer.print().and_then(|()| std::io::stdout().flush());
    match written {
        Err(error) if !answer.use_stderr() && error.kind() != ErrorKind::BrokenPipe => unprinted(&error).report(),
        Ok(()) | Err(_) => ExitCode::from(if answer.use_stderr() { 2 } else { 0 }),
    }
}

/// Prints one line on stderr, without control characters as [`print()`] does: what a person wants to know beside the result.
pub fn note(text: impl std::fmt::Display) {
    stderr().note(&format!("{}\n", terminal::lines(&text.to_string())));
    flush_logs();
}

/// Waits until stderr has taken what was logged, a bounded time: nobody may read it.
pub fn flush_logs() {
    let _ = stderr().flush_within(FLUSH_MAX);
}

/// Prints a document as indented JSON on stdout.
pub fn print_json(document: &impl Serialize) -> Outcome {
    print(terminal::json(&serde_json::to_string_pretty(document)?));
    Ok(())
}

/// Prints a document as JSON on one line of stdout.
pub fn print_json_line(document: &impl Serialize) -> Outcome {
    print(terminal::json(&serde_json::to_string(document)?));
    Ok(())
}

/// Prints a result: as JSON where that is asked for, else in words.
pub fn print_result(is_json: bool, document: &impl Serialize, words: impl std::fmt::Display) -> Outcome {
    if is_json {
        return print_json(document);
    }
    print(words);
    Ok(())
}

/// So many agents, in words.
#[must_use]
pub fn agents(count: usize) -> String {
    if count == 1 { "1 agent".to_owned() } else { format!("{count} agents") }
}

/// A share in parts per million, as a decimal.
#[must_use]
pub fn millionths(ppm: u128) -> String {
    format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)
}

/// Rows in columns, two spaces apart; every column but the last is as wide as its widest cell. A cell stays on its line.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The same under a heading.
pub fn table_under<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    table(&std::iter::once(heading.map(str::to_owned)).chain(rows).map(Vec::from).collect::<Vec<_>>())
}

/// A line of progress on stderr, rewritten in place on a terminal.
pub struct Progress {
    in_place: bool,
}

impl Progress {
    /// Progress for a person; `quiet` shows none.
    pub fn new() -> Self {
        Self { in_place: std::io::stderr().is_terminal() }
    }

    /// Shows the present state.
    pub fn show(&self, line: impl std::fmt::Display) {
        let line = terminal::lines(&line.to_string());
        if self.in_place {
            stderr().note(&format!("\r\x1b[2K{line}"));
            flush_logs();
        } else {
            stderr().note(&format!("{}\n", line.trim_end()));
        }
    }

    /// Ends the line.
    pub fn finish(&self) {
        if self.in_place {
            stderr().note("\n");
            flush_logs();
        }
    }
}

/// Waits, and logs a warning at once, every 5 seconds and whenever it changes, as long as `what` names something that is
/// missing. `limit` is how long the caller waits; it is only shown.
pub async fn announced<T>(what: impl Fn() -> Option<String>, limit: Duration, wait: impl Future<Output = T>) -> T {
    // Boxed: waits are rare, and what awaits them should stay small.
    let mut wait = Box::pin(wait);
    let began = Instant::now();
    let (mut next, mut told) = (ANNOUNCED_AFTER, None);
    loop {
        tokio::select! {
            biased;
            outcome = &mut wait => return outcome,
            () = sleep_until(began + next) => {}
        }
        if let Some(what) = what().filter(|what| is_due(&mut told, what, next)) {
            let (waited_s, limit_s) = (began.elapsed().as_secs(), limit.as_secs());
            tracing::warn!("waiting for {what} since {waited_s} s, at most {limit_s} s");
        }
        next += ANNOUNCED_AFTER;
    }
}

/// Whether to announce what is missing after so long, by what was announced last and when; if so, that is noted.
fn is_due(told: &mut Option<(String, Duration)>, what: &str, waited: Duration) -> bool {
    let is_new = |(last, at): &(String, Duration)| last != what || waited >= *at + ANNOUNCED_EVERY;
    let is_due = told.as_ref().is_none_or(is_new);
    if is_due {
        *told = Some((what.to_owned(), waited));
    }
    is_due
}

/// Why a call that is in the log has opened nothing.
pub fn unopened(disposition: Disposition) -> String {
    if disposition == Disposition::Closed {
        return "its id is that of a call which has ended: choose another".to_owned();
    }
    disposition.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb", "c"], ["aaaa", "b", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a     bb  c\naaaa  b");
    }

    #[test]
    fn a_cause_is_told_once() {
        let told = |error: anyhow::Error| with_causes(&error);
        let repeating = anyhow::anyhow!("refused").context("cannot connect: refused").context("the gateway");
        assert_eq!(told(repeating), "the gateway: cannot connect: refused");
        assert_eq!(told(anyhow::anyhow!("refused").context("cannot connect")), "cannot connect: refused");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_at_once_is_not_looked_for() {
        let looks = Cell::new(0);
        let what = || {
            looks.set(looks.get() + 1);
            None
        };
        let limit = Duration::from_secs(20);
        announced(what, limit, tokio::time::sleep(Duration::from_millis(400))).await;
        assert_eq!(looks.get(), 0, "it came at once");
        announced(what, limit, tokio::time::sleep(Duration::from_millis(600))).await;
        assert_eq!(looks.get(), 1);
        announced(what, limit, tokio::time::sleep(Duration::from_millis(1_600))).await;
        assert_eq!(looks.get(), 4, "and then every half a second");
    }

    #[test]
    fn a_wait_is_announced_at_once_every_five_seconds_and_when_its_cause_changes() {
        let mut told = None;
        for (ms, what, expected) in [
            (500, "a friend (away)", true),
            (1_000, "a friend (away)", false),
            (1_500, "a friend (asleep)", true),
            (6_000, "a friend (asleep)", false),
            (6_500, "a friend (asleep)", true),
        ] {
            assert_eq!(is_due(&mut told, what, Duration::from_millis(ms)), expected, "{ms}");
        }
    }
}
