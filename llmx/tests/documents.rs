//! Documents on the command line are read as a gateway reads them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

const OFFER: &str = r#"{"envelope":{"msg_id":"m1","ts":"2026-11-20T21:00:00.000Z","from":"agent://bob","negotiation":"alice~job"},"payload":{"act":"offer","terms":{"price":PRICE}}}"#;
const POLICY: &str = r#"{"id":"mine@1","weights":[{"attr":"price","dir":"lower","lo":0,"hi":PRICE,"w":1000}],"close":{"all_responded":true}}"#;

#[test]
fn a_number_that_is_no_integer_is_rounded_by_no_command() {
    for (args, document) in [(["schema", "check"], OFFER), (["policy", "check"], POLICY)] {
        for written in ["99999999.999999999999", "1.0000000000000000000001"] {
            let (status, stderr) = checked(args, &document.replace("PRICE", written));
            assert_eq!(status, Some(1), "{args:?} {written}: {stderr}");
            assert!(stderr.contains("wrong_type") || stderr.contains("another type"), "{args:?} {written}: {stderr}");
        }
        for written in ["85000000.0", "8.5e7"] {
            let (status, stderr) = checked(args, &document.replace("PRICE", written));
            assert_eq!(status, Some(0), "{args:?} {written}: {stderr}");
        }
    }
}

/// Exit code and standard error of a command that reads a document from a file.
fn checked(args: [&str; 2], document: &str) -> (Option<i32>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), document).unwrap();
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_llmx"));
    let output = command.args(args).arg(file.path()).timeout(Duration::from_secs(60)).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
