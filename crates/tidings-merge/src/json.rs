//! Text inside JSON.

/// Of each byte, how long a character is that starts with it and may have to be escaped; 0 if none does.
const SPECIAL: [u8; 256] = {
    let mut special = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        special[control] = 1;
        control += 1;
    }
    let bytes = b"\"\\<>&";
    let mut at = 0;
    while at < bytes.len() {
        special[bytes[at] as usize] = 1;
        at += 1;
    }
    special[0xe2] = 3; // separators of lines
    special
};

/// Appends text that stands in JSON as it is. False, and nothing is appended, if it does not.
pub(crate) fn push_if_plain(json: &mut String, text: &str) -> bool {
    let plain = text.bytes().all(|byte| SPECIAL[usize::from(byte)] == 0);
    if plain {
        json.push_str(text);
    }
    plain
}

/// Appends a JSON string as Go writes it: what could be taken for HTML, and the separators of lines, are escaped.
pub(crate) fn push_string(json: &mut String, text: &str) {
    json.push('"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let length = usize::from(SPECIAL[usize::from(byte)]);
        if length == 0 {
            continue;
        }
        let escape = match &text[at..at + length] {
            "\"" => "\\\"",
            "\\" => "\\\\",
            "\n" => "\\n",
            "\r" => "\\r",
            "\t" => "\\t",
            "\u{8}" => "\\b",
            "\u{c}" => "\\f",
            "<" => "\\u003c",
            ">" => "\\u003e",
            "&" => "\\u0026",
            "\u{2028}" => "\\u2028",
            "\u{2029}" => "\\u2029",
            _ if byte < 0x20 => "",
            _ => continue,
        };
        json.push_str(&text[written..at]);
        json.push_str(escape);
        if escape.is_empty() {
            json.push_str(&format!("\\u{byte:04x}"));
        }
        written = at + length;
    }
    json.push_str(&text[written..]);
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_were_written() {
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        for (name, text) in [
            ("every character", all.as_str()),
            ("none", ""),
            ("the end", "a\u{2028}"),
        ] {
            let mut json = String::new();
            push_string(&mut json, text);
            assert_eq!(
                serde_json::from_str::<String>(&json).unwrap(),
                text,
                "{name}"
            );
        }
    }

    #[test]
    fn go_escapes_what_could_be_html() {
        let mut json = String::new();
        push_string(&mut json, "<a>&\u{2028}\u{2029}\u{1}\u{20ac}\"");
        assert_eq!(json, r#""\u003ca\u003e\u0026\u2028\u2029\u0001€\"""#);
    }
}
