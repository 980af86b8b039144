//! Drafts and kinds by the form of their objects. The only place that chooses between the two forms.

use std::borrow::Cow;
use std::sync::Arc;

use tidings_api::{GroupVersion, Object, Status, UnstampedObject};
use tidings_json::{Map, Touched, Value};

use crate::field_schema::FieldSchema;
use crate::form::ObjectForm;
use crate::model::{Draft, Kind};
use crate::stored::StoredObject;
use crate::typed::TypedForm;

impl Draft {
    /// Reads the body of a request (W132, W133).
    ///
    /// # Errors
    /// If it is not an object of the kind.
    pub fn read(kind: &Arc<Kind>, body: &[u8]) -> Result<Draft, Status> {
        kind.form().read_body(kind, body)
    }

    /// Reads the object that results from a patch, which may be of the wrong kind.
    ///
    /// # Errors
    /// With Go's message.
    pub(crate) fn read_value(kind: &Arc<Kind>, value: Value) -> Result<Draft, String> {
        kind.form().read_value(kind, value, &Touched::Whole)
    }

    /// Reads a stored object with some members replaced: only those in `touched` are checked and completed.
    ///
    /// # Errors
    /// With Go's message.
    pub(crate) fn read_touched(
        kind: &Arc<Kind>,
        value: Value,
        touched: &Touched,
    ) -> Result<Draft, String> {
        kind.form().read_value(kind, value, touched)
    }

    /// Reads an object from the cache.
    ///
    /// # Errors
    /// If the store holds something that this server does not write.
    pub fn of(kind: &Arc<Kind>, object: &Object) -> Result<Draft, Status> {
        kind.form().read_object(kind, object)
    }

    /// Makes a draft of a stored object that has been read. The types of its values are not checked again.
    ///
    /// # Errors
    /// If the store holds something that this server does not write.
    pub(crate) fn of_stored(kind: &Arc<Kind>, stored: StoredObject) -> Result<Draft, Status> {
        kind.form().read_stored(kind, stored)
    }

    /// True if both drafts would be stored as the same bytes.
    pub fn is_same_as(&self, other: &Draft) -> bool {
        self.kind.form().is_same(self, other)
    }

    /// The bytes that are stored: the object as GET returns it, without its resourceVersion.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn write(&self) -> Result<UnstampedObject, Status> {
        self.kind.form().write(self)
    }
}

impl Kind {
    /// The form of the objects.
    fn form(&self) -> &dyn ObjectForm {
        match &self.custom {
            Some(custom) => &**custom,
            None => &TypedForm,
        }
    }

    /// The JSON of a stored object as this kind shows it.
    pub fn shown<'a>(&self, object: &'a Object) -> Cow<'a, [u8]> {
        self.form().shown(self, object)
    }

    /// True if an object is shown as it is stored, so that its bytes can be sent without a copy. Called for every event of a watch.
    pub fn shows_as_stored(&self, object: &Object) -> bool {
        self.form().shows_as_stored(self, object)
    }

    /// The group and the version in which objects are stored.
    pub fn stored_version(&self) -> GroupVersion<'_> {
        self.form().stored_version(self)
    }

    /// Checks kind and apiVersion of the result of a patch.
    pub(crate) fn check_type(&self, members: &Map) -> Result<(), Status> {
        self.form().check_type(self, members)
    }

    /// The schema that managed fields follow.
    pub(crate) fn field_schema(&self) -> FieldSchema<'_> {
        self.form().field_schema(self)
    }

    /// The names of the top-level members besides kind, apiVersion and metadata.
    pub(crate) fn member_names(&self) -> Vec<&str> {
        self.form().member_names(self)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::test_kinds::kind_of;
    use tidings_json::{Value, json};

    #[test]
    fn an_autoscaler_keeps_all_metrics_through_v1() {
        let v1 = kind_of("autoscaling", "v1", "horizontalpodautoscalers");
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
        ]);
        let stored = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "metrics": metrics}, "status": {}});
        let object = Object::parse(stored.to_string()).unwrap();
        let shown: Value = serde_json::from_slice(&v1.shown(&object)).unwrap();
        assert_eq!(shown["apiVersion"], "autoscaling/v1");
        assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 60);
        let mut back = shown.as_object().unwrap().clone();
        (v1.view.as_ref().unwrap().store)(&mut back);
        assert_eq!(back.get("spec").unwrap()["metrics"], metrics);
        assert_eq!(back.get("metadata").unwrap()["annotations"], json!({}));
    }

    #[test]
    fn an_event_has_other_names_in_its_own_group() {
        let events = kind_of("events.k8s.io", "v1", "events");
        let stored = json!({"metadata": {"name": "a"}, "involvedObject": {"name": "pod"}, "message": "hi", "count": 3});
        let object = Object::parse(stored.to_string()).unwrap();
        let shown: Value = serde_json::from_slice(&events.shown(&object)).unwrap();
        assert_eq!(shown["kind"], "Event");
        assert_eq!(shown["regarding"]["name"], "pod");
        assert_eq!(shown["note"], "hi");
        assert_eq!(shown["deprecatedCount"], 3);
    }
}
