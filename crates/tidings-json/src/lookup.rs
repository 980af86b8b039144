//! Finds members of an object without decoding the rest.

use crate::scan::{ScanError, ScanEvents, Scanner, ValueKind};
use crate::span::{Span, unquote};

/// How many paths are looked for in one scan: the bits of a mask.
const PATHS_AT_ONCE: usize = u64::BITS as usize;

/// The span of the value that a path of members leads to, in one complete JSON object.
pub fn find_member(json: &[u8], path: &[&str]) -> Option<Span> {
    let mut found = [None];
    search(json, &mut found, |_, depth| path.get(depth).copied());
    found[0]
}

/// The spans of the values that paths of members lead to, in one complete JSON object. The object is scanned once for each 64 paths, up to the
/// last value.
pub fn find_members(json: &[u8], paths: &[Box<[Box<str>]>]) -> Vec<Option<Span>> {
    let mut found = vec![None; paths.len()];
    let parts = paths.chunks(PATHS_AT_ONCE);
    for (part, found) in parts.zip(found.chunks_mut(PATHS_AT_ONCE)) {
        search(json, found, |path, depth| {
            part[path].get(depth).map(|name| &**name)
        });
    }
    found
}

/// Looks for as many paths as there are places in `found`. `name` is the name that a path has at a depth; `None` after its end.
fn search<'p>(
    json: &[u8],
    found: &mut [Option<Span>],
    name: impl Fn(usize, usize) -> Option<&'p str>,
) {
    let all = (0..found.len()).fold(0, |all, path| all | 1 << path);
    let mut search = MemberSearch {
        name,
        found,
        missing: all,
        open: vec![(all, 0)],
        key: 0,
    };
    // The scan is broken off as soon as everything is found.
    let _ = Scanner::new().scan(json, &mut search);
}

struct MemberSearch<'f, F> {
    name: F,
    found: &'f mut [Option<Span>],
    /// The paths that are not found yet. Sets of paths are masks.
    missing: u64,
    /// For each depth, down to the deepest that paths lead to, the paths that lead to the open value, and where it starts.
    open: Vec<(u64, usize)>,
    key: usize,
}

/// Why the scan ends: it is not JSON, or there is nothing more to look for.
enum SearchEnd {
    Scan,
    Found,
}

impl From<ScanError> for SearchEnd {
    fn from(_: ScanError) -> SearchEnd {
        SearchEnd::Scan
    }
}

/// The members of a set of paths.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let path = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(path)
    })
}

impl<'p, F: Fn(usize, usize) -> Option<&'p str>> ScanEvents for MemberSearch<'_, F> {
    type Error = SearchEnd;

    fn value_start(
        &mut self,
        _: &[u8],
        at: usize,
        _: ValueKind,
        depth: usize,
    ) -> Result<(), SearchEnd> {
        if depth + 1 == self.open.len() {
            self.open[depth].1 = at;
        }
        Ok(())
    }

    fn value_end(
        &mut self,
        _: &[u8],
        end: usize,
        _: ValueKind,
        depth: usize,
    ) -> Result<(), SearchEnd> {
        if depth == 0 || depth + 1 != self.open.len() {
            return Ok(());
        }
        let Some((paths, start)) = self.open.pop() else {
            return Ok(());
        };
        for path in members(paths).filter(|path| (self.name)(*path, depth).is_none()) {
            self.found[path] = Some(Span {
                start: start as u32,
                end: end as u32,
            });
            self.missing &= !(1 << path);
        }
        match self.missing {
            0 => Err(SearchEnd::Found),
            _ => Ok(()),
        }
    }

    fn key_start(&mut self, at: usize, _: usize) {
        self.key = at;
    }

    fn key_end(&mut self, chunk: &[u8], end: usize, depth: usize) -> Result<(), SearchEnd> {
        if depth != self.open.len() {
            return Ok(());
        }
        let wanted = self.open[depth - 1].0 & self.missing;
        if wanted == 0 {
            return Ok(());
        }
        let key = unquote(&chunk[self.key..end]);
        let is_key = |path: &usize| {
            let name = (self.name)(*path, depth - 1);
            name.is_some_and(|name| key.as_deref() == Some(name.as_bytes()))
        };
        let paths = members(wanted).filter(is_key);
        let paths = paths.fold(0, |all, path| all | 1 << path);
        if paths != 0 {
            self.open.push((paths, 0));
        }
        Ok(())
    }

    fn comma(&mut self, _: &[u8], _: usize, _: usize) -> Result<(), SearchEnd> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'j>(json: &'j str, path: &[&str]) -> Option<&'j str> {
        find_member(json.as_bytes(), path).map(|span| &json[span.start as usize..span.end as usize])
    }

    #[test]
    fn members_are_found_at_their_depth_only() {
        let json = r#"{"a":{"phase":"no"},"status":{"x":{"phase":"no"},"phase":"yes"},"phase":1,"list":[{"phase":2}]}"#;
        assert_eq!(at(json, &["status", "phase"]), Some(r#""yes""#));
        assert_eq!(at(json, &["phase"]), Some("1"));
        assert_eq!(at(json, &["status", "x"]), Some(r#"{"phase":"no"}"#));
        assert_eq!(at(json, &["status", "nope"]), None);
        assert_eq!(at(json, &["list", "phase"]), None);
        assert_eq!(at(json, &["a", "phase", "deeper"]), None);
    }

    #[test]
    fn several_members_are_found_in_one_scan() {
        let json = r#"{"a":{"b":{"c":1},"d":"x","d2":[{"d":"no"}]},"b":{"c":2},"e":null,"not json"#;
        let paths = ["a.b.c", "a.b", "a.d", "b.c", "e", "a.x", "a.b.c.d"];
        let split = |path: &&str| path.split('.').map(Into::into).collect();
        let paths: Vec<Box<[Box<str>]>> = paths.iter().map(split).collect();
        let found = find_members(json.as_bytes(), &paths).into_iter();
        let found: Vec<_> = found
            .map(|span| span.map(|span| &json[span.start as usize..span.end as usize]))
            .collect();
        let expected = [
            Some("1"),
            Some(r#"{"c":1}"#),
            Some(r#""x""#),
            Some("2"),
            Some("null"),
            None,
            None,
        ];
        assert_eq!(found, expected);
        let many: Vec<_> = (0..200).map(|at| paths[at % paths.len()].clone()).collect();
        let found = find_members(json.as_bytes(), &many);
        assert!((0..200).all(|at| found[at].is_some() == expected[at % expected.len()].is_some()));
    }
}
