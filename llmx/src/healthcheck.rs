//! `llmx healthcheck URL`: for containers without a shell.

use std::time::Duration;

use anyhow::Context;

use crate::output::{Failure, Outcome};
use crate::remote::http_url;

/// Longest wait for an answer; a health check that hangs is a failed one.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments of `llmx healthcheck`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx healthcheck http://127.0.0.1:8080/readyz    a gateway\n  \
    llmx healthcheck http://127.0.0.1:9464/readyz    an engine with --listen 127.0.0.1:9464")]
pub struct Args {
    /// Address to ask, for example http://127.0.0.1:8080/readyz
    #[arg(value_parser = http_url)]
    url: String,
}

/// Succeeds when the address answers 2xx in time.
pub async fn run(args: Args) -> Outcome {
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let response = client.get(&args.url).send().await.with_context(|| format!("no answer from {}", args.url))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let body = response.text().await.unwrap_or_default();
    Err(Failure::failed(anyhow::anyhow!("{} answered {status}: {}", args.url, body.trim())))
}
