//! Thousands of teams that wait for tasks (docs/spec/team.md#tm-45): each goes on in the step in which the last of them has
//! ended, with whoever waited.

use std::collections::BTreeSet;

use schemas::Act;
use schemas::team::{Floor, TaskStatus, TeamState};
use serde_json::json;

use crate::draws::Draws;
use crate::gathering::Gathering;
use crate::tasks::direct;

/// Teams; the owners of their tasks are 1 to 8.
const TEAMS: u64 = 10_000;
/// Says between an assignment that nobody waits for and the first result, at least.
const SAYS: u32 = 10;
/// Who may own a task.
const OWNERS: [&str; 8] = ["bob", "carol", "dan", "eve", "fay", "gus", "hal", "ivy"];

/// What all teams together showed.
#[derive(Default)]
struct Figures {
    /// Steps of teams that waited, and those that were not as they have to be.
    steps: u64,
    violated: u64,
    /// Acts that were tried while a team waited.
    refused: u64,
    /// Fewest says between an assignment that nobody waits for and the first result.
    says_min: Option<u32>,
    /// Teams that went on, by the number of owners.
    woken: [u64; OWNERS.len()],
    /// Pauses for tasks that have ended.
    pauses_over: u64,
}

/// A team, and who assigns in it.
struct WaitingTeam {
    gathering: Gathering,
    draws: Draws,
    members: Vec<&'static str>,
    setter: &'static str,
    at_ms: u64,
    step: u32,
}

#[test]
fn thousands_of_teams_go_on_in_the_step_in_which_the_last_of_their_tasks_has_ended() {
    let mut figures = Figures::default();
    for seed in 0..TEAMS {
        let owners = usize::try_from(seed).expect("few") % OWNERS.len() + 1;
        let mut team = WaitingTeam::of(seed, owners);
        match seed / 8 % 3 {
            0 => team.play_sync(owners, &mut figures),
            1 => team.play_async(owners, &mut figures),
            _ => team.play_over(owners, &mut figures),
        }
    }
    let Figures { steps, violated, refused, says_min, woken, pauses_over } = figures;
    let says_min = says_min.unwrap_or_default();
    println!(
        "teams {TEAMS} steps {steps} violated {violated} refused {refused} says_between_min {says_min} woken {woken:?} pauses_over {pauses_over}"
    );
    assert_eq!(violated, 0);
    assert!(says_min >= SAYS && refused > 0 && pauses_over > 0, "too tame");
    assert!(woken.iter().all(|teams| *teams > 0), "{woken:?}");
}

impl WaitingTeam {
    /// Alice leads; alice or one of the owners has the floor.
    fn of(seed: u64, owners: usize) -> Self {
        let mut draws = Draws::of(seed);
        let members: Vec<&str> = ["alice"].into_iter().chain(OWNERS[..owners].iter().copied()).collect();
        let rules = json!({"turns": 100, "max_strikes": 100, "members": {"min": 2, "max": 9}});
        let gathering = Gathering::of(&members, rules);
        let setter = draws.pick(&members);
        let mut team = Self { gathering, draws, members, setter, at_ms: 20, step: 1 };
        if setter != "alice" {
            team.pass("alice", setter);
        }
        team
    }

    fn say(&mut self, who: &str, act: Act, payload: serde_json::Value) -> bool {
        self.at_ms += 1;
        let told = self.gathering.say(self.at_ms, who, act, payload);
        let is_ok = told.contains(&format!("{who}<ack:ok"));
        self.step += u32::from(is_ok);
        is_ok
    }

    fn pass(&mut self, from: &str, to: &str) {
        assert!(self.say(from, Act::Say, json!({"text": "well", "next": to})), "{from} has the floor");
    }

    fn assign(&mut self, owners: usize, mode: &str) {
        let tasks: Vec<_> = OWNERS[..owners].iter().map(|owner| direct(owner)).collect();
        assert!(self.say(self.setter, Act::Assign, json!({"mode": mode, "tasks": tasks})), "it has the floor");
    }

    /// The owner of a task does it, fails, or will not; the task has ended then.
    fn end_task(&mut self, task: u32, owner: &str) {
        self.at_ms += 1;
        let at_ms = self.at_ms;
        let failure = json!({"phase": "perform", "code": "broken"});
        match self.draws.below(4) {
            0 => drop(self.gathering.in_task(at_ms, task, owner, Act::Refuse, json!({}))),
            1 => {
                self.gathering.confirm(at_ms, task, owner);
                self.gathering.in_task(at_ms, task, owner, Act::Failure, failure);
            }
            _ => {
                self.gathering.confirm(at_ms, task, owner);
                self.gathering.result(at_ms, task, owner);
            }
        }
        self.step += 1;
    }

    /// Ends these tasks in any order, while members try to speak, and judges every step.
    fn wait(&mut self, owners: usize, waits: TeamState, awaited: &BTreeSet<u32>, figures: &mut Figures) {
        let mut tasks: Vec<u32> = awaited.iter().copied().collect();
        self.draws.shuffle(&mut tasks);
        let mut open = awaited.clone();
        for task in tasks {
            if self.draws.one_in(3) {
                let who = self.draws.pick(&self.members);
                let act = self.draws.pick(&[Act::Say, Act::Conclude]);
                let is_heard = self.say(who, act, json!({"text": "well"}));
                figures.violated += u64::from(is_heard);
                figures.refused += u64::from(!is_heard);
            }
            self.end_task(task, OWNERS[task as usize - 1]);
            open.remove(&task);
            figures.steps += 1;
            figures.violated += u64::from(!self.stands(&open, waits, task));
        }
        figures.woken[owners - 1] += 1;
    }

    /// Whether the team waits for what is open, or goes on with the setter, as everybody is told in this step.
    fn stands(&self, open: &BTreeSet<u32>, waits: TeamState, ended: u32) -> bool {
        self.members.iter().all(|member| {
            let Floor { step, state, speaker, waits: waited, tasks, by, .. } = self.gathering.floor(member);
            let has_ended = tasks.iter().map(|task| (task.task, task.status)).collect::<Vec<_>>();
            let is_told = matches!(has_ended[..], [(task, TaskStatus::Done | TaskStatus::Failed)] if task == ended);
            let (state_due, speaker_due) =
                if open.is_empty() { (TeamState::Discussing, Some(self.setter)) } else { (waits, None) };
            let stands = state == state_due && speaker.as_ref().map(|speaker| speaker.as_str()) == speaker_due;
            is_told && stands && by.is_none() && step == self.step && waited.iter().eq(open)
        })
    }

    /// It waits for what it assigns.
    fn play_sync(&mut self, owners: usize, figures: &mut Figures) {
        self.assign(owners, "sync");
        self.wait(owners, TeamState::Awaiting, &(1..=count(owners)).collect(), figures);
    }

    /// The team talks on, and somebody waits for some of the tasks.
    fn play_async(&mut self, owners: usize, figures: &mut Figures) {
        self.assign(owners, "async");
        self.talk(figures);
        let mut awaited: BTreeSet<u32> = (1..=count(owners)).filter(|_| self.draws.one_in(2)).collect();
        awaited.insert(1 + count(self.draws.below(owners)));
        assert!(self.say(self.setter, Act::Pause, json!({"triggers": awaited})), "it has the floor");
        self.wait(owners, TeamState::Paused, &awaited, figures);
    }

    /// Whoever pauses for tasks that have ended goes on at once.
    fn play_over(&mut self, owners: usize, figures: &mut Figures) {
        self.assign(owners, "async");
        self.talk(figures);
        for task in 1..=count(owners) {
            self.end_task(task, OWNERS[task as usize - 1]);
        }
        let triggers: Vec<u32> = (1..=count(owners)).collect();
        let goes_on = self.say(self.setter, Act::Pause, json!({"triggers": triggers}))
            && self.say(self.setter, Act::Say, json!({"text": "well"}));
        figures.steps += 1;
        figures.pauses_over += 1;
        figures.violated += u64::from(!goes_on);
    }

    /// At least [`SAYS`] says; the floor comes to somebody, who is the setter from then on.
    fn talk(&mut self, figures: &mut Figures) {
        let says = SAYS + count(self.draws.below(6));
        for _ in 0..says {
            let next = self.draws.pick(&self.members);
            self.pass(self.setter, next);
            self.setter = next;
        }
        figures.says_min = Some(figures.says_min.map_or(says, |least| least.min(says)));
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("few")
}
