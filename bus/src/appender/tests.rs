use futures_util::{StreamExt, future};
use parking_lot::Mutex;
use schemas::record::{EngineEvent, Record};
use tokio::sync::Semaphore;

use super::*;
use crate::async_trait;
use crate::{LogRecord, LogStream};

#[tokio::test]
async fn entries_that_wait_for_an_append_share_the_next_record_in_order() {
    let log = GatedLog::new();
    let appender = log.appender(AppenderOptions::default());
    let first = tokio::spawn(append(&appender, 0));
    log.until_asked(1).await;
    let rest: Vec<_> = (1..=20).map(|epoch| tokio::spawn(append(&appender, epoch))).collect();
    while appender.queued() < rest.len() {
        tokio::task::yield_now().await;
    }
    log.gate.add_permits(2);

    assert_eq!(first.await.unwrap().unwrap(), Position { seq: 1, index: 0 });
    for (index, outcome) in (0..).zip(future::join_all(rest).await) {
        assert_eq!(outcome.unwrap().unwrap(), Position { seq: 2, index });
    }
    assert_eq!(log.epochs(), [vec![0], (1..=20).collect()]);
}

#[tokio::test]
async fn a_record_holds_no_more_entries_than_allowed_and_one_means_no_group_commit() {
    for (entries_max, expected) in [(1, vec![1, 1, 1, 1, 1]), (2, vec![1, 2, 2]), (3, vec![1, 3, 1])] {
        let log = GatedLog::new();
        let appender = log.appender(AppenderOptions { entries_max, ..AppenderOptions::default() });
        let first = tokio::spawn(append(&appender, 0));
        log.until_asked(1).await;
        let rest = future::join_all((1..5).map(|epoch| append(&appender, epoch)));
        log.gate.add_permits(5);
        assert!(rest.await.iter().all(Result::is_ok));
        assert!(first.await.unwrap().is_ok());
        assert_eq!(log.epochs().iter().map(Vec::len).collect::<Vec<_>>(), expected, "at most {entries_max}");
    }
}

#[tokio::test]
async fn a_record_stays_within_its_bytes_and_loses_nothing_to_the_bound() {
    let log = GatedLog::new();
    let bytes_max = 300;
    let appender = log.appender(AppenderOptions { bytes_max, ..AppenderOptions::default() });
    log.gate.add_permits(100);
    let outcomes = future::join_all((0..40).map(|epoch| append(&appender, epoch))).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let records = log.records.lock().clone();
    assert!(records.iter().all(|record| record.len() <= bytes_max));
    assert!(records.len() < 40, "the bound leaves room for several entries");
    assert_eq!(log.epochs().concat(), (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_entry_too_large_for_any_record_is_refused_at_once() {
    let log = GatedLog::new();
    let appender = log.appender(AppenderOptions { bytes_max: 100, ..AppenderOptions::default() });
    let outcome = append_entry(&appender, claim("x".repeat(100))).await;
    assert!(matches!(outcome, Err(AppendError::Refused(BusError::TooLarge { .. }))), "{outcome:?}");
}

#[tokio::test]
async fn a_joined_record_is_what_encoding_it_whole_would_give() {
    let log = GatedLog::new();
    let appender = log.appender(AppenderOptions::default());
    let entries = [Entry::Tick, claim("engine \"1\"".to_owned()), Entry::Tick];
    let waiting = future::join_all(entries.iter().map(|entry| append_entry(&appender, entry.clone())));
    log.gate.add_permits(3);
    assert!(waiting.await.iter().all(Result::is_ok));
    let expected = Record::new(WRITER, entries.to_vec()).encode().unwrap();
    assert_eq!(log.records.lock().as_slice(), [Bytes::from(expected)]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_repeated_with_the_same_bytes_and_then_told_to_everyone() {
    let log = GatedLog::failing(u32::MAX, BusError::Unknown("silence".to_owned()));
    let appender = log.appender(AppenderOptions { attempts_max: 3, ..AppenderOptions::default() });
    let outcomes = future::join_all((0..4).map(|epoch| append(&appender, epoch))).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(AppendError::Unknown(_)))), "{outcomes:?}");
    let asked = log.asked.lock().clone();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|record| *record == asked[0]));
}

#[tokio::test(start_paused = true)]
async fn an_append_that_succeeds_on_a_repeat_is_a_success() {
    let log = GatedLog::failing(1, BusError::Unknown("silence".to_owned()));
    let appender = log.appender(AppenderOptions::default());
    log.gate.add_permits(1);
    assert_eq!(append(&appender, 0).await.unwrap(), Position { seq: 1, index: 0 });
}

#[tokio::test]
async fn a_full_log_is_not_asked_again() {
    let log = GatedLog::failing(u32::MAX, BusError::Full("no room".to_owned()));
    let appender = log.appender(AppenderOptions::default());
    let outcome = append(&appender, 0).await;
    assert!(matches!(outcome, Err(AppendError::Refused(BusError::Full(_)))), "{outcome:?}");
    assert_eq!(log.asked.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_unknown_outcome_leaves_it_unknown() {
    let log = GatedLog::failing(1, BusError::Unknown("silence".to_owned()));
    log.gate.close();
    let appender = log.appender(AppenderOptions::default());
    let outcome = append(&appender, 0).await;
    assert!(matches!(outcome, Err(AppendError::Unknown(BusError::Unknown(_)))), "{outcome:?}");
    assert_eq!(log.asked.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_answers_is_given_up_at_the_deadline() {
    let log = GatedLog::new();
    let deadline = Duration::from_secs(5);
    let appender = log.appender(AppenderOptions { deadline, ..AppenderOptions::default() });
    let started = Instant::now();
    let outcome = append(&appender, 0).await;
    assert!(matches!(outcome, Err(AppendError::Unknown(_))), "{outcome:?}");
    assert_eq!(started.elapsed(), deadline);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let log = GatedLog::new();
    let appender = log.appender(AppenderOptions { queue_max: 2, ..AppenderOptions::default() });
    let in_flight = tokio::spawn(append(&appender, 0));
    log.until_asked(1).await;
    let queued: Vec<_> = (1..=2).map(|epoch| tokio::spawn(append(&appender, epoch))).collect();
    while appender.queued() < 2 {
        tokio::task::yield_now().await;
    }
    let outcome = append(&appender, 3).await;
    assert!(matches!(outcome, Err(AppendError::Overloaded)), "{outcome:?}");
    log.gate.add_permits(2);
    assert!(in_flight.await.unwrap().is_ok());
    assert!(future::join_all(queued).await.into_iter().all(|outcome| outcome.unwrap().is_ok()));
}

#[tokio::test]
async fn what_is_queued_when_the_last_handle_goes_is_still_appended() {
    let log = GatedLog::new();
    let appender = log.appender(AppenderOptions::default());
    let waiting = tokio::spawn(append(&appender, 7));
    log.until_asked(1).await;
    drop(appender);
    log.gate.add_permits(1);
    assert!(waiting.await.unwrap().is_ok());
}

const WRITER: &str = "engine-test";

/// A log that answers only when let, and fails as often as told.
struct GatedLog {
    gate: Semaphore,
    failures: Mutex<u32>,
    error: BusError,
    asked: Mutex<Vec<Bytes>>,
    records: Mutex<Vec<Bytes>>,
}

impl GatedLog {
    fn new() -> Arc<Self> {
        Self::failing(0, BusError::Closed)
    }

    fn failing(times: u32, error: BusError) -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(0),
            failures: Mutex::new(times),
            error,
            asked: Mutex::default(),
            records: Mutex::default(),
        })
    }

    fn appender(self: &Arc<Self>, options: AppenderOptions) -> Appender {
        Appender::spawn(Arc::clone(self) as Arc<dyn Log>, Lane(0), WRITER, options)
    }

    async fn until_asked(&self, times: usize) {
        while self.asked.lock().len() < times {
            tokio::task::yield_now().await;
        }
    }

    /// The epochs of the entries of each stored record.
    fn epochs(&self) -> Vec<Vec<u64>> {
        let epoch = |entry: &Entry| match entry {
            Entry::Engine { epoch, .. } => *epoch,
            Entry::Message(_) | Entry::Tick => panic!("not an entry of these tests: {entry:?}"),
        };
        let records = self.records.lock();
        records.iter().map(|record| Record::decode(record).unwrap().entries.iter().map(epoch).collect()).collect()
    }

    async fn append_gated(&self, record: Bytes) -> Result<u64, BusError> {
        self.asked.lock().push(record.clone());
        let fails = {
            let mut failures = self.failures.lock();
            let fails = *failures > 0;
            *failures = failures.saturating_sub(1);
            fails
        };
        if fails {
            return Err(self.error.clone());
        }
        self.gate.acquire().await.map_err(|_| BusError::Closed)?.forget();
        let mut records = self.records.lock();
        records.push(record);
        Ok(u64::try_from(records.len()).unwrap())
    }
}

#[async_trait]
impl Log for GatedLog {
    fn lanes(&self) -> u8 {
        1
    }

    async fn append(&self, _: Lane, record: Bytes) -> Result<u64, BusError> {
        self.append_gated(record).await
    }

    async fn read(&self, _: Lane, _: u64) -> Result<LogStream, BusError> {
        Ok(futures_util::stream::empty().boxed())
    }

    async fn last_seq(&self, _: Lane) -> Result<u64, BusError> {
        Ok(0)
    }

    async fn record(&self, _: Lane, _: u64) -> Result<Option<LogRecord>, BusError> {
        Ok(None)
    }

    async fn trim(&self, _: Lane, _: u64) -> Result<(), BusError> {
        Ok(())
    }

    async fn trimmed(&self, _: Lane) -> Result<u64, BusError> {
        Ok(0)
    }
}

fn append(appender: &Appender, epoch: u64) -> impl Future<Output = Result<Position, AppendError>> + use<> {
    let event = EngineEvent::Claim { engine: "e".to_owned() };
    append_entry(appender, Entry::Engine { epoch, event })
}

fn append_entry(appender: &Appender, entry: Entry) -> impl Future<Output = Result<Position, AppendError>> + use<> {
    let appender = appender.clone();
    async move { appender.append(&entry).await }
}

fn claim(engine: String) -> Entry {
    Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine } }
}
