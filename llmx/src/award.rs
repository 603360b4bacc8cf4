//! `llmx award`: signed records of what an archive proves, and whether one can be relied on.

use std::path::PathBuf;

use ::gateway::KeySource;
use ::gateway::keys::read_key_set;
use bridges::records::{
    AwardRecord, ExportOptions, Exported, RecordKeySet, RecordRefusal, RecordsError, compare, export, verify,
};
use schemas::{AgentId, NegotiationId};
use serde_json::json;

use crate::gateway::settings::key_source;
use crate::keys::{ISSUER_DEFAULT, read_record_key};
use crate::output::{Failure, Outcome, print_json, print_result};
use crate::schema::read;

/// Arguments of `llmx award`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx award verify award.jws --jwks record-jwks.json")]
pub struct AwardArgs {
    #[command(subcommand)]
    command: AwardCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AwardCommand {
    /// Write a signed record of each award and agreement that ended, from an archive that verifies
    #[command(after_help = "Examples:\n  llmx keys --purpose records\n  \
        llmx award export --archive archive --record-key llmx-data/record-key.pem --out records\n\n\
        The same archive, key and issuer give the same bytes. An archive that does not verify gives nothing.")]
    Export {
        /// Folder of the archive, as `llmx archive` writes it; it may still be written
        #[arg(long, value_name = "DIR")]
        archive: PathBuf,
        /// Signing key, as `llmx keys --purpose records` writes it
        #[arg(long, value_name = "FILE")]
        record_key: PathBuf,
        /// Issuer the records name
        #[arg(long, env = "LLMX_ISSUER", default_value = ISSUER_DEFAULT)]
        issuer: String,
        /// Only of this negotiation; fail when it has none
        #[arg(long, value_name = "ID", value_parser = NegotiationId::try_new)]
        negotiation: Option<NegotiationId>,
        /// Only what this agent called, offered or is bound by
        #[arg(long, value_name = "ID", value_parser = AgentId::try_new)]
        agent: Option<AgentId>,
        /// File of how far the archive was read: only what is new is read, and the file moved on
        #[arg(long, value_name = "FILE")]
        after: Option<PathBuf>,
        /// Folder of the records: NEGOTIATION/LOT-AWARD.jws
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Print what was exported as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a record by a key set alone, and against an archive if one is named
    #[command(
        after_help = "Examples:\n  llmx award verify award.jws --jwks https://exchange.example/record-jwks.json\n  \
        llmx award verify award.jws --jwks record-jwks.json --archive archive\n\n\
        Exit code 1 names the first fault by its code: malformed, wrong_type, wrong_alg, unknown_key, bad_signature,\n\
        bad_claims, not_canonical, terms_mismatch, not_in_archive, differs_from_archive."
    )]
    Verify {
        /// The record; - for standard input
        file: PathBuf,
        /// Key set of the issuer's records: a file, or an https URL
        #[arg(long, value_name = "FILE|URL", value_parser = key_source)]
        jwks: KeySource,
        /// Issuer it must name
        #[arg(long)]
        issuer: Option<String>,
        /// Archive that must prove the same
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
        /// Print the verdict as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub async fn run(args: AwardArgs) -> Outcome {
    match args.command {
        AwardCommand::Export { archive, record_key, issuer, negotiation, agent, after, out, json } => {
            let options = ExportOptions { archive, issuer, negotiation, agent, after, out };
            tell(&options, export(&options, &read_record_key(&record_key)?).map_err(failure)?, json)
        }
        AwardCommand::Verify { file, jwks, issuer, archive, json } => {
            let set = read_key_set(&jwks).await.map_err(Failure::configuration)?;
            let keys = RecordKeySet::parse(&set).map_err(failure)?;
            let verified = verify(&String::from_utf8_lossy(&read(&file)?), &keys, issuer.as_deref());
            let verdict = match (verified, archive) {
                (Ok(record), Some(archive)) => compare(&record, &archive).map_err(failure)?.map(|()| record),
                (verified, _) => verified,
            };
            judge(verdict, json)
        }
    }
}

fn tell(options: &ExportOptions, exported: Exported, json: bool) -> Outcome {
    let Exported { read, records, left_out, .. } = exported;
    if let Some(only) = options.negotiation.as_ref().filter(|_| records == 0 && options.after.is_none()) {
        return Err(Failure::failed(anyhow::anyhow!("no award or agreement of {only} ended in what was read")));
    }
    let folder = options.out.display();
    let words =
        format_args!("{records} records in {folder}; {read} records of the log read; {left_out} awards left out");
    print_result(json, &exported, words)
}

fn judge(verdict: Result<AwardRecord, RecordRefusal>, json: bool) -> Outcome {
    let refusal = match verdict {
        Ok(record) => {
            let words = format_args!("valid: {} {}, {}, of {}", record.record, record.jti, record.state, record.iss);
            return print_result(json, &json!({"valid": true, "record": record}), words);
        }
        Err(refusal) => refusal,
    };
    if json {
        print_json(&json!({"valid": false, "code": refusal.code, "detail": refusal.detail}))?;
    }
    Err(Failure::failed(refusal))
}

/// Maps usage errors to exit code 2 and other failures to 1.
fn failure(error: RecordsError) -> Failure {
    Failure::of(error.is_usage(), error)
}
