//! `llmx healthcheck URL`: for containers without a shell.

use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::output::{Failure, Outcome};
use crate::remote::http_url;

/// Longest wait for an answer; a health check that hangs is a failed one.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Longest `--wait`.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Bytes of an answer that are shown.
const BODY_BYTES_MAX: usize = 4096;

/// Pause between two questions of one check that waits.
const PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `llmx healthcheck`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx healthcheck http://127.0.0.1:8080/readyz    a gateway\n  \
    llmx healthcheck http://127.0.0.1:9464/readyz    an engine with --listen 127.0.0.1:9464\n  \
    llmx healthcheck --wait 30 http://127.0.0.1:8080/readyz    until it is ready, at most half a minute")]
pub struct Args {
    /// Address to ask, for example http://127.0.0.1:8080/readyz
    #[arg(value_parser = http_url)]
    url: String,
    /// Ask again until it is well, for so many seconds
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    wait: f64,
}

/// Succeeds when the address answers 2xx, now or within the time to wait.
pub async fn run(args: Args) -> Outcome {
    let wait = Duration::try_from_secs_f64(args.wait)
        .map_err(|error| error.to_string())
        .and_then(|wait| if wait <= WAIT_MAX { Ok(wait) } else { Err("a day at most".to_owned()) })
        .map_err(|error| Failure::configuration(format_args!("--wait: {error}")))?;
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let deadline = Instant::now() + wait;
    loop {
        match ask(&client, &args.url).await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Outcome {
    let response = client.get(url).send().await.with_context(|| format!("no answer from {url}"))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let body = beginning(response).await;
    Err(Failure::failed(anyhow::anyhow!("{url} answered {status}: {}", String::from_utf8_lossy(&body).trim())))
}

/// The first bytes of an answer.
async fn beginning(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece[..piece.len().min(BODY_BYTES_MAX - body.len())]);
        if body.len() == BODY_BYTES_MAX {
            break;
        }
    }
    body
}
