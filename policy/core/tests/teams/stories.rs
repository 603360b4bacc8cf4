//! Teams from their call to their end, that together take every way there is: for what must hold of all of them, and for the
//! golden logs.

use schemas::Act;
use schemas::record::EngineEvent;
use serde_json::json;

use crate::gathering::{BEGIN_MS, Gathering, REPLY_MS, SPEAK_MS};

const THREE: [&str; 3] = ["alice", "bob", "carol"];

/// Each team by a name of its own.
pub(crate) fn stories() -> Vec<(&'static str, Gathering)> {
    vec![
        ("concluded", concluded()),
        ("voted", voted()),
        ("rejected", rejected()),
        ("outscored", outscored()),
        ("not formed", not_formed()),
        ("silent", silent()),
        ("out of turns", out_of_turns()),
        ("left", left()),
        ("out of time", out_of_time()),
        ("called off", called_off()),
        ("aborted", aborted()),
    ]
}

fn concluded() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "alice", Act::Say, json!({"text": "carol first", "next": "carol", "turn": 1}));
    gathering.say(21, "carol", Act::Say, json!({"text": "done", "next": "mallory"}));
    gathering.say(22, "carol", Act::Say, json!({"text": "done"}));
    gathering.say(23, "carol", Act::Say, json!({"text": "late", "turn": 2}));
    gathering.say(24, "alice", Act::Say, json!({"text": "early", "turn": 9}));
    gathering.conclude(25, "alice");
    gathering.speak(26, "bob");
    gathering
}

fn voted() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"vote": {"of": "majority"}}));
    gathering.conclude(20, "alice");
    gathering.say(21, "alice", Act::Refuse, json!({}));
    gathering.say(22, "bob", Act::Accept, json!({"offer_id": "o1-0"}));
    gathering.approve(23, "carol");
    gathering
}

fn rejected() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"vote": {"of": "all", "vote_ms": 50, "attempts": 2}}));
    gathering.conclude(20, "alice");
    gathering.say(21, "bob", Act::Refuse, json!({"reason": "too short"}));
    gathering.conclude(22, "alice");
    gathering.approve(23, "bob");
    gathering.script.tick(73);
    gathering
}

fn outscored() -> Gathering {
    let mut gathering = Gathering::empty();
    let ranked = json!({"policy": "team-seats"});
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 2, "max": 2}}), ranked);
    for (who, fit) in [("bob", 900_000), ("carol", 100), ("dan", 900_000)] {
        gathering.say(BEGIN_MS, who, Act::Join, json!({"terms": {"fit": fit, "price": 5_000_000}}));
    }
    gathering.say(20, "carol", Act::Join, json!({}));
    gathering.conclude(21, "alice");
    gathering
}

fn not_formed() -> Gathering {
    let mut gathering = Gathering::empty();
    gathering.call(&["bob", "carol", "dan"], json!({"members": {"min": 3}}), json!({}));
    gathering.say(1, "bob", Act::Join, json!({}));
    gathering.say(2, "carol", Act::Refuse, json!({}));
    gathering.script.tick(REPLY_MS + 1);
    gathering
}

fn silent() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"max_strikes": 1}));
    gathering.speak(20, "bob");
    for nth in 1..=2 {
        gathering.script.tick(BEGIN_MS + nth * (SPEAK_MS + 1));
    }
    gathering
}

fn out_of_turns() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({"turns": 2}));
    gathering.speak(20, "alice");
    gathering.speak(21, "bob");
    gathering.speak(22, "alice");
    for nth in 1..=3 {
        gathering.script.tick(22 + nth * (SPEAK_MS + 1));
    }
    gathering
}

fn left() -> Gathering {
    let mut gathering = Gathering::of(&["alice", "bob", "carol", "dan"], json!({}));
    gathering.say(20, "alice", Act::End, json!({}));
    gathering.speak(21, "bob");
    gathering.say(22, "bob", Act::End, json!({}));
    gathering.speak(23, "alice");
    gathering.say(24, "dan", Act::End, json!({}));
    gathering
}

fn out_of_time() -> Gathering {
    let rules = json!({"speak_ms": 40_000, "ends_within_ms": 200_000, "vote": {"of": "all", "vote_ms": 80_000_000}});
    let mut gathering = Gathering::of(&THREE, rules);
    gathering.speak(30_000, "alice");
    gathering.speak(60_000, "bob");
    gathering.speak(90_000, "carol");
    gathering.script.tick(120_001);
    gathering.conclude(130_000, "alice");
    gathering.script.tick(200_001);
    gathering
}

fn called_off() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    gathering.say(20, "bob", Act::Cancel, json!({}));
    gathering.say(21, "alice", Act::Cancel, json!({"reason": "no more"}));
    gathering
}

fn aborted() -> Gathering {
    let mut gathering = Gathering::of(&THREE, json!({}));
    let negotiation = gathering.script.negotiation.clone();
    gathering.script.engine(20, 0, EngineEvent::Abort { negotiation, code: "register_conflict".to_owned() });
    gathering
}
