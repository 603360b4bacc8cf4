//! The call to a team (docs/spec/team.md#tm-7).

use schemas::delivery::{Disposition, Receipt};
use schemas::payload::Cfp;
use schemas::policy::Decider;
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::team::{
    ATTEMPTS_MAX, DEPTH_MAX, INVITED_MAX, MEMBERS_MAX, MEMBERS_MIN, REPEAT_PPM_MIN, SPEAK_MS_MAX, SPEAK_MS_MIN,
    SPEAK_TIMES_MIN, TASKS_MAX, TURNS_MAX, TeamCall, TeamRules,
};
use schemas::{Address, Payload, Policy, Timestamp};

use super::tasks::TaskBoard;
use super::{Person, Team, TeamStage};
use crate::Moment;
use crate::alternating_offers::opening::{DAY_MS, invited, join_by};
use crate::contract_net::count;
use crate::contract_net::opening::NotUnderstood;
use crate::fact;

/// The team of a call, or what its initiator is told.
pub(crate) fn open(
    message: &AdmittedMessage,
    decoded: &Message,
    cfp: &Cfp,
    pinned: &Pinned,
    above: Option<(Timestamp, u32)>,
    moment: Moment,
) -> Result<Team, NotUnderstood> {
    let spec = cfp.team.as_ref().expect("a call to a team");
    if let Some(member) = fault(&spec.rules) {
        return Err(NotUnderstood { reason: "invalid_team", pointer: Some(format!("/payload/team/{member}")) });
    }
    let task_policy = pinned.task_policy.as_ref().map(|task| (*task.policy).clone());
    if !task_policy.as_ref().is_some_and(decides_tasks) {
        let pointer = Some("/payload/team/task_policy".to_owned());
        return Err(NotUnderstood { reason: "invalid_policy", pointer });
    }
    let invited = invited(message, pinned);
    if invited.is_empty() {
        return Err("no_recipient".into());
    }
    if invited.len() > INVITED_MAX {
        return Err("too_many_parties".into());
    }
    let policy = cfp.policy.is_some().then(|| (*pinned.policy).clone());
    let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
    let join_by = join_by(cfp, ttl_ms, moment.now).ok_or("bad_deadline")?;
    let mut ends_by = moment.now.plus_ms(spec.rules.ends_within_ms);
    let is_soon = ends_by <= moment.now.plus_ms(DAY_MS);
    let mut depth_left = spec.rules.depth;
    if let Some((latest, levels)) = above {
        (ends_by, depth_left) = (ends_by.min(latest), depth_left.min(levels));
    }
    let has_time = join_by.plus_ms(SPEAK_TIMES_MIN * spec.rules.speak_ms) <= ends_by;
    if !(is_soon && has_time) {
        return Err("bad_deadline".into());
    }
    let mut people: Vec<Person> = std::iter::once(&message.from).chain(&invited).map(Person::called).collect();
    people[0].is_seated = true;
    people[0].capabilities.clone_from(&message.capabilities);
    let mut one = Team {
        id: message.negotiation.clone(),
        rules: spec.rules.clone(),
        policy,
        depth_left,
        family_room: 0,
        raised: None,
        task_policy,
        reputations: crate::scoring::reputations(pinned),
        is_public: decoded.envelope.to.iter().any(|address| !matches!(address, Address::Agent(_))),
        join_by,
        ends_by,
        people,
        stage: TeamStage::Forming,
        turn: 0,
        step: 0,
        is_wrapped: false,
        spoken: Vec::new(),
        rejected: 0,
        outcome: None,
        detail: None,
        conclusion: None,
        receipt_step: None,
        receipt_tasks: Vec::new(),
        tasks: TaskBoard::default(),
        answered_at_once: false,
        facts: Vec::new(),
    };
    call_to(&mut one, message, decoded);
    Ok(one)
}

fn call_to(team: &mut Team, message: &AdmittedMessage, decoded: &Message) {
    let invited = Some(count(team.people.len() - 1));
    let receipt = Receipt { invited, ..Receipt::new(decoded.envelope.msg_id.clone(), Disposition::Ok) };
    team.facts.push(fact::ack(&team.id, &message.from, &receipt));
    if team.is_public {
        team.facts.push(fact::notice_called(&team.id));
    }
    let of = if let Payload::Cfp(cfp) = &decoded.payload {
        cfp.team.as_ref().and_then(|spec| spec.of.clone())
    } else {
        None
    };
    let call = TeamCall { lead: message.from.clone(), rules: team.rules.clone(), depth_left: team.depth_left, of };
    for person in &team.people[1..] {
        let called = fact::cfp(&team.id, &person.agent, 1, team.join_by, team.ends_by);
        team.facts.push(fact::with(&called, &call));
    }
    team.people[0].party.note_call(message, decoded);
}

/// Whether a policy can decide who does a task.
pub(super) fn decides_tasks(policy: &Policy) -> bool {
    !policy.weights.is_empty() && policy.awards == 1 && policy.decider == Decider::Engine
}

/// The first member of the rules that is out of its range (docs/spec/team.md#tm-8).
fn fault(rules: &TeamRules) -> Option<&'static str> {
    let TeamRules { members, turns, speak_ms, depth, tasks, vote, repeat_ppm, max_strikes, .. } = rules;
    let seats = MEMBERS_MIN..=MEMBERS_MAX;
    let holds = [
        ("members", seats.contains(&members.min) && seats.contains(&members.max) && members.min <= members.max),
        ("turns", (1..=TURNS_MAX).contains(turns)),
        ("speak_ms", (SPEAK_MS_MIN..=SPEAK_MS_MAX).contains(speak_ms)),
        ("depth", *depth <= DEPTH_MAX),
        ("tasks", (1..=TASKS_MAX).contains(tasks)),
        ("vote", vote.is_none_or(|vote| (1..=ATTEMPTS_MAX).contains(&vote.attempts))),
        ("repeat_ppm", (REPEAT_PPM_MIN..=1_000_000).contains(repeat_ppm)),
        ("max_strikes", (1..=100).contains(max_strikes)),
    ];
    holds.into_iter().find(|(_, holds)| !holds).map(|(member, _)| member)
}
