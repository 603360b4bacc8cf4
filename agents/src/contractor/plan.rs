//! What a contractor will do about one call, drawn when the call comes.

use schemas::payload::Terms;

use super::config::ContractorConfig;
use super::distribution::Draws;

/// Everything that is drawn when a call comes. Each draw is made whether or not it matters, so that changing one
/// parameter of a configuration changes nothing else.
pub(super) struct CallPlan {
    pub(super) is_silent: bool,
    pub(super) is_refusal: bool,
    pub(super) reply_delay_ms: u64,
    pub(super) late_by_ms: Option<u64>,
    pub(super) terms: Terms,
    pub(super) revised_terms: Option<Terms>,
    pub(super) revise_after_ms: u64,
    pub(super) withdraw_after_ms: Option<u64>,
}

impl CallPlan {
    pub(super) fn draw(config: &ContractorConfig, draws: &mut Draws) -> Self {
        let is_silent = draws.comes_true(config.silent);
        let is_refusal = draws.comes_true(config.refuse);
        let is_late = draws.comes_true(config.late);
        let is_revised = draws.comes_true(config.revise);
        let is_withdrawn = draws.comes_true(config.withdraw);
        let reply_delay_ms = draws.sample_ms(&config.reply_delay_ms);
        let late_by_ms = draws.sample_ms(&config.late_by_ms);
        let revise_after_ms = draws.sample_ms(&config.revise_after_ms);
        let withdraw_after_ms = draws.sample_ms(&config.withdraw_after_ms);
        let terms = draws.terms(&config.terms);
        let revised_terms = draws.terms(&config.terms);
        Self {
            is_silent,
            is_refusal,
            reply_delay_ms,
            late_by_ms: is_late.then_some(late_by_ms),
            terms,
            revised_terms: is_revised.then_some(revised_terms),
            revise_after_ms,
            withdraw_after_ms: is_withdrawn.then_some(withdraw_after_ms),
        }
    }
}
