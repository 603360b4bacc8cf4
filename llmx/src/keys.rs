//! `llmx keys`: a signing key and the key set that verifies it.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::gateway::keys::{KeyAlgorithm, SigningKey, key_set};
use anyhow::Context;
use bridges::records::RecordKey;
use schemas::text::RECORD_KEY_PURPOSE;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::arguments::{file_fault, quoted, read_file, read_text};
use crate::output::{Failure, Outcome, print_result};

/// Issuer and audience of tokens where none are named.
pub const ISSUER_DEFAULT: &str = "llmx-local";
/// See [`ISSUER_DEFAULT`].
pub const AUDIENCE_DEFAULT: &str = "llmx";
/// Folder of keys, and of `llmx serve`, unless another is named.
pub const FOLDER_DEFAULT: &str = "llmx-data";
/// The private key in it.
pub const KEY_DEFAULT: &str = "llmx-data/signing-key.pem";
/// Name of the private key in the folder.
pub const KEY_FILE: &str = "signing-key.pem";
/// Name of the key set in the folder.
pub const JWKS_FILE: &str = "jwks.json";

/// Most bytes of a key file: an RSA key of 16384 bits takes 13 KB.
const KEY_BYTES_MAX: u64 = 64 * 1024;
/// Most bytes of a key set.
const SET_BYTES_MAX: u64 = 1024 * 1024;

/// Arguments of `llmx keys`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx keys && llmx token alice\n  \
    llmx keys --add        a second key in llmx-data/jwks.json; gateways verify tokens of both\n  \
    llmx keys --purpose records        record-key.pem and record-jwks.json, for `llmx award`")]
pub struct KeysArgs {
    /// Folder for signing-key.pem (private) and jwks.json (public)
    #[arg(long, default_value = FOLDER_DEFAULT)]
    out: PathBuf,
    /// Algorithm; records are signed with eddsa
    #[arg(long, value_enum, default_value = "eddsa")]
    algorithm: Algorithm,
    /// What it signs; a key of the one is refused for the other
    #[arg(long, value_enum, default_value = "tokens")]
    purpose: Purpose,
    /// Keep keys that are there already, and succeed
    #[arg(long)]
    keep: bool,
    /// Add a key to the key set that is there, for a rotation; the new private key is signing-key-KID.pem
    #[arg(long, conflicts_with = "keep")]
    add: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Algorithm {
    /// Ed25519
    #[value(name = "eddsa")]
    EdDsa,
    /// ECDSA on P-256
    Es256,
    /// RSA with 2048 bits
    Rs256,
}

crate::same_variants!(Algorithm => KeyAlgorithm: EdDsa, Es256, Rs256);

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Purpose {
    /// Tokens of agents: signing-key.pem, jwks.json
    Tokens,
    /// Records of awards (`llmx award`): record-key.pem, record-jwks.json
    Records,
}

/// Writes a new key and its key set.
pub fn run(args: &KeysArgs) -> Outcome {
    let (key_file, set_file) = match args.purpose {
        Purpose::Tokens => (KEY_FILE, JWKS_FILE),
        Purpose::Records => ("record-key.pem", "record-jwks.json"),
    };
    let (mut key_path, set_path) = (args.out.join(key_file), args.out.join(set_file));
    let is_kept = args.keep && key_path.exists() && set_path.exists();
    let key = if is_kept {
        read_any(&key_path)?
    } else {
        let key = SigningKey::generate(args.algorithm.into())?;
        if let Purpose::Records = args.purpose { for_records(&key)? } else { key }
    };
    if args.add {
        key_path = args.out.join(key_file.replace(".pem", &format!("-{}.pem", key.kid())));
        add(&key, &key_path, &set_path)?;
    } else if !is_kept {
        create(&key_path, &set_path, &key)?;
    }
    let (what, kid) = (if is_kept { "kept" } else { "wrote" }, key.kid());
    let document = json!({ "kid": kid, "signing_key": key_path, "jwks": set_path, "kept": is_kept });
    let words = format_args!("{what} {} (private) and {}, kid {kid}", key_path.display(), set_path.display());
    print_result(args.json, &document, words)
}

fn create(key_path: &Path, set_path: &Path, key: &SigningKey) -> Outcome {
    if key_path.exists() {
        return Err(Failure::configuration(format_args!(
            "{} is there already; what it signed would no longer verify: choose another --out, or --keep it",
            key_path.display()
        )));
    }
    if let Some(folder) = key_path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    // Not in the place of one that another process has made meanwhile.
    let written = whole_private(key_path, key.to_pem())?.persist_noclobber(key_path);
    written.with_context(|| format!("cannot create {}", key_path.display()))?;
    write_set(key, set_path)
}

fn write_set(key: &SigningKey, path: &Path) -> Outcome {
    Ok(std::fs::write(path, key_set(&[key])).with_context(|| format!("cannot write {}", path.display()))?)
}

/// Writes a key, and the set with its public half in the place of the one before, as a whole: gateways may read it meanwhile.
fn add(key: &SigningKey, key_path: &Path, set_path: &Path) -> Outcome {
    let fault = |what: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {what}", set_path.display()));
    let text = read_text(set_path, SET_BYTES_MAX).map_err(|error| {
        fault(&format_args!("{error}; --add needs the key set that gateways read, and --out names its folder"))
    })?;
    let mut set: Value = serde_json::from_str(&text).map_err(|error| fault(&error))?;
    let mut new: Value = serde_json::from_str(&key_set(&[key]))?;
    let keys = set["keys"].as_array_mut().ok_or_else(|| fault(&"no key set: it has no list `keys`"))?;
    keys.push(new["keys"][0].take());
    write_private(key_path, key.to_pem())?;
    let beside = set_path.with_extension("json.new");
    let written = std::fs::write(&beside, set.to_string()).and_then(|()| std::fs::rename(&beside, set_path));
    Ok(written.with_context(|| format!("cannot write {}", set_path.display()))?)
}

/// The options of `llmx token` and others that sign with this key, for who expects this issuer and audience.
pub fn signing_options(key: &Path, issuer: &str, audience: &str) -> String {
    let named = [
        ("--key", key.to_string_lossy(), key == Path::new(KEY_DEFAULT)),
        ("--issuer", issuer.into(), issuer == ISSUER_DEFAULT),
        ("--audience", audience.into(), audience == AUDIENCE_DEFAULT),
    ];
    let options = named.iter().filter(|(.., is_default)| !is_default);
    options.map(|(option, value, _)| format!(" {option} {}", quoted(value))).collect()
}

/// Reads a signing key, or makes one with its key set beside it where there is none.
pub fn read_or_make(path: &Path) -> Result<SigningKey, Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let set_path = folder.join(JWKS_FILE);
    if path.exists() {
        let key = read_key(path)?;
        // A start that was cut short leaves it out, or empty.
        if std::fs::metadata(&set_path).map_or(0, |set| set.len()) == 0 {
            write_set(&key, &set_path)?;
        }
        return Ok(key);
    }
    if set_path.exists() {
        return Err(Failure::configuration(format_args!(
            "{} is there, but not its key {}: name the key, or remove the key set",
            set_path.display(),
            path.display()
        )));
    }
    let key = SigningKey::generate(KeyAlgorithm::EdDsa)?;
    create(path, &set_path, &key)?;
    Ok(key)
}

/// Writes a file only its owner can read, as a whole, in the place of another: nobody finds half of it, whenever the process
/// ends.
pub fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    whole_private(path, content)?.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// A file with this content, to be put where `path` is.
fn whole_private(path: &Path, content: &str) -> anyhow::Result<NamedTempFile> {
    let cannot = || format!("cannot create {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Its mode is 0600.
    let mut file = NamedTempFile::new_in(folder).with_context(cannot)?;
    file.write_all(content.as_bytes()).and_then(|()| file.as_file().sync_all()).with_context(cannot)?;
    Ok(file)
}

/// Reads a key that signs tokens.
pub fn read_key(path: &Path) -> Result<SigningKey, Failure> {
    let key = read_any(path)?;
    if key.to_pem().starts_with(RECORD_KEY_PURPOSE) {
        return Err(file_fault(path, "it signs records of awards, and no tokens"));
    }
    Ok(key)
}

/// Reads a key that signs records.
pub fn read_record_key(path: &Path) -> Result<RecordKey, Failure> {
    let key = read_file(path, KEY_BYTES_MAX, RecordKey::from_pem);
    key.map_err(|failure| failure.or("`llmx keys --purpose records` makes one"))
}

/// The same key, said to be for records.
fn for_records(key: &SigningKey) -> Result<SigningKey, Failure> {
    let pem = format!("{RECORD_KEY_PURPOSE}\n{}", key.to_pem());
    RecordKey::from_pem(&pem).map_err(Failure::configuration)?;
    Ok(SigningKey::from_pem(&pem)?)
}

fn read_any(path: &Path) -> Result<SigningKey, Failure> {
    let pem = read_text(path, KEY_BYTES_MAX).map_err(|error| {
        Failure::configuration(format_args!(
            "cannot read {}: {error}; name the key of the exchange to join (--key FILE, LLMX_SIGNING_KEY); for a new \
             exchange `llmx keys` makes one",
            path.display()
        ))
    })?;
    SigningKey::from_pem(&pem).map_err(|error| file_fault(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_that_signs_must_be_told_is_what_is_not_its_default() {
        let path = Path::new;
        for (key, issuer, audience, expected) in [
            (path(KEY_DEFAULT), "llmx-local", "llmx", ""),
            (path("my data/key.pem"), "llmx-local", "llmx", " --key 'my data/key.pem'"),
            (path(KEY_DEFAULT), "https://login.example", "a'b", " --issuer https://login.example --audience 'a'\\''b'"),
        ] {
            assert_eq!(signing_options(key, issuer, audience), expected);
        }
    }
}
