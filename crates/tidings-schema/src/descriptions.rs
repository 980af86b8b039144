//! What the types mean: descriptions, and the values of enums. Their file is packed, and says itself how it reads.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use flate2::read::GzDecoder;

const PACKED: &[u8] = include_bytes!("descriptions.gz");

/// What is said of all types, some 750 KB of text. It is unpacked for whoever asks and belongs to it: who wants to describe
/// something drops it when that is done.
#[derive(Debug, Default)]
pub struct Descriptions {
    text: String,
    /// Where the lines of each type are, by its package and name.
    places: HashMap<String, Range<usize>>,
}

impl Descriptions {
    /// Unpacks what there is.
    pub fn unpack() -> Self {
        let mut text = String::new();
        // A test reads the same bytes, so that this is never seen to fail.
        match GzDecoder::new(PACKED).read_to_string(&mut text) {
            Ok(_) => Self::parse(text),
            Err(_) => Self::default(),
        }
    }

    fn parse(text: String) -> Self {
        let mut places: HashMap<String, Range<usize>> = HashMap::new();
        let mut last: Option<(&str, usize)> = None;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if !line.starts_with([' ', '#']) {
                if let Some((name, start)) = last {
                    places.insert(name.to_owned(), start..at);
                }
                let name = line.split(' ').next().unwrap_or_default();
                last = Some((name, at));
            }
            at += line.len();
        }
        if let Some((name, start)) = last {
            places.insert(name.to_owned(), start..at);
        }
        Self { text, places }
    }

    /// What is said of a type, by the Go package it is from and its name there: `("core/v1", "Pod")`. There are also the types
    /// that the table takes for scalars: `("meta/v1", "Time")`, `("api/resource", "Quantity")`,
    /// `("util/intstr", "IntOrString")`, `("pkg/runtime", "RawExtension")`.
    pub fn of(&self, package: &str, name: &str) -> Option<Described<'_>> {
        let place = self.places.get(&format!("{package}.{name}"))?;
        self.text.get(place.clone()).map(Described)
    }
}

/// What is said of a type.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a>(&'a str);

impl<'a> Described<'a> {
    /// The description.
    pub fn text(self) -> String {
        let line = self.0.lines().next().unwrap_or_default();
        unescaped(line.split_once(' ').map_or("", |(_, text)| text))
    }

    /// What is said of its fields, those of inlined fields among them.
    pub fn fields(self) -> impl Iterator<Item = DescribedField<'a>> {
        let mut lines = self.0.lines().skip(1).peekable();
        std::iter::from_fn(move || {
            let (name, text) = lines.next()?.strip_prefix(' ')?.split_once(' ')?;
            let mut field = DescribedField {
                name,
                text: unescaped(text),
                values: Vec::new(),
                item_values: Vec::new(),
            };
            while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
                let values = |list: &str| serde_json::from_str(list).unwrap_or_default();
                match line.trim_start().split_once(' ') {
                    Some(("is", list)) => field.values = values(list),
                    Some(("are", list)) => field.item_values = values(list),
                    _ => {}
                }
            }
            Some(field)
        })
    }
}

/// What is said of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedField<'a> {
    /// Its name in JSON.
    pub name: &'a str,
    /// The description.
    pub text: String,
    /// The values that it may have, if it is an enum.
    pub values: Vec<String>,
    /// The values that its items may have, if these are enums.
    pub item_values: Vec<String>,
}

fn unescaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_fields_and_values_are_read() {
        let text = "# A \\ comment.\na/v1.A One\\n\\\\two\n b Of b.\n  is [\"x\",\"y z\"]\n c \n  are [\"z\"]\na/v1.B \n";
        let found = Descriptions::parse(text.to_owned());
        let described = found.of("a/v1", "A").expect("A");
        assert_eq!(described.text(), "One\n\\two");
        let fields: Vec<_> = described.fields().collect();
        let [b, c] = fields.as_slice() else {
            panic!("{fields:?}");
        };
        assert_eq!((b.name, &*b.text), ("b", "Of b."));
        assert_eq!(b.values, ["x", "y z"]);
        assert!(b.item_values.is_empty());
        assert_eq!((c.name, &*c.text), ("c", ""));
        assert_eq!(c.item_values, ["z"]);
        let described = found.of("a/v1", "B").expect("B");
        assert_eq!(described.text(), "");
        assert_eq!(described.fields().count(), 0);
        assert!(found.of("a/v1", "C").is_none());
    }
}
