//! What the server fills in where clients say nothing, and the form in which objects are kept: members in the order of their
//! types, without those that are empty, with those that are always written.

mod table;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tidings_json::{Map, Number, Value, json};
use tidings_merge::Touched;
use tidings_schema::{Field, FieldKind, Item, Other, Type};

use super::draft::Draft;
use table::DEFAULTS;

/// Defaults that depend on other fields.
type Rule = fn(&mut Map);

static RULES: &[(&str, Rule)] = &[
    ("apps/v1.DaemonSetUpdateStrategy", |strategy| {
        roll(strategy, &json!({"maxUnavailable": 1, "maxSurge": 0}));
    }),
    ("apps/v1.DeploymentStrategy", |strategy| {
        roll(
            strategy,
            &json!({"maxUnavailable": "25%", "maxSurge": "25%"}),
        );
    }),
    ("apps/v1.StatefulSetUpdateStrategy", |strategy| {
        if is_empty(strategy.get("type")) {
            strategy.insert("type".into(), "RollingUpdate".into());
            strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
        }
        if strategy.contains_key("rollingUpdate") {
            roll(strategy, &json!({"partition": 0}));
        }
    }),
    ("autoscaling/v2.HorizontalPodAutoscalerSpec", autoscaler),
    ("core/v1.Container", pull_policy),
    ("core/v1.EphemeralContainer", pull_policy),
    ("core/v1.LimitRangeItem", limits),
    ("core/v1.PodSpec", service_account),
    ("core/v1.ServiceSpec", service),
    ("core/v1.Volume", |volume| {
        if volume
            .iter()
            .all(|(name, value)| name == "name" || value.is_null())
        {
            volume.insert("emptyDir".into(), json!({}));
        }
    }),
    ("networking/v1.NetworkPolicySpec", |spec| {
        if is_empty(spec.get("policyTypes")) {
            let mut types = vec!["Ingress"];
            if !is_empty(spec.get("egress")) {
                types.push("Egress");
            }
            spec.insert("policyTypes".into(), types.into());
        }
    }),
    ("rbac/v1.Subject", |subject| {
        let named = matches!(text(subject, "kind"), "User" | "Group");
        if named && is_empty(subject.get("apiGroup")) {
            subject.insert("apiGroup".into(), "rbac.authorization.k8s.io".into());
        }
    }),
];

/// What both tables say of a type.
#[derive(Default)]
struct Fill {
    fields: &'static [(&'static str, &'static str)],
    rule: Option<Rule>,
}

/// In the order of the addresses of types: it is looked up for every struct of an object.
static FILLS: LazyLock<Vec<(usize, Fill)>> = LazyLock::new(|| {
    let mut fills: BTreeMap<usize, Fill> = BTreeMap::new();
    let of = |name: &'static str| {
        let (package, name) = name.split_once('.')?;
        tidings_schema::find_type(package, name).map(address)
    };
    for (name, fields) in DEFAULTS {
        if let Some(of) = of(name) {
            fills.entry(of).or_default().fields = fields;
        }
    }
    for (name, rule) in RULES {
        if let Some(of) = of(name) {
            fills.entry(of).or_default().rule = Some(*rule);
        }
    }
    fills.into_iter().collect()
});

/// Types live as long as the program, so each has an address of its own.
fn address(of: &'static Type) -> usize {
    std::ptr::from_ref(of).addr()
}

impl Draft {
    /// Fills in what the types default, and brings every member into the form in which it is kept. What is not touched is complete.
    pub(super) fn complete(&mut self, touched: &Touched) {
        self.complete_touched(touched);
        debug_assert!(
            matches!(touched, Touched::Whole) || self.is_complete(),
            "more was touched"
        );
    }

    fn is_complete(&self) -> bool {
        let mut whole = self.clone();
        whole.complete_touched(&Touched::Whole);
        let shown = |draft: Draft| Value::Object(draft.members).to_string();
        shown(whole) == shown(self.clone())
    }

    fn complete_touched(&mut self, touched: &Touched) {
        let Some(schema) = self.kind.schema() else {
            return;
        };
        let before = self.members.len();
        // Of a spec that is absent, what is defaulted is there all the same.
        let spec = schema
            .field("spec")
            .filter(|spec| is_struct(spec) && spec.keep);
        if spec.is_some() && is_empty(self.members.get("spec")) {
            self.members.insert("spec".into(), json!({}));
        }
        fill(&mut self.members, schema);
        let reaches_far = self.complete_whole() | self.complete_definition();
        let whole = reaches_far || self.members.len() != before;
        let touched = if whole { &Touched::Whole } else { touched };
        for (name, value) in &mut self.members {
            if let (Some(field), Some(touched)) = (schema.field(name), touched.member(name)) {
                complete(value, field, touched);
            }
        }
    }

    /// Defaults that depend on more than one member, or on the metadata. True if there may be some.
    fn complete_whole(&mut self) -> bool {
        let Some(Value::Object(spec)) = self.members.get_mut("spec") else {
            return false;
        };
        let labels = spec
            .get("template")
            .and_then(|template| template["metadata"]["labels"].as_object())
            .filter(|labels| !labels.is_empty())
            .cloned();
        match (self.kind.group, self.kind.kind) {
            ("", "Pod") => {
                pod(spec);
                return true;
            }
            ("apps", "StatefulSet") => {
                claim_templates(spec);
                return true;
            }
            ("", "ReplicationController") => {
                if let Some(labels) = &labels
                    && is_empty(spec.get("selector"))
                {
                    spec.insert("selector".into(), labels.clone().into());
                }
            }
            ("batch", "Job") => job(spec),
            _ => return false,
        }
        if let Some(labels) = labels.filter(|_| self.meta.labels.is_empty()) {
            let texts = labels.into_iter();
            let texts = texts.filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
            self.meta.labels = texts.collect();
        }
        true
    }
}

/// Fills in what a type defaults. True if that may depend on several members.
fn fill(members: &mut Map, of: &'static Type) -> bool {
    let Ok(place) = FILLS.binary_search_by_key(&address(of), |(of, _)| *of) else {
        return false;
    };
    let (_, Fill { fields, rule }) = &FILLS[place];
    for (name, default) in *fields {
        let pointer = of.field(name).is_some_and(|field| field.pointer);
        let absent = match members.get(name) {
            None | Some(Value::Null) => true,
            Some(value) => !pointer && is_zero(value),
        };
        if absent && let Ok(value) = serde_json::from_str(default) {
            members.insert((*name).to_owned(), value);
        }
    }
    if let Some(rule) = rule {
        rule(members);
    }
    rule.is_some()
}

fn complete(value: &mut Value, field: &'static Field, touched: &Touched) {
    match (value, field.kind) {
        (value, FieldKind::One(item)) => complete_item(value, item, touched),
        (Value::Array(values), FieldKind::List(item)) => {
            for (at, value) in values.iter_mut().enumerate() {
                if let Some(touched) = touched.item(at) {
                    complete_item(value, item, touched);
                }
            }
        }
        (Value::Object(members), FieldKind::Map(item)) => {
            for (name, value) in &mut *members {
                if let Some(touched) = touched.member(name) {
                    complete_item(value, item, touched);
                }
            }
            members.sort_keys();
        }
        _ => {}
    }
}

fn complete_item(value: &mut Value, item: Item, touched: &Touched) {
    let (of, members) = match (item, value) {
        (Item::Struct(of) | Item::Either(of, _), Value::Object(members)) => (of, members),
        (Item::Either(of, Other::List), Value::Array(elements)) => {
            for element in elements {
                complete_item(element, Item::Struct(of), &Touched::Whole);
            }
            return;
        }
        (Item::Double, Value::Number(number)) => return shorten(number),
        _ => return,
    };
    let before = members.len();
    let several = fill(members, of);
    // What is new here, or depends on something that is, is not complete yet.
    let mut whole = members.len() != before || several && touched.has_whole();
    if !is_in_form(members, of) {
        whole = true;
        let mut kept = Map::with_capacity(members.len());
        for field in of.members() {
            match members.get_mut(field.name).map(Value::take) {
                None | Some(Value::Null) => {
                    if field.keep {
                        kept.insert(field.name.to_owned(), zero(field));
                    }
                }
                Some(value) if is_kept(&value, field) => {
                    kept.insert(field.name.to_owned(), value);
                }
                Some(_) => {}
            }
        }
        *members = kept;
    }
    let mut fields = of.members();
    for (name, value) in members {
        if matches!(value, Value::String(_) | Value::Bool(_)) {
            continue; // nothing is in it
        }
        let touched = match touched.member(name) {
            _ if whole => &Touched::Whole,
            Some(touched) => touched,
            None => continue,
        };
        if let Some(field) = fields.find(|field| field.name == name) {
            complete(value, field, touched);
        }
    }
}

/// True if members are those that are kept, in their order: so it is with all that has been stored before.
fn is_in_form(members: &Map, of: &'static Type) -> bool {
    let mut members = members.iter().peekable();
    let mut fields = of.members();
    let in_form = fields.all(
        |field| match members.next_if(|(name, _)| *name == field.name) {
            Some((_, value)) => is_kept(value, field) && !value.is_null(),
            None => !field.keep,
        },
    );
    in_form && members.next().is_none()
}

fn is_kept(value: &Value, field: &'static Field) -> bool {
    field.keep || field.pointer || !is_zero(value) || is_struct(field)
}

/// Go writes whole numbers without a fraction.
fn shorten(number: &mut Number) {
    const WHOLE_MAX: f64 = (1_u64 << 53) as f64;
    if let Some(whole) = number.as_f64()
        && whole.fract() == 0.0
        && whole.abs() <= WHOLE_MAX
    {
        *number = (whole as i64).into();
    }
}

fn is_struct(field: &Field) -> bool {
    matches!(field.kind, FieldKind::One(Item::Struct(_)))
}

/// What is left out of fields that are not pointers.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// What is written of a field that is always written.
fn zero(field: &'static Field) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match field.kind {
        FieldKind::List(_) | FieldKind::Map(_) => Value::Null,
        FieldKind::One(item) => match item {
            Item::String => "".into(),
            Item::Bool => false.into(),
            Item::Int32 | Item::Int64 | Item::IntOrString => 0.into(),
            Item::Quantity => "0".into(),
            Item::Struct(_) => {
                let mut value = json!({});
                complete_item(&mut value, item, &Touched::Whole);
                value
            }
            _ => Value::Null,
        },
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    value.is_none_or(is_zero)
}

fn text<'a>(members: &'a Map, name: &str) -> &'a str {
    members
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// What a rolling update does if nothing is said.
fn roll(strategy: &mut Map, defaults: &Value) {
    if text(strategy, "type") != "RollingUpdate" {
        return;
    }
    let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
    if rolling.is_null() {
        *rolling = json!({});
    }
    if let (Some(rolling), Some(defaults)) = (rolling.as_object_mut(), defaults.as_object()) {
        for (name, default) in defaults {
            let entry = rolling.entry(name.clone()).or_insert(Value::Null);
            if entry.is_null() {
                *entry = default.clone();
            }
        }
    }
}

fn pull_policy(container: &mut Map) {
    if is_empty(container.get("imagePullPolicy")) {
        let image = text(container, "image");
        let policy = if is_latest(image) {
            "Always"
        } else {
            "IfNotPresent"
        };
        container.insert("imagePullPolicy".into(), policy.into());
    }
}

/// An image without a tag and a digest is the latest.
fn is_latest(image: &str) -> bool {
    if image.is_empty() {
        return false; // which is no image
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once('@') {
        Some(_) => false,
        None => name.split_once(':').is_none_or(|(_, tag)| tag == "latest"),
    }
}

fn pod(spec: &mut Map) {
    let links = spec.entry("enableServiceLinks").or_insert(Value::Null);
    if links.is_null() {
        *links = true.into();
    }
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let limits = container["resources"]["limits"].as_object().cloned();
            if let Some(limits) = limits {
                let requests = &mut container["resources"]["requests"];
                if requests.is_null() {
                    *requests = json!({});
                }
                if let Some(requests) = requests.as_object_mut() {
                    for (name, limit) in limits {
                        requests.entry(name).or_insert(limit);
                    }
                }
            }
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|_| on_host) {
                if let Some(port) = port.as_object_mut()
                    && is_empty(port.get("hostPort"))
                    && let Some(number) = port.get("containerPort").cloned()
                {
                    port.insert("hostPort".into(), number);
                }
            }
        }
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`: who says one says both, and the new name wins.
fn service_account(spec: &mut Map) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    let said = NAMES.map(|name| spec.get(name).cloned());
    if let Some(account) = said.into_iter().flatten().find(|name| !is_zero(name)) {
        for name in NAMES {
            spec.insert(name.into(), account.clone());
        }
    }
}

fn claim_templates(spec: &mut Map) {
    let templates = spec.get_mut("volumeClaimTemplates");
    let templates = templates.and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        template["kind"] = "PersistentVolumeClaim".into();
        template["apiVersion"] = "v1".into();
        template["status"]["phase"] = "Pending".into();
    }
}

/// Without what would need a network: addresses and their families.
fn service(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig");
            let timeout = config.map(|config| &config["clientIP"]["timeoutSeconds"]);
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if is_empty(port.get("targetPort"))
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let reached = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !is_empty(spec.get("externalIPs")));
    let mut default = |name: &str, value: Value| {
        if is_empty(spec.get(name)) {
            spec.insert(name.to_owned(), value);
        }
    };
    if reached {
        default("externalTrafficPolicy", "Cluster".into());
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        default("internalTrafficPolicy", "Cluster".into());
    }
    let allocates = spec.get("allocateLoadBalancerNodePorts");
    if kind == "LoadBalancer" && allocates.is_none_or(Value::is_null) {
        spec.insert("allocateLoadBalancerNodePorts".into(), true.into());
    }
}

fn job(spec: &mut Map) {
    let absent = |name: &str| spec.get(name).is_none_or(Value::is_null);
    let mut defaults = Vec::new();
    if absent("parallelism") {
        defaults.push(("parallelism", json!(1)));
        if absent("completions") {
            defaults.push(("completions", json!(1)));
        }
    }
    let backoff = if absent("backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    let replacement = if absent("podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    let others = [
        ("backoffLimit", json!(backoff)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ];
    defaults.extend(others.into_iter().filter(|(name, _)| absent(name)));
    for (name, value) in defaults {
        spec.insert(name.to_owned(), value);
    }
}

fn autoscaler(spec: &mut Map) {
    if is_empty(spec.get("metrics")) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".into(), json!([metric]));
    }
    let Some(Value::Object(behavior)) = spec.get_mut("behavior") else {
        return;
    };
    let by_percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, by_percent],
    });
    let down = json!({"selectPolicy": "Max", "policies": [by_percent]});
    for (name, mut rules) in [("scaleUp", up), ("scaleDown", down)] {
        let said = behavior.get(name).and_then(Value::as_object).cloned();
        for (name, value) in said
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
        {
            rules[name] = value;
        }
        behavior.insert(name.to_owned(), rules);
    }
}

fn limits(item: &mut Map) {
    if text(item, "type") != "Container" {
        return;
    }
    for (to, from) in [
        ("default", "max"),
        ("defaultRequest", "default"),
        ("defaultRequest", "min"),
    ] {
        let given = item.get(from).and_then(Value::as_object).cloned();
        for (name, value) in given.into_iter().flatten() {
            let own = item.entry(to).or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.entry(name).or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidings_merge::TouchedPart;

    use super::*;
    use crate::registry;

    fn completed(group: &str, plural: &str, body: &Value) -> Value {
        let kind = registry::find(group, "v1", plural).expect(plural);
        let draft = Draft::read(kind, body.to_string().as_bytes()).expect(plural);
        serde_json::from_slice(&draft.to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn what_is_filled_in_beside_what_is_touched_is_complete() {
        let kind = registry::find("apps", "v1", "deployments").expect("deployments");
        let named = |name: &str| TouchedPart::Member(name.to_owned());
        let below = |name: &str, touched| Touched::Parts(vec![(named(name), touched)]);
        let touched = below("spec", below("replicas", Touched::Whole));
        let mut draft = Draft::empty(kind);
        draft.members = Map::new();
        draft.members.insert("spec".into(), json!({"replicas": 2}));
        draft.complete_touched(&touched);
        assert!(draft.is_complete(), "{:?}", draft.members);
        assert_eq!(
            draft.members.get("spec").unwrap()["strategy"]["type"],
            "RollingUpdate"
        );
    }

    #[test]
    fn the_tables_name_types_and_fields_that_exist() {
        for (name, fields) in DEFAULTS {
            let (package, name) = name.split_once('.').unwrap();
            let Some(of) = tidings_schema::find_type(package, name) else {
                panic!("no type {package}.{name}");
            };
            for (field, value) in *fields {
                assert!(of.field(field).is_some(), "{package}.{name} has no {field}");
                serde_json::from_str::<Value>(value).unwrap();
            }
        }
        for (name, _) in RULES {
            let (package, name) = name.split_once('.').unwrap();
            assert!(
                tidings_schema::find_type(package, name).is_some(),
                "no type {package}.{name}"
            );
        }
    }

    #[test]
    fn schemas_are_brought_into_one_form_wherever_they_stand() {
        let of = tidings_schema::find_type("apiextensions/v1", "JSONSchemaProps").unwrap();
        let mut schema = json!({
            "properties": {"b": {"maximum": 100.0, "minimum": 0.5, "title": ""}, "a": {}},
            "items": [{"nullable": false, "type": "x"}],
            "additionalProperties": {"description": "", "type": "y"},
        });
        complete_item(&mut schema, Item::Struct(of), &Touched::Whole);
        let expected = r#"{"items":[{"type":"x"}],"properties":{"a":{},"b":{"maximum":100,"minimum":0.5}},"additionalProperties":{"type":"y"}}"#;
        assert_eq!(schema.to_string(), expected);
    }

    #[test]
    fn images_without_a_tag_are_the_latest() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("registry.example:5000/nginx", true),
            ("registry.example:5000/nginx:1", false),
            ("nginx:1.27", false),
            ("nginx@sha256:0000", false),
            ("", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn what_is_empty_is_left_out_and_the_rest_is_in_the_order_of_the_type() {
        let body = json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": false, "nodeName": "", "volumes": [],
            "containers": [{"image": "i:1", "name": "c", "env": [{"value": "", "name": "A"}]}],
        }});
        let spec = completed("", "pods", &body)["spec"].to_string();
        assert_eq!(
            spec,
            r#"{"containers":[{"name":"c","image":"i:1","env":[{"name":"A"}],"resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler","enableServiceLinks":true}"#
        );
    }
}
