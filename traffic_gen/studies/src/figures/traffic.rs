//! M1 to M12 and M26 to M29: time, messages, completeness, faults.

use super::{Sheet, Wording};

const DECIDED: &str = "no call was decided; needs rounds with an award";

/// Adds M1 to M12 and M26 to M29.
pub fn put(sheet: &mut Sheet<'_>) {
    times(sheet);
    messages(sheet);
    completeness(sheet);
    faults(sheet);
}

fn times(sheet: &mut Sheet<'_>) {
    sheet.absent(&Wording {
        key: "M1",
        name: "time to close",
        unit: "ms",
        definition: "from the call to the close of its collection",
        needs: "agents do not see the close; needs the engine's decision records. M2 is never shorter",
    });
    let latencies = [
        (
            "M2",
            "time to award",
            "from the intended time of the call to its award, as the initiator learns it",
            "award",
            DECIDED,
        ),
        (
            "M2d",
            "time to decision",
            "the same of calls that were decided without an award as well",
            "decision",
            DECIDED,
        ),
        (
            "M3",
            "time to confirmation",
            "from the intended time of the call to a binding award",
            "confirm",
            "no award was confirmed; needs a policy that awards",
        ),
        (
            "M4",
            "time to end",
            "from the intended time of the call to the negotiation's end",
            "end",
            "no negotiation ended",
        ),
        (
            "M4o",
            "time to offer",
            "from the intended time of the call to the admission of each offer",
            "offer",
            "no offer was stored",
        ),
    ];
    for (key, name, definition, sum, needs) in latencies {
        sheet.latency(&Wording { key, name, unit: "ms", definition, needs }, sum, None);
    }
    let lag = Wording {
        key: "M4l",
        name: "schedule lag",
        unit: "ms",
        definition: "from the intended time of the call to its sending; part of every latency above",
        needs: "no call was made",
    };
    sheet.put(&lag, |seeds| Some(seeds.mean("lag")? / 1e3));
}

fn messages(sheet: &mut Sheet<'_>) {
    let needs = "no call was admitted";
    let per_negotiation = [
        ("M5", "messages sent", "messages", "distinct messages that agents sent, per negotiation", "messages.sent"),
        (
            "M5d",
            "messages delivered",
            "messages",
            "distinct deliveries to agents, per negotiation",
            "messages.delivered",
        ),
        ("M5b", "bytes sent", "B", "bytes of the messages that agents sent, per negotiation", "bytes.sent"),
        ("M5e", "bytes delivered", "B", "bytes of the deliveries to agents, per negotiation", "bytes.delivered"),
        ("M6", "wasted offers", "offers", "valid offers that came after the close, per negotiation", "wasted"),
        ("M7", "retries", "messages", "messages that agents sent again, per negotiation", "retries"),
        ("M7d", "duplicates", "deliveries", "deliveries that came again, per negotiation", "duplicates"),
    ];
    for (key, name, unit, definition, sum) in per_negotiation {
        sheet.put(&Wording { key, name, unit, definition, needs }, |seeds| seeds.per_round(sum));
    }
    let by_act = [
        ("M5", "messages sent", "messages", "messages.sent."),
        ("M5d", "messages delivered", "messages", "messages.delivered."),
        ("M5b", "bytes sent", "B", "bytes.sent."),
        ("M5e", "bytes delivered", "B", "bytes.delivered."),
    ];
    for (key, name, unit, prefix) in by_act {
        sheet.by_name(&Wording { key, name, unit, definition: "the same of one act", needs }, prefix);
    }
}

fn completeness(sheet: &mut Sheet<'_>) {
    let completed = Wording {
        key: "M8",
        name: "completion rate",
        unit: "share",
        definition: "calls whose negotiation completed, or agreed, among all calls, refused ones included",
        needs: "no call was made",
    };
    sheet.mean(&completed, "completed");
    let shares = [
        ("M9", "award rate", "negotiations with an award", "awarded"),
        ("M10", "response completeness", "contractors that offered in time or refused, among the invited", "answered"),
        ("M12", "empty-round rate", "negotiations without a valid offer in time", "empty"),
    ];
    for (key, name, definition, sum) in shares {
        let needs = "a bargain has no collection; needs contract nets";
        sheet.mean(&Wording { key, name, unit: "share", definition, needs }, sum);
    }
    let missed = Wording {
        key: "M11",
        name: "deadline-hit rate",
        unit: "share",
        definition: "negotiations in which a policy that waits for all did not get all answers; theory: 1 - q^n, where q is M10",
        needs: "only of policies that wait for all does a record show that the deadline closed; needs the engine's decision records",
    };
    if !sheet.group.waits_for_all() {
        return sheet.absent(&missed);
    }
    let answered = sheet.group.whole(|seeds| seeds.mean("answered"));
    let contractors = sheet.group.cell().contractors;
    let figure = sheet.put(&missed, |seeds| Some(1.0 - seeds.mean("all answered")?));
    figure.theory = answered.map(|answered| 1.0 - answered.powf(f64::from(contractors)));
}

fn faults(sheet: &mut Sheet<'_>) {
    let under_faults = Wording {
        key: "M26",
        name: "completion under faults",
        unit: "share",
        definition: "M8 at the fault mix of this group; the curve is that of groups that differ in it",
        needs: "these rounds have no fault mix; needs cells with the label `faults`",
    };
    let has_faults = sheet.group.cell().labels.contains_key("faults");
    sheet.put(&under_faults, |seeds| has_faults.then(|| seeds.mean("completed"))?);
    let saved = Wording {
        key: "M27",
        name: "re-award success",
        unit: "share",
        definition: "negotiations with a binding award among those whose first award was not confirmed",
        needs: "every first award was confirmed; needs contractors that decline",
    };
    sheet.mean(&saved, "saved");
    let delay = Wording {
        key: "M27d",
        name: "re-award delay",
        unit: "ms",
        definition: "from the first award to the second",
        needs: "no award was made again; needs contractors that decline",
    };
    sheet.put(&delay, |seeds| Some(seeds.mean("next award")? / 1e3));
    let violations = Wording {
        key: "M28",
        name: "violations",
        unit: "violations",
        definition: "violations of invariants in all cells; none is allowed",
        needs: "no cell",
    };
    let figure = sheet.put(&violations, |seeds| {
        Some(seeds.over_seeds(|tally| Some(tally.cell.violations.values().sum::<u64>() as f64)).0)
    });
    (figure.interval, figure.theory) = (None, Some(0.0));
    let dispositions = Wording {
        key: "M29",
        name: "dispositions",
        unit: "messages",
        definition: "messages that the exchange gave this disposition, per negotiation",
        needs: "every message was applied",
    };
    sheet.by_name(&dispositions, "disposition.");
}
