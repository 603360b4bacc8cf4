//! Random frames with meaning: none panics or takes long, and one that is read is written and read alike.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use fuzzing::{JSON_WORDS, Mixture, feed};
use ioa_bridge::wire::{ChatFrame, FRAME_BYTES_MAX};

/// Frames where no time is asked for.
const FRAMES: u64 = 300;

#[test]
fn no_frame_is_read_in_two_ways_or_takes_long() {
    let frame = r#"{"content":"hello","sender":"Ann","comm_id":"0123456789abcdef0123456789abcdef","next_speaker":["Bob"],"state":1,"type":4,"goal":"g","team_members":[{"name":"Ann"}],"team_up_depth":null,"task_id":"","task_desc":"","task_conclusion":"","task_abstract":"","triggers":["t"],"max_turns":3,"proposal_id":"","updated_plan":"","is_collaborative_planning_enabled":false}"#;
    ChatFrame::read(frame).unwrap();
    let words = [
        "null",
        "true",
        "-1",
        "11",
        "12",
        "1e400",
        "\"type\":",
        "\"state\":2",
        "\"next_speaker\":",
        "\"triggers\":",
        "\"Bob\",",
        "é",
        "x",
    ];
    feed(
        "bridge-frames",
        FRAMES,
        Mixture { valid: &[frame], words: &[&JSON_WORDS[..], &words].concat(), bytes_max: FRAME_BYTES_MAX },
        |text| {
            if let Ok((kind, frame)) = ChatFrame::read(text) {
                assert_eq!(ChatFrame::read(&frame.write()), Ok((kind, frame)));
            }
        },
    );
}
