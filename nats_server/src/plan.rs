//! What a server is told: its ports, chosen once, and its configuration file.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;

use super::LocalServerOptions;
use bus::BusError;

/// Ports are chosen from here, below those the kernel gives to outgoing connections: a server that is started again must
/// find its own free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Ports tried before giving up; most are free.
const PORT_ATTEMPTS_MAX: u32 = 200;

/// The ports of one server on 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) monitor: u16,
    pub(super) leaf: u16,
    pub(super) route: u16,
}

impl Ports {
    /// Ports that nobody listens on at this moment; for clients `preferred`, if it is one of them.
    pub(super) fn choose(preferred: Option<u16>) -> Result<Self, BusError> {
        let preferred = preferred.and_then(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?)));
        let client = preferred.map_or_else(listen_anywhere, Ok)?;
        // Held until all are chosen, so that they differ.
        let listeners = [client, listen_anywhere()?, listen_anywhere()?, listen_anywhere()?];
        let [client, monitor, leaf, route] = listeners.each_ref().map(|(port, _)| *port);
        Ok(Self { client, monitor, leaf, route })
    }
}

fn listen_anywhere() -> Result<(u16, TcpListener), BusError> {
    for _ in 0..PORT_ATTEMPTS_MAX {
        let port = rand::random_range(PORTS);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok((port, listener));
        }
    }
    Err(BusError::Unreachable(format!("no free port of {PORT_ATTEMPTS_MAX} tried between {PORTS:?}")))
}

/// JetStream domain of servers that accept leaf nodes: how a leaf node says whose JetStream it uses.
const HUB_DOMAIN: &str = "hub";

/// A server's place in a cluster.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    pub(super) name: String,
    /// Route ports of every member.
    pub(super) routes: Vec<u16>,
}

/// The configuration file of a server that keeps everything in `root`.
pub(super) fn config(
    root: &Path,
    ports: Ports,
    options: &LocalServerOptions,
    membership: Option<&Membership>,
    log: &str,
) -> String {
    let root = root.display();
    let Ports { client, monitor, leaf, route } = ports;
    let mut config = format!(
        "listen: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\nports_file_dir: \"{root}\"\n\
         log_file: \"{root}/{log}\"\n"
    );
    // Writing into a string cannot fail.
    match &options.leaf_of {
        Some(hub) => {
            let _ = writeln!(config, "default_js_domain: {{ \"$G\": {HUB_DOMAIN} }}");
            let _ = writeln!(config, "leafnodes {{ remotes: [ {{ url: \"{hub}\" }} ] }}");
        }
        None => {
            let sync = if options.sync_always { "sync_interval: always" } else { "" };
            let limit = options.store_bytes_max.map(|bytes| format!("max_file_store: {bytes}")).unwrap_or_default();
            let domain = if options.accepts_leaves { format!("domain: {HUB_DOMAIN}") } else { String::new() };
            let _ =
                writeln!(config, "jetstream {{\n  store_dir: \"{root}/store\"\n  {sync}\n  {limit}\n  {domain}\n}}");
            if options.accepts_leaves {
                let _ = writeln!(config, "leafnodes {{ listen: \"127.0.0.1:{leaf}\", no_advertise: true }}");
            }
        }
    }
    if let Some(Membership { name, routes }) = membership {
        let routes: Vec<_> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let _ = writeln!(config, "server_name: \"{name}\"");
        let _ = writeln!(
            config,
            "cluster {{ name: llmx, listen: \"127.0.0.1:{route}\", routes: [ {} ] }}",
            routes.join(", ")
        );
    }
    config + &options.extra_config + "\n"
}
