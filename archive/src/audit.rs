//! Recomputing every decision: from a live bus or from an exported file, compared byte for byte with what was
//! registered and decided (invariant "recomputable").
//!
//! An export is one JSON document per line, `{"line":…,"chain":…}`. The line is `{"record":…}` for each record of the log,
//! `{"register":…}` for each entry of the register, `{"decision":…}` for each decision record, and at last `{"end":…}` with
//! their number; the chain is a digest of the line and of the chain before it.

mod file;

use std::collections::{BTreeMap, BTreeSet};

use bus::{Bus, BusError};
use futures_util::StreamExt;
use policy_core::Limits;
use policy_core::replay::{RecomputedDecision, Replay};
use schemas::evidence::LaneEvidence;
use schemas::record::{Entry, Record, RecordError};
use schemas::{Lane, NegotiationId, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::comparison::{first_difference, shown};

pub use file::{export, read};

/// What can go wrong before there is a verdict.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A record cannot be read.
    #[error("record {seq}: {source}")]
    Record {
        /// Its sequence.
        seq: u64,
        /// The fault.
        source: RecordError,
    },
    /// The log no longer begins at its beginning, and state comes from all records.
    #[error(
        "lane {lane}: the log was trimmed up to record {trimmed} and can be replayed only from its beginning: replay the \
         archive (`llmx replay DIR`), which holds what was trimmed"
    )]
    Trimmed {
        /// The lane.
        lane: Lane,
        /// Trimmed up to here.
        trimmed: u64,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// A line is none of an export's.
    #[error("line {line}: {fault}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        fault: String,
    },
}

/// A record as it stands in a log.
#[derive(Debug, Clone)]
pub struct LoggedRecord {
    /// Its lane.
    pub lane: Lane,
    /// Its sequence.
    pub seq: u64,
    /// Its time.
    pub time: Timestamp,
    /// Its content.
    pub record: Record,
}

/// A log with what was registered and decided on it.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The records, in order within each lane.
    pub records: Vec<LoggedRecord>,
    /// The register.
    pub register: BTreeMap<RegisterKey, Vec<u8>>,
    /// The decision records in canonical form, in the order of the log; absent when read from a bus, which keeps their
    /// digests only.
    pub decisions: Option<Vec<String>>,
    /// Records that are none of the exchange's; engines skip them.
    pub unreadable: u64,
    /// A fault of the file as a whole, found while reading it.
    pub fault: Option<String>,
}

/// What replaying a ledger showed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditReport {
    /// Records folded.
    pub records: u64,
    /// Messages in them.
    pub messages: u64,
    /// Records on the log's subjects that are none of the exchange's, skipped as engines skip them.
    pub unreadable: u64,
    /// Decisions recomputed.
    pub decisions: u64,
    /// Register entries compared.
    pub register_entries: u64,
    /// The first difference, in words; absent when everything is equal.
    pub first_difference: Option<String>,
    /// The recomputed decision records in canonical form.
    #[serde(skip)]
    pub recomputed: Vec<String>,
    /// What the panels of each lane have shown, whatever negotiation was asked about.
    #[serde(skip)]
    pub evidence: Vec<LaneEvidence>,
}

/// Reads the log and the register of a bus, as far as they go now.
///
/// # Errors
/// [`AuditError`]; [`AuditError::Trimmed`] when the beginning is gone.
pub async fn read_bus(bus: &Bus) -> Result<Ledger, AuditError> {
    let mut ledger = Ledger::default();
    for lane in (0..bus.log.lanes()).map(Lane) {
        let last = bus.log.last_seq(lane).await?;
        if last == 0 {
            continue;
        }
        let mut records = match bus.log.read(lane, 1).await {
            Ok(records) => records,
            Err(BusError::Trimmed(trimmed)) => return Err(AuditError::Trimmed { lane, trimmed }),
            Err(error) => return Err(error.into()),
        };
        while let Some(found) = records.next().await {
            let found = found?;
            match Record::decode(&found.bytes) {
                Ok(record) => ledger.records.push(LoggedRecord { lane, seq: found.seq, time: found.time, record }),
                // Engines skip what no gateway wrote, on every engine alike; so does a replay.
                Err(RecordError::Unreadable(_)) => ledger.unreadable += 1,
                Err(source @ RecordError::Version { .. }) => return Err(AuditError::Record { seq: found.seq, source }),
            }
            if found.seq >= last {
                break;
            }
        }
    }
    let entries = bus.register.entries().await?;
    ledger.register = entries.into_iter().map(|(key, value)| (key, value.to_vec())).collect();
    Ok(ledger)
}

/// Replays a ledger, or one negotiation of it, and compares.
#[must_use]
pub fn verify(ledger: &Ledger, only: Option<&NegotiationId>) -> AuditReport {
    let mut replay = Replay::new(Limits::default());
    let mut report = AuditReport { unreadable: ledger.unreadable, ..AuditReport::default() };
    for logged in &ledger.records {
        replay.handle_record(logged.lane, logged.seq, logged.time, &logged.record);
        report.records += 1;
        report.messages +=
            logged.record.entries.iter().filter(|entry| matches!(entry, Entry::Message(_))).count() as u64;
    }
    let is_wanted = |id: &NegotiationId| only.is_none_or(|only| only == id);
    let decisions = replay.decisions().iter().filter(|decision| is_wanted(decision.negotiation()));
    report.recomputed = decisions.map(RecomputedDecision::text).collect();
    report.decisions = report.recomputed.len() as u64;
    report.register_entries = ledger.register.keys().filter(|key| is_wanted(key.negotiation())).count() as u64;
    let lanes: BTreeSet<Lane> = ledger.records.iter().map(|logged| logged.lane).collect();
    let states = lanes.into_iter().filter_map(|lane| replay.lane_state(lane));
    report.evidence = states.map(|state| state.evidence().published(state.position())).collect();
    report.first_difference = forged(&replay)
        .or_else(|| decided_otherwise(ledger, &report, only))
        .or_else(|| registered_otherwise(ledger, &replay, only))
        .or_else(|| ledger.fault.clone());
    report
}

fn forged(replay: &Replay) -> Option<String> {
    let forgery = replay.forgeries().first()?;
    Some(format!(
        "message {}.{}: its body has digest {}, recorded is {}",
        forgery.seq, forgery.index, forgery.computed, forgery.recorded
    ))
}

fn decided_otherwise(ledger: &Ledger, report: &AuditReport, only: Option<&NegotiationId>) -> Option<String> {
    let recorded = ledger.decisions.as_ref()?;
    let mine = |text: &&String| only.is_none_or(|only| text.contains(&format!("\"negotiation\":\"{only}\"")));
    let recorded: Vec<&String> = recorded.iter().filter(mine).collect();
    let recomputed = &report.recomputed;
    let at = |number: usize| (recomputed.get(number), recorded.get(number).copied());
    let number = (0..recomputed.len().max(recorded.len())).find(|number| {
        let (recomputed, recorded) = at(*number);
        recomputed != recorded
    })?;
    let name = |text: &str| serde_json::from_str::<NamedDecision>(text).map(|named| named.negotiation).ok();
    let told = |of: Option<String>, what: &str| {
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        format!("decision {}{of}{what}", number + 1)
    };
    Some(match at(number) {
        (Some(recomputed), Some(recorded)) => {
            told(name(recomputed), &format!(": {}", first_difference(recomputed, recorded)))
        }
        (Some(recomputed), None) => {
            told(name(recomputed), &format!("\n  recomputed {}\n  recorded   nothing", shown(recomputed.as_bytes())))
        }
        (None, recorded) => {
            let recorded = recorded.map_or("", String::as_str);
            told(name(recorded), &format!("\n  recomputed nothing\n  recorded   {}", shown(recorded.as_bytes())))
        }
    })
}

/// Of a decision record, whose it is.
#[derive(Deserialize)]
struct NamedDecision {
    negotiation: String,
}

fn registered_otherwise(ledger: &Ledger, replay: &Replay, only: Option<&NegotiationId>) -> Option<String> {
    let register: BTreeMap<RegisterKey, Vec<u8>> = match only {
        None => ledger.register.clone(),
        Some(only) => {
            let entries = ledger.register.iter().filter(|(key, _)| key.negotiation() == only);
            entries.map(|(key, value)| (key.clone(), value.clone())).collect()
        }
    };
    // The last writes may still be on their way, and one negotiation's entries are no complete register.
    let difference = replay.first_difference(&register, false)?;
    let or_nothing = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
    Some(format!(
        "register key {}{}\n  recomputed {}\n  registered {}",
        difference.key,
        difference.seq.map(|seq| format!(" (record {seq})")).unwrap_or_default(),
        or_nothing(difference.recomputed),
        or_nothing(difference.registered)
    ))
}
