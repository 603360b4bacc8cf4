//! Register, buckets, large documents.

use bus::{Blobs, Bucket, BusError, Change, KeyValue, Register, Registered};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use schemas::RegisterKey;
use tokio::sync::mpsc;

use super::{CallKind, Handle, incoming};
use crate::points::Point;

/// How names of checkpoints begin.
const CHECKPOINT: &str = "checkpoint-";

impl Register for Handle {
    fn write(&self, key: RegisterKey, value: Bytes) -> BoxFuture<'_, Result<Registered, BusError>> {
        self.call(CallKind::Register, move |state, _| {
            let now = state.now();
            let is_award = matches!(key, RegisterKey::Award(..) | RegisterKey::AwardEnd(..));
            if is_award && state.happens(state.weather.register_foreign) {
                state.broker.register_foreign(&key, now);
            }
            let registered = state.broker.register(key, value, now);
            match registered {
                Registered::Written => {}
                Registered::Same => state.reached(Point::RegisterSame),
                Registered::Different(_) => state.reached(Point::RegisterRefused),
            }
            Ok(registered)
        })
    }

    fn value(&self, key: RegisterKey) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.registered(&key)))
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<(RegisterKey, Bytes)>, BusError>> {
        self.call(CallKind::Other, |state, _| Ok(state.broker.register.clone()))
    }
}

impl KeyValue for Handle {
    fn put(&self, bucket: Bucket, key: String, value: Bytes) -> BoxFuture<'_, Result<(), BusError>> {
        self.call(CallKind::Other, move |state, _| {
            state.put(bucket, &key, Some(value));
            Ok(())
        })
    }

    fn create(&self, bucket: Bucket, key: String, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        self.call(CallKind::Other, move |state, _| {
            let is_new = !state.broker.bucket(bucket).contains_key(&key);
            if is_new {
                state.put(bucket, &key, Some(value));
            }
            Ok(is_new)
        })
    }

    fn value(&self, bucket: Bucket, key: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.bucket(bucket).get(&key).cloned()))
    }

    fn delete(&self, bucket: Bucket, key: String) -> BoxFuture<'_, Result<(), BusError>> {
        self.call(CallKind::Other, move |state, _| {
            state.put(bucket, &key, None);
            Ok(())
        })
    }

    fn watch(&self, bucket: Bucket) -> BoxFuture<'_, Result<BoxStream<'static, Change>, BusError>> {
        async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            let watch = move |state: &mut crate::world::WorldState, link| {
                state.watch(link, bucket, sender);
                Ok(())
            };
            self.call(CallKind::Other, watch).await?;
            Ok(incoming(receiver))
        }
        .boxed()
    }
}

impl Blobs for Handle {
    fn put(&self, name: String, version: u64, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        self.call(CallKind::Other, move |state, _| {
            if state.broker.blobs.get(&name).is_some_and(|(standing, _)| *standing > version) {
                return Ok(false);
            }
            if name.starts_with(CHECKPOINT) {
                state.reached(Point::CheckpointStored);
            }
            state.broker.blobs.insert(name, (version, value));
            Ok(true)
        })
    }

    fn value(&self, name: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.call(CallKind::Other, move |state, _| {
            let value = state.broker.blobs.get(&name).map(|(_, value)| value.clone());
            if name.starts_with(CHECKPOINT) && value.as_ref().is_some_and(|value| state.broker.names_refused(value)) {
                state.reached(Point::CheckpointRefused);
            }
            Ok(value)
        })
    }

    fn version(&self, name: String) -> BoxFuture<'_, Result<Option<u64>, BusError>> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.blobs.get(&name).map(|(version, _)| *version)))
    }
}
