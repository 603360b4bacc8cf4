//! Agents found for tasks: the population of a seed, the figures of ranks, and the files that a run leaves.

use std::fs;

use studies::ioa::figures::{RankFigures, SeedFigures};
use studies::ioa::formation::{Forming, play};
use studies::ioa::population::{MadeFor, Population};
use studies::ioa::{FormationPlan, TASKS, play_live, report, run};
use studies::study::StudyError;

/// Tasks of the small runs here.
const FEW: usize = 50;

#[test]
fn a_population_has_two_agents_for_three_in_five_tasks_and_three_for_the_others() {
    let population = Population::drawn(1, TASKS).unwrap();
    let made_for = |count: usize| population.tasks.iter().filter(|task| task.labelled.len() == count).count();
    assert_eq!((made_for(2), made_for(3), population.labelled.len()), (375, 250, 1500));
    let own = population.sub_tasks.iter().filter(|sub| matches!(sub.made_for, MadeFor::Member(_))).count();
    assert_eq!((own, population.specialists.len()), (300, 325));
    for sub_task in &population.sub_tasks {
        if let MadeFor::Member(place) = sub_task.made_for {
            assert!(population.tasks[sub_task.task].labelled.contains(&place));
        }
    }
    let tasks: std::collections::BTreeSet<usize> = population.sub_tasks.iter().map(|sub| sub.task).collect();
    assert_eq!(tasks.len(), TASKS, "one for each");
}

#[test]
fn figures_of_ranks_are_those_of_the_paper_worked_out_by_hand() {
    let figures = RankFigures::of(&[1, 1, 2, 10, 11]);
    assert_eq!((figures.count, figures.top_1, figures.top_10, figures.mean_rank), (5, 0.4, 0.8, 5.0));
    assert!((figures.mean_reciprocal_rank - (1.0 + 1.0 + 0.5 + 0.1 + 1.0 / 11.0) / 5.0).abs() < 1e-12);
    assert_eq!(RankFigures::of(&[]).mean_rank, 0.0);
}

#[test]
fn searching_finds_whom_a_task_was_made_for_and_chance_does_not() {
    let records = play(&Population::drawn(1, FEW).unwrap());
    let figures = SeedFigures::of(1, &records);
    assert!(figures.regular.top_1 > 0.5 && figures.random.top_1 < 0.15, "{figures:?}");
    assert!(figures.nested.top_10 > 0.9, "{figures:?}");
    assert_eq!((figures.right_alone, figures.right_nested), (1.0, 1.0));
    for record in &records {
        assert!(record.called.len() <= 4 && record.rank >= 1);
        let is_called = record.called.contains(&record.made_for);
        assert_eq!(record.rank == 1, is_called, "{record:?}");
        assert!(record.forming != Forming::Nested || record.alone.is_some());
    }
}

#[test]
fn the_same_seed_leaves_the_same_bytes_and_another_plan_is_refused_there() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let plan = FormationPlan::new(3, 2, FEW);
    let written = folders.each_ref().map(|folder| {
        run(&plan, folder.path(), &|_| {}).unwrap();
        report::write(folder.path()).unwrap();
        ["cells/seed-3/formations.jsonl", "cells/seed-4/formations.jsonl", "figures.json", "report.md"]
            .map(|name| fs::read(folder.path().join(name)).unwrap())
    });
    assert_eq!(written[0], written[1]);
    assert_ne!(written[0][0], written[0][1], "another seed");
    let other = run(&FormationPlan::new(4, 2, FEW), folders[0].path(), &|_| {});
    assert!(matches!(other, Err(StudyError::OtherExperiment(_))));
    let text = String::from_utf8(written[0][3].clone()).unwrap();
    assert!(text.contains("the paper (other data)") && text.contains("| seed 4 | nested |"), "{text}");
    // A claim that does not hold is named.
    let path = folders[0].path().join("cells/seed-3/formations.jsonl");
    let worse = fs::read_to_string(&path)
        .unwrap()
        .replace("\"rank\":1,", "\"rank\":500,")
        .replace("\"rank\":1}", "\"rank\":500}");
    fs::write(&path, worse).unwrap();
    let report = report::compute(folders[0].path()).unwrap();
    assert!(report.failures().any(|(seed, verdict)| (seed, verdict.name) == (3, "regular Top@1")), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_at_a_gateway_form_the_same_teams() {
    let figures = play_live(&FormationPlan::new(1, 1, FEW)).await.unwrap();
    assert_eq!((figures.registered, figures.differences), (146, 0), "{figures:?}");
    // A team for each task, and a sub-team for each sub-task of a specialist.
    assert_eq!(figures.teams, FEW + 26);
    assert!(figures.searches > 4 * FEW, "{figures:?}");
}

#[test]
#[ignore = "takes a minute without optimisation; scripts/check-ioa runs it through llmx"]
fn every_claim_holds_for_the_first_seed() {
    let figures = SeedFigures::of(1, &play(&Population::drawn(1, TASKS).unwrap()));
    assert!(figures.verdicts.iter().all(|verdict| verdict.holds), "{figures:#?}");
}
