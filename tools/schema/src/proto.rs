//! Reads `generated.proto` files. They are machine-written, one declaration a line, so lines are all there is to parse.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// Messages by full name, such as `k8s.io.api.core.v1.Pod`.
pub(crate) type Messages = BTreeMap<String, Vec<Field>>;

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) label: Label,
    /// A scalar such as `int32`, or the full name of a message.
    pub(crate) kind: String,
}

/// How often a value occurs in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Optional,
    Repeated,
    /// A map of strings to values.
    Map,
}

/// Adds the messages of one file.
pub(crate) fn read(package: &str, text: &str, messages: &mut Messages) -> Result<()> {
    let mut current: Option<(String, Vec<Field>)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("message ") {
            let name = rest.trim_end_matches('{').trim();
            current = Some((format!("{package}.{name}"), Vec::new()));
        } else if line == "}" {
            messages.extend(current.take());
        } else if let Some((name, fields)) = &mut current
            && line.ends_with(';')
            && !line.starts_with("//")
        {
            fields.push(field(package, line).with_context(|| format!("{name}: {line}"))?);
        }
    }
    Ok(())
}

fn field(package: &str, line: &str) -> Result<Field> {
    let (declared, number) = line
        .trim_end_matches(';')
        .split_once('=')
        .context("no number")?;
    let (kind, name) = declared.trim().rsplit_once(' ').context("no name")?;
    let (label, kind) = if let Some(kind) = kind.strip_prefix("optional ") {
        (Label::Optional, kind)
    } else if let Some(kind) = kind.strip_prefix("repeated ") {
        (Label::Repeated, kind)
    } else if let Some(kind) = kind.strip_prefix("map<string, ") {
        (Label::Map, kind.trim_end_matches('>'))
    } else {
        bail!("no label");
    };
    let kind = match kind.strip_prefix('.') {
        Some(full) => full.to_owned(),
        None if kind.starts_with(char::is_uppercase) => format!("{package}.{kind}"),
        None => kind.to_owned(),
    };
    Ok(Field {
        name: name.to_owned(),
        number: number.trim().parse()?,
        label,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_line_by_line() -> Result<()> {
        let text = "message A {\n  // optional odd = 9;\n  optional .x.B one = 1;\n\n  repeated C many = 2;\n  \
            map<string, bytes> named = 3;\n}\n";
        let mut messages = Messages::new();
        read("p", text, &mut messages)?;
        let fields: Vec<_> = messages["p.A"]
            .iter()
            .map(|field| {
                (
                    field.name.as_str(),
                    field.number,
                    field.label,
                    field.kind.as_str(),
                )
            })
            .collect();
        let expected = [
            ("one", 1, Label::Optional, "x.B"),
            ("many", 2, Label::Repeated, "p.C"),
            ("named", 3, Label::Map, "bytes"),
        ];
        assert_eq!(fields, expected);
        Ok(())
    }
}
