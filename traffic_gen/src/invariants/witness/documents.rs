//! Protocol documents: which calls and offers name, which awards pin, under which work is reported
//! (docs/spec/agora.md#ag-31).

use std::collections::BTreeMap;

use schemas::delivery::ContractorReport;
use schemas::{AgentId, AwardNo, DocumentHash, MsgId, NegotiationId, OfferId};
use serde::Deserialize;

use super::payload;
use crate::invariants::{Invariant, Verdict};

/// The documents of one negotiation, as its agents said and were told.
#[derive(Debug, Clone, Default)]
pub(super) struct DocumentsSeen {
    /// What the call names; absent as long as nobody was told of it.
    called: Option<Vec<DocumentHash>>,
    /// What each message that is an offer names; absent where two of them under one id name others, of which only one was
    /// admitted.
    offered: BTreeMap<(AgentId, MsgId), Option<Vec<DocumentHash>>>,
    /// The message of each offer.
    messages: BTreeMap<OfferId, (AgentId, MsgId)>,
    /// The offer of each award and the document it pins, as its contractor and its initiator were told.
    pinned: Vec<(AwardNo, OfferId, Option<DocumentHash>)>,
    /// The award of each report, and the document it names.
    reported: Vec<(AwardNo, DocumentHash)>,
}

impl DocumentsSeen {
    /// An agent sent an offer.
    pub(super) fn sent_offer(&mut self, agent: &AgentId, msg_id: &MsgId, document: &[u8]) {
        #[derive(Deserialize)]
        struct OfferNaming {
            #[serde(default)]
            documents: Vec<DocumentHash>,
        }
        let Some(OfferNaming { documents }) = payload(document) else { return };
        let named = Some(documents);
        let earlier = self.offered.entry((agent.clone(), msg_id.clone())).or_insert_with(|| named.clone());
        if *earlier != named {
            *earlier = None;
        }
    }

    pub(super) fn told_call(&mut self, named: &[DocumentHash]) {
        self.called.get_or_insert_with(|| named.to_vec());
    }

    pub(super) fn told_offer_id(&mut self, offer: OfferId, agent: &AgentId, msg_id: &MsgId) {
        self.messages.insert(offer, (agent.clone(), msg_id.clone()));
    }

    pub(super) fn told_award(&mut self, award_no: AwardNo, offer: OfferId, document: Option<DocumentHash>) {
        self.pinned.push((award_no, offer, document));
    }

    pub(super) fn told_report(&mut self, report: &ContractorReport) {
        let named = report.routine.and_then(|routine| routine.hash);
        self.reported.extend(named.map(|hash| (report.award_no, hash)));
    }

    pub(super) fn judge(&self, id: &NegotiationId, verdict: &mut Verdict) {
        for (award_no, offer, pinned) in &self.pinned {
            let message = self.messages.get(offer).and_then(|message| self.offered.get(message)?.as_ref());
            let (Some(called), Some(offered)) = (&self.called, message) else { continue };
            let first = called.iter().find(|wanted| offered.contains(wanted)).copied();
            verdict.check(Invariant::Pinned, *pinned == first, || {
                format!("award {award_no} of {id} pins {pinned:?}, its offer {offer} has {first:?}")
            });
        }
        for (award_no, named) in &self.reported {
            let told: Vec<_> = self.pinned.iter().filter(|(no, ..)| no == award_no).collect();
            let is_other = !told.is_empty() && told.iter().all(|(.., pinned)| *pinned != Some(*named));
            verdict.check(Invariant::Pinned, !is_other, || {
                format!("the report on award {award_no} of {id} names {named}, the award pins another document or none")
            });
        }
    }
}
