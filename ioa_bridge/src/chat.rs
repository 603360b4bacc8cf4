//! One team, as its clients are told it: what a client's frame is to the exchange, and which frames tell a step. Pure.
//!
//! Steps of a team reach the bridge once for each of its members that clients play, in whatever order. They are told once each, in
//! the order of their numbers, to all clients of the team, the sender of the frame too.
//!
//! | a step | frame |
//! |---|---|
//! | a say | type 4, `next_speaker` the one that holds the floor |
//! | an assignment by a client | its frame, of type 5 or 6 |
//! | a task of another member begins, after an asynchronous assignment | type 8 in its name |
//! | a task ends | the owner's frame of type 7, or one in its name |
//! | a pause | type 9 |
//! | a turn has lapsed, and a client holds the floor | type 4 to that client alone |
//! | a client's act was refused, or its text is cut | the same |
//! | the end | type 11 |

mod accepting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use agents::team::TeamMove;
use schemas::delivery::{Closing, Receipt};
use schemas::payload::TEXT_LEN_MAX;
use schemas::team::{
    Assign, AssignedTask, Conclude, Floor, Pause, Say, Spoken, TaskMode, TaskStatus, TeamRules, TeamState, TeamTask,
};
use schemas::{AgentId, Digest, NegotiationId};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

pub use self::accepting::AcceptedFrame;
use crate::names::{EXCHANGE_NAME, NameBook};
use crate::wire::{ChatFrame, ChatRecord, ClientInfo, FrameKind, OneOrMany, STATE_DISCUSSION, cut};

/// Steps that wait for one before them: as many as a team has messages in flight, with room.
const STEPS_WAITING_MAX: usize = 256;
/// Latest frames of a chat that are kept.
const RECORD_LEN_MAX: usize = 512;
/// Bytes of the frames that are kept of a chat, as they are written. 200 turns of 2 KiB find room; with every chat open and every
/// record kept the bridge holds 256 MiB of them at most.
const RECORD_BYTES_MAX: usize = 512 * 1024;
/// Hexadecimal digits of the name of a chat, and of a task that no client owns.
const ID_DIGITS: usize = 32;
const YOUR_TURN: &str = "Nobody has spoken in time. It is your turn.";
const CONCLUDE_NOW: &str = "The discussion is over. Conclude it now.";
const SPEAK_AGAIN: &str = "It is your turn again.";
/// Begins what an agent says, in place of passing, to keep the floor for its client whose act was refused. The turn follows, so
/// that it repeats nothing. Clients are not told.
pub const REFUSED: &str = "refused, turn ";
/// Why an act is refused of a team that only concludes: the agent asks its client again.
const MUST_CONCLUDE: &str = "must_conclude";

/// Who is sent a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Every client in the team.
    All,
    /// One.
    Only(AgentId),
}

/// A frame to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ToldFrame {
    /// To whom.
    pub audience: Audience,
    /// The frame.
    pub frame: ChatFrame,
}

/// An act of a member that holds the floor, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum SentAct {
    /// A word.
    Say(Say),
    /// Tasks.
    Assign(Assign),
    /// Waiting.
    Pause(Pause),
    /// A conclusion.
    Conclude(Conclude),
}

/// What somebody has done in a step.
#[derive(Debug, Clone, PartialEq)]
enum Deed {
    /// Nobody: a timer, a task.
    Nothing,
    Said(String),
    Assigned(TaskMode),
    /// With words, where there are any.
    Paused(Option<String>),
    Proposed(String),
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
struct StepNews {
    by: Option<AgentId>,
    deed: Deed,
    speaker: Option<AgentId>,
    is_concluding: bool,
    tasks: Vec<TeamTask>,
    /// What is waited for; of an own pause also what has ended before.
    waits: Vec<u32>,
    members: Vec<AgentId>,
    muted: Vec<AgentId>,
}

/// A task of the team.
#[derive(Debug, Clone, Default)]
struct ChatTask {
    owner: Option<AgentId>,
    assigner: Option<AgentId>,
    title: String,
    text: String,
    is_async: bool,
    /// The id that its owner has made.
    task_id: Option<String>,
    /// What its owner has sent as result.
    result: Option<ChatFrame>,
    is_over: bool,
    /// Whether its owner was told of it by the frame of a client.
    is_announced: bool,
}

/// See the module.
#[derive(Default)]
pub struct Chat {
    comm_id: String,
    team: String,
    team_name: Option<String>,
    rules: TeamRules,
    names: Arc<NameBook>,
    infos: BTreeMap<AgentId, ClientInfo>,
    /// Goal, members and what else each frame repeats.
    template: ChatFrame,
    members: Vec<AgentId>,
    muted: BTreeSet<AgentId>,
    next_step: u32,
    waiting: BTreeMap<u32, StepNews>,
    floor: Option<AgentId>,
    is_concluding: bool,
    /// What clients have sent, until it is told.
    frames: BTreeMap<AgentId, (FrameKind, ChatFrame)>,
    /// Whether whoever holds the floor has announced a conclusion.
    has_announced: bool,
    tasks: BTreeMap<u32, ChatTask>,
    said: BTreeMap<u32, String>,
    /// The latest frames as they are written: their size is known, and that of what is read from them is not.
    record: VecDeque<Box<RawValue>>,
    record_bytes: usize,
}

impl Chat {
    /// A team with a goal under a lead. `infos` is what is known of its members.
    pub fn new(
        (team, lead, rules): (NegotiationId, AgentId, TeamRules),
        goal: Option<String>,
        names: Arc<NameBook>,
        infos: BTreeMap<AgentId, ClientInfo>,
    ) -> Self {
        let comm_id = digits(&[team.as_str()]);
        Self {
            template: ChatFrame { goal, comm_id: comm_id.clone(), state: STATE_DISCUSSION, ..ChatFrame::default() },
            comm_id,
            team: team.as_str().to_owned(),
            rules,
            names,
            infos,
            members: vec![lead],
            next_step: 1,
            ..Self::default()
        }
    }

    /// The same, with the name that a client gave it.
    pub fn named(self, team_name: Option<String>) -> Self {
        Self { team_name, ..self }
    }

    /// Its name among clients: 32 hexadecimal digits.
    pub fn comm_id(&self) -> &str {
        &self.comm_id
    }

    /// Whether the team has formed, as far as was told.
    pub fn has_formed(&self) -> bool {
        self.next_step > 1
    }

    /// The members in the order of their seats.
    pub fn members(&self) -> &[AgentId] {
        &self.members
    }

    /// What was said so far.
    pub fn record(&self) -> ChatRecord {
        ChatRecord {
            comm_id: self.comm_id.clone(),
            agent_names: self.member_names(),
            team_name: self.team_name.clone(),
            chat_record: self.record.iter().cloned().collect(),
        }
    }

    /// The names of the members, the lead last, as the published code lists them.
    pub fn member_names(&self) -> Vec<String> {
        let (lead, others) = self.members.split_first().map_or((None, &[] as &[_]), |(lead, rest)| (Some(lead), rest));
        others.iter().chain(lead).map(|agent| self.names.name(agent)).collect()
    }

    /// Takes what one of the owner's agents was told.
    pub fn handle_floor(&mut self, floor: &Floor) -> Vec<ToldFrame> {
        let has_opened = floor.tasks.iter().any(|task| task.status == TaskStatus::Open);
        let mode = if floor.state == TeamState::Awaiting { TaskMode::Sync } else { TaskMode::Async };
        // With no turn left the team also waits behind a say.
        let is_pause = floor.state == TeamState::Paused && floor.turns_left > 0;
        let deed = match (&floor.by, &floor.said, &floor.conclusion) {
            (Some(_), Some(Spoken::Text { text }), _) if is_pause => Deed::Paused(Some(text.clone())),
            (Some(_), Some(Spoken::Text { text }), _) => Deed::Said(text.clone()),
            (Some(_), Some(Spoken::Repeats { repeats }), _) => {
                Deed::Said(self.said.get(repeats).cloned().unwrap_or_else(|| format!("(as in step {repeats})")))
            }
            (Some(_), None, Some(proposed)) => Deed::Proposed(proposed.text.clone()),
            (Some(_), None, None) if has_opened => Deed::Assigned(mode),
            (Some(_), None, None) if floor.state == TeamState::Paused => Deed::Paused(None),
            (Some(_), None, None) | (None, _, _) => Deed::Nothing,
        };
        let Floor { by, speaker, tasks, waits, members, muted, .. } = floor.clone();
        let is_concluding = floor.state == TeamState::Concluding;
        self.handle_step(floor.step, StepNews { by, deed, speaker, is_concluding, tasks, waits, members, muted })
    }

    /// Takes the receipt of an act of one of the owner's agents: no other notice tells it that step.
    pub fn handle_own(&mut self, agent: &AgentId, act: Option<&SentAct>, receipt: &Receipt) -> Vec<ToldFrame> {
        let is_end = matches!(act, Some(SentAct::Conclude(_))) && self.rules.vote.is_none();
        // That the team has ended is told by its end.
        let Some(step) = receipt.step.filter(|_| !is_end) else { return Vec::new() };
        let (deed, next, tasks) = match act {
            Some(SentAct::Say(say)) => {
                let next = say.next.clone().or_else(|| self.next_seat(agent));
                (Deed::Said(say.text.clone()), next, Vec::new())
            }
            Some(SentAct::Assign(assign)) => {
                let numbered = receipt.tasks.iter().zip(&assign.tasks);
                let tasks = numbered.map(|(number, task)| opened(*number, task)).collect();
                let next = (assign.mode == TaskMode::Async).then(|| agent.clone());
                (Deed::Assigned(assign.mode), next, tasks)
            }
            // It holds the floor where all that it waits for has ended.
            Some(SentAct::Pause(pause)) => (Deed::Paused(pause.text.clone()), Some(agent.clone()), Vec::new()),
            Some(SentAct::Conclude(conclude)) => (Deed::Proposed(conclude.text.clone()), None, Vec::new()),
            // Who joins last forms the team; the lead begins.
            None => (Deed::Nothing, self.members.first().cloned(), Vec::new()),
        };
        let is_concluding = receipt.turn.is_some_and(|turn| turn > self.rules.turns);
        let speaker = if is_concluding { next.and(self.members.first().cloned()) } else { next };
        let waits = if let Some(SentAct::Pause(pause)) = act { pause.triggers.clone() } else { Vec::new() };
        let by = Some(agent.clone());
        let (members, muted) = (Vec::new(), Vec::new());
        self.handle_step(step, StepNews { by, deed, speaker, is_concluding, tasks, waits, members, muted })
    }

    /// Takes that an act of one of the owner's agents was refused. The client whose frame it was is told why, and has the floor
    /// again once that is told, or at once where only a conclusion is taken.
    pub fn handle_refused(&mut self, agent: &AgentId, why: &str) -> Vec<ToldFrame> {
        if self.frames.remove(agent).is_none() {
            return Vec::new();
        }
        self.is_concluding |= why.starts_with(MUST_CONCLUDE);
        self.floor = self.floor.take().filter(|_| self.is_concluding);
        vec![self.notice(agent, &format!("Your message was refused: {why}"), self.is_concluding)]
    }

    /// Takes the end of the team, or that it must have ended and nothing was heard of it. What waits for steps that never came is
    /// told first.
    pub fn handle_closed(&mut self, closing: Option<&Closing>) -> Vec<ToldFrame> {
        let mut told = Vec::new();
        while let Some((_, news)) = self.waiting.pop_first() {
            told.extend(self.tell(news));
        }
        let frame = match closing.and_then(|closing| closing.conclusion.as_ref()) {
            Some(conclusion) => self.sent(&conclusion.by, FrameKind::Conclusion, &conclusion.text),
            None => {
                let outcome = closing.map_or("nothing was heard of the end", |closing| closing.outcome.as_str());
                let detail = closing.and_then(|closing| closing.detail.as_deref());
                let detail = detail.map(|detail| format!(", {detail}")).unwrap_or_default();
                let content = format!("(no conclusion: {outcome}{detail})");
                ChatFrame { content, ..self.of_exchange(FrameKind::Conclusion) }
            }
        };
        told.push(self.tell_all(frame));
        told
    }

    /// A task of a client has begun. Whoever was not told by a client's assignment is told now.
    pub fn handle_work(&mut self, agent: &AgentId, number: u32, (title, text): (&str, &str)) -> Vec<ToldFrame> {
        let task = self.tasks.entry(number).or_default();
        task.owner = Some(agent.clone());
        task.text = text.to_owned();
        if task.is_announced {
            return Vec::new();
        }
        task.is_announced = true;
        let kind = if task.is_async { FrameKind::AsyncAssignment } else { FrameKind::SyncAssignment };
        let assigner = task.assigner.clone();
        let frame = match assigner {
            Some(assigner) => self.frame(kind, &assigner, &format!("{title}\n{text}")),
            None => ChatFrame { content: format!("{title}\n{text}"), ..self.of_exchange(kind) },
        };
        let frame = ChatFrame { next_speaker: OneOrMany::Many(vec![self.names.name(agent)]), ..frame };
        vec![ToldFrame { audience: Audience::Only(agent.clone()), frame }]
    }

    /// What was sent as result of a task that has now begun, if it came before.
    pub fn early_result(&self, number: u32) -> Option<String> {
        self.tasks.get(&number)?.result.as_ref().map(|frame| cut(result_text(frame), TEXT_LEN_MAX))
    }

    fn handle_step(&mut self, step: u32, news: StepNews) -> Vec<ToldFrame> {
        let has_room = self.waiting.len() < STEPS_WAITING_MAX || step == self.next_step;
        if step < self.next_step || self.waiting.contains_key(&step) || !has_room {
            return Vec::new();
        }
        self.waiting.insert(step, news);
        let mut told = Vec::new();
        while let Some(news) = self.waiting.remove(&self.next_step) {
            told.extend(self.tell(news));
            self.next_step += 1;
        }
        told
    }

    fn tell(&mut self, news: StepNews) -> Vec<ToldFrame> {
        let StepNews { by, deed, speaker, is_concluding, tasks, waits, members, muted } = news;
        if !members.is_empty() {
            self.members = members;
        }
        if !muted.is_empty() {
            self.muted = muted.into_iter().collect();
        }
        let is_own = by.as_ref().is_some_and(|by| self.names.is_own(by));
        let is_again = is_own && matches!(&deed, Deed::Said(text) if text.starts_with(REFUSED));
        let is_open = |number: &&u32| self.tasks.get(number).is_none_or(|task| !task.is_over);
        let waits: Vec<u32> = waits.iter().filter(is_open).copied().collect();
        let is_waiting = !waits.is_empty();
        let id = |number: &u32| self.tasks.get(number).and_then(|task| task.task_id.clone());
        let triggers: Vec<String> = waits.iter().filter_map(id).collect();
        let is_paused = |by: &AgentId| self.frames.get(by).is_some_and(|(kind, _)| *kind == FrameKind::Pause);
        // Whoever tells it first: a pause is one where something is waited for, and else words, or nothing.
        let (deed, speaker) = match deed {
            Deed::Said(_) if is_again => (Deed::Nothing, speaker),
            Deed::Said(text) if is_waiting && by.as_ref().is_some_and(is_paused) => (Deed::Paused(Some(text)), None),
            Deed::Paused(text) if is_waiting => (Deed::Paused(text), None),
            Deed::Paused(text) => (text.map_or(Deed::Nothing, Deed::Said), speaker),
            deed @ (Deed::Nothing | Deed::Said(_) | Deed::Assigned(_) | Deed::Proposed(_)) => (deed, speaker),
        };
        let mut told = Vec::new();
        let next = speaker.as_ref().map(|agent| OneOrMany::Many(vec![self.names.name(agent)])).unwrap_or_default();
        match (deed, &by) {
            (Deed::Said(text), Some(by)) => {
                let frame = self.sent(by, FrameKind::Discussion, &text);
                self.note_said(text);
                told.push(self.tell_all(ChatFrame { next_speaker: next, ..frame }));
            }
            (Deed::Assigned(mode), Some(by)) => told.extend(self.tell_assigned(by, mode, tasks.clone())),
            (Deed::Paused(text), Some(by)) => {
                let sent = self.frames.remove(by).filter(|(kind, _)| *kind == FrameKind::Pause);
                let words = text.unwrap_or_default();
                let frame = sent.map_or_else(|| self.frame(FrameKind::Pause, by, &words), |(_, frame)| frame);
                told.push(self.tell_all(ChatFrame { triggers, ..frame }));
            }
            (Deed::Proposed(text), Some(by)) => {
                let frame = self.frame(FrameKind::Discussion, by, &format!("I propose to conclude: {text}"));
                told.push(self.tell_all(frame));
            }
            (Deed::Nothing | Deed::Said(_) | Deed::Assigned(_) | Deed::Paused(_) | Deed::Proposed(_), _) => {
                let is_timer = tasks.is_empty() && self.next_step > 1;
                let own = speaker.as_ref().filter(|speaker| is_timer && self.names.is_own(speaker));
                let otherwise = if by.is_some() { SPEAK_AGAIN } else { YOUR_TURN };
                let content = if is_concluding { CONCLUDE_NOW } else { otherwise };
                told.extend(own.map(|agent| self.notice(agent, content, true)));
            }
        }
        for task in &tasks {
            told.extend(self.tell_ended(task));
        }
        // What the next holder of the floor has sent before it was told stays.
        self.frames.retain(|agent, _| by.as_ref() != Some(agent) && speaker.as_ref() == Some(agent));
        (self.floor, self.is_concluding, self.has_announced) = (speaker, is_concluding, false);
        told
    }

    fn tell_assigned(&mut self, by: &AgentId, mode: TaskMode, mut tasks: Vec<TeamTask>) -> Vec<ToldFrame> {
        let kinds = [FrameKind::SyncAssignment, FrameKind::AsyncAssignment];
        let sent = self.frames.remove(by).filter(|(kind, _)| kinds.contains(kind));
        // Whoever tells it first: of who is to own a task only its assigner is told, and an owner may report at once.
        if let Some(Ok(TeamMove::Assign(assign))) = sent.as_ref().map(|(kind, frame)| self.as_move(by, *kind, frame)) {
            tasks.iter_mut().zip(assign.tasks).for_each(|(task, assigned)| task.owner = assigned.owner);
        }
        let sent = sent.map(|(_, frame)| frame);
        for TeamTask { task, owner, title, .. } in &tasks {
            let known = self.tasks.entry(*task).or_default();
            known.owner = owner.clone().or(known.owner.take());
            known.assigner = Some(by.clone());
            known.title = title.clone().unwrap_or_default();
            known.is_async = mode == TaskMode::Async;
            if let Some(frame) = &sent {
                known.text.clone_from(&frame.content);
                known.is_announced = true;
            }
        }
        let mut told: Vec<ToldFrame> = sent.into_iter().map(|frame| self.tell_all(frame)).collect();
        for TeamTask { task, owner, .. } in &tasks {
            let other = owner.as_ref().filter(|owner| mode == TaskMode::Async && !self.names.is_own(owner));
            if let Some(owner) = other {
                let frame = self.about_task(FrameKind::TaskProgress, *task, owner, "I have begun.");
                let next_speaker = OneOrMany::One(self.names.name(by));
                told.push(self.tell_all(ChatFrame { next_speaker, ..frame }));
            }
        }
        told
    }

    fn tell_ended(&mut self, task: &TeamTask) -> Option<ToldFrame> {
        let text = match task.status {
            TaskStatus::Open | TaskStatus::Running => return None,
            TaskStatus::Done => task.result.clone().unwrap_or_default(),
            TaskStatus::Failed => format!("(failed: {})", task.code.as_deref().unwrap_or("no code")),
        };
        let known = self.tasks.entry(task.task).or_default();
        if known.is_over {
            return None;
        }
        known.is_over = true;
        let owner = task.owner.clone().or_else(|| known.owner.clone());
        known.owner.clone_from(&owner);
        let (sent, is_async, assigner) = (known.result.take(), known.is_async, known.assigner.clone());
        let sent = sent.filter(|_| task.status == TaskStatus::Done);
        let frame = sent.unwrap_or_else(|| {
            let by = owner.or(assigner.clone());
            let frame = match &by {
                Some(by) => self.about_task(FrameKind::TaskResult, task.task, by, &text),
                None => ChatFrame { content: text.clone(), ..self.of_exchange(FrameKind::TaskResult) },
            };
            let waits = assigner.filter(|_| !is_async).map(|assigner| OneOrMany::One(self.names.name(&assigner)));
            ChatFrame { next_speaker: waits.unwrap_or_default(), task_conclusion: text, ..frame }
        });
        Some(self.tell_all(frame))
    }

    /// Tells a client alone what no frame of another says; `is_next`: it holds the floor.
    fn notice(&self, agent: &AgentId, content: &str, is_next: bool) -> ToldFrame {
        let next = is_next.then(|| self.names.name(agent)).into_iter().collect();
        let (content, next_speaker) = (content.to_owned(), OneOrMany::Many(next));
        let frame = ChatFrame { content, next_speaker, ..self.of_exchange(FrameKind::Discussion) };
        ToldFrame { audience: Audience::Only(agent.clone()), frame }
    }

    /// What a client has sent, where it is what came of it, and else the same in its name.
    fn sent(&mut self, by: &AgentId, kind: FrameKind, text: &str) -> ChatFrame {
        let is_it = |(sent, frame): &(_, ChatFrame)| *sent == kind && cut(&frame.content, TEXT_LEN_MAX) == text;
        let sent = self.frames.remove(by).filter(is_it);
        sent.map_or_else(|| self.frame(kind, by, text), |(_, frame)| ChatFrame { content: text.to_owned(), ..frame })
    }

    fn frame(&self, kind: FrameKind, by: &AgentId, text: &str) -> ChatFrame {
        ChatFrame { content: text.to_owned(), sender: self.names.name(by), ..self.of_exchange(kind) }
    }

    fn of_exchange(&self, kind: FrameKind) -> ChatFrame {
        let described = |agent: &AgentId| match self.infos.get(agent) {
            Some(info) => json!(info),
            None => json!({ "name": self.names.name(agent), "type": "Thing Assistant", "desc": "" }),
        };
        let members = || self.members.iter().map(described).collect();
        ChatFrame {
            sender: EXCHANGE_NAME.to_owned(),
            kind: kind as u8,
            team_members: Some(self.template.team_members.clone().unwrap_or_else(members)),
            ..self.template.clone()
        }
    }

    fn about_task(&mut self, kind: FrameKind, number: u32, by: &AgentId, text: &str) -> ChatFrame {
        let task = self.tasks.entry(number).or_default();
        let made = || digits(&[&self.team, &number.to_string()]);
        let task_id = task.task_id.get_or_insert_with(made).clone();
        let (task_abstract, task_desc) = (task.title.clone(), task.text.clone());
        ChatFrame { task_id, task_abstract, task_desc, ..self.frame(kind, by, text) }
    }

    fn tell_all(&mut self, frame: ChatFrame) -> ToldFrame {
        // Texts, integers and values read from JSON can always be written.
        if let Ok(written) = to_raw_value(&frame) {
            self.record_bytes += written.get().len();
            self.record.push_back(written);
        }
        while self.record.len() > RECORD_LEN_MAX || self.record_bytes > RECORD_BYTES_MAX {
            self.record_bytes -= self.record.pop_front().map_or(self.record_bytes, |oldest| oldest.get().len());
        }
        ToldFrame { audience: Audience::All, frame }
    }

    /// What the first frame of a client repeats, later ones do too: nothing else tells a client the goal.
    fn note_template(&mut self, frame: &ChatFrame) {
        if self.template.team_members.is_none() && frame.team_members.is_some() {
            self.template.goal = frame.goal.clone().or(self.template.goal.take());
            self.template.team_members.clone_from(&frame.team_members);
            self.template.team_up_depth = frame.team_up_depth;
            self.template.is_collaborative_planning_enabled = frame.is_collaborative_planning_enabled;
            self.template.max_turns = frame.max_turns;
        }
    }

    fn note_said(&mut self, text: String) {
        self.said.insert(self.next_step, text);
        if self.said.len() > RECORD_LEN_MAX {
            self.said.pop_first();
        }
    }

    fn next_seat(&self, agent: &AgentId) -> Option<AgentId> {
        let own = self.members.iter().position(|member| member == agent)?;
        let others = self.members.iter().cycle().skip(own + 1).take(self.members.len());
        others.into_iter().find(|member| !self.muted.contains(*member)).cloned()
    }
}

/// The first digits of a digest of texts.
fn digits(texts: &[&str]) -> String {
    let parts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    Digest::of_parts(&parts).to_string().chars().take(ID_DIGITS).collect()
}

fn result_text(frame: &ChatFrame) -> &str {
    if frame.task_conclusion.is_empty() { &frame.content } else { &frame.task_conclusion }
}

fn opened(task: u32, assigned: &AssignedTask) -> TeamTask {
    let (owner, title) = (assigned.owner.clone(), Some(assigned.title.clone()));
    TeamTask { task, status: TaskStatus::Open, owner, title, result: None, digest: None, code: None, cut: false }
}

#[cfg(test)]
mod tests;
