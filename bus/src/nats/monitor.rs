//! What servers say of themselves on their monitoring ports: above all, when they flush to disk.
//!
//! A client cannot ask for that over NATS unless it is let into the system account.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use super::NatsOptions;
use super::requirement::difference;
use super::requirement::version_difference;
use crate::BusError;

/// Wait for one answer of a monitoring port, which has nothing else to do.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How to let a server be looked at.
const ENABLE: &str = "set `http: \"127.0.0.1:8222\"` in the configuration of each server, and name the URLs of these \
                      monitoring ports, separated by commas";

/// When a server flushes what it has stored to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum SyncMode {
    /// Every two minutes: an acknowledged record survives the crash of the server, not of its machine.
    #[default]
    Default,
    /// Before it acknowledges: an acknowledged record survives a power cut.
    Always,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    id: String,
    name: String,
    version: String,
    sync: SyncMode,
    /// Servers with JetStream in its cluster, itself among them.
    cluster_size: u64,
    /// The cluster's leader, when it is in a cluster and knows it.
    pub cluster_leader: Option<String>,
}

impl ServerInfo {
    fn parse(varz: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let jetstream = &varz["jetstream"];
        let is_always = jetstream["config"]["sync_always"].as_bool().unwrap_or(false);
        Some(Self {
            id: text(&varz["server_id"])?,
            name: text(&varz["server_name"])?,
            version: text(&varz["version"])?,
            sync: if is_always { SyncMode::Always } else { SyncMode::Default },
            cluster_size: jetstream["meta"]["cluster_size"].as_u64().unwrap_or(1),
            cluster_leader: text(&jetstream["meta"]["leader"]).filter(|leader| !leader.is_empty()),
        })
    }
}

/// Asks monitoring ports.
#[derive(Debug, Clone)]
pub struct Monitor {
    client: reqwest::Client,
}

impl Monitor {
    /// Makes the HTTP client.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when there is none.
    pub fn new() -> Result<Self, BusError> {
        let client = reqwest::Client::builder().timeout(ANSWER_TIMEOUT).no_proxy().build();
        let client = client.map_err(|error| BusError::Unreachable(format!("no HTTP client: {error}")))?;
        Ok(Self { client })
    }

    /// What the server with this monitoring port says of itself, or why that is not known.
    ///
    /// # Errors
    /// The reason, in words.
    pub async fn look(&self, url: &str) -> Result<ServerInfo, String> {
        let varz = self.ask(url, "/varz").await?;
        ServerInfo::parse(&varz).ok_or_else(|| format!("{url} answers, but not as nats-server does"))
    }

    /// Whether the server can do its work; otherwise what is wrong.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub async fn health(&self, url: &str) -> Result<(), String> {
        let health = self.ask(url, "/healthz").await?;
        if health["status"] == "ok" { Ok(()) } else { Err(format!("{url} is not healthy: {health}")) }
    }

    /// The name of the server that leads a stream, none when this one knows of none.
    ///
    /// # Errors
    /// The reason why that is not known, in words.
    pub async fn stream_leader(&self, url: &str, stream: &str) -> Result<Option<String>, String> {
        let answer = self.ask(url, "/jsz?accounts=true&streams=true").await?;
        let lists = |value: &Value, member: &str| value[member].as_array().cloned().unwrap_or_default();
        let mut streams =
            lists(&answer, "account_details").into_iter().flat_map(|account| lists(&account, "stream_detail"));
        let found = streams.find(|found| found["name"] == stream);
        Ok(found.and_then(|found| found["cluster"]["leader"].as_str().map(str::to_owned)))
    }

    async fn ask(&self, url: &str, path: &str) -> Result<Value, String> {
        let url = format!("{}{path}", url.trim_end_matches('/'));
        let fault = |error: reqwest::Error| format!("{url} does not answer: {error}");
        let answer = self.client.get(&url).send().await.map_err(fault)?;
        let body = answer.bytes().await.map_err(fault)?;
        serde_json::from_slice(&body).map_err(|_| format!("{url} does not answer with JSON"))
    }
}

/// Every difference between the servers and what the options ask of them; `connected_to` is the id of one of them, where
/// it is known.
pub(super) async fn check(options: &NatsOptions, connected_to: Option<&str>) -> Result<Vec<String>, BusError> {
    let needed = options.sync.unwrap_or_default();
    let Some(urls) = &options.monitor else {
        let unknown = || difference("sync", "no way to see it", &needed.to_string(), ENABLE);
        return Ok((needed == SyncMode::Always).then(unknown).into_iter().collect());
    };
    let monitor = Monitor::new()?;
    let (mut found, mut differences) = (Vec::new(), Vec::new());
    for url in urls.split(',').map(str::trim).filter(|url| !url.is_empty()) {
        match monitor.look(url).await {
            Ok(server) => found.push(server),
            Err(error) => differences.push(difference("monitoring port", &error, "an answer", ENABLE)),
        }
    }
    differences.extend(compare(&found, needed, connected_to));
    Ok(differences)
}

fn compare(found: &[ServerInfo], needed: SyncMode, connected_to: Option<&str>) -> Vec<String> {
    let mut differences = Vec::new();
    for server in found {
        let of_server = |difference: String| format!("server {} {difference}", server.name);
        differences.extend(version_difference(&server.version).map(of_server));
        if needed == SyncMode::Always && server.sync != needed {
            let remedy = "set `sync_interval: always` in its `jetstream` block and restart it";
            let (found, needed) = (server.sync.to_string(), needed.to_string());
            differences.push(of_server(difference("sync", &found, &needed, remedy)));
        }
    }
    let ids: HashSet<_> = found.iter().map(|server| server.id.as_str()).collect();
    let size = found.iter().map(|server| server.cluster_size).max().unwrap_or(1);
    let seen = format!("{} of {size} servers", ids.len());
    if (ids.len() as u64) < size {
        differences.push(difference("monitoring ports", &seen, "every server", ENABLE));
    } else if connected_to.is_some_and(|id| !ids.contains(id)) {
        let remedy = "name the monitoring ports of the servers that are connected to";
        differences.push(difference("monitoring ports", "other servers", "those connected to", remedy));
    }
    differences
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let alone = json!({"server_id": "A", "server_name": "a", "version": "2.15.1",
            "jetstream": {"config": {"sync_always": true}}});
        let found = ServerInfo::parse(&alone).unwrap();
        assert_eq!((found.sync, found.cluster_size, found.cluster_leader), (SyncMode::Always, 1, None));
        let member = json!({"server_id": "A", "server_name": "a", "version": "2.15.1",
            "jetstream": {"config": {}, "meta": {"leader": "b", "cluster_size": 3}}});
        let found = ServerInfo::parse(&member).unwrap();
        assert_eq!((found.sync, found.cluster_size), (SyncMode::Default, 3));
        assert_eq!(found.cluster_leader.as_deref(), Some("b"));
        assert_eq!(ServerInfo::parse(&json!({"status": "ok"})), None);
    }

    #[test]
    fn every_server_must_be_seen_be_new_enough_and_flush_as_asked() {
        let three = [server("a"), server("b"), server("c")];
        assert_eq!(compare(&three, SyncMode::Always, Some("a")), Vec::<String>::new());
        let [mut one, mut two, three] = three;
        one.sync = SyncMode::Default;
        two.version = "2.9.10".to_owned();
        let told = compare(&[one.clone(), two, three], SyncMode::Always, Some("x")).join("; ");
        for difference in [
            "server a sync: found default, needed always, set `sync_interval: always`",
            "server b nats-server version: found 2.9.10, needed 2.12.3 or newer",
            "monitoring ports: found other servers, needed those connected to",
        ] {
            assert!(told.contains(difference), "{difference} in {told}");
        }
        assert_eq!(
            compare(&[one.clone(), server("b"), server("c")], SyncMode::Default, Some("a")),
            Vec::<String>::new()
        );
        let told = compare(&[server("a"), server("a")], SyncMode::Always, Some("a")).join("; ");
        assert!(told.starts_with("monitoring ports: found 1 of 3 servers, needed every server, set `http:"), "{told}");
    }

    fn server(name: &str) -> ServerInfo {
        ServerInfo {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "2.15.1".to_owned(),
            sync: SyncMode::Always,
            cluster_size: 3,
            cluster_leader: Some("a".to_owned()),
        }
    }
}
