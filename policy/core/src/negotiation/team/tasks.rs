//! The tasks of a team, as it knows them, and what it waits for (docs/spec/team.md#tasks).

use schemas::team::{TASKS_MAX, TaskStatus, TeamTask};
use schemas::{AgentId, Digest, RegisterKey};
use serde::{Deserialize, Serialize};

use super::Team;
use super::told::TeamChange;
use crate::negotiation::InputContext;
use crate::negotiation::family::{FamilyDeed, FamilyOrder, TaskOpening, TaskProgress};
use crate::protocol::Phase;

/// Bytes of texts that a view shows before it cuts results: 64 KiB.
const VIEW_BYTES_MAX: usize = 64 * 1024;

/// Every task there was, in the order of their numbers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TaskList(Vec<KnownTask>);

/// A task.
#[derive(Debug, Serialize, Deserialize)]
struct KnownTask {
    title: Box<str>,
    /// The step that opened it.
    step: u32,
    progress: TaskProgress,
}

/// What a team waits for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TasksAwaited {
    /// Index of the member that gets the floor then.
    setter: usize,
    /// The numbers of the tasks, ascending.
    tasks: Vec<u32>,
}

impl TaskList {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is a task with this number.
    pub(super) fn knows(&self, number: u32) -> bool {
        (1..=self.count()).contains(&number)
    }

    /// The numbers of those that have not ended, ascending.
    pub(super) fn open(&self) -> Vec<u32> {
        let tasks = (1..).zip(&self.0);
        tasks.filter(|(_, task)| !task.progress.has_ended()).map(|(number, _)| number).collect()
    }

    /// The numbers of those that a step opened.
    pub(super) fn opened_in(&self, step: u32) -> Vec<u32> {
        let tasks = (1..).zip(&self.0);
        tasks.filter(|(_, task)| task.step == step).map(|(number, _)| number).collect()
    }

    fn task(&self, number: u32) -> Option<&KnownTask> {
        self.0.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    fn is_open(&self, number: u32) -> bool {
        self.task(number).is_some_and(|task| !task.progress.has_ended())
    }

    /// Notes where a task stands; whether it has ended just now.
    fn note(&mut self, number: u32, progress: TaskProgress) -> bool {
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let Some(task) = index.and_then(|index| self.0.get_mut(index)) else { return false };
        let ends_now = progress.has_ended() && !task.progress.has_ended();
        task.progress = progress;
        ends_now
    }

    /// As members are told it when it changes.
    fn told(&self, number: u32) -> Option<TeamTask> {
        let task = self.task(number)?;
        let is_open = task.progress.status == TaskStatus::Open;
        Some(TeamTask { title: is_open.then(|| task.title.to_string()), ..task.shown(number) })
    }

    /// As views show them, beside so many bytes of other texts: of too many the oldest results are cut to their digests.
    pub(super) fn shown(&self, beside: usize) -> Vec<TeamTask> {
        let mut bytes = beside + self.0.iter().map(KnownTask::result_bytes).sum::<usize>();
        let mut shown = self.shown_whole();
        for (task, known) in shown.iter_mut().zip(&self.0) {
            if bytes > VIEW_BYTES_MAX && task.result.is_some() {
                bytes = bytes.saturating_sub(known.result_bytes());
                (task.digest, task.cut) = (task.result.take().map(|result| Digest::of_bytes(result.as_bytes())), true);
            }
        }
        shown
    }

    fn shown_whole(&self) -> Vec<TeamTask> {
        let tasks = (1..).zip(&self.0);
        tasks.map(|(number, task)| TeamTask { title: Some(task.title.to_string()), ..task.shown(number) }).collect()
    }

    /// As the end tells them: results as digests.
    pub(super) fn closed(&self) -> Vec<TeamTask> {
        let closed = |(number, task): (u32, &KnownTask)| {
            let digest = task.progress.result.as_ref().map(|result| Digest::of_bytes(result.as_bytes()));
            TeamTask { result: None, digest, ..task.shown(number) }
        };
        (1..).zip(&self.0).map(closed).collect()
    }

    /// What the fold relies on, and a snapshot might not keep.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.count() <= TASKS_MAX { Ok(()) } else { Err("a team has more tasks than are numbered") }
    }
}

impl KnownTask {
    fn result_bytes(&self) -> usize {
        self.progress.result.as_ref().map_or(0, |result| result.len())
    }

    fn shown(&self, number: u32) -> TeamTask {
        let TaskProgress { status, owner, result, code } = &self.progress;
        TeamTask {
            task: number,
            status: *status,
            owner: owner.clone(),
            title: None,
            result: result.as_deref().map(str::to_owned),
            digest: None,
            code: code.as_deref().map(str::to_owned),
            cut: false,
        }
    }
}

impl TasksAwaited {
    /// Whether whom and what it names is there.
    pub(super) fn is_within(&self, members: usize, tasks: &TaskList) -> bool {
        self.setter < members && self.tasks.iter().all(|number| tasks.knows(*number))
    }
}

impl Team {
    /// ASSIGN (docs/spec/team.md#tm-26): opens the tasks, and waits for them or goes on.
    pub(super) fn assign(
        &mut self,
        index: usize,
        openings: Vec<TaskOpening>,
        is_awaited: bool,
        context: &mut InputContext<'_>,
    ) {
        let first = self.tasks.count() + 1;
        for opening in openings {
            let title = Box::from(opening.brief.title.as_str());
            self.tasks.0.push(KnownTask { title, step: self.step.saturating_add(1), progress: TaskProgress::OPEN });
            let (to, cause) = (opening.id.clone(), self.header.chain);
            context.orders.give(FamilyOrder { to, cause, deed: FamilyDeed::OpenTask(Box::new(opening)) });
        }
        let numbers: Vec<u32> = (first..=self.tasks.count()).collect();
        let tasks = numbers.iter().filter_map(|number| self.tasks.told(*number)).collect();
        let change = TeamChange { by: Some(index), tasks, ..TeamChange::default() };
        if is_awaited && !numbers.is_empty() {
            self.turn = self.turn.saturating_add(1);
            self.wait_for(Phase::Awaiting, index, numbers, &change, context);
        } else {
            self.advance(Some(index), &change, context);
        }
    }

    /// Until these tasks have ended; then the setter has the floor.
    pub(super) fn wait_for(
        &mut self,
        phase: Phase,
        setter: usize,
        tasks: Vec<u32>,
        change: &TeamChange,
        context: &mut InputContext<'_>,
    ) {
        self.awaited = Some(TasksAwaited { setter, tasks });
        self.enter(phase, context);
        self.tell(change, context);
    }

    /// The tasks that are still waited for, ascending.
    pub(super) fn waits(&self) -> Vec<u32> {
        let awaited = self.awaited.iter().flat_map(|awaited| &awaited.tasks);
        awaited.copied().filter(|number| self.tasks.is_open(*number)).collect()
    }

    /// A task stands otherwise than before; its end is a step (docs/spec/team.md#tm-45).
    pub(crate) fn handle_progress(&mut self, number: u32, progress: TaskProgress, context: &mut InputContext<'_>) {
        // Of an aborted task nothing may wait for the register: it may hold something else.
        let is_registered = progress.code.as_deref() != Some("aborted");
        if !self.tasks.note(number, progress) {
            return;
        }
        let id = self.header.id.task(number).filter(|_| is_registered);
        let tasks = self.tasks.told(number).into_iter().collect();
        let change = TeamChange { tasks, after: id.map(RegisterKey::Closed), ..TeamChange::default() };
        match &self.awaited {
            Some(awaited) if self.waits().is_empty() => {
                let setter = awaited.setter;
                self.discuss(Some(setter), &change, context);
            }
            Some(_) | None => self.tell(&change, context),
        }
    }

    /// Orders the same of every open task.
    pub(super) fn order_tasks(&self, deed: impl Fn() -> FamilyDeed, context: &mut InputContext<'_>) {
        for number in self.tasks.open() {
            let Some(to) = self.header.id.task(number) else { continue };
            context.orders.give(FamilyOrder { to, cause: self.header.chain, deed: deed() });
        }
    }

    /// The agent that leads, whom its tasks obey.
    pub(crate) fn lead(&self) -> Option<&AgentId> {
        self.roster.lead().map(|lead| self.roster.agent(lead))
    }
}
