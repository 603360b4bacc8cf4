//! A call opens a panel, or is answered NOT_UNDERSTOOD and stores nothing (docs/spec/panel.md#pn-7).

use std::sync::Arc;

use schemas::delivery::PanelCalls;
use schemas::evidence::Usage;
use schemas::panel::{Asking, CANDIDATES_MAX, PanelSpec, Ranker, check_panel};
use schemas::policy::TIMER_MS_MAX;
use schemas::record::{Invitation, PinnedPanel};
use schemas::{AgentId, Digest, Timestamp};

use super::{MemberRole, POLICY_WORD, Panel, PanelMember};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{InputContext, Opening, Refusal, lifetime_ms, reply_by};
use crate::panel::count::quorum;
use crate::panel::decision::{CandidateRecord, ChoiceRecord};
use crate::panel::reputation::{RecommendedSeats, choose};
use schemas::protocols::Phase;

/// Opens the panel and asks its first wave; `share` gives the shared form of an agent's name.
///
/// # Errors
/// Why it cannot be followed; nothing is stored then.
pub(crate) fn open(
    opening: &Opening<'_>,
    spec: &PanelSpec,
    context: &mut InputContext<'_>,
    share: impl FnMut(&AgentId) -> AgentId,
) -> Result<Panel, Refusal> {
    check(opening, spec)?;
    let invited = opening.invited();
    let (seats, choice) = seated(opening, spec, &invited)?;
    let seats_min = usize::try_from(spec.min_seats).unwrap_or(usize::MAX);
    Refusal::check_invited(seats.len(), seats_min..=spec.seats_max())?;
    let members = members(opening, spec, (&seats, &invited), share)?;
    let ends_by = ends_by(opening, spec, seats.len(), context.now)?;
    let rules = PanelSpec { domain: Some(spec.domain_of(&opening.envelope.to)), ..spec.clone() };
    let rules_digest = Digest::of(&rules).expect("rules are integers and texts");
    let mut header = opening.header(ends_by, context.now);
    let not_chosen = u32::try_from(invited.len() - seats.len()).unwrap_or(u32::MAX);
    header.left_out = header.left_out.saturating_add(not_chosen);
    let mut panel = Panel {
        header,
        rules: Box::new(rules),
        rules_digest,
        task: opening.cfp.task.as_deref().map(Arc::from),
        called_at: context.position,
        choice,
        members,
        phase: Phase::Asking,
        rounds: Vec::new(),
        ranking: None,
        selection: None,
        reviews: Vec::new(),
        calls: PanelCalls::default(),
        usage: Usage::default(),
        reported_by: 0,
        ended: None,
    };
    panel.header.link(&opening.admitted.digest.0, context);
    panel.acknowledge_call(0, opening, context);
    panel.announce(&Arc::from(POLICY_WORD), ends_by, context);
    let seats: Vec<_> = panel.seats().collect();
    let of = seats.len();
    panel.begin_round(seats, of, context);
    Ok(panel)
}

/// Rules that contradict themselves, or that stand beside those of another protocol.
fn check(opening: &Opening<'_>, spec: &PanelSpec) -> Result<(), Refusal> {
    let invalid = |pointer: &str| Refusal::malformed(NotUnderstoodReason::InvalidPanel, pointer);
    check_panel(spec).map_err(|fault| invalid(&format!("/payload/panel{}", fault.pointer)))?;
    let cfp = opening.cfp;
    let others = [
        (cfp.bargain.is_some(), "/payload/bargain"),
        (cfp.team.is_some(), "/payload/team"),
        (cfp.mandate.is_some(), "/payload/mandate"),
        (cfp.policy.is_some(), "/payload/policy"),
        (!cfp.gates.is_empty(), "/payload/gates"),
        (cfp.documents.is_some(), "/payload/documents"),
    ];
    match others.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, pointer)) => Err(invalid(pointer)),
        None => Ok(()),
    }
}

/// Who gets a seat: all that are invited, or under `choose` those of them whom evidence recommends
/// (docs/spec/panel.md#pn-42).
fn seated<'a>(
    opening: &Opening<'_>,
    spec: &PanelSpec,
    invited: &[&'a Invitation],
) -> Result<(Vec<&'a Invitation>, Option<Box<ChoiceRecord>>), Refusal> {
    let Some(rule) = &spec.choose else { return Ok((invited.to_vec(), None)) };
    Refusal::check_invited(invited.len(), 0..=CANDIDATES_MAX)?;
    let candidate = |one: &&Invitation| (one.agent.clone(), one.reputation);
    let candidates: Vec<_> = invited.iter().map(candidate).collect();
    let RecommendedSeats { seats, choice } = choose(&opening.admitted.negotiation, rule, &candidates);
    let is_seat = |one: &&Invitation| seats.binary_search(&one.agent).is_ok();
    let record = |(agent, reputation)| CandidateRecord { agent, reputation };
    let record = ChoiceRecord { candidates: candidates.into_iter().map(record).collect(), seats: choice };
    Ok((invited.iter().copied().filter(is_seat).collect(), Some(Box::new(record))))
}

/// The initiator, then everybody else in the order of their ids. Who could have been given a seat does not rank or review.
fn members(
    opening: &Opening<'_>,
    spec: &PanelSpec,
    (seats, candidates): (&[&Invitation], &[&Invitation]),
    mut share: impl FnMut(&AgentId) -> AgentId,
) -> Result<Vec<PanelMember>, Refusal> {
    let is_candidate = |agent: &AgentId| candidates.iter().any(|candidate| candidate.agent == *agent);
    let mut others: Vec<PanelMember> = seats.iter().map(|seat| invited(seat, MemberRole::Seat, &mut share)).collect();
    if let Some(Ranker::Agent { agent, .. }) = spec.select.as_ref().map(|select| &select.ranker)
        && *agent != opening.initiator
    {
        let pointer = "/payload/panel/select/ranker/agent";
        let unfit = || Refusal::malformed(NotUnderstoodReason::NoRecipient, pointer);
        let pinned = opening.pinned.panel.as_deref().and_then(|PinnedPanel { ranker, .. }| ranker.as_ref());
        let pinned = pinned.filter(|pinned| pinned.agent == *agent && !is_candidate(agent));
        others.push(invited(pinned.ok_or_else(unfit)?, MemberRole::Ranker, &mut share));
    }
    for (index, agent) in spec.review.iter().flat_map(|review| &review.by).enumerate() {
        let pointer = || format!("/payload/panel/review/by/{index}");
        let unfit = || Refusal::malformed(NotUnderstoodReason::NoRecipient, pointer());
        let pinned = opening.pinned.panel.iter().flat_map(|panel| &panel.reviewers).find(|one| one.agent == *agent);
        let is_free = *agent != opening.initiator
            && !is_candidate(agent)
            && others.iter().all(|other| other.party.agent != *agent);
        let pinned = pinned.filter(|_| is_free).ok_or_else(unfit)?;
        others.push(invited(pinned, MemberRole::Reviewer, &mut share));
    }
    others.sort_by(|one, other| one.party.agent.cmp(&other.party.agent));
    let initiator =
        PanelMember::new(share(&opening.initiator), MemberRole::Initiator, schemas::record::Qos::AtLeastOnce, true);
    Ok(std::iter::once(initiator).chain(others).collect())
}

fn invited(invitation: &Invitation, role: MemberRole, share: &mut impl FnMut(&AgentId) -> AgentId) -> PanelMember {
    PanelMember::new(share(&invitation.agent), role, invitation.qos, invitation.durable)
}

/// The hard deadline: what the call says, or the time all its asks may take, whichever is first (docs/spec/panel.md#pn-6).
fn ends_by(opening: &Opening<'_>, spec: &PanelSpec, seats: usize, now: Timestamp) -> Result<Timestamp, Refusal> {
    let waves = match spec.asking {
        Asking::QuorumFirst => u64::try_from(seats.saturating_sub(quorum(seats))).unwrap_or(u64::MAX).saturating_add(1),
        Asking::All => 1,
    };
    let rank_ms = match spec.select.as_ref().map(|select| &select.ranker) {
        Some(Ranker::Agent { rank_ms, .. }) => *rank_ms,
        Some(Ranker::Support | Ranker::Rating | Ranker::Hash) | None => 0,
    };
    let rounds = u64::from(spec.rounds);
    let reviews_ms = spec.review.as_ref().map_or(0, |review| (rounds - 1).saturating_mul(review.review_ms));
    let asks_ms = rounds.saturating_mul(waves).saturating_mul(spec.answer_ms);
    let most_ms = asks_ms.saturating_add(rank_ms).saturating_add(reviews_ms);
    let scope = opening.envelope.scope.as_ref();
    let given = reply_by(most_ms, opening.cfp, scope, now);
    let lifetime = now.plus_ms(lifetime_ms(scope).unwrap_or(most_ms));
    let ends_by = given.min(lifetime).min(now.plus_ms(most_ms));
    if ends_by <= now || ends_by > now.plus_ms(TIMER_MS_MAX) {
        return Err(Refusal::unfit(NotUnderstoodReason::BadDeadline));
    }
    Ok(ends_by)
}
