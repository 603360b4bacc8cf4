//! Serving HTTP within bounds: connections are limited in number, read within a time, and drained at the end. The
//! gateway's interface is served so, and whatever else a process of the exchange answers over HTTP.

mod early_refusal;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

pub use self::early_refusal::OnEarlyRefusal;

use self::early_refusal::EarlyRefusals;

use super::PeerConnection;

/// Bytes of a request's header: a token of 4 KiB and room for what proxies add.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Members of a request's header.
const HEADERS_MAX: usize = 64;
/// Connections the system accepts before we do: thousands of agents come back at once when a gateway restarts, and each
/// that finds the queue full waits a second to try again.
const BACKLOG: u32 = 4096;
/// Pause after the system refused a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long an open request may take to end once the gateway stops.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What the server needs to know.
#[derive(Clone)]
pub struct ServerOptions {
    /// Connections open at once; further ones wait in the listener's queue.
    pub connections_max: usize,
    /// How long a client may take to send a header, to send the next request on an open connection, and to read something
    /// of what waits for it.
    pub client_timeout: Duration,
    /// Called with the code of each refusal that comes before there is a request to route.
    pub on_early_refusal: OnEarlyRefusal,
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
    let places = Arc::new(Semaphore::new(options.connections_max));
    loop {
        let next = async {
            let permit = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, address) = listener.accept().await?;
            Ok::<_, io::Error>((stream, address, permit))
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = next => accepted,
        };
        match accepted {
            Ok((stream, address, permit)) => {
                let connection = PeerConnection { peer: peer(address), _place: Arc::new(permit) };
                tasks.spawn(serve(stream, router.clone(), connection, options.clone(), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    connection: PeerConnection,
    options: ServerOptions,
    stop: CancellationToken,
) {
    // Small messages, answered at once: waiting to fill a segment only adds delay.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.client_timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let stream = Unread::new(stream, options.client_timeout);
    let stream = TokioIo::new(EarlyRefusals::new(stream, options.on_early_refusal));
    let mut serving = std::pin::pin!(builder.serve_connection(stream, service).with_upgrades());
    let outcome = tokio::select! {
        outcome = serving.as_mut() => outcome,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(DRAIN_TIMEOUT, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// The peer as limits know it: an IPv4 address is the same however the socket spells it.
fn peer(address: SocketAddr) -> std::net::IpAddr {
    address.ip().to_canonical()
}

/// A connection that fails once a write has waited too long. What is written to a client that does not read waits for ever in
/// the system's buffers, and the connection holds one of a limited number of places.
struct Unread<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Unread<S> {
    /// Ends the connection when nothing can be written to it for `patience`.
    const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    fn bound<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        waiting.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("the client has read nothing for {patience:?}")))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bound(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bound(cx, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_after_the_patience_and_not_before() {
        let (mut client, server) = duplex(16);
        let mut server = Unread::new(server, PATIENCE);
        let began = tokio::time::Instant::now();
        let error = server.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        client.read_exact(&mut [0; 16]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_now_and_then_is_served() {
        let (mut client, server) = duplex(16);
        let mut server = Unread::new(server, PATIENCE);
        let writing = tokio::spawn(async move { server.write_all(&[0; 64]).await });
        for _ in 0..4 {
            tokio::time::sleep(PATIENCE * 9 / 10).await;
            client.read_exact(&mut [0; 16]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }
}
