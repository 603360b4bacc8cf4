//! The nats-servers of a run: one, three that keep every stream three times, or the one that `llmx serve` runs.

use std::path::PathBuf;
use std::time::Duration;

use bus::BusError;
use nats_server::{CLUSTER_NODES, LocalCluster, LocalServer, LocalServerOptions, process_in};

use super::process::{Signal, signal};

/// How long the question whether a cluster has caught up may take; without an answer it has not.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(300);

/// The servers, killed when dropped.
pub(super) enum Servers {
    One {
        server: Box<LocalServer>,
        is_up: bool,
    },
    Three {
        cluster: LocalCluster,
        is_up: [bool; CLUSTER_NODES],
    },
    /// Of the `llmx serve` with this folder, which starts it again.
    Served {
        folder: PathBuf,
    },
}

impl Servers {
    pub(super) async fn start(replicas: u8) -> Result<Self, BusError> {
        let options = LocalServerOptions::default();
        Ok(if replicas == 1 {
            Self::One { server: Box::new(LocalServer::start(options).await?), is_up: true }
        } else {
            Self::Three { cluster: LocalCluster::start(options).await?, is_up: [true; CLUSTER_NODES] }
        })
    }

    /// Where they listen, separated by commas.
    pub(super) fn urls(&self) -> String {
        match self {
            Self::One { server, .. } => server.url(),
            Self::Three { cluster, .. } => cluster.urls(),
            Self::Served { folder } => {
                std::fs::read_to_string(folder.join("nats-url")).unwrap_or_default().trim().to_owned()
            }
        }
    }

    /// The monitoring port of one server; none of a cluster, whose streams every node would tell of.
    pub(super) fn monitor_url(&self) -> Option<String> {
        match self {
            Self::One { server, .. } => Some(server.monitor_url()),
            Self::Three { .. } | Self::Served { .. } => None,
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
            Self::Served { .. } => Vec::from_iter(self.served().map(|_| 0)),
        }
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.mark(number, false);
        match self {
            Self::One { server, .. } => server.kill(),
            Self::Three { cluster, .. } => cluster.kill(number),
            // Fails where it has ended already.
            Self::Served { .. } => drop(self.send(Signal::Kill)),
        }
    }

    pub(super) async fn resume(&mut self, number: usize) -> Result<(), BusError> {
        match self {
            Self::One { server, .. } => server.resume().await?,
            Self::Three { cluster, .. } => cluster.resume(number).await?,
            Self::Served { .. } => {}
        }
        self.mark(number, true);
        Ok(())
    }

    pub(super) fn pause(&mut self, number: usize) -> Result<(), BusError> {
        self.mark(number, false);
        match self {
            Self::One { server, .. } => server.pause(),
            Self::Three { cluster, .. } => cluster.node(number).pause(),
            Self::Served { .. } => self.send(Signal::Stop),
        }
    }

    pub(super) fn unpause(&mut self, number: usize) -> Result<(), BusError> {
        self.mark(number, true);
        match self {
            Self::One { server, .. } => server.unpause(),
            Self::Three { cluster, .. } => cluster.node(number).unpause(),
            Self::Served { .. } => self.send(Signal::Continue),
        }
    }

    /// The process of a nats-server that `llmx serve` runs.
    fn served(&self) -> Option<u32> {
        match self {
            Self::Served { folder } => process_in(&folder.join("nats")),
            Self::One { .. } | Self::Three { .. } => None,
        }
    }

    fn send(&self, name: Signal) -> Result<(), BusError> {
        let sent = self.served().map(|process| signal(process, name)).transpose();
        sent.map(|_| ()).map_err(|error| BusError::Unreachable(error.to_string()))
    }

    fn mark(&mut self, number: usize, up: bool) {
        match self {
            Self::One { is_up, .. } => *is_up = up,
            Self::Three { is_up, .. } => is_up[number] = up,
            Self::Served { .. } => {}
        }
    }
}
