//! `Warning` headers of responses.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::WARNING;

/// A warning of the server: that an API version is deprecated, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The code; API servers send 299.
    pub code: u16,
    /// The sender of the warning; API servers send `-`.
    pub agent: String,
    /// The text for people.
    pub text: String,
}

/// The code of a persistent warning, the only code that API servers use.
pub(crate) const PERSISTENT: u16 = 299;

/// A function that is called with each warning.
pub(crate) type WarningHandler = Arc<dyn Fn(&Warning) + Send + Sync>;

/// The warnings of a response. If one cannot be parsed, those after it in the same header are ignored.
pub(crate) fn warnings(headers: &HeaderMap) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for header in headers.get_all(WARNING) {
        let Ok(mut rest) = std::str::from_utf8(header.as_bytes()) else {
            continue;
        };
        while let Some((warning, after)) = parse(rest) {
            warnings.push(warning);
            rest = after;
        }
    }
    warnings
}

/// Parses `code SP agent SP quoted-text [SP quoted-date]`. Also returns the text after the comma.
fn parse(header: &str) -> Option<(Warning, &str)> {
    let (code, rest) = header.trim_start().split_once(' ')?;
    let (agent, rest) = rest.split_once(' ')?;
    let digits = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || agent.is_empty() {
        return None;
    }
    let (text, rest) = unquote(rest.trim_start())?;
    let mut rest = rest.trim_start();
    if rest.starts_with('"') {
        // The date is ignored: it is the time of the response.
        rest = unquote(rest)?.1.trim_start();
    }
    let after = match rest.strip_prefix(',') {
        Some(after) => after,
        None if rest.is_empty() => rest,
        None => return None,
    };
    if text.chars().any(char::is_control) {
        return None;
    }
    let warning = Warning {
        code: code.parse().ok()?,
        agent: agent.to_owned(),
        text,
    };
    Some((warning, after))
}

/// Parses a quoted string. Also returns the text after it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let inner = quoted.strip_prefix('"')?;
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, &inner[at + 1..])),
            '\\' => text.push(characters.next()?.1),
            other => text.push(other),
        }
    }
    None
}

/// A handler that logs each text once.
pub(crate) fn logs_once() -> WarningHandler {
    let known: Mutex<KnownTexts> = Mutex::default();
    Arc::new(move |warning| {
        if warning.code != PERSISTENT || warning.text.is_empty() {
            return;
        }
        let new = {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(&warning.text)
        };
        if new {
            tracing::warn!(text = warning.text, "the API server sent a warning");
        }
    })
}

/// Texts that are remembered. The oldest is forgotten first.
const KNOWN_MAX: usize = 256;

/// The texts of warnings that were logged.
#[derive(Default)]
struct KnownTexts {
    texts: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl KnownTexts {
    fn insert(&mut self, text: &str) -> bool {
        if self.texts.contains(text) {
            return false;
        }
        if self.order.len() == KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.texts.remove(&oldest);
        }
        let text: Arc<str> = text.into();
        self.order.push_back(Arc::clone(&text));
        self.texts.insert(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expected: &[(u16, &str, &str)]) {
        let mut headers = HeaderMap::new();
        headers.insert(WARNING, header.parse().unwrap());
        let found = warnings(&headers);
        let found: Vec<_> = found
            .iter()
            .map(|warning| (warning.code, &*warning.agent, &*warning.text))
            .collect();
        assert_eq!(found, expected, "{header}");
    }

    #[test]
    fn b129_warnings_are_parsed_with_quotes_escapes_dates_and_lists() {
        check(r#"299 - "old""#, &[(299, "-", "old")]);
        check(
            r#"299 - "say \"a, b\" \\""#,
            &[(299, "-", r#"say "a, b" \"#)],
        );
        check(
            r#"299 - "a" "Tue, 15 Nov 1994 08:12:31 GMT", 199 proxy:80 "b" ,299 - "c""#,
            &[(299, "-", "a"), (199, "proxy:80", "b"), (299, "-", "c")],
        );
        check(r#"299 - """#, &[(299, "-", "")]);
    }

    #[test]
    fn b129_what_is_no_warning_is_none() {
        for header in [
            "",
            "299",
            "299 -",
            "299 - text",
            r#"299 - "open"#,
            r#"299 - "open\"#,
            r#"29 - "a""#,
            r#"+29 - "a""#,
            r#"299  "a""#,
            r#"299 - "a" b"#,
            "299 - \"a\tb\"",
        ] {
            check(header, &[]);
        }
        check(r#"299 - "a", nonsense"#, &[(299, "-", "a")]);
    }

    #[test]
    fn b129_texts_are_remembered_up_to_a_bound() {
        let mut known = KnownTexts::default();
        assert!(known.insert("first"));
        assert!(!known.insert("first"));
        for number in 0..KNOWN_MAX {
            assert!(known.insert(&number.to_string()));
        }
        assert_eq!(known.texts.len(), KNOWN_MAX);
        assert_eq!(known.order.len(), KNOWN_MAX);
        assert!(known.insert("first"), "it was forgotten");
    }
}
