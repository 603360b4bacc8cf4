//! Flags, environment variables, files and defaults: which wins, what is said of each, and what is said of faults.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const LLMX: &str = env!("CARGO_BIN_EXE_llmx");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llmx.example.toml");

#[test]
fn a_file_may_hold_some_of_what_flags_and_variables_complete() {
    // What nobody can read ends the start behind the configuration, and before the wait for NATS.
    let beyond = ["--nats", "nats://127.0.0.1:1", "--nats-creds", "/nonexistent"];
    for text in ["", "[gateway]\n", "[gateway]\nid = \"g\"\n", "[gateway.limits]\nburst = 7\n", "[engine]\n"] {
        let file = Written::new(text);
        for args in [&["gateway", "--jwks", "keys.json"][..], &["engine"]] {
            let output = llmx(&[args, &["--config", file.path()], &beyond].concat(), &[]);
            assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
            assert!(stderr(&output).contains("/nonexistent"), "{text:?}: {}", stderr(&output));
        }
    }
    let keyless = llmx(&["gateway", "--config", Written::new("[gateway]\n").path()], &[]);
    assert_eq!(keyless.status.code(), Some(2));
    assert!(stderr(&keyless).contains("no key set: give --jwks FILE or URL"), "{}", stderr(&keyless));
}

#[test]
fn each_member_comes_from_the_first_layer_that_gives_it() {
    let file = Written::new(
        "[nats]\nreplicas = 3\n\n[gateway]\nid = \"of-file\"\n[gateway.auth]\nissuer = \"of-file\"\n\
         audience = \"of-file\"\nkeys = { url = \"https://user:secret@issuer.example/keys\" }\n\
         allow_hs256_dev_secret = \"0123456789abcdef0123456789abcdef\"\n[gateway.limits]\nburst = 7\nagents_max = 8\n",
    );
    let variables =
        [("LLMX_ISSUER", "of-variable"), ("LLMX_AGENTS_MAX", "9"), ("LLMX_NATS", "nats://u:secret@far:4222")];
    let args =
        ["config", "show", "gateway", "--json", "--config", file.path(), "--agents-max", "10", "--id", "of-flag"];
    let output = llmx(&args, &variables);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_file = |line: u64, column: u64| json!({"file": file.path(), "line": line, "column": column});
    for (member, value, source) in [
        ("nats.url", json!("far:4222"), json!({"variable": "LLMX_NATS"})),
        ("nats.replicas", json!(3), of_file(2, 1)),
        ("gateway.id", json!("of-flag"), json!({"flag": "--id"})),
        ("gateway.listen", json!("127.0.0.1:8080"), json!({"default": true})),
        ("gateway.auth.issuer", json!("of-variable"), json!({"variable": "LLMX_ISSUER"})),
        ("gateway.auth.audience", json!("of-file"), of_file(8, 1)),
        ("gateway.auth.keys", json!({"url": "https://issuer.example/keys"}), of_file(9, 1)),
        ("gateway.auth.allow_hs256_dev_secret", json!("(redacted)"), of_file(10, 1)),
        ("gateway.limits.burst", json!(7), of_file(12, 1)),
        ("gateway.limits.agents_max", json!(10), json!({"flag": "--agents-max"})),
        ("gateway.limits.requests_per_s", json!(2000), json!({"default": true})),
    ] {
        assert_eq!(shown[member], json!({"value": value, "source": source}), "{member}");
    }
    let told = llmx(&[&args[..3], &args[4..]].concat(), &variables);
    let told = String::from_utf8(told.stdout).unwrap();
    for (member, source) in [
        ("gateway.id ", "--id"),
        ("gateway.limits.burst ", &format!("{}:12", file.path())),
        ("gateway.auth.issuer ", "LLMX_ISSUER"),
        ("gateway.listen ", "default"),
    ] {
        assert!(told.lines().any(|line| line.starts_with(member) && line.ends_with(source)), "{member}: {told}");
    }
    for text in [&told, &String::from_utf8_lossy(&output.stdout).into_owned()] {
        assert!(!text.contains("secret@") && !text.contains("0123456789abcdef"), "{text}");
    }
}

#[test]
fn what_an_engine_runs_with_is_shown_and_without_a_name_everything_the_environment_gives() {
    let file = Written::new("[engine]\ntrim = \"never\"\n");
    let output = llmx(&["config", "show", "engine", "--json", "--config", file.path(), "--id", "e"], &[]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["engine.trim"]["value"], "never");
    assert_eq!(shown["engine.trim"]["source"]["line"], 2);
    assert_eq!(shown["engine.checkpoint_every"], json!({"value": 20_000, "source": {"default": true}}));
    assert_eq!(shown["engine.backlog_max"], json!({"value": 4096, "source": {"default": true}}));

    let output = llmx(&["config", "show", "--json"], &[("LLMX_CONFIG", file.path()), ("LLMX_BURST", "5")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["engine.trim"]["value"], "never");
    assert_eq!(shown["gateway.limits.burst"], json!({"value": 5, "source": {"variable": "LLMX_BURST"}}));
    assert_eq!(shown["gateway.auth.keys"]["value"], Value::Null, "none is given yet");
}

#[test]
fn what_an_exchange_in_one_command_runs_with_is_shown() {
    let file = Written::new("[engine]\ntrim = \"never\"\n[gateway.limits]\nburst = 7\n");
    let show = |more: &[&str]| -> Value {
        let line = [&["config", "show", "serve", "--json", "--config", file.path(), "--data", "house"], more].concat();
        let output = llmx(&line, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let shown = show(&["--policy", "high"]);
    assert_eq!(shown["engine.trim"]["source"]["line"], 2);
    assert_eq!(shown["gateway.limits.burst"]["value"], 7);
    assert_eq!(shown["gateway.default_policy"], json!({"value": "high", "source": {"flag": "--policy"}}));
    assert_eq!(shown["gateway.auth.keys"]["value"], json!({"file": "house/jwks.json"}));
    assert_eq!(shown["nats.url"], Value::Null, "its nats-server is its own");
    assert_eq!(show(&["--lanes", "8"])["nats.lanes"]["value"], 8);
    assert_eq!(show(&["--nats", "nats://127.0.0.1:1"])["nats.url"]["value"], "nats://127.0.0.1:1");
}

#[test]
fn the_example_holds_every_setting_with_its_default() {
    for command in ["gateway", "engine"] {
        let show = |args: &[&str]| -> Value {
            let output = llmx(&[&["config", "show", command, "--json"], args].concat(), &[]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let (defaults, example) = (show(&[]), show(&["--config", EXAMPLE]));
        for (member, default) in defaults.as_object().unwrap() {
            if member != "gateway.auth.keys" {
                assert_eq!(default["value"], example[member]["value"], "{member}");
            }
            // What is not said there has no default, or is drawn.
            let is_said = example[member]["source"]["line"].is_u64();
            assert!(
                is_said || default["value"].is_null() || member == "gateway.policies",
                "{member} is not in the example"
            );
        }
    }
}

#[test]
fn every_command_on_nats_layers_flags_and_variables_over_the_file() {
    let keys = tempfile::tempdir().unwrap();
    let folder = keys.path().to_str().unwrap();
    assert_eq!(llmx(&["keys", "--out", folder], &[]).status.code(), Some(0));
    let (jwks, key) = (format!("{folder}/jwks.json"), format!("{folder}/signing-key.pem"));
    // Credentials that nobody can read end the start before the wait for a server.
    let file = Written::new("[nats]\nurl = \"nats://127.0.0.1:1\"\ncreds = \"/nonexistent/of-file\"\n");
    let broken = Written::new("[nats]\nreplicas = 9\n");
    let half = Written::new("[nats]\ntls_cert = \"client.pem\"\n");
    for args in [
        &["gateway", "--jwks", &jwks][..],
        &["engine"],
        &["archive", "--to", folder],
        &["replay"],
        &["contractors", "--transport", "nats", "--key", &key],
        &["traffic", "--transport", "nats", "--key", &key],
        &["demo"],
    ] {
        for (more, variables, creds) in [
            (&[][..], &[][..], "/nonexistent/of-file"),
            (&[], &[("LLMX_NATS_CREDS", "/nonexistent/of-variable")], "/nonexistent/of-variable"),
            (
                &["--nats-creds", "/nonexistent/of-flag"],
                &[("LLMX_NATS_CREDS", "/nonexistent/of-variable")],
                "/nonexistent/of-flag",
            ),
        ] {
            let output = llmx(&[args, &["--config", file.path()], more].concat(), variables);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(creds), "{args:?}: no {creds} in {}", stderr(&output));
        }
        let output = llmx(&[args, &["--config", broken.path()]].concat(), &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let place = format!("{}:2:12: `nats.replicas`: must be 1 to 5", broken.path());
        assert!(stderr(&output).contains(&place), "{args:?}: {}", stderr(&output));
        let output = llmx(&[args, &["--config", half.path()]].concat(), &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let place = format!("{}:2:12: `nats.tls_cert`: needs the other one", half.path());
        assert!(stderr(&output).contains(&place), "{args:?}: {}", stderr(&output));
        let output = llmx(&[args, &["--nats", "tls://127.0.0.1:1", "--nats-ca", "/nonexistent/ca"]].concat(), &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("/nonexistent/ca"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_file_that_only_the_environment_names_moves_nobody_onto_nats_who_needs_none() {
    let file = Written::new("[nats]\nurl = \"nats://127.0.0.1:1\"\ncreds = \"/nonexistent\"\n");
    for named in [file.path(), "/nonexistent/llmx.toml"] {
        let variables = [("LLMX_CONFIG", named)];
        let output = llmx(&["demo", "--agents", "1", "--duration", "0.5", "--json"], &variables);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["bus"], "memory");
        let replay = llmx(&["replay", "/nonexistent/run.jsonl"], &variables);
        assert!(stderr(&replay).contains("/nonexistent/run.jsonl"), "{}", stderr(&replay));
    }
    let output = llmx(&["replay"], &[("LLMX_CONFIG", file.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent"), "the log on NATS is read: {}", stderr(&output));
}

#[test]
fn no_secret_of_the_configuration_is_printed_whether_it_can_be_read_or_not() {
    let by_url =
        "[gateway.auth]\nkeys = { url = \"https://u:SECRET@issuer.example/keys?token=SECRET&v=SECRET#SECRET\" }\n";
    let shown = llmx(&["config", "show", "gateway", "--config", Written::new(by_url).path()], &[]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(0), "{text}");
    assert!(text.contains("https://issuer.example/keys?token=(redacted)&v=(redacted)"), "{text}");
    assert!(!text.contains("SECRET"), "{text}");

    for text in [
        "keys = \"SECRET\"\n",
        "keys = { SECRET = 1 }\n",
        "keys = { inline = [\"SECRET\"] }\n",
        "allow_hs256_dev_secret = [\"SECRET\"]\n",
    ] {
        let output = llmx(&["gateway", "--config", Written::new(&format!("[gateway.auth]\n{text}")).path()], &[]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        assert!(stderr(&output).contains("`gateway.auth."), "{text}: {}", stderr(&output));
        assert!(!stderr(&output).contains("SECRET"), "{text}: {}", stderr(&output));
    }
    let variables = [("LLMX_NATS", "nats://u:SECRET@h:x")];
    let commands: [&[&str]; 5] = [
        &["engine"],
        &["gateway", "--jwks", "keys.json"],
        &["archive", "--to", "/nonexistent/archive"],
        &["replay"],
        &["config", "show"],
    ];
    for args in commands {
        for output in [llmx(args, &variables), llmx(&[args, &["--nats", variables[0].1]].concat(), &[])] {
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
            assert!(!stderr(&output).contains("SECRET") || stderr(&output).contains("unexpected argument"), "{args:?}");
            let is_named = stderr(&output).contains("`h:x` is no NATS URL");
            assert!(is_named || args[0] == "config", "{args:?}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_file_is_read_as_far_as_one_can_be_long_and_a_number_beyond_all_names_its_member() {
    let endless = llmx(&["config", "show"], &[("LLMX_CONFIG", "/dev/zero")]);
    assert_eq!(endless.status.code(), Some(2), "{}", stderr(&endless));
    assert!(stderr(&endless).contains("/dev/zero: it is longer than 4194304 bytes"), "{}", stderr(&endless));
    let file = Written::new("[gateway.limits]\nburst = 99999999999999999999\n");
    let beyond = llmx(&["config", "show", "gateway", "--config", file.path()], &[]);
    assert_eq!(beyond.status.code(), Some(2), "{}", stderr(&beyond));
    let place = format!("{}:2:9: `gateway.limits.burst`: ", file.path());
    assert!(stderr(&beyond).contains(&place), "{}", stderr(&beyond));
    let unset = llmx(&["config", "show", "engine", "--json"], &[("LLMX_NATS", "")]);
    let shown: Value = serde_json::from_slice(&unset.stdout).unwrap();
    assert_eq!(shown["nats.url"]["value"], "nats://127.0.0.1:4222", "{shown}");
}

#[test]
fn a_fault_names_file_line_column_member_and_what_was_expected() {
    let beginning = "# A comment\n";
    for (text, place, parts) in [
        ("[gateway]\nlisten = \"nowhere\"\n", "3:10", &["`gateway.listen`", "invalid socket address"][..]),
        ("[gateway]\nid = \"a b\"\n", "3:6", &["`gateway.id`", "1 to 64 of A-Z a-z 0-9 _ -"]),
        ("[gateway]\nlisten_on = \"x\"\n", "3:1", &["`gateway.listen_on`", "unknown field", "`listen`"]),
        ("[gateway]\nconsole = \"closed\"\n", "3:11", &["`gateway.console`", "`token`, `open`, `off`"]),
        ("[gateway]\nadmins = [\"alice\", \"b c\"]\n", "3:20", &["`gateway.admins[1]`"]),
        ("[gateway.limits]\nburst = \"many\"\n", "3:9", &["`gateway.limits.burst`", "string \"many\"", "u32"]),
        ("[gateway.limits]\nburst = 0\n", "3:9", &["`gateway.limits.burst`", "must be at least 1"]),
        ("[gateway.limits]\nbursts = 3\n", "3:1", &["`gateway.limits.bursts`", "unknown field", "`burst`"]),
        ("[gateway.auth]\naudience = 3\n", "3:12", &["`gateway.auth.audience`", "a text or a list of texts"]),
        (
            "[gateway.auth]\naudience = []\n",
            "3:12",
            &["`gateway.auth.audience`", "must name 1 to 16, none of them empty"],
        ),
        ("[gateway.auth]\naudience = [\"a\", \"\"]\n", "3:12", &["`gateway.auth.audience`", "none of them empty"]),
        ("[gateway.auth]\nleeway_s = 301\n", "3:12", &["`gateway.auth.leeway_s`", "0 to 300"]),
        ("[gateway.auth]\nkeys = { fil = \"x\" }\n", "3:", &["`gateway.auth.keys", "`file`, `url`, `inline`"]),
        (
            "[[gateway.policies]]\nid = \"cheap@1\"\nweights = [{ attr = \"price\", dir = \"lower\", lo = 0, hi = \"x\", w = 1000 }]\n",
            "4:",
            &["`gateway.policies[0].weights[0]"],
        ),
        ("[gateway]\n[gatway]\n", "3:2", &["`gatway`", "expected one of nats, gateway, engine"]),
        ("gateway = 3\n", "2:1", &["`gateway`", "expected a table, found integer"]),
        ("[gateway\n", "2:", &["expected"]),
        ("[nats]\nreplicas = 9\n", "3:12", &["`nats.replicas`", "1 to 5"]),
        ("[nats]\nurl = \"http://x\"\n", "3:7", &["`nats.url`", "no NATS URL"]),
    ] {
        let file = Written::new(&[beginning, text].concat());
        // A flag would stand in for the file's keys, right or wrong.
        let keys = if text.contains("keys =") { &[][..] } else { &["--jwks", "keys.json"] };
        let output = llmx(&[&["gateway", "--config", file.path()], keys].concat(), &[]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        let told = stderr(&output);
        for part in [&format!("{}:{place}", file.path())[..]].iter().chain(parts) {
            assert!(told.contains(part), "{text}: no {part} in {told}");
        }
    }
    for (text, parts) in [
        ("trim = \"sometimes\"", [":2:8: `engine.trim`", "`after-archive`"]),
        ("standbys = 4", [":2:12: `engine.standbys`", "must be 0 to 3"]),
        ("register_keep_s = 9", [":2:19: `engine.register_keep_s`", "must be 0, or 10 to 31536000"]),
        ("backlog_max = 0", [":2:15: `engine.backlog_max`", "must be 1 to 1000000"]),
        ("backlog_max = 1000001", [":2:15: `engine.backlog_max`", "must be 1 to 1000000"]),
        ("backlog_max = -1", [":2:15: `engine.backlog_max`", "`-1`, expected u32"]),
    ] {
        let file = Written::new(&format!("[engine]\n{text}\n"));
        let output = llmx(&["engine", "--config", file.path()], &[]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for part in parts {
            assert!(stderr(&output).contains(part), "{text}: no {part} in {}", stderr(&output));
        }
    }
}

#[test]
fn the_limit_of_unacknowledged_deliveries_comes_from_every_layer() {
    let file = Written::new("[engine]\nbacklog_max = 7\n");
    let show = |flags: &[&str], variables: &[(&str, &str)]| -> Value {
        let output =
            llmx(&[&["config", "show", "engine", "--json", "--config", file.path()], flags].concat(), variables);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["engine.backlog_max"].clone()
    };
    let variable = [("LLMX_ENGINE_BACKLOG_MAX", "8")];
    assert_eq!((&show(&[], &[])["value"], &show(&[], &[])["source"]["line"]), (&json!(7), &json!(2)));
    assert_eq!(show(&[], &variable), json!({"value": 8, "source": {"variable": "LLMX_ENGINE_BACKLOG_MAX"}}));
    assert_eq!(show(&["--backlog-max", "9"], &variable), json!({"value": 9, "source": {"flag": "--backlog-max"}}));
}

#[test]
fn an_audience_is_a_text_or_a_list_and_tokens_are_signed_for_the_first() {
    let list = json!(["llmx", "https://exchange.example/mcp"]);
    let file = Written::new("[gateway.auth]\naudience = [\"llmx\", \"https://exchange.example/mcp\"]\n");
    let text = Written::new("[gateway.auth]\naudience = \"a,b\"\n");
    let show = |file: &Written, flags: &[&str], variables: &[(&str, &str)]| -> Value {
        let output =
            llmx(&[&["config", "show", "gateway", "--json", "--config", file.path()], flags].concat(), variables);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["gateway.auth.audience"]["value"].clone()
    };
    let several = "llmx,https://exchange.example/mcp";
    assert_eq!(show(&file, &[], &[]), list);
    assert_eq!(show(&text, &[], &[]), "a,b", "a text of a file is one");
    assert_eq!(show(&text, &[], &[("LLMX_AUDIENCE", several)]), list);
    assert_eq!(show(&text, &["--audience", several], &[("LLMX_AUDIENCE", "x")]), list);
    assert_eq!(show(&file, &["--audience", "one"], &[]), "one");

    let keys = tempfile::tempdir().unwrap();
    let folder = keys.path().to_str().unwrap();
    assert_eq!(llmx(&["keys", "--out", folder], &[]).status.code(), Some(0));
    let signed = llmx(&["token", "bob", "--key", &format!("{folder}/signing-key.pem")], &[("LLMX_AUDIENCE", several)]);
    let token = String::from_utf8(signed.stdout).unwrap();
    let claims: Value = serde_json::from_slice(&decoded(token.split('.').nth(1).unwrap())).unwrap();
    assert_eq!(claims["aud"], "llmx");
}

#[test]
fn a_fault_of_a_file_comes_before_the_key_set_it_lacks() {
    for (text, place, part) in [
        ("[gateway]\nlisen = \"x\"\n", "2:1", "`gateway.lisen`: unknown field"),
        ("[gateway]\n[gateway.aut]\nkeys = { file = \"x\" }\n", "2:10", "`gateway.aut`: unknown field"),
        ("[gateway.limits]\nburst = 0\n", "2:9", "`gateway.limits.burst`: must be at least 1"),
    ] {
        let file = Written::new(text);
        let output = llmx(&["gateway", "--config", file.path()], &[]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains(&format!("{}:{place}", file.path())) && told.contains(part), "{text}: {told}");
        assert!(!told.contains("no key set"), "{told}");
    }
}

#[test]
fn a_fault_of_a_flag_or_a_variable_names_it() {
    for (value, wrong) in
        [("0", "0 is not in 1..=1000000"), ("1000001", "is not in 1..=1000000"), ("x", "invalid digit")]
    {
        let output = llmx(&["engine", "--backlog-max", value], &[]);
        assert_eq!(output.status.code(), Some(2), "{value}");
        assert!(stderr(&output).contains("--backlog-max") && stderr(&output).contains(wrong), "{}", stderr(&output));
    }
    let by_flag = stderr(&llmx(&["gateway", "--jwks", "keys.json", "--burst", "0"], &[]));
    assert!(by_flag.contains("--burst: `gateway.limits.burst`: must be at least 1"), "{by_flag}");
    let by_variable = stderr(&llmx(&["gateway", "--jwks", "keys.json"], &[("LLMX_LEEWAY_S", "301")]));
    assert!(by_variable.contains("LLMX_LEEWAY_S: `gateway.auth.leeway_s`: must be 0 to 300"), "{by_variable}");
}

/// A configuration file.
struct Written {
    _folder: TempDir,
    path: PathBuf,
}

impl Written {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llmx.toml");
        std::fs::write(&path, text).unwrap();
        Self { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// What a text in base64url says.
fn decoded(text: &str) -> Vec<u8> {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits: Vec<u32> = text.chars().map(|digit| alphabet.find(digit).unwrap() as u32).collect();
    let bytes = |four: &[u32]| {
        let bits = four.iter().enumerate().fold(0, |bits, (at, digit)| bits | digit << (18 - 6 * at));
        [bits >> 16, bits >> 8, bits].into_iter().take(four.len() * 6 / 8).map(|byte| byte as u8).collect::<Vec<_>>()
    };
    digits.chunks(4).flat_map(bytes).collect()
}

/// Runs the program with these variables and no others of ours; it must end by itself.
fn llmx(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = assert_cmd::Command::new(LLMX);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LLMX_")) {
        command.env_remove(name);
    }
    command.args(args).envs(variables.iter().copied()).timeout(Duration::from_secs(60)).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
