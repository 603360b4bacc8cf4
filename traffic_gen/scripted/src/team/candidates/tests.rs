use schemas::NegotiationId;
use schemas::team::TeamRules;

use super::*;

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn hit(name: &str, score: u64, profile: &str) -> Candidate {
    Candidate { agent: agent(name), kind: AgentKind::Thing, profile: vec![profile.to_owned()], score }
}

#[test]
fn each_clause_is_searched_for_once_and_the_best_for_each_are_called() {
    let mut candidates = Candidates::new(agent("alice"), "Paint the wall; lay the floor.", None);
    assert_eq!(candidates.clauses_left(), ["Paint the wall", "lay the floor"]);
    candidates.handle_found("Paint the wall".to_owned(), vec![hit("bob", 9, "paints"), hit("alice", 8, "")], None);
    assert_eq!(candidates.clauses_left(), ["lay the floor"]);
    candidates.handle_found("lay the floor".to_owned(), vec![hit("carol", 5, "floors"), hit("bob", 1, "paints")], None);
    assert_eq!(candidates.form(4), Formation::Team(vec![agent("bob"), agent("carol")]));
    assert_eq!(candidates.form(1), Formation::Team(vec![agent("bob")]));
    let names: Vec<String> = candidates.agents().iter().map(|candidate| candidate.agent.to_string()).collect();
    assert_eq!(names, ["bob", "carol"], "itself never, and each once");
}

#[test]
fn whose_profile_covers_the_goal_works_alone_and_so_does_whoever_finds_nobody() {
    let mut candidates = Candidates::new(agent("alice"), "paint walls", Some("I paint walls".to_owned()));
    candidates.handle_found("paint walls".to_owned(), vec![hit("bob", 9, "paint")], None);
    assert_eq!((candidates.covered_ppm(), candidates.form(4)), (1_000_000, Formation::Alone));
    let mut candidates = Candidates::new(agent("alice"), "paint walls", None);
    candidates.handle_found("paint walls".to_owned(), Vec::new(), None);
    assert_eq!((candidates.covered_ppm(), candidates.form(4)), (0, Formation::Alone));
}

#[test]
fn a_known_agent_joins_those_found_for_the_same_text_with_the_score_it_had() {
    let mut book = ContactBook::default();
    book.note_found(&agent("dave"), "paint walls", 7, 1);
    let mut candidates = Candidates::new(agent("alice"), "paint walls; lay floors", None);
    candidates.handle_found("paint walls".to_owned(), vec![hit("bob", 1, "")], Some(&book));
    candidates.handle_found("lay floors".to_owned(), vec![hit("bob", 1, "")], Some(&book));
    let scores: Vec<usize> = candidates.found().iter().map(|(_, found)| found.len()).collect();
    assert_eq!((scores.as_slice(), candidates.found()[0].1[1].score), ([2, 1].as_slice(), 7));
}

#[test]
fn as_many_candidates_are_remembered_as_ten_searches_find() {
    let mut candidates = Candidates::new(agent("alice"), "x", None);
    let many = |from: usize| (from..from + 200).map(|number| hit(&format!("a{number}"), 1, "")).collect();
    candidates.handle_found("x".to_owned(), many(0), None);
    candidates.handle_found("y".to_owned(), many(200), None);
    assert_eq!(candidates.agents().len(), CANDIDATES_MAX);
}

#[test]
fn a_lead_without_a_model_opens_listens_and_concludes_with_what_was_said() {
    let team = NegotiationId::try_new("alice~goal").unwrap();
    let mut view = TeamView::new(team, agent("alice"), "a trip".to_owned(), agent("alice"), TeamRules::default());
    let mut lead = GoalSpeaker::default();
    view.members = ["alice", "bob", "carol", "dave"].map(agent).to_vec();
    view.muted = vec![agent("dave")];
    let TeamMove::Say { text, next: Some(first) } = lead.speak(&view) else { panic!("it opens") };
    assert_eq!(first, agent("bob"));
    assert!(text.starts_with("a trip\n"));
    for (step, (by, said)) in [("alice", "a trip"), ("bob", "a train"), ("carol", "the sea")].into_iter().enumerate() {
        view.note_said(step as u32, agent(by), Spoken::Text { text: said.to_owned() });
    }
    assert_eq!(lead.speak(&view), TeamMove::Conclude { text: "bob: a train\ncarol: the sea".to_owned() });
    // Who says nearly what another has said is shown with its words, and who repeats itself is shown once.
    view.note_said(2, agent("carol"), Spoken::Repeats { repeats: 1 });
    view.note_said(3, agent("bob"), Spoken::Repeats { repeats: 1 });
    assert_eq!(lead.speak(&view), TeamMove::Conclude { text: "bob: a train\ncarol: a train".to_owned() });
    // Bob hands the floor back: carol is asked. Carol says nothing, and is not asked again.
    view.recap.retain(|_, remark| remark.by == agent("alice"));
    let mut lead = GoalSpeaker::default();
    lead.speak(&view);
    view.note_said(1, agent("bob"), Spoken::Text { text: "a train".to_owned() });
    assert!(matches!(lead.speak(&view), TeamMove::Say { next: Some(next), .. } if next == agent("carol")));
    assert_eq!(lead.speak(&view), TeamMove::Conclude { text: "bob: a train".to_owned() });
    // It must conclude, and nobody has spoken.
    view.recap.clear();
    view.state = TeamState::Concluding;
    let silent = TeamMove::Conclude { text: "nobody had anything to say".to_owned() };
    assert_eq!(GoalSpeaker::default().speak(&view), silent);
}
