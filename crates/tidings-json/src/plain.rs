//! A fast reader for the most common JSON: strings without escapes, integers, names that occur once.
//!
//! It gives up on all other documents, and the caller then uses serde_json, which also reports errors. On common documents it takes a
//! third of the instructions of serde_json; reading objects is much of the work of a write request.

use crate::{Map, Value, map};

/// Deeper values are left to serde_json, which has its own limit.
const DEPTH_MAX: usize = 64;
/// Bytes below it are control characters.
const SPACE: u8 = b' ';

/// The position of the first quote or backslash. Short strings are the rule, and a call of memchr costs more than they do.
#[inline]
pub(crate) fn find_quote_or_escape(bytes: &[u8], start: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    const NEAR: usize = 64;
    /// Sets the highest bit of each byte that equals `byte`. Bits behind the first one may be set wrongly.
    const fn equal(word: u64, byte: u8) -> u64 {
        let word = word ^ (ONES * byte as u64);
        word.wrapping_sub(ONES) & !word
    }
    let rest = bytes.get(start..)?;
    let (words, _) = rest[..rest.len().min(NEAR)].as_chunks();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = (equal(word, b'"') | equal(word, b'\\')) & HIGH;
        if found != 0 {
            return Some(start + at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let near = words.len() * 8;
    let far = memchr::memchr2(b'"', b'\\', &rest[near..])?;
    Some(start + near + far)
}

/// Reads a document from its start. A method returns `None` if the document is not of the common form; the reader cannot be used
/// after that.
#[derive(Debug)]
pub struct Plain<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// The document has control characters, so strings are checked for them.
    controls: bool,
    /// A stack of the members of all open objects, the innermost last. At the end of an object their number is known, and they
    /// are moved into a map of the right size.
    members: Vec<(String, Value)>,
}

impl<'a> Plain<'a> {
    /// A reader at the start of a document.
    pub fn new(text: &'a str) -> Plain<'a> {
        Plain {
            text,
            at: 0,
            depth: 0,
            controls: text.bytes().fold(u8::MAX, u8::min) < SPACE,
            members: Vec::new(),
        }
    }

    /// Reads a whole document.
    pub fn read(text: &'a str) -> Option<Value> {
        let mut reader = Plain::new(text);
        let value = reader.value()?;
        reader.end()?;
        Some(value)
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.next_if(byte).then_some(())
    }

    fn next_if(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// True at the closing bracket `with`, false at a comma.
    fn ends(&mut self, with: u8) -> Option<bool> {
        let next = self.peek()?;
        self.at += 1;
        (next == with || next == b',').then_some(next == with)
    }

    /// Checks that the document ends here.
    pub fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// Reads a value.
    pub fn value(&mut self) -> Option<Value> {
        match self.peek()? {
            b'"' => self.string().map(Value::from),
            b'{' => self.object().map(Value::Object),
            b'[' => self.array().map(Value::Array),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn array(&mut self) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        self.items(|reader| {
            match reader.peek()? {
                b'{' => values.push(Value::Object(reader.object()?)),
                _ => values.push(reader.value()?),
            }
            Some(())
        })?;
        Some(values)
    }

    fn object(&mut self) -> Option<Map> {
        let start = self.members.len();
        let mut seen = SeenNames::default();
        self.members(|name, reader| {
            if seen.perhaps(name) {
                let known = &reader.members[start..];
                // The names of large objects are compared when the map with its index is made.
                if known.len() < map::FEW_MAX && known.iter().any(|(known, _)| known == name) {
                    return None;
                }
            }
            let next = reader.peek()?;
            let name = name.to_owned();
            // Each kind of value is made in the call of `push`, so that it is not moved: a wide load of bytes that were just
            // stored one by one stalls the processor.
            match next {
                b'"' => {
                    let text = reader.string()?.to_owned();
                    reader.members.push((name, Value::String(text)));
                }
                b'{' => {
                    let inner = reader.object()?;
                    reader.members.push((name, Value::Object(inner)));
                }
                _ => {
                    let value = reader.value()?;
                    reader.members.push((name, value));
                }
            }
            Some(())
        })?;
        Map::of_distinct(self.members.split_off(start))
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let is_next = self.text[self.at..].starts_with(word);
        self.at += word.len();
        is_next.then_some(value)
    }

    /// Reads an integer of at most 18 digits, which cannot overflow.
    fn number(&mut self) -> Option<Value> {
        /// A number with more digits is left to serde_json.
        const DIGITS_MAX: usize = 18;
        let rest = &self.text.as_bytes()[self.at..];
        let negative = rest.first() == Some(&b'-');
        let digits = &rest[usize::from(negative)..];
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let length = length.count();
        let goes_on = matches!(digits.get(length), Some(b'.' | b'e' | b'E'));
        let odd = digits.first() == Some(&b'0') && (length > 1 || negative);
        if length == 0 || length > DIGITS_MAX || goes_on || odd {
            return None;
        }
        let number = digits[..length]
            .iter()
            .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
        self.at += length + usize::from(negative);
        Some(match negative {
            true => (-(number as i64)).into(),
            false => number.into(),
        })
    }

    /// Reads a string.
    pub fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let end = find_quote_or_escape(bytes, start)?;
        if bytes[end] != b'"' {
            return None;
        }
        if self.controls && bytes[start..end].iter().any(|byte| *byte < SPACE) {
            return None;
        }
        self.at = end + 1;
        self.text.get(start..end)
    }

    /// Reads an object: `member` gets each name, and reads or skips its value.
    pub fn members(
        &mut self,
        mut member: impl FnMut(&'a str, &mut Plain<'a>) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        self.deeper()?;
        if !self.next_if(b'}') {
            loop {
                let name = self.string()?;
                self.expect(b':')?;
                member(name, self)?;
                if self.ends(b'}')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Reads an array: `item` reads or skips each element.
    pub fn items(&mut self, mut item: impl FnMut(&mut Plain<'a>) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        self.deeper()?;
        if !self.next_if(b']') {
            loop {
                item(self)?;
                if self.ends(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEPTH_MAX).then_some(())
    }

    /// Skips an object or an array if its text is `known`, which must be complete. This costs one comparison.
    pub fn skip_known(&mut self, known: &str) -> bool {
        debug_assert!(known.is_empty() || known.ends_with(['}', ']']));
        let rest = self.peek().map(|_| &self.text[self.at..]);
        let is_known = !known.is_empty() && rest.is_some_and(|rest| rest.starts_with(known));
        self.at += if is_known { known.len() } else { 0 };
        is_known
    }

    /// Skips an object or an array and returns its text. The text is not checked: the caller knows that it is JSON.
    pub fn skip(&mut self) -> Option<&'a str> {
        self.peek().filter(|byte| matches!(byte, b'{' | b'['))?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (start, 0_usize);
        loop {
            match *bytes.get(at)? {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'"' => loop {
                    at = find_quote_or_escape(bytes, at + 1)?;
                    if bytes[at] == b'"' {
                        break;
                    }
                    at += 1; // the escaped character
                },
                _ => {}
            }
            at += 1;
            if depth == 0 {
                self.at = at;
                return self.text.get(start..at);
            }
        }
    }
}

/// A filter of the names that an object has had so far. It tells most new names without comparing them with the others.
#[derive(Default)]
struct SeenNames(u64);

impl SeenNames {
    /// Adds a name; false if it is certainly new.
    fn perhaps(&mut self, name: &str) -> bool {
        let bytes = name.as_bytes();
        let (first, last) = (bytes.first().copied(), bytes.last().copied());
        let mixed =
            name.len() + usize::from(first.unwrap_or(0)) * 7 + usize::from(last.unwrap_or(0)) * 29;
        let bit = 1 << (mixed % 64);
        let seen = self.0 & bit != 0;
        self.0 |= bit;
        seen
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<u64>().prop_map(serde_json::Value::from),
            (-100..100).prop_map(serde_json::Value::from),
            any::<f64>().prop_map(serde_json::Value::from),
            "[a-cé\"\\\\\u{1}\u{2028} ]{0,5}".prop_map(serde_json::Value::from),
            "[a-cé ]{0,200}\"?[a-cé]{0,20}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::vec(("[a-d\"]{0,2}", inner), 0..40)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_serde_json_reads(value in json(), pretty: bool) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&value),
                false => serde_json::to_string(&value),
            };
            let text = text.unwrap();
            if let Some(read) = Plain::read(&text) {
                prop_assert_eq!(read.to_string(), value.to_string());
            } else {
                let plain = |c: char| c.is_ascii_alphanumeric() || " \n{}[]:,\"é".contains(c);
                let long = text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 18);
                prop_assert!(long || !text.chars().all(plain), "{}", text);
            }
            if matches!(text.as_bytes()[0], b'{' | b'[') {
                let more = format!(" {text}, 1");
                let mut reader = Plain::new(&more);
                prop_assert_eq!(reader.skip(), Some(&*text));
                let behind = reader.at;
                for (known, is_known) in [(&*text, true), ("", false), ("{{}", false)] {
                    let mut reader = Plain::new(&more);
                    prop_assert_eq!(reader.skip_known(known), is_known);
                    prop_assert_eq!(reader.at, if is_known { behind } else { 1 });
                }
            }
        }

        #[test]
        fn what_is_broken_is_left_alone(value in json(), at: prop::sample::Index, with in "[{}\\[\\],:\"0-9a-z. -]?") {
            let text = value.to_string();
            let mut at = at.index(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let width = text[at..].chars().next().map_or(0, char::len_utf8);
            let broken = format!("{}{with}{}", &text[..at], &text[at + width..]);
            if let Some(read) = Plain::read(&broken) {
                let expected: Value = serde_json::from_str(&broken).unwrap();
                prop_assert_eq!(read.to_string(), expected.to_string());
            }
            let _ = Plain::new(&broken).skip();
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            r#"{"a":1,}"#,
            r#"{"a":1,"a":2}"#,
            "01",
            "-0",
            "1.5",
            "1e3",
            "-",
            "tru",
            "nulll",
            "1 2",
            r#""a\n""#,
            "\"a\nb\"",
            "\"a",
            "{1:2}",
            "[1 2]",
            r#"{"a" 1}"#,
            "1234567890123456789",
            "}",
            ",",
        ] {
            assert_eq!(Plain::read(text), None, "{text}");
        }
        for (count, twice) in [(20, 3), (31, 5), (32, 31), (33, 0), (33, 32), (60, 45)] {
            let members = |last: usize| {
                let names = (0..count).chain([last]);
                let members: Vec<_> = names.map(|name| format!("\"n{name}\":{name}")).collect();
                format!("{{{}}}", members.join(","))
            };
            assert_eq!(Plain::read(&members(twice)), None, "{count} {twice}");
            let others = members(count);
            let expected: Value = serde_json::from_str(&others).unwrap();
            assert_eq!(Plain::read(&others), Some(expected));
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Plain::read(&deep(DEPTH_MAX)).is_some());
        assert!(Plain::read(&deep(DEPTH_MAX + 1)).is_none());
        for text in [
            " true ",
            "0",
            "-12",
            r#" { "a" : [ ] , "b" : { } } "#,
            "\"é\"",
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Plain::read(text), Some(expected), "{text}");
        }
    }
}
