//! Everything that is open: chats, sockets, turns and tasks that wait for a client. Shared by the agents' loops, which tell it what
//! they hear, and by the sockets. Each call takes one lock for a short time; nothing in here waits.

mod client;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agents::ActRefusal;
use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent};
use agents::team::TeamMove;
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification};
use schemas::ids::FamilyPlace;
use schemas::policy::TIMER_MS_MAX;
use schemas::team::TeamRules;
use schemas::{Act, AgentId, Code, MsgId, NegotiationId, Refusal};
use serde::Deserialize;
use strum::VariantArray as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use self::client::HubClient;
use crate::chat::{AcceptedFrame, Audience, Chat, SentAct, ToldFrame};
use crate::names::NameBook;
use crate::wire::{ChatFrame, ChatRecord, ClientInfo, FormedTeam, FrameFault};

/// Chats that are open at a time; a call to a further team is declined, and a wish for one refused.
pub const CHATS_OPEN_MAX: usize = 256;
/// Chats of teams that one agent has called: who opens as many as it can leaves room for others.
pub const CHATS_OF_LEAD_MAX: usize = 64;
/// Chats of teams that others than registered clients have called, all together: clients that register find room.
pub const CHATS_OF_STRANGERS_MAX: usize = 128;
/// How long a client may be without a socket that had one, and still be called to teams. The published client opens another after
/// seconds, without registering again.
pub const ABSENCE_MAX: Duration = Duration::from_secs(60);
/// Chats that have ended whose record is kept.
pub const RECORDS_MAX: usize = 256;
/// Frames that wait for one socket. A client that reads none of so many has its socket closed.
pub const FRAMES_WAITING_MAX: usize = 256;
/// Acts whose receipts are awaited: one for each agent and chat, with room.
const ACTS_MAX: usize = 4096;
/// How long a chat stays open after the hard end of its team: time for its call to reach the exchange, and for its end to come
/// from there.
const LATENESS_MAX: Duration = Duration::from_secs(60);

/// What may become of an act of a client of which no NOT_UNDERSTOOD says why.
const UNEXPLAINED: [Disposition; 2] = [Disposition::StaleRound, Disposition::RateLimited];

/// See the module.
pub struct Hub {
    names: Arc<NameBook>,
    state: Mutex<HubState>,
}

#[derive(Default)]
struct HubState {
    infos: BTreeMap<AgentId, ClientInfo>,
    sockets: BTreeMap<AgentId, (u64, mpsc::Sender<String>)>,
    last_socket: u64,
    /// Since when clients are without a socket that had one.
    absent: BTreeMap<AgentId, Instant>,
    open: BTreeMap<NegotiationId, OpenChat>,
    teams_by_comm_id: BTreeMap<String, NegotiationId>,
    records: VecDeque<ChatRecord>,
    /// The latest act of each agent in each chat.
    acts: BTreeMap<(AgentId, NegotiationId), SentAct>,
    dropped: BTreeMap<FrameFault, u64>,
}

struct OpenChat {
    chat: Chat,
    /// The owner's agents that may still hear of the team, each with the message by which it joined. Without one the chat ends.
    parts: BTreeMap<AgentId, Option<MsgId>>,
    /// When it ends whatever was heard.
    ends_at: Instant,
    /// Turns that wait for a client's frame.
    turns: BTreeMap<AgentId, WaitingTurn>,
    /// Tasks that wait for a client's result.
    works: BTreeMap<u32, oneshot::Sender<String>>,
    /// Whoever waits for the team to form.
    forming: Option<oneshot::Sender<Result<FormedTeam, Refusal>>>,
}

/// A turn of a client.
enum WaitingTurn {
    /// The exchange has said whose turn it is, and the client has not spoken.
    Asked(oneshot::Sender<TeamMove>),
    /// The other way round.
    Spoken(TeamMove),
}

impl Hub {
    /// Without clients.
    pub fn new(names: Arc<NameBook>) -> Self {
        Self { names, state: Mutex::default() }
    }

    /// The owner's names.
    pub fn names(&self) -> &Arc<NameBook> {
        &self.names
    }

    /// Keeps what a client says of itself.
    pub fn note_info(&self, agent: &AgentId, info: ClientInfo) {
        self.state.lock().infos.insert(agent.clone(), info);
    }

    /// What a registered client says of itself.
    pub fn info(&self, agent: &AgentId) -> Option<ClientInfo> {
        self.state.lock().infos.get(agent).cloned()
    }

    /// What every registered client says of itself, by agent.
    pub fn infos(&self) -> Vec<ClientInfo> {
        self.state.lock().infos.values().cloned().collect()
    }

    /// Frames that were dropped, by why.
    pub fn dropped(&self) -> BTreeMap<&'static str, u64> {
        let state = self.state.lock();
        let count = |fault: &FrameFault| state.dropped.get(fault).copied().unwrap_or_default();
        FrameFault::VARIANTS.iter().map(|fault| (fault.into(), count(fault))).collect()
    }

    /// What was said, in one chat or in all.
    pub fn records(&self) -> Vec<ChatRecord> {
        let state = self.state.lock();
        state.records.iter().cloned().chain(state.open.values().map(|open| open.chat.record())).collect()
    }

    /// Opens a socket of an agent, in the place of one before. Returns its number and what is sent to it.
    pub fn connect(&self, agent: &AgentId) -> (u64, mpsc::Receiver<String>) {
        let (sender, frames) = mpsc::channel(FRAMES_WAITING_MAX);
        let mut state = self.state.lock();
        state.last_socket += 1;
        let number = state.last_socket;
        state.absent.remove(agent);
        state.sockets.insert(agent.clone(), (number, sender));
        (number, frames)
    }

    /// A socket has ended.
    pub fn disconnect(&self, agent: &AgentId, number: u64) {
        let mut state = self.state.lock();
        // One that was read too slowly is no more among them.
        if state.sockets.get(agent).is_none_or(|(open, _)| *open == number) {
            state.sockets.remove(agent);
            state.absent.insert(agent.clone(), Instant::now());
        }
    }

    /// Makes room for a team that a client is about to call at the time `at`. What comes of it is sent to the returned end.
    ///
    /// # Errors
    /// `overloaded` where too many chats are open.
    pub fn open(
        &self,
        (team, lead, rules): (NegotiationId, AgentId, TeamRules),
        team_name: Option<String>,
        at: Instant,
    ) -> Result<oneshot::Receiver<Result<FormedTeam, Refusal>>, Refusal> {
        let mut state = self.state.lock();
        state.sweep(at);
        if let Some(why) = state.fullness(team.initiator()) {
            return Err(Refusal::new(Code::Overloaded, why));
        }
        let ends_at = latest_end(at, rules.ends_within_ms);
        let rules = (team.clone(), lead.clone(), rules);
        let chat = Chat::new(rules, None, Arc::clone(&self.names), state.infos.clone()).named(team_name);
        let (sender, formed) = oneshot::channel();
        state.insert(team, OpenChat { forming: Some(sender), ..OpenChat::new(lead, chat, ends_at) });
        Ok(formed)
    }

    /// An agent has ended: it hears nothing more of any team.
    pub fn handle_gone(&self, agent: &AgentId) {
        let mut state = self.state.lock();
        let parts = state.open.iter().filter(|(_, open)| open.parts.contains_key(agent));
        let teams: Vec<NegotiationId> = parts.map(|(team, _)| team.clone()).collect();
        teams.iter().for_each(|team| state.leave(agent, team));
    }

    /// Takes a frame of the client that plays `agent`.
    ///
    /// # Errors
    /// [`FrameFault`]: it is dropped and counted.
    pub fn handle_text(&self, agent: &AgentId, text: &str) -> Result<(), FrameFault> {
        let mut state = self.state.lock();
        let taken = ChatFrame::read(text).and_then(|(kind, frame)| {
            let team = state.teams_by_comm_id.get(&frame.comm_id).cloned().ok_or(FrameFault::Chat)?;
            let open = state.open.get_mut(&team).ok_or(FrameFault::Chat)?;
            let notice = open.chat.notice_of_cut(agent, kind, &frame);
            match open.chat.accept(agent, kind, frame)? {
                AcceptedFrame::Move(next) => open.handle_move(agent, next),
                AcceptedFrame::Result { task, text } => {
                    // Nobody waits for it before the task has begun, or after its time.
                    let _ = open.works.remove(&task).map(|work| work.send(text));
                }
                AcceptedFrame::Relayed(told) => state.send(&team, told),
            }
            state.send(&team, notice);
            Ok(())
        });
        if let Err(fault) = taken {
            *state.dropped.entry(fault).or_default() += 1;
        }
        taken
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle_delivery(&self, agent: &AgentId, at: Instant, delivery: &Delivery) {
        let team = &delivery.envelope.negotiation;
        let mut state = self.state.lock();
        state.sweep(at);
        let told = match &delivery.payload {
            Notification::Cfp(call) => {
                let Some(called) = &call.team else { return };
                let ends_at = latest_end(at, call.ends_by.0.since_us(delivery.envelope.ts.0) / 1000);
                if state.why_declined(agent, team, at).is_some() {
                    return;
                }
                if let Some(open) = state.open.get_mut(team) {
                    open.parts.entry(agent.clone()).or_default();
                } else {
                    let rules = (team.clone(), called.lead.clone(), called.rules.clone());
                    let chat = Chat::new(rules, call.task.clone(), Arc::clone(&self.names), state.infos.clone());
                    state.insert(team.clone(), OpenChat::new(agent.clone(), chat, ends_at));
                }
                return;
            }
            Notification::Floor(floor) => state.with_chat(team, |chat| chat.handle_floor(floor)),
            Notification::Ack(receipt) => {
                let said = receipt.first.unwrap_or(receipt.disposition);
                let joined = state.open.get(team).and_then(|open| open.parts.get(agent)?.as_ref());
                if said != Disposition::Ok && joined == Some(&receipt.ack_of) {
                    return state.leave(agent, team);
                }
                let act = state.acts.remove(&(agent.clone(), team.clone()));
                let is_lead = team.initiator() == agent.as_str() && team.place() == FamilyPlace::Root;
                if said != Disposition::Ok && is_lead && act.is_none() {
                    state.fail_forming(team, Refusal::new(Code::NotAllowed, format!("the call is {}", said.as_str())));
                }
                if act.is_some() && UNEXPLAINED.contains(&said) {
                    return state.refuse(agent, team, said.as_str());
                }
                state.with_chat(team, |chat| chat.handle_own(agent, act.as_ref(), receipt))
            }
            Notification::Closed(closing) => {
                let told = state.with_chat(team, |chat| chat.handle_closed(Some(closing)));
                let why = format!("the team has ended: {}", closing.outcome.as_str());
                state.fail_forming(team, Refusal::new(Code::NoRecipient, why));
                state.send(team, told);
                state.close(team);
                return;
            }
            // It joined and got no seat: it hears nothing more.
            Notification::Reject(_) => return state.leave(agent, team),
            Notification::NotUnderstood(why) => return state.refuse(agent, team, &ActRefusal::from(why).to_string()),
            _ => return,
        };
        state.send(team, told);
        state.tell_formed(team);
    }

    fn handle_transmitted(&self, agent: &AgentId, team: &NegotiationId, (msg_id, act): (&MsgId, Act), document: &[u8]) {
        #[derive(Deserialize)]
        struct SentDocument {
            payload: SentAct,
        }
        let mut state = self.state.lock();
        let Some(joined) = state.open.get_mut(team).and_then(|open| open.parts.get_mut(agent)) else { return };
        if act == Act::Join {
            *joined = Some(msg_id.clone());
        }
        let Ok(SentDocument { payload }) = serde_json::from_slice(document) else { return };
        if state.acts.len() < ACTS_MAX {
            state.acts.insert((agent.clone(), team.clone()), payload);
        }
    }

    fn handle_settled(&self, agent: &AgentId, sent: &Sent) {
        let (mut state, team) = (self.state.lock(), &sent.negotiation);
        match (&sent.outcome, sent.act) {
            (SendOutcome::Refused(_), Act::Join) => state.leave(agent, team),
            (SendOutcome::Refused(refusal), Act::Cfp) => state.fail_forming(team, refusal.clone()),
            (SendOutcome::Unanswered, Act::Cfp) => {
                state.fail_forming(team, Refusal::new(Code::Unavailable, "the exchange does not answer"));
            }
            // Of what there was no room for the agent itself makes another.
            (SendOutcome::Refused(refusal), _) if refusal.code != Code::Overloaded => {
                let why = format!("{}: {}", ActRefusal::from(refusal), refusal.detail);
                state.refuse(agent, team, &why);
            }
            (SendOutcome::Accepted { .. } | SendOutcome::Refused(_) | SendOutcome::Unanswered, _) => {}
        }
    }
}

impl HubState {
    fn insert(&mut self, team: NegotiationId, open: OpenChat) {
        self.teams_by_comm_id.insert(open.chat.comm_id().to_owned(), team.clone());
        self.open.insert(team, open);
    }

    /// Which limit leaves no room for a further chat of a team that `lead` calls.
    fn fullness(&self, lead: &str) -> Option<String> {
        let is_stranger = |lead: &str| !self.infos.contains_key(lead);
        let count = |is_of: &dyn Fn(&str) -> bool| self.open.keys().filter(|team| is_of(team.initiator())).count();
        let limits = [
            (self.open.len(), CHATS_OPEN_MAX, "in all"),
            (count(&|other| other == lead), CHATS_OF_LEAD_MAX, "of one lead"),
            (count(&|other| is_stranger(lead) && is_stranger(other)), CHATS_OF_STRANGERS_MAX, "of unregistered leads"),
        ];
        let reached = limits.into_iter().find(|(open, max, _)| open >= max);
        reached.map(|(_, max, whose)| format!("{max} teams {whose} are open: no further one may be"))
    }

    /// Why an agent does not go into a team that it is called to.
    fn why_declined(&self, agent: &AgentId, team: &NegotiationId, now: Instant) -> Option<String> {
        let is_absent = |since: &Instant| now.saturating_duration_since(*since) > ABSENCE_MAX;
        if self.absent.get(agent).is_some_and(is_absent) {
            return Some(format!("its client is gone for more than {} s", ABSENCE_MAX.as_secs()));
        }
        if self.open.contains_key(team) { None } else { self.fullness(team.initiator()) }
    }

    /// An act of an agent has changed nothing: its client is told why.
    fn refuse(&mut self, agent: &AgentId, team: &NegotiationId, why: &str) {
        self.acts.remove(&(agent.clone(), team.clone()));
        let told = self.with_chat(team, |chat| chat.handle_refused(agent, why));
        self.send(team, told);
    }

    /// An agent hears nothing more of a team. Its chat ends where no other of the owner's agents does.
    fn leave(&mut self, agent: &AgentId, team: &NegotiationId) {
        let Some(open) = self.open.get_mut(team) else { return };
        open.parts.remove(agent);
        if open.parts.is_empty() {
            self.close(team);
        }
    }

    /// Ends the chats of teams that must have ended by `now`, whatever was heard of them.
    fn sweep(&mut self, now: Instant) {
        let is_over = |(team, open): (&NegotiationId, &OpenChat)| (open.ends_at < now).then(|| team.clone());
        let over: Vec<NegotiationId> = self.open.iter().filter_map(is_over).collect();
        for team in over {
            tracing::debug!(%team, "nothing was heard of the end of a team");
            let told =
                self.with_chat(&team, |chat| if chat.has_formed() { chat.handle_closed(None) } else { Vec::new() });
            self.send(&team, told);
            self.fail_forming(&team, Refusal::new(Code::Unavailable, "nothing was heard of the team"));
            self.close(&team);
        }
    }

    fn with_chat(&mut self, team: &NegotiationId, tell: impl FnOnce(&mut Chat) -> Vec<ToldFrame>) -> Vec<ToldFrame> {
        self.open.get_mut(team).map(|open| tell(&mut open.chat)).unwrap_or_default()
    }

    fn send(&mut self, team: &NegotiationId, told: Vec<ToldFrame>) {
        let Some(open) = self.open.get(team) else { return };
        for ToldFrame { audience, frame } in told {
            let text = frame.write();
            let audience = match &audience {
                Audience::All => open.chat.members(),
                Audience::Only(agent) => std::slice::from_ref(agent),
            };
            for agent in audience {
                let is_stuck = |(_, socket): &(u64, mpsc::Sender<String>)| socket.try_send(text.clone()).is_err();
                // A socket that takes no more, or has ended, is closed by what it waits for being gone.
                if self.sockets.get(agent).is_some_and(is_stuck) {
                    tracing::debug!(%agent, "a client reads too slowly, or is gone");
                    self.sockets.remove(agent);
                }
            }
        }
    }

    fn tell_formed(&mut self, team: &NegotiationId) {
        let Some(open) = self.open.get_mut(team).filter(|open| open.chat.has_formed()) else { return };
        let Some(forming) = open.forming.take() else { return };
        let ChatRecord { comm_id, agent_names, team_name, .. } = open.chat.record();
        // Whoever waited may have gone.
        let _ = forming.send(Ok(FormedTeam { comm_id, agent_names, team_name }));
    }

    fn fail_forming(&mut self, team: &NegotiationId, refusal: Refusal) {
        if let Some(forming) = self.open.get_mut(team).and_then(|open| open.forming.take()) {
            let _ = forming.send(Err(refusal));
            self.close(team);
        }
    }

    fn close(&mut self, team: &NegotiationId) {
        let Some(open) = self.open.remove(team) else { return };
        self.teams_by_comm_id.remove(open.chat.comm_id());
        self.acts.retain(|(_, of), _| of != team);
        if open.chat.has_formed() {
            if self.records.len() == RECORDS_MAX {
                self.records.pop_front();
            }
            self.records.push_back(open.chat.record());
        }
    }
}

/// When the chat of a team ends of whose end nothing was heard. A team lasts [`TIMER_MS_MAX`] at most.
fn latest_end(at: Instant, ends_within_ms: u64) -> Instant {
    at + Duration::from_millis(ends_within_ms.min(TIMER_MS_MAX)) + LATENESS_MAX
}

impl OpenChat {
    /// `agent` is the one of the owner's that leads the team or is called to it.
    fn new(agent: AgentId, chat: Chat, ends_at: Instant) -> Self {
        let parts = BTreeMap::from([(agent, None)]);
        Self { chat, parts, ends_at, turns: BTreeMap::new(), works: BTreeMap::new(), forming: None }
    }

    fn handle_move(&mut self, agent: &AgentId, next: TeamMove) {
        match self.turns.remove(agent) {
            Some(WaitingTurn::Asked(turn)) => {
                // A turn that is over is not waited for any more.
                let _ = turn.send(next);
            }
            Some(WaitingTurn::Spoken(_)) | None => {
                self.turns.insert(agent.clone(), WaitingTurn::Spoken(next));
            }
        }
    }
}

impl Observer for Hub {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest changes no chat")]
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        match event {
            Observed::Delivered { delivery, is_repeat: false } => self.handle_delivery(agent, at, delivery),
            Observed::Transmitted { negotiation, msg_id, act, attempt: 1, document } => {
                self.handle_transmitted(agent, negotiation, (msg_id, act), document);
            }
            Observed::Settled { sent, .. } => self.handle_settled(agent, sent),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
