//! Whether engines that folded the same records hold the same state, from what they say of themselves all the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, BusError, Received};
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use schemas::{Digest, Lane, Timestamp, subject};
use serde::Deserialize;
use tokio_util::task::AbortOnDropHandle;

use super::judge::{Check, Checks};

/// A heartbeat, as far as it is of interest here.
#[derive(Debug, Clone, Deserialize)]
struct HeartbeatDigests {
    engine: String,
    lanes: Vec<LaneDigest>,
}

#[derive(Debug, Clone, Deserialize)]
struct LaneDigest {
    lane: Lane,
    digests: Vec<DigestPoint>,
}

#[derive(Debug, Clone, Deserialize)]
struct DigestPoint {
    position: u64,
    stamped: Timestamp,
    rules: u32,
    digest: Digest,
}

/// The same record under the same rules.
type DigestPlace = (Lane, u64, Timestamp, u32);

/// Digests heard, by place and engine.
#[derive(Debug, Clone, Default)]
pub struct Digests(BTreeMap<DigestPlace, BTreeMap<String, Digest>>);

impl Digests {
    /// Takes a heartbeat in; what is none is ignored.
    pub fn handle_heartbeat(&mut self, payload: &[u8]) {
        let Ok(heartbeat) = serde_json::from_slice::<HeartbeatDigests>(payload) else { return };
        for LaneDigest { lane, digests } in heartbeat.lanes {
            for DigestPoint { position, stamped, rules, digest } in digests {
                let place = self.0.entry((lane, position, stamped, rules)).or_default();
                place.insert(heartbeat.engine.clone(), digest);
            }
        }
    }

    /// One check for each place that several engines have spoken of.
    pub fn judge(&self, checks: &mut Checks) {
        for ((lane, position, ..), by_engine) in self.0.iter().filter(|(_, by_engine)| by_engine.len() > 1) {
            let mut digests = by_engine.values();
            let first = digests.next();
            let are_equal = digests.all(|digest| Some(digest) == first);
            checks.check(Check::SameDigests, are_equal, || format!("lane {lane} at {position}: {by_engine:?}"));
        }
    }
}

/// Takes in what comes until it is dropped.
pub struct Listener<T> {
    heard: Arc<Mutex<T>>,
    _task: AbortOnDropHandle<()>,
}

impl Listener<Digests> {
    /// Begins to listen to heartbeats.
    ///
    /// # Errors
    /// [`BusError`] when the subscription fails.
    pub async fn of_heartbeats(bus: &Bus) -> Result<Self, BusError> {
        let heartbeats = bus.pub_sub.subscribe(subject::ALL_HEARTBEATS.to_owned(), None).await?;
        Ok(Self::spawn(heartbeats, |digests, heartbeat| digests.handle_heartbeat(&heartbeat.payload)))
    }
}

impl<T: Clone + Default + Send + 'static> Listener<T> {
    /// Hears what comes.
    pub fn spawn(
        mut coming: impl Stream<Item = Received> + Send + Unpin + 'static,
        hear: impl Fn(&mut T, &Received) + Send + 'static,
    ) -> Self {
        let heard = Arc::new(Mutex::new(T::default()));
        let noted = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Some(received) = coming.next().await {
                hear(&mut noted.lock(), &received);
            }
        });
        Self { heard, _task: AbortOnDropHandle::new(task) }
    }

    /// What was heard.
    pub fn heard(&self) -> T {
        self.heard.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_are_compared_where_they_speak_of_the_same_record() {
        let mut digests = Digests::default();
        digests.handle_heartbeat(&heartbeat("a", 1024, 7, 1, "aa"));
        digests.handle_heartbeat(&heartbeat("b", 1024, 7, 1, "aa"));
        digests.handle_heartbeat(&heartbeat("c", 1024, 8, 1, "cc"));
        digests.handle_heartbeat(&heartbeat("c", 1024, 7, 2, "cc"));
        digests.handle_heartbeat(b"no heartbeat");
        let mut checks = Checks::default();
        digests.judge(&mut checks);
        let tally = checks.by_name[&Check::SameDigests];
        assert_eq!((tally.checked, tally.violated), (1, 0), "other records and other rules compare with nothing");

        digests.handle_heartbeat(&heartbeat("c", 1024, 7, 1, "cc"));
        let mut checks = Checks::default();
        digests.judge(&mut checks);
        assert_eq!(checks.violated(), 1);
        assert!(checks.examples[0].contains("lane 2 at 1024"), "{:?}", checks.examples);
    }

    fn heartbeat(engine: &str, position: u64, stamped: u64, rules: u32, digest: &str) -> Vec<u8> {
        let point = json!({"position": position, "stamped": stamped, "rules": rules, "digest": digest.repeat(32)});
        json!({"engine": engine, "started": 1, "lanes": [{"lane": 2, "phase": "standby", "digests": [point]}]})
            .to_string()
            .into_bytes()
    }
}
