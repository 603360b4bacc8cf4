//! The domains shipped with the project, and what docs/bargaining.md says of the format.

use std::path::PathBuf;

use agents::bargain::{Domain, StrategyKind};
use traffic_gen::bargain::matchup::Matchup;

/// The domain files, by name.
pub(crate) fn shipped() -> Vec<(String, Domain)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../domains"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Teams and panels have folders of their own.
    files.retain(|path| path.is_file());
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let domain = Domain::parse(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), domain)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn five_domains_are_shipped_and_each_is_named_as_its_file() {
    let domains = shipped();
    let files: Vec<&str> = domains.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(files, ["car_purchase", "ecommerce", "scheduling", "service_level", "three_party"]);
    for (file, domain) in &domains {
        assert_eq!(domain.name, *file);
        assert!(domain.description.is_some(), "{file} says nothing of what it is about");
    }
}

#[test]
fn every_domain_shipped_leaves_room_for_agreement_and_for_conflict() {
    for (file, domain) in shipped() {
        let kinds = vec![StrategyKind::Linear; domain.parties.len()];
        for party in 0..domain.parties.len() {
            let mandate = domain.mandate(party).unwrap();
            let rules = domain.bargain();
            let space = schemas::bargain::space::OutcomeSpace::new(&rules.issues).unwrap();
            schemas::bargain::mandate::check(&mandate, space).unwrap_or_else(|fault| panic!("{file}: {fault}"));
        }
        let matchup = Matchup::try_new(domain, &kinds).unwrap();
        let solutions = matchup.solutions();
        assert!(solutions.pareto.len() > 2, "{file}: {} outcomes on the frontier", solutions.pareto.len());
        assert!(solutions.opposition.unwrap() > 0.1, "{file}: nothing to bargain about: {:?}", solutions.opposition);
    }
}

#[test]
fn the_example_of_the_documentation_is_a_domain() {
    let text = include_str!("../../../../docs/bargaining.md");
    let examples: Vec<&str> = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let whole: Vec<&&str> = examples.iter().filter(|example| example.contains("\"parties\"")).collect();
    assert!(!whole.is_empty(), "docs/bargaining.md shows no domain");
    for example in whole {
        Domain::parse(example).unwrap_or_else(|fault| panic!("{fault} in\n{example}"));
    }
}
