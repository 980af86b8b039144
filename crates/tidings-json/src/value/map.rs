//! The members of an object, in their order.

use std::collections::HashMap;
use std::fmt;

use super::Value;

/// Up to this number of members, names are compared one by one. Larger maps have an index, so that reading an object takes
/// time in proportion to its size.
pub(crate) const FEW_MAX: usize = 32;

/// The members of an object, in their order.
#[derive(Clone, Default)]
pub struct Map(Members);

#[derive(Clone)]
enum Members {
    Few(Vec<(String, Value)>),
    // Boxed, so that small maps stay small.
    Many(Box<IndexedMembers>),
}

#[derive(Clone, Default)]
struct IndexedMembers {
    members: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

impl Default for Members {
    #[inline]
    fn default() -> Members {
        Members::Few(Vec::new())
    }
}

impl IndexedMembers {
    #[inline]
    fn of(members: Vec<(String, Value)>) -> IndexedMembers {
        let mut many = IndexedMembers {
            members,
            places: HashMap::new(),
        };
        many.find_places();
        many
    }

    #[inline]
    fn find_places(&mut self) {
        self.places.clear();
        let names = self.members.iter().enumerate();
        self.places
            .extend(names.map(|(at, (name, _))| (name.clone(), at)));
    }
}

impl Map {
    /// An empty map.
    #[inline]
    pub fn new() -> Map {
        Map::default()
    }

    /// An empty map with memory for a number of members.
    #[inline]
    pub fn with_capacity(capacity: usize) -> Map {
        Map(Members::Few(Vec::with_capacity(capacity)))
    }

    #[inline]
    fn members(&self) -> &[(String, Value)] {
        match &self.0 {
            Members::Few(members) => members,
            Members::Many(many) => &many.members,
        }
    }

    #[inline]
    fn members_mut(&mut self) -> &mut [(String, Value)] {
        match &mut self.0 {
            Members::Few(members) => members,
            Members::Many(many) => &mut many.members,
        }
    }

    #[inline]
    fn into_members(self) -> Vec<(String, Value)> {
        match self.0 {
            Members::Few(members) => members,
            Members::Many(many) => many.members,
        }
    }

    /// Lets `change` add, remove or reorder members, then renews the index.
    #[inline]
    fn rearrange<T>(&mut self, change: impl FnOnce(&mut Vec<(String, Value)>) -> T) -> T {
        match &mut self.0 {
            Members::Few(members) => change(members),
            Members::Many(many) => {
                let changed = change(&mut many.members);
                many.find_places();
                changed
            }
        }
    }

    #[inline]
    fn place(&self, name: &str) -> Option<usize> {
        match &self.0 {
            Members::Few(members) => {
                // Names of equal length mostly differ in their first byte: compare it before calling memcmp.
                let first = name.as_bytes().first();
                let may_be =
                    |known: &str| known.len() == name.len() && known.as_bytes().first() == first;
                let is = |(known, _): &(String, Value)| may_be(known) && known == name;
                members.iter().position(is)
            }
            Members::Many(many) => many.places.get(name).copied(),
        }
    }

    /// Appends a member whose name is known to be new.
    #[inline]
    fn push(&mut self, name: String, value: Value) -> &mut Value {
        if let Members::Few(members) = &mut self.0
            && members.len() >= FEW_MAX
        {
            let members = std::mem::take(members);
            self.0 = Members::Many(Box::new(IndexedMembers::of(members)));
        }
        let members = match &mut self.0 {
            Members::Few(members) => members,
            Members::Many(many) => {
                many.places.insert(name.clone(), many.members.len());
                &mut many.members
            }
        };
        members.push((name, value));
        let last = members.len() - 1;
        &mut members[last].1
    }

    /// The number of members.
    #[inline]
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// True if there are no members.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// True if there is a member with that name.
    #[inline]
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    /// The value of a member.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&Value> {
        Some(&self.members()[self.place(name)?].1)
    }

    /// The value of a member, mutable.
    #[inline]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let place = self.place(name)?;
        Some(&mut self.members_mut()[place].1)
    }

    /// The name and value of a member.
    #[inline]
    pub fn get_key_value(&self, name: &str) -> Option<(&String, &Value)> {
        let (name, value) = &self.members()[self.place(name)?];
        Some((name, value))
    }

    /// Sets a member and returns its previous value. An existing member keeps its position, a new one is appended.
    #[inline]
    pub fn insert(&mut self, name: String, value: Value) -> Option<Value> {
        match self.get_mut(&name) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => {
                self.push(name, value);
                None
            }
        }
    }

    /// Appends a member. Returns `None` and changes nothing if the name exists.
    #[inline]
    pub fn insert_new(&mut self, name: &str, value: Value) -> Option<()> {
        if self.contains_key(name) {
            return None;
        }
        self.push(name.to_owned(), value);
        Some(())
    }

    /// A map of members. Returns `None` if two names are equal; in small maps the caller has checked that they are not.
    pub(crate) fn of_distinct(members: Vec<(String, Value)>) -> Option<Map> {
        if members.len() <= FEW_MAX {
            return Some(Map(Members::Few(members)));
        }
        let many = IndexedMembers::of(members);
        (many.places.len() == many.members.len()).then(|| Map(Members::Many(Box::new(many))))
    }

    /// Sets a member, moves it to a position, and returns its previous value.
    #[inline]
    pub fn shift_insert(&mut self, place: usize, name: String, value: Value) -> Option<Value> {
        let before = self.remove(&name);
        self.rearrange(|members| members.insert(place, (name, value)));
        before
    }

    /// Removes a member and returns its value. The others keep their order, so those behind it are moved: to remove several members
    /// of a large map, use [`Map::retain`].
    #[inline]
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let place = self.place(name)?;
        let members = match &mut self.0 {
            Members::Few(members) => members,
            Members::Many(many) => {
                many.places.remove(name);
                if place + 1 < many.members.len() {
                    let behind = many.places.values_mut().filter(|at| **at > place);
                    behind.for_each(|at| *at -= 1);
                }
                &mut many.members
            }
        };
        Some(members.remove(place).1)
    }

    /// The entry of a member, to look it up once and then set it.
    #[inline]
    pub fn entry(&mut self, name: impl Into<String>) -> Entry<'_> {
        let name = name.into();
        match self.place(&name) {
            Some(place) => Entry::Occupied(OccupiedEntry { map: self, place }),
            None => Entry::Vacant(VacantEntry { map: self, name }),
        }
    }

    /// Removes all members.
    #[inline]
    pub fn clear(&mut self) {
        *self = Map::new();
    }

    /// Keeps the members for which `keep` returns true.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(&String, &mut Value) -> bool) {
        self.rearrange(|members| members.retain_mut(|(name, value)| keep(name, value)));
    }

    /// Sorts members by name.
    #[inline]
    pub fn sort_keys(&mut self) {
        let members = self.members();
        if !members.is_sorted_by(|one, two| one.0 <= two.0) {
            self.rearrange(|members| members.sort_by(|one, two| one.0.cmp(&two.0)));
        }
    }

    /// All members.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.members().iter())
    }

    /// All members, with mutable values.
    #[inline]
    pub fn iter_mut(&mut self) -> IterMut<'_> {
        IterMut(self.members_mut().iter_mut())
    }

    /// All names.
    #[inline]
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &String> + ExactSizeIterator {
        self.members().iter().map(|(name, _)| name)
    }

    /// All values.
    #[inline]
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator {
        self.members().iter().map(|(_, value)| value)
    }

    /// All values, mutable.
    #[inline]
    pub fn values_mut(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = &mut Value> + ExactSizeIterator {
        self.members_mut().iter_mut().map(|(_, value)| value)
    }
}

/// The entry of a member.
pub enum Entry<'a> {
    /// The member exists.
    Occupied(OccupiedEntry<'a>),
    /// The member does not exist.
    Vacant(VacantEntry<'a>),
}

impl<'a> Entry<'a> {
    /// The value of the member, which is `value` if it did not exist.
    #[inline]
    pub fn or_insert(self, value: Value) -> &'a mut Value {
        self.or_insert_with(|| value)
    }

    /// The value of the member; if it did not exist, `value` makes it.
    #[inline]
    pub fn or_insert_with(self, value: impl FnOnce() -> Value) -> &'a mut Value {
        match self {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(value()),
        }
    }
}

/// The entry of a member that exists.
pub struct OccupiedEntry<'a> {
    map: &'a mut Map,
    place: usize,
}

impl<'a> OccupiedEntry<'a> {
    /// Its name.
    #[inline]
    pub fn key(&self) -> &String {
        &self.map.members()[self.place].0
    }

    /// Its value.
    #[inline]
    pub fn get_mut(&mut self) -> &mut Value {
        &mut self.map.members_mut()[self.place].1
    }

    #[inline]
    fn into_mut(self) -> &'a mut Value {
        &mut self.map.members_mut()[self.place].1
    }
}

/// The entry of a member that does not exist.
pub struct VacantEntry<'a> {
    map: &'a mut Map,
    name: String,
}

impl<'a> VacantEntry<'a> {
    /// Sets it.
    #[inline]
    pub fn insert(self, value: Value) -> &'a mut Value {
        self.map.push(self.name, value)
    }
}

/// Maps are equal if their members are, in any order.
impl PartialEq for Map {
    #[inline]
    fn eq(&self, other: &Map) -> bool {
        let (own, theirs) = (self.members(), other.members());
        own.len() == theirs.len()
            && std::iter::zip(own, theirs).all(|(own, theirs)| match own.0 == theirs.0 {
                true => own.1 == theirs.1,
                false => other.get(&own.0) == Some(&own.1),
            })
    }
}

impl Eq for Map {}

impl fmt::Debug for Map {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Extend<(String, Value)> for Map {
    #[inline]
    fn extend<I: IntoIterator<Item = (String, Value)>>(&mut self, members: I) {
        for (name, value) in members {
            self.insert(name, value);
        }
    }
}

impl FromIterator<(String, Value)> for Map {
    #[inline]
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Map {
        let mut map = Map::new();
        map.extend(members);
        map
    }
}

/// See [`Map::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a>(std::slice::Iter<'a, (String, Value)>);

/// See [`Map::iter_mut`].
#[derive(Debug)]
pub struct IterMut<'a>(std::slice::IterMut<'a, (String, Value)>);

macro_rules! iterator {
    ($($name:ty => $item:ty, |$member:pat_param| $as:expr;)*) => {$(
        impl<'a> Iterator for $name {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                self.0.next().map(|$member| $as)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl<'a> DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<$item> {
                self.0.next_back().map(|$member| $as)
            }
        }

        impl<'a> ExactSizeIterator for $name {}
    )*};
}

iterator! {
    Iter<'a> => (&'a String, &'a Value), |(name, value)| (name, value);
    IterMut<'a> => (&'a String, &'a mut Value), |(name, value)| (&*name, value);
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a String, &'a Value);
    type IntoIter = Iter<'a>;

    #[inline]
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a String, &'a mut Value);
    type IntoIter = IterMut<'a>;

    #[inline]
    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.into_members().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Change {
        Insert(u8),
        Remove(u8),
        Entry(u8),
        Retain(u8),
        Sort,
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = prop_oneof![
            6 => any::<u8>().prop_map(Change::Insert),
            2 => any::<u8>().prop_map(Change::Remove),
            2 => any::<u8>().prop_map(Change::Entry),
            1 => any::<u8>().prop_map(Change::Retain),
            1 => Just(Change::Sort),
        ];
        prop::collection::vec(change, 0..200)
    }

    proptest! {
        #[test]
        fn it_does_what_serde_jsons_map_does(changes in changes()) {
            let (mut own, mut other) = (Map::new(), serde_json::Map::new());
            for (at, change) in changes.into_iter().enumerate() {
                match change {
                    Change::Insert(name) => {
                        let before = own.insert(name.to_string(), at.into());
                        let expected = other.insert(name.to_string(), at.into());
                        prop_assert_eq!(before, expected.map(Value::from));
                    }
                    Change::Remove(name) => {
                        let before = own.remove(&name.to_string());
                        let expected = other.shift_remove(&name.to_string());
                        prop_assert_eq!(before, expected.map(Value::from));
                    }
                    Change::Entry(name) => {
                        let value = own.entry(name.to_string()).or_insert(at.into()).clone();
                        let expected = other.entry(name.to_string()).or_insert(at.into()).clone();
                        prop_assert_eq!(value, Value::from(expected));
                    }
                    Change::Retain(least) => {
                        own.retain(|_, value| value.as_u64() >= Some(u64::from(least)));
                        other.retain(|_, value| value.as_u64() >= Some(u64::from(least)));
                    }
                    Change::Sort => {
                        own.sort_keys();
                        other.sort_keys();
                    }
                }
            }
            let expected = Map::from(other.clone());
            prop_assert_eq!(own.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
            for name in 0..=u8::MAX {
                let name = name.to_string();
                prop_assert_eq!(own.get(&name), expected.get(&name));
            }
            let backwards: Map = own.clone().into_iter().rev().collect();
            prop_assert_eq!(&backwards, &own);
            if let Some(name) = own.keys().next().cloned() {
                let mut changed = own.clone();
                changed.insert(name, Value::Null);
                prop_assert_ne!(&changed, &own);
                prop_assert_ne!(&backwards, &changed);
            }
        }
    }

    #[test]
    fn many_members_cost_no_more_than_their_number() {
        let started = std::time::Instant::now();
        let map: Map = (0..200_000)
            .map(|at| (at.to_string(), Value::Null))
            .collect();
        assert_eq!(map.clone(), map);
        // Without the index, comparing each name with all others takes minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }
}
