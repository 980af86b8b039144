//! `PodTopologyLabels`: Pods have the labels of their node that say where it is.

use tidings_api::Status;
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{ClusterView, Known, PluginWrite, is_kind};

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

pub(crate) struct PodTopologyLabels;

/// The labels of a node that its Pods get.
pub fn topology_labels(cluster: &dyn ClusterView, node: &str) -> Vec<(String, String)> {
    let Some(node) = cluster.get(Known::Nodes, "", node) else {
        return Vec::new();
    };
    let labels = node.labels();
    let label = |name: &str| Some((name.to_owned(), labels.get(name)?.to_owned()));
    LABELS.into_iter().filter_map(label).collect()
}

impl Plugin for PodTopologyLabels {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let node = draft.text(&["spec", "nodeName"]);
        if !write.creates() || node.is_empty() {
            return Ok(false);
        }
        let labels = topology_labels(write.cluster, node);
        let any = !labels.is_empty();
        draft.meta.labels.extend(labels);
        Ok(any)
    }
}
