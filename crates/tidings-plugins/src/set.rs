//! Which plugins are enabled, and their order.

use tidings_api::Status;
use tidings_registry::{Draft, Kind};

use crate::annotated_class::{DefaultIngressClass, DefaultStorageClass};
use crate::claim_resize::PersistentVolumeClaimResize;
use crate::limit_range::LimitRanger;
use crate::node_taint::TaintNodesByCondition;
use crate::plugin::Plugin;
use crate::pod_security::PodSecurity;
use crate::priority::Priority;
use crate::runtime_class::RuntimeClass;
use crate::service_account::ServiceAccount;
use crate::tolerations::DefaultTolerationSeconds;
use crate::topology_labels::PodTopologyLabels;
use crate::use_protection::StorageObjectInUseProtection;
use crate::write::{PluginSaid, PluginWrite};

/// Where the work of a plugin is done.
enum Place {
    /// In this crate.
    Here(&'static dyn Plugin),
    /// By the server, which asks [`PluginSet::has`].
    Server,
    /// By the server, whether it is enabled or not.
    Always,
    /// It has nothing to do: what it looks at is not served.
    Nothing,
}

/// The plugins that are enabled unless somebody disables them, in their order, and then those that are not.
const PLUGINS: &[(&str, bool, Place)] = &[
    ("NamespaceLifecycle", true, Place::Always),
    ("LimitRanger", true, Place::Here(&LimitRanger)),
    ("ServiceAccount", true, Place::Here(&ServiceAccount)),
    (
        "TaintNodesByCondition",
        true,
        Place::Here(&TaintNodesByCondition),
    ),
    ("PodSecurity", true, Place::Here(&PodSecurity)),
    ("Priority", true, Place::Here(&Priority)),
    (
        "DefaultTolerationSeconds",
        true,
        Place::Here(&DefaultTolerationSeconds),
    ),
    (
        "DefaultStorageClass",
        true,
        Place::Here(&DefaultStorageClass),
    ),
    (
        "StorageObjectInUseProtection",
        true,
        Place::Here(&StorageObjectInUseProtection),
    ),
    ("PodGroupProtection", true, Place::Nothing),
    (
        "PersistentVolumeClaimResize",
        true,
        Place::Here(&PersistentVolumeClaimResize),
    ),
    ("RuntimeClass", true, Place::Here(&RuntimeClass)),
    ("CertificateApproval", true, Place::Always),
    ("CertificateSigning", true, Place::Always),
    ("ClusterTrustBundleAttest", true, Place::Nothing),
    ("CertificateSubjectRestriction", true, Place::Always),
    (
        "DefaultIngressClass",
        true,
        Place::Here(&DefaultIngressClass),
    ),
    ("PodTopologyLabels", true, Place::Here(&PodTopologyLabels)),
    ("PodGroupWorkloadExists", true, Place::Nothing),
    ("PodResizeValidator", true, Place::Nothing),
    ("MutatingAdmissionPolicy", true, Place::Server),
    ("MutatingAdmissionWebhook", true, Place::Server),
    ("ValidatingAdmissionPolicy", true, Place::Server),
    ("ValidatingAdmissionWebhook", true, Place::Server),
    ("ResourceQuota", true, Place::Server),
    ("OwnerReferencesPermissionEnforcement", false, Place::Server),
    ("AlwaysAdmit", false, Place::Nothing),
];

/// Plugins of kube-apiserver that are not built.
const NOT_BUILT: &[&str] = &[
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Why plugins cannot be enabled or disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginError {
    /// No plugin has the name.
    Unknown(String),
    /// The plugin is not built.
    NotBuilt(String),
    /// The plugin cannot be disabled.
    Always(String),
    /// The plugin is to be enabled and disabled.
    Both(String),
}

impl std::fmt::Display for PluginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PluginError::Unknown(name) => {
                let known: Vec<&str> = PLUGINS.iter().map(|(name, ..)| *name).collect();
                write!(
                    f,
                    "no admission plugin is called {name:?}; there are {}",
                    known.join(", ")
                )
            }
            PluginError::NotBuilt(name) => write!(
                f,
                "the admission plugin {name} is not built; take it out of the list of those that are enabled"
            ),
            PluginError::Always(name) => write!(
                f,
                "the admission plugin {name} cannot be disabled; take it out of the list of those that are disabled"
            ),
            PluginError::Both(name) => write!(
                f,
                "the admission plugin {name} is to be enabled and disabled; take it out of one of the lists"
            ),
        }
    }
}

impl std::error::Error for PluginError {}

/// The plugins that are enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSet {
    /// By their place in the list of all.
    enabled: Vec<bool>,
}

impl Default for PluginSet {
    fn default() -> PluginSet {
        let enabled = PLUGINS.iter().map(|(_, by_default, _)| *by_default);
        PluginSet {
            enabled: enabled.collect(),
        }
    }
}

impl PluginSet {
    /// The plugins that are enabled by default, with some more and without some.
    ///
    /// # Errors
    /// If a name is not that of a plugin, or one that cannot be enabled or disabled.
    pub fn new(enable: &[String], disable: &[String]) -> Result<PluginSet, PluginError> {
        let mut set = PluginSet::default();
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(PluginError::Both(both.clone()));
        }
        for (names, is_enabled) in [(enable, true), (disable, false)] {
            for name in names {
                let not_built = NOT_BUILT.contains(&&**name);
                if not_built && !is_enabled {
                    continue;
                }
                let at = PLUGINS.iter().position(|(known, ..)| known == name);
                match at {
                    _ if not_built => return Err(PluginError::NotBuilt(name.clone())),
                    None => return Err(PluginError::Unknown(name.clone())),
                    Some(at) if !is_enabled && matches!(PLUGINS[at].2, Place::Always) => {
                        return Err(PluginError::Always(name.clone()));
                    }
                    Some(at) => set.enabled[at] = is_enabled,
                }
            }
        }
        Ok(set)
    }

    /// No plugins but those that cannot be disabled: objects are stored as they are sent.
    pub fn none() -> PluginSet {
        let always = PLUGINS
            .iter()
            .map(|(_, _, place)| matches!(place, Place::Always));
        PluginSet {
            enabled: always.collect(),
        }
    }

    /// The names of those that are enabled.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let plugins = PLUGINS.iter().zip(&self.enabled);
        plugins.filter_map(|((name, ..), enabled)| enabled.then_some(*name))
    }

    /// True if a plugin is enabled.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    fn plugins(&self, kind: &Kind) -> impl Iterator<Item = &'static dyn Plugin> {
        let plugins = PLUGINS.iter().zip(&self.enabled);
        let here = plugins.filter_map(|((_, _, place), enabled)| match place {
            Place::Here(plugin) if *enabled => Some(*plugin),
            _ => None,
        });
        here.filter(|plugin| plugin.concerns(kind))
    }

    /// True if a plugin looks at the objects of a kind. Writes of others pay nothing.
    pub fn concerns(&self, kind: &Kind) -> bool {
        !kind.is_custom() && self.plugins(kind).next().is_some()
    }

    /// Fills in what plugins fill in.
    ///
    /// # Errors
    /// If one of them refuses the object.
    pub fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        old: Option<&Draft>,
    ) -> Result<(), Status> {
        let mut changed = false;
        for plugin in self.plugins(write.kind) {
            changed |= plugin.change(write, draft, old)?;
        }
        if changed {
            draft.complete();
        }
        Ok(())
    }

    /// Asks the plugins that check. What they say is added to `said`, also if one of them refuses the object.
    ///
    /// # Errors
    /// If one of them refuses it.
    pub fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        old: Option<&Draft>,
        said: &mut PluginSaid,
    ) -> Result<(), Status> {
        self.plugins(write.kind)
            .try_for_each(|plugin| plugin.check(write, new, old, said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(enable: &[&str], disable: &[&str]) -> Result<PluginSet, PluginError> {
        let owned = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        PluginSet::new(&owned(enable), &owned(disable))
    }

    #[test]
    fn plugins_are_enabled_and_disabled_by_name() {
        assert!(set(&[], &[]).unwrap().has("PodSecurity"));
        assert!(!set(&[], &["PodSecurity"]).unwrap().has("PodSecurity"));
        let other = "OwnerReferencesPermissionEnforcement";
        assert!(!set(&[], &[]).unwrap().has(other) && set(&[other], &[]).unwrap().has(other));
        assert!(set(&[], &["NodeRestriction"]).is_ok(), "it is not there");
        for (enable, disable, part) in [
            (&["NodeRestriction"][..], &[][..], "is not built"),
            (&["JobValidation"], &[], "is not built"),
            (&["podsecurity"], &[], "there are NamespaceLifecycle, "),
            (&[], &["Nothing"], "no admission plugin is called"),
            (&[], &["NamespaceLifecycle"], "cannot be disabled"),
            (&["Priority"], &["Priority"], "enabled and disabled"),
        ] {
            let error = set(enable, disable).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let always = PluginSet::none();
        assert_eq!(
            always.names().collect::<Vec<_>>(),
            [
                "NamespaceLifecycle",
                "CertificateApproval",
                "CertificateSigning",
                "CertificateSubjectRestriction"
            ]
        );
    }
}
