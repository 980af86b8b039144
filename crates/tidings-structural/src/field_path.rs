//! Paths that name one field of a schema: `fieldPath` of rules and `jsonPath` of selectable fields.

use crate::node::{AdditionalProperties, SchemaNode};
use crate::text::FieldPath;

/// Follows the path `text` through a schema. Returns the path as errors print it, its names, and the schema of the field.
///
/// # Errors
/// If `text` is not a path, or leads to no field of the schema; the error text says why.
pub(crate) fn resolve<'a>(
    text: &str,
    root: &'a SchemaNode,
    allow_brackets: bool,
) -> Result<(FieldPath, Vec<String>, &'a SchemaNode), String> {
    let mut tokens = tokens(text).into_iter();
    let mut node = root;
    let mut path = FieldPath::default();
    let mut names = Vec::new();
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" if !allow_brackets => return Err("array notation is not allowed".into()),
            "[" => {
                let quoted = tokens.next().ok_or_else(end)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''));
                let inner = inner
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                unescape(inner)?
            }
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let lost = || "does not refer to a valid field".to_owned();
        if !node.properties.is_empty() {
            path.push_child(&name);
            node = node.properties.get(&name).ok_or_else(lost)?;
        } else if let AdditionalProperties::Schema(schema) = &node.additional {
            path.push_key(&name);
            node = schema;
        } else {
            return Err(lost());
        }
        names.push(name);
        if token == "[" {
            match tokens.next().ok_or_else(end)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((path, names, node))
}

/// Splits a path into tokens: `.`, `[`, `]` and the texts between them. Inside quotes these characters do not split.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = if rest.starts_with('\'') {
            let mut before = '\'';
            let close = rest.char_indices().skip(1).find(|(_, c)| {
                let closes = *c == '\'' && before != '\\';
                before = *c;
                closes
            });
            close.map_or(rest.len(), |(at, _)| at + 1)
        } else {
            match rest.find(['.', '[', ']']) {
                Some(0) => 1,
                Some(at) => at,
                None => rest.len(),
            }
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    tokens
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') => '\\',
            Some(other) => {
                return Err(format!(
                    "invalid string literal: invalid escape char \\{other}"
                ));
            }
            None => '\\',
        });
    }
    Ok(out)
}
