//! What an object counts for in quotas.

use tidings_go::Quantity;
use tidings_json::Value;

use crate::pod::{Amounts, add, items, quantity, text, total};

/// The resource of an object: its group and its name in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The name of the resource in paths.
    pub plural: &'a str,
}

/// How a resource is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Pods,
    Services,
    Claims,
    /// Only how many there are.
    Objects,
    /// Not at all.
    Never,
}

const STORAGE: &str = "requests.storage";
const CLAIMS: &str = "persistentvolumeclaims";
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

impl CountedResource<'_> {
    pub(super) fn counting(self) -> Counting {
        match (self.group, self.plural) {
            ("", "pods") => Counting::Pods,
            ("", "services") => Counting::Services,
            ("", CLAIMS) => Counting::Claims,
            ("" | "events.k8s.io", "events") => Counting::Never,
            _ => Counting::Objects,
        }
    }

    /// `count/deployments.apps`.
    fn count_name(self) -> String {
        match self.group {
            "" => format!("count/{}", self.plural),
            group => format!("count/{}.{group}", self.plural),
        }
    }

    /// The old name of some counts, which is the name of the resource.
    fn has_old_name(self) -> bool {
        let names = [
            "configmaps",
            "resourcequotas",
            "replicationcontrollers",
            "secrets",
        ];
        self.group.is_empty() && names.contains(&self.plural)
    }

    /// True if objects of the resource count for a name in a quota.
    pub fn counts_for(self, name: &str) -> bool {
        if name == self.count_name() {
            return self.counting() != Counting::Never;
        }
        match self.counting() {
            Counting::Pods => is_of_pods(name),
            Counting::Services => {
                matches!(
                    name,
                    "services" | "services.nodeports" | "services.loadbalancers"
                )
            }
            Counting::Claims => {
                let by_class = name.split_once(BY_CLASS).map(|(_, name)| name);
                matches!(by_class.unwrap_or(name), CLAIMS | STORAGE)
            }
            Counting::Objects => self.has_old_name() && name == self.plural,
            Counting::Never => false,
        }
    }

    /// What an object counts for.
    pub(super) fn usage(self, object: &Value) -> Amounts {
        let one = Quantity::whole(1);
        let mut used = Amounts::from([(self.count_name(), one)]);
        match self.counting() {
            Counting::Never => return Amounts::new(),
            Counting::Pods if runs(object) => used.extend(pod_usage(&object["spec"])),
            Counting::Pods => {}
            Counting::Services => service_usage(&object["spec"], &mut used),
            Counting::Claims => claim_usage(object, &mut used),
            Counting::Objects if self.has_old_name() => {
                used.insert(self.plural.to_owned(), one);
            }
            Counting::Objects => {}
        }
        used
    }
}

fn is_of_pods(name: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ];
    let huge_pages = ["hugepages-", "requests.hugepages-"];
    KNOWN.contains(&name)
        || huge_pages.iter().any(|prefix| name.starts_with(prefix))
        || is_extended(name.strip_prefix("requests.").unwrap_or_default())
}

/// True for the resources of devices, whose names have a domain that is not Kubernetes' own.
fn is_extended(name: &str) -> bool {
    let domain = name.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// False for Pods that have ended. One that is being deleted counts until it is gone.
fn runs(pod: &Value) -> bool {
    !matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded")
}

fn pod_usage(spec: &Value) -> Amounts {
    let (mut requests, mut limits) = (total(spec, "requests"), total(spec, "limits"));
    let overhead = crate::pod::amounts(&spec["overhead"]);
    add(&mut requests, &overhead);
    let limited = overhead
        .into_iter()
        .filter(|(name, _)| limits.contains_key(name));
    let limited: Amounts = limited.collect();
    add(&mut limits, &limited);
    compute(&requests, &limits)
}

/// Requests and limits under the names that quotas have for them.
pub(super) fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::whole(1))]);
    for (name, amount) in requests {
        let is_known = matches!(&**name, "cpu" | "memory" | "ephemeral-storage");
        if is_known || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        if is_known || name.starts_with("hugepages-") || is_extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(&**name, "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

fn service_usage(spec: &Value, used: &mut Amounts) {
    let ports = items(spec, "ports");
    let allocates = spec["allocateLoadBalancerNodePorts"] != Value::Bool(false);
    let chosen = ports
        .iter()
        .filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0);
    let (node_ports, balancers) = match text(spec, "type") {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if allocates => (ports.len(), 1),
        "LoadBalancer" => (chosen.count(), 1),
        _ => (0, 0),
    };
    for (name, count) in [
        ("services", 1),
        ("services.nodeports", node_ports),
        ("services.loadbalancers", balancers),
    ] {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        used.insert(name.to_owned(), Quantity::whole(count));
    }
}

fn claim_usage(claim: &Value, used: &mut Amounts) {
    let annotations = &claim["metadata"]["annotations"];
    let class = match text(annotations, "volume.beta.kubernetes.io/storage-class") {
        "" => text(&claim["spec"], "storageClassName"),
        class => class,
    };
    let mut count = |name: &str, amount: Quantity| {
        used.insert(name.to_owned(), amount);
        if !class.is_empty() {
            used.insert(format!("{class}{BY_CLASS}{name}"), amount);
        }
    };
    count(CLAIMS, Quantity::whole(1));
    let requested = &claim["spec"]["resources"]["requests"]["storage"];
    if !requested.is_null() {
        let allocated = quantity(&claim["status"]["allocatedResources"]["storage"]);
        let storage = quantity(requested).max(allocated);
        // Whole bytes, rounded up. What ends in a fraction is rare.
        let whole = storage.value();
        let storage = match storage.milli_value() == whole * 1000 {
            true => storage,
            false => Quantity::whole(i64::try_from(whole).unwrap_or(i64::MAX)),
        };
        count(STORAGE, storage);
    }
}
