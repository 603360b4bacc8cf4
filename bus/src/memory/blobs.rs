//! Large documents: a map.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::name::check_key;
use crate::{Blobs, BusError};

/// See the module. Names are few, and each is one of the exchange's own.
#[derive(Debug, Default)]
pub(super) struct MemoryBlobs {
    documents_by_name: RwLock<HashMap<String, Document>>,
}

#[derive(Debug)]
struct Document {
    version: u64,
    value: Bytes,
}

impl MemoryBlobs {
    fn documents(&self) -> RwLockReadGuard<'_, HashMap<String, Document>> {
        self.documents_by_name.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, name: String, version: u64, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        async move {
            check_key(&name)?;
            let mut documents = self.documents_by_name.write().unwrap_or_else(PoisonError::into_inner);
            let is_overtaken = documents.get(&name).is_some_and(|standing| standing.version > version);
            if !is_overtaken {
                documents.insert(name, Document { version, value });
            }
            Ok(!is_overtaken)
        }
        .boxed()
    }

    fn value(&self, name: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        async move {
            check_key(&name)?;
            Ok(self.documents().get(&name).map(|document| document.value.clone()))
        }
        .boxed()
    }

    fn version(&self, name: String) -> BoxFuture<'_, Result<Option<u64>, BusError>> {
        async move {
            check_key(&name)?;
            Ok(self.documents().get(&name).map(|document| document.version))
        }
        .boxed()
    }
}
