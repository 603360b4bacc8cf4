use schemas::delivery::RankAsk;
use schemas::{Timestamp, WireTime};

use super::*;

const TASK: &str = "Which is prime?";

fn stub(profile: StubProfile) -> StubPanelist {
    named("ann", profile)
}

fn named(name: &str, profile: StubProfile) -> StubPanelist {
    let domain = DomainName::try_new("general").unwrap();
    let wrong = ["A", "C", "D"].map(str::to_owned).to_vec();
    let questions = StubQuestions::from([(TASK.to_owned(), StubQuestion { domain, right: "B".to_owned(), wrong })]);
    StubPanelist::new(AgentId::try_new(name).unwrap(), profile, Arc::new(questions), 7)
}

fn profile(accuracy: f64, answers: AnswerStyle) -> StubProfile {
    let accuracy = BTreeMap::from([(DomainName::try_new("general").unwrap(), accuracy)]);
    StubProfile { accuracy, answers, ..StubProfile::default() }
}

fn ask(round: u32) -> Ask {
    let time = WireTime(Timestamp::from_ms(0));
    Ask {
        round,
        rounds: Some(3),
        task: Some(TASK.into()),
        answer: None,
        answer_by: time,
        ends_by: time,
        rules_digest: None,
        own: None,
        peers: None,
        rate: None,
        rank: None,
        review: false,
    }
}

fn shown(answer: &str, text: &str) -> ShownAnswer {
    ShownAnswer { answer: Some(answer.into()), text: Some(text.into()), reviews: Vec::new() }
}

fn second_ask(own: Option<&str>, peers: &[(&str, &str)]) -> Ask {
    Ask {
        own: own.map(|answer| shown(answer, "own")),
        peers: Some(peers.iter().map(|(answer, text)| shown(answer, text)).collect()),
        rate: Some(Rated::Peers),
        ..ask(2)
    }
}

fn panel(number: u32) -> NegotiationId {
    NegotiationId::try_new(&format!("x~{number}")).unwrap()
}

fn said(reply: AskReply) -> PanelAnswer {
    match reply {
        AskReply::Answer(answer) => *answer,
        AskReply::Refuse(_) | AskReply::Silence => panic!("{reply:?}"),
    }
}

fn text(reply: AskReply) -> String {
    said(reply).answer.unwrap().unwrap()
}

/// How often of 4000 panels something holds.
fn share(mut holds: impl FnMut(&NegotiationId) -> bool) -> f64 {
    (0..4000).filter(|&number| holds(&panel(number))).count() as f64 / 4000.0
}

fn is_near(found: f64, wanted: f64) -> bool {
    // Four standard errors of a share of one half.
    (found - wanted).abs() < 0.032
}

#[test]
fn it_is_right_as_often_as_its_accuracy_and_otherwise_wrong_in_every_way_alike() {
    let mut ann = stub(profile(0.7, AnswerStyle::Redraw));
    for (answer, chance) in [("B", 0.7), ("A", 0.1), ("C", 0.1), ("D", 0.1)] {
        let found = share(|panel| text(ann.answer(panel, &ask(1))) == answer);
        assert!(is_near(found, chance), "{answer}: {found}");
    }
}

#[test]
fn what_it_says_depends_on_seed_agent_panel_and_round_and_not_on_the_order_of_peers() {
    let debater = profile(0.5, AnswerStyle::Debate);
    let peers = [("A", "1"), ("B", "2"), ("C", "3")];
    let mut reversed = peers;
    reversed.reverse();
    let (mut ann, mut again, mut bob) = (stub(debater.clone()), stub(debater.clone()), named("bob", debater));
    let (mut differs, mut rounds_differ) = (false, false);
    for number in 0..200 {
        let panel = panel(number);
        let one = said(ann.answer(&panel, &second_ask(Some("D"), &peers)));
        // Another panel between them changes nothing.
        again.answer(&self::panel(number + 1), &ask(1));
        let mut other = said(again.answer(&panel, &second_ask(Some("D"), &reversed)));
        other.ratings.as_mut().unwrap().reverse();
        assert_eq!(one, other, "{panel}");
        differs |= text(ann.answer(&panel, &ask(1))) != text(bob.answer(&panel, &ask(1)));
        rounds_differ |= text(ann.answer(&panel, &ask(1))) != text(ann.answer(&panel, &ask(3)));
    }
    assert!(differs && rounds_differ);
}

#[test]
fn in_a_debate_it_holds_its_answer_or_takes_over_one_the_likelier_the_better_it_rated_it() {
    let mut ann = stub(StubProfile { discernment: 1.0, holds: 0.4, ..profile(0.0, AnswerStyle::Debate) });
    let ask = second_ask(Some("D"), &[("A", ""), ("B", ""), ("C", "")]);
    // Rated 1.5, 4.5 and 1.5 in the mean; the mean of the shares is close to the share of the means.
    for (answer, chance) in [("D", 0.4), ("B", 0.6 * 0.6), ("A", 0.6 * 0.2), ("C", 0.6 * 0.2)] {
        let found = share(|panel| text(ann.answer(panel, &ask)) == answer);
        assert!(is_near(found, chance), "{answer}: {found}");
    }
    // Without an answer of its own it takes a peer's, and alone with its own it keeps that.
    let (orphan, alone) = (second_ask(None, &[("A", "")]), second_ask(Some("D"), &[]));
    assert!((0..50).all(|number| text(ann.answer(&panel(number), &orphan)) == "A"));
    assert!((0..50).all(|number| text(ann.answer(&panel(number), &alone)) == "D"));
}

#[test]
fn each_way_of_rating_gives_the_ratings_it_says() {
    let peers = [("B", "ring north"), ("A", "ring south"), ("C", "")];
    let rated = |rates, ring: Option<&str>, number| {
        let ring = ring.map(str::to_owned);
        let profile = StubProfile { discernment: 1.0, rates, ring, ..profile(0.5, AnswerStyle::Redraw) };
        said(stub(profile).answer(&panel(number), &second_ask(None, &peers))).ratings.unwrap()
    };
    let (mut highest, mut lowest) = (0, 0);
    for number in 0..200 {
        let honest = rated(Rating::Honest, None, number);
        assert!(honest[0] >= 4 && honest[1] <= 2 && honest[2] <= 2, "{honest:?}");
        highest += u32::from(honest[0] == 5);
        lowest += u32::from(honest[1] == 1);
        let inverse = rated(Rating::Inverse, None, number);
        assert!(inverse[0] <= 2 && inverse[1] >= 4 && inverse[2] >= 4, "{inverse:?}");
        assert_eq!(rated(Rating::SelfOnly, None, number), [1, 1, 1]);
        assert_eq!(rated(Rating::Ring, Some("south"), number), [1, 5, 1]);
    }
    assert!((60..140).contains(&highest) && (60..140).contains(&lowest), "{highest} {lowest}");
}

#[test]
fn without_discernment_right_and_wrong_are_rated_alike_and_nobody_is_rated_unasked() {
    let mut ann = stub(StubProfile { discernment: 0.5, ..profile(0.5, AnswerStyle::Redraw) });
    let ask = second_ask(None, &[("B", ""), ("A", "")]);
    for place in 0..2 {
        let found = share(|panel| said(ann.answer(panel, &ask)).ratings.unwrap()[place] >= 4);
        assert!(is_near(found, 0.5), "{place}: {found}");
    }
    let unrated = Ask { rate: None, ..ask };
    assert_eq!(said(ann.answer(&panel(1), &unrated)).ratings, None);
}

#[test]
fn liars_say_one_wrong_answer_and_dissenters_their_name() {
    for number in 0..50 {
        assert_eq!(text(stub(profile(1.0, AnswerStyle::Liar)).answer(&panel(number), &ask(1))), "A");
        assert_eq!(text(named("dan", profile(1.0, AnswerStyle::Dissent)).answer(&panel(number), &ask(1))), "dan");
    }
}

#[test]
fn it_is_silent_as_often_as_it_says_and_leaves_when_it_does_not_know_the_question() {
    let mut ann = stub(StubProfile { silent: 0.2, ..profile(1.0, AnswerStyle::Redraw) });
    let found = share(|panel| ann.answer(panel, &ask(1)) == AskReply::Silence);
    assert!(is_near(found, 0.2), "{found}");
    let unknown = Ask { task: Some("Why?".into()), ..ask(1) };
    let mut ann = stub(profile(1.0, AnswerStyle::Redraw));
    assert_eq!(ann.answer(&panel(1), &unknown), AskReply::Refuse("does not know the question".to_owned()));
}

#[test]
fn as_a_ranker_it_puts_what_looks_right_first() {
    let mut carol = stub(StubProfile { discernment: 1.0, ..profile(0.5, AnswerStyle::Redraw) });
    let ask = Ask {
        rank: Some(RankAsk { keep: 2 }),
        peers: Some(["A", "B", "C", "B"].map(|answer| shown(answer, "")).to_vec()),
        ..ask(2)
    };
    for number in 0..50 {
        let mut order = said(carol.reply(&panel(number), &ask)).order.unwrap();
        order.sort_unstable();
        assert_eq!(order, [2, 4]);
    }
}

#[test]
fn as_a_reviewer_it_says_and_rates_what_it_thinks_and_is_rated_by_whether_that_is_right() {
    let sharp = StubProfile { discernment: 1.0, ..profile(0.5, AnswerStyle::Redraw) };
    let mut rob = stub(sharp.clone());
    let asked = Ask { review: true, peers: Some(vec![shown("B", ""), shown("C", "")]), ..ask(1) };
    let reviewed = said(rob.reply(&panel(1), &asked));
    assert_eq!(reviewed.reviews.unwrap(), [Some("looks right".to_owned()), Some("looks wrong".to_owned())]);
    assert!(matches!(reviewed.ratings.as_deref(), Some([4 | 5, 1 | 2])));
    assert_eq!(reviewed.answer, None);

    let review = |text: &str| Some(text.into());
    let mut peers = vec![shown("B", ""), shown("C", "")];
    peers[0].reviews = vec![review("looks right"), review("looks wrong"), None, review("looks right")];
    peers[1].reviews = vec![review("looks wrong"), review("looks right"), None, review("looks right")];
    let ask = Ask { peers: Some(peers), rate: Some(Rated::Reviewers), ..ask(2) };
    assert_eq!(said(stub(sharp).answer(&panel(1), &ask)).ratings.unwrap(), [5, 1, 3, 3]);
}

#[test]
fn a_script_is_followed_round_by_round_and_its_last_entry_from_then_on() {
    let script = serde_json::from_value(serde_json::json!([
        {"answer": "C", "text": "bob"},
        {"answer": "B", "ratings": {"ann": 5, "B": 4}, "order": ["D", "ann"]},
        {"silent": true},
        {"refuse": "tired"},
    ]));
    let profile = StubProfile { script: script.unwrap(), ..profile(0.0, AnswerStyle::Script) };
    let mut bob = stub(profile);
    let first = said(bob.answer(&panel(1), &ask(1)));
    assert_eq!((first.answer, first.text, first.ratings), (Some(Some("C".into())), Some("bob".into()), None));
    let ask_of_two = second_ask(Some("C"), &[("A", "x"), ("B", "cyd"), ("A", "ann")]);
    assert_eq!(said(bob.answer(&panel(1), &ask_of_two)).ratings.unwrap(), [3, 4, 5]);
    let ranked = Ask { rank: Some(RankAsk { keep: 2 }), ..second_ask(None, &[("A", "x"), ("A", "ann"), ("D", "y")]) };
    assert_eq!(said(bob.reply(&panel(1), &ranked)).order.unwrap(), [3, 2]);
    assert_eq!(bob.answer(&panel(1), &ask(3)), AskReply::Silence);
    assert_eq!(bob.answer(&panel(1), &ask(4)), AskReply::Refuse("tired".to_owned()));
    assert_eq!(bob.answer(&panel(1), &ask(8)), AskReply::Refuse("tired".to_owned()));
}
