//! A negotiator of NegMAS in a Python process, asked line by line (`llmx.negmas.competitor` says what each line holds).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use agents::bargain::{BargainStrategy, Move, Space, TurnView};
use parking_lot::Mutex;
use schemas::payload::Terms;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::TournamentDomain;
use super::competitor::Seat;

/// The module that is started.
const MODULE: &str = "llmx.negmas.competitor";
/// Time for an answer: of a start, which imports NegMAS, or of a turn.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What it answers.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum NegmasAnswer {
    Ready(String),
    Offer(Terms),
    Accept(IgnoredAny),
    End(IgnoredAny),
    /// The negotiator raised an error.
    Failed(String),
}

/// The process of one class of negotiators. It ends when this is dropped, or this process ends.
pub struct NegmasProcess {
    lines: Mutex<Lines>,
    next: AtomicU64,
    fault: Mutex<Option<String>>,
    /// The class, and the version of NegMAS.
    pub made_of: String,
}

struct Lines {
    child: Child,
    asked: ChildStdin,
    answered: Receiver<io::Result<String>>,
}

impl NegmasProcess {
    /// Starts a Python with a class of negotiators, such as `BoulwareTBNegotiator`, or one of another module with its path, and
    /// tells it the domains.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn start(python: &Path, class: &str, domains: &[TournamentDomain]) -> Result<Self, String> {
        let mut command = Command::new(python);
        command.args(["-m", MODULE, class]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // What a negotiator keeps in sets comes in the same order each time.
        command.env("PYTHONHASHSEED", "0");
        // A Ctrl-C is for the tournament, which ends it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("{} cannot be run: {error}", python.display()))?;
        let (Some(asked), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("its input and output cannot be had".to_owned());
        };
        let (said, answered) = mpsc::sync_channel(1);
        thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| said.send(line)));
        let mut lines = Lines { child, asked, answered };
        let made_of = match lines.answer() {
            Ok(NegmasAnswer::Ready(made_of)) => made_of,
            Ok(NegmasAnswer::Failed(reason)) => return Err(reason),
            Ok(_) | Err(_) => {
                let python = python.display();
                return Err(format!(
                    "{python} does not run it: install the Python package with its extra `negmas`, or name another by --python"
                ));
            }
        };
        for (place, domain) in domains.iter().enumerate() {
            lines.tell(&json!({"domain": place, "document": domain.document}))?;
            lines.ready().map_err(|reason| format!("domain {}: {reason}", domain.name()))?;
        }
        Ok(Self { lines: Mutex::new(lines), next: AtomicU64::new(0), fault: Mutex::default(), made_of })
    }

    fn ask(&self, question: &Value) -> Result<NegmasAnswer, String> {
        let mut lines = self.lines.lock();
        lines.tell(question)?;
        lines.answer()
    }

    /// Why it has stopped playing.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }
}

impl Lines {
    fn tell(&mut self, question: &Value) -> Result<(), String> {
        writeln!(self.asked, "{question}").map_err(|error| format!("it takes no question: {error}"))
    }

    fn answer(&mut self) -> Result<NegmasAnswer, String> {
        let line = match self.answered.recv_timeout(ANSWER_TIMEOUT) {
            Ok(line) => line.map_err(|error| error.to_string())?,
            Err(RecvTimeoutError::Timeout) => return Err(format!("no answer within {ANSWER_TIMEOUT:?}")),
            Err(RecvTimeoutError::Disconnected) => return Err("it has ended".to_owned()),
        };
        serde_json::from_str(&line).map_err(|error| format!("it answers {line:?}: {error}"))
    }

    fn ready(&mut self) -> Result<String, String> {
        match self.answer()? {
            NegmasAnswer::Ready(what) => Ok(what),
            NegmasAnswer::Failed(reason) => Err(reason),
            NegmasAnswer::Offer(_) | NegmasAnswer::Accept(_) | NegmasAnswer::End(_) => {
                Err("it makes a move before its turn".to_owned())
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A negotiator in one bargain.
pub struct NegmasNegotiator {
    process: Arc<NegmasProcess>,
    space: Space,
    id: u64,
    /// Told with the first turn.
    start: Option<Value>,
    /// Round and offers of the turn it was asked about last.
    asked: Option<(u32, usize)>,
    failed_turns: Arc<AtomicU64>,
}

impl NegmasNegotiator {
    /// Takes a seat. Turns in which the negotiator raises an error, or makes a move that is refused, are counted.
    pub fn new(process: Arc<NegmasProcess>, seat: &Seat<'_>) -> Self {
        let id = process.next.fetch_add(1, Ordering::Relaxed);
        let start = Some(json!({"domain": seat.place, "party": seat.party, "seed": seat.seed}));
        let (space, failed_turns) = (seat.matchup.domain().space.clone(), Arc::clone(seat.failed_turns));
        Self { process, space, id, start, asked: None, failed_turns }
    }

    fn next(&mut self, view: &TurnView<'_>) -> Result<Move, String> {
        let standing = view.standing.and_then(|outcome| self.space.terms(outcome));
        let turn = json!({"round": view.round, "t": view.t, "standing": standing});
        match self.process.ask(&json!({"id": self.id, "start": self.start.take(), "turn": turn}))? {
            NegmasAnswer::Offer(terms) => {
                self.space.outcome(&terms).map(Move::Offer).ok_or_else(|| format!("it offers no outcome: {terms:?}"))
            }
            NegmasAnswer::Accept(_) => Ok(Move::Accept),
            NegmasAnswer::End(_) => Ok(Move::End),
            NegmasAnswer::Failed(reason) => {
                tracing::warn!(reason, "a negotiator failed in its turn");
                self.failed_turns.fetch_add(1, Ordering::Relaxed);
                Ok(Move::End)
            }
            NegmasAnswer::Ready(_) => Err("it makes no move in its turn".to_owned()),
        }
    }
}

impl BargainStrategy for NegmasNegotiator {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let turn = (view.round, view.offers.len());
        // Asked again: its move was refused, and a negotiator cannot take back what it has said.
        if self.asked.replace(turn) == Some(turn) {
            self.failed_turns.fetch_add(1, Ordering::Relaxed);
            return Move::End;
        }
        self.next(view).unwrap_or_else(|reason| {
            *self.process.fault.lock() = Some(reason);
            Move::End
        })
    }
}
