//! The token of the agent as whom transactions of Agora without a token enter (docs/spec/agora.md#ag-48). The file is read
//! anew for each of them, so that a new token is taken over without a restart.

use std::io;
use std::path::Path;

use tokio::io::AsyncReadExt as _;

use crate::auth::{Authenticator, Identity, TOKEN_BYTES_MAX};
use crate::config::GatewayConfig;
use crate::error::{ConfigFault, GatewayError};

/// What the file must hold.
const REMEDY: &str = "it must hold the token of an agent without special rights, signed with a key of this gateway: \
                      `llmx token NAME > FILE`";

/// The token in a file. Of a file that is no token, so much is read that its verification fails.
///
/// # Errors
/// The system's, where the file cannot be read or is no text.
pub(crate) async fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = tokio::fs::File::open(file).await?;
    file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_string(&mut text).await?;
    Ok(text.trim().to_owned())
}

/// Whether the bearer of a token has rights that nobody may have without one.
pub(crate) fn is_privileged(identity: &Identity, config: &GatewayConfig) -> bool {
    identity.is_admin || config.admins.contains(&identity.agent)
}

/// Refuses a file whose token this gateway would not take from an agent, or whose bearer is an administrator.
///
/// # Errors
/// [`GatewayError::Setting`] with what is wrong and what to do.
pub(crate) async fn check(config: &GatewayConfig, auth: &Authenticator) -> Result<(), GatewayError> {
    let Some(file) = config.agora_token_file.as_deref() else { return Ok(()) };
    let fault = |what: &str| {
        let expected = format!("{}: {what}; {REMEDY}", file.display());
        Err(GatewayError::Setting(ConfigFault { member: "agora_token_file", expected }))
    };
    let token = match read(file).await {
        Ok(token) if token.is_empty() => return fault("the file is empty"),
        Ok(token) => token,
        Err(error) => return fault(&format!("cannot be read: {error}")),
    };
    // Nobody is charged: nobody has asked yet.
    match auth.identify(&token, || Ok(())).await {
        Ok(Ok(identity)) if is_privileged(&identity, config) => {
            fault(&format!("{} is an administrator, and whoever reaches the port would enter as it", identity.agent))
        }
        Ok(Ok(_)) => Ok(()),
        Ok(Err(refusal)) | Err(refusal) => fault(&refusal.detail),
    }
}
