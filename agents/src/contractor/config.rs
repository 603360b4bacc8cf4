//! A scripted contractor's parameters.

use std::collections::BTreeMap;

use schemas::ids::AttrName;
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::english_auction::Bidding;

/// How a contractor behaves. Chances are between 0 and 1, one draw per call, award or performance; durations are
/// milliseconds. The default answers every call at once, honestly and reliably.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContractorConfig {
    /// Fixes every draw, together with the agent's id.
    pub seed: u64,
    /// The cost model: what is offered, by attribute. `price` is in micro-units, `delivery_ms` in milliseconds.
    pub terms: BTreeMap<AttrName, Distribution>,
    /// Validity of an offer, counted from its log time (absent: the whole negotiation).
    pub valid_for_ms: Option<u64>,
    /// From call to answer.
    pub reply_delay_ms: Distribution,
    /// Chance to say nothing to a call.
    pub silent: f64,
    /// Chance to refuse a call.
    pub refuse: f64,
    /// Chance to answer after the deadline instead of after `reply_delay_ms`.
    pub late: f64,
    /// How long after the deadline.
    pub late_by_ms: Distribution,
    /// Chance to replace the offer by another.
    pub revise: f64,
    /// How long after the offer.
    pub revise_after_ms: Distribution,
    /// Chance to take the offer back.
    pub withdraw: f64,
    /// How long after the offer.
    pub withdraw_after_ms: Distribution,
    /// How it bids in an English auction, with the price it draws as its limit.
    pub bidding: Bidding,
    /// From award to confirmation.
    pub confirm_delay_ms: Distribution,
    /// Chance to refuse an award.
    pub decline: f64,
    /// Chance to say nothing to an award.
    pub ignore_award: f64,
    /// From commitment to report.
    pub perform_ms: Distribution,
    /// Chance that performing fails.
    pub fail: f64,
    /// Chance that nothing is ever reported.
    pub stall: f64,
    /// Chance that a cancellation comes too late to stop.
    pub cannot_cancel: f64,
    /// Whether an offer that waits for its delay still goes out after the negotiation has closed. Real agents would
    /// not send it; the experiments want it counted as late.
    pub offers_after_close: bool,
    /// Most negotiations it holds an offer in; further calls are refused.
    pub engagements_max: usize,
}

/// A parameter that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contractor parameter `{parameter}`: {fault}")]
pub struct ConfigError {
    /// Its name.
    pub parameter: String,
    /// What is wrong, and what would be right.
    pub fault: &'static str,
}

impl Default for ContractorConfig {
    fn default() -> Self {
        let attr = |name| AttrName::try_new(name).expect("attribute names in this file are names");
        let terms = [
            (attr("price"), Distribution::Uniform { lo: 50_000_000, hi: 150_000_000 }),
            (attr("delivery_ms"), Distribution::Uniform { lo: 500, hi: 5000 }),
        ];
        Self {
            seed: 0,
            terms: terms.into(),
            valid_for_ms: None,
            reply_delay_ms: Distribution::Constant(0),
            silent: 0.0,
            refuse: 0.0,
            late: 0.0,
            late_by_ms: Distribution::Constant(50),
            revise: 0.0,
            revise_after_ms: Distribution::Constant(20),
            withdraw: 0.0,
            withdraw_after_ms: Distribution::Constant(20),
            bidding: Bidding::default(),
            confirm_delay_ms: Distribution::Constant(0),
            decline: 0.0,
            ignore_award: 0.0,
            perform_ms: Distribution::Constant(0),
            fail: 0.0,
            stall: 0.0,
            cannot_cancel: 0.0,
            offers_after_close: false,
            // Some 60 MB of engagements; far more than one agent can perform.
            engagements_max: 131_072,
        }
    }
}

impl ContractorConfig {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`ConfigError`] names the first that does not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fault = |parameter: &str, fault| ConfigError { parameter: parameter.to_owned(), fault };
        for (name, chance) in [
            ("silent", self.silent),
            ("refuse", self.refuse),
            ("late", self.late),
            ("revise", self.revise),
            ("withdraw", self.withdraw),
            ("decline", self.decline),
            ("ignore_award", self.ignore_award),
            ("fail", self.fail),
            ("stall", self.stall),
            ("cannot_cancel", self.cannot_cancel),
        ] {
            if !(0.0..=1.0).contains(&chance) {
                return Err(fault(name, "a chance is a number from 0 to 1"));
            }
        }
        let durations = [
            ("reply_delay_ms", &self.reply_delay_ms),
            ("late_by_ms", &self.late_by_ms),
            ("revise_after_ms", &self.revise_after_ms),
            ("withdraw_after_ms", &self.withdraw_after_ms),
            ("confirm_delay_ms", &self.confirm_delay_ms),
            ("perform_ms", &self.perform_ms),
        ];
        let terms = self.terms.iter().map(|(name, distribution)| (name.as_str(), distribution));
        for (name, distribution) in durations.into_iter().chain(terms) {
            distribution.check().map_err(|why| fault(name, why))?;
        }
        if self.terms.is_empty() || self.terms.len() > schemas::payload::TERMS_MAX {
            return Err(fault("terms", "an offer has 1 to 32 attributes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_make_no_sense_are_named() {
        assert_eq!(ContractorConfig::default().check(), Ok(()));
        for (json, parameter) in [
            (r#"{"refuse": 1.5}"#, "refuse"),
            (r#"{"fail": -0.1}"#, "fail"),
            (r#"{"perform_ms": {"uniform": {"lo": 5, "hi": 4}}}"#, "perform_ms"),
            (r#"{"terms": {}}"#, "terms"),
            (r#"{"terms": {"price": {"normal": {"mean": 1.0, "sd": -1.0, "lo": 0, "hi": 9}}}}"#, "price"),
        ] {
            let config: ContractorConfig = serde_json::from_str(json).unwrap();
            assert_eq!(config.check().unwrap_err().parameter, parameter);
        }
        assert!(serde_json::from_str::<ContractorConfig>(r#"{"refuze": 0.5}"#).is_err());
    }

    #[test]
    fn a_configuration_survives_text() {
        let config = ContractorConfig { seed: 7, valid_for_ms: Some(5), ..ContractorConfig::default() };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ContractorConfig>(&text).unwrap(), config);
    }
}
