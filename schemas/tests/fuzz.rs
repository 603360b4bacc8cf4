//! Random bytes with meaning: the acts of teams, calls to them, searches, and ids of families. Nothing panics or takes long, and what
//! is taken is read alike.

use std::cell::Cell;

use fuzzing::{JSON_WORDS, Mixture, feed};
use schemas::NegotiationId;
use schemas::ids::FamilyPlace;
use schemas::validate::{BODY_BYTES_MAX, check_message, check_search};

/// Documents of each target where no time is asked for.
const DOCUMENTS: u64 = 300;
/// Ids where no time is asked for.
const IDS: u64 = 200_000;
/// What stands in documents of any kind, or must not.
const WORDS: [&str; 19] = [
    "\u{202e}",
    "null",
    "true",
    "0",
    "-1",
    "64",
    "65",
    "1e400",
    "0.5",
    "9007199254740993",
    "\"turn\":1",
    "\"text\":",
    "\"tasks\":",
    "\"owner\":\"bob\"",
    "\"triggers\":",
    "\"next\":\"",
    "é",
    "x",
    " ",
];

#[test]
fn no_act_of_a_team_is_read_in_two_ways_or_takes_long() {
    let assign = r#"{"act":"assign","turn":5,"mode":"async","policy":"team-task","tasks":[{"title":"related work","text":"find","owner":"bob","perform_ms":120000},{"title":"figures","text":"draw","requires":["drawing"],"reply_within_ms":2000}]}"#;
    let team = r#"{"act":"cfp","task":"write","policy":"team-seats","reply_within_ms":5000,"team":{"members":{"min":2,"max":4},"turns":32,"speak_ms":30000,"depth":1,"vote":{"of":"majority","vote_ms":10000,"attempts":3},"on_repeat":"refuse","of":{"task":"alice~paper~t2","award_no":1}}}"#;
    for (name, payload) in [
        ("team-say", r#"{"act":"say","turn":4,"text":"I take the figures","next":"bob"}"#),
        ("team-assign", assign),
        ("team-pause", r#"{"act":"pause","turn":6,"triggers":[1,2],"text":"waiting for both"}"#),
        ("team-conclude", r#"{"act":"conclude","turn":9,"text":"the final answer"}"#),
        ("team-call", team),
    ] {
        let envelope =
            r#"{"msg_id":"m1","ts":"2026-11-20T22:00:00.000Z","from":"agent://alice","negotiation":"alice~paper"}"#;
        let message = format!(r#"{{"envelope":{envelope},"payload":{payload}}}"#);
        check_message(message.as_bytes()).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        feed(
            name,
            DOCUMENTS,
            Mixture { valid: &[&message], words: &[&JSON_WORDS[..], &WORDS].concat(), bytes_max: BODY_BYTES_MAX },
            |text| {
                let read = || check_message(text.as_bytes()).map(|checked| (checked.digest, checked.body));
                if let Ok((digest, body)) = read() {
                    // What is logged is read alike.
                    let again = check_message(body.get().as_bytes()).unwrap();
                    assert_eq!((again.digest, again.body.get()), (digest, body.get()));
                }
            },
        );
    }
}

#[test]
fn no_search_is_read_in_two_ways_or_takes_long() {
    let valid = [
        r#"{"queries":["trains to the sea"],"limit":10,"kind":"thing","tags":["rail"]}"#,
        r#"{"queries":["a","b","c"],"present":true}"#,
    ];
    for search in valid {
        check_search(search.as_bytes()).unwrap();
    }
    feed(
        "search-requests",
        DOCUMENTS,
        Mixture { valid: &valid, words: &[&JSON_WORDS[..], &WORDS].concat(), bytes_max: BODY_BYTES_MAX },
        |text| {
            let read = || format!("{:?}", check_search(text.as_bytes()));
            assert_eq!(read(), read());
        },
    );
}

#[test]
fn ids_near_those_of_families_are_refused_or_name_their_place() {
    let valid = ["alice~job~s1-1~t1", "alice~job~s64-999~s1-1~s2-3~s4-5~t64", "alice~job"];
    let words = [
        "~", "~~", "-", "~t1", "~t64", "~t65", "~t0", "~t01", "~s1-1", "~s64-999", "~s1-0", "~s1", "~s1-1000", "~s0-1",
        "~x1", "~t", "~s-", "~T1", " ", "alice", "job", "\u{661}",
    ];
    let (ids, families) = (Cell::new(0_u64), Cell::new(0_u64));
    feed("family-ids", IDS, Mixture { valid: &valid, words: &words, bytes_max: 512 }, |text| {
        ids.set(ids.get() + 1);
        let Ok(id) = NegotiationId::try_new(text) else { return };
        assert_eq!(id.as_str(), text);
        let root = text.split('~').take(2).collect::<Vec<_>>().join("~");
        assert_eq!(id.lane(4), NegotiationId::try_new(&root).unwrap().lane(4));
        let above = id.parent();
        assert_eq!(above.is_some(), id.place() != FamilyPlace::Root, "{id}");
        let below = match (above, id.place()) {
            (Some(above), FamilyPlace::Task(task)) => above.task(task),
            (Some(above), FamilyPlace::SubTeam { award_no, .. }) => above.sub_team(award_no),
            (_, _) => return,
        };
        assert_eq!(below, Some(id), "what it stands below has it");
        families.set(families.get() + 1);
    });
    assert!(families.get() > ids.get() / 100, "{} of {}", families.get(), ids.get());
}
