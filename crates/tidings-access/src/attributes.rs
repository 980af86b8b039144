//! What a request asks for, as far as authorisation needs to know, and the words in which it is refused.

use std::borrow::Cow;

use tidings_api::{GroupResource, Status};
use tidings_go::quote;

use crate::user::User;

/// What a user asks for.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, `create` and so on; for paths the method of the request in small letters.
    pub verb: Cow<'a, str>,
    /// On what.
    pub on: ResourceOrPath<'a>,
}

/// What is acted on.
#[derive(Debug, Clone)]
pub enum ResourceOrPath<'a> {
    /// A resource, or an object of it.
    Resource(ResourceAttributes<'a>),
    /// A path that is not that of a resource.
    Path(Cow<'a, str>),
}

/// A resource, or an object of it. What is empty is not named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// The API group; empty for the core group.
    pub group: Cow<'a, str>,
    /// The name of the resource in paths.
    pub resource: Cow<'a, str>,
    /// The part of the object.
    pub subresource: Cow<'a, str>,
    /// The namespace; empty for what is in none, and for all namespaces.
    pub namespace: Cow<'a, str>,
    /// The name of the object.
    pub name: Cow<'a, str>,
    /// The version of the API.
    pub version: Cow<'a, str>,
    /// The field selector of a list, watch or deletion of a collection.
    pub field_selector: Cow<'a, str>,
    /// The label selector of it.
    pub label_selector: Cow<'a, str>,
}

impl ResourceAttributes<'_> {
    /// The name of the resource with its group and the part, as `deployments.apps/scale`.
    pub fn full_name(&self) -> String {
        let mut name = self.resource.to_string();
        for (mark, part) in [('.', &self.group), ('/', &self.subresource)] {
            if !part.is_empty() {
                name.push(mark);
                name.push_str(part);
            }
        }
        name
    }
}

impl<'a> Attributes<'a> {
    /// A verb on a path that is not that of a resource.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb: verb.into(),
            on: ResourceOrPath::Path(path.into()),
        }
    }

    /// A verb on a resource.
    pub fn resource(
        user: &'a User,
        verb: impl Into<Cow<'a, str>>,
        group: &'a str,
        resource: &'a str,
    ) -> Attributes<'a> {
        Attributes {
            user,
            verb: verb.into(),
            on: ResourceOrPath::Resource(ResourceAttributes {
                group: group.into(),
                resource: resource.into(),
                ..ResourceAttributes::default()
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut ResourceAttributes<'a>)) -> Attributes<'a> {
        if let ResourceOrPath::Resource(resource) = &mut self.on {
            change(resource);
        }
        self
    }

    /// In a namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: impl Into<Cow<'a, str>>) -> Attributes<'a> {
        self.with(|resource| resource.namespace = namespace.into())
    }

    /// On an object.
    #[must_use]
    pub fn named(self, name: impl Into<Cow<'a, str>>) -> Attributes<'a> {
        self.with(|resource| resource.name = name.into())
    }

    /// On a part of an object.
    #[must_use]
    pub fn subresource(self, subresource: impl Into<Cow<'a, str>>) -> Attributes<'a> {
        self.with(|resource| resource.subresource = subresource.into())
    }

    /// In a version of the API.
    #[must_use]
    pub fn with_version(self, version: impl Into<Cow<'a, str>>) -> Attributes<'a> {
        self.with(|resource| resource.version = version.into())
    }

    /// On the objects that a field selector and a label selector mean.
    #[must_use]
    pub fn with_selectors(
        self,
        fields: impl Into<Cow<'a, str>>,
        labels: impl Into<Cow<'a, str>>,
    ) -> Attributes<'a> {
        self.with(|resource| {
            resource.field_selector = fields.into();
            resource.label_selector = labels.into();
        })
    }

    /// The namespace; empty if there is none.
    pub fn namespace(&self) -> &str {
        match &self.on {
            ResourceOrPath::Resource(resource) => &resource.namespace,
            ResourceOrPath::Path(_) => "",
        }
    }

    /// 403, in upstream's words (W54).
    pub fn forbidden(&self, reason: &str) -> Status {
        let why = match reason {
            "" => self.refusal(),
            reason => format!("{}: {reason}", self.refusal()),
        };
        match &self.on {
            ResourceOrPath::Path(_) => Status::forbidden_path(&why),
            ResourceOrPath::Resource(on) => {
                let group_resource = GroupResource {
                    group: &on.group,
                    resource: &on.resource,
                };
                Status::forbidden(group_resource, &on.name, &why)
            }
        }
    }

    fn refusal(&self) -> String {
        let who = format!("User {} cannot {}", quote(&self.user.name), self.verb);
        let text = match &self.on {
            ResourceOrPath::Path(path) => format!("{who} path {}", quote(path)),
            ResourceOrPath::Resource(on) => {
                let what = match &*on.subresource {
                    "" => on.resource.to_string(),
                    subresource => format!("{}/{subresource}", on.resource),
                };
                let place = match &*on.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", quote(namespace)),
                };
                format!(
                    "{who} resource {} in API group {} {place}",
                    quote(&what),
                    quote(&on.group)
                )
            }
        };
        // Upstream avoids answers that a browser takes for HTML.
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    }
}
