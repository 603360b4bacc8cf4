//! MCP over standard input and output: a message a line.

use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use schemas::validate::BODY_BYTES_MAX;
use schemas::{Code, Refusal};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::{McpServer, PARSE_ERROR, Services, strict};

/// Bytes between the strict reader and the library.
const PIPE_BYTES: usize = 64 * 1024;
/// Lines that wait to be written.
const LINES_MAX: usize = 64;

/// How long calls go on whose client has ended its side: what does not wait for others is done within.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// How long answers may take to be read by a client that has ended its side.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves one client until its input ends.
///
/// # Errors
/// What reading or writing fails with.
pub async fn serve<S: Services>(
    server: McpServer<S>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (answers, requests) = tokio::io::split(ours);
    let (lines, written) = mpsc::channel(LINES_MAX);
    let (reader, stop) = (read(input, requests, lines.clone()), server.stop.clone());
    let stopped = stop.clone();
    let reading = tokio::spawn(async move {
        reader.await;
        tokio::time::sleep(LAST_CALLS).await;
        stop.cancel();
    });
    let copying = tokio::spawn(copy(answers, lines));
    let writing = tokio::spawn(write(output, written));
    let served = async {
        match server.serve(theirs).await {
            Ok(running) => running.waiting().await.map(|_| ()).map_err(io::Error::other),
            // A client that ends before it has begun is no fault.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        }
    };
    // A client that reads no more, or has ended its side and does not read, holds nothing up.
    let mut writing = writing;
    let served: io::Result<()> = tokio::select! {
        served = served => served,
        written = &mut writing => return written.map_err(io::Error::other)?,
        () = async { stopped.cancelled().await; tokio::time::sleep(LAST_WORDS).await } => Ok(()),
    };
    reading.abort();
    let last = async {
        let _ = copying.await;
        writing.await.map_err(io::Error::other)?
    };
    tokio::time::timeout(LAST_WORDS, last).await.unwrap_or(Ok(()))?;
    served
}

/// Hands on what is JSON, read strictly; answers the rest.
async fn read(input: impl AsyncRead + Unpin, mut requests: impl AsyncWrite + Unpin, answers: mpsc::Sender<Vec<u8>>) {
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), BODY_BYTES_MAX);
    let mut lines = FramedRead::new(input, codec);
    // After a fault the stream ends once, and goes on.
    let mut has_failed = false;
    loop {
        let Some(line) = lines.next().await else {
            if std::mem::take(&mut has_failed) {
                continue;
            }
            break;
        };
        let read = match line {
            Ok(line) if line.trim_ascii().is_empty() => continue,
            Ok(line) => strict(line.trim_ascii()),
            Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => {
                has_failed = true;
                let refusal = Refusal::new(Code::TooLarge, format!("a message has at most {BODY_BYTES_MAX} bytes"));
                Err(
                    json!({"jsonrpc": "2.0", "id": null, "error": {"code": PARSE_ERROR, "message": refusal.detail, "data": refusal}}),
                )
            }
            Err(AnyDelimiterCodecError::Io(_)) => break,
        };
        let sent = match read {
            Ok(mut line) => {
                line.push(b'\n');
                requests.write_all(&line).await.is_ok()
            }
            Err(answer) => answers.send(answer.to_string().into_bytes()).await.is_ok(),
        };
        if !sent {
            return;
        }
    }
    let _ = requests.shutdown().await;
}

/// Passes the library's lines on.
async fn copy(answers: tokio::io::ReadHalf<DuplexStream>, lines: mpsc::Sender<Vec<u8>>) {
    let mut answers = BufReader::new(answers).split(b'\n');
    while let Ok(Some(line)) = answers.next_segment().await {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}
