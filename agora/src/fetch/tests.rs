//! Addresses that strangers name, tried against servers on loopback. The fetcher in use reaches none of them; the one of the
//! tests for answers is let through to them, and to nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use reqwest::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

const HOST: &str = "documents.example";
/// A certificate for that host which vouches for itself, and its key.
const SELF_SIGNED: &[u8] = include_bytes!("self_signed.pem");

/// Listens on loopback and counts who comes.
async fn honeypot() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
        }
    });
    (address, count)
}

/// A name that stands for these addresses, one list after another.
fn resolving(answers: Vec<Vec<SocketAddr>>) -> (Resolve, Arc<AtomicUsize>) {
    let (asked, count) = (Arc::new(Mutex::new(answers.into_iter())), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    let resolve: Resolve = Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let next = asked.lock().next().unwrap_or_default();
        Box::pin(async move { Ok(next) })
    });
    (resolve, count)
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

#[tokio::test]
async fn no_address_off_the_list_is_reached_however_it_is_written() {
    let (honeypot, count) = honeypot().await;
    let port = honeypot.port();
    let (resolve, asked) = resolving(vec![vec![honeypot]; 64]);
    let mut fetcher = SourceFetcher::new([HOST.to_owned(), "good.example".to_owned()]);
    fetcher.resolve = resolve;
    // The port is the honeypot's, so that nothing but the address can save it.
    fetcher.ports.push(port);
    for address in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[64:ff9b::7f00:1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/latest/meta-data/".to_owned(),
        format!("http://localhost:{port}/"),
        format!("http://{HOST}.:{port}/"),
        format!("http://x.{HOST}:{port}/"),
        format!("http://{HOST}.evil.example:{port}/"),
        format!("https://good.example@evil.example:{port}/"),
        format!("https://{HOST}@{HOST}:{port}/"),
        format!("https://:pass@{HOST}:{port}/"),
        // Cyrillic о, and a full-width letter that is folded into the ASCII one only after the list was read.
        format!("http://gооd.example:{port}/"),
        format!("http://{HOST}\u{3002}evil.example:{port}/"),
        "file:///etc/passwd".to_owned(),
        format!("gopher://{HOST}:{port}/"),
        format!("ftp://{HOST}:{port}/"),
        format!("ws://{HOST}:{port}/"),
        "data:text/plain,x".to_owned(),
        "//documents.example/x".to_owned(),
        "nonsense".to_owned(),
        String::new(),
    ] {
        assert_eq!(fetcher.fetch(&address).await, Err(FetchFault::NotAllowed), "{address}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nothing is resolved either");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let none = SourceFetcher::new([]);
    assert_eq!(none.fetch(&format!("http://{HOST}/")).await, Err(FetchFault::NotAllowed), "off");
}

#[tokio::test]
async fn no_port_but_those_of_http_is_reached() {
    let (resolve, asked) = resolving(Vec::new());
    let mut fetcher = SourceFetcher::new([HOST.to_owned()]);
    fetcher.resolve = resolve;
    for port in [0, 22, 25, 4222, 6379, 8080, 8222, 65_535] {
        for scheme in ["http", "https"] {
            let address = format!("{scheme}://{HOST}:{port}/");
            assert_eq!(fetcher.fetch(&address).await, Err(FetchFault::NotAllowed), "{address}");
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(fetcher.fetch(&format!("http://{HOST}/")).await, Err(FetchFault::Unresolved));
    assert_eq!(fetcher.fetch(&format!("http://{HOST}:443/")).await, Err(FetchFault::Unresolved));
}

#[tokio::test]
async fn a_listed_name_that_leads_inside_is_not_followed() {
    let (honeypot, count) = honeypot().await;
    let port = honeypot.port();
    let public = at("93.184.215.14", port);
    for (inside, what) in [
        (vec![honeypot], "a name, or what it is an alias of, that stands for loopback"),
        (vec![public, honeypot], "one of several"),
        (vec![at("::ffff:127.0.0.1", port)], "mapped"),
        (vec![at("64:ff9b::7f00:1", port)], "NAT64"),
        (vec![at("169.254.169.254", port)], "the metadata of a cloud"),
        (vec![at("fd00:ec2::254", port)], "the same over IPv6"),
    ] {
        let mut fetcher = SourceFetcher::new([HOST.to_owned()]);
        fetcher.ports.push(port);
        fetcher.resolve = resolving(vec![inside]).0;
        let address = format!("http://{HOST}:{port}/");
        assert_eq!(fetcher.fetch(&address).await, Err(FetchFault::PrivateAddress), "{what}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_what_was_looked_at_is_connected_to() {
    let (first, looked_at) = honeypot().await;
    let (second, rebound) = honeypot().await;
    let (resolve, asked) = resolving(vec![vec![first], vec![second]]);
    let fetcher = let_through(first.port(), resolve);
    let address = format!("http://{HOST}:{}/", first.port());
    assert_eq!(fetcher.fetch(&address).await, Ok("secret".to_owned()));
    assert_eq!([&asked, &looked_at, &rebound].map(|count| count.load(Ordering::SeqCst)), [1, 1, 0]);
}

/// A fetcher that is let through to one port on loopback.
fn let_through(port: u16, resolve: Resolve) -> SourceFetcher {
    let mut fetcher = SourceFetcher::new([HOST.to_owned()]);
    fetcher.ports = vec![port];
    fetcher.resolve = resolve;
    fetcher.is_reachable = |address| address.is_loopback();
    fetcher.timeout = Duration::from_millis(500);
    fetcher
}

/// What a server that answers in this way makes of a fetch.
async fn fetched<F: Future<Output = ()> + Send>(
    scheme: &str,
    answer: impl Fn(TcpStream) -> F + Send + 'static,
) -> Result<String, FetchFault> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The request is short.
            let _ = stream.read(&mut [0; 4096]).await;
            answer(stream).await;
        }
    });
    let fetcher = let_through(address.port(), resolving(vec![vec![address]]).0);
    let outcome = fetcher.fetch(&format!("{scheme}://{HOST}:{}/x.md", address.port())).await;
    serving.abort();
    outcome
}

async fn answered(head: &str, body: &[u8]) -> Result<String, FetchFault> {
    let answer = [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat();
    fetched("http", move |mut stream| {
        let answer = answer.clone();
        async move {
            let _ = stream.write_all(&answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_text_is_fetched_and_an_answer_that_is_none_is_refused() {
    assert_eq!(answered("200 OK\r\ncontent-length: 5", b"hello").await, Ok("hello".to_owned()));
    let whole = vec![b'x'; DOCUMENT_BYTES_MAX];
    let length = |bytes: usize| format!("200 OK\r\ncontent-length: {bytes}");
    assert_eq!(answered(&length(whole.len()), &whole).await.map(|text| text.len()), Ok(DOCUMENT_BYTES_MAX));
    let more = vec![b'x'; DOCUMENT_BYTES_MAX + 1];
    assert_eq!(answered(&length(more.len()), &more).await, Err(FetchFault::TooLarge));
    assert_eq!(answered("200 OK\r\ncontent-length: 10000000000", &more).await, Err(FetchFault::TooLarge));
    for (head, body) in [
        ("302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0", ""),
        ("301 Moved\r\nlocation: file:///etc/passwd\r\ncontent-length: 0", ""),
        ("307 Temporary Redirect\r\nlocation: gopher://x/\r\ncontent-length: 0", ""),
        ("308 Permanent Redirect\r\nlocation: data:text/plain,x\r\ncontent-length: 0", ""),
        ("204 No Content", ""),
        ("206 Partial Content\r\ncontent-length: 1", "x"),
        ("404 Not Found\r\ncontent-length: 1", "x"),
        ("200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4", "\u{1f}\u{8b}x"),
        ("200 OK\r\ncontent-encoding: br\r\ncontent-length: 1", "x"),
    ] {
        assert_eq!(answered(head, body.as_bytes()).await, Err(FetchFault::BadAnswer), "{head}");
    }
    assert_eq!(answered("200 OK\r\ncontent-length: 2", b"\xff\xfe").await, Err(FetchFault::BadAnswer));
    assert_eq!(answered("200 OK\r\ncontent-length: 9", b"short").await, Err(FetchFault::Unreachable));
    assert_eq!(answered("nonsense", b"").await, Err(FetchFault::Unreachable));
}

#[tokio::test]
async fn an_answer_without_end_ends_at_the_size_and_one_that_drips_at_the_time() {
    let endless = fetched("http", |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
    });
    assert_eq!(endless.await, Err(FetchFault::TooLarge));
    let dripping = fetched("http", |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(dripping.await, Err(FetchFault::TimedOut));
    let silent = fetched("http", |stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    assert_eq!(silent.await, Err(FetchFault::TimedOut));
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_not_taken_for_one() {
    let plain = fetched("https", |mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx").await;
    });
    assert_eq!(plain.await, Err(FetchFault::Unreachable));
}

/// Serves one text over TLS with the certificate that vouches for itself, and counts the requests that it reads.
async fn self_signed_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let certificate = CertificateDer::from_pem_slice(SELF_SIGNED).unwrap();
    let key = PrivateKeyDer::from_pem_slice(SELF_SIGNED).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.read(&mut [0; 4096]).await.is_ok_and(|length| length > 0) {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (address, count)
}

#[tokio::test]
async fn a_host_whose_certificate_nobody_else_vouches_for_is_asked_nothing() {
    let (address, requests) = self_signed_server().await;
    let url = format!("https://{HOST}:{}/x.md", address.port());
    // Whoever trusts the certificate is answered: nothing else is wrong with the server.
    let trusted = Certificate::from_pem(SELF_SIGNED).unwrap();
    let trusting = Client::builder().no_proxy().resolve(HOST, address).tls_certs_only([trusted]).build().unwrap();
    let answer = trusting.get(&url).send().await.unwrap();
    assert_eq!((answer.text().await.unwrap().as_str(), requests.load(Ordering::SeqCst)), ("secret", 1));
    let mut fetcher = let_through(address.port(), resolving(vec![vec![address]]).0);
    fetcher.timeout = FETCH_TIMEOUT;
    assert_eq!(fetcher.fetch(&url).await, Err(FetchFault::Unreachable));
    assert_eq!(requests.load(Ordering::SeqCst), 1, "the request was not sent");
}

#[test]
fn only_addresses_of_the_public_internet_are_public() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert!(!is_public(address.parse().unwrap()), "{address}");
    }
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.167.1.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
    ] {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn a_list_has_names_as_they_stand_in_addresses() {
    for host in ["documents.example", "a", "xn--bcher-kva.example", "a-b.c_d.example"] {
        assert!(is_host(host), "{host}");
    }
    let long = format!("{}.example", "a".repeat(250));
    for host in [
        "",
        "Documents.example",
        "documents.example:80",
        "documents.example/x",
        "user@documents.example",
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "[::1]",
        "gооd.example",
        "a b",
        "*.example",
        "?",
        "#",
        &long,
    ] {
        assert!(!is_host(host), "{host}");
    }
}
