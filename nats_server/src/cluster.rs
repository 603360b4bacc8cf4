//! Three servers that replicate their streams: the smallest cluster that survives the loss of one.

use std::time::Duration;

use futures_util::future;
use tokio::time::Instant;

use super::plan::{Membership, Ports};
use super::{Folder, LocalServer, LocalServerOptions, START_ATTEMPTS_MAX, checked_binary};
use bus::BusError;
use bus::nats::{Monitor, ServerInfo};

/// Servers of a [`LocalCluster`].
pub const CLUSTER_NODES: usize = 3;
/// Time in which a cluster elects a leader, or a server catches up: seconds, and many on a busy machine.
const AGREE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at whether it has.
const AGREE_POLL: Duration = Duration::from_millis(50);

/// A running cluster on 127.0.0.1. Its servers are named `n0`, `n1` and `n2`; all are killed when it is dropped.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<LocalServer>,
    monitor: Monitor,
}

impl LocalCluster {
    /// Starts the servers and waits until they have a leader.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when there is no binary, one does not start, or they do not agree on a leader;
    /// [`BusError::Mismatch`] when the binary is too old.
    pub async fn start(options: LocalServerOptions) -> Result<Self, BusError> {
        let mut attempt = 1;
        loop {
            match Self::try_start(&options).await {
                Ok(cluster) => break cluster.until_healthy().await.map(|()| cluster),
                Err(error) if attempt == START_ATTEMPTS_MAX => break Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    async fn try_start(options: &LocalServerOptions) -> Result<Self, BusError> {
        let binary = checked_binary().await?;
        let mut ports = Vec::new();
        for _ in 0..CLUSTER_NODES {
            ports.push(Ports::choose(None)?);
        }
        let routes: Vec<_> = ports.iter().map(|ports| ports.route).collect();
        let mut nodes = Vec::new();
        for (index, ports) in ports.into_iter().enumerate() {
            let membership = Membership { name: format!("n{index}"), routes: routes.clone() };
            let node = LocalServer::prepare(binary.clone(), options.clone(), Folder::temporary()?, ports);
            nodes.push(LocalServer { membership: Some(membership), ..node });
        }
        let mut cluster = Self { nodes, monitor: Monitor::new()? };
        for node in &mut cluster.nodes {
            node.spawn()?;
        }
        let ready = future::join_all(cluster.nodes.iter_mut().map(LocalServer::until_ready)).await;
        ready.into_iter().collect::<Result<(), _>>().map(|()| cluster)
    }

    /// Where its servers listen for clients, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        self.join(LocalServer::url)
    }

    /// Where its servers answer `/varz`, `/jsz` and `/healthz`, separated by commas.
    #[must_use]
    pub fn monitor_urls(&self) -> String {
        self.join(LocalServer::monitor_url)
    }

    fn join(&self, url: impl Fn(&LocalServer) -> String) -> String {
        self.nodes.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// One of its servers, 0 to [`CLUSTER_NODES`] - 1; to ask for its process, or to pause it.
    ///
    /// # Panics
    /// When there is no such server.
    #[must_use]
    pub fn node(&self, index: usize) -> &LocalServer {
        &self.nodes[index]
    }

    /// Kills a server, as a crash would.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// Starts a server again after [`Self::kill`] and returns when it listens; it catches up later.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when it does not start.
    ///
    /// # Panics
    /// When there is no such server.
    pub async fn resume(&mut self, index: usize) -> Result<(), BusError> {
        self.nodes[index].resume().await
    }

    /// The index of the server that leads a stream, none while there is none.
    pub async fn leader_of(&self, stream: &str) -> Option<usize> {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            if let Ok(Some(leader)) = self.monitor.stream_leader(&node.monitor_url(), stream).await {
                return leader.strip_prefix('n')?.parse().ok();
            }
        }
        None
    }

    /// Waits until the servers that run have a leader among them, and each has caught up with every stream it keeps.
    ///
    /// # Errors
    /// [`BusError::Unreachable`] when they do not in a minute.
    pub async fn until_healthy(&self) -> Result<(), BusError> {
        let deadline = Instant::now() + AGREE_TIMEOUT;
        loop {
            let looks = self.nodes.iter().filter(|node| node.pid().is_some()).map(|node| self.look_at(node));
            let faults: Vec<_> = future::join_all(looks).await.into_iter().flatten().collect();
            if faults.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(BusError::Unreachable(format!("the cluster is not healthy: {}", faults.join("; "))));
            }
            tokio::time::sleep(AGREE_POLL).await;
        }
    }

    /// What is wrong with a server.
    async fn look_at(&self, node: &LocalServer) -> Option<String> {
        let url = node.monitor_url();
        let found: Result<ServerInfo, _> = self.monitor.look(&url).await;
        match found {
            Ok(found) if found.cluster_leader.is_none() => Some(format!("{url} knows no leader")),
            Ok(_) => self.monitor.health(&url).await.err(),
            Err(error) => Some(error),
        }
    }
}
