//! Which controllers run, by the names that kube-controller-manager gives them.

use std::collections::BTreeSet;

/// The controllers of kube-controller-manager that a server brings, so that none is needed beside it.
const NAMES: [&str; 7] = [
    CERTIFICATES,
    GARBAGE,
    NAMESPACES,
    QUOTAS,
    ROLES,
    ACCOUNTS,
    CLAIMS,
];
pub(super) const CERTIFICATES: &str = "certificatesigningrequest-signing-controller";
pub(super) const GARBAGE: &str = "garbage-collector-controller";
pub(super) const NAMESPACES: &str = "namespace-controller";
pub(super) const QUOTAS: &str = "resourcequota-controller";
pub(super) const ROLES: &str = "clusterrole-aggregation-controller";
pub(super) const ACCOUNTS: &str = "serviceaccount-controller";
/// For volumes too.
pub(super) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";

/// The controllers that run in a server: by default all that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSet(BTreeSet<&'static str>);

impl Default for ControllerSet {
    fn default() -> ControllerSet {
        ControllerSet(NAMES.into())
    }
}

/// A controller was named that a server does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {0}: write * for all, or names with commas, each with - in front of it to leave it out: {known}", known = NAMES.join(", "))]
pub struct ControllerError(String);

impl ControllerSet {
    /// None: the server does what kube-apiserver does without a controller manager. Namespaces that are deleted stay, and so do dependents.
    pub fn none() -> ControllerSet {
        ControllerSet(BTreeSet::new())
    }

    /// The controllers that are named as kube-controller-manager is told them: `*` for all, `name` for one, `-name` for one that does not run.
    ///
    /// # Errors
    /// If there is no such controller.
    pub fn new(names: &[String]) -> Result<ControllerSet, ControllerError> {
        let mut set = ControllerSet::none();
        if names.iter().any(|name| name == "*") {
            set = ControllerSet::default();
        }
        for name in names
            .iter()
            .filter(|name| !matches!(name.as_str(), "*" | ""))
        {
            let (leaves_out, wanted) = match name.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, name.as_str()),
            };
            let mut known = NAMES.into_iter();
            let known = known.find(|known| *known == wanted);
            let known = known.ok_or_else(|| ControllerError(wanted.to_owned()))?;
            match leaves_out {
                true => set.0.remove(known),
                false => set.0.insert(known),
            };
        }
        Ok(set)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_named_as_the_controller_manager_is_told() {
        let set = |text: &str| {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            ControllerSet::new(&names)
        };
        assert_eq!(set("*"), Ok(ControllerSet::default()));
        assert_eq!(set(""), Ok(ControllerSet::none()));
        let without = set("*,-namespace-controller").unwrap();
        assert!(!without.has(NAMESPACES) && without.has(GARBAGE));
        let only = set("garbage-collector-controller").unwrap();
        assert!(!only.has(NAMESPACES) && only.has(GARBAGE));
        let told = set("*,-garbage").unwrap_err().to_string();
        assert!(
            told.contains("no controller garbage") && told.contains(GARBAGE),
            "{told}"
        );
    }
}
