//! A small TCP proxy that does to a connection what networks do: cut it, or let it hang half open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Most connections through one proxy at a time: an exchange's process opens a handful; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes carried at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// How long the far side may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the proxy does to its connections, those that are open and those that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Carries bytes both ways.
    Forward,
    /// Carries nothing and closes nothing: what the network swallows. After healing, what was held back flows on.
    HalfOpen,
    /// Closes what is open, and what comes at once after it was accepted.
    Cut,
}

/// A listening proxy. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Listens on a free port of loopback and forwards to `target`.
    ///
    /// # Errors
    /// When no port can be opened.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (mode, receiver) = watch::channel(Mode::Forward);
        let task = AbortOnDropHandle::new(tokio::spawn(serve(listener, target, receiver)));
        Ok(Self { address, mode, _task: task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does this from now on; [`Mode::Forward`] heals.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// What it does.
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, mode: watch::Receiver<Mode>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set ends what is open.
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        // Neither the semaphore nor the listener is ever closed; whatever fails, fails for one connection.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((near, _)) = listener.accept().await else { continue };
        let mode = mode.clone();
        open.spawn(async move {
            carry(near, target, mode).await;
            drop(slot);
        });
    }
}

async fn carry(near: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    if *mode.borrow_and_update() == Mode::Cut {
        return;
    }
    let mut cut = mode.clone();
    let work = async {
        // A half-open way does not reach the far side at all.
        if mode.wait_for(|mode| *mode != Mode::HalfOpen).await.is_err() {
            return;
        }
        let Ok(Ok(far)) = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::join!(pump(near_in, far_out, mode.clone()), pump(far_in, near_out, mode.clone()));
    };
    tokio::select! {
        () = work => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

/// Carries one direction until it ends.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if mode.wait_for(|mode| *mode != Mode::HalfOpen).await.is_err() {
            return;
        }
        let read = tokio::select! {
            read = from.read(&mut chunk) => read,
            changed = mode.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok(len @ 1..) = read else { break };
        // The way may have gone half open while this piece was on it.
        if mode.wait_for(|mode| *mode != Mode::HalfOpen).await.is_err() || to.write_all(&chunk[..len]).await.is_err() {
            return;
        }
    }
    // The other direction may still have something to say.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than anything here takes; far shorter than a person waits.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Long enough that on loopback something would have come.
    const A_WHILE: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn bytes_pass_both_ways_and_an_end_is_passed_on() {
        let (proxy, listener) = proxy().await;
        let (mut near, mut far) = connect(&proxy, &listener).await;
        near.write_all(b"ping").await.unwrap();
        assert_eq!(read(&mut far, 4).await, b"ping");
        far.write_all(b"pong").await.unwrap();
        assert_eq!(read(&mut near, 4).await, b"pong");
        near.shutdown().await.unwrap();
        assert_eq!(end(&mut far).await, 0);
        far.write_all(b"late").await.unwrap();
        assert_eq!(read(&mut near, 4).await, b"late", "an end is the end of one direction");
    }

    #[tokio::test]
    async fn a_half_open_way_carries_nothing_closes_nothing_and_heals() {
        let (proxy, listener) = proxy().await;
        let (mut near, mut far) = connect(&proxy, &listener).await;
        proxy.set(Mode::HalfOpen);
        near.write_all(b"held").await.unwrap();
        let mut byte = [0; 1];
        assert!(tokio::time::timeout(A_WHILE, far.read(&mut byte)).await.is_err(), "nothing comes, and no end");
        let late = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(tokio::time::timeout(A_WHILE, listener.accept()).await.is_err(), "a new connection gets no further");
        proxy.set(Mode::Forward);
        assert_eq!(read(&mut far, 4).await, b"held");
        tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        drop(late);
    }

    #[tokio::test]
    async fn a_cut_ends_what_is_open_and_what_comes_until_it_is_healed() {
        let (proxy, listener) = proxy().await;
        let (mut near, mut far) = connect(&proxy, &listener).await;
        proxy.set(Mode::Cut);
        assert_eq!((end(&mut near).await, end(&mut far).await), (0, 0));
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(end(&mut refused).await, 0);
        proxy.set(Mode::Forward);
        let (mut near, mut far) = connect(&proxy, &listener).await;
        near.write_all(b"back").await.unwrap();
        assert_eq!(read(&mut far, 4).await, b"back");
    }

    #[tokio::test]
    async fn a_dropped_proxy_leaves_nothing_open() {
        let (proxy, listener) = proxy().await;
        let (mut near, _far) = connect(&proxy, &listener).await;
        let address = proxy.address();
        drop(proxy);
        assert_eq!(end(&mut near).await, 0);
        // The system may have given the port to somebody else since.
        let _near = TcpStream::connect(address).await;
        assert!(tokio::time::timeout(A_WHILE, listener.accept()).await.is_err(), "nothing is carried any more");
    }

    async fn proxy() -> (Proxy, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (Proxy::start(listener.local_addr().unwrap()).await.unwrap(), listener)
    }

    async fn connect(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let near = TcpStream::connect(proxy.address()).await.unwrap();
        let (far, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        (near, far)
    }

    async fn read(socket: &mut TcpStream, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        tokio::time::timeout(PATIENCE, socket.read_exact(&mut bytes)).await.unwrap().unwrap();
        bytes
    }

    /// Bytes read before the end: 0 when it comes at once, by a close or a reset.
    async fn end(socket: &mut TcpStream) -> usize {
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await.unwrap();
        rest.len()
    }
}
