//! The numbers in the schemas are the constants of the Rust types, not copies that can drift.

use std::collections::BTreeSet;

use schemas::bargain::{
    ATTR_ELAPSED_MS, ATTR_ROUND, CONCESSION_MAX, ISSUE_VALUES_MAX, ISSUES_MAX, PARTIES_MAX, PPM, PREDICATES_MAX,
    ROUNDS_MAX, TABLE_MAX,
};
use schemas::control::{
    CONSENT_RULES_MAX, GROUP_MEMBERS_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, TAG_LEN_MAX, TAGS_MAX,
    TOPICS_MAX,
};
use schemas::delivery::{CloseReason, Disposition, EXCHANGE, Outcome, Stopped};
use schemas::document::{DOCUMENTS_MAX, RoutineKind};
use schemas::envelope::{CAPABILITIES_MAX, RECIPIENTS_MAX, TTL_S_MAX};
use schemas::evidence::{EVIDENCE_AGENTS_MAX, RUNS_MAX};
use schemas::ids::NAME_LEN_MAX;
use schemas::panel::{
    ANSWER_BYTES_MAX, BLEU_PERMILLE_MIN, KEEP_MAX, OPTION_LEN_MAX, OPTIONS_MAX, PANEL_ROUNDS_MAX, PERMILLE, RATING_MAX,
    RATING_MIN, REVIEWERS_MAX, SEATS_MAX, SEPARATOR_LEN_MAX,
};
use schemas::payload::{ATTR_TEXT_LEN_MAX, FAILURE_CODE_LEN_MAX, INTEGER_MAX, TERMS_MAX, TEXT_LEN_MAX};
use schemas::policy::{
    CALL_GATES_MAX, EXPONENT_MAX, GATE_TEXTS_MAX, GATES_MAX, SCORE_MAX, STEPS_MAX, STRIKES_MAX, TIMER_MS_MAX,
    WEIGHT_SUM, WEIGHTS_MAX,
};
use schemas::protocols::Protocol;
use schemas::search::{CURSOR_LEN_MAX, HITS_DEFAULT, HITS_MAX, QUERIES_MAX, QUERY_LEN_MAX};
use schemas::team::{
    ASSIGNED_MAX, ATTEMPTS_MAX, AWARD_MAX, DEPTH_MAX, MEMBERS_MAX, MEMBERS_MIN, REPEAT_PPM_MIN, SPEAK_MS_MAX,
    SPEAK_MS_MIN, TASKS_MAX, TITLE_LEN_MAX, TURNS_MAX,
};
use schemas::validate::published;
use schemas::{Act, Code};
use serde_json::{Value, json};
use strum::VariantArray;

#[test]
fn limits_of_the_shared_types_are_the_constants() {
    check("types", "/$defs/name/maxLength", NAME_LEN_MAX);
    check("types", "/$defs/text/maxLength", TEXT_LEN_MAX);
    check("types", "/$defs/integer/minimum", -INTEGER_MAX);
    check("types", "/$defs/integer/maximum", INTEGER_MAX);
    check("types", "/$defs/micro_units/maximum", INTEGER_MAX);
    check("types", "/$defs/attribute/minimum", -INTEGER_MAX);
    check("types", "/$defs/attribute/maximum", INTEGER_MAX);
    check("types", "/$defs/attribute/maxLength", ATTR_TEXT_LEN_MAX);
    check("types", "/$defs/terms/maxProperties", TERMS_MAX);
    check("types", "/$defs/capabilities/maxItems", CAPABILITIES_MAX);
    check("types", "/$defs/document_hashes/maxItems", DOCUMENTS_MAX);
    check("types", "/$defs/timer_ms/maximum", TIMER_MS_MAX);
    check("types", "/$defs/score/maximum", SCORE_MAX);
    check("types", "/$defs/ppm/maximum", PPM);
    check("types", "/$defs/predicates/maxItems", PREDICATES_MAX);
    for number in ["count", "round", "award_no", "lot"] {
        check("types", &format!("/$defs/{number}/maximum"), u32::MAX);
    }
}

#[test]
fn limits_of_messages_are_the_constants() {
    check("envelope", "/properties/to/maxItems", RECIPIENTS_MAX);
    check("envelope", "/properties/scope/properties/ttl/maximum", TTL_S_MAX);
    check("envelope", "/properties/seq/maximum", INTEGER_MAX);
    check("offer", "/properties/valid_for_ms/maximum", INTEGER_MAX);
    check("failure", "/properties/code/maxLength", FAILURE_CODE_LEN_MAX);
    check("alternating_offer", "/properties/valid_for_ms/maximum", INTEGER_MAX);
    check("message", "/$defs/other/properties/payload/properties/act/enum", Act::FROM_AGENTS.map(Act::as_str));
}

#[test]
fn limits_of_bargains_are_the_constants() {
    check("bargain", "/properties/issues/maxItems", ISSUES_MAX);
    check("bargain", "/properties/rounds/maximum", ROUNDS_MAX);
    check("bargain", "/properties/max_strikes/maximum", STRIKES_MAX);
    check("bargain", "/$defs/issue/properties/values/maxItems", ISSUE_VALUES_MAX);
    check("bargain", "/$defs/issue/properties/name/not/enum", [ATTR_ROUND, ATTR_ELAPSED_MS]);
    check("mandate", "/properties/utility/properties/linear/maxItems", ISSUES_MAX);
    check("mandate", "/properties/utility/properties/table/maxItems", TABLE_MAX);
    check("mandate", "/$defs/issue_worth/properties/weight/maximum", WEIGHT_SUM);
    check("mandate", "/$defs/issue_worth/properties/worth/maxItems", ISSUE_VALUES_MAX);
    for concession in ["boulware", "conceder"] {
        check("mandate", &format!("/properties/concession/properties/{concession}/maximum"), CONCESSION_MAX);
    }
    check("delivery", "/$defs/call/properties/bargain/properties/parties/maxItems", PARTIES_MAX);
    check("turn", "/properties/standing/properties/accepted_by/maxItems", PARTIES_MAX);
}

#[test]
fn limits_of_auctions_are_the_constants() {
    check("english_auction", "/properties/step_permille/maximum", schemas::english_auction::STEP_PERMILLE_MAX);
}

#[test]
fn limits_of_panels_are_the_constants() {
    check("panel", "/properties/rounds/maximum", PANEL_ROUNDS_MAX);
    check("panel", "/properties/consensus_from/maximum", PANEL_ROUNDS_MAX);
    check("panel", "/properties/min_seats/maximum", SEATS_MAX);
    check("panel", "/properties/max_strikes/maximum", STRIKES_MAX);
    check("panel", "/$defs/answer/properties/options/maxItems", OPTIONS_MAX);
    check("panel", "/$defs/answer/properties/options/items/maxLength", OPTION_LEN_MAX);
    check("panel", "/$defs/answer/properties/separator/maxLength", SEPARATOR_LEN_MAX);
    check("panel", "/$defs/answer/properties/at_least_permille/minimum", BLEU_PERMILLE_MIN);
    check("panel", "/$defs/answer/properties/at_least_permille/maximum", PERMILLE);
    check("panel", "/$defs/select/properties/after_round/maximum", PANEL_ROUNDS_MAX - 1);
    check("panel", "/$defs/select/properties/keep/maximum", KEEP_MAX);
    check("panel", "/$defs/select/properties/if_more_than/maximum", SEATS_MAX);
    check("panel", "/$defs/review/properties/by/maxItems", REVIEWERS_MAX);
    check("panel", "/$defs/choose/properties/keep/maximum", SEATS_MAX);
    check("panel", "/$defs/choose/properties/newcomers/maximum", SEATS_MAX);
    check("panel", "/$defs/choose/properties/min_runs/maximum", RUNS_MAX);
    check("panel", "/$defs/evidence_source/else/properties/agents/maxItems", EVIDENCE_AGENTS_MAX);
    for text in ["answer", "text", "reviews/items"] {
        check("answer", &format!("/properties/{text}/maxLength"), ANSWER_BYTES_MAX);
    }
    for list in ["order", "reviews", "ratings"] {
        check("answer", &format!("/properties/{list}/maxItems"), SEATS_MAX);
    }
    check("answer", "/properties/ratings/items/minimum", RATING_MIN);
    check("answer", "/properties/ratings/items/maximum", RATING_MAX);
    check("answer", "/properties/usage/properties/calls/maximum", INTEGER_MAX);
    check("ask", "/properties/peers/maxItems", SEATS_MAX);
    check("ask", "/properties/rank/properties/keep/maximum", KEEP_MAX);
    check("ask", "/$defs/shown/properties/reviews/maxItems", REVIEWERS_MAX);
    check("delivery", "/$defs/finding/properties/panelists/maxItems", SEATS_MAX);
    check("delivery", "/$defs/finding/properties/stopped/enum", Stopped::VARIANTS);
}

#[test]
fn limits_of_teams_are_the_constants() {
    for seats in ["min", "max"] {
        check("team", &format!("/properties/members/properties/{seats}/minimum"), MEMBERS_MIN);
        check("team", &format!("/properties/members/properties/{seats}/maximum"), MEMBERS_MAX);
    }
    check("team", "/properties/turns/maximum", TURNS_MAX);
    check("team", "/properties/speak_ms/minimum", SPEAK_MS_MIN);
    check("team", "/properties/speak_ms/maximum", SPEAK_MS_MAX);
    check("team", "/properties/depth/maximum", DEPTH_MAX);
    check("team", "/properties/tasks/maximum", TASKS_MAX);
    check("team", "/properties/vote/properties/attempts/maximum", ATTEMPTS_MAX);
    check("team", "/properties/repeat_ppm/minimum", REPEAT_PPM_MIN);
    check("team", "/properties/repeat_ppm/maximum", PPM);
    check("team", "/properties/max_strikes/maximum", STRIKES_MAX);
    check("types", "/$defs/task_number/maximum", TASKS_MAX);
    check("types", "/$defs/task_award/properties/award_no/maximum", AWARD_MAX);
    check("types", "/$defs/task_title/maxLength", TITLE_LEN_MAX);
    check("types", "/$defs/spoken/maxLength", TEXT_LEN_MAX);
    check("types", "/$defs/team_task/properties/code/maxLength", FAILURE_CODE_LEN_MAX);
    check("assign", "/properties/tasks/maxItems", ASSIGNED_MAX);
    check("pause", "/properties/triggers/maxItems", TASKS_MAX);
    check("floor", "/properties/members/maxItems", MEMBERS_MAX);
}

#[test]
fn limits_of_the_control_plane_are_the_constants() {
    check("registration", "/properties/topics/maxItems", TOPICS_MAX);
    check("registration", "/properties/instance/maxLength", TAG_LEN_MAX);
    check("registration", "/properties/consent/properties/rules/maxItems", CONSENT_RULES_MAX);
    check("registration", "/properties/lease_ms/minimum", LEASE_MS_MIN);
    check("registration", "/properties/lease_ms/maximum", LEASE_MS_MAX);
    check("registration", "/properties/lease_ms/default", LEASE_MS_DEFAULT);
    check("group", "/properties/members/maxItems", GROUP_MEMBERS_MAX);
    check("types", "/$defs/tags/maxItems", TAGS_MAX);
    check("types", "/$defs/tags/items/maxLength", TAG_LEN_MAX);
    let named = at("registration", "/properties/consent/properties/rules/items/properties/protocol/enum");
    let named: BTreeSet<String> = serde_json::from_value(named).unwrap();
    assert_eq!(named, Protocol::VARIANTS.iter().map(ToString::to_string).collect());
}

#[test]
fn limits_of_searches_are_the_constants() {
    check("search", "/properties/queries/maxItems", QUERIES_MAX);
    check("search", "/properties/queries/items/maxLength", QUERY_LEN_MAX);
    check("search", "/properties/limit/default", HITS_DEFAULT);
    check("search", "/properties/limit/maximum", HITS_MAX);
    check("search", "/properties/cursor/maxLength", CURSOR_LEN_MAX);
}

#[test]
fn limits_of_policies_are_the_constants() {
    check("policy", "/properties/gates/maxItems", GATES_MAX);
    check("cfp", "/properties/gates/maxItems", CALL_GATES_MAX);
    check("types", "/$defs/gate/properties/enum/maxItems", GATE_TEXTS_MAX);
    check("types", "/$defs/gate/properties/enum/items/maxLength", ATTR_TEXT_LEN_MAX);
    check("policy", "/properties/weights/maxItems", WEIGHTS_MAX);
    check("policy", "/properties/weights/items/properties/w/maximum", WEIGHT_SUM);
    check("policy", "/properties/eps_band/maximum", SCORE_MAX);
    check("policy", "/properties/close/properties/window_ms/maximum", TIMER_MS_MAX);
    check("policy", "/properties/close/properties/score_at_least/maximum", SCORE_MAX);
    check("policy", "/properties/close/properties/score_at_least/properties/exponent/maximum", EXPONENT_MAX);
    check("policy", "/properties/max_strikes/maximum", STRIKES_MAX);
    for steps in ["awards", "standby", "max_awards", "max_rounds"] {
        check("policy", &format!("/properties/{steps}/maximum"), STEPS_MAX);
    }
    check("policy", "/properties/on_incomplete/properties/extend/properties/max/maximum", STEPS_MAX);
}

#[test]
fn the_words_of_the_exchange_are_the_types() {
    check("ack", "/properties/disposition/enum", Disposition::ALL);
    check("ack", "/properties/first/enum", Disposition::ALL);
    check("closed", "/properties/outcome/enum", Outcome::ALL);
    check("delivery", "/$defs/misunderstanding/properties/expected/items/enum", Act::ALL);
    check("delivery", "/$defs/awarded/properties/reason/enum", CloseReason::VARIANTS);
    check("types", "/$defs/routine/properties/kind/enum", RoutineKind::ALL);
    spelled_alike(RoutineKind::ALL, |one| one.as_str());
    spelled_alike(Disposition::ALL, |one| one.as_str());
    spelled_alike(Outcome::ALL, |one| one.as_str());
    spelled_alike(Act::ALL, |one| one.as_str());
    spelled_alike(CloseReason::VARIANTS, |one| one.into());
    let from = at("delivery", "/properties/envelope/properties/from/pattern");
    assert!(from.as_str().unwrap().contains(EXCHANGE));
}

#[test]
fn the_names_of_refusals_are_no_words_of_the_fold() {
    // Both reach agents; only those that mean the same may be spelled the same.
    let shared = ["rate_limited", "unauthorized", "conflict"];
    for code in Code::ALL {
        let is_disposition = Disposition::ALL.iter().any(|disposition| disposition.as_str() == code.as_str());
        assert_eq!(is_disposition, shared.contains(&code.as_str()), "{code}");
    }
}

/// Words of serde and those of metrics and reports are one.
fn spelled_alike<T: serde::Serialize + Copy>(all: &[T], name: impl Fn(T) -> &'static str) {
    for one in all {
        assert_eq!(json!(one), name(*one));
    }
}

fn check(schema: &str, pointer: &str, constant: impl serde::Serialize) {
    assert_eq!(at(schema, pointer), json!(constant), "{schema}.json {pointer}");
}

fn at(schema: &str, pointer: &str) -> Value {
    let (_, text) = published().iter().find(|(name, _)| *name == schema).unwrap();
    let document: Value = serde_json::from_str(text).unwrap();
    document.pointer(pointer).unwrap_or_else(|| panic!("{schema}.json has no {pointer}")).clone()
}
