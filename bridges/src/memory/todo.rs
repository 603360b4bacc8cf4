//! What an agent may do now, read from what it was told.

use schemas::delivery::{Disposition, Notification, ProgressReport, Turn};
use schemas::team::{Floor, TeamState};
use schemas::{Act, AgentId, WireTime};

/// What an agent may do in a negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Todo {
    /// The tools to do it with.
    pub tools: Vec<&'static str>,
    /// Until when.
    pub by: Option<WireTime>,
    /// Number of the item that asks for it.
    pub because: u64,
    /// Whether it is being done without a client: it is told to nobody meanwhile.
    pub is_automatic: bool,
}

/// What a delivery changes.
#[derive(Debug, PartialEq, Eq)]
pub enum TodoChange {
    /// Nothing.
    Nothing,
    /// What was asked for is over.
    Over,
    /// It asks for this.
    Ask(Todo),
}

/// What a delivery asks `agent` for, after what was asked before. `n` is its number.
pub fn change(told: &Notification, agent: &AgentId, before: Option<&Todo>, n: u64) -> TodoChange {
    let ask = |tools: &[&'static str], by| {
        TodoChange::Ask(Todo { tools: tools.to_vec(), by, because: n, is_automatic: false })
    };
    match told {
        Notification::Cfp(call) if call.bargain.is_some() || call.team.is_some() => {
            ask(&["join", "refuse"], Some(call.reply_by))
        }
        Notification::Cfp(call) => ask(&["offer", "refuse"], Some(call.reply_by)),
        Notification::Accept(award) => ask(&["confirm", "refuse"], Some(award.confirm_by)),
        Notification::Inform(ProgressReport::Offers(offers)) => ask(&["accept", "cancel"], Some(offers.decide_by)),
        Notification::Ack(receipt) if receipt.disposition == Disposition::Committed => ask(&["report"], None),
        Notification::Cancel(cancel) if cancel.reason == "cancelled" => ask(&["report"], None),
        Notification::Turn(turn) if turn.party == *agent => ask(turn_tools(turn, agent), Some(turn.act_by)),
        Notification::Floor(floor) => match floor_tools(floor, agent) {
            [] => TodoChange::Over,
            tools => ask(tools, floor.act_by),
        },
        Notification::Ask(question) => ask(&["answer", "refuse"], Some(question.answer_by)),
        Notification::NotUnderstood(why) => {
            let tools: Vec<_> = why.expected.iter().filter_map(|act| tool_of(*act)).collect();
            let by = before.and_then(|todo| todo.by);
            if tools.is_empty() || before.is_none() { TodoChange::Nothing } else { ask(&tools, by) }
        }
        Notification::Reject(rejection) if rejection.reason.goes_on() => TodoChange::Nothing,
        Notification::Inform(ProgressReport::Awarded(_))
        | Notification::Reject(_)
        | Notification::Cancel(_)
        | Notification::Turn(_)
        | Notification::Closed(_) => TodoChange::Over,
        Notification::Ack(_) | Notification::Inform(_) | Notification::Failure(_) => TodoChange::Nothing,
    }
}

fn turn_tools(turn: &Turn, agent: &AgentId) -> &'static [&'static str] {
    let is_acceptable = turn.standing.as_ref().is_some_and(|standing| standing.by != *agent);
    if is_acceptable { &["offer", "accept", "leave"] } else { &["offer", "leave"] }
}

fn floor_tools(floor: &Floor, agent: &AgentId) -> &'static [&'static str] {
    let speaks = floor.speaker.as_ref() == Some(agent);
    match floor.state {
        TeamState::Voting if floor.conclusion.as_ref().is_some_and(|proposed| proposed.by != *agent) => {
            &["accept", "refuse"]
        }
        TeamState::Concluding if speaks => &["conclude", "leave"],
        TeamState::Discussing if speaks => &["say", "assign", "pause", "conclude", "leave"],
        TeamState::Voting | TeamState::Concluding | TeamState::Discussing | TeamState::Awaiting | TeamState::Paused => {
            &[]
        }
    }
}

/// The tool that makes this act.
pub const fn tool_of(act: Act) -> Option<&'static str> {
    Some(match act {
        Act::Offer => "offer",
        Act::Refuse => "refuse",
        Act::Withdraw => "withdraw",
        Act::Accept => "accept",
        Act::Confirm => "confirm",
        Act::Inform | Act::Failure => "report",
        Act::Cancel => "cancel",
        Act::Join => "join",
        Act::End => "leave",
        Act::Answer => "answer",
        Act::Say => "say",
        Act::Assign => "assign",
        Act::Pause => "pause",
        Act::Conclude => "conclude",
        Act::Cfp | Act::NotUnderstood | Act::Reject | Act::Closed | Act::Ack | Act::Turn | Act::Ask | Act::Floor => {
            return None;
        }
    })
}
