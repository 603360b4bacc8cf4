//! `llmx-lab experiment model`: what a model does to negotiations when it decides.
//!
//! Each cell plays calls or bargains against the core itself, the code that engines run, and leaves the files of every other
//! cell. A stub answers on a virtual clock, so that the same seeds give the same rounds to the byte; a live model takes its time.
//!
//! | module | question it answers |
//! |---|---|
//! | [`net`] | which offer of eight does an initiator's model choose? |
//! | [`table`] | what does a model get out of a bargain, beside the strategy it replaces? |
//! | [`blocking`] | who answers while the caller waits? |
//! | [`waiting`] | how does a party play whose model is waited for? |
//! | [`injection`] | what do orders in a counterpart's words achieve? |
//! | [`gullible`] | may a party whose model obeys every instruction agree to what its mandate excludes? |

pub mod blocking;
pub mod gullible;
pub mod injection;
pub mod net;
pub mod table;
pub mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use agents::model::config::{ModelFallback, OfferOrder, QuotedWords, TermConfig};
use agents::model::stub::{StubBehaviour, StubModel, StubScript};
use agents::model::{Consultant, KeptPrompts, ModelAgentConfig};
use schemas::Digest;
use serde::Serialize;
use tokio::runtime::Handle;

use self::blocking::{BlockingConsultant, VirtualStub};
use crate::record::{CellRecord, ModelRecord, RoundRecord};
use crate::run::files::{CELLS, CellFiles};
use crate::study::{self, StudyError};

/// The attribute that stubs with a preference choose by.
const PREFERRED: &str = "price";
/// Label of cells whose prompts list offers in a drawn order.
pub const DRAWN: &str = "drawn";
/// What the stub's tokens would cost, in micro-units per million: of a small model of 2026.
const STUB_PRICE: (u64, u64) = (150_000, 600_000);

/// Who decides in the cells of a run.
pub enum Deciding {
    /// The stub, one behaviour after another.
    Stub {
        /// Keeps what it is asked and answers.
        kept: Option<Arc<KeptPrompts>>,
    },
    /// A model behind an endpoint.
    Live(Arc<ModelAgentConfig>, Arc<Consultant>, Handle),
}

/// How much is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModelRunSize {
    /// The first seed.
    pub seed: u64,
    /// Seeds that each cell is played with.
    pub seeds: u64,
    /// Calls of a seed of a cell in which an initiator chooses.
    pub calls: u64,
    /// Bargains of a seed of a cell.
    pub bargains: u64,
}

/// What a run has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ModelRunSummary {
    /// Cells.
    pub cells: usize,
    /// Rounds in them.
    pub rounds: u64,
    /// Agreements outside a mandate, and awards that no act of the initiator chose.
    pub violations: u64,
}

/// One configuration of a decider.
#[derive(Debug, Clone)]
struct ModelCell {
    name: &'static str,
    behaviour: StubBehaviour,
    prefers: bool,
    words: QuotedWords,
    order: OfferOrder,
    fallback: ModelFallback,
    is_bargain: bool,
}

impl ModelCell {
    const fn net(name: &'static str, behaviour: StubBehaviour, words: QuotedWords, order: OfferOrder) -> Self {
        let fallback = ModelFallback::Refuse;
        let prefers = matches!(behaviour, StubBehaviour::Gullible);
        Self { name, behaviour, prefers, words, order, fallback, is_bargain: false }
    }

    const fn table(name: &'static str, behaviour: StubBehaviour, words: QuotedWords, fallback: ModelFallback) -> Self {
        Self { name, behaviour, prefers: false, words, order: OfferOrder::Drawn, fallback, is_bargain: true }
    }

    fn all() -> Vec<Self> {
        use ModelFallback::{Refuse, Scripted};
        use OfferOrder::{Arrival, Drawn};
        use QuotedWords::{Never, Quoted};
        vec![
            Self::net("unbiased", StubBehaviour::Good, Never, Drawn),
            Self { prefers: true, ..Self::net("careful", StubBehaviour::Good, Never, Drawn) },
            Self::net("first", StubBehaviour::First, Never, Drawn),
            Self::net("first-by-arrival", StubBehaviour::First, Never, Arrival),
            Self::net("gullible", StubBehaviour::Gullible, Never, Drawn),
            Self::net("gullible-quoted", StubBehaviour::Gullible, Quoted, Drawn),
            Self::net("junk", StubBehaviour::Junk, Never, Drawn),
            Self::table("bargain", StubBehaviour::Good, Never, Scripted),
            Self::table("bargain-gullible", StubBehaviour::Gullible, Quoted, Scripted),
            Self::table("bargain-junk-ends", StubBehaviour::Junk, Never, Refuse),
            Self::table("bargain-junk-scripted", StubBehaviour::Junk, Never, Scripted),
        ]
    }

    fn of_live(config: &ModelAgentConfig) -> Vec<Self> {
        let (words, fallback) = (config.model.words, config.model.fallback);
        vec![
            Self::net("live", StubBehaviour::Good, words, config.initiator.order),
            Self::table("live-bargain", StubBehaviour::Good, words, fallback),
        ]
    }

    fn config(&self) -> ModelAgentConfig {
        let mut config = ModelAgentConfig::default();
        config.model.words = self.words;
        config.model.fallback = self.fallback;
        (config.model.price.input, config.model.price.output) = STUB_PRICE;
        config.model.budget = u64::MAX / 2;
        // A bargain of forty rounds asks in each.
        config.model.calls_per_negotiation = 1000;
        config.model.tokens_per_negotiation = 10_000_000;
        config.initiator.order = self.order;
        for name in net::attributes() {
            config.initiator.terms.insert(name, TermConfig::default());
        }
        config
    }

    fn stub(&self, config: &ModelAgentConfig, seed: u64) -> VirtualStub {
        let prefer = self.prefers.then(|| PREFERRED.to_owned());
        let script = StubScript { shares: [(self.behaviour, 1)].into(), prefer, ..StubScript::default() };
        VirtualStub::new(StubModel::new(script, seed), config.model.clone())
    }

    fn labels(&self, is_stub: bool) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([("model".to_owned(), self.name.to_owned())]);
        let words = if self.words == QuotedWords::Quoted { "quoted" } else { "never" };
        labels.insert("words".to_owned(), words.to_owned());
        if !self.is_bargain {
            let order = if self.order == OfferOrder::Drawn { DRAWN } else { "arrival" };
            labels.insert("order".to_owned(), order.to_owned());
        }
        if is_stub {
            labels.insert("behaviour".to_owned(), <&str>::from(self.behaviour).to_owned());
        }
        labels
    }
}

/// Plays every cell with each seed, into a folder whose report is written by [`crate::report::write`].
/// `show` is given the name of each cell before it is played.
///
/// # Errors
/// [`StudyError`]; cells that are complete stay so.
pub fn run(
    deciding: &Deciding,
    size: ModelRunSize,
    folder: &Path,
    show: &dyn Fn(&str),
) -> Result<ModelRunSummary, StudyError> {
    let ModelRunSize { seed: first, seeds, calls, bargains } = size;
    let mut plan =
        serde_json::json!({"name": "model", "seed": first, "seeds": seeds, "calls": calls, "bargains": bargains});
    if let Deciding::Live(config, ..) = deciding {
        plan["model"] =
            Digest::of(&**config).map_err(|error| StudyError::unplayed("the model's file", error))?.to_string().into();
    }
    let _held = study::claim(folder, &plan)?;
    let mut summary = ModelRunSummary::default();
    let cells = match deciding {
        Deciding::Stub { .. } => ModelCell::all(),
        Deciding::Live(config, ..) => ModelCell::of_live(config),
    };
    for cell in &cells {
        for seed in study::seeds(first, seeds) {
            let id = format!("{}-{seed}", cell.name);
            show(&id);
            let (config, consultant) = match deciding {
                Deciding::Stub { kept } => {
                    let config = cell.config();
                    let stub = cell.stub(&config, seed);
                    let stub = kept.iter().fold(stub, |stub, kept| stub.keeping(Arc::clone(kept)));
                    (Arc::new(config), BlockingConsultant::Stub(Box::new(stub)))
                }
                Deciding::Live(config, consultant, runtime) => {
                    (Arc::clone(config), BlockingConsultant::Live(Arc::clone(consultant), runtime.clone()))
                }
            };
            let played = play(cell, (&config, Arc::new(consultant)), seed, size)?;
            let record = record(cell, &id, seed, &played, matches!(deciding, Deciding::Stub { .. }));
            let mut files = CellFiles::create(&folder.join(CELLS).join(&id), &id, seed, &record.policy)?;
            files.write(&played.rounds)?;
            summary.cells += 1;
            summary.rounds += record.rounds;
            summary.violations += record.violations.values().sum::<u64>();
            files.finish(&record)?;
        }
    }
    Ok(summary)
}

/// Why a message cannot be written, or a name is none.
fn fault(reason: impl ToString) -> StudyError {
    StudyError::unplayed("a round cannot be played", reason)
}

/// What one seed of a cell came to.
pub struct PlayedCell {
    /// Every round.
    pub rounds: Vec<RoundRecord>,
    /// What the model was asked.
    pub model: ModelRecord,
    /// Agreements outside a mandate; awards of another offer than was accepted.
    pub violations: u64,
}

fn play(
    cell: &ModelCell,
    (config, consultant): (&Arc<ModelAgentConfig>, Arc<BlockingConsultant>),
    seed: u64,
    size: ModelRunSize,
) -> Result<PlayedCell, StudyError> {
    let before = consultant.totals();
    let mut played = if cell.is_bargain {
        table::play(config, &consultant, seed, size.bargains)?
    } else {
        net::play(config, &consultant, seed, size.calls)?
    };
    let spent = consultant.totals();
    played.model.calls = spent.calls - before.calls;
    played.model.input_tokens = spent.usage.input - before.usage.input;
    played.model.output_tokens = spent.usage.output - before.usage.output;
    played.model.cost_micro_units = spent.cost - before.cost;
    Ok(played)
}

fn record(cell: &ModelCell, id: &str, seed: u64, played: &PlayedCell, is_stub: bool) -> CellRecord {
    let (protocol, contractors, policy) = if cell.is_bargain {
        ("alternating", 2, "none".to_owned())
    } else {
        ("contract-net", net::CONTRACTORS, net::POLICY.to_owned())
    };
    let elapsed_us = played.rounds.iter().filter_map(|round| round.ended_us).max().unwrap_or(0);
    let violations = match played.violations {
        0 => BTreeMap::new(),
        count => BTreeMap::from([("mandate_or_choice".to_owned(), count)]),
    };
    CellRecord {
        id: id.to_owned(),
        protocol: protocol.to_owned(),
        contractors,
        policy,
        rate: 1.0,
        duration_s: played.rounds.len() as f64,
        time_scale: 1.0,
        seed,
        bus: "core".to_owned(),
        deciders: if is_stub { "stub" } else { "live" }.to_owned(),
        labels: cell.labels(is_stub),
        populations: Vec::new(),
        rounds: played.rounds.len() as u64,
        elapsed_s: elapsed_us as f64 / 1e6,
        violations,
        is_interrupted: false,
        model: Some(played.model),
    }
}
