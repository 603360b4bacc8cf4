//! How long a stream may stay open: until its token runs out, the key that signed it is taken out of the key set, an
//! administrator ends the agent's streams, or the gateway stops.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::Site;
use super::stream_limit::StreamPermit;
use crate::admission::Admission;
use crate::auth::Identity;
use crate::auth::now_s;
use crate::metrics::CloseReason;

/// What can end one stream from outside.
pub(crate) struct StreamLifetime {
    admission: Admission,
    identity: Arc<Identity>,
    expired: Pin<Box<Sleep>>,
    keys: watch::Receiver<u64>,
    ended: CancellationToken,
    stop: CancellationToken,
}

impl StreamLifetime {
    pub(crate) fn new(site: &Site, identity: Arc<Identity>, permit: &StreamPermit) -> Self {
        Self::ended_by(site, identity, permit.ended())
    }

    /// The same for a stream that takes no place among the agent's.
    pub(crate) fn ended_by(site: &Site, identity: Arc<Identity>, ended: CancellationToken) -> Self {
        let lifetime = Duration::from_secs(identity.expires_s.saturating_sub(now_s()));
        let mut keys = site.admission.key_changes();
        // The set may have changed since the token was verified.
        keys.mark_changed();
        Self {
            admission: site.admission.clone(),
            identity,
            expired: Box::pin(tokio::time::sleep(lifetime)),
            keys,
            ended,
            stop: site.stop.clone(),
        }
    }

    /// Waits until the stream is over, and says why. May be dropped and called again.
    pub(crate) async fn over(&mut self) -> CloseReason {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return CloseReason::Shutdown,
                () = self.ended.cancelled() => return CloseReason::Ended,
                () = self.expired.as_mut() => return CloseReason::Expired,
                changed = self.keys.changed() => {
                    // Without anybody to change them the gateway is gone.
                    if changed.is_err() {
                        return CloseReason::Shutdown;
                    }
                    if !self.admission.is_key_in_force(&self.identity) {
                        return CloseReason::KeyRemoved;
                    }
                }
            }
        }
    }
}

impl CloseReason {
    /// What the client is told; part of the interface. Nothing where nobody is left to be told.
    pub(crate) const fn farewell(self) -> Option<&'static str> {
        match self {
            Self::Expired => Some("the token has expired"),
            Self::KeyRemoved => Some("the key that signed the token is trusted no longer"),
            Self::Ended => Some("an administrator ended the agent's streams"),
            Self::Shutdown => Some("the gateway stops"),
            Self::Bus => Some("the bus ended the stream"),
            Self::Slow => Some("the client reads too slowly"),
            Self::Idle => Some("no sign of life"),
            Self::Protocol => Some("protocol error"),
            Self::Client => None,
        }
    }

    /// The data of the last event of an event stream.
    pub(crate) fn closing(self) -> Option<String> {
        self.farewell().map(|detail| json!({ "reason": <&str>::from(self), "detail": detail }).to_string())
    }
}
