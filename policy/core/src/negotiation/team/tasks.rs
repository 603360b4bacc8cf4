//! The tasks of a team, as it knows them, and what it waits for (docs/spec/team.md#tasks).

use schemas::Digest;
use schemas::team::{TASKS_MAX, TaskStatus, TeamTask};
use serde::{Deserialize, Serialize};

use crate::negotiation::family::TaskProgress;

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
    /// Adds a task that a step opens.
    pub(super) fn open_next(&mut self, title: &str, step: u32) {
        self.0.push(KnownTask { title: Box::from(title), step, progress: TaskProgress::OPEN });
    }

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
    pub(super) fn note(&mut self, number: u32, progress: TaskProgress) -> bool {
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let Some(task) = index.and_then(|index| self.0.get_mut(index)) else { return false };
        let ends_now = progress.has_ended() && !task.progress.has_ended();
        task.progress = progress;
        ends_now
    }

    /// As members are told it when it changes.
    pub(super) fn told(&self, number: u32) -> Option<TeamTask> {
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
    pub(super) fn new(setter: usize, tasks: Vec<u32>) -> Self {
        Self { setter, tasks }
    }

    /// Index of the member that gets the floor once they have ended.
    pub(super) fn setter(&self) -> usize {
        self.setter
    }

    /// Those that are open, ascending.
    pub(super) fn open(&self, tasks: &TaskList) -> Vec<u32> {
        self.tasks.iter().copied().filter(|number| tasks.is_open(*number)).collect()
    }

    /// Whether whom and what it names is there.
    pub(super) fn is_within(&self, members: usize, tasks: &TaskList) -> bool {
        self.setter < members && self.tasks.iter().all(|number| tasks.knows(*number))
    }
}
