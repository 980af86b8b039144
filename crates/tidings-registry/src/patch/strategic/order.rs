//! The order of elements in lists that a strategic merge patch merges.

use std::collections::HashMap;

use tidings_json::Value;

use super::PATCH;

/// The positions of the elements of a list, by the JSON that identifies them.
#[derive(Clone)]
pub(super) struct ElementPositions {
    key: Option<&'static str>,
    positions: HashMap<String, usize>,
}

impl ElementPositions {
    /// The positions in a list. Elements are identified by the member `key`, or else by their whole JSON.
    pub(super) fn of<'a>(
        list: impl IntoIterator<Item = &'a Value>,
        key: Option<&'static str>,
    ) -> ElementPositions {
        let mut positions = ElementPositions {
            key,
            positions: HashMap::new(),
        };
        for (at, element) in list.into_iter().enumerate() {
            positions.add(element, at);
        }
        positions
    }

    /// The JSON that identifies an element: that of its merge key, or of the whole element.
    fn identity(&self, element: &Value) -> Option<String> {
        match self.key {
            Some(key) => element.get(key).map(Value::to_string),
            None => Some(element.to_string()),
        }
    }

    /// Adds an element at a position, unless an earlier element has its identity.
    pub(super) fn add(&mut self, element: &Value, at: usize) {
        if let Some(identity) = self.identity(element) {
            self.positions.entry(identity).or_insert(at);
        }
    }

    /// Adds positions at the end of the list for elements that the patch adds, at most as many as it deletes. Upstream overwrites
    /// the list whose order it reads later, and the order that clients see depends on it.
    pub(super) fn add_new_elements(&mut self, list: &[Value], patch: &[Value], key: &'static str) {
        let directive = |element: &Value| Some(element.get(PATCH)?.as_str()?.to_owned());
        let of = |wanted: Option<&'static str>| {
            let elements = patch.iter();
            elements.filter(move |element| directive(element).as_deref() == wanted)
        };
        if of(Some("replace")).next().is_some() {
            return;
        }
        let deleted = ElementPositions::of(of(Some("delete")), Some(key));
        let free = list
            .iter()
            .filter(|element| deleted.find(element).is_some());
        let new: Vec<&Value> = of(None)
            .filter(|element| self.find(element).is_none())
            .take(free.count())
            .collect();
        for (at, element) in new.into_iter().enumerate() {
            self.add(element, list.len() + at);
        }
    }

    /// The position of the element with the identity of this one.
    pub(super) fn find(&self, element: &Value) -> Option<usize> {
        self.positions.get(&self.identity(element)?).copied()
    }
}

/// Sorts merged elements. Elements of the patch are in the order of the patch, and the others in the order of the document.
/// Between an element of the patch and another one the document decides; an element that only the patch has comes first.
pub(super) fn arrange(list: &mut Vec<Value>, before: &ElementPositions, patch: &ElementPositions) {
    let (mut patched, mut rest) = (Vec::new(), Vec::new());
    for element in std::mem::take(list) {
        let position = before.find(&element);
        match patch.find(&element) {
            Some(at) => patched.push((at, position, element)),
            None => rest.push((position, element)),
        }
    }
    patched.sort_by_key(|(at, _, _)| *at);
    rest.sort_by_key(|(position, _)| position.unwrap_or(usize::MAX));
    let mut rest = rest.into_iter().peekable();
    for (_, position, element) in patched {
        while let (Some((Some(other), _)), Some(position)) = (rest.peek(), position)
            && *other < position
        {
            list.extend(rest.next().map(|(_, element)| element));
        }
        list.push(element);
    }
    list.extend(rest.map(|(_, element)| element));
}
