//! Parses the type table `builtin.table`, whose header explains its format.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use crate::types::{Field, FieldKind, ItemType, ListKind, PatchStrategy, StructAlternative, Type};

pub(crate) const TEXT: &str = include_str!("builtin.table");

/// The built-in type table.
pub(crate) fn builtin() -> &'static TypeTable {
    // A test parses the same text, so this cannot fail in a release.
    static TABLE: LazyLock<TypeTable> =
        LazyLock::new(|| TypeTable::parse(TEXT).unwrap_or_default());
    &TABLE
}

/// All types, ordered by package and name.
#[derive(Default)]
pub(crate) struct TypeTable {
    types: &'static [Type],
    /// Only kinds, ordered by group, version and name.
    kinds: Vec<&'static Type>,
}

/// A line of the table that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse this line of the type table: {0}")]
pub(crate) struct TableError(&'static str);

impl TypeTable {
    pub(crate) fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&'static Type> {
        let wanted = (group, version, kind);
        let found = self
            .kinds
            .binary_search_by(|probe| kind_key(probe).cmp(&wanted));
        self.kinds.get(found.ok()?).copied()
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static Type> {
        self.kinds.iter().copied()
    }

    pub(crate) fn named(&self, package: &str, name: &str) -> Option<&'static Type> {
        named(self.types, package, name)
    }

    pub(crate) fn parse(text: &'static str) -> Result<Self, TableError> {
        let lines: Vec<&'static str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut declared = declarations(&lines)?;
        declared.sort_by_key(|(found, _)| (found.package, found.name));
        let (types, bodies): (Vec<_>, Vec<_>) = declared.into_iter().unzip();
        // Fields hold static references to types, so the types are never freed.
        let types: &'static [Type] = types.leak();
        for (found, body) in types.iter().zip(bodies) {
            let mut fields = Vec::new();
            if found.is_kind {
                fields.push(field(types, found, "kind 0 string")?);
                fields.push(field(types, found, "apiVersion 0 string")?);
            }
            for line in lines.get(body).into_iter().flatten() {
                fields.push(field(types, found, line)?);
            }
            // Set only here, once for each type.
            let _ = found.fields.set(fields.into());
        }
        let mut kinds: Vec<&Type> = types.iter().filter(|found| found.is_kind).collect();
        kinds.sort_by_key(|found| kind_key(found));
        Ok(Self { types, kinds })
    }
}

fn kind_key(found: &Type) -> (&str, &str, &str) {
    (found.group, found.version, found.name)
}

fn named(types: &'static [Type], package: &str, name: &str) -> Option<&'static Type> {
    let wanted = (package, name);
    let found = types.binary_search_by(|probe| (probe.package, probe.name).cmp(&wanted));
    types.get(found.ok()?)
}

/// All types without their fields, with the line numbers of their fields.
fn declarations(lines: &[&'static str]) -> Result<Vec<(Type, Range<usize>)>, TableError> {
    let mut found: Vec<(Type, Range<usize>)> = Vec::new();
    let (mut package, mut group, mut version) = ("", "", "");
    for (index, line) in lines.iter().copied().enumerate() {
        if line.starts_with(' ') {
            let (_, body) = found.last_mut().ok_or(TableError(line))?;
            body.end = index + 1;
            continue;
        }
        let mut words = line.split(' ');
        let (Some(keyword), Some(name)) = (words.next(), words.next()) else {
            return Err(TableError(line));
        };
        let rest = words.next().unwrap_or_default();
        if keyword == "package" {
            package = name;
            (group, version) = rest.split_once('/').unwrap_or(("", rest));
            continue;
        }
        let declared = Type {
            index: found.len(),
            package,
            group,
            version,
            name,
            is_kind: keyword == "kind",
            atomic: rest == "atomic",
            fields: OnceLock::new(),
            by_name: OnceLock::new(),
            by_number: OnceLock::new(),
            zero_message: OnceLock::new(),
        };
        found.push((declared, index + 1..index + 1));
    }
    Ok(found)
}

fn field(types: &'static [Type], around: &Type, line: &'static str) -> Result<Field, TableError> {
    let bad = || TableError(line);
    // A default can contain spaces, so it is the last word.
    let (rest, default) = match line.trim_start().split_once(" default=") {
        Some((rest, default)) => (rest, Some(default)),
        None => (line.trim_start(), None),
    };
    let mut words = rest.split(' ');
    let (Some(name), Some(number), Some(kind)) = (words.next(), words.next(), words.next()) else {
        return Err(bad());
    };
    let pointer = kind.starts_with('*');
    let kind = field_kind(types, around, kind).ok_or_else(bad)?;
    let mut field = Field {
        name: if name == "-" { "" } else { name },
        number: number.parse().map_err(|_| bad())?,
        kind,
        pointer,
        keep: false,
        required: false,
        list: ListKind::Atomic,
        list_declared: false,
        atomic: matches!(kind, FieldKind::One(ItemType::Struct(inner)) if inner.atomic),
        patch_strategy: PatchStrategy::default(),
        merge_key: None,
        default,
        go_name: None,
        keys: OnceLock::new(),
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("keep", _) => field.keep = true,
            ("required", _) => field.required = true,
            ("listatomic", _) => field.list_declared = true,
            ("set", _) => {
                field.list_declared = true;
                field.list = ListKind::Set;
            }
            ("keys", keys) => {
                field.list_declared = true;
                field.list = ListKind::Map(keys.split(',').collect());
            }
            ("atomic", _) => field.atomic = true,
            ("granular", _) => field.atomic = false,
            ("merge", _) => field.patch_strategy.merge = true,
            ("retainKeys", _) => field.patch_strategy.retain_keys = true,
            ("replace", _) => field.patch_strategy.replace = true,
            ("go", name) => field.go_name = Some(name),
            ("mergekey", key) => field.merge_key = Some(key),
            _ => return Err(bad()),
        }
    }
    // Server-side apply uses the older patch strategy if the field has no list type.
    if !field.list_declared && field.patch_strategy.merge && matches!(kind, FieldKind::List(_)) {
        field.list = match field.merge_key {
            Some(key) => ListKind::Map([key].into()),
            None => ListKind::Set,
        };
    }
    Ok(field)
}

fn field_kind(types: &'static [Type], around: &Type, text: &str) -> Option<FieldKind> {
    Some(if let Some(text) = text.strip_prefix("[]") {
        FieldKind::List(item(types, around, text)?)
    } else if let Some(text) = text.strip_prefix("{}") {
        FieldKind::Map(item(types, around, text)?)
    } else {
        FieldKind::One(item(types, around, text.trim_start_matches('*'))?)
    })
}

fn item(types: &'static [Type], around: &Type, text: &str) -> Option<ItemType> {
    Some(match text {
        "string" => ItemType::String,
        "bytes" => ItemType::Bytes,
        "bool" => ItemType::Bool,
        "int32" => ItemType::Int32,
        "int64" => ItemType::Int64,
        "double" => ItemType::Double,
        "time" => ItemType::Time,
        "microtime" => ItemType::MicroTime,
        "quantity" => ItemType::Quantity,
        "intorstring" => ItemType::IntOrString,
        "raw" => ItemType::Raw,
        "fields" => ItemType::Fields,
        "strings" => ItemType::Strings,
        _ => match text.split_once('|') {
            Some((name, other)) => ItemType::Either(
                struct_type(types, around, name)?,
                match other {
                    "bool" => StructAlternative::Bool,
                    "list" => StructAlternative::List,
                    "strings" => StructAlternative::Strings,
                    _ => return None,
                },
            ),
            None => ItemType::Struct(struct_type(types, around, text)?),
        },
    })
}

fn struct_type(types: &'static [Type], around: &Type, text: &str) -> Option<&'static Type> {
    let (package, name) = text.split_once('.').unwrap_or((around.package, text));
    named(types, package, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_table_parses() {
        let table = TypeTable::parse(TEXT).expect("parses");
        assert!(table.types.len() > 500);
        assert!(
            table
                .types
                .iter()
                .all(|found| found.package.ends_with("/v1") || found.version == "v2")
        );
    }

    #[test]
    fn numbers_and_names_are_unique() {
        for found in builtin().types {
            let mut names: Vec<&str> = found.members().map(|field| field.name).collect();
            let mut numbers: Vec<u32> = found.fields().iter().map(|field| field.number).collect();
            let (all_names, all_numbers) = (names.len(), numbers.len());
            names.sort_unstable();
            names.dedup();
            numbers.retain(|number| *number != 0);
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(names.len(), all_names, "{found:?}");
            let unnumbered = if found.is_kind { 2 } else { 0 };
            assert_eq!(numbers.len() + unnumbered, all_numbers, "{found:?}");
        }
    }

    #[test]
    fn the_table_is_small() {
        let fields: usize = builtin()
            .types
            .iter()
            .map(|found| found.fields().len())
            .sum();
        let bytes = size_of_val(builtin().types) + fields * size_of::<Field>();
        assert!(TEXT.len() < 150 << 10, "{} bytes of text", TEXT.len());
        assert!(bytes < 512 << 10, "{bytes} bytes of types");
    }

    #[test]
    fn a_bad_line_is_named() {
        for text in [
            " name 1 string",
            "package core/v1 v1\ntype A\n name x string",
            "package core/v1 v1\ntype A\n name 1 Missing",
            "package core/v1 v1\ntype A\n name 1 string odd",
            "package core/v1 v1\ntype A\n name 1 A|odd",
            "alone",
        ] {
            assert!(TypeTable::parse(text).is_err(), "{text}");
        }
    }
}
