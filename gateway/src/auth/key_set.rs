//! The verification keys (RFC 7517): a set in which each key is pinned to one algorithm, where it comes from, and how it is
//! renewed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::StreamExt as _;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use schemas::text::is_loopback;
use schemas::{Digest, Refusal};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{TokenHeader, now_s, refusal, refusal_of};
use crate::DEV_SECRET_KID;
use crate::config::{AuthConfig, KeySource};
use crate::error::KeyError;
use crate::metrics::{GatewayMetrics, RefreshResult};
use crate::until;

/// Largest key set document, in bytes.
const KEY_SET_BYTES_MAX: usize = 256 * 1024;
/// Most keys in a set; issuers rotate through two or three.
const KEYS_MAX: usize = 64;
/// Shortest RSA modulus, in bits (NIST SP 800-131A).
const RSA_BITS_MIN: usize = 2048;
/// Longest RSA modulus the verifier takes, in bits.
const RSA_BITS_MAX: usize = 8192;
/// Smallest public exponent: 65537. Smaller ones have a history of forgeries.
const RSA_EXPONENT_MIN: u64 = 65_537;

/// One set of keys.
pub(super) struct KeySet {
    keys: BTreeMap<String, VerifyingKey>,
    generation: u64,
}

/// Which key verified a token: its name, and what it is made of. Another key under the same name is another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyMark {
    kid: String,
    material: Digest,
}

/// One key and the only algorithm it verifies.
struct VerifyingKey {
    material: Digest,
    /// The `alg` a token signed by this key must name.
    algorithm: &'static str,
    decoding: DecodingKey,
    validation: Validation,
}

impl KeySet {
    /// Reads the first JSON Web Key Set: one without a key for signatures is a mistake.
    fn parse(document: &str, config: &AuthConfig) -> Result<Self, KeyError> {
        let (set, skipped) = Self::parse_renewed(document, config, 0)?;
        if set.keys.is_empty() { Err(skipped.unwrap_or(KeyError::Empty)) } else { Ok(set) }
    }

    /// Reads a JSON Web Key Set. Keys for other algorithms or uses are passed over, those that are not understood skipped with
    /// a warning; the first of these is returned beside. The set may hold no key any more: whoever takes the last one out
    /// means it.
    fn parse_renewed(
        document: &str,
        config: &AuthConfig,
        generation: u64,
    ) -> Result<(Self, Option<KeyError>), KeyError> {
        let malformed = |text: &str| KeyError::Malformed(text.to_owned());
        let expected = "expected a JSON Web Key Set, such as the jwks.json that `llmx keys` writes";
        let root: Value = serde_json::from_str(document).map_err(|error| malformed(&format!("{error}; {expected}")))?;
        let listed = root.get("keys").and_then(Value::as_array).ok_or_else(|| malformed("no list `keys`"))?;
        if listed.len() > KEYS_MAX {
            return Err(KeyError::TooMany { found: listed.len(), limit: KEYS_MAX });
        }
        let mut keys = BTreeMap::new();
        if let Some(secret) = &config.allow_hs256_dev_secret {
            let decoding = DecodingKey::from_secret(secret.0.as_bytes());
            let material = Digest::of_bytes(secret.0.as_bytes());
            keys.insert(
                DEV_SECRET_KID.to_owned(),
                VerifyingKey::new((Algorithm::HS256, "HS256"), decoding, material, config),
            );
        }
        let (mut ambiguous, mut skipped) = (Vec::new(), None);
        for entry in listed {
            let error = match VerifyingKey::parse(entry, config) {
                Ok(None) => continue,
                Ok(Some((kid, key))) => match keys.get(&kid) {
                    Some(other) if other.material != key.material => {
                        ambiguous.push(kid.clone());
                        KeyError::DuplicateKid(kid)
                    }
                    Some(_) => continue,
                    None => {
                        keys.insert(kid, key);
                        continue;
                    }
                },
                Err(error @ KeyError::Secret(_)) => return Err(error),
                Err(error) => error,
            };
            tracing::warn!(%error, "a key of the key set is skipped: no token is accepted that it signed");
            skipped.get_or_insert(error);
        }
        keys.retain(|kid, _| !ambiguous.contains(kid));
        Ok((Self { keys, generation }, skipped))
    }

    /// The key of this name.
    fn key(&self, kid: &str) -> Option<&VerifyingKey> {
        self.keys.get(kid)
    }

    /// Verifies the signature and the registered claims of a token, and says by which key.
    ///
    /// # Errors
    /// [`schemas::Code::Unauthenticated`], [`schemas::Code::TokenExpired`] or [`schemas::Code::TokenNotYetValid`].
    pub(super) fn verify<C: DeserializeOwned>(
        &self,
        token: &str,
        TokenHeader { alg, kid }: TokenHeader,
    ) -> Result<(C, KeyMark), Refusal> {
        let key = self.key(&kid).ok_or_else(|| refusal("the token names a key this gateway does not know"))?;
        if alg != key.algorithm {
            return Err(refusal("the token's `alg` is not the one its key is for"));
        }
        let decoded = jsonwebtoken::decode::<C>(token, &key.decoding, &key.validation);
        let claims = decoded.map_err(|error| refusal_of(error.kind()))?.claims;
        Ok((claims, KeyMark { kid, material: key.material }))
    }

    /// Whether the key that verified a token is still in the set.
    pub(super) fn holds(&self, mark: &KeyMark) -> bool {
        self.keys.get(&mark.kid).is_some_and(|key| key.material == mark.material)
    }

    /// Rises with every change of the set: what was verified with an older one is verified again.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many keys verify.
    fn len(&self) -> usize {
        self.keys.len()
    }
}

impl VerifyingKey {
    fn new(
        (algorithm, name): (Algorithm, &'static str),
        decoding: DecodingKey,
        material: Digest,
        config: &AuthConfig,
    ) -> Self {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(config.audience.all());
        validation.validate_nbf = true;
        validation.leeway = config.leeway_s;
        Self { material, algorithm: name, decoding, validation }
    }

    /// Reads one key and its name; `None` when it is public but for something else.
    fn parse(entry: &Value, config: &AuthConfig) -> Result<Option<(String, Self)>, KeyError> {
        let entry = entry.as_object().ok_or_else(|| KeyError::Malformed("a key is not an object".to_owned()))?;
        let kid = text(entry, "kid");
        if ["d", "k", "p", "q"].iter().any(|name| entry.contains_key(*name)) || text(entry, "kty") == Some("oct") {
            return Err(KeyError::Secret(kid.unwrap_or("without `kid`").to_owned()));
        }
        if text(entry, "use").is_some_and(|purpose| purpose != "sig") || !may_verify(entry) {
            return Ok(None);
        }
        let kid = kid.ok_or(KeyError::MissingKid)?.to_owned();
        let unfit = |fault: &str| KeyError::Unfit { kid: kid.clone(), fault: fault.to_owned() };
        let (algorithm, name) = match (text(entry, "kty"), text(entry, "crv")) {
            (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDSA, "EdDSA"),
            (Some("EC"), Some("P-256")) => (Algorithm::ES256, "ES256"),
            (Some("RSA"), _) => (Algorithm::RS256, "RS256"),
            (_, _) => return Err(unfit("it is no key for EdDSA with Ed25519, ES256 or RS256")),
        };
        if text(entry, "alg").is_some_and(|declared| declared != name) {
            return Err(unfit(&format!("its `alg` is not {name}")));
        }
        let member = |name: &str| -> Result<Vec<u8>, KeyError> {
            let value = text(entry, name).ok_or_else(|| unfit("a member of the public key is missing"))?;
            URL_SAFE_NO_PAD.decode(value).map_err(|_| unfit("a member of the public key is not base64url"))
        };
        let decoding = match text(entry, "kty") {
            Some("OKP") => ed25519(&member("x")?),
            Some("EC") => p256(&member("x")?, &member("y")?),
            Some(_) | None => rsa(&member("n")?, &member("e")?),
        };
        let parts = ["kty", "crv", "x", "y", "n", "e"].map(|name| text(entry, name).unwrap_or_default().as_bytes());
        let material = Digest::of_parts(&parts);
        let key = Self::new((algorithm, name), decoding.map_err(unfit)?, material, config);
        Ok(Some((kid, key)))
    }
}

fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    entry.get(name).and_then(Value::as_str)
}

fn may_verify(entry: &Map<String, Value>) -> bool {
    entry
        .get("key_ops")
        .and_then(Value::as_array)
        .is_none_or(|operations| operations.iter().any(|operation| operation.as_str() == Some("verify")))
}

fn ed25519(x: &[u8]) -> Result<DecodingKey, &'static str> {
    if x.len() == 32 { Ok(DecodingKey::from_ed_der(x)) } else { Err("an Ed25519 key has 32 bytes") }
}

fn p256(x: &[u8], y: &[u8]) -> Result<DecodingKey, &'static str> {
    if x.len() != 32 || y.len() != 32 {
        return Err("a P-256 coordinate has 32 bytes");
    }
    // The uncompressed point of SEC 1 section 2.3.3; whether it lies on the curve the verifier checks.
    let mut point = vec![4];
    point.extend_from_slice(x);
    point.extend_from_slice(y);
    Ok(DecodingKey::from_ec_der(&point))
}

fn rsa(n: &[u8], e: &[u8]) -> Result<DecodingKey, &'static str> {
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
        return Err("an RSA modulus must have 2048 to 8192 bits");
    }
    let exponent = (e.len() <= 8).then(|| e.iter().fold(0_u64, |value, byte| (value << 8) | u64::from(*byte)));
    match exponent {
        Some(value) if value >= RSA_EXPONENT_MIN && value % 2 == 1 => Ok(DecodingKey::from_rsa_raw_components(n, e)),
        Some(_) | None => Err("an RSA exponent must be odd and at least 65537"),
    }
}

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
}

impl LiveKeys {
    pub(super) async fn load(config: &AuthConfig, metrics: Arc<GatewayMetrics>) -> Result<Self, KeyError> {
        let client = client_of(&config.keys)?;
        let document = fetch(&config.keys, client.as_ref()).await?;
        let keys = KeySet::parse(&document, config)?;
        metrics.access.keys_refreshed(RefreshResult::Changed, keys.len(), now_s());
        let renewal = Renewal { document, fetched: Instant::now() };
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
        if keys.key(kid).is_some() || renewal.fetched.elapsed() < self.window() {
            return keys;
        }
        self.renew(&mut renewal).await;
        self.current.load_full()
    }

    pub(super) async fn drive_refresh(&self, stop: CancellationToken) {
        let period = match (&self.config.keys, self.config.refresh_s) {
            (KeySource::Inline(_), _) => return,
            (KeySource::File(_) | KeySource::Url(_), Some(seconds)) => Duration::from_secs(seconds),
            (KeySource::File(_), None) => FILE_REFRESH,
            (KeySource::Url(_), None) => URL_REFRESH,
        };
        while until(&stop, tokio::time::sleep(period)).await.is_some() {
            self.renew(&mut *self.renewal.lock().await).await;
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
            let (keys, _) = KeySet::parse_renewed(&document, &self.config, generation)?;
            if keys.len() == 0 {
                tracing::warn!("the key set holds no key any more: no token is accepted until it does");
            }
            self.current.store(Arc::new(keys));
            self.generation.send_replace(generation);
            renewal.document = document;
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

/// Reads the document of a key set as a gateway would, once.
///
/// # Errors
/// [`KeyError::Unreadable`] and [`KeyError::Malformed`]; whether it is a key set is not looked at.
pub async fn read_key_set(source: &KeySource) -> Result<String, KeyError> {
    fetch(source, client_of(source)?.as_ref()).await
}

/// For a URL, a client that follows nothing and waits for nobody.
fn client_of(source: &KeySource) -> Result<Option<reqwest::Client>, KeyError> {
    let KeySource::Url(url) = source else { return Ok(None) };
    let unreadable = |text: String| KeyError::Unreadable(text);
    let parsed = reqwest::Url::parse(url).map_err(|error| unreadable(error.to_string()))?;
    let is_own = parsed.host_str().is_some_and(is_loopback);
    if parsed.scheme() != "https" && !(parsed.scheme() == "http" && is_own) {
        return Err(unreadable("a key set is fetched over https (http on loopback only)".to_owned()));
    }
    let builder = reqwest::Client::builder().timeout(FETCH_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    let builder = if is_own { builder.no_proxy() } else { builder };
    builder.build().map(Some).map_err(|error| unreadable(error.to_string()))
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
