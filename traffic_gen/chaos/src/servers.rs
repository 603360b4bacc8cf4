//! The nats-servers of a run: one, or three that keep every stream three times.

use std::time::Duration;

use bus::BusError;
use nats_server::{CLUSTER_NODES, LocalCluster, LocalServer, LocalServerOptions};

/// How long the question whether a cluster has caught up may take; without an answer it has not.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(300);

/// The servers, killed when dropped.
pub(super) enum Servers {
    One { server: LocalServer, is_up: bool },
    Three { cluster: LocalCluster, is_up: [bool; CLUSTER_NODES] },
}

impl Servers {
    pub(super) async fn start(replicas: u8) -> Result<Self, BusError> {
        let options = LocalServerOptions::default();
        Ok(if replicas == 1 {
            Self::One { server: LocalServer::start(options).await?, is_up: true }
        } else {
            Self::Three { cluster: LocalCluster::start(options).await?, is_up: [true; CLUSTER_NODES] }
        })
    }

    /// Where they listen, separated by commas.
    pub(super) fn urls(&self) -> String {
        match self {
            Self::One { server, .. } => server.url(),
            Self::Three { cluster, .. } => cluster.urls(),
        }
    }

    /// The monitoring port of one server; none of a cluster, whose streams every node would tell of.
    pub(super) fn monitor_url(&self) -> Option<String> {
        match self {
            Self::One { server, .. } => Some(server.monitor_url()),
            Self::Three { .. } => None,
        }
    }

    /// The servers that may be hit: one of three is spared while another is down or has not caught up, for two of
    /// three decide.
    pub(super) async fn may_be_hit(&self) -> Vec<usize> {
        match self {
            Self::One { is_up, .. } => Vec::from_iter(is_up.then_some(0)),
            Self::Three { cluster, is_up } => {
                let is_healthy = is_up.iter().all(|is_up| *is_up)
                    && tokio::time::timeout(HEALTH_TIMEOUT, cluster.until_healthy()).await.is_ok_and(|h| h.is_ok());
                if is_healthy { (0..CLUSTER_NODES).collect() } else { Vec::new() }
            }
        }
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.mark(number, false);
        match self {
            Self::One { server, .. } => server.kill(),
            Self::Three { cluster, .. } => cluster.kill(number),
        }
    }

    pub(super) async fn resume(&mut self, number: usize) -> Result<(), BusError> {
        match self {
            Self::One { server, .. } => server.resume().await?,
            Self::Three { cluster, .. } => cluster.resume(number).await?,
        }
        self.mark(number, true);
        Ok(())
    }

    pub(super) fn pause(&mut self, number: usize) -> Result<(), BusError> {
        self.mark(number, false);
        self.server(number).pause()
    }

    pub(super) fn unpause(&mut self, number: usize) -> Result<(), BusError> {
        self.mark(number, true);
        self.server(number).unpause()
    }

    fn server(&self, number: usize) -> &LocalServer {
        match self {
            Self::One { server, .. } => server,
            Self::Three { cluster, .. } => cluster.node(number),
        }
    }

    fn mark(&mut self, number: usize, up: bool) {
        match self {
            Self::One { is_up, .. } => *is_up = up,
            Self::Three { is_up, .. } => is_up[number] = up,
        }
    }
}
