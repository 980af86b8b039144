//! Reads the OpenAPI definitions that Kubernetes is built with, for what the published documents leave out: the values of
//! enums, and what these mean. The file is machine-written, so lines and their indentation are all there is to parse.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

/// What is said of types, by the names of the functions that define them.
#[derive(Debug, Default)]
pub(crate) struct Descriptions(BTreeMap<String, Described>);

/// What is said of a type.
#[derive(Debug, Default)]
struct Described {
    text: String,
    fields: Vec<Field>,
}

/// What is said of a field. Values are JSON, as they stand between brackets.
#[derive(Debug, Default)]
struct Field {
    name: String,
    text: String,
    values: String,
    item_values: String,
}

/// How far what belongs to a type, and to a field of it, is indented.
const OF_TYPE: usize = 4;
const FIELD: usize = 5;
const OF_FIELD: usize = 7;

impl Descriptions {
    /// Reads the generated file.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut types = BTreeMap::new();
        let mut current: Option<(String, Described)> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("func schema_") {
                let (name, _) = rest.split_once('(').context("no parameters")?;
                current = Some((name.to_owned(), Described::default()));
            } else if line == "}" {
                types.extend(current.take());
            } else if let Some((name, found)) = &mut current {
                add(found, line).with_context(|| format!("{name}: {line}"))?;
            }
        }
        Ok(Self(types))
    }

    /// All that is said of types, as text: [`HEADER`] says how it reads. `names` are those of the table and of messages.
    pub(crate) fn write<'a>(
        &self,
        names: impl Iterator<Item = (String, &'a str)>,
    ) -> Result<String> {
        let mut out = HEADER.to_owned();
        for (short, full) in names {
            let Some(found) = self.0.get(&function(full)) else {
                continue;
            };
            writeln!(out, "{short} {}", escaped(&found.text))?;
            for field in &found.fields {
                writeln!(out, " {} {}", field.name, escaped(&field.text))?;
                for (what, values) in [("is", &field.values), ("are", &field.item_values)] {
                    if !values.is_empty() {
                        writeln!(out, "  {what} [{values}]")?;
                    }
                }
            }
        }
        Ok(out)
    }
}

/// What the file of descriptions starts with.
pub(crate) const HEADER: &str = "\
# What the built-in types mean, from the comments in the sources of Kubernetes (Apache License 2.0). Made by tools/schema.
#
# PACKAGE.TYPE TEXT   a type; \\n is a new line, \\\\ a backslash
#  FIELD TEXT         a field of it
#   is VALUES         which values it may have, as JSON
#   are VALUES        which values its items may have
";

fn add(found: &mut Described, line: &str) -> Result<()> {
    let inner = line.trim_start_matches('\t');
    let depth = line.len() - inner.len();
    if depth == FIELD
        && let Some(name) = inner.strip_prefix('"')
        && let Some(name) = name.strip_suffix("\": {")
    {
        found.fields.push(Field {
            name: name.to_owned(),
            ..Field::default()
        });
        return Ok(());
    }
    let Some((key, value)) = inner.split_once(':') else {
        return Ok(());
    };
    let value = value.trim().trim_end_matches(',');
    match (key, depth, found.fields.last_mut()) {
        ("Description", OF_TYPE, None) => found.text = serde_json::from_str(value)?,
        ("Description", OF_FIELD, Some(field)) => field.text = serde_json::from_str(value)?,
        ("Enum", _, Some(field)) => {
            let values = value.strip_prefix("[]interface{}{");
            let values = values.and_then(|rest| rest.strip_suffix('}'));
            let values = values.context("no list")?.to_owned();
            match depth {
                OF_FIELD => field.values = values,
                _ => field.item_values = values,
            }
        }
        _ => {}
    }
    Ok(())
}

/// The name of the function that defines a type: the last four parts of its package, and its own.
fn function(full: &str) -> String {
    let path = full.replacen("k8s.io", "k8sio", 1);
    let parts: Vec<&str> = path.split('.').collect();
    parts[parts.len().saturating_sub(5)..].join("_")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_and_values_are_read_by_their_indentation() -> Result<()> {
        let text = "func schema_k8sio_api_core_v1_A(ref X) Y {\n\t\t\t\tDescription: \"An \\\"A\\\"\\n\\\\.\",\n\
            \t\t\t\t\t\"b\": {\n\t\t\t\t\t\t\tDescription: \"Of b.\",\n\t\t\t\t\t\t\tEnum:        []interface{}{\"x\", \"y\"},\n\
            \t\t\t\t\t\"c\": {\n\t\t\t\t\t\t\t\t\t\tEnum:    []interface{}{\"z\"},\n}\n";
        let names = [
            ("core/v1.A".to_owned(), "k8s.io.api.core.v1.A"),
            ("core/v1.Z".to_owned(), "k8s.io.api.core.v1.Z"),
        ];
        let written = Descriptions::read(text)?.write(names.into_iter())?;
        let expected =
            "core/v1.A An \"A\"\\n\\\\.\n b Of b.\n  is [\"x\", \"y\"]\n c \n  are [\"z\"]\n";
        assert_eq!(written.strip_prefix(HEADER), Some(expected));
        Ok(())
    }

    #[test]
    fn functions_are_named_by_four_parts_of_the_package() {
        for (full, name) in [
            ("k8s.io.api.core.v1.Pod", "k8sio_api_core_v1_Pod"),
            (
                "k8s.io.apimachinery.pkg.apis.meta.v1.Time",
                "pkg_apis_meta_v1_Time",
            ),
        ] {
            assert_eq!(function(full), name);
        }
    }
}
