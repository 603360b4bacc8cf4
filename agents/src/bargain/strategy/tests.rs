use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Utilities 0.0, 0.1, … 1.0 of outcomes 0 to 10.
const STEPS: usize = 10;

#[test]
fn aspirations_fall_by_their_exponent_from_the_best_to_the_reservation_value() {
    let preferences = tenths(0.2);
    for (strategy, t, expected) in [
        (TimeDependent::boulware(preferences.clone()), 0.0, 1.0 - 1e-4),
        (TimeDependent::boulware(preferences.clone()), 0.5, 0.95 - 1e-4),
        (TimeDependent::boulware(preferences.clone()), 1.0, 0.2),
        (TimeDependent::linear(preferences.clone()), 0.5, 0.6 - 1e-4),
        (TimeDependent::linear(preferences.clone()), 2.0, 0.2),
        (TimeDependent::conceder(preferences.clone()), 0.0625, 0.6 - 1e-4),
        (TimeDependent::conceder(preferences), 1.0, 0.2),
    ] {
        let found = strategy.aspiration(t).unwrap();
        assert!((found - expected).abs() < 1e-12, "{strategy:?} at {t}: {found}, not {expected}");
    }
}

#[test]
fn a_time_dependent_party_proposes_its_least_outcome_at_its_aspiration_and_accepts_what_is_worth_it() {
    let mut linear = TimeDependent::linear(tenths(0.0));
    for (t, standing, expected) in [
        (0.0, None, Move::Offer(10)),
        (0.05, None, Move::Offer(10)),
        (0.1, None, Move::Offer(9)),
        (0.5, None, Move::Offer(5)),
        (0.5, Some(4), Move::Offer(5)),
        (0.5, Some(5), Move::Accept),
        (0.5, Some(10), Move::Accept),
        (1.0, Some(0), Move::Accept),
        (1.0, None, Move::Offer(0)),
    ] {
        assert_eq!(linear.decide(&at(t, standing, &[])), expected, "{t} {standing:?}");
    }
}

#[test]
fn an_outcome_a_millionth_below_the_aspiration_is_proposed_when_it_is_nearer() {
    let aspiration = 0.5 - 1e-4;
    for (below, above, expected) in [
        (aspiration - 5e-7, 0.7, 1),
        (aspiration - 2e-6, 0.7, 2),
        (aspiration - 5e-7, aspiration + 4e-7, 2),
        (aspiration - 3e-7, aspiration + 4e-7, 1),
    ] {
        let preferences = Preferences::try_new(vec![0.0, below, above, 1.0], 0.0, |_| true).unwrap();
        let found = TimeDependent::linear(Arc::new(preferences)).decide(&at(0.5, None, &[]));
        assert_eq!(found, Move::Offer(expected), "{below} {above}");
    }
}

#[test]
fn tit_for_tat_gives_up_the_fraction_it_was_given() {
    let mut strategy = TitForTat::new(tenths(0.2));
    for (offers, standing, expected) in [
        // Nothing heard, or one offer only: it has nothing to give back.
        (vec![], None, Move::Offer(10)),
        (vec![(1, 4)], Some(4), Move::Offer(10)),
        (vec![(0, 10), (1, 4)], Some(4), Move::Offer(10)),
        // 0.4 to 0.5: it asks 1.0 * 0.4 / 0.5.
        (vec![(0, 10), (1, 4), (0, 10), (1, 5)], Some(5), Move::Offer(8)),
        (vec![(0, 9), (1, 4), (0, 9), (1, 8)], Some(8), Move::Accept),
        // 0.5 back to 0.4: it asks 0.8 * 0.5 / 0.4.
        (vec![(0, 8), (1, 5), (0, 8), (1, 4)], Some(4), Move::Offer(10)),
        // Never below the reservation value, never above the best.
        (vec![(0, 5), (1, 1), (0, 5), (1, 10)], None, Move::Offer(2)),
        (vec![(0, 9), (1, 8), (0, 9), (1, 1)], Some(1), Move::Offer(10)),
        // Something taken back altogether, something given from nothing, and nothing after nothing.
        (vec![(0, 6), (1, 3), (0, 6), (1, 0)], Some(0), Move::Offer(10)),
        (vec![(0, 6), (1, 0), (0, 6), (1, 3)], Some(3), Move::Accept),
        (vec![(0, 6), (1, 0), (0, 6), (1, 0)], Some(0), Move::Offer(6)),
    ] {
        let offers = made(&offers);
        assert_eq!(strategy.decide(&at(0.5, standing, &offers)), expected, "{offers:?}");
    }
}

#[test]
fn micro_offers_something_new_only_when_the_other_has_made_as_many_offers() {
    for (offers, standing, expected) in [
        (vec![], None, vec![10]),
        (vec![(1, 0)], Some(0), vec![10]),
        (vec![(0, 10), (1, 0)], Some(0), vec![9]),
        // One of the other's offers is a repeat: it owes nothing new.
        (vec![(0, 10), (1, 0), (0, 9), (1, 0)], Some(0), vec![9, 10]),
        (vec![(0, 10), (1, 0), (0, 9), (1, 1)], Some(1), vec![8]),
    ] {
        let offers = made(&offers);
        for seed in 0..20 {
            let found = Micro::new(tenths(0.5), seed).decide(&at(0.5, standing, &offers));
            assert!(expected.iter().any(|&outcome| found == Move::Offer(outcome)), "{offers:?}: {found:?}");
        }
    }
}

#[test]
fn micro_accepts_what_is_worth_the_least_it_is_willing_to_offer() {
    for (offers, standing, is_accepted) in [
        // It would offer 9 next.
        (vec![(0, 10), (1, 9)], 9, true),
        (vec![(0, 10), (1, 8)], 8, false),
        // It owes nothing new; 9 is the least it has offered.
        (vec![(0, 10), (1, 1), (0, 9), (1, 1), (1, 1)], 1, false),
        (vec![(0, 10), (0, 9), (1, 9)], 9, true),
        (vec![(0, 10), (0, 9), (1, 8)], 8, false),
    ] {
        let offers = made(&offers);
        let found = Micro::new(tenths(0.5), 1).decide(&at(0.5, Some(standing), &offers));
        assert_eq!(found == Move::Accept, is_accepted, "{offers:?}: {found:?}");
    }
}

#[test]
fn micro_among_three_waits_for_the_slowest() {
    let offers = made(&[(0, 10), (1, 0), (2, 0), (0, 9), (1, 1), (2, 0)]);
    let view = TurnView { parties: 3, ..at(0.5, Some(0), &offers) };
    for seed in 0..20 {
        let found = Micro::new(tenths(0.5), seed).decide(&view);
        assert!([Move::Offer(9), Move::Offer(10)].contains(&found), "{found:?}");
    }
}

#[test]
fn micro_with_nothing_new_left_repeats_itself() {
    let offers = made(&[(0, 10), (1, 0), (0, 9), (1, 1), (0, 8), (1, 2)]);
    let found = Micro::new(tenths(0.8), 1).decide(&at(0.5, Some(2), &offers));
    assert!([8, 9, 10].map(Move::Offer).contains(&found), "{found:?}");
}

#[test]
fn random_offers_cover_what_the_party_may_agree_to_and_depend_on_the_seed_alone() {
    let moves = |seed| -> Vec<Move> {
        let mut strategy = RandomOffers::new(tenths(0.7), seed);
        (0..100).map(|_| strategy.decide(&at(0.5, None, &[]))).collect()
    };
    assert_eq!(moves(1), moves(1));
    assert_ne!(moves(1), moves(2));
    for outcome in 0..=STEPS {
        assert_eq!(moves(1).contains(&Move::Offer(outcome)), outcome >= 7, "{outcome}");
    }
}

#[test]
fn a_script_is_followed_to_its_end() {
    let mut strategy = Scripted::new([Move::Offer(3), Move::Accept]);
    let moves = [(); 4].map(|()| strategy.decide(&at(0.5, None, &[])));
    assert_eq!(moves, [Move::Offer(3), Move::Accept, Move::End, Move::End]);
}

#[test]
fn who_may_agree_to_nothing_ends_the_bargain() {
    let preferences = Arc::new(Preferences::try_new(vec![0.1, 0.2], 0.5, |_| true).unwrap());
    for kind in StrategyKind::ALL {
        assert_eq!(kind.build(preferences.clone(), 1).decide(&at(0.5, Some(1), &[])), Move::End, "{kind}");
    }
}

#[test]
fn strategies_are_known_by_name() {
    for kind in StrategyKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(*kind));
    }
    let error = "hardliner".parse::<StrategyKind>().unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no strategy `hardliner`; there are boulware, linear, conceder, tit-for-tat, micro, random"
    );
}

proptest! {
    #[test]
    fn aspirations_never_rise(
        preferences in preferences(),
        kind in 0..3_usize,
        one in 0.0..=1.0_f64,
        other in 0.0..=1.0_f64,
    ) {
        let strategy = [TimeDependent::boulware, TimeDependent::linear, TimeDependent::conceder][kind](preferences);
        prop_assert!(strategy.aspiration(one.max(other)) <= strategy.aspiration(one.min(other)));
    }

    /// Every strategy against every other, over preferences of any shape.
    #[test]
    fn nobody_offers_or_accepts_what_it_may_not_agree_to(
        parties in prop::collection::vec((preferences(), 0..StrategyKind::ALL.len(), any::<u64>()), 2..5),
        rounds in 1..30_u32,
    ) {
        let outcomes = parties.iter().map(|(preferences, ..)| preferences.utilities().len()).min().unwrap_or(0);
        let parties: Vec<_> = parties
            .into_iter()
            .map(|(preferences, kind, seed)| (restricted(&preferences, outcomes), StrategyKind::ALL[kind], seed))
            .collect();
        let played = play(&parties, rounds);
        for &(party, made, standing) in &played {
            let preferences = &parties[party].0;
            match made {
                Move::Offer(outcome) => prop_assert!(preferences.is_acceptable(outcome)),
                Move::Accept => prop_assert!(preferences.is_acceptable(standing.unwrap())),
                Move::End => prop_assert_eq!(preferences.best(), None),
            }
        }
        prop_assert_eq!(play(&parties, rounds), played);
    }

    #[test]
    fn micro_never_repeats_before_it_must(sizes in prop::array::uniform2(1..30_usize), seed in any::<u64>()) {
        // Each party's ranking is the other's reversed: nobody accepts before the middle.
        let outcomes = sizes[0] + sizes[1];
        let rising: Vec<f64> = (0..outcomes).map(|outcome| outcome as f64 / outcomes as f64).collect();
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        let party = |utilities| Arc::new(Preferences::try_new(utilities, 0.0, |_| true).unwrap());
        let parties = [rising, falling].map(|utilities| (party(utilities), StrategyKind::Micro, seed));
        let played = play(&parties, 100);
        for (party, (preferences, ..)) in parties.iter().enumerate() {
            let offers = played.iter().filter(|(who, ..)| *who == party).filter_map(|(_, made, _)| match made {
                Move::Offer(outcome) => Some(*outcome),
                Move::Accept | Move::End => None,
            });
            let best_first = preferences.ranking().iter().rev().copied();
            prop_assert!(offers.zip(best_first).all(|(made, expected)| made == expected));
        }
        prop_assert_eq!(played.last().map(|(_, made, _)| *made), Some(Move::Accept));
    }
}

/// Outcome n is worth n tenths.
fn tenths(reservation: f64) -> Arc<Preferences> {
    let utilities = (0..=STEPS).map(|outcome| outcome as f64 / STEPS as f64).collect();
    Arc::new(Preferences::try_new(utilities, reservation, |_| true).unwrap())
}

/// Party 0 of two, at a relative time.
fn at(t: f64, standing: Option<usize>, offers: &[OfferMade]) -> TurnView<'_> {
    TurnView { party: 0, parties: 2, round: 1, rounds: None, t, standing, offers }
}

/// These offers, by (party, outcome), one per step.
fn made(offers: &[(usize, usize)]) -> Vec<OfferMade> {
    (0..).zip(offers).map(|(step, &(party, outcome))| OfferMade { step, round: step / 2 + 1, party, outcome }).collect()
}

fn preferences() -> impl proptest::strategy::Strategy<Value = Arc<Preferences>> {
    let outcome = (0.0..=1.0_f64, prop::bool::weighted(0.8));
    (prop::collection::vec(outcome, 1..20), 0.0..0.9_f64).prop_map(|(outcomes, reservation)| {
        let utilities = outcomes.iter().map(|(utility, _)| *utility).collect();
        Arc::new(Preferences::try_new(utilities, reservation, |outcome| outcomes[outcome].1).unwrap())
    })
}

/// The same over the first outcomes only.
fn restricted(preferences: &Preferences, outcomes: usize) -> Arc<Preferences> {
    let utilities = preferences.utilities()[..outcomes].to_vec();
    let is_allowed = |outcome| preferences.is_acceptable(outcome);
    Arc::new(Preferences::try_new(utilities, preferences.reservation(), is_allowed).unwrap())
}

/// Plays a bargain to its end: who did what, facing which standing offer.
fn play(parties: &[(Arc<Preferences>, StrategyKind, u64)], rounds: u32) -> Vec<(usize, Move, Option<usize>)> {
    let mut strategies: Vec<_> =
        parties.iter().map(|(preferences, kind, seed)| kind.build(preferences.clone(), *seed)).collect();
    let (mut offers, mut played, mut standing): (Vec<OfferMade>, Vec<_>, Option<usize>) = (vec![], vec![], None);
    let mut accepted = 0;
    for step in 0..rounds as usize * parties.len() {
        let (party, round) = (step % parties.len(), (step / parties.len()) as u32 + 1);
        let t = TurnView::relative_time(round, rounds);
        let view =
            TurnView { party, parties: parties.len(), round, rounds: Some(rounds), t, standing, offers: &offers };
        let decided = strategies[party].decide(&view);
        played.push((party, decided, standing));
        match decided {
            Move::Offer(outcome) => {
                (standing, accepted) = (Some(outcome), 0);
                offers.push(OfferMade { step: step as u32, round, party, outcome });
            }
            Move::Accept => accepted += 1,
            Move::End => return played,
        }
        if accepted + 1 == parties.len() {
            return played;
        }
    }
    played
}
