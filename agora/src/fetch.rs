//! Documents by address. A stranger names the address, so it leads nowhere but to hosts that the operator lists, on the ports
//! of HTTP, at public addresses, to a text of the size of a document, within a few seconds (docs/spec/agora.md#ag-49).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use reqwest::{Client, Url, header, redirect};
use tokio::sync::Semaphore;

use crate::document::DOCUMENT_BYTES_MAX;

/// Hosts a list may have.
pub const HOSTS_MAX: usize = 64;
/// Longest name of a host, in characters (RFC 1035 section 2.3.4).
const HOST_LEN_MAX: usize = 253;
/// The ports of HTTP and HTTPS.
const PORTS: [u16; 2] = [80, 443];
/// Longest fetch of one document, waiting for others included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Fetches at once.
const FETCHES_MAX: usize = 16;

/// Why an address gave no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FetchFault {
    /// Fetching is off, or the address is none of those that may be fetched.
    #[error("the address is none of those that this exchange fetches")]
    NotAllowed,
    /// The host has no address.
    #[error("the host has no address")]
    Unresolved,
    /// An address of the host is not one of the public internet.
    #[error("the host has an address that is not public")]
    PrivateAddress,
    /// The host cannot be reached, or proves to be another.
    #[error("the host cannot be reached, or does not prove who it is")]
    Unreachable,
    /// It took too long.
    #[error("the document did not arrive within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    /// The answer is longer than a document.
    #[error("the answer is longer than {DOCUMENT_BYTES_MAX} bytes")]
    TooLarge,
    /// The answer is another than 200 with a plain text in UTF-8; redirects are not followed.
    #[error("the answer is not 200 with a text in UTF-8 that is not compressed")]
    BadAnswer,
}

/// Which addresses a name stands for.
type Resolve = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Fetches documents from the hosts on a list. With an empty list it fetches nothing.
pub struct SourceFetcher {
    hosts: BTreeSet<String>,
    ports: Vec<u16>,
    resolve: Resolve,
    is_reachable: fn(IpAddr) -> bool,
    timeout: Duration,
    places: Semaphore,
}

impl SourceFetcher {
    /// A fetcher for these hosts, all of which [`is_host`] takes.
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        let resolve: Resolve = Arc::new(|host, port| {
            Box::pin(async move { tokio::net::lookup_host((host, port)).await.map(Iterator::collect) })
        });
        Self {
            hosts: hosts.into_iter().take(HOSTS_MAX).collect(),
            ports: PORTS.to_vec(),
            resolve,
            is_reachable: is_public,
            timeout: FETCH_TIMEOUT,
            places: Semaphore::new(FETCHES_MAX),
        }
    }

    /// Fetches the text at an address.
    ///
    /// # Errors
    /// [`FetchFault`].
    pub async fn fetch(&self, address: &str) -> Result<String, FetchFault> {
        let (url, host, port) = self.allowed(address).ok_or(FetchFault::NotAllowed)?;
        let fetching = async {
            let _place = self.places.acquire().await.map_err(|_| FetchFault::Unreachable)?;
            self.text(url, host, port).await
        };
        tokio::time::timeout(self.timeout, fetching).await.unwrap_or(Err(FetchFault::TimedOut))
    }

    /// The address, its host and its port, where it may be fetched. Numbers are no host: whoever writes them means one
    /// machine, and the list has names.
    fn allowed(&self, address: &str) -> Option<(Url, String, u16)> {
        let url = Url::parse(address).ok()?;
        let is_plain =
            matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
        let host = url.domain().filter(|host| self.hosts.contains(*host))?.to_owned();
        let port = url.port_or_known_default().filter(|port| self.ports.contains(port))?;
        is_plain.then_some((url, host, port))
    }

    /// The name is resolved once: what was looked at is what is connected to.
    async fn text(&self, url: Url, host: String, port: u16) -> Result<String, FetchFault> {
        let resolved = (self.resolve)(host.clone(), port).await.map_err(|_| FetchFault::Unresolved)?;
        if resolved.is_empty() {
            return Err(FetchFault::Unresolved);
        }
        if !resolved.iter().all(|address| (self.is_reachable)(address.ip())) {
            return Err(FetchFault::PrivateAddress);
        }
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .resolve_to_addrs(&host, &resolved)
            .build()
            .map_err(|_| FetchFault::Unreachable)?;
        let response = client.get(url).send().await.map_err(|_| FetchFault::Unreachable)?;
        let encoding = response.headers().get(header::CONTENT_ENCODING);
        if response.status().as_u16() != 200 || encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(FetchFault::BadAnswer);
        }
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| FetchFault::Unreachable)?;
            if bytes.len() + chunk.len() > DOCUMENT_BYTES_MAX {
                return Err(FetchFault::TooLarge);
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_| FetchFault::BadAnswer)
    }
}

/// Whether a text can stand on the list: a name in small ASCII letters as it stands in a URL, and no number.
#[must_use]
pub fn is_host(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_'));
    text.len() <= HOST_LEN_MAX
        && is_plain
        && Url::parse(&format!("http://{text}/")).is_ok_and(|url| url.domain() == Some(text))
}

/// Whether an address is one of the public internet (the registries of RFC 6890). Of IPv6 only global unicast is, and none
/// that stands for an IPv4 address.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(matches!(a, 0 | 10 | 127 | 224..)
        || (a == 100 && b & 0xc0 == 64)
        || (a == 169 && b == 254)
        || (a == 172 && b & 0xf0 == 16)
        || (a == 192 && (b == 168 || matches!((b, c), (0, 0 | 2) | (88, 99))))
        || (a == 198 && (matches!(b, 18 | 19) || (b, c) == (51, 100)))
        || (a, b, c) == (203, 0, 113))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global_unicast = a & 0xe000 == 0x2000;
    // Teredo and other protocols, documentation, 6to4.
    let is_special = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    is_global_unicast && !is_special
}

#[cfg(test)]
mod tests;
