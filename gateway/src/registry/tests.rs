//! The registry against a store whose watches the test ends and fills.

use futures_util::stream::{self, BoxStream};
use schemas::AgentId;

use super::not_stored;
use super::*;

fn counted() -> Arc<GatewayMetrics> {
    Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap())
}

fn openings() -> Openings {
    Openings::new(0, Instant::now())
}

#[tokio::test]
async fn what_vanished_while_a_watch_was_down_is_gone_afterwards() {
    let before = vec![put("bob"), put("carol"), Change::CaughtUp];
    let after = vec![put("carol"), put("dave"), Change::CaughtUp];
    let registry =
        Arc::new(Registry::new(Arc::new(Watches(Mutex::new(vec![after, before]))), "medium", openings(), counted()));
    registry.follow(Bucket::Agents).await.unwrap();
    assert_eq!(names(&registry), ["bob", "carol"]);
    registry.follow(Bucket::Agents).await.unwrap();
    assert_eq!(names(&registry), ["carol", "dave"]);
}

#[tokio::test]
async fn a_document_that_is_not_readable_is_left_out_and_the_rest_is_kept() {
    let unreadable = Change::Put("eve".to_owned(), Bytes::from_static(b"{]"));
    let changes = vec![put("bob"), unreadable, Change::CaughtUp, Change::Deleted("nobody".to_owned())];
    let registry =
        Arc::new(Registry::new(Arc::new(Watches(Mutex::new(vec![changes]))), "medium", openings(), counted()));
    registry.follow(Bucket::Agents).await.unwrap();
    assert_eq!(names(&registry), ["bob"]);
}

#[tokio::test]
async fn a_registry_is_caught_up_only_when_every_bucket_is() {
    let caught_up = || vec![Change::CaughtUp];
    let watches = Watches(Mutex::new(vec![caught_up(), caught_up(), caught_up()]));
    let registry = Arc::new(Registry::new(Arc::new(watches), "medium", openings(), counted()));
    for bucket in FOLLOWED {
        assert!(!registry.is_caught_up());
        registry.follow(bucket).await.unwrap();
    }
    assert!(registry.is_caught_up());
    registry.change(|tables| tables.caught_up.retain(|&bucket| bucket != Bucket::Groups));
    assert!(!registry.is_caught_up());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_seen_in_time_is_told_as_such() {
    let registry = Registry::new(in_memory(), "medium", openings(), counted());
    let outcome = registry.put(Bucket::Agents, "bob".to_owned(), &1, |_| false).await;
    assert_eq!(outcome.unwrap_err().code, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_writer_replaced_before_it_was_seen_is_stored() {
    let store = in_memory();
    let registry = Registry::new(Arc::clone(&store), "medium", openings(), counted());
    let replace = async {
        tokio::task::yield_now().await;
        store.put(Bucket::Agents, "bob".to_owned(), Bytes::from_static(b"2")).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(registry.put(Bucket::Agents, "bob".to_owned(), &1, |_| false), replace);
    assert_eq!(outcome, Ok(()));
}

#[test]
fn a_full_store_names_the_remedy_and_any_other_silence_does_not() {
    let full = not_stored(&BusError::Full("no room".to_owned()));
    assert_eq!((full.code, full.retry_after_ms), (Code::Unavailable, Some(5000)));
    assert!(full.detail.contains("max_file_store"), "{}", full.detail);
    let silent = not_stored(&BusError::Unknown("silence".to_owned()));
    assert_eq!(silent.code, Code::Unavailable);
    assert!(!silent.detail.contains("full"), "{}", silent.detail);
}

fn in_memory() -> Arc<dyn KeyValue> {
    bus::memory::open(bus::memory::MemoryOptions::default()).key_value
}

fn put(name: &str) -> Change {
    Change::Put(name.to_owned(), Bytes::from_static(br#"{"capabilities":[]}"#))
}

fn names(registry: &Registry) -> Vec<String> {
    let tables = registry.read();
    tables.agents.following(None).map(|(agent, _): (&AgentId, _)| agent.to_string()).collect()
}

/// A store that takes every write and whose watches report, the last first, what they are given.
struct Watches(Mutex<Vec<Vec<Change>>>);

#[bus::async_trait]
impl KeyValue for Watches {
    async fn put(&self, _: Bucket, _: String, _: Bytes) -> Result<(), BusError> {
        Ok(())
    }

    async fn create(&self, _: Bucket, _: String, _: Bytes) -> Result<bool, BusError> {
        Ok(true)
    }

    async fn value(&self, _: Bucket, _: String) -> Result<Option<Bytes>, BusError> {
        Ok(None)
    }

    async fn delete(&self, _: Bucket, _: String) -> Result<bool, BusError> {
        Ok(true)
    }

    async fn watch(&self, _: Bucket) -> Result<BoxStream<'static, Change>, BusError> {
        let changes = self.0.lock().pop().unwrap_or_default();
        Ok(stream::iter(changes).boxed())
    }
}
