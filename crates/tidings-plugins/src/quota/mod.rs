//! `ResourceQuota`: how much the objects of a namespace may take together.
//!
//! What is used stands in the status of the quota. It is raised before an object is written, and lowered after one is gone: if something fails in between,
//! too much is counted, until the objects are counted again.

mod scopes;
mod usage;

use std::collections::BTreeMap;

use tidings_api::Object;
use tidings_go::Quantity;
use tidings_json::{Map, Value};

use crate::pod::{Amounts, add, amounts, is_of_whole_pods, items, text};
use crate::write::tree;
use scopes::QuotaScope;
pub use usage::CountedResource;
use usage::{Counting, compute};

/// Every container has to say how much of these it takes, if a quota counts them.
const MUST_BE_SAID: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// A write that may change what is used.
#[derive(Clone, Copy)]
pub struct QuotaWrite<'a> {
    /// What is written.
    pub resource: CountedResource<'a>,
    /// The object after the write; null if it is deleted.
    pub new: &'a Value,
    /// The object before it; null if it is created.
    pub old: &'a Value,
    /// True if only the status is written.
    pub of_status: bool,
}

/// A quota as it is stored.
#[derive(Debug, Clone)]
pub struct Quota {
    name: String,
    scopes: Vec<QuotaScope>,
    wanted: Amounts,
    hard: Amounts,
    used: Amounts,
}

/// What a write takes of a quota, or gives back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaShare(Amounts);

/// What is used when all objects are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCount {
    hard: Amounts,
    used: Amounts,
    /// Less is used than the status says.
    pub is_less: bool,
}

impl Quota {
    /// Reads a ResourceQuota.
    pub fn read(object: &Object) -> Quota {
        let json = tree(object);
        let (spec, status) = (&json["spec"], &json["status"]);
        Quota {
            name: text(&json["metadata"], "name").to_owned(),
            scopes: QuotaScope::all(spec),
            wanted: amounts(&spec["hard"]),
            hard: amounts(&status["hard"]),
            used: amounts(&status["used"]),
        }
    }

    /// True if its status does not have the limits that its spec wants.
    pub fn is_unsettled(&self) -> bool {
        self.wanted != self.hard
    }

    /// True if objects of a resource count for it.
    pub fn is_about(&self, resource: CountedResource<'_>) -> bool {
        self.hard.keys().any(|name| resource.counts_for(name))
    }

    /// True if the status says what was counted.
    pub fn count_is(&self, count: &QuotaCount) -> bool {
        self.hard == count.hard && self.used == count.used
    }

    /// The names of the limits, as the spec wants them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.wanted.keys().map(String::as_str)
    }

    fn matches(&self, resource: CountedResource<'_>, object: &Value) -> bool {
        let counting = resource.counting();
        self.is_about(resource)
            && self
                .scopes
                .iter()
                .all(|scope| scope.holds(counting, object))
    }

    /// The amounts that an object takes of this quota; none if it is not about it.
    fn taken(&self, resource: CountedResource<'_>, object: &Value) -> Amounts {
        if object.is_null() || !self.matches(resource, object) {
            return Amounts::new();
        }
        let mut usage = resource.usage(object);
        usage.retain(|name, _| self.hard.contains_key(name));
        usage
    }

    /// What a write takes more than what was there before. `None`: nothing.
    ///
    /// # Errors
    /// Why the write is refused.
    pub fn charge(&self, write: QuotaWrite<'_>) -> Result<Option<QuotaShare>, String> {
        let QuotaWrite { resource, new, .. } = write;
        if !write.may_take_more() || !self.matches(resource, new) {
            return Ok(None);
        }
        let about: Vec<&str> = self
            .hard
            .keys()
            .map(String::as_str)
            .filter(|name| resource.counts_for(name))
            .collect();
        if resource.counting() == Counting::Pods {
            says_what_it_takes(&about, &new["spec"])
                .map_err(|why| format!("failed quota: {}: {why}", self.name))?;
        }
        if about.iter().any(|name| !self.used.contains_key(*name)) {
            let (name, about) = (&self.name, about.join(","));
            return Err(format!(
                "status unknown for quota: {name}, resources: {about}"
            ));
        }
        let usage = resource.usage(new);
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| **amount < Quantity::ZERO)
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            let negative = negative.join(",");
            return Err(format!(
                "quota usage is negative for resource(s): {negative}"
            ));
        }
        let before = self.taken(resource, write.old);
        let more = difference(&self.taken(resource, new), &before);
        if more.is_empty() {
            return Ok(None);
        }
        let mut used = self.used.clone();
        add(&mut used, &more);
        let exceeded: Vec<&String> = more
            .keys()
            .filter(|name| used.get(*name) > self.hard.get(*name))
            .collect();
        if !exceeded.is_empty() && !write.of_status {
            let shown = |of: &Amounts| {
                let parts = exceeded.iter().map(|name| {
                    let amount = of.get(*name).copied().unwrap_or(Quantity::ZERO);
                    format!("{name}={amount}")
                });
                parts.collect::<Vec<_>>().join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                self.name,
                shown(&more),
                shown(&self.used),
                shown(&self.hard)
            ));
        }
        Ok(Some(QuotaShare(more)))
    }

    /// What a write gives back of what was there before. `None`: nothing.
    pub fn freed(&self, write: QuotaWrite<'_>) -> Option<QuotaShare> {
        let taken = |object| self.taken(write.resource, object);
        let less = difference(&taken(write.old), &taken(write.new));
        (!less.is_empty()).then_some(QuotaShare(less))
    }

    /// What is used with a share.
    pub fn with(&self, share: &QuotaShare) -> UsedAmounts {
        let mut used = self.used.clone();
        add(&mut used, &share.0);
        UsedAmounts(used)
    }

    /// What is used without a share.
    pub fn without(&self, share: &QuotaShare) -> UsedAmounts {
        let mut used = self.used.clone();
        for (name, amount) in &share.0 {
            if let Some(known) = used.get_mut(name) {
                *known = (*known - *amount).max(Quantity::ZERO);
            }
        }
        UsedAmounts(used)
    }

    /// Counts all objects: of each resource that the names of the quota are about. `keeps`: no less is used than the status says, because somebody may be
    /// about to write what is counted there. `None` if the status says it already.
    pub fn count<'o>(
        &self,
        objects: impl Iterator<Item = (CountedResource<'o>, Vec<Object>)>,
        keeps: bool,
    ) -> Option<QuotaCount> {
        let wanted = Quota {
            hard: self.wanted.clone(),
            ..self.clone()
        };
        let mut used = Amounts::new();
        for (resource, objects) in objects {
            for name in wanted.hard.keys().filter(|name| resource.counts_for(name)) {
                used.entry(name.clone()).or_insert(Quantity::ZERO);
            }
            for object in objects {
                add(&mut used, &wanted.taken(resource, &tree(&object)));
            }
        }
        let mut is_less = false;
        for (name, amount) in &self.used {
            if !self.wanted.contains_key(name) {
                continue;
            }
            let counted = used.entry(name.clone()).or_insert(*amount);
            if *counted < *amount {
                match keeps {
                    true => *counted = *amount,
                    false => is_less = true,
                }
            }
        }
        let count = QuotaCount {
            hard: wanted.hard,
            used,
            is_less,
        };
        (self.hard != count.hard || self.used != count.used).then_some(count)
    }
}

impl QuotaWrite<'_> {
    /// True if quotas are asked before the write. As upstream: Pods take what they take until they end.
    fn may_take_more(&self) -> bool {
        let creates = self.old.is_null();
        if self.new.is_null() {
            return false;
        }
        let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].is_null();
        match self.resource.counting() {
            Counting::Never => false,
            Counting::Objects => creates,
            Counting::Services => !self.of_status,
            Counting::Claims => true,
            Counting::Pods => {
                creates || (!self.of_status && deadline(self.new) != deadline(self.old))
            }
        }
    }
}

/// What is used of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedAmounts(Amounts);

fn to_value(amounts: &Amounts) -> Value {
    let texts = amounts.iter();
    let texts = texts.map(|(name, amount)| (name.clone(), amount.to_string().into()));
    Value::Object(texts.collect::<Map>())
}

impl UsedAmounts {
    /// The member `used` of a status.
    pub fn to_value(&self) -> Value {
        to_value(&self.0)
    }
}

impl QuotaCount {
    /// The member `hard` of a status.
    pub fn hard(&self) -> Value {
        to_value(&self.hard)
    }

    /// The member `used` of a status.
    pub fn used(&self) -> Value {
        to_value(&self.used)
    }
}

/// How much more one takes than the other.
fn difference(one: &Amounts, other: &Amounts) -> Amounts {
    let more = one.iter().map(|(name, amount)| {
        let less = other.get(name).copied().unwrap_or(Quantity::ZERO);
        (name.clone(), *amount - less)
    });
    more.filter(|(_, amount)| *amount > Quantity::ZERO)
        .collect()
}

/// Refuses a Pod with containers that do not say how much they take of what is counted.
fn says_what_it_takes(about: &[&str], spec: &Value) -> Result<(), String> {
    let whole = &spec["resources"];
    let says = |of: &str| {
        amounts(&whole[of])
            .keys()
            .any(|name| is_of_whole_pods(name))
    };
    if says("requests") || says("limits") {
        return Ok(()); // the Pod says it as a whole
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let all = items(spec, "containers")
        .iter()
        .chain(items(spec, "initContainers"));
    for container in all {
        let resources = &container["resources"];
        let said = compute(
            &amounts(&resources["requests"]),
            &amounts(&resources["limits"]),
        );
        let needed = about.iter().filter(|name| MUST_BE_SAID.contains(name));
        for name in needed.filter(|name| !said.contains_key(**name)) {
            let names = missing.entry(name).or_default();
            names.push(text(container, "name"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts = missing.into_iter().map(|(name, mut containers)| {
        containers.sort_unstable();
        containers.dedup();
        format!("{name} for: {}", containers.join(","))
    });
    let parts: Vec<String> = parts.collect();
    Err(format!("must specify {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use tidings_json::json;

    use super::*;

    const PODS: CountedResource<'_> = CountedResource {
        group: "",
        plural: "pods",
    };

    fn quota(hard: &Value, used: &Value, spec: &Value) -> Quota {
        let mut spec = spec.clone();
        spec["hard"] = hard.clone();
        let status = json!({"hard": hard, "used": used});
        let json = json!({"metadata": {"name": "q"}, "spec": spec, "status": status});
        Quota::read(&Object::parse(json.to_string()).unwrap())
    }

    fn pod(cpu: &str) -> Value {
        let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    fn write<'a>(new: &'a Value, old: &'a Value) -> QuotaWrite<'a> {
        QuotaWrite {
            resource: PODS,
            new,
            old,
            of_status: false,
        }
    }

    #[test]
    fn what_is_created_is_charged_until_nothing_is_left() {
        let (hard, empty) = (json!({"pods": "2", "requests.cpu": "1"}), json!({}));
        let used = json!({"pods": "1", "requests.cpu": "600m"});
        let quota = quota(&hard, &used, &empty);
        let charged = |new: &Value| {
            let share = quota.charge(write(new, &Value::Null))?;
            Ok::<_, String>(quota.with(&share.unwrap()).to_value().to_string())
        };
        assert_eq!(
            charged(&pod("400m")).unwrap(),
            r#"{"pods":"2","requests.cpu":"1"}"#
        );
        assert_eq!(
            charged(&pod("500m")).unwrap_err(),
            "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
        );
        assert_eq!(
            charged(&json!({"spec": {"containers": [{"name": "c"}]}})).unwrap_err(),
            "failed quota: q: must specify requests.cpu for: c"
        );
    }

    #[test]
    fn what_is_gone_is_released() {
        let hard = json!({"pods": "2", "cpu": "1", "count/pods": "9"});
        let used = json!({"pods": "1", "cpu": "600m", "count/pods": "3"});
        let quota = quota(&hard, &used, &json!({}));
        let released = |new: &Value, old: &Value| {
            let share = quota.freed(write(new, old))?;
            Some(quota.without(&share).to_value().to_string())
        };
        assert_eq!(
            released(&Value::Null, &pod("400m")).unwrap(),
            r#"{"count/pods":"2","cpu":"200m","pods":"0"}"#
        );
        let mut ended = pod("400m");
        ended["status"] = json!({"phase": "Succeeded"});
        assert_eq!(
            released(&ended, &pod("400m")).unwrap(),
            r#"{"count/pods":"3","cpu":"200m","pods":"0"}"#
        );
        assert_eq!(released(&pod("400m"), &pod("400m")), None);
    }

    #[test]
    fn scopes_choose_objects() {
        let (hard, used) = (json!({"pods": "1"}), json!({"pods": "1"}));
        let mut high = pod("1");
        high["spec"]["priorityClassName"] = "high".into();
        let ends = |mut pod: Value| {
            pod["spec"]["activeDeadlineSeconds"] = json!(5);
            pod
        };
        let class = |operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        for (spec, pod, is_meant) in [
            (json!({"scopes": ["Terminating"]}), pod("1"), false),
            (json!({"scopes": ["Terminating"]}), ends(pod("1")), true),
            (json!({"scopes": ["NotTerminating"]}), pod("1"), true),
            (
                json!({"scopes": ["NotTerminating", "PriorityClass"]}),
                pod("1"),
                false,
            ),
            (class("In", &["high"]), high.clone(), true),
            (class("In", &["low"]), high.clone(), false),
            (class("NotIn", &["low"]), high.clone(), true),
            (class("NotIn", &["low"]), pod("1"), true),
            (class("DoesNotExist", &[]), high.clone(), false),
        ] {
            let refused = quota(&hard, &used, &spec).charge(write(&pod, &Value::Null));
            assert_eq!(refused.is_err(), is_meant, "{spec} {pod}");
        }
    }

    #[test]
    fn what_a_pod_requests_as_a_whole_counts() {
        let (hard, used) = (json!({"requests.cpu": "1"}), json!({"requests.cpu": "0"}));
        let quota = quota(&hard, &used, &json!({}));
        let whole = |resources: Value| json!({"spec": {"resources": resources, "containers": [{"name": "c"}]}});
        let refused = |pod: &Value| quota.charge(write(pod, &Value::Null)).unwrap_err();
        let large = refused(&whole(json!({"requests": {"cpu": "2"}})));
        assert!(large.starts_with("exceeded quota: q, requested: requests.cpu=2,"));
        let silent = refused(&whole(json!({})));
        assert!(
            silent.contains("must specify requests.cpu for: c"),
            "{silent}"
        );
    }

    #[test]
    fn a_count_keeps_what_may_be_under_way() {
        let (hard, used) = (json!({"pods": "9"}), json!({"pods": "3"}));
        let quota = quota(&hard, &used, &json!({}));
        let objects = |count: usize| {
            let pod = Object::parse(pod("1").to_string()).unwrap();
            std::iter::once((PODS, vec![pod; count]))
        };
        let used = |count: Option<QuotaCount>| count.map(|count| count.used().to_string());
        assert_eq!(used(quota.count(objects(3), false)), None);
        assert_eq!(used(quota.count(objects(2), true)), None);
        let less = quota.count(objects(2), false).unwrap();
        assert!(less.is_less);
        assert_eq!(used(Some(less)).unwrap(), r#"{"pods":"2"}"#);
        let more = quota.count(objects(4), true).unwrap();
        assert!(!more.is_less);
        assert_eq!(used(Some(more)).unwrap(), r#"{"pods":"4"}"#);
    }

    #[test]
    fn names_of_quotas_are_about_resources() {
        let is_about = |group: &str, plural: &str, name: &str| {
            CountedResource { group, plural }.counts_for(name)
        };
        assert!(is_about("apps", "deployments", "count/deployments.apps"));
        assert!(!is_about("apps", "deployments", "count/deployments"));
        assert!(is_about("", "configmaps", "configmaps"));
        assert!(is_about("", "pods", "requests.nvidia.com/gpu"));
        assert!(!is_about("", "pods", "requests.storage"));
        let claims = "persistentvolumeclaims";
        assert!(is_about(
            "",
            claims,
            "gold.storageclass.storage.k8s.io/requests.storage"
        ));
        assert!(!is_about("", "events", "count/events"));
    }
}
