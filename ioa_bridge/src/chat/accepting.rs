//! What a client's frame is to the exchange.

use std::collections::BTreeSet;

use agents::team::{AssignMove, TeamMove};
use schemas::AgentId;
use schemas::payload::TEXT_LEN_MAX;
use schemas::team::{ASSIGNED_MAX, AssignedTask, TITLE_LEN_MAX, TaskMode};

use super::{Chat, ChatTask, ToldFrame, result_text};
use crate::wire::{ChatFrame, FrameFault, FrameKind, cut};

/// What a client's frame comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptedFrame {
    /// An act of the team.
    Move(TeamMove),
    /// The result of a task.
    Result {
        /// Its number.
        task: u32,
        /// The result.
        text: String,
    },
    /// Words that the exchange is not told: sent on as they are.
    Relayed(Vec<ToldFrame>),
}

impl Chat {
    /// Takes a frame of a client that plays `agent`.
    ///
    /// # Errors
    /// [`FrameFault`]: it is dropped, and nothing has changed.
    pub fn accept(&mut self, agent: &AgentId, kind: FrameKind, frame: ChatFrame) -> Result<AcceptedFrame, FrameFault> {
        if frame.sender != self.names.name(agent) {
            return Err(FrameFault::Name);
        }
        if !self.members.contains(agent) {
            return Err(FrameFault::Chat);
        }
        if matches!(kind, FrameKind::TaskProgress | FrameKind::TaskResult) {
            return self.take_report(agent, kind, frame);
        }
        let is_announcement = kind == FrameKind::Concluding;
        let is_repeat = if is_announcement { self.has_announced } else { self.frames.contains_key(agent) };
        if is_repeat || self.floor.as_ref() != Some(agent) {
            return Err(FrameFault::Turn);
        }
        if is_announcement {
            self.has_announced = true;
            self.note_template(&frame);
            return Ok(AcceptedFrame::Relayed(vec![self.tell_all(frame)]));
        }
        let next = self.as_move(agent, kind, &frame)?;
        self.note_template(&frame);
        self.frames.insert(agent.clone(), (kind, frame));
        Ok(AcceptedFrame::Move(next))
    }

    /// What a client is told whose text is longer than the exchange takes.
    pub fn notice_of_cut(&self, agent: &AgentId, kind: FrameKind, frame: &ChatFrame) -> Vec<ToldFrame> {
        let is_passed_on = !matches!(kind, FrameKind::Concluding | FrameKind::TaskProgress);
        let text: &str = if kind == FrameKind::TaskResult { result_text(frame) } else { &frame.content };
        let length = text.chars().count();
        let what = format!("Your text has {length} characters: the exchange takes {TEXT_LEN_MAX}, the rest is cut off");
        let is_cut = is_passed_on && length > TEXT_LEN_MAX;
        is_cut.then(|| self.notice(agent, &what, false)).into_iter().collect()
    }

    fn take_report(&mut self, agent: &AgentId, kind: FrameKind, frame: ChatFrame) -> Result<AcceptedFrame, FrameFault> {
        let is_of = |task: &ChatTask| task.owner.as_ref() == Some(agent) && !task.is_over;
        let known = self.tasks.iter().find(|(_, task)| task.task_id.as_deref() == Some(&frame.task_id));
        let oldest = || self.tasks.iter().find(|(_, task)| is_of(task) && task.task_id.is_none());
        let is_first = known.is_none();
        let (number, task) = known.or_else(oldest).filter(|(_, task)| is_of(task)).ok_or(FrameFault::Task)?;
        let (number, is_repeat) = (*number, task.result.is_some());
        if frame.task_id.is_empty() || is_repeat || (kind == FrameKind::TaskProgress && !is_first) {
            return Err(FrameFault::Task);
        }
        let Some(task) = self.tasks.get_mut(&number) else { return Err(FrameFault::Task) };
        task.task_id = Some(frame.task_id.clone());
        if kind == FrameKind::TaskProgress {
            return Ok(AcceptedFrame::Relayed(vec![self.tell_all(frame)]));
        }
        let text = cut(result_text(&frame), TEXT_LEN_MAX);
        task.result = Some(frame);
        Ok(AcceptedFrame::Result { task: number, text })
    }

    /// What has no words of its own is none: the agent would make some up.
    pub(super) fn as_move(&self, agent: &AgentId, kind: FrameKind, frame: &ChatFrame) -> Result<TeamMove, FrameFault> {
        if kind != FrameKind::Pause && frame.content.trim().is_empty() {
            return Err(FrameFault::Empty);
        }
        let named: Vec<AgentId> = frame.next_speaker.iter().filter_map(|name| self.names.agent(name)).collect();
        let mut members: Vec<AgentId> = Vec::new();
        for member in named.into_iter().filter(|member| self.members.contains(member)) {
            if !members.contains(&member) && members.len() < ASSIGNED_MAX {
                members.push(member);
            }
        }
        let text = frame.content.clone();
        let is_to_nobody = frame.next_speaker.iter().next().is_none();
        let said = |next: Option<AgentId>| TeamMove::Say { text: text.clone(), next };
        Ok(match kind {
            FrameKind::SyncAssignment | FrameKind::AsyncAssignment if !members.is_empty() => {
                let mode = if kind == FrameKind::SyncAssignment { TaskMode::Sync } else { TaskMode::Async };
                let tasks = members.into_iter().map(|owner| assigned(&text, owner)).collect();
                TeamMove::Assign(AssignMove { mode, policy: None, tasks })
            }
            FrameKind::Pause => {
                let by_id = |id: &String| self.tasks.iter().find(|(_, task)| task.task_id.as_ref() == Some(id));
                let triggers: BTreeSet<u32> =
                    frame.triggers.iter().filter_map(by_id).map(|(number, _)| *number).collect();
                if triggers.is_empty() {
                    return Err(FrameFault::Task);
                }
                let text = Some(text).filter(|text| !text.is_empty());
                TeamMove::Pause { triggers: Some(triggers.into_iter().collect()), text }
            }
            FrameKind::Conclusion => TeamMove::Conclude { text },
            FrameKind::Discussion if is_to_nobody => said(None),
            FrameKind::Discussion
            | FrameKind::SyncAssignment
            | FrameKind::AsyncAssignment
            | FrameKind::TaskResult
            | FrameKind::TaskProgress
            | FrameKind::Concluding => said(Some(members.into_iter().next().unwrap_or_else(|| agent.clone()))),
        })
    }
}

/// One task of an assignment in prose: its title is the first line.
fn assigned(content: &str, owner: AgentId) -> AssignedTask {
    let or_task = |text: String| if text.is_empty() { "task".to_owned() } else { text };
    let title = content.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    AssignedTask {
        title: or_task(cut(title, TITLE_LEN_MAX)),
        text: or_task(cut(content, TEXT_LEN_MAX)),
        owner: Some(owner),
        requires: Vec::new(),
        reply_within_ms: None,
        perform_ms: None,
    }
}
