//! Serving HTTP within bounds: connections are limited in number, read within a time, and drained at the end. The
//! gateway's interface is served so, and whatever else a process of the exchange answers over HTTP.

mod client_stream;
mod fair_places;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use proxy_header::{ParseConfig, ProxyHeader};
use schemas::{Code, Refusal};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

pub use self::client_stream::OnEarlyRefusal;
pub use self::fair_places::{FairPlace, FairPlaces};

use self::client_stream::ClientStream;

use super::{PeerConnection, Refused};

/// Bytes of a request's header: a token of 4 KiB and room for what proxies add.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Members of a request's header.
const HEADERS_MAX: usize = 64;
/// Connections the system accepts before we do: thousands of agents come back at once when a gateway restarts, and each
/// that finds the queue full waits a second to try again.
const BACKLOG: u32 = 4096;
/// A peer address gets so many times as many places as are free: eight ninths of all alone, so that thousands of agents may come
/// from one machine.
const ADDRESS_MULTIPLE: usize = 8;
/// Places beyond the limit, for questions after health.
const SPARE_PLACES: usize = 64;
/// Whose answers are given though every other place is taken.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// How long a connection may be silent, and take for a header, while places are scarce.
const SCARCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections of trusted proxies whose header is awaited.
const UNNAMED_MAX: usize = 256;
/// Bytes of a PROXY header: one segment, and room for what proxies add.
const PROXY_HEADER_BYTES_MAX: usize = 1024;
/// Pause after the system refused a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long an open request may take to end once the gateway stops.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What the server needs to know.
#[derive(Clone)]
pub struct ServerOptions {
    /// Connections open at once, beside those that ask for health. No peer address has more than eight times as many as are free.
    pub connections_max: usize,
    /// How long a client may take to send a header, to send the next request on an open connection, and to read something
    /// of what waits for it.
    pub client_timeout: Duration,
    /// Whose connections begin with a PROXY header, which says whom they are from.
    pub trusted_proxies: Vec<IpNet>,
    /// Called with the code of each refusal that comes before there is a request to route.
    pub on_early_refusal: OnEarlyRefusal,
}

impl ServerOptions {
    /// Options of a server that trusts no proxy and counts nothing.
    pub fn new(connections_max: usize, client_timeout: Duration) -> Self {
        Self { connections_max, client_timeout, trusted_proxies: Vec::new(), on_early_refusal: Arc::new(|_| {}) }
    }
}

/// Listens on an address.
///
/// # Errors
/// The system's, for example when something else listens there.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As `TcpListener::bind` does: a restart must not wait for connections of the last run to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`. Connections are tasks of `tasks`; after `stop` each ends within [`DRAIN_TIMEOUT`].
pub async fn drive(
    listener: TcpListener,
    router: Router,
    options: ServerOptions,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let unnamed = Arc::new(Semaphore::new(UNNAMED_MAX));
    let server = Arc::new(BoundedServer::new(router, options, stop.clone()));
    loop {
        let next = async {
            let permit = unnamed.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, address) = listener.accept().await?;
            Ok::<_, io::Error>((stream, address, permit))
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = next => accepted,
        };
        match accepted {
            Ok((stream, address, permit)) => {
                tasks.spawn(server.clone().admit(stream, address, permit));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What connections share.
struct BoundedServer {
    router: Router,
    /// For connections beyond the limit: health, and a refusal of all else.
    spare_router: Router,
    /// For connections of a trusted proxy that names nobody.
    unnamed_router: Router,
    places: FairPlaces<IpAddr>,
    spares: FairPlaces<IpAddr>,
    options: ServerOptions,
    stop: CancellationToken,
}

impl BoundedServer {
    fn new(router: Router, options: ServerOptions, stop: CancellationToken) -> Self {
        let refuse = {
            let count = options.on_early_refusal.clone();
            move |refusal: Refusal| {
                count(refusal.code);
                Refused(refusal).into_response()
            }
        };
        let refuse_unnamed = refuse.clone();
        let spare = middleware::from_fn(move |request: Request<Body>, next: Next| {
            let refuse = refuse.clone();
            async move {
                if HEALTH_PATHS.contains(&request.uri().path()) { next.run(request).await } else { refuse(no_place()) }
            }
        });
        Self {
            spare_router: router.clone().layer(spare),
            unnamed_router: Router::new().fallback(async move || refuse_unnamed(nobody_named())),
            router,
            places: FairPlaces::new(options.connections_max, ADDRESS_MULTIPLE),
            spares: FairPlaces::new(SPARE_PLACES, ADDRESS_MULTIPLE),
            options,
            stop,
        }
    }

    /// Serves a connection that there is a place for; `permit` is held until that is known.
    async fn admit(self: Arc<Self>, mut stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
        // Small messages, answered at once: waiting to fill a segment only adds delay.
        let _ = stream.set_nodelay(true);
        let own = address.ip().to_canonical();
        let named = if self.options.trusted_proxies.iter().any(|proxies| proxies.contains(&own)) {
            tokio::time::timeout(SCARCE_TIMEOUT, proxied(&mut stream)).await.unwrap_or_else(|late| Err(late.into()))
        } else {
            Ok(None)
        };
        let peer = peer(named.as_ref().ok().copied().flatten().unwrap_or(address));
        let (place, is_spare) = match self.places.take(peer) {
            Some(place) => (place, false),
            None => match self.spares.take(peer) {
                Some(place) => (place, true),
                None => return (self.options.on_early_refusal)(Code::Overloaded),
            },
        };
        drop(permit);
        let router = match (&named, is_spare) {
            (Err(_), _) => &self.unnamed_router,
            (Ok(_), true) => &self.spare_router,
            (Ok(_), false) => &self.router,
        };
        let connection = PeerConnection { peer, _place: Arc::new(place) };
        self.serve(stream, router.clone(), connection, is_spare || named.is_err()).await;
    }

    /// Serves a connection until it ends, one request only where it is `brief`. While places are scarce it ends with its request,
    /// or at once where it has none and is older than [`SCARCE_TIMEOUT`].
    async fn serve(&self, stream: TcpStream, router: Router, connection: PeerConnection, is_brief: bool) {
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection.clone());
            router.clone().oneshot(request.map(Body::new))
        });
        let client_timeout = self.options.client_timeout;
        let is_hurried = is_brief || self.places.is_scarce();
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(if is_hurried { client_timeout.min(SCARCE_TIMEOUT) } else { client_timeout })
            .keep_alive(!is_brief)
            .max_buf_size(HEADER_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        let stream = ClientStream::new(stream, client_timeout, self.options.on_early_refusal.clone());
        let stream = TokioIo::new(stream);
        let mut serving = std::pin::pin!(builder.serve_connection(stream, service).with_upgrades());
        let mut crowded = std::pin::pin!(async {
            sleep(SCARCE_TIMEOUT).await;
            self.places.scarce().await;
        });
        let mut is_last = false;
        let outcome = loop {
            tokio::select! {
                outcome = serving.as_mut() => break outcome,
                () = self.stop.cancelled() => {
                    serving.as_mut().graceful_shutdown();
                    break tokio::time::timeout(DRAIN_TIMEOUT, serving).await.unwrap_or(Ok(()));
                }
                () = crowded.as_mut(), if !is_last => {
                    is_last = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }
}

fn no_place() -> Refusal {
    Refusal::new(Code::Overloaded, "there is no place for a further connection from this address")
        .expecting("fewer open connections: of one address eight times as many as are free of `connections_max`")
        .retry_after_ms(1000)
}

fn nobody_named() -> Refusal {
    let detail = "the connection comes from one of `trusted_proxies` and does not begin with a PROXY header";
    Refusal::new(Code::MalformedRequest, detail).expecting(
        "a header at once (HAProxy: `send-proxy-v2 check-send-proxy`), or the address out of `trusted_proxies`",
    )
}

/// Whom a proxy's connection is from, by the PROXY header it begins with; nothing where it is the proxy's own.
async fn proxied(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut bytes = [0; PROXY_HEADER_BYTES_MAX];
    let read = stream.peek(&mut bytes).await?;
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let (header, length) = ProxyHeader::parse(&bytes[..read], config).map_err(io::Error::other)?;
    let source = header.proxied_address().map(|address| address.source);
    stream.read_exact(&mut bytes[..length]).await?;
    Ok(source)
}

/// The peer as limits know it: an IPv4 address is the same however the socket spells it, and one host may have any number of
/// IPv6 addresses of one /64.
fn peer(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}
