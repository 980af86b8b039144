//! The kinds of the group `storage.k8s.io`.

use super::{PLAIN, member, spec, status};
use crate::printers::storage;
use crate::registry::{Generation, Kind, Shape};

const STORAGE: Kind = Kind {
    group: "storage.k8s.io",
    go_package: "storage",
    namespaced: false,
    returns_deleted: true,
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "CSIDriver",
        plural: "csidrivers",
        printer: &storage::CSI_DRIVER,
        members: &[member(
            "spec",
            Shape::Object("v1.CSIDriverSpec"),
            concat!(
                r#"{"attachRequired":true,"podInfoOnMount":false,"volumeLifecycleModes":["Persistent"],"#,
                r#""storageCapacity":false,"fsGroupPolicy":"ReadWriteOnceWithFSType","#,
                r#""requiresRepublish":false,"seLinuxMount":false}"#
            ),
        )],
        generation: Generation::CountedFromZero,
        conditional_update: true,
        bookmark: r#","spec":{}"#,
        ..STORAGE
    },
    Kind {
        kind: "CSINode",
        plural: "csinodes",
        printer: &storage::CSI_NODE,
        members: &[member(
            "spec",
            Shape::Object("v1.CSINodeSpec"),
            r#"{"drivers":null}"#,
        )],
        conditional_update: true,
        bookmark: r#","spec":{"drivers":null}"#,
        ..STORAGE
    },
    Kind {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        namespaced: true,
        members: &[
            member("nodeTopology", Shape::Object("v1.LabelSelector"), ""),
            member("storageClassName", Shape::String, "\"\""),
            member("capacity", Shape::Any, ""),
            member("maximumVolumeSize", Shape::Any, ""),
        ],
        conditional_update: true,
        returns_deleted: false,
        bookmark: r#","storageClassName":"""#,
        ..STORAGE
    },
    Kind {
        kind: "StorageClass",
        plural: "storageclasses",
        printer: &storage::STORAGE_CLASS,
        short_names: &["sc"],
        members: &[
            member("provisioner", Shape::String, "\"\""),
            member("parameters", Shape::Strings, ""),
            member(
                "reclaimPolicy",
                Shape::Named("v1.PersistentVolumeReclaimPolicy"),
                "\"Delete\"",
            ),
            member("mountOptions", Shape::Array("[]string"), ""),
            member("allowVolumeExpansion", Shape::Bool, ""),
            member(
                "volumeBindingMode",
                Shape::Named("v1.VolumeBindingMode"),
                "\"Immediate\"",
            ),
            member(
                "allowedTopologies",
                Shape::Array("[]v1.TopologySelectorTerm"),
                "",
            ),
        ],
        bookmark: r#","provisioner":"""#,
        ..STORAGE
    },
    Kind {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        printer: &storage::VOLUME_ATTACHMENT,
        members: &[
            spec("v1.VolumeAttachmentSpec"),
            status("v1.VolumeAttachmentStatus", r#"{"attached":false}"#),
        ],
        status: true,
        conditional_update: true,
        bookmark: r#","spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}"#,
        ..STORAGE
    },
    Kind {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        printer: &storage::VOLUME_ATTRIBUTES_CLASS,
        short_names: &["vac"],
        members: &[
            member("driverName", Shape::String, "\"\""),
            member("parameters", Shape::Strings, ""),
        ],
        bookmark: r#","driverName":"""#,
        ..STORAGE
    },
];
