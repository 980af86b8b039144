//! Quoted text.

/// `strconv.Quote`: the text in double quotes, escaped as Go does it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                quoted.push_str(&format!("\\x{:02x}", c as u32))
            }
            c if is_print(c) => quoted.push(c),
            c if (c as u32) < 0x10000 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}

/// `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library knows which characters are printable, and says so only by escaping the others. A mark would be escaped
    // too if no letter stood before it.
    let mut text = [b'a'; 5];
    let bytes = 1 + c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..bytes]).unwrap_or_default();
    text.escape_debug().nth(1) != Some('\\')
}

/// The characters of a text that [`is_print`] refuses, with their byte positions.
pub fn unprintable(text: &str) -> impl Iterator<Item = (usize, char)> {
    text.char_indices().filter(|(_, c)| !is_print(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go 1.26 answers.
    #[test]
    fn printable_characters_are_those_that_go_prints() {
        let printable = ['a', ' ', '~', 'é', '\u{301}', '世', '€', '\u{fffd}', '🎉'];
        let others = [
            '\0',
            '\n',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{ad}',
            '\u{200b}',
            '\u{2028}',
            '\u{3000}',
            '\u{e000}',
            '\u{feff}',
            '\u{10ffff}',
        ];
        assert_eq!(printable.map(is_print), printable.map(|_| true));
        assert_eq!(others.map(is_print), others.map(|_| false));
    }

    #[test]
    fn text_is_quoted_as_go_quotes_it() {
        let text = "a\"\\\n\u{1}\u{7f}é\u{85}\u{200b}\u{10ffff}";
        assert_eq!(quote(text), r#""a\"\\\n\x01\x7fé\u0085\u200b\U0010ffff""#);
    }
}
