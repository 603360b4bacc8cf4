//! What a call to a panel must satisfy before it is pinned, and who takes part beside its seats
//! (docs/spec/panel.md#pn-5).

use policy_core::panel::reputation::{PRIOR_RUNS, ReputationBasis, choose};
use schemas::control::ConsentEffect;
use schemas::panel::{ANSWER_BYTES_MAX, CANDIDATES_MAX, ChooseSpec, PanelAnswer, PanelSpec, Ranker, check_panel};
use schemas::protocols::Protocol;
use schemas::record::{Invitation, PinnedPanel, Qos};
use schemas::{AgentId, Code, Envelope, NegotiationId, Refusal};

use crate::registry::Tables;

/// Where a call names the agent that ranks.
const RANKER: &str = "/payload/panel/select/ranker/agent";

/// Rules that contradict themselves would open nothing: the fold says so as well, but only after the message is logged.
pub(super) fn check(rules: &PanelSpec) -> Result<(), Refusal> {
    check_panel(rules).map_err(|fault| {
        Refusal::new(Code::NotAllowed, "the rules of the panel contradict themselves")
            .at(format!("/payload/panel{}", fault.pointer))
            .expecting(fault.expected)
    })
}

/// Most agents that a call to a panel invites, or chooses among.
pub(super) fn invited_max(rules: &PanelSpec) -> usize {
    if rules.choose.is_some() { CANDIDATES_MAX } else { rules.seats_max() }
}

/// Pins what evidence says of each of those among whom the seats are chosen (docs/spec/panel.md#pn-42): whatever becomes of the
/// evidence, the fold chooses by what held here.
pub(super) fn pin_reputations(
    tables: &Tables,
    from: &AgentId,
    envelope: &Envelope,
    rules: &PanelSpec,
    invited: &mut [Invitation],
) {
    let Some(ChooseSpec { from: source, min_runs, .. }) = &rules.choose else { return };
    let domain = rules.domain_of(&envelope.to);
    let basis = ReputationBasis { from: source, own: from, min_runs: *min_runs, prior_runs: PRIOR_RUNS };
    for invitation in invited {
        invitation.reputation = tables.evidence.reputation(&domain, &invitation.agent, basis);
    }
}

/// Fewer seats than the call asks for open nothing, nor do more than a panel has.
pub(super) fn check_seats(
    rules: &PanelSpec,
    negotiation: &NegotiationId,
    invited: &[Invitation],
) -> Result<(), Refusal> {
    let candidates = || invited.iter().map(|one| (one.agent.clone(), one.reputation)).collect::<Vec<_>>();
    let chosen = rules.choose.as_ref().map(|rule| choose(negotiation, rule, &candidates()));
    let seats = chosen.as_ref().map_or(invited.len(), |chosen| chosen.seats.len());
    if seats > rules.seats_max() {
        let detail = format!("the panel would have {seats} seats");
        return Err(Refusal::new(Code::OutOfRange, detail)
            .at("/envelope/to")
            .expecting(format!("at most {} seats", rules.seats_max())));
    }
    if seats >= usize::try_from(rules.min_seats).unwrap_or(usize::MAX) {
        return Ok(());
    }
    let detail = format!("{seats} of the agents addressed can be asked");
    Err(Refusal::new(Code::NoRecipient, detail)
        .at("/envelope/to")
        .expecting(format!("at least {} that consent", rules.min_seats)))
}

/// Who takes part beside the seats: an agent that ranks, unless it is the initiator, and those that review.
pub(super) fn pin(
    tables: &Tables,
    from: &AgentId,
    rules: &PanelSpec,
    seats: &[Invitation],
) -> Result<PinnedPanel, Refusal> {
    let ranker = match rules.select.as_ref().map(|select| &select.ranker) {
        Some(Ranker::Agent { agent, .. }) => Some(agent),
        Some(Ranker::Support | Ranker::Rating | Ranker::Hash) | None => None,
    };
    let pinned = Pinning { tables, from, seats };
    let mut roles = PinnedPanel::default();
    if let Some(agent) = ranker.filter(|agent| *agent != from) {
        roles.ranker = Some(pinned.invitation(agent, "the agent that ranks", RANKER)?);
    }
    for (index, agent) in rules.review.iter().flat_map(|review| &review.by).enumerate() {
        let pointer = format!("/payload/panel/review/by/{index}");
        if agent == from || ranker == Some(agent) {
            return Err(Refusal::new(Code::NotAllowed, "the agent that reviews calls the panel, or ranks")
                .at(pointer)
                .expecting("an agent that takes no other part in the panel"));
        }
        roles.reviewers.push(pinned.invitation(agent, "the agent that reviews", &pointer)?);
    }
    Ok(roles)
}

/// What those who take part beside the seats are pinned from.
struct Pinning<'a> {
    tables: &'a Tables,
    from: &'a AgentId,
    seats: &'a [Invitation],
}

impl Pinning<'_> {
    /// Registered, consenting, and without a seat.
    fn invitation(&self, agent: &AgentId, who: &str, pointer: &str) -> Result<Invitation, Refusal> {
        if self.seats.iter().any(|seat| seat.agent == *agent) {
            return Err(Refusal::new(Code::NotAllowed, format!("{who} has a seat"))
                .at(pointer)
                .expecting("an agent that is not among those invited"));
        }
        let unknown = || {
            Refusal::new(Code::NoRecipient, format!("no agent `{agent}` is registered"))
                .at(pointer)
                .expecting("an agent of GET /v1/agents")
        };
        let registration = self.tables.agents.registration(agent).ok_or_else(unknown)?;
        if registration.consent.effect(None, self.from, Protocol::Panel) != ConsentEffect::Allow {
            let detail = format!("{who} does not consent to this counterpart");
            return Err(Refusal::new(Code::NoConsent, detail).at(pointer));
        }
        Ok(Invitation { agent: agent.clone(), qos: Qos::AtLeastOnce, durable: registration.durable, reputation: None })
    }
}

/// An answer takes so many bytes and no more, as it is escaped (docs/spec/panel.md#pn-11).
pub(super) fn check_answer(answer: &PanelAnswer) -> Result<(), Refusal> {
    let Some(member) = answer.oversized() else { return Ok(()) };
    Err(Refusal::new(Code::OutOfRange, "the answer is longer than a panel keeps")
        .at(format!("/payload{member}"))
        .expecting(format!(
            "at most {ANSWER_BYTES_MAX} bytes of `answer`, `text` and `reviews` together, as canonical JSON"
        )))
}
