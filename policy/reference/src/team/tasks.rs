//! The tasks of a team, as it knows them, and what it does to them (docs/spec/team.md#tm-26).

use schemas::team::{TaskStatus, TeamTask};
use schemas::{AgentId, Digest, NegotiationId};

use crate::contract_net::count;
use crate::contract_net::task::{TaskCall, TaskStanding};

/// What a team does to its tasks.
#[derive(Debug)]
pub(crate) enum TaskOrder {
    Open(Box<TaskCall>),
    CallOff(NegotiationId),
    Abort(NegotiationId),
    /// A member has left.
    MemberLeft(NegotiationId, AgentId),
    /// The team has concluded under this lead, and the task goes on.
    DetachFromTeam(NegotiationId, AgentId),
}

/// A task, as its team knows it.
#[derive(Debug)]
struct TaskSlot {
    id: NegotiationId,
    title: String,
    standing: TaskStanding,
}

/// Every task there was, by its number, and what the team is about to do to them.
#[derive(Debug, Default)]
pub(super) struct TaskBoard {
    slots: Vec<TaskSlot>,
    orders: Vec<TaskOrder>,
}

impl TaskOrder {
    pub(crate) fn id(&self) -> &NegotiationId {
        match self {
            Self::Open(call) => &call.id,
            Self::CallOff(id) | Self::Abort(id) | Self::MemberLeft(id, _) | Self::DetachFromTeam(id, _) => id,
        }
    }
}

impl TaskBoard {
    pub(super) fn count(&self) -> u32 {
        count(self.slots.len())
    }

    /// The numbers of those that have not ended.
    pub(super) fn open(&self) -> Vec<u32> {
        let tasks = (1_u32..).zip(&self.slots);
        tasks.filter(|(_, task)| !task.standing.has_ended).map(|(number, _)| number).collect()
    }

    fn open_ids(&self) -> Vec<NegotiationId> {
        self.slots.iter().filter(|task| !task.standing.has_ended).map(|task| task.id.clone()).collect()
    }

    /// The number of a new task.
    pub(super) fn add(&mut self, call: TaskCall) -> u32 {
        let standing =
            TaskStanding { has_ended: false, status: TaskStatus::Open, owner: None, result: None, code: None };
        self.slots.push(TaskSlot { id: call.id.clone(), title: call.brief.title.clone(), standing });
        self.orders.push(TaskOrder::Open(Box::new(call)));
        self.count()
    }

    /// The number of a task that has ended just now.
    pub(super) fn note(&mut self, task: &NegotiationId, standing: TaskStanding) -> Option<u32> {
        let index = self.slots.iter().position(|slot| slot.id == *task)?;
        let slot = &mut self.slots[index];
        let ends_now = standing.has_ended && !slot.standing.has_ended;
        slot.standing = standing;
        ends_now.then(|| count(index) + 1)
    }

    pub(super) fn told(&self, number: u32) -> TeamTask {
        let slot = &self.slots[usize::try_from(number).expect("at most 64") - 1];
        let TaskStanding { status, owner, result, code, .. } = &slot.standing;
        TeamTask {
            task: number,
            status: *status,
            owner: owner.clone(),
            title: (*status == TaskStatus::Open).then(|| slot.title.clone()),
            result: result.clone(),
            digest: None,
            code: code.clone(),
            cut: false,
        }
    }

    /// Every task as the end tells it: results as digests.
    pub(super) fn closed(&self) -> Vec<TeamTask> {
        let told = |number| {
            let task = self.told(number);
            let digest = task.result.as_ref().map(|result| Digest::of_bytes(result.as_bytes()));
            TeamTask { result: None, title: None, digest, ..task }
        };
        (1..=self.count()).map(told).collect()
    }

    /// A member has left: whatever it was bound to do is lost.
    pub(super) fn member_left(&mut self, agent: &AgentId) {
        self.orders.extend(self.open_ids().into_iter().map(|id| TaskOrder::MemberLeft(id, agent.clone())));
    }

    pub(super) fn leave(&mut self, lead: &AgentId) {
        self.orders.extend(self.open_ids().into_iter().map(|id| TaskOrder::DetachFromTeam(id, lead.clone())));
    }

    pub(super) fn call_off(&mut self) {
        self.orders.extend(self.open_ids().into_iter().map(TaskOrder::CallOff));
    }

    pub(super) fn abort(&mut self) {
        self.orders.extend(self.open_ids().into_iter().map(TaskOrder::Abort));
    }

    /// What is to be done, in the order of the ids.
    pub(super) fn take_orders(&mut self) -> Vec<TaskOrder> {
        let mut orders = std::mem::take(&mut self.orders);
        orders.sort_by(|one, other| one.id().cmp(other.id()));
        orders
    }
}
