//! Reads the struct declarations of Go files. They are formatted by gofmt: one field with its tags a line.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// Structs by the full name of their message, such as `k8s.io.api.core.v1.Pod`.
pub(crate) type Structs = BTreeMap<String, Struct>;

/// The fields of one Go struct that are on the wire, in order.
#[derive(Debug, Default)]
pub(crate) struct Struct {
    /// Whether it embeds TypeMeta, and so has `kind` and `apiVersion` in JSON but not in protobuf.
    pub(crate) has_type_meta: bool,
    pub(crate) fields: Vec<Field>,
}

/// What the tags and the type of a Go field say.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// Empty if the members of the field are members of the struct around it.
    pub(crate) json_name: String,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    pub(crate) pointer: bool,
}

/// Adds the structs of one file.
pub(crate) fn read(package: &str, text: &str, structs: &mut Structs) -> Result<()> {
    let mut current: Option<(String, Struct)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("type ")
            && let Some(name) = rest.strip_suffix(" struct {")
        {
            current = Some((format!("{package}.{name}"), Struct::default()));
        } else if let Some(rest) = line.strip_prefix("type ")
            && let Some(name) = rest.strip_suffix(" struct{}")
        {
            structs.insert(format!("{package}.{name}"), Struct::default());
        } else if line == "}" {
            structs.extend(current.take());
        } else if let Some((name, found)) = &mut current
            && !line.trim_start().starts_with("//")
            && let Some((declared, tags)) = line.split_once('`')
        {
            add(found, declared, tags).with_context(|| format!("{name}: {line}"))?;
        }
    }
    Ok(())
}

fn add(found: &mut Struct, declared: &str, tags: &str) -> Result<()> {
    let Some(protobuf) = tag(tags, "protobuf") else {
        found.has_type_meta |= declared.trim().ends_with("TypeMeta");
        return Ok(());
    };
    // Without a number (`protobuf:"-"`) or a JSON tag it is no field of an API type.
    let (Some(number), Some(json)) = (protobuf.split(',').nth(1), tag(tags, "json")) else {
        return Ok(());
    };
    let mut json = json.split(',');
    let json_name = json.next().unwrap_or_default().to_owned();
    let options: Vec<&str> = json.collect();
    let kind = declared.split_whitespace().last().context("no type")?;
    found.fields.push(Field {
        number: number.parse()?,
        json_name,
        omit_empty: options.contains(&"omitempty"),
        omit_zero: options.contains(&"omitzero"),
        pointer: kind.starts_with('*'),
    });
    Ok(())
}

fn tag<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{key}:\""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_pointers_are_read() -> Result<()> {
        let text = "type A struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// B int `json:\"odd\"`\n\
            \tB *int32 `json:\"b,omitempty\" protobuf:\"varint,2,opt,name=b\"`\n\
            \tC `json:\",inline\" protobuf:\"bytes,1,opt,name=c\"`\n}\n\ntype None struct{}\n";
        let mut structs = Structs::new();
        read("p", text, &mut structs)?;
        assert!(structs["p.None"].fields.is_empty());
        let found = &structs["p.A"];
        assert!(found.has_type_meta);
        let [b, c] = found.fields.as_slice() else {
            panic!("{found:?}");
        };
        assert!((b.number, b.json_name.as_str()) == (2, "b") && b.pointer && b.omit_empty);
        assert!((c.number, c.json_name.as_str()) == (1, "") && !c.pointer && !c.omit_empty);
        Ok(())
    }
}
