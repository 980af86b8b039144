//! CustomResourceDefinitions: their defaults, checks, names and conditions, as in kube-apiserver 1.36.
//!
//! A definition stays JSON until it is served. Before it is stored it gets its defaults ([`fill_in`]) and is checked
//! ([`validate`], [`validate_update`], [`validate_status_update`]). A stored definition gets its names and conditions
//! ([`status_of`]), and [`Definition::read`] reads what the server needs to serve it.
//!
//! | file | contents |
//! |---|---|
//! | `read` | reads a definition to serve it |
//! | `fill` | defaults |
//! | `spec` | the internal form that upstream checks: what is equal in all versions is moved above them |
//! | `check`, `version`, `conversion`, `names`, `approval`, `form` | checks |
//! | `ratchet` | errors that an update may keep |
//! | `status` | accepted names and conditions |
//! | `order` | the order of versions |
//! | `member` | helpers: members of JSON objects |

mod approval;
mod check;
mod conditions;
mod conversion;
mod fill;
mod form;
mod lazy_schema;
mod member;
mod names;
mod order;
mod ratchet;
mod read;
mod spec;
mod status;
mod version;

use tidings_api::Object;
use tidings_json::Value;

use crate::json_path::JsonPath;

pub use check::{validate, validate_status_update, validate_update};
pub use conditions::{has_condition, set_condition};
pub use conversion::check_webhook_client;
pub use fill::fill_in;
pub use lazy_schema::LazySchema;
pub use order::compare_versions;
pub use ratchet::warnings;
pub use status::status_of;

/// The finalizer that keeps a deleted definition until its objects are gone (W186).
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A definition, compiled to be served.
#[derive(Debug)]
pub struct Definition {
    /// The group of its kinds.
    pub group: String,
    /// The names of its kind.
    pub names: Names,
    /// True if its objects are namespaced.
    pub namespaced: bool,
    /// The `conversion` of the definition, if a webhook converts between the versions.
    pub webhook: Option<Value>,
    /// All versions, served or not, in the order in which they were written.
    pub versions: Vec<DefinedVersion>,
}

/// The names of a kind: the accepted names, or the requested ones while none are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The plural name, which is used in URLs.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of lists of its objects.
    pub list_kind: String,
    /// Short names, such as `po` for pods.
    pub short_names: Vec<String>,
    /// Categories that the resource belongs to, such as `all`.
    pub categories: Vec<String>,
}

/// One version of a kind.
#[derive(Debug)]
pub struct DefinedVersion {
    /// The version, such as `v1beta1`.
    pub name: String,
    /// True if the server has endpoints for this version.
    pub served: bool,
    /// True for the storage version.
    pub storage: bool,
    /// The warning that clients of a deprecated version get (W183).
    pub warning: Option<String>,
    /// The schema of its objects.
    pub schema: LazySchema,
    /// True if the version has a status subresource (W181).
    pub status: bool,
    /// The scale subresource (W182).
    pub scale: Option<Scale>,
    /// The columns of tables after the name (W184).
    pub columns: Vec<Column>,
    /// The fields by which objects can be selected, beside their name and namespace (W184).
    pub fields: Vec<SelectableField>,
}

/// The paths of the scale subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// The desired number of replicas, in spec.
    pub spec_replicas: MemberPath,
    /// The actual number of replicas, in status.
    pub status_replicas: MemberPath,
    /// The label selector, as text.
    pub label_selector: Option<MemberPath>,
}

/// A path that consists of names of members only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPath {
    /// The path as it was written, such as `.spec.replicas`.
    pub text: String,
    /// The members to walk, such as `spec` and `replicas`.
    pub members: Vec<String>,
}

/// A printer column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The title of the column.
    pub name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: String,
    /// The format of the type; often empty.
    pub format: String,
    /// The description. If the definition has none, a sentence that contains the path.
    pub description: String,
    /// Columns with a priority above 0 are shown in wide tables only.
    pub priority: i32,
    /// The path of the cell's value, as it was written.
    pub text: String,
    /// The path of the cell's value, parsed.
    pub path: JsonPath,
}

/// A field that field selectors may name.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectableField {
    /// The name in selectors, such as `spec.color`.
    pub name: String,
    /// The path of the field.
    pub path: JsonPath,
}

impl MemberPath {
    /// The value at this path.
    pub fn find<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        let mut members = self.members.iter();
        members.try_fold(object, |value, name| value.get(name))
    }
}

impl Definition {
    /// Reads a definition that has passed [`validate`], from the whole object.
    ///
    /// # Errors
    /// The reason why it cannot be served. Definitions that another server has stored can have a schema that is not structural.
    pub fn read(crd: &Value) -> Result<Definition, String> {
        read::read(crd, None)
    }

    /// Reads a definition as [`Definition::read`] does. The schemas are compiled again when they are first used, so that those of definitions
    /// without objects take no memory.
    ///
    /// # Errors
    /// Those of [`Definition::read`].
    pub fn read_stored(crd: &Value, object: &Object) -> Result<Definition, String> {
        read::read(crd, Some(object))
    }

    /// The storage version.
    pub fn storage(&self) -> &DefinedVersion {
        // `read` refuses definitions without a storage version.
        let stored = self.versions.iter().find(|version| version.storage);
        stored.unwrap_or(&self.versions[0])
    }

    /// The version of this name, if it is served.
    pub fn served(&self, name: &str) -> Option<&DefinedVersion> {
        self.versions
            .iter()
            .find(|version| version.served && version.name == name)
    }
}
