//! Sets of fields.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Schema;
use crate::element::Element;
use crate::schema::Shape;

/// A set of fields of an object, as a tree of their paths.
///
/// A field can be in the set without the fields below it, and they without it. A set that was made from an object borrows names
/// from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    /// The field at this place is in the set.
    pub here: bool,
    /// What is in the set below it, sorted. No entry is empty.
    below: Vec<(Element<'a>, FieldSet<'a>)>,
}

impl<'a> FieldSet<'a> {
    /// A field without anything below it.
    pub fn leaf() -> FieldSet<'a> {
        FieldSet {
            here: true,
            below: Vec::new(),
        }
    }

    /// A set of fields given by the names on the way to them.
    pub fn of_names(paths: &[&[&'a str]]) -> FieldSet<'a> {
        let mut set = FieldSet::default();
        for path in paths {
            let mut at = &mut set;
            for name in *path {
                let element = Element::field(name);
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

    /// What is below a field, given in any order. Sets that are empty are left out; of an element that occurs twice the last
    /// counts.
    pub(crate) fn of_below(mut below: Vec<(Element<'a>, FieldSet<'a>)>) -> FieldSet<'a> {
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

    /// Reads `fieldsV1`. Steps that cannot be read are left out. `None` if it is no JSON object.
    pub fn decode(json: &str) -> Option<FieldSet<'static>> {
        let Read(set) = serde_json::from_str(json).ok()?;
        Some(set).filter(|_| json.trim_ascii_start().starts_with('{'))
    }

    /// Writes `fieldsV1`, as Go escapes it.
    pub fn encode(&self) -> String {
        self.encode_without(&FieldSet::default())
    }

    /// Writes what [`FieldSet::remove_with_below`] would leave.
    pub(crate) fn encode_without(&self, other: &FieldSet<'_>) -> String {
        let mut writer = Writer::default();
        writer.write(self, Some(other));
        writer.json
    }

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// What is in the set below a step.
    pub fn below(&self, element: &Element<'_>) -> Option<&FieldSet<'a>> {
        let place = self.place(element).ok()?;
        Some(&self.below[place].1)
    }

    /// True if nothing is below it.
    pub(crate) fn ends_here(&self) -> bool {
        self.below.is_empty()
    }

    fn place(&self, element: &Element<'_>) -> Result<usize, usize> {
        self.below.binary_search_by(|(own, _)| own.cmp(element))
    }

    /// Puts a set below an element, if it has anything in it.
    pub fn put(&mut self, element: Element<'a>, set: FieldSet<'a>) {
        if set.is_empty() {
            return;
        }
        match self.place(&element) {
            Ok(place) => self.below[place].1 = set,
            Err(place) => self.below.insert(place, (element, set)),
        }
    }

    /// Adds what is in another set.
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

    /// What is in any of several sets.
    pub fn united(sets: impl IntoIterator<Item = FieldSet<'a>>) -> FieldSet<'a> {
        let mut sets: Vec<_> = sets.into_iter().collect();
        // Two and two, because adding small ones to a large one would copy the large one each time.
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

    /// Takes out what is in another set.
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

    /// Takes out what is in another set; of fields that have nothing below them there, everything below as well.
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

    /// What is in both sets.
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

    /// True if something is in both sets.
    pub fn meets(&self, other: &FieldSet<'_>) -> bool {
        let below = || self.shared(other).any(|(_, own, also)| own.meets(also));
        self.here && other.here || below()
    }

    /// True if all that is in another set is in this one.
    pub fn contains(&self, other: &FieldSet<'_>) -> bool {
        let has = |(element, set): &(Element<'_>, FieldSet<'_>)| {
            self.below(element).is_some_and(|own| own.contains(set))
        };
        (self.here || !other.here) && other.below.iter().all(has)
    }

    /// The elements that both sets have, in their order.
    fn shared<'s, 'b>(
        &'s self,
        other: &'s FieldSet<'b>,
    ) -> impl Iterator<Item = (&'s Element<'a>, &'s FieldSet<'a>, &'s FieldSet<'b>)> {
        // The shorter one says what is looked for: mostly it is short.
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

    /// With the members of structs that have something below them.
    #[must_use]
    pub(crate) fn with_named<S: Schema>(&self, schema: S) -> FieldSet<'a> {
        let shape = schema.shape();
        let below = self.below.iter().map(|(element, set)| {
            let (below, is_named) = match (element, shape) {
                (Element::Field(name), Shape::Struct) => (schema.field(name), schema.names(name)),
                (Element::Field(_), Shape::Map(item)) => (Some(item), false),
                (Element::Key(_), Shape::Keyed(item)) => (Some(item), false),
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

    /// The paths of all fields in it, as they are shown: `.spec.ports[port=80].name`.
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

/// Writes a set as JSON.
#[derive(Default)]
struct Writer {
    json: String,
}

/// Appends a step as the name of a member.
pub(crate) fn push_step(json: &mut String, element: &Element<'_>) {
    if !element.push_plain(json) {
        tidings_json::write_string(json, &element.encoded());
    }
}

impl Writer {
    /// Writes what is left of a set without another. True if anything is.
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
            self.json.truncate(start); // `{}` stands for the field itself
        }
        self.json.push('}');
        here || below
    }
}

/// A set that is being read.
struct Read(FieldSet<'static>);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        deserializer.deserialize_any(Steps)
    }
}

/// The name of a member of `fieldsV1`.
enum Step {
    Here,
    Below(Element<'static>),
    Unknown,
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Step, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Step;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step of a path")
            }

            fn visit_str<E>(self, name: &str) -> Result<Step, E> {
                Ok(match name {
                    "." => Step::Here,
                    name => Element::decode(name).map_or(Step::Unknown, Step::Below),
                })
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Reads what is below a field. Anything but an object stands for the field itself.
struct Steps;

impl<'de> Visitor<'de> for Steps {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut steps: A) -> Result<Read, A::Error> {
        let (mut here, mut below) = (false, Vec::new());
        while let Some(step) = steps.next_key()? {
            match step {
                Step::Below(element) => {
                    let Read(mut set) = steps.next_value()?;
                    set.here |= set.below.is_empty(); // `{}` stands for the field itself
                    below.push((element, set));
                }
                other => {
                    here |= matches!(other, Step::Here);
                    steps.next_value::<IgnoredAny>()?;
                }
            }
        }
        let mut set = FieldSet::of_below(below);
        set.here = here;
        Ok(Read(set))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Read, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Read(FieldSet::default()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }

    fn visit_unit<E>(self) -> Result<Read, E> {
        Ok(Read(FieldSet::default()))
    }
}
