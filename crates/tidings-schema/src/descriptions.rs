//! The descriptions of types and fields, and the values of enums. They are in a gzip file whose header explains its format.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use flate2::read::GzDecoder;

pub(crate) const PACKED: &[u8] = include_bytes!("descriptions.gz");

/// The descriptions of all types, about 750 KB of text. Each call of [`Descriptions::unpack`] makes a new copy, which the caller
/// drops after use.
#[derive(Debug, Default)]
pub struct Descriptions {
    text: String,
    /// The byte range of each type in `text`, by package and name.
    places: HashMap<String, Range<usize>>,
}

impl Descriptions {
    /// Unpacks all descriptions.
    pub fn unpack() -> Self {
        let mut text = String::new();
        // A test unpacks the same bytes, so this cannot fail in a release.
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

    /// The description of a type, by its Go package and name: `("core/v1", "Pod")`. Also has the types that are scalars in the
    /// type table: `("meta/v1", "Time")`, `("api/resource", "Quantity")`,
    /// `("util/intstr", "IntOrString")`, `("pkg/runtime", "RawExtension")`.
    pub fn of(&self, package: &str, name: &str) -> Option<TypeDescription<'_>> {
        let place = self.places.get(&format!("{package}.{name}"))?;
        self.text.get(place.clone()).map(TypeDescription)
    }
}

/// The description of a type and its fields.
#[derive(Debug, Clone, Copy)]
pub struct TypeDescription<'a>(&'a str);

impl<'a> TypeDescription<'a> {
    /// The text about the type.
    pub fn text(self) -> String {
        let line = self.0.lines().next().unwrap_or_default();
        unescaped(line.split_once(' ').map_or("", |(_, text)| text))
    }

    /// The descriptions of its fields, including the members of inlined fields.
    pub fn fields(self) -> impl Iterator<Item = FieldDescription<'a>> {
        let mut lines = self.0.lines().skip(1).peekable();
        std::iter::from_fn(move || {
            let (name, text) = lines.next()?.strip_prefix(' ')?.split_once(' ')?;
            let mut field = FieldDescription {
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

/// The description of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDescription<'a> {
    /// The name of the field in JSON.
    pub name: &'a str,
    /// The text about the field.
    pub text: String,
    /// The values of the field, if it is an enum.
    pub values: Vec<String>,
    /// The values of the items of the field, if these are enums.
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
