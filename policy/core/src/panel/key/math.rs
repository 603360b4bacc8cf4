//! The normal form of the MATH data set's answers (docs/spec/panel-answers.md#pa-6): the steps of its published
//! `is_equiv`, in their order. What its program fails on stays as it is here.

/// Characters before the only `=` that are taken for the name of what is asked for.
const NAME_CHARACTERS_MAX: usize = 2;
/// What is replaced before units are cut off, in this order.
const REPLACED: [(&str, &str); 11] = [
    ("\r", ""),
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
];

/// The normal form of an answer.
pub(super) fn key(text: &str) -> String {
    let mut text = REPLACED.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    if let Some(units) = text.find("\\text{ ") {
        text.truncate(units);
    }
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.");
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    let text = with_braced_roots(without_name(&text)).replace(|letter: char| letter.is_ascii_whitespace(), "");
    let text = with_braced_fractions(&text);
    if text == "0.5" {
        return "\\frac{1}{2}".to_owned();
    }
    of_integers(&text).unwrap_or(text)
}

/// Without `x =`, where it is the only `=`.
fn without_name(text: &str) -> &str {
    match text.split_once('=') {
        Some((name, value)) if !value.contains('=') && name.chars().count() <= NAME_CHARACTERS_MAX => value,
        _ => text,
    }
}

/// `\sqrt3` as `\sqrt{3}`.
fn with_braced_roots(text: &str) -> String {
    let mut parts = text.split("\\sqrt");
    let mut braced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        braced.push_str("\\sqrt");
        match part.chars().next() {
            Some(radicand) if radicand != '{' => {
                push_braced(&mut braced, radicand);
                braced.push_str(&part[radicand.len_utf8()..]);
            }
            _ => braced.push_str(part),
        }
    }
    braced
}

/// `\frac12` as `\frac{1}{2}`, and `\frac1{72}` as `\frac{1}{72}`. A text in which one of them lacks its denominator stays as
/// it is.
fn with_braced_fractions(text: &str) -> String {
    let mut parts = text.split("\\frac");
    let mut braced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        braced.push_str("\\frac");
        if part.starts_with('{') {
            braced.push_str(part);
            continue;
        }
        let mut letters = part.chars();
        let (Some(numerator), Some(denominator)) = (letters.next(), letters.next()) else {
            return text.to_owned();
        };
        push_braced(&mut braced, numerator);
        if denominator == '{' {
            braced.push(denominator);
        } else {
            push_braced(&mut braced, denominator);
        }
        braced.push_str(letters.as_str());
    }
    braced
}

fn push_braced(text: &mut String, letter: char) {
    text.extend(['{', letter, '}']);
}

/// `a/b` of two integers as `\frac{a}{b}`; nothing for anything else.
fn of_integers(text: &str) -> Option<String> {
    let (numerator, denominator) = text.split_once('/')?;
    let is_integer = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = digits == "0" && text == "0" || !digits.is_empty() && !digits.starts_with('0');
        is_plain && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    (is_integer(numerator) && is_integer(denominator)).then(|| format!("\\frac{{{numerator}}}{{{denominator}}}"))
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn answers_that_mean_the_same_have_one_normal_form() {
        let alike: [&[&str]; 14] = [
            &[
                "\\frac{1}{2}",
                "\\tfrac12",
                "\\dfrac{1}{2}",
                "\\frac1{2}",
                "1/2",
                "0.5",
                ".5",
                " \\frac{ 1 }{ 2 }",
                "x = 0.5",
            ],
            &["\\sqrt{3}", "\\sqrt3", "k=\\sqrt{3}"],
            &["2\\sqrt{3}+\\sqrt{5}", "2\\sqrt3 + \\sqrt5"],
            &["(1,2)", "\\left(1, 2\\right)", "\\left( 1,\\!2 \\right)"],
            &["90", "90^\\circ", "90^{\\circ}", "90\\%", "\\$90", "9\n0"],
            &["5", "5 \\text{ cm}", "5\\text{ m \\text{ s}"],
            &["\\begin{pmatrix}1\\2\\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"],
            &["{0.25}", "{.25}"],
            &["a=b=c", "a = b = c"],
            &["abc=5", "abc = 5"],
            &["-3/4", "\\frac{-3}{4}"],
            &["\\frac{7}{-2}", "7/-2"],
            &["\\sqrt", " \\sqrt"],
            &["\\frac1", "\\frac 1"],
        ];
        for texts in alike {
            let keys: Vec<String> = texts.iter().map(|text| key(text)).collect();
            assert!(keys.iter().all(|other| *other == keys[0]), "{keys:?}");
        }
        let keys: std::collections::BTreeSet<String> = alike.iter().map(|texts| key(texts[0])).collect();
        assert_eq!(keys.len(), alike.len());
    }

    #[test]
    fn what_only_looks_like_a_fraction_of_integers_stays() {
        for text in
            ["01/2", "1/02", "+1/2", "1/2/3", "-0/2", "a/b", "1/", "/2", "--1/2", "\\sqrt{2}/2", "\\text{no}", ""]
        {
            assert_eq!(key(text), text);
        }
    }
}
