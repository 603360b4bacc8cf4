//! What a call to a panel must satisfy before it is pinned, and who takes part beside its seats
//! (docs/spec/panel.md#pn-5).

use schemas::control::{CallProtocol, ConsentEffect};
use schemas::panel::{ANSWER_BYTES_MAX, PanelAnswer, PanelSpec, Ranker, check_panel};
use schemas::record::{Invitation, PinnedPanel, Qos};
use schemas::{AgentId, Code, Refusal};

use crate::registry::Tables;

/// Where a call names the agent that ranks.
const RANKER: &str = "/payload/panel/select/ranker/agent";

/// Rules that contradict themselves would open nothing: the fold says so as well, but only after the message is logged.
pub(super) fn check(rules: &PanelSpec) -> Result<(), Refusal> {
    check_panel(rules).map_err(|fault| {
        Refusal::new(Code::NotAllowed, "the rules of the panel contradict themselves")
            .at(format!("/payload/panel{}", fault.pointer))
            .expecting(fault.expected)
    })?;
    let not_yet = [(rules.review.is_some(), "review"), (rules.choose.is_some(), "choose")];
    match not_yet.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, member)) => Err(Refusal::new(Code::NotAllowed, "the exchange does not do this yet")
            .at(format!("/payload/panel/{member}"))
            .expecting("a panel without it")),
        None => Ok(()),
    }
}

/// Fewer seats than the call asks for open nothing.
pub(super) fn check_seats(rules: &PanelSpec, seats: usize) -> Result<(), Refusal> {
    if seats >= usize::try_from(rules.min_seats).unwrap_or(usize::MAX) {
        return Ok(());
    }
    let detail = format!("{seats} of the agents addressed can be asked");
    Err(Refusal::new(Code::NoRecipient, detail)
        .at("/envelope/to")
        .expecting(format!("at least {} that consent", rules.min_seats)))
}

/// Who takes part beside the seats: an agent that ranks, unless it is the initiator.
pub(super) fn pin(
    tables: &Tables,
    from: &AgentId,
    rules: &PanelSpec,
    seats: &[Invitation],
) -> Result<PinnedPanel, Refusal> {
    let Some(Ranker::Agent { agent, .. }) = rules.select.as_ref().map(|select| &select.ranker) else {
        return Ok(PinnedPanel::default());
    };
    if agent == from {
        return Ok(PinnedPanel::default());
    }
    if seats.iter().any(|seat| seat.agent == *agent) {
        return Err(Refusal::new(Code::NotAllowed, "the agent that ranks has a seat")
            .at(RANKER)
            .expecting("an agent that is not among those invited"));
    }
    let unknown = || {
        Refusal::new(Code::NoRecipient, format!("no agent `{agent}` is registered"))
            .at(RANKER)
            .expecting("an agent of GET /v1/agents")
    };
    let registration = tables.agents.registration(agent).ok_or_else(unknown)?;
    if registration.consent.effect(None, from, CallProtocol::Panel) != ConsentEffect::Allow {
        let detail = "the agent that ranks does not consent to this counterpart";
        return Err(Refusal::new(Code::NoConsent, detail).at(RANKER));
    }
    let ranker = Invitation { agent: agent.clone(), qos: Qos::AtLeastOnce, durable: registration.durable };
    Ok(PinnedPanel { ranker: Some(ranker), reviewers: Vec::new() })
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
