//! The stream of a client: what it is answered before there is a request to route, and how long it may leave answers unread.
//!
//! A request line or a header that is not HTTP, or too large, is answered by the HTTP library itself: with a status and
//! an empty body, and without a hook. [`ClientStream`] gives those answers the problem document every other refusal has
//! (RFC 9457), and says that there was one, since no route can count it.
//!
//! It recognises them by their form: one write that is a whole head of an HTTP/1.1 answer 400, 414 or 431 without a body.
//! Handlers never write one, since each of their refusals has a body; nor does a WebSocket, whose frames begin otherwise.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use schemas::{Code, Refusal};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::HEADER_BYTES_MAX;
use crate::problem::{MEDIA_TYPE, Problem};

/// The member of a head that says that no body follows.
const NO_BODY: &str = "content-length: 0\r\n";
/// The end of a head.
const HEAD_END: &str = "\r\n\r\n";

/// What is done for each refusal that comes before there is a request to route.
pub type OnEarlyRefusal = Arc<dyn Fn(Code) + Send + Sync>;

/// A connection whose early refusals carry a problem document, and which fails once a write has waited too long. What is written
/// to a client that does not read waits for ever in the system's buffers, and the connection holds one of a limited number of
/// places.
pub(super) struct ClientStream<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    on_refusal: OnEarlyRefusal,
    /// What is left to be written in place of a head of `replaced` bytes.
    answer: Bytes,
    replaced: usize,
}

impl<S> ClientStream<S> {
    /// Ends the connection when nothing can be written to it for `patience`.
    pub(super) const fn new(stream: S, patience: Duration, on_refusal: OnEarlyRefusal) -> Self {
        Self { stream, patience, waiting: None, on_refusal, answer: Bytes::new(), replaced: 0 }
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

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Writes what stands in place of a head, and reports the head as written once all of it has left.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while !self.answer.is_empty() {
            let outcome = Pin::new(&mut self.stream).poll_write(cx, &self.answer);
            let written = ready!(self.bound(cx, outcome))?;
            if written == 0 {
                return Poll::Ready(Ok(0));
            }
            self.answer.advance(written);
        }
        Poll::Ready(Ok(self.replaced))
    }

    /// Whether an answer of ours is being written, or is to be written in place of these bytes.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.answer.is_empty()
            && let Some((code, answer)) = answer_in_place_of(bytes)
        {
            (self.on_refusal)(code);
            (self.answer, self.replaced) = (answer, bytes.len());
        }
        !self.answer.is_empty()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(bytes) {
            return self.poll_answer(cx);
        }
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = parts.iter().filter(|part| !part.is_empty());
        if let (Some(head), None) = (filled.next(), filled.next())
            && self.replaces(head)
        {
            return self.poll_answer(cx);
        }
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
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

/// The answer with a problem document, when these bytes are a whole early refusal.
fn answer_in_place_of(bytes: &[u8]) -> Option<(Code, Bytes)> {
    let refusal = match bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)? {
        b"400" => Refusal::new(Code::MalformedRequest, "the request line or a header is malformed (RFC 9112)")
            .expecting("HTTP/1.1; a PROXY header before it from `trusted_proxies` only"),
        b"414" | b"431" => Refusal::new(Code::HeaderTooLarge, "the request's header is larger than this server reads")
            .expecting(format!("at most {HEADER_BYTES_MAX} bytes, 64 members")),
        _ => return None,
    };
    let head = std::str::from_utf8(bytes).ok()?;
    let is_whole = head.find(HEAD_END).is_some_and(|end| end + HEAD_END.len() == head.len());
    let (before, after) = head.split_once(NO_BODY).filter(|_| is_whole)?;
    let (_, members) = before.split_once("\r\n")?;
    let body = serde_json::to_string(&Problem::from(&refusal)).ok()?;
    let status = http_status(refusal.code);
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\n{members}content-type: {MEDIA_TYPE}\r\ncontent-length: {length}\r\n{after}{body}"
    );
    Some((refusal.code, Bytes::from(answer)))
}

fn http_status(code: Code) -> axum::http::StatusCode {
    axum::http::StatusCode::from_u16(code.http_status()).unwrap_or(axum::http::StatusCode::BAD_REQUEST)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const HEAD: &str =
        "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";

    #[test]
    fn only_a_whole_head_without_a_body_is_replaced() {
        assert!(answer_in_place_of(HEAD.as_bytes()).is_some());
        for other in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 10\r\n\r\n0123456789".to_owned(),
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n".to_owned(),
            format!("{HEAD}{HEAD}"),
            format!(" {HEAD}"),
            "\u{81}HTTP/1.1 400".to_owned(),
            String::new(),
        ] {
            assert!(answer_in_place_of(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_members_gets_a_body_and_is_told_once_however_slowly_it_is_read() {
        let (near, mut far) = duplex(7);
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = told.clone();
        let writing = tokio::spawn(async move {
            let mut stream = ClientStream::new(near, PATIENCE, Arc::new(move |code| note.lock().push(code)));
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            stream.write_all(b"plain").await.unwrap();
        });
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        writing.await.unwrap();
        assert_eq!(*told.lock(), [Code::HeaderTooLarge]);
        let (head, body) = answer.split_once(HEAD_END).unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"), "{head}");
        assert!(head.contains("content-type: application/problem+json") && head.contains("date: x"), "{head}");
        let document = body.strip_suffix("plain").unwrap();
        assert!(head.contains(&format!("content-length: {}", document.len())), "{head}");
        let problem: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!((&problem["code"], &problem["status"]), (&"header_too_large".into(), &431.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_after_the_patience_and_not_before() {
        let (mut client, server) = duplex(16);
        let mut server = ClientStream::new(server, PATIENCE, Arc::new(|_| {}));
        let began = tokio::time::Instant::now();
        let error = server.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        client.read_exact(&mut [0; 16]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_now_and_then_is_served() {
        let (mut client, server) = duplex(16);
        let mut server = ClientStream::new(server, PATIENCE, Arc::new(|_| {}));
        let writing = tokio::spawn(async move { server.write_all(&[0; 64]).await });
        for _ in 0..4 {
            tokio::time::sleep(PATIENCE * 9 / 10).await;
            client.read_exact(&mut [0; 16]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }
}
