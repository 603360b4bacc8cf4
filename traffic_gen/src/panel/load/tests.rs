use std::collections::BTreeSet;

use super::*;

#[test]
fn a_panel_depends_on_seed_and_number_and_its_seats_are_different_agents() {
    let scenario = PanelScenario::default();
    let (mut sizes, mut selects, mut all) = (BTreeSet::new(), 0, 0);
    for number in 0..400 {
        let panel = scenario.panel(number);
        assert_eq!(panel, scenario.panel(number));
        assert_eq!(panel.seats.iter().collect::<BTreeSet<_>>().len(), panel.seats.len());
        assert!(panel.seats.iter().all(|&seat| seat < scenario.agents) && panel.question < QUESTIONS);
        sizes.insert(panel.seats.len());
        selects += u32::from(panel.rules.select.is_some());
        all += u32::from(panel.rules.asking == Asking::All);
    }
    assert_eq!(sizes, BTreeSet::from([4, 7, 12]));
    assert!((140..260).contains(&selects) && (60..140).contains(&all), "{selects} {all}");
    let other = PanelScenario { seed: 2, ..PanelScenario::default() };
    assert!((0..20).any(|number| scenario.panel(number) != other.panel(number)));
}

#[test]
fn questions_differ_and_each_has_one_right_answer() {
    let questions: StubQuestions = (0..QUESTIONS).map(question).collect();
    assert_eq!(questions.len() as u64, QUESTIONS);
    for (task, StubQuestion { right, wrong, .. }) in &questions {
        let sum: u64 =
            task.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok()).sum();
        assert_eq!(*right, sum.to_string(), "{task}");
        assert!(wrong.len() == 3 && !wrong.contains(right));
    }
}
