//! Negotiations that an agent called, as tasks of the Agent2Agent protocol.

use std::cmp::Reverse;
use std::hash::BuildHasher as _;
use std::time::Duration;

use a2a::{A2AError, ListTasksRequest, ListTasksResponse, Part, Task, TaskState};
use schemas::{Code, MsgId, NegotiationId, Refusal};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::ToolService;
use crate::ToolFault;
use crate::a2a::request::{check_common, in_part, invalid};
use crate::a2a::task::{self, context};
use crate::a2a::{Begun, Content, Incoming, TaskFault, TaskSource};
use crate::memory::todo::tool_of;
use crate::memory::{Memory, NegotiationMemory};
use crate::tools::message::{self, DERIVED_ID_CHARS, digits};
use crate::tools::{Arguments, answer};

/// Characters of a digest in the id of a task, and of a context: 88 and 84 bits.
const TASK_CHARS: usize = task::TASK_TAG_CHARS - 1;
const CONTEXT_CHARS: usize = 21;
/// Tasks of a page, and unless the client says otherwise.
const PAGE_MAX: i32 = 100;
const PAGE: i32 = 50;
/// How long a cancellation may take to be told.
const CANCEL_MAX: Duration = Duration::from_secs(2);
/// Id of the message that cancels a task: a client's of this name has another.
const CANCEL: &str = "cancel";
/// Acts of the initiator of a contract net.
const INITIATOR_ACTS: [&str; 2] = ["accept", "cancel"];

impl TaskSource for ToolService {
    async fn send(&self, message: Incoming) -> Result<Begun, TaskFault> {
        let place = message.place.clone();
        let sent = match message.task_id.clone() {
            None => self.call_by_task(message).await,
            Some(task) => self.act_in_task(&task, message).await,
        };
        sent.map_err(|fault| in_part(fault, &place))
    }

    async fn follow(&self, task: &str, seen: Option<&Task>, deadline: Instant) -> Result<Task, TaskFault> {
        let negotiation = self.own(task)?;
        loop {
            let newest = self.participant.memory().newest();
            let mark = |memory: &Memory| {
                let asked = memory.known(&negotiation).and_then(NegotiationMemory::asked_of_client);
                (memory.news(&negotiation, newest).count(), asked.map(|todo| todo.because))
            };
            let before = mark(&self.participant.memory());
            let now = self.task(&negotiation).await?;
            if seen != Some(&now) || Instant::now() >= deadline {
                return Ok(now);
            }
            self.participant.wait(deadline, |memory| mark(memory) != before).await;
            if self.participant.is_closed() {
                return Err(Refusal::new(Code::TokenExpired, "the connection of this token has ended").into());
            }
        }
    }

    async fn cancel(&self, task: &str) -> Result<Task, TaskFault> {
        let negotiation = self.own(task)?;
        let told = self.looked_up(&negotiation, 0, |_| true).await.map_err(|fault| absent(fault, task))?;
        if told["outcome"].is_string() {
            return Err(A2AError::task_not_cancelable(task).into());
        }
        let act = if told["view"]["bargain"].is_null() { "cancel" } else { "end" };
        let request = Arguments::from_iter([("payload".to_owned(), json!({"act": act}))]);
        let id = MsgId::try_new(CANCEL).map_err(|_| A2AError::internal(CANCEL))?;
        match self.pass(negotiation.clone(), id, request).await {
            Err(ToolFault::NotFollowed { .. }) => return Err(A2AError::task_not_cancelable(task).into()),
            sent => sent?,
        }
        let deadline = Instant::now() + CANCEL_MAX;
        let has_ended = |memory: &Memory| memory.known(&negotiation).is_some_and(|known| known.outcome.is_some());
        self.participant.wait(deadline, has_ended).await;
        self.task(&negotiation).await
    }

    fn list(&self, wanted: &ListTasksRequest) -> Result<ListTasksResponse, TaskFault> {
        check_common(wanted.tenant.as_deref(), wanted.history_length)?;
        let page_size = wanted.page_size.unwrap_or(PAGE);
        if !(1..=PAGE_MAX).contains(&page_size) {
            return Err(invalid("pageSize", &format!("1 to {PAGE_MAX} is expected")).into());
        }
        let memory = self.participant.memory();
        let filters = json!([wanted.context_id, wanted.status, wanted.status_timestamp_after]).to_string();
        let token = |(n, id): (u64, &str)| format!("{n}.{:016x}.{id}", self.pages.hash_one((n, id, &filters)));
        let place = |given: &str| {
            let (n, id) = (given.split('.').next()?.parse().ok()?, given.splitn(3, '.').nth(2)?);
            (token((n, id)) == given).then(|| (n, id.to_owned()))
        };
        let before = match wanted.page_token.as_deref().filter(|token| !token.is_empty()).map(place) {
            None => (u64::MAX, String::new()),
            Some(None) => return Err(invalid("pageToken", "one that this list has given out is expected").into()),
            Some(Some(place)) => place,
        };
        // One pass over all that was heard, however many tasks there are.
        let heard = memory.heard_by_negotiation();
        let read = |negotiation: &NegotiationId| {
            let heard = heard.get(negotiation).map_or(&[][..], Vec::as_slice);
            task::task(&answer::negotiation(&memory, (negotiation, heard), (None, 0), |_| true)).map_err(unreadable)
        };
        let is_in = |id: &str| wanted.context_id.as_deref().is_none_or(|wanted| wanted == context(id));
        let mut called: Vec<_> = memory.called().filter(|(_, negotiation)| is_in(negotiation.as_str())).collect();
        let status = wanted.status.as_ref().filter(|status| **status != TaskState::Unspecified);
        if status.is_some() || wanted.status_timestamp_after.is_some() {
            let is_meant = |task: &Task| {
                let is_later = wanted.status_timestamp_after.is_none_or(|after| task.status.timestamp >= Some(after));
                is_later && status.is_none_or(|status| *status == task.status.state)
            };
            called.retain(|(_, negotiation)| read(negotiation).is_ok_and(|task| is_meant(&task)));
        }
        called.sort_unstable_by_key(|(n, negotiation)| Reverse((*n, negotiation.as_str())));
        let total_size = i32::try_from(called.len()).unwrap_or(i32::MAX);
        called.retain(|(n, negotiation)| (*n, negotiation.as_str()) < (before.0, before.1.as_str()));
        let page = usize::try_from(page_size).unwrap_or_default();
        let last = called.get(page - 1).filter(|_| called.len() > page);
        let next_page_token = last.map(|(n, negotiation)| token((*n, negotiation.as_str()))).unwrap_or_default();
        let tasks = called.iter().take(page).map(|(_, negotiation)| {
            let mut task = read(negotiation)?;
            task.artifacts.take_if(|_| wanted.include_artifacts != Some(true));
            Ok(task)
        });
        let tasks = tasks.collect::<Result<_, TaskFault>>()?;
        Ok(ListTasksResponse { tasks, next_page_token, page_size, total_size })
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, TaskFault> {
        Ok(self.participant.wait_place()?)
    }
}

impl ToolService {
    /// The negotiation of a task, if the agent called it.
    fn own(&self, task: &str) -> Result<NegotiationId, TaskFault> {
        let negotiation = NegotiationId::try_new(task).ok();
        let own = negotiation.filter(|negotiation| negotiation.initiator() == self.agent().as_str());
        own.ok_or_else(|| A2AError::task_not_found(task).into())
    }

    async fn task(&self, negotiation: &NegotiationId) -> Result<Task, TaskFault> {
        let told = self.looked_up(negotiation, 0, |_| true).await;
        let told = told.map_err(|fault| absent(fault, negotiation.as_str()))?;
        self.hand_on(negotiation);
        task::task(&told).map_err(unreadable)
    }

    /// Opens the negotiation that follows from agent, context and message, whichever process is asked.
    async fn call_by_task(&self, message: Incoming) -> Result<Begun, TaskFault> {
        let Content::Act(request) = message.content else { return Err(invalid("message.parts", "a call").into()) };
        if request.get("payload").is_none_or(|payload| payload["act"] != "cfp") {
            let fault = Refusal::new(Code::NotAllowed, "a message to no task is a call").at("/payload/act");
            return Err(fault.expecting("cfp").into());
        }
        let id = &message.message_id;
        let context = message.context_id.clone();
        let context =
            context.unwrap_or_else(|| format!("c{}", digits(&json!(["context", self.agent(), id]), CONTEXT_CHARS)));
        let own = format!("{context}-{}", digits(&json!([self.agent(), context, id]), TASK_CHARS));
        let unfit = |_| invalid("message.contextId", "a shorter one is expected");
        let negotiation = NegotiationId::form(self.agent(), &own).map_err(unfit)?;
        match self.pass(negotiation.clone(), name(id)?, request).await {
            Ok(()) => {
                self.participant.memory().calls(&negotiation);
                Ok(Begun::Taken(negotiation.to_string()))
            }
            Err(fault @ ToolFault::NotFollowed { .. }) => {
                Ok(Begun::Answered(Box::new(task::rejected(&negotiation, &fault).map_err(unreadable)?)))
            }
            Err(ToolFault::Refused(refusal)) => Err(refusal.into()),
        }
    }

    async fn act_in_task(&self, task: &str, message: Incoming) -> Result<Begun, TaskFault> {
        let negotiation = self.own(task)?;
        if message.context_id.as_deref().is_some_and(|named| named != context(task)) {
            return Err(invalid("message.contextId", "the one of the task is expected").into());
        }
        let told = self.looked_up(&negotiation, 0, |_| true).await.map_err(|fault| absent(fault, task))?;
        let id = name(&message.message_id)?;
        let is_repeat = self.participant.memory().receipt(&negotiation, &id).is_some();
        if told["outcome"].is_string() && !is_repeat {
            return Err(A2AError::unsupported_operation("the task has ended").into());
        }
        let request = match message.content {
            Content::Act(request) => request,
            // What was said before the floor moved on.
            Content::Text(_) if is_repeat => return Ok(Begun::Taken(task.to_owned())),
            Content::Text(text) => self.said(&negotiation, text, &told)?,
        };
        let act = request.get("payload").and_then(|payload| payload["act"].as_str()).unwrap_or_default();
        let view = &told["view"];
        let is_contract_net = ["bargain", "team", "panel"].iter().all(|kind| view[*kind].is_null());
        if act == "cfp" || (is_contract_net && !INITIATOR_ACTS.contains(&act)) {
            let fault = Refusal::new(Code::NotAllowed, "it is no act of who called").at("/payload/act");
            return Err(fault.expecting(INITIATOR_ACTS.join(", ")).into());
        }
        match self.pass(negotiation.clone(), id, request).await {
            Ok(()) => Ok(Begun::Taken(task.to_owned())),
            Err(fault @ ToolFault::NotFollowed { .. }) => {
                let mut task = self.task(&negotiation).await?;
                task.status.message.iter_mut().for_each(|message| message.parts.push(Part::data(fault.to_value())));
                Ok(Begun::Answered(Box::new(task)))
            }
            Err(ToolFault::Refused(refusal)) => Err(refusal.into()),
        }
    }

    /// A text alone: what is said by who has a team's floor.
    fn said(&self, negotiation: &NegotiationId, text: String, told: &Value) -> Result<Arguments, TaskFault> {
        let memory = self.participant.memory();
        let turn = memory.known(negotiation).and_then(|known| known.asked.get("say")?.turn);
        if memory.asks_for(negotiation, "say").is_none() {
            let tools = told["todo"][0]["tools"].as_array().cloned().unwrap_or_default();
            return Err(
                invalid("message.parts", &format!("a data part; acts that are asked for: {}", json!(tools))).into()
            );
        }
        Ok(Arguments::from_iter([("payload".to_owned(), json!({"act": "say", "text": text, "turn": turn}))]))
    }

    /// Sends a request of the client's as a message, within the limits of the bridge.
    async fn pass(&self, negotiation: NegotiationId, id: MsgId, request: Arguments) -> Result<(), ToolFault> {
        let payload = request.get("payload").cloned().unwrap_or_default();
        let message = {
            let memory = self.participant.memory();
            let known = memory.known(&negotiation);
            message::request(self.agent(), (negotiation.clone(), id), request, known, &self.limits)?
        };
        let tool = serde_json::from_value(payload["act"].clone()).ok().and_then(tool_of).unwrap_or_default();
        // Before it leaves: an award may come before the receipt.
        if tool == "offer" {
            let terms = serde_json::from_value(payload["terms"].clone()).ok();
            self.participant.memory().offers(&negotiation, terms);
        }
        self.participant.send(tool, message).await.map(drop)
    }
}

/// The id of a message of the exchange for one of the client's.
fn name(message_id: &str) -> Result<MsgId, TaskFault> {
    let derived = || MsgId::try_new(&format!("m-{}", digits(&json!(message_id), DERIVED_ID_CHARS)));
    let own = MsgId::try_new(message_id).ok().filter(|_| message_id != CANCEL);
    let id = own.map_or_else(derived, Ok);
    id.map_err(|_| invalid("message.messageId", "another one is expected").into())
}

fn absent(fault: ToolFault, task: &str) -> TaskFault {
    let is_absent = matches!(&fault, ToolFault::Refused(refusal) if refusal.code == Code::NotFound);
    if is_absent { A2AError::task_not_found(task).into() } else { fault.into() }
}

fn unreadable(error: serde_json::Error) -> TaskFault {
    tracing::error!(%error, "a negotiation is no task");
    A2AError::internal("the task cannot be told").into()
}
