//! Cleans untrusted text for a language model. Pure.
//!
//! Anybody can send a cent with a text. It stays in a cell or member of its own: it has no line
//! breaks, no characters that a person does not see, a limited length, and nothing that becomes a
//! link.

/// Length of a text in a table, in characters.
pub(super) const CELL_CHARS_MAX: usize = 140;
/// Length of a text in a full row, in characters.
pub(super) const TEXT_CHARS_MAX: usize = 500;

/// Length of an id of a provider, in characters.
pub(super) const ID_CHARS_MAX: usize = 200;

/// An id or a symbol of a provider: exact but for invisible characters, and cut at `chars_max`.
pub(super) fn visible(text: &str, chars_max: usize) -> String {
    text.chars()
        .filter(|char| !char.is_control() && !is_invisible(*char))
        .take(chars_max)
        .collect()
}

/// The text without line breaks, control characters and invisible ones, cut at `chars_max`.
pub(super) fn clean(text: &str, chars_max: usize) -> String {
    let is_gap = |char: char| char.is_whitespace() || char.is_control();
    let mut cleaned = String::with_capacity(text.len().min(chars_max * 4));
    let mut chars = 0;
    for word in text.split(is_gap) {
        for (at, char) in word.chars().filter(|char| !is_invisible(*char)).enumerate() {
            let space = usize::from(at == 0 && !cleaned.is_empty());
            if chars + space >= chars_max {
                cleaned.push('…');
                return cleaned;
            }
            if space > 0 {
                cleaned.push(' ');
            }
            cleaned.push(char);
            chars += 1 + space;
        }
    }
    cleaned
}

/// The text as a cell of a Markdown table: cleaned, without what Markdown or HTML gives a meaning,
/// and without links.
pub(super) fn cell(text: &str) -> String {
    cell_of(text, CELL_CHARS_MAX)
}

/// As [`cell`], cut at `chars_max`.
pub(super) fn cell_of(text: &str, chars_max: usize) -> String {
    let cleaned = clean(text, chars_max);
    let mut cell = String::with_capacity(cleaned.len());
    for char in cleaned.chars() {
        cell.push(match char {
            '|' => '/',
            '`' => '\'',
            '[' | '<' => '(',
            ']' | '>' => ')',
            '\\' => '/',
            other => other,
        });
        if char == '@' {
            cell.push(' ');
        }
    }
    // A removed character at the end leaves a space.
    unlink(cell.trim_end())
}

/// Breaks `https://` and `www.` apart, which programs turn into links, as `@` in [`cell`].
fn unlink(text: &str) -> String {
    let mut unlinked = text.replace("://", ": //");
    // ASCII only, so that the positions stay the same.
    while let Some(at) = unlinked.to_ascii_lowercase().find("www.") {
        unlinked.insert(at + 3, ' ');
    }
    unlinked
}

/// Characters that take no space, change the direction of others, or have no agreed meaning. Hidden
/// texts use them.
fn is_invisible(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffc}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hidden_characters_and_line_breaks_are_removed() {
        for (text, expected) in [
            ("COFFEE & CO", "COFFEE & CO"),
            ("  two\r\n\tlines\u{2028}here\u{0}!  ", "two lines here !"),
            (
                "soft\u{ad}hyphen zero\u{200b}width \u{202e}right-to-left\u{202c}",
                "softhyphen zerowidth right-to-left",
            ),
            (
                "\u{feff}tags\u{e0069}\u{e0067}\u{e007f} \u{fe0f}\u{e0100}",
                "tags",
            ),
            ("Café — naïve ☕ 東京", "Café — naïve ☕ 東京"),
            ("\u{200b} \n", ""),
        ] {
            assert_eq!(clean(text, 140), expected, "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(clean("abc def", 7), "abc def");
        assert_eq!(clean("abc def", 6), "abc de…");
        assert_eq!(clean("abc def", 3), "abc…");
        assert_eq!(clean(&"😀".repeat(300), 140).chars().count(), 141);
    }

    #[test]
    fn cells_cannot_break_the_table_or_become_links() {
        for (text, expected) in [
            ("a | b `c` \\| d", "a / b 'c' // d"),
            (
                "[click](https://evil.example)",
                "(click)(https: //evil.example)",
            ),
            (
                "<img src=x> WWW.evil.example",
                "(img src=x) WWW .evil.example",
            ),
            ("see www.www.evil", "see www .www .evil"),
            ("pay a@evil.example @", "pay a@ evil.example @"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    proptest! {
        #[test]
        fn cells_are_short_visible_and_plain(
            text in "\\PC{0,400}|[ -~\\u{0}-\\u{2100}\\u{e0000}-\\u{e01ff}|`<]{0,400}",
        ) {
            let cell = cell(&text);
            prop_assert!(cell.chars().count() <= 2 * (CELL_CHARS_MAX + 1));
            let bad = |char: char| char.is_control() || is_invisible(char) || "|`[]<>\\".contains(char);
            prop_assert!(!cell.contains(bad));
            prop_assert!(!cell.contains("://") && !cell.to_ascii_lowercase().contains("www."));
            prop_assert_eq!(cell.trim(), &cell);
        }
    }
}
