//! `llmx panel ask`: a question put to a panel on an exchange that runs elsewhere, and its result.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ::agents::model::ModelAgentConfig;
use ::agents::{AgentOptions, CallEvent, CallReport, CallRequest, Initiator};
use schemas::delivery::{Closing, Finding, Misunderstanding};
use schemas::ids::DomainName;
use schemas::panel::{
    AnswerKind, ChooseSpec, PANEL_ROUNDS_MAX, PanelSpec, Ranker, ReviewSpec, SEATS_MAX, SeatChoice, check_panel,
};
use schemas::payload::Cfp;
use schemas::policy::TIMER_MS_MAX;
use schemas::{Address, AgentId, NegotiationId, TopicName};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::ModelPanelists;
use crate::access::refused;
use crate::arguments::{new_id, read_file, seconds};
use crate::call::address;
use crate::model::{self, ModelUse};
use crate::output::{Failure, Outcome, millionths, note, one_line, print, print_json, table_under, tracer, unopened};
use crate::remote::{Remote, RemoteArgs};
use crate::signals::asked_to_end;

/// Most seats, as a number of the command line.
const SEATS: i64 = SEATS_MAX as i64;
/// Events that wait to be looked at: a panel gives a handful.
const EVENTS_MAX: usize = 64;
/// Largest file of rules, in bytes.
const RULES_BYTES_MAX: u64 = 1 << 20;
/// How long behind its hard deadline a panel's end is awaited.
const GRACE: Duration = Duration::from_secs(30);
/// How long a panel that is called off may take to end.
const CANCEL_MAX: Duration = Duration::from_secs(4);

/// Arguments of `llmx panel ask`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx panel ask \"Which is prime? (A) 21 (B) 23 (C) 25\" --options A,B,C --to ann,bob,cyd\n  \
    llmx panel ask \"How many primes are below 100?\" --answer number --topic mathematics --rounds 4\n  \
    llmx panel ask \"Which is prime? (A) 21 (B) 23\" --options A,B --model examples/panel-model.toml --panelists 4\n\n\
    The agents answer in rounds, see and rate each other's last answers, and the panel ends as soon as more than two thirds\n\
    agree. The answer goes to stdout, everything else to stderr. Ctrl-C calls the panel off.\n\
    With --model panelists of this command take part, which ask a language model and are gone when it ends. docs/panels.md\n\
    Exit codes: 1 without a result, refused, or out of reach; 2 usage or configuration."
)]
pub struct PanelAskArgs {
    /// The question
    #[arg(value_name = "TEXT")]
    question: String,
    /// Who is asked: agents' ids, agent://ID, topic://NAME or group://ID, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', value_parser = address)]
    to: Vec<Address>,
    /// Topics whose subscribers are asked, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = TopicName::try_new)]
    topic: Vec<TopicName>,
    /// The possible answers, separated by commas
    #[arg(long, value_name = "TEXTS", value_delimiter = ',', conflicts_with = "answer")]
    options: Vec<String>,
    /// How answers are compared: exact, number, math, json or bleu (default: that of the rules, or exact)
    #[arg(long, value_name = "KIND", value_parser = answer_kind)]
    answer: Option<AnswerKind>,
    /// Most rounds of answers (default: that of the rules, or 3)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(PANEL_ROUNDS_MAX)))]
    rounds: Option<u32>,
    /// Time for one answer, in milliseconds (default: that of the rules, or 10000)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=TIMER_MS_MAX))]
    answer_ms: Option<u64>,
    /// What evidence is kept under (default: that of the rules, else the one topic that is asked, or general)
    #[arg(long, value_name = "NAME", value_parser = DomainName::try_new)]
    domain: Option<DomainName>,
    /// Seat so many of those asked: the best by evidence, and a newcomer
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=SEATS))]
    keep: Option<u32>,
    /// Agents that review the answers between rounds, separated by commas
    #[arg(long, value_name = "AGENTS", value_delimiter = ',', value_parser = AgentId::try_new)]
    reviewers: Vec<AgentId>,
    /// All rules as JSON, as `panel` of a call has them (docs/panels.md); the options above change them
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// End after so many seconds at the latest (default: as long as all asks may take)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    within: Option<Duration>,
    /// Who asks
    #[arg(long = "as", value_name = "AGENT", default_value = "operator", value_parser = AgentId::try_new)]
    caller: AgentId,
    /// Seat panelists of this command as well, which ask a language model, as this TOML file says (docs/models.md)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// With --model: how many
    #[arg(long, default_value_t = 4, value_name = "COUNT", requires = "model", value_parser = clap::value_parser!(u32).range(1..=SEATS))]
    panelists: u32,
    /// With --model: keep what it is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR", requires = "model")]
    keep_prompts: Option<PathBuf>,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// What came of a panel.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Default, Serialize)]
struct AskedPanel {
    panel: Option<NegotiationId>,
    invited: Option<u32>,
    left_out: Option<u32>,
    /// Of a panel that chooses its seats: `chosen` or `trial`.
    seats: Option<SeatChoice>,
    finding: Option<Box<Finding>>,
    outcome: Option<&'static str>,
    detail: Option<String>,
    #[serde(skip)]
    misunderstood: Option<Misunderstanding>,
}

/// Asks, and prints the result.
pub async fn run(args: &PanelAskArgs) -> Outcome {
    let rules = args.panel_rules()?;
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let with = ModelUse { metrics: None, kept: kept.clone() };
    let opened =
        args.model.as_ref().map(|path| model::open(path, ModelAgentConfig::check_instructed, with)).transpose()?;
    let mut to = args.to.clone();
    to.extend(args.topic.iter().cloned().map(Address::Topic));
    let own_id = new_id("panel");
    let names = args.seated_names(&own_id)?;
    to.extend(names.iter().cloned().map(Address::Agent));
    if to.is_empty() {
        return Err(Failure::configuration("nobody is asked: give --to, --topic or --model"));
    }
    let remote = args.remote.open("llmx-panel").await?;
    let seated = match opened {
        Some(opened) => {
            Some(ModelPanelists::start(&remote, &names.into_iter().collect::<BTreeSet<_>>(), Vec::new(), opened).await?)
        }
        None => None,
    };
    let asked = args.ask(&remote, rules, CallRequest::new(own_id, to, Cfp::default())).await;
    if let Some(seated) = seated {
        seated.stop().await?;
    }
    kept.iter().for_each(note);
    args.show(&asked?)
}

impl PanelAskArgs {
    /// The rules of the file, changed as the options say.
    fn panel_rules(&self) -> Result<PanelSpec, Failure> {
        let mut rules: PanelSpec = match &self.rules {
            None => PanelSpec::default(),
            Some(path) => read_file(path, RULES_BYTES_MAX, ::agents::fault::read_json)?,
        };
        if !self.options.is_empty() {
            rules.answer = AnswerKind::Choice { options: self.options.clone() };
        }
        rules.answer = self.answer.clone().unwrap_or(rules.answer);
        rules.rounds = self.rounds.unwrap_or(rules.rounds);
        rules.answer_ms = self.answer_ms.unwrap_or(rules.answer_ms);
        rules.domain = self.domain.clone().or(rules.domain);
        if let Some(keep) = self.keep {
            let chosen: ChooseSpec = serde_json::from_value(json!({ "keep": keep }))?;
            rules.choose = Some(rules.choose.map_or(chosen, |choose| ChooseSpec { keep, ..choose }));
        }
        if !self.reviewers.is_empty() {
            let review_ms = rules.review.as_ref().map_or(rules.answer_ms, |review| review.review_ms);
            rules.review = Some(ReviewSpec { by: self.reviewers.clone(), review_ms });
        }
        check_panel(&rules).map_err(|fault| Failure::configuration(format_args!("the rules: {fault}")))?;
        Ok(rules)
    }

    /// Names of the panelists of this command: new ones for each panel.
    fn seated_names(&self, own_id: &str) -> Result<Vec<AgentId>, Failure> {
        let count = if self.model.is_some() { self.panelists } else { 0 };
        let drawn = own_id.rsplit('-').next().unwrap_or_default();
        let name = |number: u32| AgentId::try_new(&format!("panelist-{drawn}-{number}"));
        (1..=count).map(name).collect::<Result<_, _>>().map_err(Failure::configuration)
    }

    /// Calls the panel, and follows it to its end.
    async fn ask(&self, remote: &Remote, rules: PanelSpec, call: CallRequest) -> Result<AskedPanel, Failure> {
        let longest = longest(&rules);
        let ends_in = self.within.unwrap_or(longest).min(longest) + GRACE;
        let within_ms = self.within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let cfp = Cfp {
            task: Some(self.question.clone()),
            panel: Some(Box::new(rules)),
            reply_within_ms: within_ms,
            ..Cfp::default()
        };
        let options = AgentOptions { tracer: tracer(), ..AgentOptions::default() };
        let initiator = Initiator::spawn(remote.transport(), remote.identity(&self.caller), options);
        remote.connected(remote.first_connection(&self.caller, initiator.connected())).await?;
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let panel = initiator.call(CallRequest { cfp, ..call }, sender).await.map_err(Failure::failed)?;
        let mut asked = AskedPanel { panel: Some(panel.clone()), ..AskedPanel::default() };
        let followed = tokio::select! {
            followed = follow(&mut events, &mut asked) => Some(followed),
            () = tokio::time::sleep(ends_in) => None,
            () = asked_to_end() => {
                note("calling it off");
                let _ = initiator.cancel(panel, Some("interrupted".to_owned())).await;
                tokio::time::timeout(CANCEL_MAX, follow(&mut events, &mut asked)).await.ok()
            }
        };
        let _ = initiator.shutdown().await;
        match followed {
            Some(followed) => followed.map(|()| asked),
            None => {
                let why = format!("the exchange told no end of the panel within {} s", ends_in.as_secs());
                Err(Failure::failed(anyhow::anyhow!(why)))
            }
        }
    }

    fn show(&self, asked: &AskedPanel) -> Outcome {
        if self.json {
            print_json(asked)?;
        }
        let Some(finding) = &asked.finding else {
            let detail = asked.detail.as_deref().map(|detail| format!(" ({})", one_line(detail))).unwrap_or_default();
            let outcome = asked.outcome.unwrap_or("nothing");
            return Err(Failure::failed(anyhow::anyhow!("the panel ended without a result: {outcome}{detail}")));
        };
        if !self.json {
            note(told(finding));
            print(one_line(&finding.answer));
        }
        Ok(())
    }
}

/// Notes events until the last one.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest is of contract nets")]
async fn follow(events: &mut mpsc::Receiver<CallEvent>, asked: &mut AskedPanel) -> Outcome {
    while let Some(CallEvent { report, .. }) = events.recv().await {
        match report {
            CallReport::Opened { invited, left_out, seats } => {
                (asked.invited, asked.left_out, asked.seats) = (Some(invited), Some(left_out), seats);
                note(asked.opened());
            }
            CallReport::Misunderstood(why) => asked.misunderstood = Some(why),
            CallReport::Found(finding) => asked.finding = Some(finding),
            CallReport::Closed(Closing { outcome, detail, .. }) => {
                (asked.outcome, asked.detail) = (Some(outcome.as_str()), detail);
                return Ok(());
            }
            CallReport::Refused(refusal) => return Err(refused(&refusal)),
            CallReport::TurnedDown(disposition) => {
                let why = asked.misunderstood.take().map_or_else(|| unopened(disposition), |why| why.reason);
                return Err(Failure::failed(anyhow::anyhow!("the exchange did not open the panel: {why}")));
            }
            CallReport::Unanswered => {
                let why = "nobody answered: the call may or may not have been made";
                return Err(Failure::failed(anyhow::anyhow!(why)));
            }
            _ => {}
        }
    }
    Err(Failure::failed(anyhow::anyhow!("the connection was lost")))
}

impl AskedPanel {
    /// Who has a seat.
    fn opened(&self) -> String {
        let panel = self.panel.as_ref().map(ToString::to_string).unwrap_or_default();
        let invited = self.invited.unwrap_or_default();
        let plural = if invited == 1 { "" } else { "s" };
        let chosen = match self.seats {
            Some(SeatChoice::Chosen) => ", chosen by evidence",
            Some(SeatChoice::Trial) => ", a trial: too few have a reputation yet",
            None => "",
        };
        let left_out = match self.left_out {
            None | Some(0) => String::new(),
            Some(left_out) => format!("; {left_out} left out"),
        };
        format!("{panel}: {invited} seat{plural}{chosen}{left_out}")
    }
}

/// How a result came about.
fn told(finding: &Finding) -> String {
    let Finding { outcome, agreed, of, round, calls, .. } = finding;
    let asks = calls.answers + calls.ranks + calls.reviews;
    let rows = finding.panelists.iter().map(|panelist| {
        let answer = panelist.answer.as_deref().unwrap_or("-").to_owned();
        let agrees = if panelist.agreed { "yes" } else { "no" }.to_owned();
        [panelist.agent.to_string(), answer, agrees, millionths(panelist.relative_ppm.into())]
    });
    let table = table_under(["PANELIST", "ANSWER", "AGREES", "SHARE"], rows);
    format!("{}: {agreed} of {of} agree in round {round}, {asks} asks\n{}", outcome.as_str(), table.trim_end())
}

/// As long as all asks of a panel may take, at most: a day.
fn longest(rules: &PanelSpec) -> Duration {
    let rank_ms = match rules.select.as_ref().map(|select| &select.ranker) {
        Some(Ranker::Agent { rank_ms, .. }) => *rank_ms,
        Some(Ranker::Support | Ranker::Rating | Ranker::Hash) | None => 0,
    };
    let review_ms = rules.review.as_ref().map_or(0, |review| review.review_ms);
    let answers_ms = rules.answer_ms.saturating_mul(SEATS_MAX as u64);
    let rounds_ms = answers_ms.saturating_add(review_ms).saturating_mul(rules.rounds.into());
    Duration::from_millis(rounds_ms.saturating_add(rank_ms).min(TIMER_MS_MAX))
}

fn answer_kind(name: &str) -> Result<AnswerKind, String> {
    let kinds = ["exact", "number", "math", "json", "bleu"];
    let known = kinds.contains(&name).then(|| serde_json::from_value(json!({ "kind": name })).ok()).flatten();
    known.ok_or_else(|| format!("one of {} is expected; --options makes a choice", kinds.join(", ")))
}
