//! Archiving one lane: reading, storing in groups, telling the engines; a fault is shown and tried again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, LogRecord, LogStream};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use schemas::{Digest, Lane, NegotiationId, RegisterKey};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::follow::ArchiveOptions;
use super::scan::{LaneWriter, ScanFault, resume};
use super::segment_store::Media;
use super::status::ArchiveStatus;
use super::{ArchiveError, Expected, position_name};

/// How long records are collected before they are stored with one sync. Nobody waits for the archive, and the log's server
/// shares its disk at times.
const COLLECT: Duration = Duration::from_millis(200);
/// Bytes that are stored without waiting for more.
const COLLECT_BYTES: usize = 4 * 1024 * 1024;
/// How often the engines are told and the register is asked: trimming is no hurry.
const TELL: Duration = Duration::from_secs(1);
/// Pause before something that failed is tried again. It is tried for ever: whoever watches sees the fault meanwhile.
const RETRY: Duration = Duration::from_secs(2);
/// Negotiations the register is asked about at a time.
const ASKED_MAX: usize = 2048;
/// Keys asked for at once.
const ASKED_AT_ONCE: usize = 64;
/// Closed negotiations that may wait for their register entries; beyond, the oldest are written without. An hour of ten per
/// second in one lane.
const AWAITING_MAX: usize = 36_000;

/// Archives one lane.
pub(super) async fn archive_lane<M: Media>(
    bus: Bus,
    lane: Lane,
    media: M,
    options: ArchiveOptions,
    status: Arc<ArchiveStatus>,
    cancel: CancellationToken,
) -> Result<(), ArchiveError> {
    let trimmed = bus.log.trimmed(lane).await?;
    let until = if options.once { Some(bus.log.last_seq(lane).await?) } else { None };
    let lanes = bus.log.lanes();
    let (keep_bytes, segment_bytes) = options.for_lane(lanes);
    let opened = tokio::task::spawn_blocking(move || resume(media, (lane, lanes), trimmed, segment_bytes));
    let writer = opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    let (told, asked) = (None, None);
    let mut archiver = LaneArchiver { bus, lane, writer: Some(writer), keep_bytes, until, status, cancel, told, asked };
    archiver.check_log().await?;
    archiver.check_told().await?;
    archiver.commit().await?;
    archiver.tell().await?;
    archiver.follow().await?;
    archiver.finish().await
}

struct LaneArchiver<M> {
    bus: Bus,
    lane: Lane,
    /// Absent only while it is with the thread that stores.
    writer: Option<LaneWriter<M>>,
    /// Bytes its segments may take; everything when absent.
    keep_bytes: Option<u64>,
    until: Option<u64>,
    status: Arc<ArchiveStatus>,
    cancel: CancellationToken,
    /// What the engines were told: how far the records are stored, and how far what the register held.
    told: Option<(u64, u64)>,
    /// The closed negotiation whose register entries were asked for last.
    asked: Option<(u64, NegotiationId)>,
}

/// Why a lane is no longer read.
enum Ended {
    /// By request, or because it is done.
    Asked,
    /// The reader ended.
    Reader(BusError),
}

impl<M: Media> LaneArchiver<M> {
    fn writer(&mut self) -> &mut LaneWriter<M> {
        self.writer.as_mut().expect("the writer is lent out only within `commit`, which gives it back")
    }

    /// The log must hold the archive's last record as the archive does, unless it was trimmed behind it.
    async fn check_log(&mut self) -> Result<(), ArchiveError> {
        let lane = self.lane;
        let (position, last) = (self.writer().position(), self.writer().last());
        if position == 0 {
            return Ok(());
        }
        let is_same = match self.bus.log.record(lane, position).await? {
            Some(found) => Digest::of_bytes(&found.bytes) == last,
            None => self.bus.log.trimmed(lane).await? >= position,
        };
        if is_same { Ok(()) } else { Err(ArchiveError::Foreign { lane, position }) }
    }

    /// What the engines were told once stays told, and they trim by it: a folder that is behind may come too late.
    async fn check_told(&mut self) -> Result<(), ArchiveError> {
        let (lane, position) = (self.lane, self.writer().position());
        let told = self.bus.blobs.version(position_name(lane)).await?;
        if let Some(told) = told.filter(|&told| told > position) {
            tracing::warn!(
                lane = lane.0,
                told,
                position,
                "the lane was archived further than this folder goes, and the log may be trimmed up to there before it is \
                 read: go on in the other folder if there is one"
            );
        }
        Ok(())
    }

    /// Reads until asked to end, opening the reader again when it fails.
    async fn follow(&mut self) -> Result<(), ArchiveError> {
        loop {
            let next = self.writer().position() + 1;
            if self.is_done() {
                return Ok(());
            }
            let ended = match self.bus.log.read(self.lane, next).await {
                Ok(records) => self.read(records).await?,
                Err(error) => Ended::Reader(error),
            };
            match ended {
                Ended::Asked => return Ok(()),
                // The log has moved away below the archive.
                Ended::Reader(BusError::Trimmed(trimmed)) => {
                    return Err(ArchiveError::Trimmed { lane: self.lane, trimmed, position: next - 1 });
                }
                Ended::Reader(BusError::Diverged(_)) => {
                    return Err(ArchiveError::Foreign { lane: self.lane, position: self.writer().position() });
                }
                Ended::Reader(error) if self.until.is_some() => return Err(error.into()),
                Ended::Reader(error) => self.pause(error.to_string()).await,
            }
        }
    }

    fn is_done(&mut self) -> bool {
        let position = self.writer().position();
        self.cancel.is_cancelled() || self.until.is_some_and(|until| position >= until)
    }

    /// Takes records as they come, until the reader ends or it is time to end.
    async fn read(&mut self, mut records: LogStream) -> Result<Ended, ArchiveError> {
        let mut tell_at = Instant::now() + TELL;
        loop {
            let cancel = self.cancel.clone();
            let first = tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Ended::Asked),
                found = records.next() => Some(found),
                () = tokio::time::sleep_until(tell_at) => None,
            };
            let ended = match first {
                None => None,
                Some(found) => match self.take(found)? {
                    None => self.collect(&mut records).await?,
                    ended => ended,
                },
            };
            self.commit().await?;
            self.bound_awaiting().await?;
            if Instant::now() >= tell_at {
                self.ask_register().await?;
                self.tell().await?;
                tell_at = Instant::now() + TELL;
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            if self.is_done() {
                return Ok(Ended::Asked);
            }
        }
    }

    /// Takes what else comes within a moment.
    async fn collect(&mut self, records: &mut LogStream) -> Result<Option<Ended>, ArchiveError> {
        let until = Instant::now() + COLLECT;
        while self.writer().pending_bytes() < COLLECT_BYTES && !self.is_done() {
            match timeout_at(until, records.next()).await {
                Ok(found) => {
                    if let Some(ended) = self.take(found)? {
                        return Ok(Some(ended));
                    }
                }
                Err(_) => break,
            }
        }
        Ok(None)
    }

    fn take(&mut self, found: Option<Result<LogRecord, BusError>>) -> Result<Option<Ended>, ArchiveError> {
        let lane = self.lane;
        match found {
            Some(Ok(record)) => match self.writer().handle_record(&record) {
                Ok(()) => Ok(None),
                Err(ScanFault::Newer(what) | ScanFault::Wrong(what)) => Err(ArchiveError::Newer { lane, what }),
            },
            Some(Err(error)) => Ok(Some(Ended::Reader(error))),
            None => Ok(Some(Ended::Reader(BusError::Closed))),
        }
    }

    /// Stores what is pending; a disk that fails is tried again until it works or the archiver is to end.
    async fn commit(&mut self) -> Result<(), ArchiveError> {
        loop {
            let mut writer = self.writer.take().expect("the writer is lent out only here");
            let keep_bytes = self.keep_bytes;
            let stored = tokio::task::spawn_blocking(move || {
                let outcome = writer.commit();
                if let (Ok(()), Some(keep_bytes)) = (&outcome, keep_bytes) {
                    writer.prune(keep_bytes);
                }
                (writer, outcome)
            });
            let (writer, outcome) = stored.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            let path = writer.path();
            let (position, tally) = (writer.stored(), writer.counts());
            self.writer = Some(writer);
            let source = match outcome {
                Ok(()) => {
                    self.status.update(self.lane, |lane| {
                        (lane.position, lane.tally, lane.fault) = (position, tally, None);
                    });
                    return Ok(());
                }
                Err(source) => source,
            };
            if self.until.is_some() || self.cancel.is_cancelled() {
                let source = io::Error::new(source.kind(), in_words(&source));
                return Err(ArchiveError::File { path, source });
            }
            self.pause(format!("{}: {}", path.display(), in_words(&source))).await;
        }
    }

    /// Shows a fault, and waits before what failed is tried again.
    async fn pause(&self, fault: String) {
        tracing::warn!(lane = self.lane.0, fault, "the archive does not go on; it is tried again");
        self.status.update(self.lane, |lane| lane.fault = Some(fault));
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = sleep(RETRY) => {}
        }
    }

    /// Tells the engines what is stored: they may trim it, and remove the register entries it has.
    async fn tell(&mut self) -> Result<(), ArchiveError> {
        let (lane, stored) = (self.lane, self.writer().stored());
        // What was said last was stored with the records it is about.
        let waiting = self.writer().awaiting().0.first_key_value().map(|((seq, _), _)| seq.saturating_sub(1));
        let registered = waiting.map_or(stored, |before| before.min(stored));
        if stored == 0 || self.told == Some((stored, registered)) {
            return Ok(());
        }
        let document = Bytes::from(format!(r#"{{"position":{stored},"registered":{registered}}}"#));
        match self.bus.blobs.put(position_name(lane), stored, document).await {
            // Where a later position stands, another folder has come further: see `check_told`.
            Ok(_) => {
                self.told = Some((stored, registered));
                self.status.update(lane, |lane| (lane.position, lane.told) = (stored, stored));
                Ok(())
            }
            Err(error) if self.until.is_some() => Err(error.into()),
            Err(error) => {
                self.status.update(lane, |lane| lane.fault = Some(error.to_string()));
                Ok(())
            }
        }
    }

    /// Asks the register once more, says that it ends here, and tells the engines.
    async fn finish(&mut self) -> Result<(), ArchiveError> {
        self.ask_all().await?;
        self.writer().end();
        self.commit().await?;
        self.tell().await
    }
}

/// A fault of the disk, with the remedy where there is one.
fn in_words(error: &io::Error) -> String {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return format!("{error}: make room; nothing is lost meanwhile, the log is not trimmed beyond the archive");
    }
    error.to_string()
}

impl<M: Media> LaneArchiver<M> {
    /// Asks about every closed negotiation that waits.
    async fn ask_all(&mut self) -> Result<(), ArchiveError> {
        self.asked = None;
        loop {
            self.ask_register().await?;
            if self.asked.is_none() {
                return Ok(());
            }
        }
    }

    /// Asks about all of them when too many wait; the oldest of those the register has no answer for then wait no longer.
    async fn bound_awaiting(&mut self) -> Result<(), ArchiveError> {
        if self.writer().awaiting().0.len() > AWAITING_MAX { self.ask_all().await } else { Ok(()) }
    }

    /// Asks the register about closed negotiations, going round among those that wait, and writes down what is complete.
    async fn ask_register(&mut self) -> Result<(), ArchiveError> {
        let asked = self.asked.clone();
        let (awaiting, answered) = self.writer().awaiting();
        let behind = awaiting.iter().filter(|(id, _)| asked.as_ref().is_none_or(|asked| *id > asked));
        let keys =
            |expected: &Expected| expected.entries.iter().filter_map(|entry| RegisterKey::parse(&entry.key)).collect();
        let chosen: Vec<((u64, NegotiationId), Vec<RegisterKey>)> =
            behind.take(ASKED_MAX).map(|(id, expected)| (id.clone(), keys(expected))).collect();
        let too_many = awaiting.len().saturating_sub(AWAITING_MAX);
        self.asked = chosen.last().filter(|_| chosen.len() == ASKED_MAX).map(|(id, _)| id.clone());
        let register = Arc::clone(&self.bus.register);
        let mut answers = stream::iter(chosen)
            .map(|(id, keys)| {
                let register = Arc::clone(&register);
                async move {
                    let mut values = Vec::with_capacity(keys.len());
                    for key in keys {
                        values.push(register.value(key).await?);
                    }
                    Ok::<_, BusError>((id, values))
                }
            })
            .buffered(ASKED_AT_ONCE);
        let mut given_up = 0;
        while let Some(answer) = answers.next().await {
            let (id, values) = match answer {
                Ok(found) => found,
                Err(error) if self.until.is_some() => return Err(error.into()),
                Err(error) => {
                    self.status.update(self.lane, |lane| lane.fault = Some(error.to_string()));
                    break;
                }
            };
            // What the log says is answered was refused, or has expired since: it will not come.
            let is_complete = values.iter().all(Option::is_some) || id.0 <= answered;
            given_up += usize::from(!is_complete);
            if is_complete || given_up <= too_many {
                self.writer().handle_registered(&id, &values);
            }
        }
        drop(answers);
        self.commit().await
    }
}
