//! Dialogues of which half is repetition (docs/spec/team.md#tm-52): how much of it members are still told, what is found, and
//! what is taken for a repetition and is none.

use schemas::Act;
use schemas::delivery::Notification;
use schemas::team::Spoken;
use serde_json::json;

use crate::draws::Draws;
use crate::gathering::Gathering;

/// Dialogues for each way to repeat a say.
const DIALOGUES: u64 = 50;
/// Says of each, half of which repeat one of the latest.
const SAYS: usize = 40;
/// How far back a repeated say lies at most, in says that are none: within the sixteen that are compared, whatever is found.
const BACK: usize = 7;
/// Words of a say.
const WORDS: std::ops::RangeInclusive<usize> = 20..=100;
/// Different words there are.
const VOCABULARY: usize = 2_000;

/// How a say repeats another.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Word for word.
    Nothing,
    /// In capitals, or with other white space.
    Case,
    /// With another sign at the end.
    LastSign,
    /// With other commas and ends of sentences, all of them.
    EverySign,
    /// With another word in twenty.
    OneWordInTwenty,
}

const CHANGES: [Change; 5] =
    [Change::Nothing, Change::Case, Change::LastSign, Change::EverySign, Change::OneWordInTwenty];

/// What was said in dialogues in which says are repeated in one way.
#[derive(Default)]
struct Tally {
    characters: usize,
    /// Those that the other member was told.
    told: usize,
    repeats: usize,
    found: usize,
    distinct: usize,
    /// Of the distinct ones, those that were taken for repetitions.
    flagged: usize,
}

impl Tally {
    fn told_per_mille(&self) -> usize {
        self.told * 1000 / self.characters
    }

    fn found_per_mille(&self) -> usize {
        self.found * 1000 / self.repeats
    }

    fn flagged_per_mille(&self) -> usize {
        self.flagged * 1000 / self.distinct
    }
}

#[test]
fn of_dialogues_that_are_half_repetition_members_are_told_about_half() {
    let tallies = CHANGES.map(|change| (change, tally(change)));
    for (change, tally) in &tallies {
        let (told, found, flagged) = (tally.told_per_mille(), tally.found_per_mille(), tally.flagged_per_mille());
        println!(
            "repeats {change:?} told_per_mille {told} found_per_mille {found} distinct_flagged_per_mille {flagged}"
        );
        assert!(flagged <= 10, "{change:?}");
        let least = match change {
            Change::Nothing | Change::Case | Change::LastSign | Change::EverySign => 1000,
            Change::OneWordInTwenty => 950,
        };
        assert!(found >= least && told <= 550, "{change:?}");
    }
}

/// Plays dialogues in which says are repeated in this way.
fn tally(change: Change) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..DIALOGUES {
        let mut team = Gathering::of(&["alice", "bob"], json!({"on_repeat": "reference", "turns": 100}));
        let dialogue = dialogue(&mut Draws::of(seed), change);
        for (index, text) in dialogue.into_iter().enumerate() {
            let (speaker, hearer) = if index % 2 == 0 { ("alice", "bob") } else { ("bob", "alice") };
            let at_ms = 20 + u64::try_from(index).expect("few");
            let heard = team.say(at_ms, speaker, Act::Say, json!({"text": text}));
            assert!(heard.contains(&format!("{speaker}<ack:ok")), "{heard:?}");
            let Notification::Floor(floor) = &*team.script.last(hearer, Act::Floor).told else { panic!("a notice") };
            let repeats = match floor.said.as_ref().expect("a say") {
                Spoken::Text { .. } => 0,
                Spoken::Repeats { .. } => 1,
            };
            tally.characters += text.chars().count();
            tally.told += text.chars().count() * (1 - repeats);
            if is_repeated(index) {
                tally.repeats += 1;
                tally.found += repeats;
            } else {
                tally.distinct += 1;
                tally.flagged += repeats;
            }
        }
    }
    tally
}

/// Whether the say at this place repeats an earlier one: every other does.
fn is_repeated(index: usize) -> bool {
    index % 2 == 1
}

/// Says, half of which repeat one of the latest.
fn dialogue(draws: &mut Draws, change: Change) -> Vec<String> {
    let mut originals: Vec<Vec<String>> = Vec::new();
    let says = (0..SAYS).map(|index| {
        if is_repeated(index) {
            let latest = originals.len().saturating_sub(BACK);
            let which = latest + draws.below(originals.len() - latest);
            return changed(&originals[which], change, draws);
        }
        originals.push(sentence(draws));
        originals[originals.len() - 1].join(" ")
    });
    says.collect()
}

/// Words, of which some end with a comma, and the last with a full stop.
fn sentence(draws: &mut Draws) -> Vec<String> {
    let length = WORDS.start() + draws.below(WORDS.end() - WORDS.start() + 1);
    let mut words: Vec<String> = (0..length).map(|_| word(draws)).collect();
    for (index, word) in words.iter_mut().enumerate() {
        if index + 1 == length {
            word.push('.');
        } else if draws.one_in(12) {
            word.push(',');
        }
    }
    words
}

fn word(draws: &mut Draws) -> String {
    format!("word{}", draws.below(VOCABULARY))
}

fn changed(words: &[String], change: Change, draws: &mut Draws) -> String {
    let mut words = words.to_vec();
    match change {
        Change::Nothing => {}
        Change::Case => return words.join("  ").to_uppercase(),
        Change::LastSign => {
            let last = words.pop().expect("words").replace('.', "!");
            words.push(last);
        }
        Change::EverySign => words.iter_mut().for_each(|word| *word = word.replace(['.', ','], ";")),
        Change::OneWordInTwenty => {
            let count = words.len() / 20;
            let mut places: Vec<usize> = (0..words.len()).collect();
            draws.shuffle(&mut places);
            for place in places.into_iter().take(count) {
                words[place] = word(draws);
            }
        }
    }
    words.join(" ")
}
