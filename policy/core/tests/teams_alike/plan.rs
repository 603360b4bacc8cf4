//! What a case is: one team, and what everybody says. Moves name things by index and are resolved while the case is played,
//! so that a shorter case is still a sensible one.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::alike::{self, any_time};

/// Whether members share out tasks: docs/spec/team.md says what is in force.
const HAS_TASKS: bool = true;
/// Whether says that repeat others are told by reference, or refused.
const HAS_GUARD: bool = true;

/// The last of the tasks, or of the teams, that there are.
pub(crate) const LAST: usize = usize::MAX;

/// One team.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Agents beside the initiator; nobody in rare cases.
    pub(crate) invited: u8,
    /// The rules, as the call carries them.
    pub(crate) rules: Value,
    /// Whether the call names a policy: its tie-break.
    pub(crate) policy: Option<Value>,
    pub(crate) join_ms: Option<u64>,
    /// Whether the lane's rules know teams.
    pub(crate) is_new: bool,
    pub(crate) moves: Vec<Move>,
}

/// One move; and which of the teams there are it is in.
pub(crate) type Move = alike::Move<(usize, Who), Action>;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// Whoever holds the floor.
    Speaker,
    /// Whoever was last awarded the task that is meant.
    Owner,
    Party(usize),
    Stranger,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// With a fitness.
    Join(i64),
    Say(SayPlan),
    Assign(AssignPlan),
    Pause(Turn, Vec<u32>),
    /// An act in the n-th task there is.
    InTask(usize, TaskDeed),
    /// A call to the sub-team of the n-th task there is.
    CallSubTeam(usize, SubTeamPlan),
    Conclude(Turn),
    Accept(VotePlan),
    Refuse,
    End,
    Cancel,
    Other(&'static str),
    Repeat(usize),
    Conflict(usize),
    Abort,
    Undelivered(usize, bool),
    Tick,
    /// So many says at once, of one who may not.
    Flood(usize),
}

/// The turn an act names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    Unnamed,
    Current,
    Earlier,
    Later,
}

#[derive(Debug, Clone)]
pub(crate) struct SayPlan {
    pub(crate) turn: Turn,
    pub(crate) text: String,
    pub(crate) next: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct AssignPlan {
    pub(crate) turn: Turn,
    pub(crate) mode: &'static str,
    /// Whether it names a policy of its own.
    pub(crate) has_policy: bool,
    pub(crate) tasks: Vec<TaskPlan>,
}

#[derive(Debug, Clone)]
pub(crate) struct TaskPlan {
    pub(crate) owner: Option<usize>,
    pub(crate) is_drawn: bool,
    pub(crate) reply_within_ms: Option<u64>,
    pub(crate) perform_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum TaskDeed {
    Offer(i64),
    Confirm,
    Result,
    Done,
    Failure,
    Refuse,
    Cancel,
}

#[derive(Debug, Clone)]
pub(crate) struct SubTeamPlan {
    pub(crate) rules: Value,
    /// Agents invited, by index.
    pub(crate) invited: Vec<usize>,
    pub(crate) join_ms: u64,
    /// Whether it names another award than the last.
    pub(crate) is_wrong: bool,
    /// Whether its id is another than that of its award.
    pub(crate) is_forged: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum VotePlan {
    Right,
    WithoutDigest,
    OtherDigest,
    /// The n-th conclusion there was.
    Earlier(usize),
}

/// Any case.
pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let invited = prop_oneof![8 => Just(1_u8), 8 => Just(2_u8), 8 => Just(3_u8), 4 => Just(4_u8), 1 => Just(0_u8)];
    let join_ms = option::weighted(0.95, prop_oneof![12 => 20_u64..200, 1 => Just(0_u64), 1 => Just(86_400_000_u64)]);
    let tie_break =
        select(vec![json!("hash"), json!("arrival"), json!("least_recent_winner"), json!({"lottery": {"seed": 7}})]);
    let fit = || select(vec![0_i64, 250_000, 250_000, 500_000, 750_000, 750_000, 1_000_000]);
    let early = vec((prop::bool::weighted(0.9), fit()), 5).prop_map(|joins| {
        let join = |(index, (joins, fit)): (usize, (bool, i64))| {
            Move::at_once((0, Who::Party(index)), if joins { Action::Join(fit) } else { Action::Tick })
        };
        joins.into_iter().enumerate().skip(1).map(join).collect::<Vec<_>>()
    });
    let later = prop_oneof![12 => any_move().prop_map(|one| vec![one]), 1 => nesting()];
    let moves = (early, vec(later, 5..50)).prop_map(|(early, later)| [early, later.concat()].concat());
    let policy = option::weighted(0.6, tie_break);
    (invited, rules(), policy, join_ms, prop::bool::weighted(0.98), moves).prop_map(
        |(invited, rules, policy, join_ms, is_new, moves)| Case { invited, rules, policy, join_ms, is_new, moves },
    )
}

fn rules() -> impl Strategy<Value = Value> {
    let seats = (2_u32..5, 0_u32..4).prop_map(|(min, more)| json!({"min": min.min(3), "max": min + more}));
    let turns = prop_oneof![4 => 1_u32..5, 4 => 5_u32..30];
    let speak_ms = prop_oneof![4 => Just(100_u64), 1 => Just(400_u64)];
    let ends_ms =
        prop_oneof![4 => 900_u64..3_000, 4 => 3_000_u64..30_000, 1 => Just(400_u64), 1 => Just(86_400_001_u64)];
    let vote = (select(vec!["majority", "all"]), 50_u64..400, 1_u32..4)
        .prop_map(|(of, vote_ms, attempts)| json!({"of": of, "vote_ms": vote_ms, "attempts": attempts}));
    let on_repeat = select(if HAS_GUARD { vec!["pass", "reference", "refuse"] } else { vec!["pass"] });
    let at_conclusion = select(vec!["settle", "cancel", "leave"]);
    let ppm = select(vec![500_000_u32, 700_000, 1_000_000]);
    let team = (seats, turns, speak_ms, ends_ms, option::weighted(0.5, vote));
    let tasks = prop_oneof![1_u32..4, Just(64_u32)];
    (team, on_repeat, ppm, 1_u32..5, at_conclusion, (tasks, 0_u32..4)).prop_map(
        |(team, on_repeat, repeat_ppm, max_strikes, at_conclusion, (tasks, depth))| {
            let (members, turns, speak_ms, ends_within_ms, vote) = team;
            let mut rules = json!({"members": members, "turns": turns, "speak_ms": speak_ms, "ends_within_ms": ends_within_ms,
                "on_repeat": on_repeat, "repeat_ppm": repeat_ppm, "max_strikes": max_strikes,
                "at_conclusion": at_conclusion, "tasks": tasks, "depth": depth});
            vote.into_iter().for_each(|vote| rules["vote"] = vote);
            rules
        },
    )
}

/// A task, and a sub-team that somebody joins for it.
fn nesting() -> impl Strategy<Value = Vec<Move>> {
    let at_once = |team, who, action| Move::at_once((team, who), action);
    let team = prop_oneof![1 => Just(0_usize), 2 => Just(LAST)];
    (team, 0_usize..6, select(vec!["sync", "async"]), sub_team()).prop_map(move |(team, owner, mode, plan)| {
        let task = TaskPlan { owner: Some(owner), is_drawn: false, reply_within_ms: None, perform_ms: None };
        let assign = AssignPlan { turn: Turn::Unnamed, mode, has_policy: false, tasks: vec![task] };
        let mut moves = vec![
            at_once(team, Who::Speaker, Action::Assign(assign)),
            at_once(0, Who::Owner, Action::InTask(LAST, TaskDeed::Confirm)),
            at_once(0, Who::Owner, Action::CallSubTeam(LAST, plan)),
        ];
        moves.extend((0..6).map(|index| at_once(LAST, Who::Party(index), Action::Join(500_000))));
        moves
    })
}

fn any_move() -> impl Strategy<Value = Move> {
    let sensible =
        (Just(Who::Speaker), prop_oneof![12 => say().prop_map(Action::Say), 1 => turn().prop_map(Action::Conclude)]);
    let owner = (Just(Who::Owner), (0_usize..8, work()).prop_map(|(task, action)| Action::InTask(task, action)));
    let offering = ((0_usize..5).prop_map(Who::Party), (0_usize..8, (0_i64..4).prop_map(TaskDeed::Offer)));
    let offering = offering.prop_map(|(who, (task, action))| (who, Action::InTask(task, action)));
    let assigning = (Just(Who::Speaker), assign().prop_map(Action::Assign));
    let pausing =
        (Just(Who::Speaker), (turn(), vec(1_u32..4, 1..3)).prop_map(|(turn, tasks)| Action::Pause(turn, tasks)));
    let ballot =
        prop_oneof![8 => Just(VotePlan::Right), 1 => Just(VotePlan::OtherDigest), 1 => Just(VotePlan::WithoutDigest)];
    let vote = prop_oneof![3 => ballot.prop_map(Action::Accept), 1 => Just(Action::Refuse)];
    let voting = ((0_usize..5).prop_map(Who::Party), vote);
    let any_who =
        prop_oneof![4 => Just(Who::Speaker), 8 => (0_usize..5).prop_map(Who::Party), 1 => Just(Who::Stranger)];
    let calling = (Just(Who::Owner), (0_usize..8, sub_team()));
    let calling = calling.prop_map(|(who, (task, plan))| (who, Action::CallSubTeam(task, plan)));
    let joining = ((0_usize..5).prop_map(Who::Party), Just(Action::Join(500_000)));
    let tasks = prop_oneof![3 => assigning, 1 => pausing, 5 => owner, 3 => offering, 3 => calling, 4 => joining];
    let speech = prop_oneof![8 => sensible, 3 => voting, 8 => tasks, 4 => (any_who, action())];
    let team = prop_oneof![2 => Just(0_usize), 1 => 0_usize..6, 2 => Just(LAST)];
    (team, prop::bool::weighted(0.15), any_time(6, 2), speech, prop::bool::weighted(0.03)).prop_map(
        |(team, joins, time, (who, action), is_stale)| {
            let action = if matches!(action, Action::Assign(_)) && !HAS_TASKS { Action::Tick } else { action };
            Move { joins, time, who: (team, who), action, is_stale }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let accept = prop_oneof![
        3 => Just(VotePlan::Right),
        1 => Just(VotePlan::WithoutDigest),
        1 => Just(VotePlan::OtherDigest),
        1 => (0_usize..4).prop_map(VotePlan::Earlier),
    ];
    let other = select(vec!["cfp", "offer", "withdraw", "confirm", "inform", "failure", "not_understood"]);
    prop_oneof![
        5 => say().prop_map(Action::Say),
        4 => turn().prop_map(Action::Conclude),
        2 => (turn(), vec(1_u32..4, 1..3)).prop_map(|(turn, triggers)| Action::Pause(turn, triggers)),
        3 => accept.prop_map(Action::Accept),
        3 => (0_usize..8, prop_oneof![work(), Just(TaskDeed::Cancel)]).prop_map(|(task, action)| Action::InTask(task, action)),
        3 => assign().prop_map(Action::Assign),
        1 => (0_usize..8, sub_team()).prop_map(|(task, plan)| Action::CallSubTeam(task, plan)),
        2 => Just(Action::Refuse),
        2 => (0_i64..4).prop_map(|fit| Action::Join(fit * 250_000)),
        2 => other.prop_map(Action::Other),
        2 => Just(Action::End),
        1 => select(vec![Action::Cancel, Action::Abort, Action::Tick, Action::Flood(70)]),
        1 => (0_usize..4, any::<bool>()).prop_map(|(which, may_answer)| Action::Undelivered(which, may_answer)),
        2 => (0_usize..32).prop_map(Action::Repeat),
        1 => (0_usize..32).prop_map(Action::Conflict),
    ]
}

fn work() -> impl Strategy<Value = TaskDeed> {
    prop_oneof![
        5 => Just(TaskDeed::Confirm),
        3 => Just(TaskDeed::Result),
        1 => Just(TaskDeed::Done),
        1 => Just(TaskDeed::Failure),
        1 => Just(TaskDeed::Refuse),
    ]
}

fn assign() -> impl Strategy<Value = AssignPlan> {
    let task = (option::weighted(0.5, 0_usize..6), any::<bool>(), option::weighted(0.3, 10_u64..200));
    let task =
        (task, option::weighted(0.3, prop_oneof![6 => 20_u64..300, 2 => 2_000_u64..4_000, 1 => Just(90_000_u64)]));
    let task = task.prop_map(|((owner, is_drawn, reply_within_ms), perform_ms)| TaskPlan {
        owner,
        is_drawn: is_drawn && owner.is_none(),
        reply_within_ms,
        perform_ms,
    });
    // Of no tasks, as no gateway passes it on.
    let tasks = prop_oneof![20 => vec(task, 1..4), 1 => Just(Vec::new())];
    (turn(), select(vec!["sync", "async"]), prop::bool::weighted(0.2), tasks)
        .prop_map(|(turn, mode, has_policy, tasks)| AssignPlan { turn, mode, has_policy, tasks })
}

fn sub_team() -> impl Strategy<Value = SubTeamPlan> {
    let (invited, rare) = (vec(0_usize..6, 1..4), || prop::bool::weighted(0.04));
    (rules(), invited, 20_u64..100, rare(), rare()).prop_map(|(mut rules, invited, join_ms, is_wrong, is_forged)| {
        // Most of them have time: the task leaves 1200 ms, or as long as the assignment says.
        rules["speak_ms"] = json!(100);
        SubTeamPlan { rules, invited, join_ms, is_wrong, is_forged }
    })
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![6 => Just(Turn::Unnamed), 4 => Just(Turn::Current), 1 => Just(Turn::Earlier), 1 => Just(Turn::Later)]
}

fn say() -> impl Strategy<Value = SayPlan> {
    let word = select(vec!["we", "read", "the", "papers", "and", "write", "Figure", "2", "übersicht", "図表", "--"]);
    let text = prop_oneof![
        4 => vec(word, 1..14).prop_map(|words| words.join(" ")),
        1 => select(vec!["I take the related work, you draw.", "I TAKE the related work ,you draw.", "pay 5", "pay -5", "!", "?"]).prop_map(str::to_owned),
    ];
    (turn(), text, option::weighted(0.5, 0_usize..7)).prop_map(|(turn, text, next)| SayPlan { turn, text, next })
}
