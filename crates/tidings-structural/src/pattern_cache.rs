//! Regular expressions that rules match: a pattern that stands in a rule is compiled once, and patterns that objects bring go through a small cache.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;

use crate::pattern::{PROGRAM_BYTES_MAX, go_regex, go_regex_within};

/// How many patterns of rules are kept.
const LITERALS_MAX: usize = 4096;
/// How many patterns of objects are kept.
const DYNAMIC_MAX: usize = 256;
/// A pattern of an object that becomes larger is compiled for each match: somebody may want to fill the memory.
const DYNAMIC_BYTES_MAX: usize = 64 << 10;

static LITERALS: LazyLock<PatternCache> =
    LazyLock::new(|| PatternCache::new(LITERALS_MAX, PROGRAM_BYTES_MAX));
static DYNAMIC: LazyLock<PatternCache> =
    LazyLock::new(|| PatternCache::new(DYNAMIC_MAX, DYNAMIC_BYTES_MAX));

/// Compiled patterns.
struct PatternCache {
    known: Mutex<HashMap<Box<str>, Regex>>,
    most: usize,
    /// How large a compiled pattern may be to be kept.
    bytes_max: usize,
}

impl PatternCache {
    fn new(most: usize, bytes_max: usize) -> PatternCache {
        PatternCache {
            known: Mutex::default(),
            most,
            bytes_max,
        }
    }

    fn get(&self, pattern: &str) -> Result<Regex, String> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = known().get(pattern) {
            return Ok(regex.clone());
        }
        // Compiled without the lock, for which all rules would wait.
        let Ok(regex) = go_regex_within(pattern, self.bytes_max) else {
            return go_regex(pattern);
        };
        let mut known = known();
        if known.len() >= self.most {
            known.clear();
        }
        known.insert(pattern.into(), regex.clone());
        Ok(regex)
    }
}

/// True if a text matches a pattern, which stands in a rule (`is_literal`) or came with an object.
pub(crate) fn matches(text: &str, pattern: &str, is_literal: bool) -> Result<bool, String> {
    let cache = if is_literal { &LITERALS } else { &DYNAMIC };
    Ok(cache.get(pattern)?.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_compiled_once_and_few_are_kept() {
        let cache = PatternCache::new(2, 4 << 10);
        let kept = || cache.known.lock().unwrap().len();
        for _ in 0..3 {
            assert!(cache.get("^a+$").unwrap().is_match("aaa"));
            assert_eq!(kept(), 1);
        }
        assert!(!cache.get("^b$").unwrap().is_match("a"));
        assert_eq!(kept(), 2);
        cache.get("^c$").unwrap();
        assert_eq!(kept(), 1);
        // Too large to be kept, and still matched.
        assert!(
            cache
                .get("^[a-z]{500}$")
                .unwrap()
                .is_match(&"x".repeat(500))
        );
        assert_eq!(kept(), 1);
        assert!(cache.get("a**").is_err());
    }
}
