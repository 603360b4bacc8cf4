//! An initiator's choice among offers, made by a model (docs/spec/contract-net.md#cn-35).
//!
//! The model is shown typed terms in an order drawn for the prompt, and answers with an index into that list. What it cannot do:
//! choose what was not offered, or what the owner's limits exclude, which the call has as gates besides. Without a usable
//! answer in time the offer with the best score is accepted, as the exchange itself would.

mod question;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::delivery::OfferNews;
use schemas::policy::Gate;
use schemas::{OfferId, Timestamp};

use super::config::{ModelAgentConfig, ModelDeciderConfig};
use super::consultant::{Consultant, Subject};
use crate::initiator::{OfferChooser, OpenDecision};

pub use question::{OfferChoice, OffersQuestion};

/// How long before `decide_by` a model's answer is of use at the latest: the acceptance has to be admitted as well.
const DECIDE_MARGIN_MS: u64 = 500;

/// A decider that asks a model.
pub struct ModelDecider {
    config: Arc<ModelAgentConfig>,
    consultant: Arc<Consultant>,
    seed: u64,
    counts: Arc<DecisionCounts>,
}

#[derive(Debug, Default)]
struct DecisionCounts {
    chosen: AtomicU64,
    fallbacks: AtomicU64,
}

/// What decisions came to, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelDeciderCounts {
    /// Choices of the model.
    pub chosen: u64,
    /// Decisions without it: by the best score.
    pub fallbacks: u64,
}

impl ModelDecider {
    /// A decider. `seed` draws the order of offers and makes the markers around words of others, who must not know it.
    #[must_use]
    pub fn new(config: Arc<ModelAgentConfig>, consultant: Arc<Consultant>, seed: u64) -> Self {
        Self { config, consultant, seed, counts: Arc::default() }
    }

    /// What it has decided so far.
    #[must_use]
    pub fn counts(&self) -> ModelDeciderCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ModelDeciderCounts { chosen: count(&self.counts.chosen), fallbacks: count(&self.counts.fallbacks) }
    }

    /// The model, with its accounts.
    #[must_use]
    pub fn consultant(&self) -> &Arc<Consultant> {
        &self.consultant
    }

    /// What it is configured with.
    #[must_use]
    pub fn config(&self) -> &Arc<ModelAgentConfig> {
        &self.config
    }
}

impl OfferChooser for ModelDecider {
    fn choose(&self, decision: OpenDecision) -> BoxFuture<'static, Option<OfferId>> {
        let (consultant, counts) = (Arc::clone(&self.consultant), Arc::clone(&self.counts));
        let subject = subject(&decision);
        let best = best(&self.config.initiator, &decision.report.offers);
        let question = OffersQuestion::new(subject.clone(), &decision.report.offers, &self.config, self.seed);
        async move {
            match consultant.consult(&subject, question).await {
                Ok(choice) => {
                    counts.chosen.fetch_add(1, Ordering::Relaxed);
                    Some(choice.offer_id)
                }
                Err(reason) => {
                    counts.fallbacks.fetch_add(1, Ordering::Relaxed);
                    let negotiation = &subject.negotiation;
                    tracing::debug!(%negotiation, reason = reason.as_str(), "the best score decides");
                    best
                }
            }
        }
        .boxed()
    }
}

/// Who asks about which offers, and until when.
#[must_use]
pub fn subject(decision: &OpenDecision) -> Subject {
    let OpenDecision { agent, negotiation, traceparent, closed_at, report } = decision;
    let deadline = Timestamp(report.decide_by.0.0.saturating_sub(DECIDE_MARGIN_MS * 1000));
    Subject::new(agent, negotiation, traceparent.as_deref(), (*closed_at, deadline))
}

/// The offer with the best score that the owner's limits allow; of several, the first in the exchange's order.
#[must_use]
pub fn best(config: &ModelDeciderConfig, offers: &[OfferNews]) -> Option<OfferId> {
    let allowed = offers.iter().filter(|offer| config.allows(&offer.terms));
    // `max_by_key` takes the last of equals.
    allowed.rev().max_by_key(|offer| offer.score).map(|offer| offer.offer_id)
}

impl ModelDeciderConfig {
    /// The owner's limits as gates of a call: the exchange keeps them too, whatever a model says.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate> {
        let is_limited = |gate: &Gate| gate.min.is_some() || gate.max.is_some() || gate.one_of.is_some();
        let gate = |(attr, term): (&schemas::ids::AttrName, &super::config::TermConfig)| Gate {
            attr: attr.clone(),
            min: term.min,
            max: term.max,
            one_of: Some(term.values.clone()).filter(|values| !values.is_empty()),
            required: true,
        };
        self.terms.iter().map(gate).filter(is_limited).collect()
    }
}

#[cfg(test)]
mod tests;
