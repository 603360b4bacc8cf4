//! M31 to M36: what bargains come to.

use super::group::Weighted;
use super::{Sheet, Wording};

const AGREED: &str = "no bargain agreed";
const VALUED: &str = "needs rounds that say what bargains are worth; those of plans do, older ones do not";
/// What begins the sums of first offers, by domain.
const ANCHOR: &str = "anchor x ";

/// Adds M31 to M36.
pub fn put(sheet: &mut Sheet<'_>) {
    let agreed = Wording {
        key: "M31",
        name: "agreement rate",
        unit: "share",
        definition: "bargains that ended in an agreement",
        needs: "no bargain was opened",
    };
    sheet.mean(&agreed, "agreed");
    let means = [
        ("M32", "offers to agreement", "offers", "offers made until the agreement", "turns", AGREED),
        (
            "M32.rounds",
            "rounds to agreement",
            "rounds",
            "the round in which all had accepted, from 1",
            "bargain rounds",
            VALUED,
        ),
        (
            "M32.time",
            "relative time to agreement",
            "share",
            "of the rounds that the rules allow",
            "relative time",
            VALUED,
        ),
        ("M33.welfare", "welfare", "utility", "sum of the parties' utilities of an agreement", "welfare", VALUED),
    ];
    for (key, name, unit, definition, sum, needs) in means {
        sheet.mean(&Wording { key, name, unit, definition, needs }, sum);
    }
    let by_name = [
        ("M33", "utility", "utility", "of the agreement; the reservation value where there was none", "utility "),
        (
            "M33.advantage",
            "advantage",
            "utility",
            "utility less the reservation value; 0 where there was no agreement",
            "advantage ",
        ),
        (
            "M34",
            "optimality",
            "share",
            "1 less the distance of an agreement to the point, in parts of the greatest there could be; of welfare: parts of the \
             greatest",
            "optimality ",
        ),
    ];
    for (key, name, unit, definition, prefix) in by_name {
        sheet.by_name_mean(&Wording { key, name, unit, definition, needs: VALUED }, prefix);
    }
    let anchoring = Wording {
        key: "M35",
        name: "anchoring",
        unit: "slope",
        definition: "slope of the agreement's utility to the first party on that of its first offer, within each domain",
        needs: "needs first offers that differ within a domain: a strategy that draws them, such as random",
    };
    let domains: Vec<String> = sheet.group.names(ANCHOR).map(|name| name[ANCHOR.len()..].to_owned()).collect();
    sheet.put(&anchoring, |seeds| slope(seeds, &domains));
    let irrational = Wording {
        key: "M36",
        name: "irrational agreements",
        unit: "share",
        definition: "of agreements those that a party may not make or that are worth less to it than none; none is allowed",
        needs: VALUED,
    };
    sheet.mean(&irrational, "irrational").theory = Some(0.0);
}

/// Least squares within each domain, over all of them together.
fn slope(seeds: Weighted<'_>, domains: &[String]) -> Option<f64> {
    let (mut covariance, mut variance) = (0.0, 0.0);
    for domain in domains {
        let sum = |of: &str| seeds.sum(&format!("anchor {of} {domain}"));
        let ((x, count), (y, _), (xx, _), (xy, _)) = (sum("x"), sum("y"), sum("xx"), sum("xy"));
        if count > 0.0 {
            covariance += xy - x * y / count;
            variance += xx - x * x / count;
        }
    }
    // First offers that are all alike leave rounding errors.
    (variance > 1e-9).then(|| covariance / variance)
}
