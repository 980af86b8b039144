//! Which requests a webhook, a policy or a binding is for.

use serde::Deserialize;
use tidings_api::{LabelSelector, Labels};

use crate::form::{MatchPolicy, or_default, selector};
use crate::request::{AdmissionRequest, ResourceKind};
use crate::rule::Rule;

/// Rules and selectors.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchResources {
    #[serde(deserialize_with = "or_default")]
    pub(crate) resource_rules: Vec<Rule>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) exclude_resource_rules: Vec<Rule>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) match_policy: MatchPolicy,
    #[serde(deserialize_with = "selector")]
    pub(crate) namespace_selector: LabelSelector,
    #[serde(deserialize_with = "selector")]
    pub(crate) object_selector: LabelSelector,
}

impl MatchResources {
    /// True if a rule is for the request as it stands.
    pub fn rules_match(&self, request: &AdmissionRequest<'_>) -> bool {
        let mut rules = self.resource_rules.iter();
        rules.any(|rule| rule.matches(request, &request.on))
    }

    /// The resource that a request is about, as the rules see it: that of the request, or, if no rule is for it, an equivalent one. `None` if
    /// none is.
    pub fn about(
        &self,
        request: &AdmissionRequest<'_>,
        equivalents: &impl Fn() -> Vec<ResourceKind>,
    ) -> Option<ResourceKind> {
        if !self.exclude_resource_rules.is_empty()
            && self
                .found(&self.exclude_resource_rules, request, equivalents)
                .is_some()
        {
            return None;
        }
        self.found(&self.resource_rules, request, equivalents)
    }

    /// As [`MatchResources::about`], but without rules every request is meant, as in bindings.
    pub fn includes(
        &self,
        request: &AdmissionRequest<'_>,
        equivalents: &impl Fn() -> Vec<ResourceKind>,
    ) -> bool {
        let excludes = &self.exclude_resource_rules;
        if !excludes.is_empty() && self.found(excludes, request, equivalents).is_some() {
            return false;
        }
        let rules = &self.resource_rules;
        rules.is_empty() || self.found(rules, request, equivalents).is_some()
    }

    fn found(
        &self,
        rules: &[Rule],
        request: &AdmissionRequest<'_>,
        equivalents: &impl Fn() -> Vec<ResourceKind>,
    ) -> Option<ResourceKind> {
        if rules.iter().any(|rule| rule.matches(request, &request.on)) {
            return Some(request.on.clone());
        }
        if self.match_policy == MatchPolicy::Exact {
            return None;
        }
        let others = equivalents();
        // Earlier rules count first.
        rules.iter().find_map(|rule| {
            let found = others.iter().find(|other| rule.matches(request, other));
            found.cloned()
        })
    }

    /// False if the selectors leave the request out. `namespace` has the labels of the namespace, `None` if the object is in none; `objects`
    /// are the labels of the object before and after.
    pub fn selects(&self, namespace: Option<&Labels>, objects: &[&Labels]) -> bool {
        let (namespaces, selected) = (&self.namespace_selector, &self.object_selector);
        let in_namespace = namespace.is_none_or(|labels| namespaces.matches(labels));
        let is_selected = || objects.iter().any(|labels| selected.matches(labels));
        (namespaces.is_empty() || in_namespace) && (selected.is_empty() || is_selected())
    }

    /// True if the labels of namespaces matter.
    pub fn has_namespace_selector(&self) -> bool {
        !self.namespace_selector.is_empty()
    }
}
