//! `llmx-lab experiment model`, and what a gullible party may agree to.
use std::collections::BTreeSet;
use std::path::Path;

use agents::model::config::QuotedWords;
use studies::model::gullible::{self, GullibleTally};
use studies::model::injection::{self, KindTally, OrderReader};
use studies::model::{Deciding, ModelRunSize, run};

#[test]
fn a_gullible_party_under_a_mandate_agrees_to_nothing_outside_it() {
    // `llmx-lab experiment model --gullible 10000` plays as many as the figure in docs/models.md is of.
    let tally = gullible::run(8, 1, &|_| {}).unwrap();
    println!("{tally}");
    let GullibleTally { bargains, agreements, outside, prompts } = tally;
    assert_eq!((bargains, outside), (8, 0));
    assert!(agreements > 0 && prompts > bargains, "{tally}");
}

#[test]
fn orders_of_every_kind_move_a_model_that_obeys_and_none_takes_it_beyond_its_limits() {
    let [quoted, never] = [QuotedWords::Quoted, QuotedWords::Never]
        .map(|words| injection::run(&OrderReader::Obeying, 200, words, &|_| {}).unwrap());
    println!("{quoted}{never}");
    assert_eq!((quoted.by_kind.len(), quoted.all().texts), (8, 200));
    for (kind, tally) in &quoted.by_kind {
        assert_eq!((tally.texts, tally.outside, tally.unanswered), (25, 0, 0), "{kind:?}");
        // A price beyond the limits ends the bargain instead, and one that it would have offered anyway moves nothing.
        assert!(tally.obeyed >= 15 && tally.left >= 3 && tally.obeyed + tally.left >= 24, "{kind:?}: {tally:?}");
    }
    let KindTally { texts, moved, moved_by_harmless, obeyed, .. } = never.all();
    assert_eq!((texts, moved, moved_by_harmless, obeyed), (200, 0, 0, 0), "what it is not shown does not move it");
    let texts: BTreeSet<String> = (0..1640).map(|number| injection::text(number).2).collect();
    assert_eq!(texts.len(), 1640);
}

#[test]
fn the_same_seeds_leave_the_same_files_and_every_row_that_needs_a_model_has_a_value() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // Few rounds: what intervals say is in docs/models.md, of the sizes that `llmx-lab experiment model` has by itself.
    for (folder, seed, seeds) in [(&folders[0], 1, 2), (&folders[1], 2, 1)] {
        let size = ModelRunSize { seed, seeds, calls: 16, bargains: 1 };
        let summary = run(&Deciding::Stub { kept: None }, size, folder.path(), &|_| {}).unwrap();
        assert_eq!((summary.cells, summary.violations), (11 * usize::try_from(seeds).unwrap(), 0));
    }
    let read = |folder: &Path, cell: &str, name: &str| {
        std::fs::read_to_string(folder.join("cells").join(cell).join(name)).unwrap()
    };
    for cell in ["first-2", "gullible-quoted-2", "bargain-gullible-2"] {
        for name in ["rounds.jsonl", "cell.json"] {
            assert_eq!(read(folders[0].path(), cell, name), read(folders[1].path(), cell, name), "{cell}/{name}");
        }
    }
    let report = studies::report::write(folders[0].path()).unwrap();
    for group in &report.groups {
        let told = ["M23", "M25.0", "M30", "M33.surplus", "model.calls", "model.tokens", "model.cost"];
        let figures = group.figures.iter().filter(|figure| told.contains(&figure.key.as_str()));
        let told = figures.map(|figure| {
            let interval = figure.interval.map(|interval| (interval.low, interval.high));
            format!("{} {:?} {interval:?}", figure.key, figure.value)
        });
        println!("{}: {}", group.name, told.collect::<Vec<_>>().join("; "));
    }
    let value = |model: &str, key: &str| {
        let group = report.groups.iter().find(|group| group.key.contains(&format!("model={model} "))).unwrap();
        group.figures.iter().find(|figure| figure.key == key).unwrap_or_else(|| panic!("{model}: {key}")).value
    };
    for model in ["unbiased", "careful", "first", "gullible", "junk"] {
        assert!(value(model, "M23").is_some(), "{model}: what advantage the first to offer has is said");
    }
    assert_eq!(value("first-by-arrival", "M23"), None, "nobody but the first was ever chosen");
    assert_eq!((value("first", "M25.0"), value("first-by-arrival", "M25.0")), (Some(1.0), Some(1.0)));
    assert!(value("unbiased", "M25.3").is_some_and(|share| share < 0.5), "no place of the list wins every other time");
    assert_eq!(value("gullible", "M30"), Some(0.0));
    assert_eq!(value("careful", "M30"), Some(0.0));
    assert!(value("gullible-quoted", "M30").unwrap() > 0.8);
    assert_eq!(value("junk", "model.fallbacks"), Some(1.0));
    assert!(value("careful", "model.tokens").unwrap() > 100.0 && value("careful", "model.cost").unwrap() > 0.0);
    assert_eq!(value("bargain-junk-scripted", "M33.surplus"), Some(0.0), "it is the script");
    assert!(value("bargain-junk-ends", "M33.surplus").unwrap() < 0.0, "it leaves");
    assert!(report.hypotheses.iter().any(|verdict| verdict.id == "H7" && !verdict.checks.is_empty()));
    assert_eq!(report.groups.len(), 11);
    assert!(report.groups.iter().all(|group| group.key.contains("deciders=stub")));
}
