//! The export file.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use bus::Bus;
use schemas::record::Record;
use schemas::{Digest, Lane, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AuditError, Ledger, LoggedRecord, Report, read_bus};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    #[serde(borrow)]
    Record(RecordLine<'a>),
    Register(RegisterLine<'a>),
    Decision(&'a RawValue),
    End(EndLine),
}

#[derive(Serialize, Deserialize)]
struct RecordLine<'a> {
    lane: Lane,
    seq: u64,
    time: Timestamp,
    #[serde(borrow)]
    record: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct RegisterLine<'a> {
    key: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    lines: usize,
    /// SHA-256 over the digests of the lines, in order.
    digest: Digest,
}

/// Digest of the lines so far.
fn chained(so_far: Digest, line: &[u8]) -> Digest {
    Digest::of_parts(&[&so_far.0, line])
}

/// Writes what a bus holds, with the decisions of `report`.
///
/// # Errors
/// [`AuditError`].
pub async fn export(bus: &Bus, report: &Report, path: &Path) -> Result<(), AuditError> {
    let ledger = read_bus(bus).await?;
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let (mut lines, mut digest) = (0, Digest([0; 32]));
    let mut write = |line: &Line<'_>| -> Result<(), AuditError> {
        let text = serde_json::to_string(line).map_err(std::io::Error::from)?;
        digest = chained(digest, text.as_bytes());
        lines += 1;
        Ok(writeln!(out, "{text}")?)
    };
    for LoggedRecord { lane, seq, time, record } in &ledger.records {
        let record = raw(serde_json::to_string(record).map_err(std::io::Error::from)?)?;
        write(&Line::Record(RecordLine { lane: *lane, seq: *seq, time: *time, record: &record }))?;
    }
    for (key, value) in &ledger.register {
        let value = raw(String::from_utf8_lossy(value).into_owned())?;
        write(&Line::Register(RegisterLine { key: key.to_string(), value: &value }))?;
    }
    for decision in &report.recomputed {
        write(&Line::Decision(&raw(decision.clone())?))?;
    }
    let end = Line::End(EndLine { lines, digest });
    writeln!(out, "{}", serde_json::to_string(&end).map_err(std::io::Error::from)?)?;
    Ok(out.flush()?)
}

fn raw(text: String) -> Result<Box<RawValue>, AuditError> {
    Ok(RawValue::from_string(text).map_err(std::io::Error::from)?)
}

/// Reads an export.
///
/// # Errors
/// [`AuditError::Line`] names the first line that is none of an export's.
pub fn read(path: &Path) -> Result<Ledger, AuditError> {
    let mut ledger = Ledger { decisions: Some(Vec::new()), ..Ledger::default() };
    let (mut digest, mut end) = (Digest([0; 32]), None);
    let mut count = 0;
    for (index, line) in BufReader::new(std::fs::File::open(path)?).lines().enumerate() {
        let fault = |fault: String| AuditError::Line { line: index + 1, fault };
        let line = line.map_err(|error| fault(error.to_string()))?;
        if end.is_some() {
            return Err(fault("there is more after the end".to_owned()));
        }
        match serde_json::from_str::<Line<'_>>(&line).map_err(|error| fault(error.to_string()))? {
            Line::End(found) => {
                end = Some(found);
                continue;
            }
            Line::Record(found) => ledger.records.push(LoggedRecord {
                lane: found.lane,
                seq: found.seq,
                time: found.time,
                record: Record::decode(found.record.get().as_bytes()).map_err(|error| fault(error.to_string()))?,
            }),
            Line::Register(found) => {
                let key = RegisterKey::parse(&found.key)
                    .ok_or_else(|| fault(format!("`{}` is no register key", found.key)))?;
                ledger.register.insert(key, found.value.get().as_bytes().to_vec());
            }
            Line::Decision(found) => ledger.decisions.get_or_insert_default().push(found.get().to_owned()),
        }
        digest = chained(digest, line.as_bytes());
        count += 1;
    }
    ledger.fault = match end {
        None => Some("the file has no end: it was cut off, or is still being written".to_owned()),
        Some(end) if end.lines != count => Some(format!("the file has {count} lines, its end says {}", end.lines)),
        Some(end) if end.digest != digest => Some("a line was altered: the digest of all lines differs".to_owned()),
        Some(_) => None,
    };
    Ok(ledger)
}
