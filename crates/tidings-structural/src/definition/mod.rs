//! CustomResourceDefinitions: read, filled in, checked and named, as kube-apiserver 1.36 does it.
//!
//! A definition stays JSON until it is served. On its way into the store it is filled in ([`fill_in`]) and checked ([`validate`],
//! [`validate_update`], [`validate_status_update`]); once it is there it gets its names and conditions ([`status_of`]), and what
//! is served of it is read with [`Definition::read`].
//!
//! | file | what it knows |
//! |---|---|
//! | `read` | what serving a definition needs |
//! | `fill` | defaults |
//! | `spec` | the form that upstream checks: what all versions say alike stands above them |
//! | `check`, `version`, `conversion`, `names`, `approval`, `form` | what is wrong with a definition |
//! | `ratchet` | what an update may keep although it is wrong |
//! | `status` | accepted names and conditions |
//! | `order` | which version is the better one |

mod approval;
mod check;
mod conversion;
mod fill;
mod form;
mod member;
mod names;
mod order;
mod ratchet;
mod read;
mod spec;
mod status;
mod url;
mod version;

use tidings_json::Value;

use crate::json_path::JsonPath;
use crate::schema::Schema;

pub use check::{validate, validate_status_update, validate_update};
pub use fill::fill_in;
pub use order::compare_versions;
pub use ratchet::warnings;
pub use status::{has_condition, set_condition, status_of};

/// The finalizer that keeps a deleted definition until its objects are gone (W186).
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A definition as it is served.
#[derive(Debug)]
pub struct Definition {
    /// The group of its kinds.
    pub group: String,
    /// How its kind is called.
    pub names: Names,
    /// True if its objects live in namespaces.
    pub namespaced: bool,
    /// All versions, served or not, in the order in which they were written.
    pub versions: Vec<Version>,
}

/// The names of a kind: those that were accepted, or those that were asked for while none are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The name in URLs.
    pub plural: String,
    /// One of them.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of lists of its objects.
    pub list_kind: String,
    /// Abbreviations.
    pub short_names: Vec<String>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<String>,
}

/// One version of a kind.
#[derive(Debug)]
pub struct Version {
    /// The version, such as `v1beta1`.
    pub name: String,
    /// True if there are endpoints for it.
    pub served: bool,
    /// True for the one in which objects are stored.
    pub storage: bool,
    /// What clients of this version are told, if it is deprecated (W183).
    pub warning: Option<String>,
    /// What its objects look like.
    pub schema: Schema,
    /// True if there is a status subresource (W181).
    pub status: bool,
    /// The scale subresource (W182).
    pub scale: Option<Scale>,
    /// The columns of tables after the name (W184).
    pub columns: Vec<Column>,
    /// The fields by which objects can be selected, beside their name and namespace (W184).
    pub fields: Vec<SelectableField>,
}

/// Where the numbers of a scale stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// The desired number of replicas, in spec.
    pub spec_replicas: MemberPath,
    /// The actual number of replicas, in status.
    pub status_replicas: MemberPath,
    /// The selector as text.
    pub label_selector: Option<MemberPath>,
}

/// A path that only names members of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPath {
    /// The path as it was written, such as `.spec.replicas`.
    pub text: String,
    /// The members to walk, such as `spec` and `replicas`.
    pub members: Vec<String>,
}

/// A column of tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its title.
    pub name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: String,
    /// A format of the type; often empty.
    pub format: String,
    /// What it shows. Where the definition says nothing, the path stands in a sentence.
    pub description: String,
    /// Columns above 0 are shown by wide tables only.
    pub priority: i32,
    /// The path as it was written.
    pub text: String,
    /// Where the cell is.
    pub path: JsonPath,
}

/// A field that field selectors may name.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectableField {
    /// The name in selectors, such as `spec.color`.
    pub name: String,
    /// Where it is.
    pub path: JsonPath,
}

impl MemberPath {
    /// What is there.
    pub fn find<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        let mut members = self.members.iter();
        members.try_fold(object, |value, name| value.get(name))
    }
}

impl Definition {
    /// Reads a definition that has passed [`validate`], from the whole object.
    ///
    /// # Errors
    /// If it cannot be served, with the reason. That happens to what other servers have stored: a schema that is not structural,
    /// or versions that only a webhook can convert.
    pub fn read(crd: &Value) -> Result<Definition, String> {
        read::read(crd)
    }

    /// The version in which objects are stored.
    pub fn storage(&self) -> &Version {
        // `read` refuses definitions that have no such version.
        let stored = self.versions.iter().find(|version| version.storage);
        stored.unwrap_or(&self.versions[0])
    }

    /// The version of this name, if it is served.
    pub fn served(&self, name: &str) -> Option<&Version> {
        self.versions
            .iter()
            .find(|version| version.served && version.name == name)
    }
}
