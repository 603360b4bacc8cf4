use policy_core::TurnKind;

use schemas::delivery::Outcome;

use super::*;
use policy_core::view::Role;

#[test]
fn turns_of_a_contract_net_count_from_when_their_state_began() {
    let mut turns = Turns::default();
    let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
    assert_eq!(follow(started(Protocol::ContractNet), 1_000), None);
    assert_eq!(
        follow(message("bob", Act::Offer, Disposition::Ok), 1_250),
        Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 250_000))
    );
    assert_eq!(follow(message("bob", Act::Offer, Disposition::Duplicate), 1_300), None);
    assert_eq!(
        follow(message("carol", Act::Refuse, Disposition::Ok), 1_500),
        Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 500_000))
    );
    assert_eq!(follow(moved(Phase::Collecting, Phase::Deciding), 2_000), None);
    assert_eq!(
        follow(message("alice", Act::Accept, Disposition::Ok), 2_100),
        Some(Noticed::Turn(Protocol::ContractNet, Role::Initiator, 100_000))
    );
    assert_eq!(follow(moved(Phase::Deciding, Phase::Awarding), 2_100), None);
    let confirm = message("bob", Act::Confirm, Disposition::Committed);
    assert_eq!(follow(confirm, 2_400), Some(Noticed::Turn(Protocol::ContractNet, Role::Contractor, 300_000)));
    assert_eq!(follow(ended(Protocol::ContractNet, Outcome::Completed), 3_000), None);
    assert_eq!(follow(message("bob", Act::Offer, Disposition::Ok), 3_100), None, "it is over");
}

#[test]
fn each_turn_of_a_bargain_counts_from_the_one_before() {
    let mut turns = Turns::default();
    let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
    follow(started(Protocol::AlternatingOffers), 1_000);
    assert_eq!(
        follow(message("bob", Act::Join, Disposition::Ok), 1_100),
        Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Party, 100_000))
    );
    follow(moved(Phase::Joining, Phase::Bargaining), 1_100);
    assert_eq!(
        follow(message("alice", Act::Offer, Disposition::Ok), 1_150),
        Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Initiator, 50_000))
    );
    assert_eq!(follow(message("bob", Act::Offer, Disposition::OutOfTurn), 1_200), None);
    assert_eq!(
        follow(message("bob", Act::Accept, Disposition::Ok), 1_350),
        Some(Noticed::Turn(Protocol::AlternatingOffers, Role::Party, 200_000))
    );
}

#[test]
fn each_turn_of_a_team_counts_from_the_one_before() {
    let mut turns = Turns::default();
    let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
    let member = |took_us| Some(Noticed::Turn(Protocol::Team, Role::Member, took_us));
    let taken = |kind| Event::TurnTaken { negotiation: id("job"), kind };
    follow(started(Protocol::Team), 1_000);
    assert_eq!(follow(message("bob", Act::Join, Disposition::Ok), 1_100), member(100_000));
    follow(moved(Phase::Forming, Phase::Discussing), 1_100);
    assert_eq!(follow(message("alice", Act::Say, Disposition::Ok), 1_150), member(50_000));
    assert_eq!(follow(taken(TurnKind::Say), 1_150), None);
    assert_eq!(follow(message("carol", Act::Say, Disposition::OutOfTurn), 1_200), None);
    assert_eq!(follow(taken(TurnKind::Silence), 2_000), None);
    assert_eq!(follow(message("alice", Act::Conclude, Disposition::Ok), 2_020), member(20_000));
}

#[test]
fn a_round_of_a_panel_lasts_from_its_first_ask_to_the_first_of_the_next_or_to_the_end() {
    let mut turns = Turns::default();
    let mut follow = |event: Event, ms| turns.follow(&event, Timestamp::from_ms(ms));
    let asked = |kind, round| Event::Asked { negotiation: id("job"), kind, round, count: 1, at: Timestamp(1) };
    assert_eq!(follow(asked(AskKind::Answer, 1), 900), None, "of a panel that is not followed nothing is known");
    follow(started(Protocol::Panel), 1_000);
    assert_eq!(follow(asked(AskKind::Answer, 1), 1_000), None);
    assert_eq!(follow(asked(AskKind::Answer, 1), 1_200), None, "a later wave");
    follow(moved(Phase::Asking, Phase::Ranking), 1_300);
    assert_eq!(follow(asked(AskKind::Rank, 1), 1_300), None);
    follow(moved(Phase::Ranking, Phase::Asking), 1_500);
    assert_eq!(follow(asked(AskKind::Answer, 2), 1_500), Some(Noticed::Round(500_000)));
    assert_eq!(follow(ended(Protocol::Panel, Outcome::Consensus), 1_750), Some(Noticed::Round(250_000)));
    follow(started(Protocol::Panel), 2_000);
    assert_eq!(follow(ended(Protocol::Panel, Outcome::NoAnswer), 2_100), None, "nobody was asked");
}

#[test]
fn a_missed_deadline_is_counted_where_it_was_waited_for() {
    let net = Protocol::ContractNet;
    let bargain = Protocol::AlternatingOffers;
    let lost = |loss| Event::AwardLost {
        negotiation: id("job"),
        lot: schemas::Lot(0),
        award_no: schemas::AwardNo(1),
        contractor: agent("bob"),
        loss,
    };
    for (protocol, before, event, expected) in [
        (net, None, closed(CloseReason::Deadline, false), Some("collecting")),
        (net, None, closed(CloseReason::Deadline, true), None),
        (net, None, closed(CloseReason::KValid, false), None),
        (net, Some(Phase::Awarding), lost(AwardLoss::ConfirmTimeout), Some("awarding")),
        (net, Some(Phase::Performing), lost(AwardLoss::PerformTimeout), Some("performing")),
        (net, Some(Phase::Awarding), lost(AwardLoss::Refused), None),
        (net, Some(Phase::Performing), ended(net, Outcome::Timeout), Some("hard")),
        (bargain, None, ended(bargain, Outcome::NoAgreement), Some("joining")),
        (bargain, Some(Phase::Bargaining), ended(bargain, Outcome::NoAgreement), None),
        (bargain, Some(Phase::Confirming), ended(bargain, Outcome::NoAgreement), Some("confirming")),
    ] {
        let mut turns = Turns::default();
        turns.follow(&started(protocol), Timestamp(1));
        if let Some(phase) = before {
            turns.follow(&moved(protocol.phases()[0], phase), Timestamp(2));
        }
        turns.follow(&moved(protocol.phases()[0], Phase::Ended), Timestamp(3));
        let missed = match turns.follow(&event, Timestamp(3)) {
            Some(Noticed::Miss(protocol, deadline)) => Some((protocol, deadline.into())),
            Some(Noticed::Turn(..) | Noticed::Round(_)) | None => None,
        };
        assert_eq!(missed, expected.map(|phase| (protocol, phase)), "{event:?}");
    }
}

#[test]
fn a_negotiation_stands_still_after_two_minutes_without_a_move_and_what_is_followed_is_bounded() {
    let mut turns = Turns::default();
    turns.follow(&started(Protocol::ContractNet), Timestamp::from_ms(1_000));
    assert_eq!(turns.still(Timestamp::from_ms(121_000)), 0);
    assert_eq!(turns.still(Timestamp::from_ms(121_001)), 1);
    turns.follow(&message("bob", Act::Offer, Disposition::Ok), Timestamp::from_ms(60_000));
    assert_eq!(turns.still(Timestamp::from_ms(121_001)), 0);
    for number in 0..=FOLLOWED_MAX {
        turns.begin(&id(&number.to_string()), Protocol::ContractNet, Phase::Collecting, Timestamp(1));
    }
    assert_eq!(turns.0.len(), FOLLOWED_MAX);
}

fn started(protocol: Protocol) -> Event {
    let (phase, invited, left_out, at) = (protocol.phases()[0], 2, 0, Timestamp(1));
    Event::Started { negotiation: id("job"), protocol, phase, policy: "low@1".into(), invited, left_out, at }
}

fn message(from: &str, act: Act, disposition: Disposition) -> Event {
    let (from, score, at) = (agent(from), None, Timestamp(1));
    Event::Disposed { negotiation: id("job"), from, act, disposition, score, at }
}

/// A transition of the first protocol that knows the state it leaves.
fn moved(from: Phase, to: Phase) -> Event {
    let protocol = *Protocol::ALL.iter().find(|protocol| protocol.phases().contains(&from)).expect("a state");
    Event::Transition { negotiation: id("job"), protocol, from, to }
}

fn closed(reason: CloseReason, complete: bool) -> Event {
    let (round, offers, responded, expected, at, elapsed_us) = (1, 1, 1, 2, Timestamp(1), 1);
    let (negotiation, protocol) = (id("job"), Protocol::ContractNet);
    Event::Closed { negotiation, protocol, round, reason, complete, offers, responded, expected, at, elapsed_us }
}

fn ended(protocol: Protocol, outcome: Outcome) -> Event {
    let (rounds, offers, awards, at, elapsed_us) = (1, 1, 1, Timestamp(1), 1);
    let (policy, invited) = ("low@1".into(), 1);
    Event::Ended { negotiation: id("job"), protocol, policy, invited, outcome, rounds, offers, awards, at, elapsed_us }
}

fn id(own: &str) -> NegotiationId {
    NegotiationId::form(&agent("alice"), own).unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}
