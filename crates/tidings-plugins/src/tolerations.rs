//! `DefaultTolerationSeconds`: Pods stay for five minutes on a node that is not ready, or cannot be reached.

use tidings_admission::Operation;
use tidings_api::Status;
use tidings_json::{Value, json};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::write::{PluginWrite, is_kind};

/// How long a Pod stays.
const STAY_SECONDS: i64 = 300;
const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

pub(crate) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        let writes = matches!(write.operation, Operation::Create | Operation::Update);
        let Some(spec) = draft.members.get_mut("spec").filter(|_| writes) else {
            return Ok(false);
        };
        if write.subresource.is_some() {
            return Ok(false);
        }
        let none = Vec::new();
        let known = spec["tolerations"].as_array().unwrap_or(&none);
        let is = |toleration: &Value, member: &str, text: &str| {
            let said = toleration[member].as_str().unwrap_or_default();
            said.is_empty() || said == text
        };
        let missing: Vec<Value> = TAINTS
            .into_iter()
            .filter(|taint| {
                let mut known = known.iter();
                !known.any(|one| is(one, "key", taint) && is(one, "effect", "NoExecute"))
            })
            .map(|taint| {
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAY_SECONDS})
            })
            .collect();
        if missing.is_empty() {
            return Ok(false);
        }
        if spec["tolerations"].is_null() {
            spec["tolerations"] = Value::Array(Vec::new());
        }
        if let Some(tolerations) = spec["tolerations"].as_array_mut() {
            tolerations.extend(missing);
        }
        Ok(true)
    }
}
