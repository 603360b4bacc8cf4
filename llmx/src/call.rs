//! `llmx call TASK`: one negotiation from the shell, followed to its end.

mod course;

use std::path::PathBuf;
use std::time::Duration;

use agents::initiator::CallError;
use agents::transport::TransportError;
use agents::{AgentError, AgentOptions, CallEvent, CallReport, CallRequest, Identity, Initiator};
use futures_util::future::join_all;
use schemas::document::CallDocuments;
use schemas::english_auction::AuctionSpec;
use schemas::ids::{AttrName, Capability};
use schemas::payload::{Cfp, TEXT_LEN_MAX};
use schemas::policy::Gate;
use schemas::{Address, AgentId, NegotiationId, TopicName};
use tokio::sync::mpsc;
use tokio::time::Instant;
use traffic_gen::live;

use crate::access::{AccessArgs, refused};
use crate::arguments::{micros, new_id, seconds};
use crate::calls::CallDocumentsArgs;
use crate::model::{self, ModelUse};
use crate::output::{Failure, Outcome, note, one_line, print, print_json, tracer};
use crate::remote::{ANSWER_MAX, client};
use crate::signals::asked_to_end;
use crate::{english_auction, healthcheck};

use course::Course;

/// Events that wait to be shown: several times what the longest negotiation gives.
const EVENTS_MAX: usize = 1024;
/// Attempts to connect in a row before the call is given up: some seconds.
const CONNECT_ATTEMPTS_MAX: u32 = 5;
/// How long a call that is called off may take to end, its connection included.
const CANCEL_MAX: Duration = Duration::from_secs(4);

/// Arguments of `llmx call`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx call \"carry a parcel\"\n  \
    llmx call \"carry a parcel\" --max-price 90 --capability bicycle --reply-within 5\n  \
    llmx call \"carry a parcel\" --to bob --to group://night-shift --policy high --json\n  \
    llmx call \"carry a parcel\" --policy chosen --initiator-model model.toml\n  \
    llmx call 1500 --document examples/parcel-price.md --require-document\n\n\
    An offer above --max-price cannot win: the exchange answers it `policy_reject`, code `price.max`. Contractors are not\n\
    told the limit. Under a document TASK is the request as the document wants it (docs/agora.md). Offers are sealed until collection has closed, and shown where the confirmation leaves the time.\n\
    Ctrl-C calls it off.\n\
    Exit codes: 0 awarded and completed; 1 no award, refused, called off, out of reach, or not ended within --wait;\n\
    2 usage or configuration. A refusal is printed with its code and where the fault is.")]
pub struct CallArgs {
    /// What is wanted, for the contractors to read
    #[arg(value_parser = task)]
    task: String,
    /// What a task that is not quoted leaves over
    #[arg(hide = true, value_name = "REST")]
    rest: Vec<String>,
    /// Whom to call: an agent's id, agent://ID, topic://NAME or group://ID; separated by commas, or repeated
    #[arg(long, value_name = "ADDRESSES", value_parser = address, value_delimiter = ',')]
    to: Vec<Address>,
    /// Topic to call (default: courier, unless --to names somebody); separated by commas, or repeated
    #[arg(long, value_name = "NAMES", value_parser = TopicName::try_new, value_delimiter = ',')]
    topic: Vec<TopicName>,
    /// Invite only agents with this capability; of several, one is enough
    #[arg(long, value_name = "NAMES", value_parser = Capability::try_new, value_delimiter = ',')]
    capability: Vec<Capability>,
    /// Invite absent agents of topics and groups, too; the call then waits for their answers as for those of others
    #[arg(long)]
    absent: bool,
    /// Acceptance policy (default: the exchange's)
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Highest price that may win, in units such as 90 or 89.50
    #[arg(long, value_name = "AMOUNT", value_parser = micros)]
    max_price: Option<i64>,
    /// Currency of prices, three letters; an offer in another cannot win
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
    /// Makes the call an English auction: its rules, as JSON or a file (docs/auctions.md)
    #[arg(long, value_parser = english_auction::spec, value_name = "JSON|FILE")]
    auction: Option<AuctionSpec>,
    #[command(flatten)]
    documents: CallDocumentsArgs,
    /// Seconds contractors have to offer (default: the policy's)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    reply_within: Option<Duration>,
    /// Longest wait for the end, in seconds; the negotiation goes on without this command
    #[arg(long, value_name = "SECONDS", default_value = "180", value_parser = seconds)]
    wait: Duration,
    /// Own part of the negotiation's id (default: made from the time)
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Who calls, where the token is signed here
    #[arg(long = "as", value_name = "AGENT", default_value = "caller", value_parser = AgentId::try_new)]
    caller: AgentId,
    /// Let a language model choose among the offers, as this TOML file says (docs/models.md); its limits are gates of the
    /// call. Needs a policy with `decider: initiator`
    #[arg(long, value_name = "FILE")]
    initiator_model: Option<PathBuf>,
    /// With --initiator-model: keep what it is asked and answers in this folder, which only its owner may read
    /// (docs/models.md)
    #[arg(long, value_name = "DIR", requires = "initiator_model")]
    keep_prompts: Option<PathBuf>,
    /// Print one JSON document at the end, and nothing before
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Who chooses among the offers, where that is left to the initiator.
type Decider = std::sync::Arc<agents::model::ModelDecider>;

/// How following a call ended.
enum CallEnd {
    /// With its last event.
    Last,
    /// `--wait` is over.
    Late,
    /// `--wait` was over before the call was sent.
    Unsent,
    /// A signal came.
    CalledOff,
    /// The same, and no end was told.
    Unheard,
    /// The connection did not come back.
    Lost,
}

/// Calls, follows, and says how it ended.
pub async fn run(args: CallArgs) -> Outcome {
    if !args.rest.is_empty() {
        let words = [std::slice::from_ref(&args.task), &args.rest].concat().join(" ");
        return Err(Failure::configuration(format_args!("the task is one argument; quote it: llmx call \"{words}\"")));
    }
    let documents = args.documents.named()?;
    let started = Instant::now();
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let with = ModelUse { metrics: None, kept: kept.clone() };
    let decider = args.initiator_model.as_deref().map(|path| model::open_decider(path, None, with)).transpose()?;
    let (bearer, request) = (args.access.bearer(&args.caller)?, args.request(documents, decider.as_ref()));
    args.check_id(&request.own_id, bearer.is_signed_here)?;
    let asking = tokio::time::timeout_at(started + args.wait, args.access.identity(bearer));
    let Ok(identity) = asking.await else { return Err(args.unsent().await) };
    let identity = identity?;
    let negotiation = NegotiationId::form(&identity.agent, &request.own_id).map_err(Failure::configuration)?;
    let mut course = Course::new(negotiation, &request);
    let end = args.follow((&identity, decider.as_ref()), request, &mut course, started + args.wait).await?;
    course.finish(started.elapsed());
    decider.iter().for_each(|decider| model::note_decisions(decider));
    kept.iter().for_each(note);
    if args.json {
        print_json(&course)?;
    }
    let failure = |why: String| Err(Failure::failed(anyhow::anyhow!(why)));
    match end {
        CallEnd::Last if course.is_completed() => Ok(()),
        CallEnd::Last => match course.refused() {
            Some(refusal) => Err(refused(refusal)),
            None => failure(course.fault()),
        },
        CallEnd::Unsent => Err(args.unsent().await),
        CallEnd::Late if !course.is_called() => {
            failure(format!("no answer within {} s: the call may or may not have been made", args.wait.as_secs_f64()))
        }
        CallEnd::Late => failure(format!("no end within {} s; the negotiation goes on", args.wait.as_secs_f64())),
        CallEnd::CalledOff if course.is_called() && !course.is_ended() => failure(course.fault()),
        CallEnd::CalledOff => failure("called off".to_owned()),
        CallEnd::Unheard => {
            failure(format!("no end was told within {} s: the negotiation may go on", CANCEL_MAX.as_secs()))
        }
        CallEnd::Lost => Err(args.access.unreachable(Some("the connection was lost".to_owned()))),
    }
}

impl CallArgs {
    fn request(&self, documents: Option<CallDocuments>, decider: Option<&Decider>) -> CallRequest {
        let mut to = self.to.clone();
        to.extend(self.topic.iter().cloned().map(Address::Topic));
        if to.is_empty() {
            to.extend(TopicName::try_new(live::TOPIC).map(Address::Topic));
        }
        let price =
            |max| AttrName::try_new("price").map(|attr| Gate { attr, min: None, max, one_of: None, required: true });
        let limits = decider.map_or_else(Vec::new, |decider| decider.config().initiator.gates());
        let cfp = Cfp {
            task: Some(self.task.clone()),
            policy: self.policy.clone(),
            reply_within_ms: self.reply_within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
            currency: self.currency.clone(),
            gates: self.max_price.and_then(|max| price(Some(max)).ok()).into_iter().chain(limits).collect(),
            auction: self.auction.clone().map(Box::new),
            documents,
            ..Cfp::default()
        };
        let own_id = self.id.clone().unwrap_or_else(|| new_id("call"));
        let (capabilities, absent) = (self.capability.clone(), self.absent);
        CallRequest { capabilities, absent, ..CallRequest::new(own_id, to, cfp) }
    }

    /// Checks the id before anything is sent. A token that was given may be of any agent, which a full id names.
    fn check_id(&self, own_id: &str, is_signed_here: bool) -> Outcome {
        let named = own_id.split_once('~').filter(|_| !is_signed_here);
        let owner = named.and_then(|(owner, _)| AgentId::try_new(owner).ok());
        let formed = NegotiationId::form(owner.as_ref().unwrap_or(&self.caller), own_id);
        formed.map(|_| ()).map_err(Failure::configuration)
    }

    /// `--wait` is over, and the exchange was told nothing.
    async fn unsent(&self) -> Failure {
        let (gateways, wait_s) = (&self.access.gateway, self.wait.as_secs_f64());
        let mut fault = format!("no connection to {}", gateways.join(", "));
        if let Ok(client) = client(ANSWER_MAX, gateways) {
            let unready = gateways.iter().map(|gateway| healthcheck::unready(&client, gateway));
            fault = join_all(unready).await.into_iter().flatten().next().unwrap_or(fault);
        }
        Failure::failed(anyhow::anyhow!("{fault}, within {wait_s} s: no call was made"))
    }

    /// Opens the call and shows what becomes of it.
    async fn follow(
        &self,
        (identity, decider): (&Identity, Option<&Decider>),
        request: CallRequest,
        course: &mut Course,
        deadline: Instant,
    ) -> Result<CallEnd, Failure> {
        let options =
            AgentOptions { connect_attempts_max: CONNECT_ATTEMPTS_MAX, tracer: tracer(), ..AgentOptions::default() };
        let way = (self.access.transport()?, identity.clone(), options);
        let initiator = match decider {
            Some(decider) => Initiator::spawn_choosing(way.0, way.1, way.2, decider.clone()),
            None => Initiator::spawn(way.0, way.1, way.2),
        };
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let opened = tokio::select! {
            opened = open(&initiator, request, sender) => opened,
            () = tokio::time::sleep_until(deadline) => return Ok(CallEnd::Unsent),
            () = asked_to_end() => return Ok(CallEnd::CalledOff),
        };
        match opened {
            Ok(()) => {}
            Err(CallError::Id(error)) => return Err(Failure::configuration(error)),
            Err(CallError::Agent(_)) => return Err(self.ended(initiator).await),
        }
        let mut end = tokio::select! {
            end = self.watch(&mut events, identity, course) => end,
            () = tokio::time::sleep_until(deadline) => CallEnd::Late,
            () = asked_to_end() => CallEnd::CalledOff,
        };
        // An exchange that says nothing does not hold it; a second signal ends it where it stands.
        let last = Instant::now() + CANCEL_MAX;
        if matches!(end, CallEnd::CalledOff) {
            note("calling it off");
            let calling_off = async {
                initiator.cancel(course.negotiation().clone(), Some("interrupted".to_owned())).await.ok()?;
                Some(self.watch(&mut events, identity, course).await)
            };
            if !matches!(tokio::time::timeout_at(last, calling_off).await, Ok(Some(CallEnd::Last))) {
                end = CallEnd::Unheard;
            }
        }
        let _ = tokio::time::timeout_at(last, initiator.shutdown()).await;
        Ok(end)
    }

    /// Shows events until the last one.
    async fn watch(&self, events: &mut mpsc::Receiver<CallEvent>, identity: &Identity, course: &mut Course) -> CallEnd {
        while let Some(event) = events.recv().await {
            if matches!(event.report, CallReport::Awarded(_)) {
                self.look(identity, course).await;
            }
            let (is_last, is_opened) = (event.report.is_last(), matches!(event.report, CallReport::Opened { .. }));
            for said in course.handle(event.report) {
                self.say(said);
            }
            if is_opened && !self.json {
                self.look(identity, course).await;
            }
            if is_last {
                return CallEnd::Last;
            }
        }
        CallEnd::Lost
    }

    /// Reads the offers, which the initiator may see from the close to the end. Whoever is quick ends before that.
    async fn look(&self, identity: &Identity, course: &mut Course) {
        let path = format!("/v1/negotiations/{}", course.negotiation());
        let token = identity.token.current();
        match self.access.ask(async |gateway| gateway.read(&path, &token).await).await {
            Ok(view) => course.handle_view(view).into_iter().for_each(|said| self.say(said)),
            Err(_) => tracing::debug!("the offers cannot be read now"),
        }
    }

    fn say(&self, line: String) {
        if !self.json {
            print(one_line(&line));
        }
    }

    /// Why the initiator ended before it could call.
    async fn ended(&self, initiator: Initiator) -> Failure {
        match initiator.shutdown().await {
            // A gateway that refuses every attempt is there.
            Err(AgentError::Refused(refusal) | AgentError::GaveUp { last: TransportError::Refused(refusal), .. }) => {
                refused(&refusal)
            }
            Err(AgentError::GaveUp { last, .. }) => self.access.unreachable(Some(last.to_string())),
            Err(error) => error.into(),
            Ok(_) => self.access.unreachable(None),
        }
    }
}

async fn open(initiator: &Initiator, request: CallRequest, events: mpsc::Sender<CallEvent>) -> Result<(), CallError> {
    initiator.connected().await?;
    initiator.call(request, events).await.map(|_| ())
}

/// A task: what the wire takes.
fn task(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if (1..=TEXT_LEN_MAX).contains(&length) {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {TEXT_LEN_MAX} characters are expected"))
    }
}

/// An address; a name alone is an agent's.
pub fn address(text: &str) -> Result<Address, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("agent://{text}") };
    Address::try_new(&full).map_err(|error| error.to_string())
}
