//! The metadata of children in little memory.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMetadata {
    uid: Option<String>,
    deletion_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads only the metadata that a controller needs of a child: its uid, its owners, and whether it is being deleted. Name, namespace, version
/// and labels are known of every cached object. For projected types that a controller owns thousands of:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use serde::{Deserialize, Serialize};
/// use serde_json::value::RawValue;
/// use tidings_controller::lean_metadata;
///
/// /// A ConfigMap whose data stays the text that the server sent.
/// #[derive(Debug, Clone, kube::Resource, Serialize, Deserialize)]
/// #[resource(inherit = "ConfigMap")]
/// struct PageMap {
///     #[serde(deserialize_with = "lean_metadata")]
///     metadata: ObjectMeta,
///     data: Box<RawValue>,
/// }
/// ```
///
/// Children to which the controller applies annotations or finalizers need all their metadata: without it nobody knows whether they still have
/// them, and every change of such a child is answered with an apply.
///
/// # Errors
/// If the source has no metadata.
pub fn lean_metadata<'de, D: Deserializer<'de>>(source: D) -> Result<ObjectMeta, D::Error> {
    let lean = LeanMetadata::deserialize(source)?;
    let mut owner_references = lean.owner_references;
    if let Some(owners) = &mut owner_references {
        // A list is read with room for four, and nearly every child has one owner.
        owners.shrink_to_fit();
    }
    Ok(ObjectMeta {
        uid: lean.uid,
        deletion_timestamp: lean.deletion_timestamp,
        owner_references,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_uid_and_deletion_stay_and_take_no_more_room_than_they_need() {
        let owner =
            json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true});
        let metadata = json!({"name": "a", "uid": "x", "annotations": {"b": "c"}, "deletionTimestamp": "2026-11-18T14:00:00Z",
            "ownerReferences": [owner]});
        let lean = lean_metadata(metadata).unwrap();
        let read: ObjectMeta =
            serde_json::from_value(json!({"uid": "x", "ownerReferences": [owner],
            "deletionTimestamp": "2026-11-18T14:00:00Z"}))
            .unwrap();
        assert_eq!(lean, read);
        assert_eq!(lean.owner_references.unwrap().capacity(), 1);
        assert_eq!(lean_metadata(json!({})).unwrap(), ObjectMeta::default());
    }
}
