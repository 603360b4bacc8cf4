//! Carries calls of tools out: reads at the gateways, messages and waits through a participant.

mod tasks;

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use agents::control::{ControlClient, ControlError, Wanted};
use agents::transport::can_pass;
use parking_lot::Mutex;
use schemas::ids::{Capability, IdError};
use schemas::{AgentId, Code, NegotiationId, Refusal, TopicName};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use crate::tools::message::Limits;

use crate::ToolFault;
use crate::memory::Item;
use crate::participant::Participant;
use crate::tools::message::{self, Message, pointer_into_arguments};
use crate::tools::{self, Arguments, Tool, ToolSet, answer};

/// Wait for news unless another is asked for: below the five seconds after which some clients give a call up.
const WAIT: Duration = Duration::from_millis(4000);
/// Agents that are found unless another number is asked for.
const FOUND: u64 = 10;
/// Items of the inbox unless another number is asked for.
const ITEMS: u64 = 20;
/// Longest wait for what one agent answers another: a little more than a gateway waits.
const TRANSACTION_MAX: Duration = Duration::from_secs(100);
/// Pages of agents that are read for one list.
const PAGES_MAX: usize = 5;
/// How long an agent that registered by a tool stays registered without asking its inbox.
pub const PRESENT_FOR: Duration = Duration::from_secs(120);

/// Gateways of one exchange.
#[derive(Debug, Clone)]
pub struct Gateways {
    clients: Vec<ControlClient>,
    /// Which answered last: it is asked first.
    last: Arc<AtomicUsize>,
}

impl Gateways {
    /// Those at these addresses.
    ///
    /// # Errors
    /// [`ControlError`] when no HTTP client can be made.
    pub fn try_new(urls: &[String]) -> Result<Self, ControlError> {
        let clients = urls.iter().map(|url| ControlClient::try_new(url.as_str())).collect::<Result<_, _>>()?;
        Ok(Self { clients, last: Arc::default() })
    }

    /// Asks the first that answers.
    ///
    /// # Errors
    /// What it refuses, or [`Code::Unavailable`].
    pub async fn ask(&self, token: &str, question: GatewayRequest<'_>) -> Result<Value, Refusal> {
        let mut fault = Refusal::new(Code::Unavailable, "no gateway is named");
        let first = self.last.load(Ordering::Relaxed);
        for place in (0..self.clients.len()).map(|place| (first + place) % self.clients.len()) {
            let client = &self.clients[place];
            let answered = match question {
                GatewayRequest::Get(path) => client.read(path, token).await,
                GatewayRequest::Put(path, document) => client.put(path, token, document).await.map(|()| Value::Null),
                GatewayRequest::Post(path, document) => client.post(path, token, document).await,
                GatewayRequest::Transact(path, document) => {
                    client.post_within(path, token, document, TRANSACTION_MAX).await
                }
                GatewayRequest::Delete(path) => client.delete(path, token).await.map(|()| Value::Null),
                GatewayRequest::Agents(wanted) => client.agents(token, wanted).await.map(|found| json!(found)),
            };
            let Err(error) = answered else {
                self.last.store(place, Ordering::Relaxed);
                return answered.map_err(Refusal::from);
            };
            // What may have been received is not asked of another.
            let is_sent = !matches!(&error, ControlError::Unreachable(error) if error.is_connect());
            fault = error.into();
            if !can_pass(fault.code) {
                return Err(fault);
            }
            if is_sent && !matches!(question, GatewayRequest::Get(_) | GatewayRequest::Agents(_)) {
                let detail = "no answer: it may or may not have been done; look before you ask again";
                return Err(if fault.code == Code::Unavailable {
                    Refusal::new(Code::LogUnavailable, detail)
                } else {
                    fault
                });
            }
        }
        Err(fault)
    }
}

/// What a gateway is asked: a path, and a document where one is sent.
#[derive(Clone, Copy)]
pub enum GatewayRequest<'a> {
    /// Reads a document.
    Get(&'a str),
    /// Stores one.
    Put(&'a str, &'a Value),
    /// Sends one, and reads the answer.
    Post(&'a str, &'a Value),
    /// Sends one whose answer takes as long as an agent works.
    Transact(&'a str, &'a Value),
    /// Removes one.
    Delete(&'a str),
    /// Lists agents.
    Agents(&'a Wanted),
}

/// A registration that was made by a tool.
struct Presence {
    instance: String,
    last_asked: Instant,
}

/// What carries calls of tools out for one agent.
pub struct ToolService {
    participant: Arc<Participant>,
    gateways: Gateways,
    limits: Limits,
    sets: Vec<ToolSet>,
    presence: Mutex<Option<Presence>>,
    instance: String,
    registrations: AtomicU32,
    /// Makes the tokens of pages of tasks.
    pages: RandomState,
}

impl ToolService {
    /// For this participant, with tools of these sets. `instance` tells its registration from one made elsewhere.
    pub fn new(
        participant: Arc<Participant>,
        gateways: Gateways,
        sets: Vec<ToolSet>,
        limits: Limits,
        instance: String,
    ) -> Self {
        Self {
            participant,
            gateways,
            limits,
            sets,
            presence: Mutex::new(None),
            instance,
            registrations: AtomicU32::new(1),
            pages: RandomState::new(),
        }
    }

    fn is_on(&self, name: &str) -> bool {
        tools::of(&self.sets).any(|tool| tool.name == name)
    }

    /// Calls a tool that is on.
    ///
    /// # Errors
    /// [`ToolFault`], its pointer into the arguments.
    pub async fn call(&self, tool: &Tool, mut arguments: Arguments) -> Result<Value, ToolFault> {
        // Models that must write every argument write null where they mean none.
        arguments.retain(|_, value| !value.is_null());
        let arguments = Value::Object(arguments);
        tool.check(&arguments)?;
        let Value::Object(arguments) = arguments else { return Ok(Value::Null) };
        match tool.name {
            "find_agents" => self.find_agents(&arguments).await,
            "list_policies" => self.list_policies().await,
            "follow" => self.follow(&arguments).await,
            "inbox" => self.inbox(&arguments).await,
            "register" => self.register(arguments).await,
            "find_documents" | "get_document" => self.read_documents(&arguments).await,
            "put_document" => self.put_document(&arguments).await,
            "ask_agent" => self.ask_agent(&arguments).await,
            "call_for_offers" | "bargain" | "form_team" | "ask_panel" => self.open(tool.name, arguments).await,
            name => self.act(name, arguments).await,
        }
    }

    async fn open(&self, tool: &str, arguments: Arguments) -> Result<Value, ToolFault> {
        let wait = wait(&arguments);
        let message = message::opening(self.agent(), tool, arguments, &self.limits)?;
        let (negotiation, deadline) = (message.negotiation.clone(), Instant::now() + wait);
        // Before the call is made: one that stands is not told to be refused.
        let _place = self.wait_place(wait)?;
        self.send(tool, message).await?;
        if self.view(&negotiation).await?.is_none_or(|view| view["outcome"].is_null()) {
            let is_there = |memory: &crate::memory::Memory| {
                memory
                    .known(&negotiation)
                    .is_some_and(|known| known.outcome.is_some() || known.asked_of_client().is_some())
            };
            self.participant.wait(deadline, is_there).await;
        }
        self.told(&negotiation, 0).await
    }

    async fn act(&self, tool: &str, arguments: Arguments) -> Result<Value, ToolFault> {
        let negotiation = message::negotiation(&arguments)?;
        let after = self.participant.memory().told(&negotiation);
        let offered = (tool == "offer").then(|| offered(&arguments));
        let message = {
            let memory = self.participant.memory();
            message::act(self.agent(), tool, arguments, memory.known(&negotiation), &self.limits)?
        };
        // Before it leaves: an award may come before the receipt.
        if let Some(terms) = offered {
            self.participant.memory().offers(&negotiation, terms);
        }
        self.send(tool, message).await?;
        self.told(&negotiation, after).await
    }

    /// A place to wait, where there is something to wait for.
    fn wait_place(&self, wait: Duration) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if wait.is_zero() { Ok(None) } else { self.participant.wait_place().map(Some) }
    }

    async fn send(&self, tool: &str, message: Message) -> Result<(), ToolFault> {
        let inward = |pointer: &mut Option<String>| {
            if let Some(pointer) = pointer {
                *pointer = pointer_into_arguments(tool, pointer);
            }
        };
        match self.participant.send(tool, message).await {
            Ok(_) => Ok(()),
            Err(ToolFault::Refused(mut refusal)) => {
                inward(&mut refusal.pointer);
                Err(refusal.into())
            }
            Err(ToolFault::NotFollowed { disposition, mut why }) => {
                why.iter_mut().for_each(|why| inward(&mut why.pointer));
                Err(ToolFault::NotFollowed { disposition, why })
            }
        }
    }

    async fn follow(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        let negotiation = message::negotiation(arguments)?;
        let after = self.participant.memory().place(arguments.get("after").and_then(Value::as_str));
        // What is not there, or ended, brings nothing more.
        let view = self.view(&negotiation).await?;
        let is_known = view.is_some() || self.participant.memory().known(&negotiation).is_some();
        if is_known && view.is_none_or(|view| view["outcome"].is_null()) {
            let _place = self.wait_place(wait(arguments))?;
            let deadline = Instant::now() + wait(arguments);
            self.participant.wait(deadline, |memory| memory.news(&negotiation, after).next().is_some()).await;
        }
        self.told(&negotiation, after).await
    }

    /// How a negotiation stands and what is new since item `after`, for a client to read.
    async fn told(&self, negotiation: &NegotiationId, after: u64) -> Result<Value, ToolFault> {
        let answer = self.looked_up(negotiation, after, |tool| self.is_on(tool)).await?;
        self.hand_on(negotiation);
        Ok(answer)
    }

    /// All that was heard of a negotiation is acknowledged soon: a client has read it.
    fn hand_on(&self, negotiation: &NegotiationId) {
        let mut memory = self.participant.memory();
        let newest = memory.newest();
        memory.handed(negotiation, newest, Instant::now());
    }

    /// How a negotiation stands, what is new since item `after`, and what may be done with tools that are on.
    async fn looked_up(
        &self,
        negotiation: &NegotiationId,
        after: u64,
        is_on: impl Fn(&str) -> bool + Send,
    ) -> Result<Value, ToolFault> {
        let view = self.view(negotiation).await?;
        let outcome = view.as_ref().and_then(|view| serde_json::from_value(view["outcome"].clone()).ok());
        if let Some(outcome) = outcome.filter(|_| negotiation.initiator() == self.agent().as_str()) {
            let awards = view.iter().flat_map(|view| view["awards"].as_array().into_iter().flatten());
            let done = awards.filter(|award| award["state"] == "done").count();
            self.participant.wait_for_end(negotiation, outcome, done).await;
        }
        let mut memory = self.participant.memory();
        view.iter().for_each(|view| memory.see(negotiation, view, Instant::now()));
        if view.is_none() && memory.known(negotiation).is_none() {
            return Err(ToolFault::new(Code::NotFound, "no such negotiation, or none of yours"));
        }
        let heard: Vec<&Item> = memory.news(negotiation, 0).collect();
        Ok(answer::negotiation(&memory, (negotiation, &heard), (view, after), is_on))
    }

    /// The gateway's view; `None` where there is none for this agent, or no longer.
    async fn view(&self, negotiation: &NegotiationId) -> Result<Option<Value>, ToolFault> {
        match self.ask(GatewayRequest::Get(&format!("/v1/negotiations/{negotiation}"))).await {
            Ok(view) => Ok(Some(view)),
            Err(ToolFault::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn inbox(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        self.asked_inbox();
        let after = self.participant.memory().place(arguments.get("after").and_then(Value::as_str));
        let _place = self.wait_place(wait(arguments))?;
        let deadline = Instant::now() + wait(arguments);
        self.participant.wait(deadline, |memory| !memory.asking(after).is_empty()).await;
        self.asked_inbox();
        let limit = usize::try_from(number(arguments, "limit", ITEMS)).unwrap_or(usize::MAX);
        let mut told = answer::inbox(&self.participant.memory(), after, limit, |tool| self.is_on(tool));
        told["registered"] = json!(self.presence.lock().is_some());
        Ok(told)
    }

    async fn register(&self, mut arguments: Arguments) -> Result<Value, ToolFault> {
        let default = arguments.remove("consent").unwrap_or_else(|| json!("allow"));
        arguments.insert("consent".to_owned(), json!({"default": default, "rules": []}));
        let instance = format!("{}-{}", self.instance, self.registrations.fetch_add(1, Ordering::Relaxed));
        arguments.insert("instance".to_owned(), json!(instance));
        // Before the answer: a registration whose outcome is unknown is taken back, too.
        let earlier = self.presence.lock().replace(Presence { instance: instance.clone(), last_asked: Instant::now() });
        let stored = self.ask(GatewayRequest::Put(&self.path_of_agent(), &Value::Object(arguments))).await;
        if let Err(ToolFault::Refused(refusal)) = &stored
            && !can_pass(refusal.code)
        {
            *self.presence.lock() = earlier;
        }
        stored?;
        let present_for_ms = u64::try_from(PRESENT_FOR.as_millis()).unwrap_or(u64::MAX);
        Ok(json!({"agent": self.agent(), "registered": true, "inbox_within_ms": present_for_ms}))
    }

    fn asked_inbox(&self) {
        if let Some(presence) = self.presence.lock().as_mut() {
            presence.last_asked = Instant::now();
        }
    }

    /// Takes a registration back whose client has not asked its inbox for [`PRESENT_FOR`].
    pub async fn deregister_absent(&self) {
        self.deregister(|presence| presence.last_asked.elapsed() >= PRESENT_FOR).await;
    }

    /// Takes back a registration that was made by a tool, and ends the connection.
    pub async fn close(&self) {
        self.deregister(|_| true).await;
        self.participant.close().await;
    }

    async fn deregister(&self, is_over: impl Fn(&Presence) -> bool) {
        let Some(presence) = self.presence.lock().take_if(|presence| is_over(presence)) else { return };
        let path = format!("{}?instance={}", self.path_of_agent(), presence.instance);
        if let Err(fault) = self.ask(GatewayRequest::Delete(&path)).await {
            tracing::warn!(agent = %self.agent(), %fault, "a registration was not taken back");
            if matches!(&fault, ToolFault::Refused(refusal) if can_pass(refusal.code)) {
                self.presence.lock().get_or_insert(presence);
            }
        }
    }

    async fn find_agents(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        let limit = number(arguments, "limit", FOUND);
        if let Some(query) = arguments.get("query") {
            let mut wanted = json!({"queries": [query], "limit": limit});
            for filter in ["topic", "tags", "present"] {
                wanted.as_object_mut().into_iter().for_each(|wanted| {
                    wanted.extend(arguments.get(filter).map(|value| (filter.to_owned(), value.clone())));
                });
            }
            if let Some(capability) = arguments.get("capability") {
                wanted["capabilities"] = json!([capability]);
            }
            let found = self.ask(GatewayRequest::Post("/v1/search", &wanted)).await?;
            return Ok(answer::escaped(found));
        }
        let wanted = Wanted {
            capability: name(arguments, "capability", Capability::try_new)?,
            topic: name(arguments, "topic", TopicName::try_new)?,
            present: (arguments.get("present") == Some(&Value::Bool(true))).then_some(true),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            pages_max: Some(PAGES_MAX),
        };
        Ok(answer::escaped(self.ask(GatewayRequest::Agents(&wanted)).await?))
    }

    async fn list_policies(&self) -> Result<Value, ToolFault> {
        let found = self.ask(GatewayRequest::Get("/v1/policies")).await?;
        let members = ["id", "version", "decider", "awards", "selection", "timers_ms", "gates"];
        let policies = found["policies"].as_array().into_iter().flatten().map(|stored| {
            let policy = &stored["policy"];
            let member = |name: &&str| Some(((*name).to_owned(), policy.get(*name)?.clone()));
            Value::Object(members.iter().filter_map(member).collect())
        });
        Ok(json!({"default": found["default"], "policies": answer::escaped(policies.collect())}))
    }

    async fn read_documents(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let path = match text("hash") {
            Some(hash) => format!("/v1/documents/{hash}"),
            None => {
                let agent = name(arguments, "agent", AgentId::try_new)?.map(|agent| format!("&agent={agent}"));
                let after = text("after").map(|after| format!("&after={}", after.replace('+', "-").replace('/', "_")));
                format!("/v1/documents?limit=100{}{}", agent.unwrap_or_default(), after.unwrap_or_default())
            }
        };
        Ok(answer::escaped(self.ask(GatewayRequest::Get(&path)).await?))
    }

    async fn put_document(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        self.ask(GatewayRequest::Put("/v1/documents", &json!({"document": arguments.get("text")}))).await?;
        Ok(json!({"stored": true}))
    }

    async fn ask_agent(&self, arguments: &Arguments) -> Result<Value, ToolFault> {
        let Some(agent) = name(arguments, "agent", AgentId::try_new)? else { return Ok(Value::Null) };
        let mut request = json!({"body": arguments.get("request")});
        if let Some(document) = arguments.get("document") {
            request["protocolHash"] = document.clone();
            request["protocolSources"] = arguments.get("sources").cloned().unwrap_or_else(|| json!([]));
        }
        Ok(answer::escaped(self.ask(GatewayRequest::Transact(&format!("/agora/{agent}"), &request)).await?))
    }

    async fn ask(&self, question: GatewayRequest<'_>) -> Result<Value, ToolFault> {
        Ok(self.gateways.ask(&self.participant.identity().token.current(), question).await?)
    }

    fn agent(&self) -> &AgentId {
        &self.participant.identity().agent
    }

    fn path_of_agent(&self) -> String {
        format!("/v1/agents/{}", self.agent())
    }
}

/// Terms whose award is to be confirmed at once; `None` where the caller wants to be asked.
fn offered(arguments: &Arguments) -> Option<schemas::payload::Terms> {
    let asks = arguments.get("confirm").and_then(Value::as_str) == Some("ask");
    serde_json::from_value(arguments.get("terms")?.clone()).ok().filter(|_| !asks)
}

fn wait(arguments: &Arguments) -> Duration {
    arguments.get("wait_ms").and_then(Value::as_u64).map_or(WAIT, Duration::from_millis)
}

fn number(arguments: &Arguments, name: &str, default: u64) -> u64 {
    arguments.get(name).and_then(Value::as_u64).unwrap_or(default)
}

fn name<T>(arguments: &Arguments, name: &str, read: impl Fn(&str) -> Result<T, IdError>) -> Result<Option<T>, Refusal> {
    let read = arguments.get(name).and_then(Value::as_str).map(read).transpose();
    read.map_err(|error| Refusal::new(Code::BadFormat, error.to_string()).at(format!("/{name}")))
}
