//! The plans that come along.

/// Names and texts of the plans that come along.
pub const PRESETS: [(&str, &str); 7] = [
    ("paper", include_str!("../../plans/paper.toml")),
    ("policies", include_str!("../../plans/policies.toml")),
    ("population", include_str!("../../plans/population.toml")),
    ("faults", include_str!("../../plans/faults.toml")),
    ("griefing", include_str!("../../plans/griefing.toml")),
    ("claims", include_str!("../../plans/claims.toml")),
    ("bargains", include_str!("../../plans/bargains.toml")),
];

/// The text of a plan by its name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Asked, read};

    #[test]
    fn every_plan_that_comes_along_is_a_plan_under_its_name() {
        for (name, text) in PRESETS {
            let plan = read(name, text, Asked::default()).unwrap();
            assert_eq!(plan.name, name);
            assert!(!plan.cells.is_empty());
        }
    }

    #[test]
    fn the_paper_is_run_in_both_readings_and_three_sizes_and_for_as_long_as_it_was() {
        let plan = read("paper", preset("paper").unwrap(), Asked::default()).unwrap();
        let count = |of: &dyn Fn(&crate::plan::CellSpec) -> bool| plan.cells.iter().filter(|cell| of(cell)).count();
        assert_eq!(count(&|cell| cell.id.starts_with("short-")), 3 * 6 * 3);
        assert_eq!(count(&|cell| cell.duration_s == 7_200.0 && cell.contractors == 12), 2);
        assert_eq!(count(&|cell| cell.duration_s == 43_200.0 && cell.policy.name() == "high"), 1);
        // The rate under which the paper's three long runs had 145, 129 and 806 rounds.
        assert!(plan.cells.iter().all(|cell| (cell.rate * 60.0 - 1.125).abs() < 1e-9));
        let scaled = Asked { time_scale: Some(60.0), ..Asked::default() };
        let minutes = read("paper", preset("paper").unwrap(), scaled).unwrap().length_s() / 60.0;
        assert!(minutes < 18.5, "{minutes} minutes and the starts of its cells");
    }
}
