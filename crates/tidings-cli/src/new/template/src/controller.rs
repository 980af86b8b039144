//! What the operator does: it makes a ConfigMap for each TemplateKind, and says so in its status.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use tidings::controller::{Action, Cached, Cluster, Context, Controller};
use tidings::controller::{NewCondition, set_condition};

use crate::types::TemplateKind;

/// Which objects the operator looks at. Its permissions are derived from this: when it changes, renew `deploy/rbac.yaml`.
pub fn controller(cluster: &Cluster) -> Controller<TemplateKind> {
    Controller::new(cluster).owns::<ConfigMap>()
}

/// Makes the cluster match an object. It is called when the object or its ConfigMap changes, and again after an error.
pub async fn reconcile(object: Arc<Cached<TemplateKind>>, ctx: Context<()>) -> Result<Action> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(object.name().to_owned());
    map.data = Some([("message".to_owned(), object.spec.message.clone())].into());
    if ctx.apply(&object, &map).await? {
        tracing::info!(object = %object.key(), "applied the ConfigMap");
    }

    let mut status = object.status.clone().unwrap_or_default();
    let ready = NewCondition::is_true("Ready", "Applied", "the ConfigMap has the message");
    set_condition(&mut status.conditions, ready.observed(&object));
    ctx.apply_status(&object, &status).await?;
    Ok(Action::AwaitChange)
}
