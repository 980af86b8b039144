//! Compiles Go's regular expressions of schemas and rules with the crate `regex`, whose syntax is nearly the same.

use regex::Regex;

/// How large a compiled pattern may be.
pub(crate) const PROGRAM_BYTES_MAX: usize = 4 << 20;
/// How large the states that matching a pattern makes may become.
const DFA_BYTES_MAX: usize = 2 << 20;

/// Compiles a regular expression of Go. Both syntaxes follow RE2; classes such as `\d`, stacked repetitions and `\Q` differ.
pub(crate) fn go_regex(pattern: &str) -> Result<Regex, String> {
    go_regex_within(pattern, PROGRAM_BYTES_MAX)
}

/// As [`go_regex`], with a bound on the compiled pattern.
pub(crate) fn go_regex_within(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    if let Some(stacked) = stacked_repetition(pattern) {
        return Err(format!(
            "error parsing regexp: invalid nested repetition operator: `{stacked}`"
        ));
    }
    regex::RegexBuilder::new(&ascii_classes(pattern))
        .size_limit(bytes_max)
        .dfa_size_limit(bytes_max.min(DFA_BYTES_MAX))
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(text) => syntax_message(&text, pattern),
            other => other.to_string(),
        })
}

/// The first repetition of a repetition, such as `**` in `a**`. Go refuses these, the crate `regex` accepts them.
fn stacked_repetition(pattern: &str) -> Option<&str> {
    let bytes = pattern.as_bytes();
    let mut before: Option<usize> = None;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += match bytes[at] {
            b'\\' if pattern[at..].starts_with(r"\Q") => {
                let quoted = pattern[at..].find(r"\E");
                quoted.map_or(pattern.len() - at, |end| end + 2)
            }
            b'\\' => 1 + pattern[at + 1..].chars().next().map_or(0, char::len_utf8),
            b'[' => class_len(&pattern[at..]),
            b'*' | b'+' | b'?' => 1,
            b'{' => repetition_len(&pattern[at..]).unwrap_or(1),
            _ => 1,
        };
        let is_repetition =
            matches!(bytes[start], b'*' | b'+' | b'?') || (bytes[start] == b'{' && at - start > 1);
        // In `(?` the question mark starts flags of a group.
        let begins_group = bytes[start] == b'?' && start > 0 && bytes[start - 1] == b'(';
        if !is_repetition || begins_group {
            before = None;
            continue;
        }
        if bytes.get(at) == Some(&b'?') {
            at += 1;
        }
        if let Some(first) = before {
            return Some(&pattern[first..at]);
        }
        before = Some(start);
    }
    None
}

/// The length of the character class at the start of `text`.
fn class_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    if bytes.get(at) == Some(&b'^') {
        at += 1;
    }
    if bytes.get(at) == Some(&b']') {
        at += 1;
    }
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' if text[at..].starts_with("[:") => {
                at += text[at..].find(":]").map_or(0, |end| end + 1);
            }
            b']' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The length of the repetition `{n,m}` at the start of `text`, if it is one.
fn repetition_len(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let (min, max) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!min.is_empty() && is_number(min) && is_number(max)).then_some(end + 1)
}

/// Rewrites a pattern for the crate `regex`: `\d`, `\w`, `\s` and `\b` mean ASCII in Go and Unicode there.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    let mut class_depth = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('b') if class_depth == 0 => out.push_str(r"(?-u:\b)"),
                Some('Q') => {
                    // `\Q...\E` quotes the text between.
                    let rest = chars.as_str();
                    let (quoted, after) = rest.split_once(r"\E").unwrap_or((rest, ""));
                    out.push_str(&regex::escape(quoted));
                    chars = after.chars();
                }
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if class_depth > 0 && !chars.as_str().starts_with(':') => out.push_str(r"\["),
            '[' => {
                class_depth += 1;
                out.push('[');
                if class_depth == 1 {
                    // A `]` in first position is a member of the class.
                    if let Some(rest) = chars.as_str().strip_prefix('^') {
                        out.push('^');
                        chars = rest.chars();
                    }
                    if let Some(rest) = chars.as_str().strip_prefix(']') {
                        out.push_str(r"\]");
                        chars = rest.chars();
                    }
                }
            }
            ']' if class_depth > 0 => {
                class_depth -= 1;
                out.push(']');
            }
            // The crate `regex` has set operators in classes, Go has none.
            '&' | '~' if class_depth > 0 => {
                out.push('\\');
                out.push(c);
            }
            '-' if class_depth > 0 && chars.as_str().starts_with('-') => out.push_str(r"\-"),
            c => out.push(c),
        }
    }
    out
}

/// Go's text for a syntax error of the crate `regex`, where Go's text is known.
fn syntax_message(text: &str, pattern: &str) -> String {
    let why = text.lines().last().unwrap_or_default();
    let why = why.strip_prefix("error: ").unwrap_or(why);
    let go = match why {
        "unclosed group" => Some(format!("missing closing ): `{pattern}`")),
        "unopened group" => Some(format!("unexpected ): `{pattern}`")),
        "unclosed character class" => {
            let at = pattern.rfind('[').unwrap_or(0);
            Some(format!("missing closing ]: `{}`", &pattern[at..]))
        }
        "repetition operator missing expression" => {
            let operator = pattern.chars().next().unwrap_or('*');
            Some(format!(
                "missing argument to repetition operator: `{operator}`"
            ))
        }
        _ => None,
    };
    format!(
        "error parsing regexp: {}",
        go.unwrap_or_else(|| format!("{why}: `{pattern}`"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_repetitions_are_refused_as_go_refuses_them() {
        for (pattern, stacked) in [
            ("a**", Some("**")),
            ("x++", Some("++")),
            ("a+?*", Some("+?*")),
            ("a{2}{3,}", Some("{2}{3,}")),
            (r"\é??+", Some("??+")),
            ("(?i)a+?", None),
            ("[*+]+", None),
            ("[]*+]*", None),
            ("[[:alpha:]*]*", None),
            (r"\++", None),
            ("(a+)+", None),
            ("a{2}?", None),
            (r"\Q**\E", None),
            ("é*ü+", None),
        ] {
            assert_eq!(stacked_repetition(pattern), stacked, "{pattern}");
            assert_eq!(go_regex(pattern).is_ok(), stacked.is_none(), "{pattern}");
        }
    }
}
