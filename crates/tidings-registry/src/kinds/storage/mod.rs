//! The kinds of the group `storage.k8s.io`.

pub(super) mod csi_driver;
mod csi_node;
pub(super) mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

use crate::model::Kind;

fn plain() -> Kind {
    Kind {
        group: "storage.k8s.io".into(),
        go_package: "storage",
        namespaced: false,
        returns_deleted: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        csi_driver::kind(),
        csi_node::kind(),
        Kind {
            kind: "CSIStorageCapacity".into(),
            plural: "csistoragecapacities".into(),
            namespaced: true,
            conditional_update: true,
            returns_deleted: false,
            ..plain()
        },
        storage_class::kind(),
        volume_attachment::kind(),
        volume_attributes_class::kind(),
    ]
}
