//! The kind of the group `apiextensions.k8s.io`.

use super::{PLAIN, spec, status};
use crate::registry::{Generation, Kind, Special};

pub(super) static KINDS: &[Kind] = &[Kind {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    go_package: "apiextensions",
    namespaced: false,
    members: &[
        spec("v1.CustomResourceDefinitionSpec"),
        status(
            "v1.CustomResourceDefinitionStatus",
            r#"{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}"#,
        ),
    ],
    generation: Generation::Counted,
    status: true,
    special: Special::Definition,
    bookmark: concat!(
        r#","spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"#,
        r#""status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}"#
    ),
    ..PLAIN
}];
