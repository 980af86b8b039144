//! Writes JSON with the escapes of Go: `<`, `>`, `&`, U+2028 and U+2029 are escaped too.

use crate::Value;

/// A buffer that JSON is written to.
pub trait JsonOutput {
    /// Appends text.
    fn put(&mut self, text: &str);

    /// Appends an ASCII character.
    fn put_byte(&mut self, byte: u8);
}

impl JsonOutput for String {
    #[inline]
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.push(char::from(byte));
    }
}

impl JsonOutput for Vec<u8> {
    #[inline]
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

impl Value {
    /// Appends the value as compact JSON.
    pub fn write(&self, json: &mut impl JsonOutput) {
        match self {
            Value::Null => json.put("null"),
            Value::Bool(true) => json.put("true"),
            Value::Bool(false) => json.put("false"),
            Value::Number(number) => json.put(&number.to_string()),
            Value::String(text) => write_string(json, text),
            Value::Array(values) => {
                json.put_byte(b'[');
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        json.put_byte(b',');
                    }
                    value.write(json);
                }
                json.put_byte(b']');
            }
            Value::Object(members) => {
                json.put_byte(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        json.put_byte(b',');
                    }
                    write_string(json, name);
                    json.put_byte(b':');
                    value.write(json);
                }
                json.put_byte(b'}');
            }
        }
    }
}

/// For each byte: 0 if no character that starts with it is escaped, else the length in bytes of those characters.
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

/// True if no character of the text is escaped in JSON.
#[inline]
pub fn is_plain(text: &str) -> bool {
    let mut blocks = text.as_bytes().chunks_exact(BLOCK);
    // Without an early end inside a block: the compiler looks at many bytes at once then.
    let plain = blocks.all(|block| {
        !block
            .iter()
            .fold(false, |found, byte| found | is_special(*byte))
    });
    plain
        && blocks
            .remainder()
            .iter()
            .all(|byte| SPECIAL[usize::from(*byte)] == 0)
}

/// How many bytes are looked at between two ends.
const BLOCK: usize = 64;

/// True if [`SPECIAL`] is not zero.
#[inline]
fn is_special(byte: u8) -> bool {
    (byte < 0x20)
        | (byte == b'"')
        | (byte == b'\\')
        | (byte == b'<')
        | (byte == b'>')
        | (byte == b'&')
        | (byte == 0xe2)
}

/// Appends text as a JSON string.
pub fn write_string(json: &mut impl JsonOutput, text: &str) {
    json.put_byte(b'"');
    if is_plain(text) {
        json.put(text);
    } else {
        write_escaped(json, text);
    }
    json.put_byte(b'"');
}

fn write_escaped(json: &mut impl JsonOutput, text: &str) {
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
        json.put(&text[written..at]);
        json.put(escape);
        if escape.is_empty() {
            json.put(&format!("\\u{byte:04x}"));
        }
        written = at + length;
    }
    json.put(&text[written..]);
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
            write_string(&mut json, text);
            let read: String = serde_json::from_str(&json).unwrap();
            assert_eq!(read, text, "{name}");
        }
    }

    #[test]
    fn what_could_be_html_is_escaped() {
        let mut json = String::new();
        write_string(&mut json, "<a>&\u{2028}\u{2029}\u{1}\u{20ac}\"");
        assert_eq!(json, r#""\u003ca\u003e\u0026\u2028\u2029\u0001€\"""#);
    }
}
