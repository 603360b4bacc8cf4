//! What panels have shown about agents, as this gateway knows it: the ledgers that engines store, one of each lane, added up
//! when somebody asks (docs/spec/panel.md#evidence).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::{Blobs, Bus, BusError, Received};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use policy_core::panel::reputation::{ReputationBasis, reputation};
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSource, EvidenceSubject, LaneEvidence};
use schemas::ids::DomainName;
use schemas::{AgentId, Lane, subject};
use tokio_util::sync::CancellationToken;

use super::Registry;

/// Pause before a ledger that could not be read is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// The ledgers by lane.
#[derive(Debug, Default)]
pub(crate) struct EvidenceTable {
    lanes: BTreeMap<Lane, Arc<LaneEvidence>>,
}

impl EvidenceTable {
    /// Takes the ledger of a lane, unless a later one is known.
    fn take(&mut self, lane: Lane, mut evidence: LaneEvidence) {
        if self.lanes.get(&lane).is_none_or(|known| known.position <= evidence.position) {
            evidence.entries.sort_by(|one, other| one.subject.cmp(&other.subject));
            self.lanes.insert(lane, Arc::new(evidence));
        }
    }

    /// The entries of a domain whose subject is wanted, the lanes added up, in the order of their subjects.
    pub(crate) fn of_domain(
        &self,
        domain: &DomainName,
        is_wanted: impl Fn(&EvidenceSubject) -> bool,
    ) -> BTreeMap<&EvidenceSubject, EvidenceCounts> {
        let mut sums: BTreeMap<&EvidenceSubject, EvidenceCounts> = BTreeMap::new();
        for EvidenceEntry { subject, counts } in self.entries_of(|subject| subject.domain.cmp(domain)) {
            if is_wanted(subject) {
                sums.entry(subject).or_default().add(counts);
            }
        }
        sums
    }

    /// The reputation of an agent as a panelist of a domain; none without enough evidence.
    pub(crate) fn reputation(&self, domain: &DomainName, agent: &AgentId, basis: ReputationBasis<'_>) -> Option<u64> {
        let wanted = (domain, agent, EvidenceRole::Panelist);
        let entries = self.entries_of(|subject| (&subject.domain, &subject.agent, subject.role).cmp(&wanted));
        let shown = entries.map(|entry| (&entry.subject.initiator, entry.counts));
        // What several lanes have of an initiator is added up anyway, where the panels of all are not told apart.
        if *basis.from != EvidenceSource::All {
            return reputation(shown, basis);
        }
        let mut by_initiator: BTreeMap<&AgentId, EvidenceCounts> = BTreeMap::new();
        shown.for_each(|(initiator, counts)| by_initiator.entry(initiator).or_default().add(&counts));
        reputation(by_initiator.into_iter(), basis)
    }

    /// The entries of each lane that stand where `place` says equal.
    fn entries_of(
        &self,
        place: impl Fn(&EvidenceSubject) -> std::cmp::Ordering,
    ) -> impl Iterator<Item = &EvidenceEntry> {
        self.lanes.values().flat_map(move |evidence| {
            let entries = &evidence.entries;
            let begin = entries.partition_point(|entry| place(&entry.subject).is_lt());
            // An agent has few entries: looking at them is less than a second search.
            let rest = entries.get(begin..).unwrap_or_default();
            let count = rest.iter().take_while(|entry| place(&entry.subject).is_eq()).count();
            rest.get(..count).unwrap_or_default()
        })
    }
}

/// The task of a gateway that follows the ledgers.
pub(crate) struct EvidenceFollower {
    blobs: Arc<dyn Blobs>,
    notices: BoxStream<'static, Received>,
    registry: Arc<Registry>,
    /// Lanes whose ledger is to be read.
    unread: BTreeSet<Lane>,
    lanes: u8,
}

impl EvidenceFollower {
    /// Listens from now on.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    pub(crate) async fn subscribe(bus: &Bus, registry: Arc<Registry>) -> Result<Self, BusError> {
        let notices = bus.pub_sub.subscribe(subject::ALL_EVIDENCE.to_owned(), None).await?;
        let lanes = bus.log.lanes();
        let unread = (0..lanes).map(Lane).collect();
        Ok(Self { blobs: bus.blobs.clone(), notices, registry, unread, lanes })
    }

    /// Follows until the gateway stops.
    pub(crate) async fn drive(mut self, stop: CancellationToken) {
        loop {
            self.read().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                notice = self.notices.next() => match notice {
                    Some(notice) => self.handle_notice(&notice),
                    None => return,
                },
                () = tokio::time::sleep(AGAIN), if !self.unread.is_empty() => {}
            }
        }
    }

    fn handle_notice(&mut self, notice: &Received) {
        let Some(lane) = subject::evidence_lane_of(&notice.subject).filter(|lane| lane.0 < self.lanes) else { return };
        let position: Option<u64> = std::str::from_utf8(&notice.payload).ok().and_then(|text| text.parse().ok());
        let known = self.registry.read().evidence.lanes.get(&lane).map_or(0, |evidence| evidence.position);
        if position.is_some_and(|position| position > known) {
            self.unread.insert(lane);
        }
    }

    async fn read(&mut self) {
        for lane in std::mem::take(&mut self.unread) {
            match self.blobs.value(subject::evidence_document(lane)).await {
                Ok(None) => {}
                Ok(Some(document)) => match serde_json::from_slice::<LaneEvidence>(&document) {
                    Ok(evidence) => self.registry.tables.write().evidence.take(lane, evidence),
                    Err(error) => {
                        tracing::error!(lane = lane.0, %error, "stored evidence is not readable; it is left out")
                    }
                },
                Err(error) => {
                    tracing::debug!(lane = lane.0, %error, "evidence was not read; it is asked for again");
                    self.unread.insert(lane);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::evidence::EvidenceSource;

    use super::*;

    #[test]
    fn lanes_are_added_up_and_an_earlier_ledger_replaces_no_later_one() {
        let mut table = EvidenceTable::default();
        table.take(Lane(0), evidence(5, &[("algebra", "ann", "alice", 4), ("algebra", "bob", "alice", 1)]));
        table.take(Lane(1), evidence(9, &[("zoology", "ann", "alice", 7), ("algebra", "ann", "alice", 8)]));
        table.take(Lane(1), evidence(8, &[("algebra", "ann", "alice", 100)]));
        let algebra = DomainName::try_new("algebra").unwrap();
        let runs = |is_wanted: fn(&EvidenceSubject) -> bool| -> Vec<(String, u64)> {
            let found = table.of_domain(&algebra, is_wanted).into_iter();
            found.map(|(subject, counts)| (subject.agent.to_string(), counts.runs)).collect()
        };
        assert_eq!(runs(|_| true), [("ann".to_owned(), 12), ("bob".to_owned(), 1)]);
        assert_eq!(runs(|subject| subject.agent.as_str() == "bob"), [("bob".to_owned(), 1)]);

        let (ann, alice) = (agent("ann"), agent("alice"));
        let reputation = |from: &EvidenceSource, own: &AgentId| {
            table.reputation(&algebra, &ann, ReputationBasis { from, own, min_runs: 12, prior_runs: 12 })
        };
        assert_eq!(reputation(&EvidenceSource::Own, &alice), Some(1_500_000), "only both lanes make twelve panels");
        assert_eq!(reputation(&EvidenceSource::Own, &ann), None);
    }

    /// Twice the fair share in every panel.
    fn evidence(position: u64, entries: &[(&str, &str, &str, u64)]) -> LaneEvidence {
        let entry = |(domain, name, initiator, runs): &(&str, &str, &str, u64)| EvidenceEntry {
            subject: EvidenceSubject {
                domain: DomainName::try_new(domain).unwrap(),
                agent: agent(name),
                role: EvidenceRole::Panelist,
                initiator: agent(initiator),
            },
            counts: EvidenceCounts { runs: *runs, total_e12: 2 * runs, fair_e12: *runs, ..EvidenceCounts::default() },
        };
        LaneEvidence { position, entries: entries.iter().map(entry).collect() }
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
