//! Shard selectors: `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, the objects whose hash is in a range.

use std::fmt;

use tidings_go::quote;

use super::SelectorError;
use crate::object::Object;

/// The metadata whose hash decides in which shard an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShardField {
    /// `metadata.uid`: objects are spread evenly.
    Uid,
    /// `metadata.namespace`: the objects of a namespace are in one shard.
    Namespace,
}

impl ShardField {
    fn path(self) -> &'static str {
        match self {
            ShardField::Uid => "object.metadata.uid",
            ShardField::Namespace => "object.metadata.namespace",
        }
    }
}

/// The objects of one shard: those whose hash is in one of some ranges.
///
/// ```
/// use tidings_api::{ShardField, ShardSelector};
///
/// let first = ShardSelector::split(ShardField::Uid, 0, 2);
/// let text = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
/// assert_eq!(first.to_string(), text);
/// assert_eq!(ShardSelector::parse(text), Ok(first));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<HashRange>,
}

/// Hashes from `start` up to `end`, which is not among them. `None` is the end of all hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HashRange {
    start: u64,
    end: Option<u64>,
}

impl ShardSelector {
    /// Shard number `index` of `count` shards of nearly the same size, counted from 0.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn split(field: ShardField, index: u64, count: u64) -> ShardSelector {
        assert!(index < count, "there is no shard {index} of {count}");
        // The last shard gets what is left over.
        let size = (1_u128 << 64) / u128::from(count);
        let start = (size * u128::from(index)) as u64;
        let end = (index + 1 < count).then(|| (size * u128::from(index + 1)) as u64);
        ShardSelector {
            field,
            ranges: vec![HashRange { start, end }],
        }
    }

    /// Reads a selector.
    ///
    /// # Errors
    /// With upstream's message where upstream has one.
    pub fn parse(text: &str) -> Result<ShardSelector, SelectorError> {
        let parsed = ShardParser { rest: text }.selector();
        parsed.map_err(|detail| SelectorError(format!("invalid shard selector: {detail}")))
    }

    /// True if an object is in the shard.
    pub fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            ShardField::Uid => object.uid(),
            ShardField::Namespace => object.namespace(),
        };
        let hash = fnv1a(value.as_bytes());
        let mut ranges = self.ranges.iter();
        ranges.any(|range| hash >= range.start && range.end.is_none_or(|end| hash < end))
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, HashRange { start, end }) in self.ranges.iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            let end = end.map_or_else(
                || "10000000000000000".to_owned(),
                |end| format!("{end:016x}"),
            );
            write!(
                f,
                "{or}shardRange({}, '0x{start:016x}', '0x{end}')",
                self.field.path()
            )?;
        }
        Ok(())
    }
}

impl std::str::FromStr for ShardSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<ShardSelector, SelectorError> {
        ShardSelector::parse(text)
    }
}

/// FNV-1a with 64 bits: the same in every process and version.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads calls of `shardRange` joined by `||`, with parentheses around any of them. Upstream reads the text with its parser for CEL and
/// refuses everything else afterwards.
struct ShardParser<'t> {
    rest: &'t str,
}

/// The parts of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ShardToken<'t> {
    /// A name, or several joined by dots.
    Path(&'t str),
    Text(&'t str),
    Or,
    Open,
    Close,
    Comma,
    Other(&'t str),
    End,
}

/// How many parentheses may be open at once in a shard selector.
const PARENTHESES_MAX: usize = 64;

impl<'t> ShardParser<'t> {
    fn selector(mut self) -> Result<ShardSelector, String> {
        if self.rest.trim().is_empty() {
            return Err(
                "empty shard selector is not allowed; omit the parameter for unfiltered lists"
                    .to_owned(),
            );
        }
        let mut ranges: Vec<(ShardField, HashRange)> = Vec::new();
        let mut open = 0;
        loop {
            let mut token = self.next();
            while token == ShardToken::Open {
                open += 1;
                if open > PARENTHESES_MAX {
                    return Err("too many parentheses".to_owned());
                }
                token = self.next();
            }
            ranges.push(self.call(&token)?);
            token = self.next();
            while token == ShardToken::Close && open > 0 {
                open -= 1;
                token = self.next();
            }
            match token {
                ShardToken::Or => {}
                ShardToken::End if open == 0 => break,
                other => return Err(unexpected(&other, "'||' or the end")),
            }
        }
        let (field, _) = ranges[0];
        if let Some((other, _)) = ranges.iter().find(|(other, _)| *other != field) {
            return Err(format!(
                "all shard ranges must use the same field, got {} and {}",
                quote(field.path()),
                quote(other.path())
            ));
        }
        let ranges = ranges.into_iter().map(|(_, range)| range).collect();
        Ok(ShardSelector { field, ranges })
    }

    fn call(&mut self, name: &ShardToken<'_>) -> Result<(ShardField, HashRange), String> {
        match name {
            ShardToken::Path("shardRange") => {}
            ShardToken::Path(other) => {
                return Err(format!(
                    "unsupported function {}; only shardRange() and || are allowed",
                    quote(other)
                ));
            }
            other => return Err(unexpected(other, "shardRange()")),
        }
        self.expect(&ShardToken::Open, "'('")?;
        let field = match self.next() {
            ShardToken::Path("object.metadata.uid") => ShardField::Uid,
            ShardToken::Path("object.metadata.namespace") => ShardField::Namespace,
            ShardToken::Path(other) => {
                return Err(format!(
                    "unsupported field path {}; supported: object.metadata.uid, object.metadata.namespace",
                    quote(other)
                ));
            }
            other => {
                let expected = "a field path (e.g. object.metadata.uid)";
                return Err(unexpected(&other, expected));
            }
        };
        self.expect(&ShardToken::Comma, "','")?;
        let start = self.bound("hexStart")?;
        self.expect(&ShardToken::Comma, "','")?;
        let end = self.bound("hexEnd")?;
        self.expect(&ShardToken::Close, "')'")?;
        match (start, end) {
            (Some(start), None) => Ok((field, HashRange { start, end })),
            (Some(start), Some(last)) if start < last => Ok((field, HashRange { start, end })),
            (start, end) => {
                let shown = |bound: Option<u64>| {
                    bound.map_or_else(
                        || "0x10000000000000000".to_owned(),
                        |bound| format!("0x{bound:016x}"),
                    )
                };
                Err(format!(
                    "shard range start {} must be less than end {}",
                    shown(start),
                    shown(end)
                ))
            }
        }
    }

    /// A bound of a range; `None` is 2^64.
    fn bound(&mut self, name: &str) -> Result<Option<u64>, String> {
        let text = match self.next() {
            ShardToken::Text(text) => text,
            other => {
                return Err(unexpected(
                    &other,
                    &format!("{name} as a string literal (e.g. '0xff')"),
                ));
            }
        };
        let Some(digits) = text.strip_prefix("0x") else {
            return Err(format!("{name} must have '0x' prefix, got {}", quote(text)));
        };
        if digits.is_empty() {
            return Err(format!("{name}: hex value is required after '0x'"));
        }
        if digits.len() > 17 {
            return Err(format!(
                "{name}: hex value too long ({} chars, max 17): {}",
                digits.len(),
                quote(digits)
            ));
        }
        let is_digit = |c: &char| matches!(c, '0'..='9' | 'a'..='f');
        if let Some(wrong) = digits.chars().find(|c| !is_digit(c)) {
            return Err(format!(
                "{name}: invalid hex character {} in {}",
                quote(&wrong.to_string()),
                quote(text)
            ));
        }
        match digits.len() {
            17 if digits == "10000000000000000" => Ok(None),
            17 => Err(format!(
                "{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got {}",
                quote(text)
            )),
            // Sixteen digits are a number of 64 bits.
            16 => Ok(Some(u64::from_str_radix(digits, 16).unwrap_or_default())),
            _ => Err(format!(
                "{name} must be a 0x-prefixed 16-digit hex value, got {} (did you mean {}?)",
                quote(text),
                quote(&format!("0x{digits:0>16}"))
            )),
        }
    }

    fn expect(&mut self, wanted: &ShardToken<'_>, shown: &str) -> Result<(), String> {
        match self.next() {
            token if token == *wanted => Ok(()),
            other => Err(unexpected(&other, shown)),
        }
    }

    fn next(&mut self) -> ShardToken<'t> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return ShardToken::End;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let (token, length) = match first {
            '(' => (ShardToken::Open, 1),
            ')' => (ShardToken::Close, 1),
            ',' => (ShardToken::Comma, 1),
            '|' if self.rest.starts_with("||") => (ShardToken::Or, 2),
            '\'' | '"' => match self.rest[1..].find(first) {
                Some(length) => (ShardToken::Text(&self.rest[1..=length]), length + 2),
                None => (ShardToken::Other(self.rest), self.rest.len()),
            },
            c if is_name(c) => {
                let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
                (ShardToken::Path(&self.rest[..length]), length)
            }
            other => {
                let length = other.len_utf8();
                (ShardToken::Other(&self.rest[..length]), length)
            }
        };
        self.rest = &self.rest[length..];
        token
    }
}

fn unexpected(found: &ShardToken<'_>, expected: &str) -> String {
    let found = match found {
        ShardToken::Path(text) | ShardToken::Other(text) => *text,
        ShardToken::Text(_) => "a string",
        ShardToken::Or => "||",
        ShardToken::Open => "(",
        ShardToken::Close => ")",
        ShardToken::Comma => ",",
        ShardToken::End => "the end",
    };
    format!("found {}, expected {expected}", quote(found))
}

#[cfg(test)]
mod tests {

    use super::*;

    const HALF: &str =
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";

    fn error(text: &str) -> String {
        let error = ShardSelector::parse(text).unwrap_err().to_string();
        let detail = error.strip_prefix("invalid shard selector: ");
        detail.expect("errors say what is invalid").to_owned()
    }

    fn call(arguments: &str) -> String {
        error(&format!("shardRange({arguments})"))
    }

    #[test]
    fn hashes_are_those_of_upstream() {
        // Computed with upstream's library.
        for (value, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("abc", 0xe71f_a219_0541_574b),
            ("default", 0xebad_a516_8620_c5fe),
            (
                "3c2d7d2b-8e0f-4a53-9f7c-5b1f0f6f1e11",
                0x3e99_931d_9815_405b,
            ),
            ("ä", 0x0ac2_1207_b718_1582_u64),
        ] {
            assert_eq!(fnv1a(value.as_bytes()), hash, "{value}");
        }
    }

    #[test]
    fn what_means_the_same_is_shown_the_same() {
        for text in [
            HALF,
            r#" ( shardRange(object.metadata.uid,"0x0000000000000000",'0x8000000000000000') ) "#,
            "((shardRange( object.metadata.uid , '0x0000000000000000'\n, '0x8000000000000000' )))",
        ] {
            assert_eq!(
                ShardSelector::parse(text).unwrap().to_string(),
                HALF,
                "{text}"
            );
        }
        let two = "(shardRange(object.metadata.namespace,'0x00000000000000ff','0x0000000000000100')||shardRange(object.metadata.namespace,'0xf000000000000000','0x10000000000000000'))";
        let shown = "shardRange(object.metadata.namespace, '0x00000000000000ff', '0x0000000000000100') || shardRange(object.metadata.namespace, '0xf000000000000000', '0x10000000000000000')";
        let two = ShardSelector::parse(two).unwrap();
        assert_eq!(two.to_string(), shown);
        assert_eq!(ShardSelector::parse(shown), Ok(two));
    }

    #[test]
    fn errors_say_what_to_change() {
        assert_eq!(
            error(" "),
            "empty shard selector is not allowed; omit the parameter for unfiltered lists"
        );
        assert_eq!(
            error("size(object)"),
            "unsupported function \"size\"; only shardRange() and || are allowed"
        );
        assert_eq!(
            call("object.metadata.name, '', ''"),
            "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace"
        );
        for (bounds, expected) in [
            ("'0', ''", "hexStart must have '0x' prefix, got \"0\""),
            ("'0x', ''", "hexStart: hex value is required after '0x'"),
            (
                "'0x0', ''",
                "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
            ),
            (
                "'0x00000000000000F0', ''",
                "hexStart: invalid hex character \"F\" in \"0x00000000000000F0\"",
            ),
            (
                "'0x000000000000000000', ''",
                "hexStart: hex value too long (18 chars, max 17): \"000000000000000000\"",
            ),
            (
                "'0x0000000000000000', '0x20000000000000000'",
                "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
            ),
            (
                "'0x0000000000000002', '0x0000000000000002'",
                "shard range start 0x0000000000000002 must be less than end 0x0000000000000002",
            ),
            (
                "'0x10000000000000000', '0x10000000000000000'",
                "shard range start 0x10000000000000000 must be less than end 0x10000000000000000",
            ),
            (
                "1, ''",
                "found \"1\", expected hexStart as a string literal (e.g. '0xff')",
            ),
        ] {
            assert_eq!(call(&format!("object.metadata.uid, {bounds}")), expected);
        }
        let other = HALF.replace("uid", "namespace");
        assert_eq!(
            error(&format!("{HALF} || {other}")),
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\""
        );
        assert_eq!(
            error(&format!("{HALF} && {HALF}")),
            "found \"&\", expected '||' or the end"
        );
        assert_eq!(
            error(&format!("({HALF}")),
            "found \"the end\", expected '||' or the end"
        );
        assert_eq!(
            error(&format!("{HALF})")),
            "found \")\", expected '||' or the end"
        );
        assert_eq!(
            error(&format!("{HALF} ||")),
            "found \"the end\", expected shardRange()"
        );
        assert_eq!(error(&"(".repeat(1000)), "too many parentheses");
        error("shardRange(object.metadata.uid, 'ä");
    }

    #[test]
    fn every_object_is_in_one_shard() {
        let object = |uid: u32| {
            let json =
                format!(r#"{{"metadata":{{"name":"a","namespace":"n{uid}","uid":"{uid}"}}}}"#);
            Object::parse(json).unwrap()
        };
        for count in [1, 2, 3, 5, 7, 64] {
            for field in [ShardField::Uid, ShardField::Namespace] {
                let shards = (0..count).map(|index| ShardSelector::split(field, index, count));
                let shards: Vec<_> = shards.collect();
                for uid in 0..200 {
                    let object = object(uid);
                    let found = shards.iter().filter(|shard| shard.matches(&object)).count();
                    assert_eq!(found, 1, "{uid} of {count}");
                }
            }
        }
        let thirds =
            (0..3).map(|index| ShardSelector::split(ShardField::Uid, index, 3).to_string());
        let ends: Vec<_> = thirds
            .map(|text| text[text.len() - 20..].to_owned())
            .collect();
        assert_eq!(ends[0], "0x5555555555555555')");
        assert_eq!(ends[1], "0xaaaaaaaaaaaaaaaa')");
        assert!(ends[2].ends_with("10000000000000000')"));
    }
}
