//! An Event: what a program says, its parts as they are kept, and its JSON. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serialize;
use serde_json::{Value, json};
use tidings_api::Object;
use tidings_informer::Cached;
use tidings_kube::{ApiResource, KubeObject, resource_of};

/// The longest reason, action and reporting instance that servers accept, in bytes.
const WORD_BYTES_MAX: usize = 128;
/// The longest note that servers accept, in bytes.
const NOTE_BYTES_MAX: usize = 1024;
/// The longest name of an object.
const NAME_BYTES_MAX: usize = 253;
/// Where events about objects without a namespace are.
const DEFAULT_NAMESPACE: &str = "default";

/// Something that happened to an object, for `kubectl describe` and `kubectl get events`. [`Context::event`](crate::Context::event) and
/// [`EventRecorder::record`](crate::EventRecorder::record) take it.
///
/// The reason is one word in CamelCase, the note a sentence for people. Reason and action are cut to 128 bytes, the note to 1024: servers accept no more.
///
/// ```
/// use tidings_controller::NewEvent;
///
/// let created = NewEvent::normal("Created", "made three children").action("Create");
/// let failed = NewEvent::warning("NoSecret", "the Secret `tls` is not there");
/// ```
#[derive(Debug, Clone)]
#[must_use = "an event is recorded by Context::event or EventRecorder::record"]
pub struct NewEvent {
    kind: &'static str,
    reason: String,
    action: Option<String>,
    note: String,
    related: Option<ObjectReference>,
}

impl NewEvent {
    fn new(kind: &'static str, reason: impl Into<String>, note: impl Into<String>) -> NewEvent {
        NewEvent {
            kind,
            reason: reason.into(),
            action: None,
            note: note.into(),
            related: None,
        }
    }

    /// Something that is as it should be.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> NewEvent {
        NewEvent::new("Normal", reason, note)
    }

    /// Something that people should look at.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> NewEvent {
        NewEvent::new("Warning", reason, note)
    }

    /// Sets what the program did, or tried to do, as one word in CamelCase: `Reconcile` by default.
    pub fn action(mut self, action: impl Into<String>) -> NewEvent {
        self.action = Some(action.into());
        self
    }

    /// Names a second object that is involved.
    pub fn related<D: KubeObject>(self, object: &Cached<D>) -> NewEvent {
        self.related_to(ObjectReference::of(object.value()))
    }

    /// Names a second object that is involved, by a reference.
    pub fn related_to(mut self, object: ObjectReference) -> NewEvent {
        self.related = Some(object);
        self
    }
}

/// Which object an event is about.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use tidings_controller::ObjectReference;
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("site".to_owned());
/// map.metadata.namespace = Some("web".to_owned());
/// assert_eq!(ObjectReference::of(&map), ObjectReference::new("v1", "ConfigMap", "web", "site"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ObjectReference {
    /// The kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The uid, without which `kubectl describe` does not find the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The group and version: `apps/v1`, `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The version of the object that the program saw.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of the object: `spec.containers{web}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl ObjectReference {
    /// A reference by name.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectReference {
        ObjectReference {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            api_version: api_version.to_owned(),
            ..ObjectReference::default()
        }
    }

    /// A reference to a typed object, for example `ObjectReference::of(cached.value())`.
    pub fn of<K: KubeObject>(object: &K) -> ObjectReference {
        let (resource, metadata) = (resource_of::<K>(), object.meta());
        ObjectReference {
            kind: resource.kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            api_version: resource.api_version,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            field_path: String::new(),
        }
    }

    /// A reference to an object of a resource that is known only at run time. Objects in lists do not say their kind, so the resource does.
    pub fn dynamic(resource: &ApiResource, object: &Object) -> ObjectReference {
        ObjectReference {
            kind: resource.kind.clone(),
            namespace: object.namespace().into_owned(),
            name: object.name().into_owned(),
            uid: object.uid().into_owned(),
            api_version: resource.api_version.clone(),
            resource_version: object.resource_version().into_owned(),
            field_path: String::new(),
        }
    }

    /// The object, whichever its version. Every reconcile sees another version, and its events are repeats all the same.
    pub(crate) fn without_version(&self) -> ObjectReference {
        ObjectReference {
            resource_version: String::new(),
            ..self.clone()
        }
    }
}

/// The parts of an event that do not change when it repeats.
#[derive(Debug, Clone)]
pub(crate) struct EventParts {
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
    pub(crate) regarding: ObjectReference,
    pub(crate) related: Option<ObjectReference>,
    pub(crate) time: Timestamp,
}

impl EventParts {
    pub(crate) fn new(regarding: ObjectReference, new: NewEvent, time: Timestamp) -> EventParts {
        // Servers refuse empty ones, and nobody handles an error here.
        let word = |text: String, otherwise: &str| match text.is_empty() {
            true => otherwise.to_owned(),
            false => cut(text, WORD_BYTES_MAX),
        };
        EventParts {
            kind: new.kind,
            reason: word(new.reason, "Unknown"),
            action: word(new.action.unwrap_or_default(), "Reconcile"),
            note: cut(new.note, NOTE_BYTES_MAX),
            regarding,
            related: new.related,
            time,
        }
    }

    /// The namespace of the Event: that of its object.
    pub(crate) fn namespace(&self) -> &str {
        match &*self.regarding.namespace {
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        }
    }

    /// The name of the Event, from the name of its object and a number that the caller never gives twice.
    pub(crate) fn name(&self, nanos: i128) -> String {
        let name = format!("{}.{nanos:x}", self.regarding.name);
        if is_subdomain(&name) {
            return name;
        }
        // Names of RBAC objects, for example, may have colons.
        let mut hasher = DefaultHasher::new();
        self.regarding.hash(&mut hasher);
        format!("{:016x}.{nanos:x}", hasher.finish())
    }
}

/// Who reports.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    controller: String,
    instance: String,
}

impl Reporter {
    pub(crate) fn new(controller: &str, host: &str) -> Reporter {
        Reporter {
            controller: controller.to_owned(),
            instance: cut(format!("{controller}-{host}"), WORD_BYTES_MAX),
        }
    }

    pub(crate) fn controller(&self) -> &str {
        &self.controller
    }
}

/// How often an event happened, at least twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventSeries {
    pub(crate) count: u32,
    pub(crate) last_observed: Timestamp,
}

impl EventSeries {
    fn json(self) -> Value {
        json!({"count": self.count.min(i32::MAX as u32), "lastObservedTime": micro_time(self.last_observed)})
    }

    /// The patch that sets the series of an Event.
    pub(crate) fn patch(self) -> Value {
        json!({ "series": self.json() })
    }
}

/// The Event to create.
pub(crate) fn event_json(
    name: &str,
    event: &EventParts,
    reporter: &Reporter,
    series: Option<EventSeries>,
) -> Value {
    let mut json = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.namespace()},
        "eventTime": micro_time(event.time),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "action": event.action,
        "reason": event.reason,
        "regarding": event.regarding,
        "note": event.note,
        "type": event.kind,
    });
    if let Some(series) = series {
        json["series"] = series.json();
    }
    if let Some(related) = &event.related {
        json["related"] = json!(related);
    }
    json
}

/// The resource of Events.
pub(crate) fn event_resource() -> ApiResource {
    ApiResource {
        group: "events.k8s.io".into(),
        version: "v1".into(),
        api_version: "events.k8s.io/v1".into(),
        kind: "Event".into(),
        plural: "events".into(),
    }
}

/// A time with six digits after the point, as `MicroTime` has.
fn micro_time(time: Timestamp) -> String {
    DateTimePrinter::new()
        .precision(Some(6))
        .timestamp_to_string(&time)
}

/// Cuts a text to a number of bytes, at the beginning of a character.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// True for names that Events may have: lower-case letters, digits, points and hyphens, each part beginning and ending with a letter or digit.
fn is_subdomain(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        let ends = !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
        ends && label.bytes().all(is_inner)
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> Timestamp {
        "2026-11-18T04:03:06.123456789Z".parse().unwrap()
    }

    fn about(name: &str) -> ObjectReference {
        ObjectReference::new("v1", "ConfigMap", "web", name)
    }

    #[test]
    fn the_json_has_what_servers_ask_for() {
        let mut regarding = about("site");
        regarding.uid = "u1".into();
        regarding.resource_version = "7".into();
        let new = NewEvent::warning("NoSecret", "not there").related_to(about("other"));
        let event = EventParts::new(regarding, new, time());
        let reporter = Reporter::new("websites", "host-1");
        let series = EventSeries {
            count: 3,
            last_observed: "2026-11-18T04:03:07Z".parse().unwrap(),
        };
        let expected = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "site.ff", "namespace": "web"},
            "eventTime": "2026-11-18T04:03:06.123456Z",
            "reportingController": "websites",
            "reportingInstance": "websites-host-1",
            "action": "Reconcile",
            "reason": "NoSecret",
            "regarding": {"kind": "ConfigMap", "namespace": "web", "name": "site", "uid": "u1", "apiVersion": "v1", "resourceVersion": "7"},
            "note": "not there",
            "type": "Warning",
            "series": {"count": 3, "lastObservedTime": "2026-11-18T04:03:07.000000Z"},
            "related": {"kind": "ConfigMap", "namespace": "web", "name": "other", "apiVersion": "v1"},
        });
        let name = event.name(255);
        assert_eq!(event_json(&name, &event, &reporter, Some(series)), expected);
        assert_eq!(series.patch(), json!({ "series": expected["series"] }));
    }

    #[test]
    fn texts_are_cut_to_what_servers_accept() {
        let new = NewEvent::normal("R".repeat(200), "ü".repeat(600)).action("");
        let event = EventParts::new(about("a"), new, time());
        assert_eq!((event.reason.len(), &*event.action), (128, "Reconcile"));
        assert_eq!(event.note, "ü".repeat(512));
        let odd = format!("a{}", "ü".repeat(600));
        let event = EventParts::new(about("a"), NewEvent::normal("", odd), time());
        assert_eq!((&*event.reason, event.note.len()), ("Unknown", 1023));
        let reporter = Reporter::new(&"c".repeat(100), &"h".repeat(100));
        assert_eq!(reporter.instance.len(), 128);
    }

    #[test]
    fn names_are_valid_whatever_the_object_is_called() {
        let name = |name: &str| {
            let event = EventParts::new(about(name), NewEvent::normal("R", ""), time());
            event.name(0x18_c0_ff_ee)
        };
        assert_eq!(name("site"), "site.18c0ffee");
        let long = "a".repeat(253 - ".18c0ffee".len());
        assert_eq!(name(&long), format!("{long}.18c0ffee"));
        for odd in [
            "system:node",
            "Upper",
            "",
            "a..b",
            "-a",
            "a-",
            &format!("{long}a"),
        ] {
            let name = name(odd);
            // The name of the object is not in it.
            assert_eq!(
                name.len(),
                "0123456789abcdef.18c0ffee".len(),
                "{odd}: {name}"
            );
            assert!(is_subdomain(&name), "{odd}: {name}");
        }
        assert_ne!(name("system:a"), name("system:b"));
    }

    #[test]
    fn kr27_events_about_objects_without_a_namespace_are_in_default() {
        let node = ObjectReference::new("v1", "Node", "", "n1");
        let event = EventParts::new(node, NewEvent::normal("R", ""), time());
        assert_eq!(event.namespace(), "default");
    }
}
