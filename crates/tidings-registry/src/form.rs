//! [`ObjectForm`]: how objects are read, written and shown. Built-in kinds have the form of the table of types, custom resources that
//! of the schema of their definition.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_api::{GroupVersion, Object, Status, UnstampedObject};
use tidings_json::{Map, Touched, Value};

use crate::field_schema::FieldSchema;
use crate::model::{Draft, Kind};
use crate::stored::StoredObject;

/// How objects of a kind are read, written and shown.
pub(crate) trait ObjectForm {
    /// Reads the body of a request (W132, W133).
    fn read_body(&self, kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status>;

    /// Reads the object that results from a patch or an apply. Only the parts in `touched` are checked and completed. `Err` is Go's
    /// message.
    fn read_value(
        &self,
        kind: &Arc<Kind>,
        value: Value,
        touched: &Touched,
    ) -> Result<Draft, String>;

    /// Reads an object from the cache, and checks all types.
    fn read_object(&self, kind: &Arc<Kind>, object: &Object) -> Result<Draft, Status>;

    /// Makes a draft of a stored object. The types are not checked again.
    fn read_stored(&self, kind: &Arc<Kind>, stored: StoredObject) -> Result<Draft, Status>;

    /// The JSON that is stored for a draft.
    fn write(&self, draft: &Draft) -> Result<UnstampedObject, Status>;

    /// True if both drafts would be stored as the same bytes.
    fn is_same(&self, one: &Draft, other: &Draft) -> bool;

    /// The JSON of a stored object as the kind shows it.
    fn shown<'a>(&self, kind: &Kind, object: &'a Object) -> Cow<'a, [u8]>;

    /// True if an object is shown as it is stored.
    fn shows_as_stored(&self, kind: &Kind, object: &Object) -> bool;

    /// The group and the version in which objects are stored.
    fn stored_version<'k>(&'k self, kind: &'k Kind) -> GroupVersion<'k>;

    /// Checks kind and apiVersion of the result of a patch, if [`ObjectForm::read_value`] does not.
    fn check_type(&self, kind: &Kind, members: &Map) -> Result<(), Status>;

    /// The schema that managed fields follow.
    fn field_schema<'k>(&'k self, kind: &'k Kind) -> FieldSchema<'k>;

    /// The names of the top-level members besides kind, apiVersion and metadata.
    fn member_names<'k>(&'k self, kind: &'k Kind) -> Vec<&'k str>;
}
