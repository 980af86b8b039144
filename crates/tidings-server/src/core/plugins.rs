//! The admission plugins, with the caches that they look into.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidings_access::User;
use tidings_admission::Operation;
use tidings_api::{Object, ObjectKey, Status};
use tidings_plugins::{ClusterView, DEFAULT_ACCOUNT, Known, PluginSaid, PluginSet, PluginWrite};
use tidings_registry::{Draft, Kind};

use super::names::random_letters;
use super::resource::Resource;
use super::served::ServedSet;
use super::target::Target;

/// How often the account `default` is looked for: the controller creates it right after its namespace.
const ACCOUNT_TRIES: u32 = 10;
/// How long is waited between two looks.
const ACCOUNT_WAIT: Duration = Duration::from_millis(100);

/// The plugins that are enabled, and what they look up.
pub(crate) struct Plugins {
    pub(crate) set: PluginSet,
    /// It matters who gives objects their owners.
    pub(super) checks_owners: bool,
    known: HashMap<Known, Arc<Resource>>,
}

impl Plugins {
    pub(super) fn new(set: PluginSet, served: &ServedSet) -> Plugins {
        let find = |known: Known| {
            let (group, plural) = known.resource();
            Some((known, served.find(group, "v1", plural)?.1?))
        };
        Plugins {
            checks_owners: set.has("OwnerReferencesPermissionEnforcement"),
            set,
            known: Known::ALL.into_iter().filter_map(find).collect(),
        }
    }

    /// True for kinds by which plugins decide. Who has the answer to a write of one may rely on it.
    pub(super) fn decide_by(&self, kind: &Kind) -> bool {
        let is_kind = |known: &Known| {
            let (group, plural) = known.resource();
            !matches!(known, Known::Pods | Known::Nodes)
                && *kind.plural == *plural
                && *kind.group == *group
        };
        Known::ALL.iter().any(is_kind)
    }

    /// Waits a moment for the account of a Pod in a namespace that was just made.
    async fn await_account(&self, namespace: &str, draft: &Draft) -> Result<(), Status> {
        let Some(accounts) = self.known.get(&Known::ServiceAccounts) else {
            return Ok(());
        };
        let name = match draft.text(&["spec", "serviceAccountName"]) {
            "" => DEFAULT_ACCOUNT,
            name => name,
        };
        let key = ObjectKey::new(namespace, name);
        for attempt in 1.. {
            if accounts.get(&key).is_some() {
                break;
            }
            accounts.refresh().await?;
            let gives_up = name != DEFAULT_ACCOUNT || attempt >= ACCOUNT_TRIES;
            if accounts.get(&key).is_some() || gives_up {
                break;
            }
            tokio::time::sleep(ACCOUNT_WAIT).await;
        }
        Ok(())
    }
}

impl ClusterView for Plugins {
    fn get(&self, known: Known, namespace: &str, name: &str) -> Option<Object> {
        self.known
            .get(&known)?
            .get(&ObjectKey::new(namespace, name))
    }

    fn list(&self, known: Known, namespace: &str) -> Vec<Object> {
        let resource = self.known.get(&known);
        resource.map_or_else(Vec::new, |resource| resource.list_in(namespace))
    }
}

/// Who does what with which object.
#[derive(Clone, Copy)]
pub(super) struct WriteBy<'a> {
    pub(super) operation: Operation,
    pub(super) target: &'a Target,
    pub(super) user: &'a User,
}

/// The plugins that a write concerns, and what they have said.
pub(crate) struct CallPlugins {
    plugins: Arc<Plugins>,
    said: Mutex<PluginSaid>,
}

impl CallPlugins {
    /// `None` if no plugin looks at the kind.
    pub(super) fn of(plugins: &Arc<Plugins>, kind: &Kind) -> Option<CallPlugins> {
        plugins.set.concerns(kind).then(|| CallPlugins {
            plugins: plugins.clone(),
            said: Mutex::default(),
        })
    }

    /// Takes what was said.
    pub(super) fn take_said(&self) -> PluginSaid {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        namespace: &'a str,
        random: &'a str,
    ) -> PluginWrite<'a> {
        let WriteBy {
            operation,
            target,
            user,
        } = by;
        let creates = operation == Operation::Create;
        PluginWrite {
            operation,
            kind: &target.kind,
            subresource: target.subresource.filter(|_| !creates),
            namespace,
            user,
            random,
            cluster: &*self.plugins,
        }
    }

    /// Fills in what plugins fill in.
    pub(super) async fn change(
        &self,
        by: WriteBy<'_>,
        draft: &mut Draft,
        old: Option<&Draft>,
    ) -> Result<(), Status> {
        let namespace = draft.meta.namespace.clone();
        let is_new_pod = by.operation == Operation::Create && *draft.kind.kind == *"Pod";
        if is_new_pod && self.plugins.set.has("ServiceAccount") {
            self.plugins.await_account(&namespace, draft).await?;
        }
        let random = random_letters();
        let write = self.write(by, &namespace, &random);
        self.plugins.set.change(&write, draft, old)
    }

    /// Asks those that check.
    pub(super) fn check(
        &self,
        by: WriteBy<'_>,
        new: &Draft,
        old: Option<&Draft>,
    ) -> Result<(), Status> {
        let write = self.write(by, &new.meta.namespace, "");
        let mut said = PluginSaid::default();
        let checked = self.plugins.set.check(&write, new, old, &mut said);
        // A write that is tried again is checked again: what was said last counts.
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
        checked
    }
}
