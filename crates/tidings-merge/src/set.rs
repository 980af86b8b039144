//! Sets of fields: operations and the encoding as `fieldsV1`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Schema;
use crate::element::PathElement;
use crate::schema::MergeShape;

/// A set of fields of an object, as a tree of their paths.
///
/// A field can be in the set without the fields below it, and those without the field. A set that was made from an object borrows
/// names from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    /// True if the field itself is in the set.
    pub here: bool,
    /// The fields below, sorted. No entry is empty.
    below: Vec<(PathElement<'a>, FieldSet<'a>)>,
}

impl<'a> FieldSet<'a> {
    /// A field without fields below it.
    pub fn leaf() -> FieldSet<'a> {
        FieldSet {
            here: true,
            below: Vec::new(),
        }
    }

    /// A set of fields, given by paths of names.
    pub fn of_names(paths: &[&[&'a str]]) -> FieldSet<'a> {
        let mut set = FieldSet::default();
        for path in paths {
            let mut at = &mut set;
            for name in *path {
                let element = PathElement::field(name);
                let place = at.place(&element).unwrap_or_else(|place| {
                    at.below.insert(place, (element, FieldSet::default()));
                    place
                });
                at = &mut at.below[place].1;
            }
            at.here = true;
        }
        set
    }

    /// A set from the fields below, given in any order. Empty sets are left out; of duplicate elements the last counts.
    pub(crate) fn of_below(mut below: Vec<(PathElement<'a>, FieldSet<'a>)>) -> FieldSet<'a> {
        below.retain(|(_, set)| !set.is_empty());
        if !below.is_sorted_by(|one, two| one.0 < two.0) {
            below.sort_by(|one, two| one.0.cmp(&two.0));
            below.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(&mut later.1, &mut kept.1);
                }
                same
            });
        }
        FieldSet { here: false, below }
    }

    /// Reads `fieldsV1`. Unknown elements are left out. `None` if the text is not a JSON object.
    pub fn decode(json: &str) -> Option<FieldSet<'static>> {
        let DecodedSet(set) = serde_json::from_str(json).ok()?;
        Some(set).filter(|_| json.trim_ascii_start().starts_with('{'))
    }

    /// Writes `fieldsV1`, with the escapes of Go.
    pub fn encode(&self) -> String {
        self.encode_without(&FieldSet::default())
    }

    /// Writes `fieldsV1` without the fields that [`FieldSet::remove_with_below`] would remove.
    pub(crate) fn encode_without(&self, other: &FieldSet<'_>) -> String {
        let mut writer = SetWriter::default();
        writer.write(self, Some(other));
        writer.json
    }

    /// True if the set has no fields.
    pub fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// The fields below an element.
    pub fn below(&self, element: &PathElement<'_>) -> Option<&FieldSet<'a>> {
        let place = self.place(element).ok()?;
        Some(&self.below[place].1)
    }

    /// True if the set has no fields below.
    pub(crate) fn ends_here(&self) -> bool {
        self.below.is_empty()
    }

    fn place(&self, element: &PathElement<'_>) -> Result<usize, usize> {
        self.below.binary_search_by(|(own, _)| own.cmp(element))
    }

    /// Puts a set below an element, unless the set is empty.
    pub fn put(&mut self, element: PathElement<'a>, set: FieldSet<'a>) {
        if set.is_empty() {
            return;
        }
        match self.place(&element) {
            Ok(place) => self.below[place].1 = set,
            Err(place) => self.below.insert(place, (element, set)),
        }
    }

    /// Adds the fields of another set.
    pub fn add(&mut self, other: FieldSet<'a>) {
        self.here |= other.here;
        if other.below.is_empty() {
            return;
        }
        let mut joined = Vec::with_capacity(self.below.len() + other.below.len());
        let mut own = std::mem::take(&mut self.below).into_iter().peekable();
        for (element, set) in other.below {
            while let Some(before) = own.next_if(|(own, _)| *own < element) {
                joined.push(before);
            }
            joined.push(match own.next_if(|(own, _)| *own == element) {
                Some((element, mut own)) => {
                    own.add(set);
                    (element, own)
                }
                None => (element, set),
            });
        }
        joined.extend(own);
        self.below = joined;
    }

    /// The union of several sets.
    pub fn united(sets: impl IntoIterator<Item = FieldSet<'a>>) -> FieldSet<'a> {
        let mut sets: Vec<_> = sets.into_iter().collect();
        // Merges in pairs: adding each small set to one large set would copy the large one each time.
        while sets.len() > 1 {
            let mut pairs = sets.into_iter();
            let mut halved = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(mut one) = pairs.next() {
                one.add(pairs.next().unwrap_or_default());
                halved.push(one);
            }
            sets = halved;
        }
        sets.pop().unwrap_or_default()
    }

    /// Removes the fields of another set.
    pub fn remove(&mut self, other: &FieldSet<'_>) {
        self.here &= !other.here;
        let mut emptied = false;
        for (element, set) in &other.below {
            if let Ok(place) = self.place(element) {
                let own = &mut self.below[place].1;
                own.remove(set);
                emptied |= own.is_empty();
            }
        }
        if emptied {
            self.below.retain(|(_, set)| !set.is_empty());
        }
    }

    /// Removes the fields of another set. A field that has no fields below it there is removed with everything below.
    pub fn remove_with_below(&mut self, other: &FieldSet<'_>) {
        self.here &= !other.here;
        let mut emptied = false;
        for (element, set) in &other.below {
            if let Ok(place) = self.place(element) {
                let own = &mut self.below[place].1;
                if set.below.is_empty() {
                    *own = FieldSet::default();
                } else {
                    own.remove_with_below(set);
                }
                emptied |= own.is_empty();
            }
        }
        if emptied {
            self.below.retain(|(_, set)| !set.is_empty());
        }
    }

    /// The fields that are in both sets.
    #[must_use]
    pub fn common(&self, other: &FieldSet<'_>) -> FieldSet<'a> {
        let below = self.shared(other).filter_map(|(element, own, also)| {
            let common = own.common(also);
            (!common.is_empty()).then(|| (element.clone(), common))
        });
        FieldSet {
            here: self.here && other.here,
            below: below.collect(),
        }
    }

    /// True if a field is in both sets.
    pub fn meets(&self, other: &FieldSet<'_>) -> bool {
        let below = || self.shared(other).any(|(_, own, also)| own.meets(also));
        self.here && other.here || below()
    }

    /// True if this set has all fields of another.
    pub fn contains(&self, other: &FieldSet<'_>) -> bool {
        let has = |(element, set): &(PathElement<'_>, FieldSet<'_>)| {
            self.below(element).is_some_and(|own| own.contains(set))
        };
        (self.here || !other.here) && other.below.iter().all(has)
    }

    /// The elements that both sets have, in their order.
    fn shared<'s, 'b>(
        &'s self,
        other: &'s FieldSet<'b>,
    ) -> impl Iterator<Item = (&'s PathElement<'a>, &'s FieldSet<'a>, &'s FieldSet<'b>)> {
        // Iterates over the shorter set and searches in the longer one.
        let swap = other.below.len() < self.below.len();
        let (own, theirs) = match swap {
            false => (&self.below[..], &[][..]),
            true => (&[][..], &other.below[..]),
        };
        let own = own
            .iter()
            .filter_map(|(element, set)| Some((element, set, other.below(element)?)));
        let theirs = theirs.iter().filter_map(|(element, also)| {
            let (element, set) = &self.below[self.place(element).ok()?];
            Some((element, set, also))
        });
        own.chain(theirs)
    }

    /// A set that borrows nothing.
    pub fn into_owned(self) -> FieldSet<'static> {
        let below = self.below.into_iter();
        FieldSet {
            here: self.here,
            below: below
                .map(|(element, set)| (element.into_owned(), set.into_owned()))
                .collect(),
        }
    }

    /// The set plus all declared struct members that have fields of the set below them.
    #[must_use]
    pub(crate) fn with_named<S: Schema>(&self, schema: S) -> FieldSet<'a> {
        let shape = schema.shape();
        let below = self.below.iter().map(|(element, set)| {
            let (below, is_named) = match (element, shape) {
                (PathElement::Field(name), MergeShape::Struct) => {
                    (schema.field(name), schema.names(name))
                }
                (PathElement::Field(_), MergeShape::Map(item)) => (Some(item), false),
                (PathElement::Key(_), MergeShape::Keyed(item)) => (Some(item), false),
                _ => (None, false),
            };
            let mut set = match below {
                Some(schema) => set.with_named(schema),
                None => set.clone(),
            };
            set.here |= is_named && below.is_some();
            (element.clone(), set)
        });
        FieldSet {
            here: self.here,
            below: below.collect(),
        }
    }

    /// The paths of all fields, as errors print them: `.spec.ports[port=80].name`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        if self.here && !path.is_empty() {
            paths.push(path.clone());
        }
        for (element, set) in &self.below {
            let length = path.len();
            path.push_str(&element.to_string());
            set.collect(path, paths);
            path.truncate(length);
        }
    }
}

/// Writes a set as `fieldsV1`.
#[derive(Default)]
struct SetWriter {
    json: String,
}

/// Appends an element as a quoted member name.
pub(crate) fn push_step(json: &mut String, element: &PathElement<'_>) {
    if !element.push_plain(json) {
        tidings_json::write_string(json, &element.encoded());
    }
}

impl SetWriter {
    /// Writes the fields of `set` that are not in `without`. True if there are any.
    fn write(&mut self, set: &FieldSet<'_>, without: Option<&FieldSet<'_>>) -> bool {
        let here = set.here && !without.is_some_and(|without| without.here);
        self.json.push('{');
        let start = self.json.len();
        if here {
            self.json.push_str("\".\":{}");
        }
        let mut below = false;
        for (element, set) in &set.below {
            let without = without.and_then(|without| without.below(element));
            if without.is_some_and(FieldSet::ends_here) {
                continue;
            }
            let before = self.json.len();
            if before > start {
                self.json.push(',');
            }
            push_step(&mut self.json, element);
            self.json.push(':');
            if self.write(set, without) {
                below = true;
            } else {
                self.json.truncate(before);
            }
        }
        if !below {
            self.json.truncate(start); // `{}` means the field itself
        }
        self.json.push('}');
        here || below
    }
}

/// A set as `Deserialize` reads it.
struct DecodedSet(FieldSet<'static>);

impl<'de> Deserialize<'de> for DecodedSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DecodedSet, D::Error> {
        deserializer.deserialize_any(SetVisitor)
    }
}

/// A member name in `fieldsV1`.
enum DecodedStep {
    Here,
    Below(PathElement<'static>),
    Unknown,
}

impl<'de> Deserialize<'de> for DecodedStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DecodedStep, D::Error> {
        struct StepVisitor;
        impl Visitor<'_> for StepVisitor {
            type Value = DecodedStep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step of a path")
            }

            fn visit_str<E>(self, name: &str) -> Result<DecodedStep, E> {
                Ok(match name {
                    "." => DecodedStep::Here,
                    name => {
                        PathElement::decode(name).map_or(DecodedStep::Unknown, DecodedStep::Below)
                    }
                })
            }
        }
        deserializer.deserialize_str(StepVisitor)
    }
}

/// Reads the fields below a field. Any value but an object means the field itself.
struct SetVisitor;

impl<'de> Visitor<'de> for SetVisitor {
    type Value = DecodedSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut steps: A) -> Result<DecodedSet, A::Error> {
        let (mut here, mut below) = (false, Vec::new());
        while let Some(step) = steps.next_key()? {
            match step {
                DecodedStep::Below(element) => {
                    let DecodedSet(mut set) = steps.next_value()?;
                    set.here |= set.below.is_empty(); // `{}` means the field itself
                    below.push((element, set));
                }
                other => {
                    here |= matches!(other, DecodedStep::Here);
                    steps.next_value::<IgnoredAny>()?;
                }
            }
        }
        let mut set = FieldSet::of_below(below);
        set.here = here;
        Ok(DecodedSet(set))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<DecodedSet, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_str<E>(self, _: &str) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }

    fn visit_unit<E>(self) -> Result<DecodedSet, E> {
        Ok(DecodedSet(FieldSet::default()))
    }
}
