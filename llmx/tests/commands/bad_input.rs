//! Bad input to every command: the exit code, nothing on stdout, and what stderr must name. docs/commands.md holds the
//! same table.

use crate::rig::Rig;

/// Two spellings of one document's hash.
const SAME: [&str; 2] = ["28qsS//fo/+NgoyVrSQmBEwrRuc=", "dbcaac4bffdfa3ff8d828c95ad2426044c2b46e7"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_has_a_stable_exit_code_and_names_the_fault() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let (bob, expired) = (rig.token("bob"), rig.expired_token("bob"));
    let garbled = format!("{}x", &bob[..bob.len() - 8]);
    let absent = rig.path("absent.pem");
    let absent = absent.to_str().unwrap();
    let nowhere = ["--gateway", "http://127.0.0.1:1"];
    let commands: [&[&str]; 5] = [
        &["agent", "list"],
        &["agent", "show", "bob"],
        &["agent", "remove", "bob"],
        &["listen", "bob", "--for", "5"],
        &["call", "carry a parcel", "--to", "bob", "--wait", "5"],
    ];
    for command in commands {
        let faults: [(&[&str], i32, &str); 7] = [
            (&nowhere, 1, "no gateway answers at http://127.0.0.1:1"),
            (&["--token", "no-token"], 1, "unauthenticated: "),
            (&["--token", &garbled], 1, "unauthenticated: "),
            (&["--token", &expired], 1, "token_expired: "),
            (&["--issuer", "somebody-else"], 1, "unauthenticated: "),
            (&["--key", absent], 2, "`llmx keys` makes one"),
            (&["--gateway", "127.0.0.1:8080"], 2, "not an HTTP address; give http://HOST:PORT"),
        ];
        for (fault, code, says) in faults {
            let args = [command, fault].concat();
            let ran = rig.run(&args).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
        }
    }
    for (args, code, says) in own(&bob, &expired) {
        let ran = rig.run(&args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
    }
}

/// Bad input to one command each: arguments, exit code, what stderr must name.
#[allow(clippy::too_many_lines, reason = "a table")]
fn own<'a>(bob: &'a str, expired: &'a str) -> Vec<(Vec<&'a str>, i32, &'static str)> {
    vec![
        (vec!["agent"], 2, "Usage: llmx agent"),
        (vec!["agent", "list", "--topic", "a.b"], 2, "is not a valid topic name"),
        (vec!["agent", "list", "--capability", ""], 2, "is not a valid capability"),
        (vec!["agent", "list", "--present", "perhaps"], 2, "possible values: yes, no"),
        (vec!["agent", "list", "--limit", "many"], 2, "--limit"),
        (vec!["agent", "list", "--as", "a b"], 2, "is not a valid agent id"),
        (vec!["agent", "show", "carol"], 1, "not_found: no such agent is registered"),
        (vec!["agent", "show", "a/../b"], 2, "is not a valid agent id"),
        (vec!["agent", "show"], 2, "<AGENT>"),
        (vec!["agent", "remove", "carol"], 1, "not_found: no such agent is registered"),
        (vec!["agent", "remove", "carol", "--token", bob], 1, "not_found: "),
        (vec!["call"], 2, "<TASK>"),
        (vec!["call", ""], 2, "1 to 4096 characters"),
        (vec!["call", "x", "--to", "a b"], 2, "is not a valid agent id"),
        (vec!["call", "x", "--to", "http://bob"], 2, "--to"),
        (vec!["call", "x", "--topic", "a.b"], 2, "is not a valid topic name"),
        (vec!["call", "x", "--max-price=-1"], 2, "--max-price"),
        (vec!["call", "x", "--max-price", "ninety"], 2, "an amount such as 90 or 89.50"),
        (vec!["call", "x", "--max-price", "0.0000001"], 2, "at most 6 decimals"),
        (vec!["call", "x", "--max-price", "9007199255"], 2, "at most 9007199254"),
        (vec!["call", "x", "--reply-within", "0"], 2, "a number of seconds from 0.001"),
        (vec!["call", "x", "--wait", "soon"], 2, "a number of seconds from 0.001"),
        (vec!["call", "x", "--document", "nothing.md"], 2, "no such file, and it is no hash of a document"),
        (vec!["call", "x", "--document", "/dev/null"], 2, "missing_field"),
        (vec!["call", "x", "--document", SAME[0], "--document", SAME[1]], 2, "is named twice; name each document once"),
        (vec!["call", "x", "--require-document"], 2, "--document <FILE|HASH>"),
        (vec!["traffic", "--document", "nothing.md"], 2, "no such file, and it is no hash of a document"),
        (vec!["demo", "--routines", "--document", SAME[0]], 2, "cannot be used with"),
        (vec!["call", "x", "--id", "a~b~c"], 2, "is not a valid negotiation id"),
        (vec!["call", "x", "--id", "a~b", "--gateway", "http://127.0.0.1:1"], 2, "is not a valid negotiation id"),
        (vec!["agent", "list", "--key", "/dev/zero"], 2, "it is longer than 65536 bytes"),
        (vec!["call", "x", "--to", "carol"], 1, "no_recipient: "),
        (vec!["call", "x", "--to", "bob", "--policy", "a b"], 1, "bad_format: "),
        (vec!["call", "x", "--to", "bob", "--policy", "unheard-of"], 1, "unknown_policy: "),
        (vec!["call", "x", "--to", "bob", "--reply-within", "90000"], 1, "out_of_range: "),
        (vec!["top", "--once", "--gateway", "http://127.0.0.1:1"], 1, "no gateway answers at http://127.0.0.1:1"),
        (vec!["top", "--json", "--gateway", "http://127.0.0.1:1"], 1, "no gateway answers at http://127.0.0.1:1"),
        (vec!["top", "--once", "--token", "no-token"], 1, "unauthenticated: "),
        (vec!["top", "--once", "--token", expired], 1, "token_expired: "),
        (vec!["top"], 2, "stdout is no terminal: use --once or --json"),
        (vec!["top", "--once", "--json"], 2, "cannot be used with"),
        (vec!["top", "--every", "0"], 2, "a number of seconds from 0.001"),
        (vec!["top", "--every", "1e-10"], 2, "a number of seconds from 0.001 to 31536000"),
        (vec!["call", "x", "--wait", "1e-10"], 2, "a number of seconds from 0.001 to 31536000"),
        (vec!["completions"], 2, "<SHELL>"),
        (vec!["completions", "tcsh"], 2, "possible values: bash"),
        (vec!["man"], 2, "<DIR>"),
        (vec!["man", "/dev/null/x"], 2, "cannot write manual pages to /dev/null/x"),
        (vec!["listen"], 2, "<AGENT>"),
        (vec!["listen", "a b"], 2, "is not a valid agent id"),
        (vec!["listen", "ann", "--token", bob], 1, "unauthorized: the token is of bob, not of ann"),
        (vec!["listen", "bob", "--count", "0"], 2, "--count"),
        (vec!["listen", "bob", "--for", "never"], 2, "a number of seconds from 0.001"),
        (vec!["listen", "bob", "--for=-1"], 2, "--for"),
        (vec!["listen", "bob", "--count", "1", "--for", "0.3"], 1, "0 of 1 deliveries arrived in time"),
    ]
}
