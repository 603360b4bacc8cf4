//! What became of one call, in lines as it happens and as one document at the end.

use std::time::Duration;

use agents::{CallReport, CallRequest};
use schemas::delivery::{AwardReport, ContractorFailure, ContractorReport, OfferNews, Outcome};
use schemas::document::{DocumentHash, RoutineReport};
use schemas::payload::Terms;
use schemas::{Address, AgentId, AwardNo, Lot, NegotiationId, OfferId, Refusal};
use serde::{Deserialize, Serialize};

use crate::arguments::units;
use crate::english_auction;
use crate::listen::{cut, terms};
use crate::output::unopened;

/// Offers shown; the document holds them all.
const OFFERS_SHOWN_MAX: usize = 20;

/// Behind an end without offers: the initiator is not told of those that do not count, as they stay sealed.
const NOT_COUNTED: &str =
    ": everybody refused or was silent, or sent an offer that could not be read, or one outside the limits";

/// The course of a call. Serialises to what `llmx call --json` prints.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Serialize)]
pub struct Course {
    negotiation: NegotiationId,
    to: Vec<Address>,
    policy: Option<String>,
    invited: Option<u32>,
    left_out: Option<u32>,
    offers: Vec<Offered>,
    awards: Vec<Awarded>,
    failures: Vec<ContractorFailure>,
    /// How the negotiation ended; absent while it has not.
    outcome: Option<String>,
    detail: Option<String>,
    /// The gateway's refusal.
    refused: Option<Refusal>,
    /// Why the exchange did not open the call it had logged.
    turned_down: Option<String>,
    elapsed_ms: u64,
    /// Whether it was said that the call is made: what comes of it may arrive before the gateway's answer.
    #[serde(skip)]
    is_called: bool,
    #[serde(skip)]
    is_deadline_shown: bool,
    /// Whether the call names documents.
    #[serde(skip)]
    has_documents: bool,
    #[serde(skip)]
    is_auction: bool,
    /// Whether it requires that one of them is followed.
    #[serde(skip)]
    requires_document: bool,
}

/// An offer, seen after the close.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Offered {
    offer_id: OfferId,
    contractor: AgentId,
    terms: Terms,
    #[serde(default)]
    score: u32,
}

#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Serialize)]
struct Awarded {
    award_no: AwardNo,
    lot: Lot,
    contractor: AgentId,
    offer_id: OfferId,
    terms: Terms,
    payment: Option<i64>,
    score: u32,
    /// The protocol document that the award pins.
    document: Option<DocumentHash>,
    is_committed: bool,
    is_done: bool,
    result: Option<String>,
    /// What carried it out, where the contractor says.
    routine: Option<RoutineReport>,
}

/// What is read of `GET /v1/negotiations/{id}`.
#[derive(Debug, Deserialize)]
pub struct View {
    policy: Option<String>,
    reply_by: Option<String>,
    #[serde(default)]
    offers: Vec<Offered>,
}

impl Course {
    /// Of a call that is about to be made.
    pub fn new(negotiation: NegotiationId, request: &CallRequest) -> Self {
        Self {
            negotiation,
            to: request.to.clone(),
            policy: request.cfp.policy.clone(),
            invited: None,
            left_out: None,
            offers: Vec::new(),
            awards: Vec::new(),
            failures: Vec::new(),
            outcome: None,
            detail: None,
            refused: None,
            turned_down: None,
            elapsed_ms: 0,
            is_called: false,
            is_deadline_shown: false,
            has_documents: request.cfp.documents.is_some(),
            is_auction: request.cfp.auction.is_some(),
            requires_document: request.cfp.documents.as_ref().is_some_and(|documents| documents.require),
        }
    }

    /// The negotiation.
    pub fn negotiation(&self) -> &NegotiationId {
        &self.negotiation
    }

    /// The gateway's refusal, if that is how it ended.
    pub fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref()
    }

    /// Whether it was awarded and done, by a document where one is required.
    pub fn is_completed(&self) -> bool {
        self.outcome.as_deref() == Some("completed") && !self.is_done_in_words()
    }

    /// Whether a report says that it follows no document, where one is required.
    fn is_done_in_words(&self) -> bool {
        let follows_none = |award: &Awarded| award.routine.is_some_and(|routine| routine.hash.is_none());
        self.requires_document && self.awards.iter().any(follows_none)
    }

    /// Whether the exchange has taken the call, as far as it is known here.
    pub fn is_called(&self) -> bool {
        self.is_called
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Why it is not completed.
    pub fn fault(&self) -> String {
        match (&self.outcome, &self.turned_down) {
            (Some(_), _) if self.is_done_in_words() => {
                "done in words: the contractor followed no document, and one is required".to_owned()
            }
            (Some(outcome), _) => format!("not completed: {outcome}"),
            (None, Some(why)) => format!("the exchange did not open the call: {}", cut(why)),
            (None, None) => "nobody answered: the call may or may not have been made".to_owned(),
        }
    }

    /// Notes how long it took.
    pub fn finish(&mut self, elapsed: Duration) {
        self.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    }

    /// Notes the offers, once; what there is to say of them.
    pub fn handle_view(&mut self, view: View) -> Vec<String> {
        self.policy = view.policy.or(self.policy.take());
        let was_shown = std::mem::replace(&mut self.is_deadline_shown, true);
        let deadline = view.reply_by.filter(|_| !was_shown).map(|reply_by| format!("offers by  {reply_by}"));
        deadline.into_iter().chain(self.handle_offers(view.offers)).collect()
    }

    fn handle_offers(&mut self, mut offers: Vec<Offered>) -> Vec<String> {
        if !self.offers.is_empty() || offers.is_empty() {
            return Vec::new();
        }
        offers.sort_by(|one, other| other.score.cmp(&one.score).then(one.contractor.cmp(&other.contractor)));
        let shown = offers.iter().take(OFFERS_SHOWN_MAX);
        let mut said: Vec<String> = shown.map(|offer| offered(offer, self.is_auction)).collect();
        if offers.len() > OFFERS_SHOWN_MAX {
            said.push(format!("           and {} more", offers.len() - OFFERS_SHOWN_MAX));
        }
        self.offers = offers;
        said
    }

    /// Notes an event; what there is to say of it.
    pub fn handle(&mut self, news: CallReport) -> Vec<String> {
        match news {
            CallReport::Accepted { .. } => self.called().into_iter().collect(),
            CallReport::Refused(refusal) => {
                self.refused = Some(refusal);
                Vec::new()
            }
            CallReport::TurnedDown(disposition) => {
                let why = self.turned_down.take().unwrap_or_else(|| unopened(disposition));
                self.turned_down = Some(why);
                Vec::new()
            }
            CallReport::Unanswered => Vec::new(),
            // `llmx call` opens no panels, whose seats might be chosen.
            CallReport::Opened { invited, left_out, seats: _ } => {
                (self.invited, self.left_out) = (Some(invited), Some(left_out));
                let left_out = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
                let plural = if invited == 1 { "" } else { "s" };
                let invited = format!("invited    {invited} contractor{plural}{left_out}");
                self.called().into_iter().chain([invited]).collect()
            }
            CallReport::Misunderstood(misunderstanding) => {
                let at = misunderstanding.pointer.map(|pointer| format!(" at {pointer}")).unwrap_or_default();
                let why = format!("{}{at}", misunderstanding.reason);
                self.turned_down = Some(why.clone());
                vec![format!("not understood: {}", cut(&why))]
            }
            CallReport::Offers(news) => {
                let mut said = self.handle_offers(news.offers.into_iter().map(Offered::from).collect());
                said.push(format!("choosing   until {}, then the best score", news.decide_by));
                said
            }
            CallReport::Awarded(award) => self.handle_award(*award),
            CallReport::Committed(news) => {
                self.award(&news).into_iter().for_each(|award| award.is_committed = true);
                vec![format!("confirmed  {}", news.contractor)]
            }
            CallReport::Done(news) => {
                self.award(&news).into_iter().for_each(|award| {
                    award.is_done = true;
                    award.result.clone_from(&news.result);
                    award.routine = news.routine;
                });
                let routine = news.routine.map(|routine| format!(", routine {}", routine.kind.as_str()));
                let result = news.result.as_deref().map(|result| format!(": {}", cut(result))).unwrap_or_default();
                vec![format!("done       {}{}{result}", news.contractor, routine.unwrap_or_default())]
            }
            CallReport::Stopped(news) => vec![format!("stopped    {}", news.contractor)],
            CallReport::Failed(failure) => {
                let said = format!("failed     {}: {}", failure.contractor, cut(&failure.failure.code));
                self.failures.push(failure);
                vec![said]
            }
            CallReport::Found(finding) => {
                let (outcome, agreed, of) = (finding.outcome.as_str(), finding.agreed, finding.of);
                vec![format!("found      {}: {outcome}, {agreed} of {of} agree", cut(&finding.answer))]
            }
            CallReport::Bid(bid) => vec![format!("bid        {}", english_auction::standing(&bid))],
            CallReport::Closed(closing) => {
                let detail = closing.detail.as_deref().map(|detail| format!(" ({})", cut(detail))).unwrap_or_default();
                let hint = if closing.outcome == Outcome::NoOffers { NOT_COUNTED } else { "" };
                let said = format!("ended      {}{detail}{hint}", closing.outcome.as_str());
                (self.outcome, self.detail) = (Some(closing.outcome.as_str().to_owned()), closing.detail);
                vec![said]
            }
        }
    }

    /// That the call is made, once.
    fn called(&mut self) -> Option<String> {
        let was_called = std::mem::replace(&mut self.is_called, true);
        (!was_called).then(|| format!("called     {}", self.negotiation))
    }

    fn handle_award(&mut self, award: AwardReport) -> Vec<String> {
        let pays = award.payment.map(|payment| format!(", pays {}", units(payment))).unwrap_or_default();
        let plural = if award.offers == 1 { "" } else { "s" };
        let of = format!(" of {} offer{plural}", award.offers);
        let said = format!("awarded    {}: {}{pays},{of}", award.contractor, terms(&award.terms));
        let pinned = self.has_documents.then(|| match award.document {
            Some(document) => format!("document   {document}"),
            None => "document   none: the offer names none of the call's; the task is natural language".to_owned(),
        });
        self.awards.push(Awarded {
            award_no: award.award_no,
            lot: award.lot,
            contractor: award.contractor,
            offer_id: award.offer_id,
            terms: award.terms,
            payment: award.payment,
            score: award.score,
            document: award.document,
            is_committed: false,
            is_done: false,
            result: None,
            routine: None,
        });
        [said].into_iter().chain(pinned).collect()
    }

    fn award(&mut self, news: &ContractorReport) -> Option<&mut Awarded> {
        self.awards.iter_mut().find(|award| award.award_no == news.award_no)
    }
}

fn offered(offer: &Offered, is_auction: bool) -> String {
    // That of a bid is its number.
    let score = (!is_auction).then(|| format!(", score {:.3}", f64::from(offer.score) / 1_000_000.0));
    format!("offer      {}: {}{}", offer.contractor, terms(&offer.terms), score.unwrap_or_default())
}

impl From<OfferNews> for Offered {
    fn from(OfferNews { offer_id, contractor, terms, score, document: _ }: OfferNews) -> Self {
        Self { offer_id, contractor, terms, score }
    }
}

#[cfg(test)]
mod tests {
    use schemas::payload::Cfp;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_done_in_words_is_not_completed_where_a_document_is_required() {
        let hash = DocumentHash::of_bytes(b"a document");
        for (requires, routine, is_completed) in [
            (true, json!({"kind": "language"}), false),
            (true, json!({"kind": "native", "hash": hash}), true),
            (false, json!({"kind": "language"}), true),
        ] {
            let documents = Some(schemas::document::CallDocuments { hashes: vec![hash], require: requires });
            let request = CallRequest::new("n1", Vec::new(), Cfp { documents, ..Cfp::default() });
            let mut course = Course::new(NegotiationId::try_new("alice~n1").unwrap(), &request);
            course.handle(CallReport::Awarded(Box::new(read(json!({"contractor": "bob", "award_no": 1, "lot": 1,
                "offer_id": "o1-0", "terms": {}, "score": 1, "offers": 1, "document": hash,
                "reason": "all_responded", "complete": true, "decision": "0".repeat(64)})))));
            course.handle(CallReport::Done(read(
                json!({"contractor": "bob", "award_no": 1, "lot": 1, "routine": routine}),
            )));
            course.handle(CallReport::Closed(read(json!({"outcome": "completed", "digest": "0".repeat(64)}))));
            assert_eq!(course.is_completed(), is_completed, "{requires} {routine}");
            assert_eq!(course.fault().starts_with("done in words"), !is_completed);
        }
    }

    fn read<T: serde::de::DeserializeOwned>(document: Value) -> T {
        serde_json::from_value(document).unwrap()
    }
}
