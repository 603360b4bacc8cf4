//! The export file.

use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use bus::Bus;
use schemas::record::Record;
use schemas::{Lane, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AuditError, AuditReport, Ledger, LoggedRecord, read_bus};
use crate::chain::{CHAIN_START, frame, read_line, unframe};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExportLine<'a> {
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
    /// Lines before this one.
    lines: usize,
}

/// Writes what a bus holds, with the decisions of `report`.
///
/// # Errors
/// [`AuditError`].
pub async fn export(bus: &Bus, report: &AuditReport, path: &Path) -> Result<(), AuditError> {
    let ledger = read_bus(bus).await?;
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let mut chain = CHAIN_START;
    let mut write = |line: &ExportLine<'_>| -> Result<(), AuditError> {
        let line = serde_json::to_string(line).map_err(std::io::Error::from)?;
        Ok(out.write_all(frame(&line, &mut chain).as_bytes())?)
    };
    for LoggedRecord { lane, seq, time, record } in &ledger.records {
        let record = raw(serde_json::to_string(record).map_err(std::io::Error::from)?)?;
        write(&ExportLine::Record(RecordLine { lane: *lane, seq: *seq, time: *time, record: &record }))?;
    }
    for (key, value) in &ledger.register {
        let value = raw(String::from_utf8_lossy(value).into_owned())?;
        write(&ExportLine::Register(RegisterLine { key: key.to_string(), value: &value }))?;
    }
    for decision in &report.recomputed {
        write(&ExportLine::Decision(&raw(decision.clone())?))?;
    }
    let lines = ledger.records.len() + ledger.register.len() + report.recomputed.len();
    write(&ExportLine::End(EndLine { lines }))?;
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
    let (mut chain, mut count, mut end) = (CHAIN_START, 0, None);
    let (mut reader, mut bytes) = (BufReader::new(std::fs::File::open(path)?), Vec::new());
    for number in 1.. {
        let fault = |fault: String| AuditError::Line { line: number, fault };
        if read_line(&mut reader, &mut bytes).map_err(|error| fault(error.to_string()))? == 0 {
            break;
        }
        if end.is_some() {
            return Err(fault("there is more after the end".to_owned()));
        }
        let framed = unframe(&bytes, chain).map_err(fault)?;
        if ledger.fault.is_none() && !framed.is_chained {
            ledger.fault = Some(format!("line {number}: it, or the one before it, was altered: the chain differs"));
        }
        chain = framed.chain;
        match take(framed.line, &mut ledger).map_err(fault)? {
            None => count += 1,
            Some(found) => end = Some(found),
        }
    }
    ledger.fault = ledger.fault.or(match end {
        None => Some(format!("the file has {count} lines and no end: it was cut off, or is still being written")),
        Some(end) if end.lines != count => Some(format!("the file has {count} lines, its end says {}", end.lines)),
        Some(_) => None,
    });
    Ok(ledger)
}

/// Takes one line into the ledger; gives it back when it is the last.
fn take(line: &str, ledger: &mut Ledger) -> Result<Option<EndLine>, String> {
    match serde_json::from_str::<ExportLine<'_>>(line).map_err(|error| error.to_string())? {
        ExportLine::End(found) => return Ok(Some(found)),
        ExportLine::Record(found) => ledger.records.push(LoggedRecord {
            lane: found.lane,
            seq: found.seq,
            time: found.time,
            record: Record::decode(found.record.get().as_bytes()).map_err(|error| error.to_string())?,
        }),
        ExportLine::Register(found) => {
            let key = RegisterKey::parse(&found.key).ok_or_else(|| format!("`{}` is no register key", found.key))?;
            ledger.register.insert(key, found.value.get().as_bytes().to_vec());
        }
        ExportLine::Decision(found) => ledger.decisions.get_or_insert_default().push(found.get().to_owned()),
    }
    Ok(None)
}
