//! The outline of a JSON document: the positions of all its values, in one list.
//!
//! Protobuf needs fields in the order of their numbers, JSON has them in any order. The outline finds a value without parsing the
//! document into a tree, and skips members that are not needed.

use crate::plain::find_quote_or_escape;

/// The maximum depth of a document. Stored objects are less deep.
const DEPTH_MAX: usize = 1024;

/// A document and the positions of its values. Separators are not checked: the document was parsed before.
#[derive(Debug)]
pub struct Outline<'a> {
    json: &'a [u8],
    nodes: Vec<OutlineNode>,
}

/// The position of a value or of a member name. A name is followed by its value.
#[derive(Debug, Clone, Copy)]
struct OutlineNode {
    start: u32,
    end: u32,
    /// The index of the node after this one and its content.
    next: u32,
}

/// The index of a value in an outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlineIndex(u32);

/// Bytes that are not one JSON value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one JSON value")]
pub struct NotJson;

impl<'a> Outline<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// If brackets or quotes do not match, or the document is not one value.
    pub fn read(json: &'a [u8]) -> Result<Self, NotJson> {
        u32::try_from(json.len()).map_err(|_| NotJson)?;
        let mut nodes = Vec::with_capacity(json.len() / 16 + 1);
        let mut open: Vec<usize> = Vec::new();
        let mut at = 0;
        while let Some(byte) = json.get(at) {
            if matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') {
                at += 1;
                continue;
            }
            // A document has one value.
            if open.is_empty() && !nodes.is_empty() {
                return Err(NotJson);
            }
            let end = match byte {
                b'{' | b'[' => {
                    if open.len() == DEPTH_MAX {
                        return Err(NotJson);
                    }
                    open.push(nodes.len());
                    at + 1
                }
                b'}' | b']' => {
                    let container = open.pop().ok_or(NotJson)?;
                    let next = nodes.len() as u32;
                    let node: &mut OutlineNode = nodes.get_mut(container).ok_or(NotJson)?;
                    // `{` and `}`, and `[` and `]`, differ by two in ASCII.
                    if json.get(node.start as usize) != Some(&(byte - 2)) {
                        return Err(NotJson);
                    }
                    (node.end, node.next) = (at as u32 + 1, next);
                    at += 1;
                    continue;
                }
                b'"' => string_end(json, at).ok_or(NotJson)?,
                _ => scalar_end(json, at),
            };
            nodes.push(OutlineNode {
                start: at as u32,
                end: end as u32,
                next: nodes.len() as u32 + 1,
            });
            at = end;
        }
        if !open.is_empty() || nodes.is_empty() {
            return Err(NotJson);
        }
        Ok(Self { json, nodes })
    }

    /// The whole document.
    pub fn top(&self) -> OutlineIndex {
        OutlineIndex(0)
    }

    /// The JSON of a value.
    pub fn text(&self, at: OutlineIndex) -> &'a [u8] {
        let node = self.node(at);
        self.json
            .get(node.start as usize..node.end as usize)
            .unwrap_or_default()
    }

    /// The elements of an array; `None` if the value is no array.
    pub fn elements(&self, array: OutlineIndex) -> Option<OutlineChildren<'_>> {
        self.children(array, b'[')
    }

    /// The names and values of an object, in the order of the document; `None` if the value is no object.
    pub fn members(
        &self,
        object: OutlineIndex,
    ) -> Option<impl Iterator<Item = (OutlineIndex, OutlineIndex)> + '_> {
        let mut children = self.children(object, b'{')?;
        Some(std::iter::from_fn(move || {
            Some((children.next()?, children.next()?))
        }))
    }

    /// How many members all objects of the document have, repeated ones included.
    pub fn member_count(&self) -> usize {
        let objects = (0..self.nodes.len() as u32).map(OutlineIndex);
        let members = objects.filter_map(|at| self.members(at));
        members.map(Iterator::count).sum()
    }

    /// The line on which a value or a name begins; the first is 1.
    pub fn line(&self, at: OutlineIndex) -> usize {
        let start = self.node(at).start as usize;
        let before = self.json.get(..start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn children(&self, container: OutlineIndex, bracket: u8) -> Option<OutlineChildren<'_>> {
        let is_one = self.text(container).first() == Some(&bracket);
        is_one.then(|| OutlineChildren {
            nodes: &self.nodes,
            at: container.0 + 1,
            end: self.node(container).next,
        })
    }

    fn node(&self, at: OutlineIndex) -> OutlineNode {
        let nothing = OutlineNode {
            start: 0,
            end: 0,
            next: 0,
        };
        self.nodes.get(at.0 as usize).copied().unwrap_or(nothing)
    }
}

/// Iterates over the direct content of an array or object.
#[derive(Debug)]
pub struct OutlineChildren<'a> {
    nodes: &'a [OutlineNode],
    at: u32,
    end: u32,
}

impl Iterator for OutlineChildren<'_> {
    type Item = OutlineIndex;

    fn next(&mut self) -> Option<OutlineIndex> {
        if self.at >= self.end {
            return None;
        }
        let found = OutlineIndex(self.at);
        self.at = self.nodes.get(self.at as usize)?.next;
        Some(found)
    }
}

/// The position after the quote that closes a string.
fn string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at = find_quote_or_escape(json, at)?;
        if json.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn scalar_end(json: &[u8], start: usize) -> usize {
    let rest = json.get(start..).unwrap_or_default();
    let ends = |byte: &u8| {
        matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[') || byte.is_ascii_whitespace()
    };
    // At least one byte. An invalid scalar is noticed when it is parsed.
    let length = rest
        .iter()
        .skip(1)
        .position(ends)
        .map_or(rest.len(), |at| at + 1);
    start + length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_without_what_is_in_them() {
        let outline = Outline::read(br#" {"a":[1, {"b":"}\""}],"c":null} "#).expect("JSON");
        let members = outline.members(outline.top()).expect("an object");
        let members: Vec<&[u8]> = members
            .flat_map(|(name, value)| [outline.text(name), outline.text(value)])
            .collect();
        let expected: [&[u8]; 4] = [b"\"a\"", br#"[1, {"b":"}\""}]"#, b"\"c\"", b"null"];
        assert_eq!(members, expected);
        let first = outline
            .members(outline.top())
            .and_then(|mut all| all.next());
        let (_, array) = first.expect("a member");
        let elements = outline.elements(array).expect("an array");
        assert_eq!(elements.count(), 2);
    }

    #[test]
    fn repeated_members_are_counted_and_have_lines() {
        let outline = Outline::read(b"{\"a\":[{},{\"b\":1}],\n\"a\":{\n\"c\":2}}").expect("JSON");
        assert_eq!(outline.member_count(), 4);
        let members = outline.members(outline.top()).expect("an object");
        let lines: Vec<_> = members.map(|(name, _)| outline.line(name)).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        let deep = [b"[".repeat(DEPTH_MAX + 1), b"]".repeat(DEPTH_MAX + 1)].concat();
        let refused: [&[u8]; 8] = [b"", b" ", b"{", b"}", b"{]", b"\"a", b"\"\\", &deep];
        for json in refused {
            assert_eq!(Outline::read(json).err(), Some(NotJson), "{json:?}");
        }
        assert!(Outline::read(b"{} {}").is_err());
        assert!(Outline::read(&deep[1..deep.len() - 1]).is_ok());
    }
}
