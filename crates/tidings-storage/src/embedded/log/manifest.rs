//! The list of segments that make up the log, `log/SEGMENTS`.
//!
//! The list is replaced as a whole, so that one rename decides which segments belong to the log. A segment with a length is
//! closed: bytes after that length were never acknowledged. The last segment may have no length: it is open for writes.

use super::SegmentId;
use crate::contract::Revision;

const TITLE: &str = "tidings segments";

/// The list of segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The start of history, unless the log has a later one.
    pub(super) oldest: Revision,
    /// The running time of the store, unless the log has a later one.
    pub(super) time_ms: u64,
    /// The last revision that was written in format 2, by an earlier version.
    pub(super) converted: Revision,
    /// The newest revision without a record when the directory was converted: it may be a lost deletion.
    pub(super) newest_gap: Revision,
    /// The segments in the order of their revisions, with the lengths of closed ones.
    pub(super) segments: Vec<(SegmentId, Option<u64>)>,
}

impl Manifest {
    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "{TITLE}\noldest {}\ntime {}\nconverted {}\ngap {}\n",
            self.oldest, self.time_ms, self.converted, self.newest_gap
        );
        for (id, bytes) in &self.segments {
            text.push_str(&match bytes {
                Some(bytes) => format!("segment {id} {bytes}\n"),
                None => format!("segment {id}\n"),
            });
        }
        let crc = crc32fast::hash(text.as_bytes());
        text.push_str(&format!("crc32 {crc:08x}\n"));
        text
    }

    /// Parses the list of format 2: one number per line.
    pub(super) fn parse_format_2(text: &str) -> Option<Manifest> {
        if !text.starts_with(TITLE) {
            let ids = text.lines().map(|line| Some((line.parse().ok()?, None)));
            return Some(Manifest {
                segments: ids.collect::<Option<_>>()?,
                ..Manifest::default()
            });
        }
        Manifest::parse(text)
    }

    /// Parses a list. `None` if it is damaged or not a list of segments.
    pub(super) fn parse(text: &str) -> Option<Manifest> {
        if !text.starts_with(TITLE) {
            return None;
        }
        let (body, crc) = text.split_at(text.rfind("crc32 ")?);
        let crc = crc.strip_prefix("crc32 ")?.strip_suffix('\n')?;
        if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let mut manifest = Manifest::default();
        for line in body.lines().skip(1) {
            let mut words = line.split(' ');
            let (what, number) = (words.next()?, words.next()?.parse().ok()?);
            let more = words.next().map(str::parse).transpose().ok()?;
            match what {
                "oldest" => manifest.oldest = Revision(number),
                "time" => manifest.time_ms = number,
                "converted" => manifest.converted = Revision(number),
                "gap" => manifest.newest_gap = Revision(number),
                "segment" => manifest.segments.push((number, more)),
                _ => return None,
            }
        }
        Some(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_any_change_is_noticed() {
        let manifest = Manifest {
            oldest: Revision(5),
            time_ms: 77,
            converted: Revision(3),
            newest_gap: Revision(2),
            segments: vec![(4, Some(100)), (2, Some(8)), (9, None)],
        };
        let text = manifest.to_text();
        assert_eq!(Manifest::parse(&text), Some(manifest));
        for at in TITLE.len()..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(Manifest::parse(&damaged), None, "byte {at}");
            assert_eq!(Manifest::parse(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn the_list_of_format_2_is_read_in_a_directory_of_format_2_only() {
        let segments = Manifest::parse_format_2("1\n2\n").unwrap().segments;
        assert_eq!(segments, [(1, None), (2, None)]);
        assert_eq!(Manifest::parse_format_2(""), Some(Manifest::default()));
        assert_eq!(Manifest::parse_format_2("one\n"), None);
        // An emptied file is not an empty list: otherwise all segments would count as leftovers.
        assert_eq!(Manifest::parse(""), None);
        assert_eq!(Manifest::parse("1\n2\n"), None);
        let converted = Manifest::default().to_text();
        assert_eq!(
            Manifest::parse_format_2(&converted),
            Some(Manifest::default())
        );
    }
}
