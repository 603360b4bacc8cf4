//! Who gets a seat (docs/spec/team.md#tm-15).

use schemas::policy::TieBreak;
use schemas::{OfferId, Policy};

use super::{JoinAnswer, Team};
use crate::Moment;
use crate::scoring::{self, Ranked};

/// Who joined, the best first.
pub(super) fn ranking(team: &Team, moment: Moment) -> Vec<(usize, OfferId)> {
    let by_hash = Policy { tie_break: TieBreak::Hash, ..policy_core::preset("medium").expect("a preset") };
    let joined = team.joined();
    let offers = joined.iter().map(|&(index, offer)| Ranked {
        contractor: team.people[index].agent.clone(),
        offer,
        score: score(team, index),
        last_win: None,
    });
    let policy = team.policy.as_ref().unwrap_or(&by_hash);
    let ranked = scoring::rank(policy, &team.id, moment.position, offers.collect());
    let index_of = |ranked: Ranked| {
        let index = team.people.iter().position(|person| person.agent == ranked.contractor);
        (index.expect("it has joined"), ranked.offer)
    };
    ranked.into_iter().map(index_of).collect()
}

/// What terms are worth to the policy that the call names.
pub(super) fn score(team: &Team, index: usize) -> u32 {
    match (&team.policy, &team.people[index].answer) {
        (Some(policy), JoinAnswer::Joined(_, terms)) => scoring::score(policy, terms),
        (_, _) => 0,
    }
}
