//! `llmx keys`: a signing key and the key set that verifies it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::gateway::keys::{KeyAlgorithm, SigningKey, key_set};
use anyhow::Context;

use crate::arguments::read_text;
use crate::output::{Failure, Outcome, print, print_json};

/// Name of the private key in the folder.
pub const KEY_FILE: &str = "signing-key.pem";
/// Name of the key set in the folder.
pub const JWKS_FILE: &str = "jwks.json";

/// Most bytes of a key file: an RSA key of 16384 bits takes 13 KB.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// Arguments of `llmx keys`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx keys --out run/keys && llmx token alice --key run/keys/signing-key.pem")]
pub struct KeysArgs {
    /// Folder for signing-key.pem (private) and jwks.json (public)
    #[arg(long, default_value = "run/keys")]
    out: PathBuf,
    /// Algorithm
    #[arg(long, value_enum, default_value = "eddsa")]
    algorithm: Algorithm,
    /// Keep keys that are there already, and succeed
    #[arg(long)]
    keep: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Algorithm {
    /// Ed25519
    Eddsa,
    /// ECDSA on P-256
    Es256,
    /// RSA with 2048 bits
    Rs256,
}

/// Writes a new key and its key set.
pub fn run(args: &KeysArgs) -> Outcome {
    let (key_path, set_path) = (args.out.join(KEY_FILE), args.out.join(JWKS_FILE));
    let is_kept = args.keep && key_path.exists() && set_path.exists();
    let key = if is_kept { read_key(&key_path)? } else { create(&key_path, &set_path, args.algorithm)? };
    if args.json {
        return print_json(&serde_json::json!({
            "kid": key.kid(), "signing_key": key_path, "jwks": set_path, "kept": is_kept
        }));
    }
    let what = if is_kept { "kept" } else { "wrote" };
    print(format_args!("{what} {} (private) and {}, kid {}", key_path.display(), set_path.display(), key.kid()));
    Ok(())
}

fn create(key_path: &Path, set_path: &Path, algorithm: Algorithm) -> Result<SigningKey, Failure> {
    if key_path.exists() {
        return Err(Failure::configuration(format_args!(
            "{} is there already; tokens it signed would stop working: choose another --out, or --keep it",
            key_path.display()
        )));
    }
    let algorithm = match algorithm {
        Algorithm::Eddsa => KeyAlgorithm::EdDsa,
        Algorithm::Es256 => KeyAlgorithm::Es256,
        Algorithm::Rs256 => KeyAlgorithm::Rs256,
    };
    let key = SigningKey::generate(algorithm)?;
    if let Some(folder) = key_path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    write_private(key_path, key.to_pem())?;
    std::fs::write(set_path, key_set(&[&key])).with_context(|| format!("cannot write {}", set_path.display()))?;
    Ok(key)
}

/// Reads a signing key, or makes one with its key set beside it where there is none.
pub fn read_or_make(path: &Path) -> Result<SigningKey, Failure> {
    if path.exists() {
        return read_key(path);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let set_path = folder.join(JWKS_FILE);
    if set_path.exists() {
        return Err(Failure::configuration(format_args!(
            "{} is there, but not its key {}: name the key, or remove the key set",
            set_path.display(),
            path.display()
        )));
    }
    create(path, &set_path, Algorithm::Eddsa)
}

/// Writes a file only its owner can read, from the moment it exists.
fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(content.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a signing key.
pub fn read_key(path: &Path) -> Result<SigningKey, Failure> {
    let pem = read_text(path, KEY_BYTES_MAX).map_err(|error| {
        Failure::configuration(format_args!(
            "cannot read {}: {error}; name the key of the exchange to join (--key FILE, LLMX_SIGNING_KEY); for a new \
             exchange `llmx keys` makes one",
            path.display()
        ))
    })?;
    SigningKey::from_pem(&pem).map_err(|error| Failure::configuration(format_args!("{}: {error}", path.display())))
}
