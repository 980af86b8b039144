//! Regular expressions of schemas and rules: Go's syntax, which is nearly that of the crate `regex`.

use regex::Regex;

/// A regular expression of Go. Both follow RE2; Go's `\z` and ASCII classes are the differences that schemas meet.
pub(crate) fn go_regex(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(&ascii_classes(pattern))
        .size_limit(4 << 20)
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(text) => syntax_message(&text, pattern),
            other => other.to_string(),
        })
}

/// `\d`, `\w`, `\s` and `\b` mean ASCII in Go and Unicode here.
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
                    // `\Q…\E` quotes what is between.
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
                    // A `]` that comes first is a member.
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
            // Set operations of this crate that Go does not know.
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
