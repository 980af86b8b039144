//! Field selectors: `metadata.name=a,status.phase!=Running`.

use super::SelectorError;

/// Comparisons of fields, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// A comparison of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// The path of the field, `metadata.name`.
    pub field: String,
    /// The value that the field is compared with.
    pub value: String,
    /// True for `!=`.
    pub negated: bool,
}

impl std::str::FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<FieldSelector, SelectorError> {
        FieldSelector::parse(text)
    }
}

impl FieldSelector {
    /// Reads a selector. The empty text selects everything.
    ///
    /// # Errors
    /// With upstream's message, if a term has no operator or a value has a bad escape.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable(); // errors name the first in this order, as upstream's do
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(SelectorError(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let value = unescape(value)?;
            if field.is_empty() && value.is_empty() {
                continue; // upstream takes a bare operator as no term at all
            }
            terms.push(FieldTerm {
                field: field.to_owned(),
                value,
                negated,
            });
        }
        Ok(FieldSelector { terms })
    }

    /// The comparisons.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// True if it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that the selector requires of a field, if any.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| !term.negated && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// True if every comparison holds. `value_of` gives the text of a field; an absent field is empty.
    pub fn matches<'a>(&self, mut value_of: impl FnMut(&str) -> std::borrow::Cow<'a, str>) -> bool {
        self.terms
            .iter()
            .all(|term| (value_of(&term.field) == term.value) != term.negated)
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, the negation and the escaped value of a term; its first operator separates them.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = term[at..].strip_prefix(operator) {
                return Some((&term[..at], negated, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                let code = c as u32;
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {code}"
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        FieldSelector::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn w67_grammar() {
        let selector =
            FieldSelector::parse(r"metadata.name=a\,b\=c,status.phase!=Running,x==y").unwrap();
        let fields: Vec<_> = selector
            .terms()
            .iter()
            .map(|term| (term.field.as_str(), term.value.as_str(), term.negated))
            .collect();
        assert_eq!(
            fields,
            [
                ("metadata.name", "a,b=c", false),
                ("status.phase", "Running", true),
                ("x", "y", false)
            ]
        );
        assert_eq!(selector.required_value("metadata.name"), Some("a,b=c"));
        assert_eq!(selector.required_value("status.phase"), None);
        assert!(FieldSelector::parse("").unwrap().is_empty());
        assert!(FieldSelector::parse(",,").unwrap().is_empty());
    }

    #[test]
    fn w67_errors() {
        assert_eq!(
            error("foo"),
            "invalid selector: 'foo'; can't understand 'foo'"
        );
        assert_eq!(
            error(r"a=\x"),
            r"invalid field selector: invalid escape sequence: \x"
        );
        assert_eq!(
            error("a=b=c"),
            "invalid field selector: unescaped character in value: 61"
        );
    }

    #[test]
    fn w67_absent_fields_are_empty() {
        let matches = |text: &str| FieldSelector::parse(text).unwrap().matches(|_| "".into());
        assert!(matches("status.phase="));
        assert!(matches("status.phase!=Running"));
        assert!(!matches("status.phase=Running"));
    }
}
