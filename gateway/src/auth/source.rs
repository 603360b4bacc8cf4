//! Where the verification keys come from, and how they are renewed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::key_set::{KEY_SET_BYTES_MAX, KeySet};
use super::now_s;
use crate::config::{AuthConfig, KeySource};
use crate::error::KeyError;
use crate::metrics::{GatewayMetrics, RefreshResult};

/// Between two fetches caused by unknown kids: a flood of made-up kids costs the issuer one request per window.
const URL_WINDOW: Duration = Duration::from_secs(30);
/// The same for a file, which costs nobody else anything.
const FILE_WINDOW: Duration = Duration::from_secs(1);
/// How long a fetch may take; tokens with an unknown kid wait for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a URL is fetched in the background unless configured.
const URL_REFRESH: Duration = Duration::from_secs(300);
/// How often a file is read in the background unless configured.
const FILE_REFRESH: Duration = Duration::from_secs(2);
/// Unknown kids remembered until the next background refresh. Beyond it the window alone protects the issuer.
const UNKNOWN_MAX: usize = 1024;

/// The keys in force, renewed in the background and, at most once per window, for a kid they lack.
pub(super) struct LiveKeys {
    config: AuthConfig,
    current: ArcSwap<KeySet>,
    /// The generation in force, for streams: what verified them may have gone.
    generation: watch::Sender<u64>,
    renewal: Mutex<Renewal>,
    client: Option<reqwest::Client>,
    metrics: Arc<GatewayMetrics>,
}

/// What a renewal knows of the last one; its lock lets one run at a time.
struct Renewal {
    document: String,
    fetched: Instant,
    unknown: BTreeSet<String>,
}

impl LiveKeys {
    pub(super) async fn load(config: &AuthConfig, metrics: Arc<GatewayMetrics>) -> Result<Self, KeyError> {
        let client = match &config.keys {
            KeySource::Url(url) => Some(client_for(url)?),
            KeySource::File(_) | KeySource::Inline(_) => None,
        };
        let document = fetch(&config.keys, client.as_ref()).await?;
        let keys = KeySet::parse(&document, config)?;
        metrics.access.keys_refreshed(RefreshResult::Changed, keys.len(), now_s());
        let renewal = Renewal { document, fetched: Instant::now(), unknown: BTreeSet::new() };
        let current = ArcSwap::from_pointee(keys);
        let generation = watch::Sender::new(0);
        Ok(Self { config: config.clone(), current, generation, renewal: Mutex::new(renewal), client, metrics })
    }

    pub(super) fn current(&self) -> arc_swap::Guard<Arc<KeySet>> {
        self.current.load()
    }

    /// Follows changes of the keys in force.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// The keys in force, after one renewal if they lack this kid and the window allows it.
    pub(super) async fn holding(&self, kid: &str) -> Arc<KeySet> {
        let keys = self.current.load_full();
        if keys.key(kid).is_some() || matches!(self.config.keys, KeySource::Inline(_)) {
            return keys;
        }
        let mut renewal = self.renewal.lock().await;
        let keys = self.current.load_full();
        if keys.key(kid).is_some() || renewal.unknown.contains(kid) {
            return keys;
        }
        if renewal.fetched.elapsed() >= self.window() {
            self.renew(&mut renewal).await;
        }
        let keys = self.current.load_full();
        if keys.key(kid).is_none() && renewal.unknown.len() < UNKNOWN_MAX {
            renewal.unknown.insert(kid.to_owned());
        }
        keys
    }

    pub(super) async fn drive_refresh(&self, stop: CancellationToken) {
        let period = match (&self.config.keys, self.config.refresh_s) {
            (KeySource::Inline(_), _) => return,
            (KeySource::File(_) | KeySource::Url(_), Some(seconds)) => Duration::from_secs(seconds),
            (KeySource::File(_), None) => FILE_REFRESH,
            (KeySource::Url(_), None) => URL_REFRESH,
        };
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
            let mut renewal = self.renewal.lock().await;
            self.renew(&mut renewal).await;
            renewal.unknown.clear();
        }
    }

    /// Fetches once. A set that cannot be fetched or used leaves the keys in force as they are.
    async fn renew(&self, renewal: &mut Renewal) {
        renewal.fetched = Instant::now();
        let fetched = fetch(&self.config.keys, self.client.as_ref()).await;
        let outcome = fetched.and_then(|document| {
            if document == renewal.document {
                return Ok(RefreshResult::Unchanged);
            }
            let generation = self.current.load().generation() + 1;
            let keys = KeySet::parse_renewed(&document, &self.config, generation)?;
            if keys.len() == 0 {
                tracing::warn!("the key set holds no key any more: no token is accepted until it does");
            }
            self.current.store(Arc::new(keys));
            self.generation.send_replace(generation);
            renewal.document = document;
            renewal.unknown.clear();
            Ok(RefreshResult::Changed)
        });
        match outcome {
            Ok(result) => self.metrics.access.keys_refreshed(result, self.current.load().len(), now_s()),
            Err(error) => {
                tracing::error!(%error, "the verification keys could not be renewed; the old ones stay in force");
                self.metrics.access.keys_refreshed(RefreshResult::Failed, self.current.load().len(), now_s());
            }
        }
    }

    fn window(&self) -> Duration {
        match self.config.keys {
            KeySource::Url(_) => URL_WINDOW,
            KeySource::File(_) | KeySource::Inline(_) => FILE_WINDOW,
        }
    }
}

/// A client that follows nothing and waits for nobody.
fn client_for(url: &str) -> Result<reqwest::Client, KeyError> {
    let unreadable = |text: String| KeyError::Unreadable(text);
    let parsed = reqwest::Url::parse(url).map_err(|error| unreadable(error.to_string()))?;
    let is_loopback = matches!(parsed.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    if parsed.scheme() != "https" && !(parsed.scheme() == "http" && is_loopback) {
        return Err(unreadable("a key set is fetched over https (http on loopback only)".to_owned()));
    }
    reqwest::Client::builder()
        .timeout(FETCH_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| unreadable(error.to_string()))
}

async fn fetch(source: &KeySource, client: Option<&reqwest::Client>) -> Result<String, KeyError> {
    match (source, client) {
        (KeySource::Inline(document), _) => Ok(document.clone()),
        (KeySource::File(path), _) => match tokio::time::timeout(FETCH_TIMEOUT, read(path)).await {
            Ok(Ok(bytes)) => decode(bytes),
            Ok(Err(error)) => Err(KeyError::Unreadable(format!("{}: {error}", path.display()))),
            Err(_) => Err(KeyError::Unreadable(format!("{}: not read within {FETCH_TIMEOUT:?}", path.display()))),
        },
        (KeySource::Url(url), Some(client)) => download(url, client).await,
        (KeySource::Url(_), None) => Err(KeyError::Unreadable("no client for the URL".to_owned())),
    }
}

/// Reads a regular file, one byte beyond the limit at most. A pipe is none: it could block for ever, and cannot be read again.
async fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(KEY_SET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

async fn download(url: &str, client: &reqwest::Client) -> Result<String, KeyError> {
    let unreadable = |error: reqwest::Error| KeyError::Unreadable(error.to_string());
    let response = client.get(url).send().await.map_err(unreadable)?;
    if !response.status().is_success() {
        return Err(KeyError::Unreadable(format!("the issuer answered {}", response.status())));
    }
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk.map_err(unreadable)?);
        if bytes.len() > KEY_SET_BYTES_MAX {
            break;
        }
    }
    decode(bytes)
}

fn decode(bytes: Vec<u8>) -> Result<String, KeyError> {
    if bytes.len() > KEY_SET_BYTES_MAX {
        return Err(KeyError::Unreadable(format!("more than {KEY_SET_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| KeyError::Malformed("not UTF-8".to_owned()))
}
