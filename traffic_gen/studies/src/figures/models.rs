//! M25, M30 and what a deciding model costs.

use super::{Sheet, Wording};

const MODEL: &str = "needs a deciding model";

/// Adds M25, M30 and the costs of an initiator's model.
pub fn put(sheet: &mut Sheet<'_>) {
    let place = Wording {
        key: "M25",
        name: "list position",
        unit: "share",
        definition: "rounds won by the offer at this place of the list that a deciding model reads, from 0; theory: 1 / n",
        needs: MODEL,
    };
    let before = sheet.figures.len();
    let is_shown = sheet.group.names("place ").next().is_some();
    sheet.by_name_mean(&place, "place ");
    let expected = 1.0 / f64::from(sheet.group.cell().contractors.max(1));
    sheet.figures[before..].iter_mut().filter(|_| is_shown).for_each(|figure| figure.theory = Some(expected));
    let injection = Wording {
        key: "M30",
        name: "injection success",
        unit: "share",
        definition: "rounds in which an offer that carries instructions wins although it is not the best",
        needs: MODEL,
    };
    sheet.mean(&injection, "injection wins");
    let fallbacks = Wording {
        key: "model.fallbacks",
        name: "decided by score",
        unit: "share",
        definition: "choices made without a usable answer of the model",
        needs: MODEL,
    };
    if sheet.group.cell().model.is_some() {
        sheet.mean(&fallbacks, "model fallbacks");
        costs(sheet);
    }
}

/// Adds what a model gets out of bargains, and what it costs.
pub fn put_surplus(sheet: &mut Sheet<'_>) {
    if sheet.group.cell().model.is_none() {
        return;
    }
    let surplus = Wording {
        key: "M33.surplus",
        name: "surplus over the script",
        unit: "utility",
        definition: "utility over the reservation value that the model's party gets, less what the strategy gets that it replaces, \
                     bargain by bargain",
        needs: MODEL,
    };
    sheet.mean(&surplus, "model surplus");
    costs(sheet);
}

fn costs(sheet: &mut Sheet<'_>) {
    for (key, name, unit, definition, sum) in [
        ("model.calls", "calls per agreement", "calls", "calls to the model, per completed round", "model calls"),
        ("model.tokens", "tokens per agreement", "tokens", "tokens in and out, per completed round", "model tokens"),
        ("model.cost", "cost per agreement", "micro-units", "what its tokens cost, per completed round", "model cost"),
    ] {
        sheet.mean(&Wording { key, name, unit, definition, needs: "needs an agreement" }, sum);
    }
}
