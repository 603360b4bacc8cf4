//! The invariants (ARCHITECTURE.md, "What must never happen"), checked from what agents sent, were told and received: never from the
//! engine's own state, so a fault of the engine cannot hide itself.
//!
//! Each check counts how often it was made: an invariant that was never checked has not been shown.

mod watch;
mod witness;

use std::collections::BTreeMap;

use archive::audit::{AuditError, AuditReport, read_bus, verify};
use bus::Bus;
use serde::Serialize;

pub use watch::Watch;
pub use witness::{IsInside, Witness, judge_mandates_by};

/// The names of the invariants. Those that only some runs can show stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Invariant {
    /// At most one live award per lot.
    OneAward,
    /// What was answered 202 gets a disposition.
    NoLostAdmission,
    /// Every decision can be recomputed from the log.
    Recomputable,
    /// A repeated delivery repeats its content.
    Idempotent,
    /// Only an offer that was applied, and not withdrawn before, wins.
    NoLateWinner,
    /// Every accepted offer ends in exactly one final notice.
    FinalNotice,
    /// All that are told the outcome are told the same.
    Absorbing,
    /// Every negotiation ends.
    Terminates,
    /// No contractor receives another's offer or terms.
    Sealed,
    /// In a bargain actors strictly rotate, nobody accepts its own offer, and the agreement is what stood last, told to all
    /// alike and within every party's mandate.
    TurnOrder,
    /// An award pins the first of the call's protocol documents that its offer names, and a report that is passed on names
    /// no other.
    Pinned,
    /// What is passed on as an agent's act was sent by that agent.
    Authentic,
    /// A call to a topic or group reaches whoever is present, and of the absent only whom it must.
    Invited,
    /// An acknowledgement is passed on whole and under its agent's name, and an engine that has heard it sends nothing
    /// again.
    Acknowledged,
    /// In a team every applied act of the floor came from the member that held it.
    OneFloor,
    /// In a team no more turns of discussion are taken than its rules allow.
    TurnLimit,
    /// Nothing of a team reaches an agent without a seat.
    MembersOnly,
    /// Members of a team hold the same steps with the same content.
    SameStory,
    /// A team that waits for tasks goes on in the step in which the last of them has ended, with whoever waited, and says nothing
    /// before.
    Wakes,
    /// A task of a team ends once, with what the member reported that was bound to it.
    OneResult,
    /// Who has a seat in a team has joined, and there are as many as its rules allow.
    Seated,
    /// A sub-team has concluded if and only if its task has that text as result, in the same record.
    FlowsUp,
    /// A sub-team is open only while the award that it works for is committed.
    NoOrphan,
    /// A panel has one finding at most, told once it ended with one, and the end says the same.
    OneFinding,
    /// A consensus is the same answer of more than two thirds of the members of its round.
    Quorum,
    /// Nothing of a panel's running round is shown to who is asked in it, and its finding to its initiator alone.
    RoundSealed,
    /// Who is asked is shown answers of the round before, its own apart, and of each what reviewers said of it; and no others. An
    /// answer that came late counts nowhere.
    NoStaleAnswer,
    /// Who goes on after a selection is settled: as many as the rules keep, and nobody else is asked, shown or counted.
    SelectionFinal,
    /// A panel asks no more than its rules allow, and as often as it says.
    CallsBounded,
    /// The importance of a panel's seats sums to 1 in every round, and that of its reviewers in every review.
    ImportanceConserved,
    /// No rating moves its author's own importance in the round it rates.
    OwnRatingInert,
    /// In what order the answers of a wave come changes nothing a panel asks or finds.
    OrderFree,
    /// Every panel counts in the evidence once, whoever owns its lane and however often it is replayed.
    LedgerOnce,
    /// A call pins the reputation of those it invites as evidence is then, and nothing later alters it.
    ReputationPinned,
    /// In an English auction the standing price moves one way by at least a step, nobody outbids itself, and the lot goes to the last
    /// bid, at its price and within the reserve.
    StandingBid,
    /// What is taken in while every part of the exchange keeps its pace ends by its policy, not for lack of time.
    EndsByPolicy,
    /// Overload refuses opening acts alone, those of who calls too much, and never what was taken in before.
    ShedsOpenings,
    /// No queue or map passed its limit.
    Bounded,
}

impl Invariant {
    /// Every invariant, in the order of reports.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name as it stands in reports.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether only some runs can show it: those with bargains, with teams, with panels, or in which the log is folded again or
    /// it is known what a gateway or an engine has heard. Others leave it unchecked.
    pub fn needs_more_than_rounds(self) -> bool {
        matches!(self, Self::TurnOrder | Self::Invited | Self::Acknowledged)
            || (Self::OneFloor..=Self::ShedsOpenings).contains(&self)
    }

    /// Whether only teams can show it.
    pub fn is_of_teams(self) -> bool {
        (Self::OneFloor..=Self::NoOrphan).contains(&self)
    }

    /// Whether only panels can show it.
    pub fn is_of_panels(self) -> bool {
        (Self::OneFinding..=Self::ImportanceConserved).contains(&self)
    }
}

/// How often an invariant was checked, and how often it did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Checks made.
    pub checked: u64,
    /// Checks that failed.
    pub violated: u64,
}

/// The verdict over a run: of invariants, or of other checks.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict<C = Invariant> {
    /// By invariant, or check.
    pub by_name: BTreeMap<C, Tally>,
    /// The first few violations, in words.
    pub examples: Vec<String>,
}

/// Violations described in words; the rest is only counted.
const EXAMPLES_MAX: usize = 20;

impl<C> Default for Verdict<C> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), examples: Vec::new() }
    }
}

impl<C: Copy + Ord + Into<&'static str>> Verdict<C> {
    /// Counts one check; `describe` is asked for words only when it failed.
    pub fn check(&mut self, check: C, holds: bool, describe: impl FnOnce() -> String) {
        let tally = self.by_name.entry(check).or_default();
        tally.checked += 1;
        if !holds {
            tally.violated += 1;
            if self.examples.len() < EXAMPLES_MAX {
                self.examples.push(format!("{}: {}", check.into(), describe()));
            }
        }
    }

    /// Adds what another run showed.
    pub fn absorb(&mut self, other: Self) {
        for (check, tally) in other.by_name {
            let sum = self.by_name.entry(check).or_default();
            sum.checked += tally.checked;
            sum.violated += tally.violated;
        }
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }

    /// What did not hold.
    pub fn violated_checks(&self) -> impl Iterator<Item = C> {
        self.by_name.iter().filter(|(_, tally)| tally.violated > 0).map(|(check, _)| *check)
    }

    /// Violations of all.
    pub fn violated(&self) -> u64 {
        self.by_name.values().map(|tally| tally.violated).sum()
    }
}

/// Replays what a bus holds and adds the outcome to a verdict.
///
/// # Errors
/// [`AuditError`].
pub async fn recompute(bus: &Bus, verdict: &mut Verdict) -> Result<AuditReport, AuditError> {
    let report = verify(&read_bus(bus).await?, None);
    for _ in 1..report.decisions {
        verdict.check(Invariant::Recomputable, true, String::new);
    }
    let difference = report.first_difference.clone();
    verdict.check(Invariant::Recomputable, difference.is_none(), || difference.unwrap_or_default());
    Ok(report)
}
