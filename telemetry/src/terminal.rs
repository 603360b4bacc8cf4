//! Texts as they may reach a terminal: agents and gateways say what they like, and a terminal obeys escape sequences.

/// Whether a terminal acts upon a character instead of showing it, or shows nothing for it: control characters of ASCII and of
/// Latin-1, separators of lines and paragraphs, what changes the direction of writing, and what has no width and joins
/// nothing. Joiners and variation selectors stay: scripts and emoji need them.
pub fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{200b}'
            | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A text with its line feeds and tabs, and a space for every other control character.
pub fn lines(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) && !is_layout(letter) { ' ' } else { letter }).collect()
}

/// A text on one line, with a space for every control character.
pub fn one_line(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) { ' ' } else { letter }).collect()
}

/// A JSON text of the same meaning in which every control character of a string is escaped; `serde_json` escapes those
/// below U+0020 only.
pub fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_control(letter) && !is_layout(letter) {
            escaped.extend(letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// What the program's own texts are laid out with.
fn is_layout(letter: char) -> bool {
    matches!(letter, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ESC, BEL, DEL, CSI, OSC, a line separator, bidirectional controls, and what shows nothing.
    const HOSTILE: &str =
        "\u{1b}\u{7}\u{7f}\u{9b}\u{9d}\u{2028}\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{2060}\u{feff}\u{ad}\u{e0041}";

    #[test]
    fn no_character_reaches_a_terminal_that_it_would_obey() {
        let shown = " ".repeat(HOSTILE.chars().count());
        assert_eq!(one_line(&format!("a{HOSTILE}\r\n\tb")), format!("a{shown}   b"));
        assert_eq!(lines(&format!("a{HOSTILE}\r\n\tb")), format!("a{shown} \n\tb"));
        for fine in ["", "Grüße, 東京, שלום, مرحبا", "👩‍👩‍👧 é"] {
            assert_eq!((one_line(fine), lines(fine), json(fine)), (fine.to_owned(), fine.to_owned(), fine.to_owned()));
        }
    }

    #[test]
    fn a_json_text_keeps_its_meaning_and_escapes_what_a_terminal_would_obey() {
        let document = serde_json::json!({ HOSTILE: [HOSTILE, 1] });
        for text in [serde_json::to_string(&document).unwrap(), serde_json::to_string_pretty(&document).unwrap()] {
            let escaped = json(&text);
            assert!(escaped.contains("\\u009b\\u009d\\u2028\\u202e"), "{escaped}");
            assert!(!escaped.chars().any(|letter| is_control(letter) && letter != '\n'), "{escaped:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), document);
        }
    }
}
