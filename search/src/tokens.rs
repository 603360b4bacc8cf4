//! The words of a text (docs/spec/search.md#se-8). No character is syntax, and no text is refused.

/// Longest token, in characters; what a longer word has beyond it is not read.
pub const TOKEN_CHARS_MAX: usize = 40;

/// The tokens of a text, in order, repeated ones included.
///
/// Letters and digits form words, in lower case. Han, Hiragana, Katakana and Thai are written without spaces: a run of
/// them gives its overlapping pairs of characters, and a character that stands alone itself. Everything else separates.
#[must_use]
pub fn tokens(text: &str) -> Vec<String> {
    let mut splitter = Splitter::default();
    text.chars().for_each(|character| splitter.handle(character));
    splitter.end();
    splitter.tokens
}

/// Splits a text, a character at a time.
#[derive(Default)]
struct Splitter {
    tokens: Vec<String>,
    /// The word that is being read, and how many characters it has.
    word: String,
    word_chars: usize,
    /// The last character of a run without spaces, and whether it stands in a pair already.
    last: Option<(char, bool)>,
}

impl Splitter {
    fn handle(&mut self, character: char) {
        if is_written_without_spaces(character) {
            self.end_word();
            if let Some((before, _)) = self.last {
                self.tokens.push([before, character].iter().collect());
            }
            self.last = Some((character, self.last.is_some()));
        } else if character.is_alphanumeric() {
            self.end_run();
            for lower in character.to_lowercase().map(without_final_form) {
                if self.word_chars < TOKEN_CHARS_MAX {
                    self.word.push(lower);
                    self.word_chars += 1;
                }
            }
        } else {
            self.end();
        }
    }

    fn end(&mut self) {
        self.end_word();
        self.end_run();
    }

    fn end_word(&mut self) {
        if !self.word.is_empty() {
            self.tokens.push(std::mem::take(&mut self.word));
            self.word_chars = 0;
        }
    }

    fn end_run(&mut self) {
        if let Some((alone, false)) = self.last.take() {
            self.tokens.push(alone.to_string());
        }
    }
}

/// The Greek sigma has another form at the end of a word, which its capital has not.
fn without_final_form(lower: char) -> char {
    if lower == 'ς' { 'σ' } else { lower }
}

/// Han, Hiragana, Katakana, and Thai without its digits.
fn is_written_without_spaces(character: char) -> bool {
    matches!(
        character,
        '\u{3005}' | '\u{3007}'
            | '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{323AF}'
            | '\u{3041}'..='\u{3096}'
            | '\u{309D}'..='\u{309F}'
            | '\u{30A1}'..='\u{30FA}'
            | '\u{30FC}'..='\u{30FF}'
            | '\u{31F0}'..='\u{31FF}'
            | '\u{FF66}'..='\u{FF9D}'
            | '\u{0E01}'..='\u{0E3A}'
            | '\u{0E40}'..='\u{0E4E}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        let rows: [(&str, &[&str]); 9] = [
            ("Multi-Agent systems, 2nd edition", &["multi", "agent", "systems", "2nd", "edition"]),
            ("vision_v2.1", &["vision", "v2", "1"]),
            ("ÉCOLE straße ΣΊΣΥΦΟΣ Σίσυφος", &["école", "straße", "σίσυφοσ", "σίσυφοσ"]),
            ("AND OR \"x\" field:y z* (((", &["and", "or", "x", "field", "y", "z"]),
            ("a\u{200F}b\u{0}c", &["a", "b", "c"]),
            ("東京都 と x", &["東京", "京都", "と", "x"]),
            ("カメラ2台", &["カメ", "メラ", "2", "台"]),
            ("ภาษา", &["ภา", "าษ", "ษา"]),
            (" \t…!", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn a_long_word_is_cut_and_its_rest_is_no_word() {
        let cut = "x".repeat(TOKEN_CHARS_MAX);
        assert_eq!(tokens(&format!("{} y", "X".repeat(400))), [cut.as_str(), "y"]);
    }
}
