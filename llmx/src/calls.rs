//! Options of commands that call: whom, for what, and under which policy.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use schemas::document::{CallDocuments, DOCUMENTS_MAX, DocumentHash};
use schemas::english_auction::AuctionSpec;
use schemas::ids::Capability;
use schemas::{Address, Code, Refusal, TopicName};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::Load;
use traffic_gen::live::{self, CallScenario};
use traffic_gen::recorder::{Counts, Recorder};

use crate::output::{Failure, Outcome, Progress};
use crate::signals::asked_to_end;
use crate::{document, english_auction};

/// What to do about calls that reach nobody.
const REMEDY: &str =
    ". Start contractors (`llmx contractors`), or name whom to call with --topic, --to and --capability";
/// How often is looked whether the line of progress must change before its time.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// Whom calls reach and what they ask for.
#[derive(Debug, Clone, clap::Args)]
pub struct CallsArgs {
    /// Topic that calls go to; contractors of this run register it
    #[arg(long, default_value = live::TOPIC, value_parser = TopicName::try_new, value_name = "NAME")]
    topic: TopicName,
    /// Addresses that calls go to instead, separated by commas: agent://NAME, topic://NAME or group://NAME
    #[arg(long, value_parser = Address::try_new, value_delimiter = ',', value_name = "ADDRESSES", conflicts_with = "topic")]
    to: Vec<Address>,
    /// Capabilities that calls ask for, separated by commas: an agent needs one of them; contractors of this run have all
    /// (default: none is asked for)
    #[arg(long, value_parser = Capability::try_new, value_delimiter = ',', value_name = "NAMES")]
    capability: Vec<Capability>,
    /// What calls ask for, in words
    #[arg(long, default_value = live::TASK, value_name = "TEXT")]
    task: String,
    /// Makes calls English auctions: their rules, as JSON or a file (docs/auctions.md)
    #[arg(long, value_parser = english_auction::spec, value_name = "JSON|FILE", hide_short_help = true)]
    auction: Option<AuctionSpec>,
    #[command(flatten)]
    documents: CallDocumentsArgs,
    /// How calls are spread over time: poisson, uniform, burst:CALLS, ramp:TO_RATE, diurnal:PERIOD_S or
    /// diurnal:PERIOD_S:SWING, closed:CALLS or closed:CALLS:THINK_S (the rate has no part in it), replay:FILE (rounds of an
    /// experiment, or a --trace)
    #[arg(long, default_value = "poisson", value_parser = Load::from_str, value_name = "SHAPE")]
    load: Load,
}

impl CallsArgs {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// How they are spread over time, if that can be at this rate.
    pub fn load(&self, rate: f64, duration: Duration, seed: u64) -> Result<&Load, Failure> {
        let arrivals = self.load.arrivals(rate, duration, seed).map_err(Failure::configuration)?;
        drop(arrivals);
        Ok(&self.load)
    }

    /// The scenario whose calls these are.
    ///
    /// # Errors
    /// [`Failure::configuration`] where the documents are not what a call can name.
    pub fn of(&self, scenario: CallScenario) -> Result<CallScenario, Failure> {
        Ok(CallScenario {
            topic: self.topic.clone(),
            to: self.to.clone(),
            capabilities: self.capability.clone(),
            task: self.task.clone(),
            load: self.load.clone(),
            auction: self.auction.clone().or(scenario.auction),
            documents: self.documents.named()?,
            ..scenario
        })
    }
}

/// The protocol documents that a call names.
#[derive(Debug, Clone, clap::Args)]
pub struct CallDocumentsArgs {
    /// Protocol document that the task can be carried out by: its file, or its hash; repeated, the preferred first
    #[arg(long = "document", value_name = "FILE|HASH", value_parser = document::named)]
    documents: Vec<DocumentHash>,
    /// With --document: an offer that names none of them cannot win
    #[arg(long, requires = "documents")]
    require_document: bool,
}

impl CallDocumentsArgs {
    /// What a call says of them; nothing where there are none.
    ///
    /// # Errors
    /// [`Failure::configuration`] where one is named twice, or more than a call names.
    pub fn named(&self) -> Result<Option<CallDocuments>, Failure> {
        let hashes = self.documents.clone();
        if hashes.len() > DOCUMENTS_MAX {
            let count = hashes.len();
            return Err(Failure::configuration(format_args!(
                "--document: a call names at most {DOCUMENTS_MAX}, not {count}"
            )));
        }
        let mut named = BTreeSet::new();
        if let Some(twice) = hashes.iter().find(|hash| !named.insert(**hash)) {
            return Err(Failure::configuration(format_args!(
                "--document: {twice} is named twice; name each document once"
            )));
        }
        Ok((!hashes.is_empty()).then_some(CallDocuments { hashes, require: self.require_document }))
    }
}

/// Cancels a load when the process is asked to end, and says what is waited for then.
pub fn end_when_asked(cancel: &CancellationToken, drain: Duration) -> JoinHandle<()> {
    let cancel = cancel.clone();
    tokio::spawn(async move {
        asked_to_end().await;
        let progress = Progress::new();
        progress.finish();
        progress.show(format_args!(
            "ending: nothing new is begun, what is open is waited for, {} s at most; Ctrl-C again ends at once\n",
            drain.as_secs()
        ));
        cancel.cancel();
    })
}

/// Fails a run none of whose calls was admitted, with what the gateway said to the latest of them.
pub fn judge(counts: &Counts) -> Outcome {
    match &counts.cfp_refusal {
        Some(refusal) if counts.cfps == 0 => Err(Failure::failed(anyhow::anyhow!(
            "none of {} calls was admitted: {}",
            counts.cfps_refused,
            told(refusal)
        ))),
        Some(_) | None => Ok(()),
    }
}

fn told(refusal: &Refusal) -> String {
    let expected = refusal.expected.as_deref().map(|expected| format!("; expected: {expected}")).unwrap_or_default();
    let remedy = if refusal.code == Code::NoRecipient { REMEDY } else { "" };
    format!("{refusal}{expected}{remedy}")
}

/// Shows `line` on stderr every `period`, and soon after another policy is in force; until it is dropped.
pub async fn show_progress(
    recorder: Arc<Recorder>,
    started: Instant,
    period: Duration,
    line: impl Fn(&Counts, usize) -> String,
) {
    let progress = Progress::new();
    let mut look = tokio::time::interval(LOOK_PERIOD.min(period));
    let (mut shown_at, mut policy) = (started, None);
    loop {
        let now = look.tick().await;
        let counts = recorder.counts();
        if now.saturating_duration_since(shown_at) >= period || counts.policy != policy {
            let seconds = now.saturating_duration_since(started).as_secs();
            let noted = Noted(&counts);
            progress.show(format_args!("{seconds:>4} s   {}{noted}", line(&counts, recorder.open())));
            (shown_at, policy) = (now, counts.policy);
        }
    }
}

/// What the line of progress ends with: the policy in force, and calls that were refused.
struct Noted<'a>(&'a Counts);

impl fmt::Display for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.0.policy {
            write!(f, "   policy {policy}")?;
        }
        match &self.0.cfp_refusal {
            Some(refusal) => write!(f, "   refused {} ({})", self.0.cfps_refused, refusal.code),
            None => Ok(()),
        }
    }
}
