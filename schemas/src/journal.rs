//! The journal of one negotiation, for people who look: not part of the protocol, never the ground of a decision, lost without
//! a loss.
//!
//! An engine answers with it on [`crate::subject::journal`]; gateways pass it on to administrators, because it holds
//! every offer, and where their console is open to everybody else without what agents wrote ([`Journal::withhold_texts`]).

use serde::{Deserialize, Serialize};

use crate::bargain::Issue;
use crate::delivery::Finding;
use crate::document::{DocumentHash, RoutineReport};
use crate::ids::{AgentId, AwardNo, DeliveryId, Lot, NegotiationId};
use crate::payload::Terms;
use crate::team::{Conclusion, Floor, Spoken};
use crate::time::Timestamp;

/// Most things a journal holds of one negotiation: the first and the last; what is left out between them is counted.
pub const HAPPENED_MAX: usize = 512;
/// Most issues of an offer that a journal holds.
pub const ISSUES_SHOWN_MAX: usize = 8;
/// Most values of an issue that a journal holds; of an issue with more it holds none.
pub const ISSUE_VALUES_SHOWN_MAX: usize = 64;
/// Most bytes of text in these values.
pub const ISSUE_TEXT_SHOWN_MAX: usize = 1024;

/// Most characters of a report's result that a journal holds.
pub const RESULT_SHOWN_MAX: usize = 256;

/// Most characters of a say, of a task's result, of a conclusion and of a panel's answer that a journal holds.
pub const SAID_SHOWN_MAX: usize = 256;

/// Asks for a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRequest {
    /// Of this negotiation.
    pub negotiation: NegotiationId,
}

/// What an engine remembers of one negotiation since it owns the lane; nothing survives the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The engine that tells.
    pub engine: String,
    /// What happened, in order: the first entries, then of what happened in between that which matters most, then the
    /// last.
    pub entries: Vec<JournalEntry>,
    /// How much more happened, all of it where `gap` says.
    pub left_out: u64,
    /// Where something was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// Deliveries that this engine sent and that wait for an acknowledgement, whether the journal names them or not.
    #[serde(default)]
    pub unacknowledged: u64,
}

impl Journal {
    /// Reads an engine's answer; it has none where it remembers nothing of the negotiation.
    ///
    /// # Errors
    /// The decoding error.
    pub fn decode_answer(answer: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        #[derive(Deserialize)]
        struct JournalAnswer {
            found: Option<Journal>,
        }
        Ok(serde_json::from_slice::<JournalAnswer>(answer)?.found)
    }

    /// Withholds what agents wrote for each other: results of tasks, codes of tasks that failed, titles, says, conclusions and
    /// the answers of a finding. Of a say, a conclusion and an answer an empty text is left, because that there was one is no
    /// secret.
    pub fn withhold_texts(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.what.withhold_texts());
    }
}

/// Where entries were left out: nothing is missing among those before `from`, nor among those from `to` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Index of the first entry behind the first that was left out.
    pub from: u64,
    /// Index of the first entry behind the last that was left out.
    pub to: u64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// When: log time of what was logged, the engine's clock of what it did.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// What happened. Texts are those of the protocol's own enumerations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happened {
    /// The call was logged.
    Called {
        /// `contract_net`, `alternating_offers`, `team`, `panel` or `english_auction`.
        protocol: String,
        /// Its policy.
        policy: String,
        /// Agents called.
        invited: u32,
        /// Addressed agents the gateway left out.
        left_out: u32,
    },
    /// A message was logged and disposed of.
    Message {
        /// Its sender.
        from: AgentId,
        /// Its act.
        act: String,
        /// What became of it.
        disposition: String,
        /// Score of an offer that satisfies the gates.
        score: Option<u32>,
    },
    /// The rules of a bargain, as every party is told them in its call.
    Rules {
        /// Who takes part, in the order of their turns.
        parties: Vec<AgentId>,
        /// What is bargained about: of the issues in the order of their names the first [`ISSUES_SHOWN_MAX`], as of the terms. One
        /// with more than [`ISSUE_VALUES_SHOWN_MAX`] values, or [`ISSUE_TEXT_SHOWN_MAX`] bytes of text, has no values here.
        issues: Vec<Issue>,
    },
    /// An offer stands in a bargain, as every party is told. Offers to a call for proposals are sealed, and their terms are in
    /// no journal.
    Proposed {
        /// Who offered.
        by: AgentId,
        /// The round, counted from 1.
        round: u32,
        /// Turns taken so far, in all rounds.
        step: u32,
        /// Its terms, at most [`ISSUES_SHOWN_MAX`] of them.
        terms: Terms,
    },
    /// A bid leads in an auction, as every bidder is told, and whose it is, which none of the others is told.
    Bid {
        /// Who bid.
        by: AgentId,
        /// The bid, counted from 1; the score of the message that it came in.
        bid_no: u32,
        /// The standing price, in micro-units.
        price: i64,
    },
    /// What a bargain agreed on, as every party is told.
    Agreed {
        /// Whose offer it was.
        by: AgentId,
        /// The round in which the last party accepted, counted from 1.
        round: u32,
        /// Turns taken, the last acceptance included.
        step: u32,
        /// Its terms, at most [`ISSUES_SHOWN_MAX`] of them.
        terms: Terms,
    },
    /// A step of a team, as its members are told; of each text the first [`SAID_SHOWN_MAX`] characters.
    Floor(Box<Floor>),
    /// What a team concluded, as its members are told; the first [`SAID_SHOWN_MAX`] characters of its text.
    Concluded(Box<Conclusion>),
    /// Members of a panel are asked: the first of them in this round, for this. Whom exactly, `sent` entries say.
    Asked {
        /// The round, counted from 1.
        round: u32,
        /// For what: `answer`, `rank` or `review`.
        kind: String,
    },
    /// What a panel found, as its initiator is told; of each answer the first [`SAID_SHOWN_MAX`] characters.
    Found(Box<Finding>),
    /// The state changed.
    Moved {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// Collection closed.
    Closed {
        /// The round.
        round: u32,
        /// Why.
        reason: String,
        /// Valid offers.
        offers: u32,
        /// Contractors that responded.
        responded: u32,
        /// Contractors called.
        expected: u32,
    },
    /// An award was decided.
    Decided {
        /// Who or what chose.
        cause: String,
        /// The valid offers in rank order, at most 64.
        ranked: Vec<Ranked>,
        /// Contractors that got the lots.
        winners: Vec<AgentId>,
        /// The protocol documents their awards pin, each once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        documents: Vec<DocumentHash>,
    },
    /// The register answered.
    Registered {
        /// The key.
        key: String,
        /// `written`, `same` or `different`.
        result: String,
    },
    /// Something was sent to an agent for the first time.
    Sent {
        /// The agent.
        to: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// No later entry says what became of it: it is sent once only, or that entry was left out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        settled: bool,
    },
    /// The agent acknowledged it.
    Acknowledged {
        /// The agent.
        by: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// Times it was sent.
        attempts: u32,
    },
    /// It was given up.
    GivenUp {
        /// The agent.
        to: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// Why.
        reason: String,
    },
    /// An award became binding.
    Committed {
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
    },
    /// The initiator was told that an award is done.
    Reported {
        /// The contractor.
        contractor: AgentId,
        /// The award.
        award_no: AwardNo,
        /// What carried it out, where the contractor says.
        #[serde(skip_serializing_if = "Option::is_none")]
        routine: Option<RoutineReport>,
        /// The first [`RESULT_SHOWN_MAX`] characters of the result, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// An award fell through.
    AwardLost {
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
        /// How.
        loss: String,
    },
    /// It ended.
    Ended {
        /// How.
        outcome: String,
        /// Since the call.
        elapsed_us: u64,
    },
}

impl Happened {
    /// As [`Journal::withhold_texts`].
    fn withhold_texts(&mut self) {
        match self {
            Self::Reported { result, .. } => *result = None,
            Self::Concluded(conclusion) => conclusion.text.clear(),
            Self::Floor(floor) => {
                if let Some(Spoken::Text { text }) = &mut floor.said {
                    text.clear();
                }
                for task in &mut floor.tasks {
                    (task.title, task.result, task.code) = (None, None, None);
                }
                floor.conclusion.iter_mut().for_each(|conclusion| conclusion.text.clear());
            }
            Self::Found(finding) => {
                (finding.answer, finding.key) = ("".into(), None);
                finding
                    .panelists
                    .iter_mut()
                    .filter_map(|seat| seat.answer.as_mut())
                    .for_each(|answer| *answer = "".into());
            }
            Self::Called { .. }
            | Self::Message { .. }
            | Self::Rules { .. }
            | Self::Proposed { .. }
            | Self::Bid { .. }
            | Self::Agreed { .. }
            | Self::Asked { .. }
            | Self::Moved { .. }
            | Self::Closed { .. }
            | Self::Decided { .. }
            | Self::Registered { .. }
            | Self::Sent { .. }
            | Self::Acknowledged { .. }
            | Self::GivenUp { .. }
            | Self::Committed { .. }
            | Self::AwardLost { .. }
            | Self::Ended { .. } => {}
        }
    }
}

/// An offer in its rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// Who offered.
    pub contractor: AgentId,
    /// Its score, in parts per million.
    pub score: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WireTime;

    #[test]
    fn a_step_of_a_team_stands_in_its_entry_and_comes_back_as_it_was() {
        let told = r#"{"step": 2, "turn": 2, "turns_left": 6, "state": "discussing", "speaker": "bob", "by": "alice",
            "ends_by": "2026-11-20T22:10:00.000Z", "said": {"text": "well"}}"#;
        let floor: Floor = serde_json::from_str(told).unwrap();
        assert_eq!(floor.ends_by, WireTime(Timestamp::from_ms(1_795_212_600_000)));
        let entry = JournalEntry { at: Timestamp(7), what: Happened::Floor(Box::new(floor)) };
        let text = serde_json::to_string(&entry).unwrap();
        assert!(text.starts_with(r#"{"at":7,"what":"floor","step":2,"#), "{text}");
        assert_eq!(serde_json::from_str::<JournalEntry>(&text).unwrap(), entry);
    }

    #[test]
    fn an_entry_is_one_flat_document() {
        let what = Happened::Moved { from: "collecting".to_owned(), to: "deciding".to_owned() };
        let entry = JournalEntry { at: Timestamp(7), what };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(text, r#"{"at":7,"what":"moved","from":"collecting","to":"deciding"}"#);
        assert_eq!(serde_json::from_str::<JournalEntry>(&text).unwrap(), entry);
    }
}
