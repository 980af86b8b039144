//! What admission knows of a request.

use tidings_access::User;
use tidings_json::{Map, Value, json};

/// What a request does with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates it.
    Create,
    /// Changes it.
    Update,
    /// Deletes it.
    Delete,
    /// Connects to it.
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A resource in one version, and the kind of its objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResourceKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name of the resource in paths.
    pub resource: String,
    /// The kind of what is written, for example `Scale` at the subresource `scale`.
    pub kind: String,
    /// The group and version of that kind, if they are not those of the resource.
    pub kind_version: Option<(String, String)>,
}

impl ResourceKind {
    /// A resource.
    pub fn new(group: &str, version: &str, resource: &str, kind: &str) -> ResourceKind {
        ResourceKind {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            kind_version: None,
        }
    }

    /// The group and the version of the kind.
    pub fn kind_version(&self) -> (&str, &str) {
        match &self.kind_version {
            Some((group, version)) => (group, version),
            None => (&self.group, &self.version),
        }
    }

    pub(crate) fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.resource == "namespaces"
    }

    /// True for the resources that configure admission, about which nobody is asked: a mistake could not be repaired.
    pub fn configures_admission(&self) -> bool {
        self.group == "admissionregistration.k8s.io"
            && matches!(
                &*self.kind,
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }
}

/// What a request does, with what, and who asks.
#[derive(Debug, Clone)]
pub struct AdmissionRequest<'a> {
    /// What it does.
    pub operation: Operation,
    /// The resource and the kind in the request.
    pub on: ResourceKind,
    /// The part of the object; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; that of a Namespace is its own name.
    pub namespace: &'a str,
    /// The name; empty if the server makes one.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a User,
    /// Nothing is stored.
    pub dry_run: bool,
    /// The options of the request, as `CreateOptions`.
    pub options: Value,
}

impl<'a> AdmissionRequest<'a> {
    /// A request about an object in no namespace.
    pub fn new(operation: Operation, on: ResourceKind, user: &'a User) -> AdmissionRequest<'a> {
        AdmissionRequest {
            operation,
            on,
            subresource: "",
            namespace: "",
            name: "",
            user,
            dry_run: false,
            options: Value::Null,
        }
    }

    /// The request in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'a str) -> AdmissionRequest<'a> {
        self.namespace = namespace;
        self
    }

    /// The request about an object with a name.
    #[must_use]
    pub fn named(mut self, name: &'a str) -> AdmissionRequest<'a> {
        self.name = name;
        self
    }

    /// The value of `request` in expressions. `about` is the resource that is asked about.
    pub fn to_value(&self, about: &ResourceKind) -> Value {
        let mut members = Map::new();
        self.describe(about, &mut members);
        members.insert("dryRun".into(), self.dry_run.into());
        members.insert("options".into(), self.options.clone());
        members.into()
    }

    /// Adds the members that say what the request is, in the order of a review.
    pub(crate) fn describe(&self, about: &ResourceKind, into: &mut Map) {
        let kind = |on: &ResourceKind| {
            let (group, version) = on.kind_version();
            json!({"group": group, "version": version, "kind": on.kind})
        };
        let resource = |on: &ResourceKind| json!({"group": on.group, "version": on.version, "resource": on.resource});
        into.insert("kind".into(), kind(about));
        into.insert("resource".into(), resource(about));
        put_text(into, "subResource", self.subresource);
        into.insert("requestKind".into(), kind(&self.on));
        into.insert("requestResource".into(), resource(&self.on));
        put_text(into, "requestSubResource", self.subresource);
        put_text(into, "name", self.name);
        put_text(into, "namespace", self.namespace);
        into.insert("operation".into(), self.operation.as_str().into());
        let User {
            name,
            uid,
            groups,
            extra,
        } = self.user;
        let mut user = Map::new();
        put_text(&mut user, "username", name);
        put_text(&mut user, "uid", uid);
        if !groups.is_empty() {
            user.insert("groups".into(), texts(groups));
        }
        if !extra.is_empty() {
            let extra = extra.iter();
            let extra: Map = extra
                .map(|(name, values)| (name.clone(), texts(values)))
                .collect();
            user.insert("extra".into(), extra.into());
        }
        into.insert("userInfo".into(), user.into());
    }
}

fn put_text(into: &mut Map, member: &str, text: &str) {
    if !text.is_empty() {
        into.insert(member.into(), text.into());
    }
}

fn texts(texts: &[String]) -> Value {
    let texts: Vec<Value> = texts.iter().map(|text| text.as_str().into()).collect();
    texts.into()
}
