//! Bad input to every command: the exit code, nothing on stdout, and what stderr must name. docs/commands.md holds the
//! same table.

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_has_a_stable_exit_code_and_names_the_fault() {
    let rig = Rig::start().await;
    rig.register("bob", "courier", "bicycle").await;
    let (bob, expired) = (rig.token("bob"), rig.expired_token("bob"));
    let garbled = format!("{}x", &bob[..bob.len() - 8]);
    let absent = rig.path("absent.pem");
    let absent = absent.to_str().unwrap();
    let nowhere = ["--gateway", "http://127.0.0.1:1"];
    let commands: [&[&str]; 4] =
        [&["agent", "list"], &["agent", "show", "bob"], &["agent", "remove", "bob"], &["listen", "bob", "--for", "5"]];
    for command in commands {
        let faults: [(&[&str], i32, &str); 7] = [
            (&nowhere, 1, "no gateway answers at http://127.0.0.1:1"),
            (&["--token", "no-token"], 1, "unauthenticated: "),
            (&["--token", &garbled], 1, "unauthenticated: "),
            (&["--token", &expired], 1, "token_expired: "),
            (&["--issuer", "somebody-else"], 1, "unauthenticated: "),
            (&["--key", absent], 2, "`llmx keys` makes one"),
            (&["--gateway", "127.0.0.1:8080"], 2, "an address such as http://127.0.0.1:8080"),
        ];
        for (fault, code, says) in faults {
            let args = [command, fault].concat();
            let ran = rig.run(&args).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
        }
    }
    let own: &[(&[&str], i32, &str)] = &[
        (&["agent"], 2, "Usage: llmx agent"),
        (&["agent", "list", "--topic", "a.b"], 2, "is not a valid topic name"),
        (&["agent", "list", "--capability", ""], 2, "is not a valid capability"),
        (&["agent", "list", "--present", "perhaps"], 2, "possible values: yes, no"),
        (&["agent", "list", "--limit", "many"], 2, "--limit"),
        (&["agent", "list", "--as", "a b"], 2, "is not a valid agent id"),
        (&["agent", "show", "carol"], 1, "not_found: no such agent is registered"),
        (&["agent", "show", "a/../b"], 2, "is not a valid agent id"),
        (&["agent", "show"], 2, "<AGENT>"),
        (&["agent", "remove", "carol"], 1, "not_found: no such agent is registered"),
        (&["agent", "remove", "carol", "--token", &bob], 1, "not_found: "),
        (&["listen"], 2, "<AGENT>"),
        (&["listen", "a b"], 2, "is not a valid agent id"),
        (&["listen", "ann", "--token", &bob], 1, "unauthorized: the token is of bob, not of ann"),
        (&["listen", "bob", "--count", "0"], 2, "--count"),
        (&["listen", "bob", "--for", "never"], 2, "a number of seconds above 0"),
        (&["listen", "bob", "--for=-1"], 2, "--for"),
        (&["listen", "bob", "--count", "1", "--for", "0.3"], 1, "0 of 1 deliveries arrived in time"),
    ];
    for (args, code, says) in own {
        let ran = rig.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(*code), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
    }
}
