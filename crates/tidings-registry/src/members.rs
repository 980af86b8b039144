//! The top-level members of built-in kinds, derived from the table of types.

use tidings_json::Value;
use tidings_schema::Field;

use crate::complete;
use crate::model::{Kind, Member};

/// The members of a kind whose schema is set.
pub(crate) fn members(kind: &Kind) -> Box<[Member]> {
    let fields = kind.schema.into_iter().flat_map(|schema| schema.members());
    fields
        .filter(|field| !matches!(field.name, "kind" | "apiVersion" | "metadata"))
        .map(|field| member(kind, field))
        .collect()
}

fn member(kind: &Kind, field: &'static Field) -> Member {
    let unset = field.keep.then(|| match field.name {
        "spec" if kind.bookmark_replicas => with_replicas(complete::unset(field)),
        _ => complete::unset(field),
    });
    let default = kind
        .schema
        .and_then(|schema| complete::default_of(schema, field.name));
    let absent = default.or_else(|| field.keep.then(|| complete::zero(field)));
    Member {
        name: field.name,
        field,
        absent: absent.map_or(String::new(), |value| value.to_string()),
        unset,
    }
}

/// Puts `replicas: 0` at the beginning of a spec.
fn with_replicas(spec: Value) -> Value {
    let Value::Object(members) = spec else {
        return spec;
    };
    let first = ("replicas".to_owned(), Value::from(0));
    Value::Object(std::iter::once(first).chain(members).collect())
}

#[cfg(test)]
mod tests {
    /// The members of every kind with their Go types and the JSON of absent ones, and the object of a bookmark. Clients see all
    /// of it, so a change must be intended: `TIDINGS_WRITE=1` writes the file again.
    const OBSERVED: &str = include_str!("members.txt");

    #[test]
    fn w109_members_and_bookmarks_follow_from_the_table_of_types() {
        let mut found = String::new();
        for kind in crate::builtin().iter() {
            found.push_str(&format!("== {} {}\n", kind.group_version(), kind.kind));
            for member in kind.members() {
                let go_type = member.field.go_type();
                found.push_str(&format!("{} {go_type} {}\n", member.name, member.absent));
            }
            let unset = tidings_json::Value::Object(kind.unset_members());
            found.push_str(&format!("bookmark {unset}\n"));
        }
        if std::env::var_os("TIDINGS_WRITE").is_some() {
            std::fs::write("src/members.txt", &found).unwrap();
        }
        for (found, observed) in found.lines().zip(OBSERVED.lines()) {
            assert_eq!(found, observed);
        }
        assert_eq!(found.lines().count(), OBSERVED.lines().count());
    }
}
