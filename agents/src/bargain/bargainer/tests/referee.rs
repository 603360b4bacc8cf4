//! Bargainers against each other, over a referee that knows the bare protocol.

use std::collections::VecDeque;

use proptest::prelude::*;
use schemas::delivery::Agreement;

use super::*;
use crate::bargain::{BargainRules as DomainRules, Domain, DomainPlanner, StrategyKind, TurnView};
use crate::strategy::Strategy as _;

/// Longest bargain played here, in steps.
const STEPS_MAX: u32 = 10_000;

#[test]
fn two_bargainers_take_the_course_of_their_strategies() {
    let domain = domain(2, 20, 30);
    for (first, second) in [
        (StrategyKind::Boulware, StrategyKind::Conceder),
        (StrategyKind::Linear, StrategyKind::Linear),
        (StrategyKind::TitForTat, StrategyKind::Boulware),
        (StrategyKind::Micro, StrategyKind::Micro),
        (StrategyKind::Random, StrategyKind::TitForTat),
    ] {
        let expected = alternate(&domain, &[first, second], 1);
        let outcomes = referee(&domain, &[first, second], 1, |_| 0);
        assert_eq!(outcomes[0], outcomes[1], "{first} {second}: both know the same");
        assert_eq!(outcomes[0], expected, "{first} {second}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Notices come again, late and out of order: nobody acts twice, and the course is the same.
    #[test]
    fn stale_notices_change_nothing(
        kinds in prop::collection::vec(0..StrategyKind::ALL.len(), 2..5),
        rounds in 1..12_u32,
        seed in any::<u64>(),
        delays in prop::collection::vec(0..6_usize, 16),
    ) {
        let kinds: Vec<StrategyKind> = kinds.into_iter().map(|kind| StrategyKind::ALL[kind]).collect();
        let domain = domain(kinds.len(), 12, rounds);
        let expected = alternate(&domain, &kinds, seed);
        for outcome in referee(&domain, &kinds, seed, |notice| delays[notice % delays.len()]) {
            prop_assert_eq!(&outcome, &expected);
        }
    }
}

/// How a bargain ended: outcome agreed on, steps, and the offers.
type End = (Option<usize>, u32, Vec<OfferMade>);

/// Rotated ramps: everybody wants something else, and may agree to four in five.
fn domain(parties: usize, outcomes: usize, rounds: u32) -> Domain {
    let table = |party: usize| {
        let shift = party * outcomes / parties;
        (0..outcomes)
            .map(|outcome| ((outcome * (party % 2 * 2 + 1) + shift) % outcomes) as f64 / outcomes as f64)
            .collect()
    };
    let tables = (0..parties).map(|party| (table(party), 0.2)).collect();
    Domain::tabular("ramps", &[outcomes], tables, DomainRules::with_rounds(rounds)).unwrap()
}

fn plans(domain: &Domain, kinds: &[StrategyKind], seed: u64) -> Vec<DomainPlanner> {
    let plan = |(party, kind): (usize, &StrategyKind)| DomainPlanner::try_new(domain, party, *kind, seed).unwrap();
    kinds.iter().enumerate().map(plan).collect()
}

/// The strategies alone.
fn alternate(domain: &Domain, kinds: &[StrategyKind], seed: u64) -> End {
    let mut strategies: Vec<_> =
        plans(domain, kinds, seed).into_iter().map(|planner| planner.plan_for(&negotiation()).strategy).collect();
    let (parties, rounds) = (kinds.len(), domain.bargain().rounds.unwrap());
    let (mut offers, mut accepted): (Vec<OfferMade>, usize) = (Vec::new(), 0);
    for step in 0..rounds * parties as u32 {
        let (party, round) = (step as usize % parties, step / parties as u32 + 1);
        let standing = offers.last().map(|offer| offer.outcome);
        let t = TurnView::relative_time(round, rounds);
        let view = TurnView { party, parties, round, rounds: Some(rounds), t, standing, offers: &offers };
        match strategies[party].decide(&view) {
            Move::Offer(outcome) => {
                accepted = 0;
                offers.push(OfferMade { step, round, party, outcome });
            }
            Move::Accept => accepted += 1,
            Move::End => panic!("nobody ends these bargains"),
        }
        if accepted + 1 == parties {
            return (standing, step + 1, offers);
        }
    }
    (None, rounds * parties as u32, offers)
}

/// The same by bargainers, notices told again after so many others (`0`: not again).
fn referee(domain: &Domain, kinds: &[StrategyKind], seed: u64, again_after: impl Fn(usize) -> usize) -> Vec<End> {
    let names: Vec<AgentId> = domain.parties.iter().map(|party| party.name.clone()).collect();
    let (mut bargainers, mut events): (Vec<Bargainer>, Vec<Events>) = names
        .iter()
        .zip(plans(domain, kinds, seed))
        .map(|(name, planner)| {
            let (sender, receiver) = mpsc::channel(64);
            (Bargainer::new(name.clone(), planner, sender), receiver)
        })
        .unzip();
    let called = call(json!({"bargain": {"parties": names, "rules": domain.bargain()}}));
    for bargainer in &mut bargainers {
        assert_eq!(only(bargainer.handle(T0, &called)).payload.act(), Act::Join);
    }
    let rounds = domain.bargain().rounds.unwrap();
    let (mut standing, mut step): (Option<Standing>, u32) = (None, 0);
    let mut stale: VecDeque<(usize, Delivery, usize)> = VecDeque::new();
    let (mut sender, mut told) = (None, 0);
    loop {
        assert!(step < STEPS_MAX);
        let (party, round) = (step as usize % names.len(), step / names.len() as u32 + 1);
        let agreed = standing.as_ref().filter(|standing| standing.accepted_by.len() + 1 == names.len());
        if agreed.is_some() || round > rounds {
            let closed = closing_of(agreed, step, names.len() as u32);
            for bargainer in &mut bargainers {
                bargainer.handle(T0, &closed);
            }
            return events.iter_mut().map(|events| end_of(last(events), step, standing.as_ref(), domain)).collect();
        }
        let turn = Turn { party: names[party].clone(), round, standing: standing.clone(), ..told_turn(step, "x") };
        let notice = delivery(Notification::Turn(turn));
        let mut said = Vec::new();
        for (index, bargainer) in bargainers.iter_mut().enumerate() {
            if Some(index) == sender {
                continue;
            }
            said.extend(bargainer.handle(T0, &notice).into_iter().map(|action| (index, action)));
            told += 1;
            match again_after(told) {
                0 => {}
                others => stale.push_back((index, notice.clone(), told + others)),
            }
        }
        while stale.front().is_some_and(|(.., due)| *due <= told) {
            if let Some((index, notice, _)) = stale.pop_front() {
                assert_eq!(bargainers[index].handle(T0, &notice), [], "a stale notice");
            }
        }
        let (speaker, message) = match <[(usize, Action); 1]>::try_from(said) {
            Ok([(speaker, Action::Send(message))]) => (speaker, message),
            other => panic!("not one message: {other:?}"),
        };
        assert_eq!(speaker, party, "whose turn it is speaks");
        step += 1;
        sender = Some(party);
        let offered = (message.payload.act() == Act::Offer).then(|| offer_id(u64::from(step)));
        apply(&mut standing, &names[party], message.payload, step);
        assert_eq!(bargainers[party].handle(T0, &receipt(Disposition::Ok, None, offered)), []);
    }
}

fn apply(standing: &mut Option<Standing>, speaker: &AgentId, payload: Payload, step: u32) {
    if let Payload::Offer(offer) = payload {
        *standing = Some(Standing {
            offer_id: offer_id(u64::from(step)),
            by: speaker.clone(),
            terms_digest: Digest::of(&offer.terms).unwrap(),
            terms: offer.terms,
            valid_from: None,
            valid_until: None,
            conditions: Vec::new(),
            accepted_by: Vec::new(),
        });
        return;
    }
    let Payload::Accept(accept) = payload else { panic!("neither offer nor acceptance: {payload:?}") };
    let standing = standing.as_mut().expect("something to accept");
    assert_eq!((accept.offer_id, accept.terms_digest), (standing.offer_id, Some(standing.terms_digest)));
    standing.accepted_by.push(speaker.clone());
}

fn closing_of(agreed: Option<&Standing>, step: u32, parties: u32) -> Delivery {
    let agreement = agreed.map(|standing| Agreement {
        offer_id: standing.offer_id,
        by: standing.by.clone(),
        terms: standing.terms.clone(),
        terms_digest: standing.terms_digest,
        round: (step - 1) / parties + 1,
        step,
    });
    closing(if agreed.is_some() { Outcome::Agreement } else { Outcome::NoAgreement }, agreement)
}

/// What a party reports; the last turn of a bargain without agreement, which only one of them knows, is filled in.
fn end_of(news: BargainReport, step: u32, standing: Option<&Standing>, domain: &Domain) -> End {
    let BargainReport::Ended(outcome) = news else { panic!("no end: {news:?}") };
    let mut offers = outcome.offers;
    let parties = domain.parties.len() as u32;
    let offered_last = standing.filter(|standing| standing.accepted_by.is_empty());
    if let Some(standing) = offered_last.filter(|_| offers.last().is_none_or(|offer| offer.step + 1 < step)) {
        let made = domain.space.outcome(&standing.terms).unwrap();
        let party = ((step - 1) % parties) as usize;
        offers.push(OfferMade { step: step - 1, round: (step - 1) / parties + 1, party, outcome: made });
    }
    let steps = if outcome.agreed.is_some() { outcome.steps } else { outcome.steps.max(step) };
    (outcome.agreed, steps, offers)
}
