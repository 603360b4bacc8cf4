//! `llmx archive`: every record of the log, in files that can be verified without it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use archive::{ArchiveError, ArchiveOptions, ArchiveStatus, ForkedLane, LaneStatus};
use tokio_util::sync::CancellationToken;

use crate::nats::NatsSource;
use crate::output::{Failure, Outcome, Progress, print, print_json};
use crate::signals::asked_to_end;

/// How often progress is shown.
const SHOW_PERIOD: Duration = Duration::from_secs(1);

/// Least size of an archive that is kept small, in bytes: a segment of each lane must not fill its share.
const KEEP_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Arguments of `llmx archive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx archive --nats nats://127.0.0.1:4222 --to archive\n  \
    llmx archive --to archive --once && llmx audit verify archive\n  \
    llmx archive --to archive --keep-bytes 10000000000\n  \
    llmx archive --to archive-2 --fork-of archive    after the log has lost its end\n\n\
    One log needs one archiver. Engines trim the log below what it has synced and what they have a checkpoint of.\n\
    Ctrl-C ends it cleanly; killed, it goes on where it was. A full disk is shown and tried again.")]
pub struct ArchiveArgs {
    #[command(flatten)]
    nats: NatsSource,
    /// Folder of the archive; it goes on behind what stands there
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Folder of an archive that is ahead of the log, which has lost its end: what both hold is copied to --to first, and
    /// archiving goes on behind it. The folder itself stays as it is
    #[arg(long, value_name = "DIR")]
    fork_of: Option<PathBuf>,
    /// Stop at what is the end of the log now
    #[arg(long)]
    once: bool,
    /// Bytes after which a file is full
    #[arg(long, default_value_t = archive::SEGMENT_BYTES_DEFAULT, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    segment_bytes: u64,
    /// Bytes all segments may take: beyond, the oldest are removed for ever and the state they led to is kept in their place
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(KEEP_BYTES_MIN..))]
    keep_bytes: Option<u64>,
    /// Print what was archived as JSON
    #[arg(long)]
    json: bool,
}

/// Archives until asked to end.
pub async fn run(args: ArchiveArgs) -> Outcome {
    let bus = args.nats.in_force()?.open("llmx-archive").await?;
    let ArchiveArgs { to: folder, segment_bytes, keep_bytes, once, .. } = args;
    if let Some(from) = &args.fork_of {
        let forked = archive::fork(&bus, from, &folder).await.map_err(refused)?;
        forked.iter().for_each(|lane| tell_forked(lane, from, &folder));
    }
    let options = ArchiveOptions { folder: folder.clone(), segment_bytes, keep_bytes, once };
    let (status, cancel) = (Arc::new(ArchiveStatus::default()), CancellationToken::new());
    let archiving = archive::run(bus, options, Arc::clone(&status), cancel.clone());
    let ended = tokio::select! {
        ended = archiving_until(archiving, &cancel) => ended,
        never = show(&status, args.json) => match never {},
    };
    Progress::new().finish();
    ended.map_err(refused)?;
    let lanes = status.lanes();
    if args.json {
        return print_json(&serde_json::json!({"folder": folder, "lanes": lanes}));
    }
    for lane in &lanes {
        let tally = lane.tally;
        print(format_args!(
            "lane {}: archived up to record {}: {} records, {} negotiations ended, {} register entries",
            lane.lane, lane.position, tally.records, tally.negotiations, tally.register_entries
        ));
    }
    Ok(())
}

/// Says what each of two folders proves.
fn tell_forked(forked: &ForkedLane, from: &Path, to: &Path) {
    let ForkedLane { lane, common, lost } = forked;
    Progress::new().show(format_args!(
        "lane {lane}: {} and the log both hold it up to record {common}. The {lost} records behind that the log has lost: \
         {0} alone proves what came of them, and {} what the log holds instead. Keep both\n",
        from.display(),
        to.display()
    ));
}

/// Runs to the end, or to a clean stop when asked to end.
async fn archiving_until(
    archiving: impl Future<Output = Result<(), ArchiveError>>,
    cancel: &CancellationToken,
) -> Result<(), ArchiveError> {
    tokio::pin!(archiving);
    tokio::select! {
        ended = &mut archiving => return ended,
        () = asked_to_end() => cancel.cancel(),
    }
    archiving.await
}

async fn show(status: &ArchiveStatus, quiet: bool) -> std::convert::Infallible {
    let progress = Progress::new();
    let mut period = tokio::time::interval(SHOW_PERIOD);
    loop {
        period.tick().await;
        let lanes = status.lanes();
        let fault = lanes.iter().find_map(|lane| Some((lane.lane, lane.fault.as_ref()?)));
        if let Some((lane, fault)) = fault {
            progress.show(format_args!("lane {lane} waits: {fault}"));
        } else if !quiet {
            progress.show(line(&lanes));
        }
    }
}

fn line(lanes: &[LaneStatus]) -> String {
    let sum = |count: fn(&LaneStatus) -> u64| lanes.iter().map(count).sum::<u64>();
    format!(
        "{:>8} records   {:>8} messages   {:>7} negotiations ended   lanes at {}",
        sum(|lane| lane.tally.records),
        sum(|lane| lane.tally.messages),
        sum(|lane| lane.tally.negotiations),
        lanes.iter().map(|lane| lane.position.to_string()).collect::<Vec<_>>().join(" ")
    )
}

/// What lies in the folder or the log that was named is a matter of configuration; what fails on the way is not.
fn refused(error: ArchiveError) -> Failure {
    use ArchiveError::{Bus, Busy, Foreign, Trimmed, Unfit};
    if let Bus(error) = error {
        return error.into();
    }
    Failure::of(matches!(error, Busy(_) | Trimmed { .. } | Foreign { .. } | Unfit { .. }), error)
}
