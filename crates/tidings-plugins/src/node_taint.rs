//! `TaintNodesByCondition`: new nodes get no Pods until somebody says that they are ready.

use tidings_api::Status;
use tidings_json::{Value, json};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{PluginWrite, is_kind};

const TAINT: &str = "node.kubernetes.io/not-ready";

pub(crate) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "nodes")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        if !write.creates() {
            return Ok(false);
        }
        let spec = draft
            .members
            .entry("spec")
            .or_insert_with(|| Value::Object(tidings_json::Map::new()));
        if spec["taints"].is_null() {
            spec["taints"] = Value::Array(Vec::new());
        }
        let Some(taints) = spec["taints"].as_array_mut() else {
            return Ok(false);
        };
        let is_there = |taint: &Value| taint["key"] == TAINT && taint["effect"] == "NoSchedule";
        if !taints.iter().any(is_there) {
            taints.push(json!({"key": TAINT, "effect": "NoSchedule"}));
        }
        Ok(true)
    }
}
