//! What a policy does, in a sentence or two for people who have never read its document.

use schemas::policy::{
    BargainRule, Decider, Direction, OnIncomplete, Payment, Policy, Threshold, TieBreak, WEIGHT_SUM, WindowAnchor,
};

/// What a policy does with the offers to a call, and what it accepts in a bargain.
pub(super) fn described(policy: &Policy) -> String {
    let mut sentences = Vec::new();
    if !policy.weights.is_empty() {
        sentences.push(closing(policy));
        sentences.push(ranking(policy));
        sentences.push(awarding(policy));
    }
    if let Some(rule) = &policy.bargain {
        sentences.push(bargaining(rule));
    }
    sentences.join(" ")
}

fn closing(policy: &Policy) -> String {
    let close = &policy.close;
    let mut when = Vec::new();
    if let Some(count) = close.k_valid {
        when.push(if count == 1 { "at the first valid offer".to_owned() } else { format!("at {count} valid offers") });
    }
    if close.all_responded {
        when.push("once everyone who was called has answered".to_owned());
    }
    if let Some(ms) = close.window_ms {
        let anchor = match close.window_anchor {
            WindowAnchor::Cfp => "the call",
            WindowAnchor::FirstValid => "the first valid offer",
        };
        when.push(format!("{} after {anchor}", time(ms)));
    }
    match close.score_at_least {
        Some(Threshold::Constant(score)) => when.push(format!("at an offer that scores {} of 100", hundred(score))),
        Some(Threshold::Falling(falling)) => when.push(format!(
            "at an offer that reaches a score falling from {} to {} of 100",
            hundred(falling.start),
            hundred(falling.end)
        )),
        None => {}
    }
    let least = if close.min_valid > 1 { format!(", given {} valid offers", close.min_valid) } else { String::new() };
    let early = if when.is_empty() { String::new() } else { format!("{}{least}, and ", when.join(", or ")) };
    let late = match policy.on_incomplete {
        OnIncomplete::Decide => "decides among what has come".to_owned(),
        OnIncomplete::Fail => "ends without an award when answers are missing".to_owned(),
        OnIncomplete::Extend { ms, max } => {
            format!("waits {} longer, {max} times at most, for missing answers", time(ms))
        }
    };
    format!("Stops collecting {early}at the call's deadline at the latest; then it {late}.")
}

fn ranking(policy: &Policy) -> String {
    let weights = policy.weights.iter().map(|weight| {
        let better = match weight.dir {
            Direction::Lower => "low",
            Direction::Higher => "high",
        };
        format!("{better} {} {} %", weight.attr, u64::from(weight.w) * 100 / u64::from(WEIGHT_SUM))
    });
    let ties = match policy.tie_break {
        TieBreak::Hash => "",
        TieBreak::Lottery { .. } => " Draws among equal scores.",
        TieBreak::LeastRecentWinner => " Of equal scores the one whose last win lies furthest back is first.",
        TieBreak::Arrival => " Of equal scores the one that came first is first.",
    };
    format!("Scores offers by {}.{ties}", weights.collect::<Vec<_>>().join(" and "))
}

fn awarding(policy: &Policy) -> String {
    if !policy.award {
        return "Awards nobody.".to_owned();
    }
    let lots = if policy.awards == 1 { String::new() } else { format!("{} lots go to as many; ", policy.awards) };
    let who = match policy.decider {
        Decider::Engine => "The best offer wins".to_owned(),
        Decider::Initiator => {
            format!("The initiator chooses within {}, else the best offer wins", time(policy.decide_ms))
        }
    };
    let confirmed = if policy.require_confirm {
        let limit = time(policy.timers_ms.confirm);
        format!("and must be confirmed within {limit}, else the next in rank is tried")
    } else {
        "and binds at once".to_owned()
    };
    let paid = match policy.payment {
        Payment::FirstPrice => "",
        Payment::SecondPrice => " It is paid what the best losing offer would allow.",
    };
    format!("{lots}{who} {confirmed}.{paid}")
}

fn bargaining(rule: &BargainRule) -> String {
    match rule {
        BargainRule::Any => "In a bargain accepts the first offer.".to_owned(),
        BargainRule::Next { any_from_round } => format!(
            "In a bargain accepts an offer at least as good as what the party would propose next, and from round \
             {any_from_round} on any."
        ),
        BargainRule::Combi { late_ppm, .. } => format!(
            "In a bargain accepts only the party's best until {} % of the time is over, then an offer as good as the best \
             of late, and in its last turn any.",
            late_ppm / 10_000
        ),
    }
}

/// A score, in parts per million, of 100.
fn hundred(ppm: u32) -> String {
    let tenths = ppm / 1_000;
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

fn time(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{} s", ms as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_says_what_it_does_and_only_equal_ones_say_the_same() {
        let presets = policy_core::presets();
        let mut all: Vec<String> = presets.iter().map(described).collect();
        let medium = presets.iter().position(|policy| policy.id == "medium@1").unwrap();
        assert_eq!(
            all[medium],
            "Stops collecting once everyone who was called has answered, or 200 ms after the call, and at the call's \
             deadline at the latest; then it decides among what has come. Scores offers by low price 70 % and low \
             delivery_ms 30 %. The best offer wins and must be confirmed within 10 s, else the next in rank is tried."
        );
        assert!(all.iter().all(|text| text.len() > 20 && text.len() < 700), "{all:#?}");
        all.sort();
        all.dedup();
        let mut documents: Vec<String> = presets
            .into_iter()
            .map(|policy| serde_json::to_string(&Policy { id: String::new(), ..policy }).unwrap())
            .collect();
        documents.sort();
        documents.dedup();
        assert_eq!(all.len(), documents.len());
    }
}
