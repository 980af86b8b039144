//! JSON with line breaks, as Go indents it: two spaces a level, nothing between the brackets of what is empty.

/// Indents JSON that comes in pieces. The input must be compact.
#[derive(Debug, Default)]
pub struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// A bracket was opened and nothing has followed it yet.
    opened: bool,
}

impl Indenter {
    /// Indents the next piece. Line breaks at the end of the document are dropped (W5).
    pub fn push(&mut self, json: &[u8], out: &mut Vec<u8>) {
        out.reserve(json.len() * 2);
        for byte in json.iter().copied() {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if closes {
                self.depth = self.depth.saturating_sub(1);
            }
            if std::mem::replace(&mut self.opened, false) != closes {
                self.line(out);
            }
            match byte {
                b'\n' => continue,
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                }
                _ => {}
            }
            out.push(byte);
            match byte {
                b',' => self.line(out),
                b':' => out.push(b' '),
                _ => {}
            }
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', 2 * self.depth));
    }
}

/// A whole document.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Indenter::default().push(json, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use crate::Value;

    use super::*;

    const DOCUMENTS: [&str; 4] = [
        r#"{"a":[],"b":{},"c":[1,2,{"d":"x,y:{}[]\"\\"}],"e":null}"#,
        r#"{}"#,
        r#"[[[]],[{}],""]"#,
        r#"{"k":{"k":{"k":[{"v":-1.5e3},true]}}}"#,
    ];

    /// serde_json indents as Go does.
    fn expected(json: &str) -> String {
        let value: Value = serde_json::from_str(json).unwrap();
        serde_json::to_string_pretty(&value)
            .unwrap()
            .replace("-1500.0", "-1.5e3")
    }

    #[test]
    fn w5_w6_documents_are_indented_by_two_spaces_and_end_without_a_line_break() {
        for json in DOCUMENTS {
            let indented = String::from_utf8(indent(format!("{json}\n").as_bytes())).unwrap();
            assert_eq!(indented, expected(json));
        }
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        for json in DOCUMENTS {
            let mut indenter = Indenter::default();
            let mut out = Vec::new();
            for byte in json.as_bytes() {
                indenter.push(&[*byte], &mut out);
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected(json));
        }
    }
}
