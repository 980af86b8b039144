//! Finds one member of an object without decoding the rest.

use crate::scan::{ScanError, ScanEvents, Scanner, ValueKind};
use crate::span::{Span, unquote};

/// The span of the value that a path of members leads to, in one complete JSON object.
pub fn find_member(json: &[u8], path: &[&str]) -> Option<Span> {
    let mut search = MemberSearch {
        path,
        matched: 0,
        key: 0,
        found: None,
        start: 0,
    };
    // The scan is broken off as soon as the value is found.
    let _ = Scanner::new().scan(json, &mut search);
    search.found
}

struct MemberSearch<'p> {
    path: &'p [&'p str],
    /// How many members of the path are open.
    matched: usize,
    key: usize,
    start: usize,
    found: Option<Span>,
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

impl ScanEvents for MemberSearch<'_> {
    type Error = SearchEnd;

    fn value_start(
        &mut self,
        _: &[u8],
        at: usize,
        _: ValueKind,
        depth: usize,
    ) -> Result<(), SearchEnd> {
        if depth == self.path.len() && self.matched == self.path.len() {
            self.start = at;
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
        if depth > 0 && depth == self.matched {
            if self.matched == self.path.len() {
                self.found = Some(Span {
                    start: self.start as u32,
                    end: end as u32,
                });
                return Err(SearchEnd::Found);
            }
            self.matched -= 1;
        }
        Ok(())
    }

    fn key_start(&mut self, at: usize, _: usize) {
        self.key = at;
    }

    fn key_end(&mut self, chunk: &[u8], end: usize, depth: usize) -> Result<(), SearchEnd> {
        if depth == self.matched + 1
            && self.path.get(self.matched).is_some_and(|name| {
                unquote(&chunk[self.key..end]).as_deref() == Some(name.as_bytes())
            })
        {
            self.matched += 1;
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
}
