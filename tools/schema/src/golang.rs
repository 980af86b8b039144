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
    /// The type as Go's reflection names it, without the pointer, such as `v1.SecretType` or `[]string`.
    pub(crate) go_type: String,
}

/// What the names of types in one file mean.
struct Scope<'a> {
    /// The Go package of the file, such as `v1`.
    package: &'a str,
    /// The names of other packages in this file, and their own.
    imports: BTreeMap<&'a str, &'a str>,
}

impl<'a> Scope<'a> {
    fn of(package: &'a str, text: &'a str) -> Scope<'a> {
        let imports = text.lines().filter_map(|line| {
            let (alias, path) = line.strip_prefix('\t')?.strip_suffix('"')?.split_once('"')?;
            let name = path.rsplit('/').next()?;
            let alias = alias.trim();
            Some((if alias.is_empty() { name } else { alias }, name))
        });
        Scope {
            package: package.rsplit('.').next().unwrap_or_default(),
            imports: imports.collect(),
        }
    }

    /// The name that Go's reflection has for a type.
    fn go_type(&self, declared: &str) -> String {
        if let Some(element) = declared.strip_prefix("[]") {
            return format!("[]{}", self.go_type(element));
        }
        if let Some(rest) = declared.strip_prefix("map[")
            && let Some((key, value)) = rest.split_once(']')
        {
            return format!("map[{}]{}", self.go_type(key), self.go_type(value));
        }
        match declared.split_once('.') {
            Some((alias, name)) => {
                let package = self.imports.get(alias).copied().unwrap_or(alias);
                format!("{package}.{name}")
            }
            None if declared == "byte" => "uint8".to_owned(),
            None if declared.starts_with(char::is_uppercase) => {
                format!("{}.{declared}", self.package)
            }
            None => declared.to_owned(),
        }
    }
}

/// Adds the structs of one file.
pub(crate) fn read(package: &str, text: &str, structs: &mut Structs) -> Result<()> {
    let scope = Scope::of(package, text);
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
            add(found, declared, tags, &scope).with_context(|| format!("{name}: {line}"))?;
        }
    }
    Ok(())
}

fn add(found: &mut Struct, declared: &str, tags: &str, scope: &Scope<'_>) -> Result<()> {
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
        go_type: scope.go_type(kind.trim_start_matches('*')),
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
        let text = "import (\n\tmetav1 \"k8s.io/meta/v1\"\n\t\"k8s.io/types\"\n)\n\
            type A struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// B int `json:\"odd\"`\n\
            \tB *int32 `json:\"b,omitempty\" protobuf:\"varint,2,opt,name=b\"`\n\
            \tC `json:\",inline\" protobuf:\"bytes,1,opt,name=c\"`\n\
            \tD map[Key][]metav1.Time `json:\"d\" protobuf:\"bytes,3,opt,name=d\"`\n\
            \tE *types.UID `json:\"e\" protobuf:\"bytes,4,opt,name=e\"`\n\
            \tF []byte `json:\"f\" protobuf:\"bytes,5,opt,name=f\"`\n}\n\ntype None struct{}\n";
        let mut structs = Structs::new();
        read("k8s.io.p.v2", text, &mut structs)?;
        assert!(structs["k8s.io.p.v2.None"].fields.is_empty());
        let found = &structs["k8s.io.p.v2.A"];
        assert!(found.has_type_meta);
        let [b, c, d, e, f] = found.fields.as_slice() else {
            panic!("{found:?}");
        };
        assert!((b.number, b.json_name.as_str()) == (2, "b") && b.pointer && b.omit_empty);
        assert!((c.number, c.json_name.as_str()) == (1, "") && !c.pointer && !c.omit_empty);
        assert_eq!((&*b.go_type, &*c.go_type), ("int32", "v2.C"));
        assert_eq!(d.go_type, "map[v2.Key][]v1.Time");
        assert_eq!((&*e.go_type, &*f.go_type), ("types.UID", "[]uint8"));
        Ok(())
    }
}
