//! Creates what the admission plugins take for granted: the account `default` of every namespace, and the priority classes of the system.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidings_api::{Object, ObjectKey};
use tidings_json::json;
use tidings_plugins::{DEFAULT_ACCOUNT, system_classes};

use super::namespaces::create_if_absent;
use crate::core::{Core, Resource};

/// How often accounts are looked for: one may have been deleted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Creates what is missing at the start.
pub(super) async fn create_defaults(core: &Core) {
    let plugins = &core.plugins().set;
    let classes = core
        .served()
        .find("scheduling.k8s.io", "v1", "priorityclasses");
    if let Some((_, Some(classes))) = classes
        && plugins.has("Priority")
    {
        for (name, value, description) in system_classes() {
            let class =
                json!({ "metadata": { "name": name }, "value": value, "description": description });
            create_if_absent(core, &classes, "", &class).await;
        }
    }
    if let Some(accounts) = accounts(core) {
        create_accounts(core, &accounts).await;
    }
}

/// Creates the accounts of new namespaces until the server stops.
pub(super) async fn run(core: Weak<Core>) {
    let follows = core.upgrade().and_then(|core| {
        let changes = core.namespaces.cache().changes();
        Some((accounts(&core)?, changes))
    });
    let Some((accounts, mut namespaces)) = follows else {
        return std::future::pending().await;
    };
    loop {
        {
            let Some(core) = core.upgrade() else { return };
            create_accounts(&core, &accounts).await;
        }
        // An account that is deleted comes back at the next look.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, namespaces.changed()).await {
            return; // the caches are gone, and the server with them
        }
    }
}

/// The resource of accounts, if Pods need one.
fn accounts(core: &Core) -> Option<Arc<Resource>> {
    let needed = core.plugins().set.has("ServiceAccount");
    let (_, accounts) = core.served().find("", "v1", "serviceaccounts")?;
    accounts.filter(|_| needed)
}

async fn create_accounts(core: &Core, accounts: &Arc<Resource>) {
    let without = |namespace: &&Object| {
        let key = ObjectKey::new(&namespace.name(), DEFAULT_ACCOUNT);
        !namespace.is_terminating() && accounts.get(&key).is_none()
    };
    let snapshot = core.namespaces.cache().snapshot();
    let namespaces = snapshot.state.iter().map(|(_, namespace)| namespace);
    let missing: Vec<Object> = namespaces.filter(without).cloned().collect();
    for namespace in missing {
        let account = json!({ "metadata": { "name": DEFAULT_ACCOUNT } });
        create_if_absent(core, accounts, &namespace.name(), &account).await;
    }
}
