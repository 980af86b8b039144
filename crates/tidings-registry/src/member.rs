//! The top-level members of built-in kinds, derived from the table of types.

use std::sync::OnceLock;

use tidings_json::Value;
use tidings_schema::Field;

use crate::complete;
use crate::kind::Kind;

/// A top-level member of an object besides kind, apiVersion and metadata.
#[derive(Debug)]
pub struct Member {
    /// The name in JSON.
    pub name: &'static str,
    /// The field of the kind's Go type.
    pub(crate) field: &'static Field,
    /// The Go type of a text member that has a named type, such as `v1.SecretType`.
    pub(crate) named_text: Option<&'static str>,
    /// The JSON that is written for an absent member, with defaults; empty if an absent member is left out.
    pub(crate) absent: String,
    /// The value in an object in which nothing is set; `None` if the member is left out.
    pub(crate) unset: Option<Value>,
}

/// The members of a kind, computed at the first use.
#[derive(Debug, Default)]
pub(crate) struct Members(OnceLock<Box<[Member]>>);

impl Members {
    pub(crate) fn of(&self, kind: &Kind) -> &[Member] {
        self.0.get_or_init(|| {
            let fields = kind.schema.into_iter().flat_map(|schema| schema.members());
            fields
                .filter(|field| !matches!(field.name, "kind" | "apiVersion" | "metadata"))
                .map(|field| Member::new(kind, field))
                .collect()
        })
    }
}

impl Member {
    fn new(kind: &Kind, field: &'static Field) -> Member {
        let named_text = kind
            .named_texts
            .iter()
            .find(|(name, _)| *name == field.name);
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
            named_text: named_text.map(|(_, go_type)| *go_type),
            absent: absent.map_or(String::new(), |value| value.to_string()),
            unset,
        }
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
    use crate::reading::go_type;

    /// The members of every kind with their Go types and the JSON of absent ones, and the object of a bookmark. Clients see all
    /// of it, so a change must be intended: `TIDINGS_WRITE=1` writes the file again.
    const OBSERVED: &str = include_str!("members.txt");

    #[test]
    fn w109_members_and_bookmarks_follow_from_the_table_of_types() {
        let mut found = String::new();
        for kind in crate::builtin().iter() {
            found.push_str(&format!("== {} {}\n", kind.group_version(), kind.kind));
            for member in kind.members() {
                let go_type = member
                    .named_text
                    .map_or_else(|| go_type(member.field), ToOwned::to_owned);
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
