//! What the call to an English auction must satisfy: the fold says so as well, but only after the message is logged
//! (docs/spec/english-auction.md#ea-3).
//!
//! | fault | code | pointer |
//! |---|---|---|
//! | the policy would not award the last bid | `not_allowed` | `/payload/policy` |
//! | bidding could be moved to before its end, or beyond the auction's | `out_of_range` | `/payload/auction/extend/latest_within_ms` |
//!
//! Everything else is its JSON Schema's.

use schemas::envelope::Scope;
use schemas::payload::Cfp;
use schemas::{Code, Policy, Refusal};

/// Agents invited to one auction.
pub(super) const INVITED_MAX: usize = schemas::english_auction::BIDDERS_MAX;

/// Whether the policy awards the leader, and the extension lies between the end of bidding and that of the auction. An absolute
/// `reply_by`, and a lifetime, are compared by the fold alone, which knows the time of the log.
pub(super) fn check(cfp: &Cfp, scope: Option<&Scope>, policy: &Policy) -> Result<(), Refusal> {
    let Some(spec) = &cfp.auction else { return Ok(()) };
    policy_core::check_auction_policy(policy).map_err(|fault| {
        let detail = format!("the policy does not fit an English auction: its {} {}", fault.pointer, fault.detail);
        Refusal::new(Code::NotAllowed, detail)
            .at("/payload/policy")
            .expecting("a policy with one award, at the price bid, decided by the exchange, for example medium")
    })?;
    let has_lifetime = scope.is_some_and(|scope| scope.ttl.is_some());
    let Some(extend) = spec.rules.extend.filter(|_| !has_lifetime) else { return Ok(()) };
    let reply_ms = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => ms,
        (None, Some(_)) => 0,
        (None, None) => policy.timers_ms.collect,
    };
    let last_ms = policy.timers_ms.hard.saturating_sub(policy.timers_ms.confirm);
    if (reply_ms..=last_ms).contains(&extend.latest_within_ms) {
        return Ok(());
    }
    Err(Refusal::new(Code::OutOfRange, "bidding cannot be moved to end then")
        .at("/payload/auction/extend/latest_within_ms")
        .expecting(format!("{reply_ms} to {last_ms}: not before bidding ends, and in time to confirm")))
}
