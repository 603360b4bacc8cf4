//! The gateway's configuration: parsed before anything is bound.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use agora::fetch::{HOSTS_MAX, is_host};
use ipnet::IpNet;
use schemas::{AgentId, GatewayId, Policy};
use serde::{Deserialize, Serialize, Serializer};
use telemetry::Tracer;

use crate::error::{ConfigFault, GatewayError};

/// Shortest development secret, in bytes: the output of SHA-256 (RFC 7518 section 3.2).
const DEV_SECRET_BYTES_MIN: usize = 32;
/// Longest lifetime a configuration may allow a token, in seconds: 30 days.
pub const TOKEN_LIFETIME_S_MAX: u64 = 30 * 86_400;
/// Longest lifetime a gateway allows a token unless its configuration says otherwise, in seconds: a day.
pub const TOKEN_LIFETIME_S_DEFAULT: u64 = 86_400;
/// Largest clock difference a configuration may forgive, in seconds.
const LEEWAY_S_MAX: u64 = 300;
/// Most audiences: an exchange has its own name, and an address for each way to it.
const AUDIENCES_MAX: usize = 16;

/// How one gateway runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Names the gateway in records and logs, for example `gateway-1`.
    #[serde(default = "default_id")]
    pub id: String,
    /// Where HTTP, WebSocket and SSE are served; absent: not at all (agents come over the bus).
    #[serde(default = "default_listen")]
    pub listen: Option<SocketAddr>,
    /// How tokens are verified.
    pub auth: AuthConfig,
    /// Rates and bounds.
    #[serde(default)]
    pub limits: LimitConfig,
    /// Policies stored at the start unless the exchange has them already.
    #[serde(default)]
    pub policies: Vec<Policy>,
    /// The policy of calls that name none, until the switch `PUT /v1/policies/default` is used.
    #[serde(default = "default_policy")]
    pub default_policy: String,
    /// Who may put policies and groups, besides tokens whose `scope` claim holds [`crate::ADMIN_SCOPE`].
    #[serde(default)]
    pub admins: BTreeSet<AgentId>,
    /// Who may look at the console.
    #[serde(default)]
    pub console: ConsoleAccess,
    /// Holds the token of the agent as whom transactions of Agora without a token enter, no administrator's; absent: they are
    /// refused. Checked at the start, and read anew for each of them.
    pub agora_token_file: Option<PathBuf>,
    /// Host names under which requests that enter without a token may come, besides addresses and names without a dot.
    #[serde(default)]
    pub visitor_hosts: Vec<String>,
    /// Proxies whose connections say by a PROXY header, as they must, whom they are from: addresses, or networks as `10.0.0.0/24`.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// Hosts from which documents are fetched by address; none: no document is.
    #[serde(default)]
    pub document_hosts: Vec<String>,
    /// Where spans go.
    #[serde(skip)]
    pub tracer: Tracer,
}

/// Who may look at the console, at `/`. Whoever changes something needs an administrator's token in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsoleAccess {
    /// Totals for everybody; names, negotiations and journals for administrators.
    #[default]
    Token,
    /// Everything for everybody who reaches the port: where only one's own machine does.
    Open,
    /// Nothing for anybody.
    Off,
}

/// How tokens are verified.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// Where the verification keys are.
    pub keys: KeySource,
    /// The `iss` every token must carry, character for character.
    #[serde(default = "default_issuer")]
    pub issuer: String,
    /// Of these every token's `aud` must name one, alone or among others.
    #[serde(default = "default_audience")]
    pub audience: Audiences,
    /// Clock difference forgiven on `exp`, `nbf` and `iat`, in seconds, 0 to 300.
    #[serde(default = "default_leeway_s")]
    pub leeway_s: u64,
    /// Longest lifetime of a token, in seconds, 1 to 30 days.
    #[serde(default = "default_lifetime_s_max")]
    pub lifetime_s_max: u64,
    /// How often the keys are read again, in seconds; absent: 2 for a file, 300 for a URL.
    pub refresh_s: Option<u64>,
    /// Accept HS256 tokens with kid [`crate::DEV_SECRET_KID`] signed with this secret. For development only: whoever
    /// can verify can also sign. At least 32 bytes.
    pub allow_hs256_dev_secret: Option<Secret>,
}

/// What tokens may be meant for: a text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Audiences {
    /// The only one.
    One(String),
    /// Any of these; tokens are signed for the first.
    Any(Vec<String>),
}

impl Audiences {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(audience) => std::slice::from_ref(audience),
            Self::Any(audiences) => audiences,
        }
    }

    /// The one that tokens are signed for.
    pub fn first(&self) -> &str {
        self.all().first().map_or("", String::as_str)
    }
}

/// From a flag or a variable: several are separated by commas.
impl FromStr for Audiences {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let audiences: Vec<String> = text.split(',').map(|one| one.trim().to_owned()).collect();
        Ok(if audiences.len() > 1 { Self::Any(audiences) } else { Self::One(text.to_owned()) })
    }
}

/// Where a JSON Web Key Set is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// A file, read again when it changes.
    File(PathBuf),
    /// An `https` URL (`http` on loopback only), fetched again in the background.
    Url(String),
    /// The document itself; never read again.
    Inline(String),
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(redacted)")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Rates and bounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Requests per second of one agent, over all its connections to this gateway. Refused ones count too; a message
    /// counts once for each 8 KiB it has begun.
    pub requests_per_s: u32,
    /// Requests one agent may send at once after a pause.
    pub burst: u32,
    /// Agents whose rate is tracked at once. Beyond it, agents not yet tracked are refused: the bound fails closed.
    pub rate_keys_max: usize,
    /// Tokens per second whose signature is checked for one peer address (verified tokens are remembered).
    pub verifications_per_s: u32,
    /// Tokens one peer may present at once after a pause.
    pub verification_burst: u32,
    /// HTTP connections open at once, streams included.
    pub connections_max: usize,
    /// WebSocket and SSE streams of one agent open at once.
    pub streams_per_agent_max: usize,
    /// Messages from the bus being admitted at once.
    pub bus_in_flight_max: usize,
    /// How long a client may take to send its header or its body, or to read what waits for it, in milliseconds.
    pub client_timeout_ms: u64,
    /// How long a message may wait for the log before its sender is told that the outcome is unknown, in milliseconds:
    /// by default longer than a cluster takes to choose a leader.
    pub append_ms: u64,
    /// How long a lane whose engine says nothing still takes calls in, in milliseconds; 0: for ever.
    pub engine_silence_ms: u64,
    /// Registered agents; registrations beyond it are refused.
    pub agents_max: usize,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            requests_per_s: 2000,
            burst: 4000,
            rate_keys_max: 100_000,
            verifications_per_s: 500,
            verification_burst: 12_000,
            connections_max: 12_000,
            streams_per_agent_max: 8,
            bus_in_flight_max: 1024,
            client_timeout_ms: 10_000,
            append_ms: 12_000,
            engine_silence_ms: 2000,
            agents_max: 100_000,
        }
    }
}

impl GatewayConfig {
    /// A configuration with every default, on a free port of loopback.
    pub fn new(auth: AuthConfig) -> Self {
        Self {
            id: default_id(),
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            auth,
            limits: LimitConfig::default(),
            policies: Vec::new(),
            default_policy: default_policy(),
            admins: BTreeSet::new(),
            console: ConsoleAccess::default(),
            agora_token_file: None,
            visitor_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            document_hosts: Vec::new(),
            tracer: Tracer::off(),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`GatewayError::Config`] naming the member and its range.
    pub fn check(&self) -> Result<(), GatewayError> {
        let refused = |fault: ConfigFault| GatewayError::Config(format!("`{}` {}", fault.member, fault.expected));
        self.fault().map_or(Ok(()), |fault| Err(refused(fault)))
    }

    /// The first member whose value its type takes and a gateway does not.
    pub fn fault(&self) -> Option<ConfigFault> {
        let limits = &self.limits;
        let positive = [
            ("limits.requests_per_s", u64::from(limits.requests_per_s)),
            ("limits.burst", u64::from(limits.burst)),
            ("limits.rate_keys_max", limits.rate_keys_max as u64),
            ("limits.verifications_per_s", u64::from(limits.verifications_per_s)),
            ("limits.verification_burst", u64::from(limits.verification_burst)),
            ("limits.connections_max", limits.connections_max as u64),
            ("limits.streams_per_agent_max", limits.streams_per_agent_max as u64),
            ("limits.bus_in_flight_max", limits.bus_in_flight_max as u64),
            ("limits.client_timeout_ms", limits.client_timeout_ms),
            ("limits.append_ms", limits.append_ms),
            ("limits.agents_max", limits.agents_max as u64),
            ("auth.refresh_s", self.auth.refresh_s.unwrap_or(1)),
        ];
        if let Some((member, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Some(ConfigFault { member, expected: "must be at least 1".to_owned() });
        }
        // A gateway's name is a token of a subject, as an agent's is.
        if GatewayId::try_new(&self.id).is_err() {
            return Some(ConfigFault { member: "id", expected: "must have 1 to 64 of A-Z a-z 0-9 _ -".to_owned() });
        }
        let lists = [("document_hosts", &self.document_hosts), ("visitor_hosts", &self.visitor_hosts)];
        let is_fit = |hosts: &[String]| hosts.len() <= HOSTS_MAX && hosts.iter().all(|host| is_host(host));
        if let Some((member, _)) = lists.into_iter().find(|(_, hosts)| !is_fit(hosts)) {
            let expected =
                format!("must be at most {HOSTS_MAX} names of hosts in small letters, without scheme and port");
            return Some(ConfigFault { member, expected });
        }
        if self.proxies().is_none() {
            let expected = format!("must be at most {HOSTS_MAX} addresses, or networks such as 10.0.0.0/24");
            return Some(ConfigFault { member: "trusted_proxies", expected });
        }
        self.auth.fault()
    }

    /// The networks of [`Self::trusted_proxies`]; nothing where one of them is none.
    pub fn proxies(&self) -> Option<Vec<IpNet>> {
        let network = |text: &String| text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let networks = self.trusted_proxies.iter().map(network).collect::<Option<Vec<_>>>();
        networks.filter(|networks| networks.len() <= HOSTS_MAX)
    }
}

impl AuthConfig {
    /// Verification with every default.
    pub fn new(keys: KeySource, issuer: impl Into<String>) -> Self {
        Self {
            keys,
            issuer: issuer.into(),
            audience: default_audience(),
            leeway_s: default_leeway_s(),
            lifetime_s_max: default_lifetime_s_max(),
            refresh_s: None,
            allow_hs256_dev_secret: None,
        }
    }

    fn fault(&self) -> Option<ConfigFault> {
        let fault = |member, expected: String| Some(ConfigFault { member, expected });
        if self.issuer.is_empty() {
            return fault("auth.issuer", "must not be empty".to_owned());
        }
        let audiences = self.audience.all();
        if !(1..=AUDIENCES_MAX).contains(&audiences.len()) || audiences.iter().any(String::is_empty) {
            return fault("auth.audience", format!("must name 1 to {AUDIENCES_MAX}, none of them empty"));
        }
        if self.leeway_s > LEEWAY_S_MAX {
            return fault("auth.leeway_s", format!("must be 0 to {LEEWAY_S_MAX}"));
        }
        if !(1..=TOKEN_LIFETIME_S_MAX).contains(&self.lifetime_s_max) {
            return fault("auth.lifetime_s_max", format!("must be 1 to {TOKEN_LIFETIME_S_MAX}"));
        }
        if self.allow_hs256_dev_secret.as_ref().is_some_and(|secret| secret.0.len() < DEV_SECRET_BYTES_MIN) {
            return fault("auth.allow_hs256_dev_secret", format!("must have at least {DEV_SECRET_BYTES_MIN} bytes"));
        }
        None
    }
}

fn default_id() -> String {
    "gateway".to_owned()
}

fn default_listen() -> Option<SocketAddr> {
    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
}

fn default_policy() -> String {
    "medium".to_owned()
}

fn default_issuer() -> String {
    "llmx-local".to_owned()
}

fn default_audience() -> Audiences {
    Audiences::One("llmx".to_owned())
}

const fn default_leeway_s() -> u64 {
    30
}

const fn default_lifetime_s_max() -> u64 {
    TOKEN_LIFETIME_S_DEFAULT
}
