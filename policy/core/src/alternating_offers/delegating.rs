//! How the exchange accepts for a party: the `bargain` section of the policy its mandate names (low, medium, high).

use schemas::Timestamp;
use schemas::bargain::{BargainRule, Concession};

use super::mandate::{aspiration_ppm, utility_ppm};
use super::state::{Bargain, Pledge, Sealed, StandingOffer};

/// Moments a policy looks back on, at most; the oldest go first. There is one per round where rounds are counted, so at
/// most a thousand; where only time is, a window of a tenth of the deadline holds as many offers as others may make in it.
const WINDOW_KEPT_MAX: usize = 4096;

impl Bargain {
    /// Keeps an offer for the policies of the other parties that look back.
    pub(super) fn note_offer(&mut self, offer: &StandingOffer, now: Timestamp) {
        let t_ppm = self.t_ppm(now);
        let space = super::space::OutcomeSpace::of_checked(&self.rules.issues);
        for (index, party) in self.parties.iter_mut().enumerate() {
            let Some(Sealed(pledge)) = party.pledge.as_mut().filter(|_| index != offer.by) else { continue };
            if let (Some(BargainRule::Combi { window_ppm, .. }), Some(utility)) =
                (&pledge.rule, utility_ppm(&pledge.mandate, space, &offer.terms))
            {
                let oldest = t_ppm.saturating_sub(*window_ppm);
                pledge.note(t_ppm, utility, oldest);
            }
        }
    }

    /// Whether a party's policy accepts the standing offer for it, in its turn.
    pub(super) fn is_delegate_willing(&self, index: usize, now: Timestamp) -> bool {
        let (Some(Sealed(pledge)), Some(standing)) = (&self.parties[index].pledge, self.standing.as_deref()) else {
            return false;
        };
        let Some(rule) = &pledge.rule else { return false };
        let is_acceptable = standing.by != index
            && standing.valid_from.is_none_or(|from| from <= now)
            && standing.valid_until >= now
            && self.are_met(standing, now)
            && self.parties[index].allows(self.space(), &standing.terms).is_ok();
        is_acceptable && self.is_good_enough(pledge, rule, standing, now)
    }

    fn is_good_enough(&self, pledge: &Pledge, rule: &BargainRule, standing: &StandingOffer, now: Timestamp) -> bool {
        let Some(utility) = utility_ppm(&pledge.mandate, self.space(), &standing.terms) else { return false };
        let t_ppm = self.t_ppm(now);
        match *rule {
            BargainRule::Any => true,
            BargainRule::Next { any_from_round } => {
                let concession = pledge.mandate.concession.unwrap_or(Concession::Linear);
                let aspiration = aspiration_ppm(t_ppm, concession, pledge.best, pledge.mandate.reservation);
                self.round() >= any_from_round || utility >= aspiration
            }
            BargainRule::Combi { .. } if self.is_last_turn(now) => true,
            BargainRule::Combi { late_ppm, .. } if t_ppm < late_ppm => utility >= pledge.best,
            BargainRule::Combi { window_ppm, .. } => {
                pledge.best_between(t_ppm.saturating_sub(window_ppm), t_ppm).is_none_or(|best| utility >= best)
            }
        }
    }
}

impl Pledge {
    /// Notes an offer of another party, and forgets those made before `oldest`.
    fn note(&mut self, t_ppm: u32, utility: u32, oldest: u32) {
        match self.window.back_mut() {
            Some((t, best)) if *t == t_ppm => *best = utility.max(*best),
            Some(_) | None => self.window.push_back((t_ppm, utility)),
        }
        while self.window.front().is_some_and(|(t, _)| *t < oldest) || self.window.len() > WINDOW_KEPT_MAX {
            self.window.pop_front();
        }
    }

    /// The best of what others offered in `from..to`.
    fn best_between(&self, from: u32, to: u32) -> Option<u32> {
        let offered = self.window.iter().filter(|(t, _)| (from..to).contains(t));
        offered.map(|(_, utility)| *utility).max()
    }
}
