//! The call to a panel (docs/spec/panel.md#pn-7).

use std::collections::BTreeMap;

use schemas::delivery::{Disposition, PanelCalls, Receipt};
use schemas::evidence::Usage;
use schemas::ids::DomainName;
use schemas::panel::{Asking, PanelSpec, Ranker, SeatChoice, check_panel};
use schemas::payload::Cfp;
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{Address, AgentId, Digest, NegotiationId, Timestamp};

use super::{Panel, Panelist, hash};
use crate::Moment;
use crate::alternating_offers::opening::DAY_MS;
use crate::contract_net::count;
use crate::contract_net::opening::NotUnderstood;
use crate::fact;

/// The panel of a call, or what its initiator is told.
pub(super) fn open(
    message: &AdmittedMessage,
    decoded: &Message,
    cfp: &Cfp,
    pinned: &Pinned,
    moment: Moment,
) -> Result<Panel, NotUnderstood> {
    let mut rules = (**cfp.panel.as_ref().expect("a call to a panel")).clone();
    if let Some(pointer) = contradiction(cfp, &rules) {
        return Err(NotUnderstood { reason: "invalid_panel", pointer: Some(pointer) });
    }
    let mut candidates: Vec<(AgentId, Option<u64>)> =
        pinned.invited.iter().map(|one| (one.agent.clone(), one.reputation)).collect();
    candidates.retain(|(agent, _)| *agent != message.from);
    candidates.sort();
    candidates.dedup_by(|one, other| one.0 == other.0);
    if rules.choose.is_some() && candidates.len() > 256 {
        return Err("too_many_parties".into());
    }
    let (seats, choice) = seats(&rules, &message.negotiation, &candidates);
    if count(seats.len()) < rules.min_seats {
        return Err("no_recipient".into());
    }
    if seats.len() > rules.seats_max() {
        return Err("too_many_parties".into());
    }
    let ranker = ranker(&rules, message, pinned, &candidates)?;
    let reviewers = reviewers(&rules, message, pinned, &candidates)?;
    let ends_by = ends_by(&rules, seats.len(), cfp, decoded, moment.now)
        .filter(|ends_by| *ends_by > moment.now && *ends_by <= moment.now.plus_ms(DAY_MS))
        .ok_or("bad_deadline")?;
    rules.domain.get_or_insert(domain(&decoded.envelope.to));
    let people = std::iter::once(&message.from).chain(&seats).chain(&ranker).chain(&reviewers);
    let mut panel = Panel {
        id: message.negotiation.clone(),
        rules_digest: Digest::of(&rules).expect("integers and texts"),
        rules,
        task: cfp.task.as_deref().map(Into::into),
        called_at: moment.position,
        initiator: message.from.clone(),
        people: people.map(|agent| (agent.clone(), Panelist::default())).collect::<BTreeMap<_, _>>(),
        is_public: decoded.envelope.to.iter().any(|address| !matches!(address, Address::Agent(_))),
        ends_by,
        rounds: Vec::new(),
        ranking: None,
        selection: None,
        reviews: Vec::new(),
        calls: PanelCalls::default(),
        usage: Usage::default(),
        reported_by: 0,
        outcome: None,
        detail: None,
        facts: Vec::new(),
        shown: Vec::new(),
        seats,
    };
    acknowledge(&mut panel, message, decoded, choice);
    panel.begin_round(panel.seats.clone(), panel.seats.len(), moment);
    Ok(panel)
}

fn acknowledge(panel: &mut Panel, message: &AdmittedMessage, decoded: &Message, seats: Option<SeatChoice>) {
    let receipt = Receipt { seats, ..Receipt::new(decoded.envelope.msg_id.clone(), Disposition::Ok) };
    panel.facts.push(fact::ack(&panel.id, &panel.initiator, &receipt));
    if panel.is_public {
        panel.facts.push(fact::notice_called(&panel.id));
    }
    panel.people.get_mut(&message.from).expect("the initiator").party.note_call(message, decoded);
}

/// Where the rules contradict themselves, or what stands beside them.
fn contradiction(cfp: &Cfp, rules: &PanelSpec) -> Option<String> {
    if let Err(fault) = check_panel(rules) {
        return Some(format!("/payload/panel{}", fault.pointer));
    }
    let beside = [
        (cfp.bargain.is_some(), "/payload/bargain"),
        (cfp.team.is_some(), "/payload/team"),
        (cfp.mandate.is_some(), "/payload/mandate"),
        (cfp.policy.is_some(), "/payload/policy"),
        (!cfp.gates.is_empty(), "/payload/gates"),
        (cfp.documents.is_some(), "/payload/documents"),
    ];
    beside.into_iter().find(|(is_there, _)| *is_there).map(|(_, pointer)| pointer.to_owned())
}

/// Who has a seat: each candidate that fewer than so many others come before.
fn seats(
    rules: &PanelSpec,
    negotiation: &NegotiationId,
    candidates: &[(AgentId, Option<u64>)],
) -> (Vec<AgentId>, Option<SeatChoice>) {
    let all = || candidates.iter().map(|(agent, _)| agent.clone());
    let Some(rule) = &rules.choose else { return (all().collect(), None) };
    if count(candidates.iter().filter(|(_, reputation)| reputation.is_some()).count()) < rule.keep {
        return (all().collect(), Some(SeatChoice::Trial));
    }
    let drawn = |agent: &AgentId| hash(&[negotiation.as_str().as_bytes(), agent.as_str().as_bytes()]);
    let is_kept = |(agent, reputation): &&(AgentId, Option<u64>)| {
        let comes_before = |(other, known): &&(AgentId, Option<u64>)| match (known, reputation) {
            (Some(known), Some(reputation)) => {
                known > reputation || (known == reputation && drawn(other) < drawn(agent))
            }
            (None, None) => drawn(other) < drawn(agent),
            _ => false,
        };
        let before = count(candidates.iter().filter(comes_before).count());
        before < if reputation.is_some() { rule.keep } else { rule.newcomers }
    };
    let kept = candidates.iter().filter(is_kept).map(|(agent, _)| agent.clone());
    (kept.collect(), Some(SeatChoice::Chosen))
}

/// A ranking agent other than the initiator: pinned, and without a seat.
fn ranker(
    rules: &PanelSpec,
    message: &AdmittedMessage,
    pinned: &Pinned,
    candidates: &[(AgentId, Option<u64>)],
) -> Result<Option<AgentId>, NotUnderstood> {
    let Some(Ranker::Agent { agent, .. }) = rules.select.as_ref().map(|select| &select.ranker) else { return Ok(None) };
    let is_pinned = pinned.panel.iter().flat_map(|panel| &panel.ranker).any(|one| one.agent == *agent);
    if *agent == message.from {
        Ok(None)
    } else if is_pinned && candidates.iter().all(|(candidate, _)| candidate != agent) {
        Ok(Some(agent.clone()))
    } else {
        let pointer = Some("/payload/panel/select/ranker/agent".to_owned());
        Err(NotUnderstood { reason: "no_recipient", pointer })
    }
}

/// The reviewers: pinned, and nothing else in the panel.
fn reviewers(
    rules: &PanelSpec,
    message: &AdmittedMessage,
    pinned: &Pinned,
    candidates: &[(AgentId, Option<u64>)],
) -> Result<Vec<AgentId>, NotUnderstood> {
    let by = rules.review.as_ref().map_or(&[][..], |review| &review.by);
    for (index, agent) in by.iter().enumerate() {
        let is_pinned = pinned.panel.iter().flat_map(|panel| &panel.reviewers).any(|one| one.agent == *agent);
        let ranks = matches!(rules.select.as_ref().map(|select| &select.ranker),
            Some(Ranker::Agent { agent: ranker, .. }) if ranker == agent);
        let is_candidate = candidates.iter().any(|(candidate, _)| candidate == agent);
        if !is_pinned || ranks || *agent == message.from || is_candidate {
            let pointer = Some(format!("/payload/panel/review/by/{index}"));
            return Err(NotUnderstood { reason: "no_recipient", pointer });
        }
    }
    Ok(by.to_vec())
}

/// The time that all asks may take, or less where the call says so (docs/spec/panel.md#pn-6).
fn ends_by(rules: &PanelSpec, seats: usize, cfp: &Cfp, decoded: &Message, now: Timestamp) -> Option<Timestamp> {
    let waves = match rules.asking {
        Asking::QuorumFirst => seats - (2 * seats / 3 + 1) + 1,
        Asking::All => 1,
    };
    let rank_ms = match rules.select.as_ref().map(|select| &select.ranker) {
        Some(Ranker::Agent { rank_ms, .. }) => *rank_ms,
        _ => 0,
    };
    let review_ms = rules.review.as_ref().map_or(0, |review| review.review_ms) * u64::from(rules.rounds - 1);
    let most_ms = u64::from(rules.rounds) * waves as u64 * rules.answer_ms + rank_ms + review_ms;
    let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
    let said = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => Some(now.plus_ms(ms)),
        (None, Some(reply_by)) => Some(reply_by.0),
        (None, None) => None,
    };
    [Some(now.plus_ms(most_ms)), said, ttl_ms.map(|ms| now.plus_ms(ms))].into_iter().flatten().min()
}

fn domain(to: &[Address]) -> DomainName {
    let named = if let [Address::Topic(topic)] = to { DomainName::try_new(topic.as_str()).ok() } else { None };
    named.unwrap_or_else(|| DomainName::try_new("general").expect("a name"))
}
