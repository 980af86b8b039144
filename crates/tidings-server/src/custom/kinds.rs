//! Kinds that definitions bring.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidings_api::{EventType, Object};
use tidings_json::Value;
use tidings_structural::definition::{Definition, Version};

use crate::registry::{Kind, custom_kind};

/// What a definition says of one of its versions, now.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) definition: Arc<Definition>,
    /// What the definition was read from.
    object: Object,
    /// Which of its versions this is.
    at: usize,
    /// The definition is being deleted: no object can be created any more.
    pub(crate) terminating: bool,
}

impl Live {
    pub(crate) fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    /// The schema of its objects, as the definition has it.
    pub(crate) fn open_api(&self) -> Value {
        let definition: Value = serde_json::from_slice(self.object.as_bytes()).unwrap_or_default();
        let path = format!("/spec/versions/{}/schema/openAPIV3Schema", self.at);
        definition.pointer(&path).cloned().unwrap_or_default()
    }

    /// `apiVersion` of objects as they are stored.
    pub(crate) fn stored_version(&self) -> String {
        let definition = &self.definition;
        format!("{}/{}", definition.group, definition.storage().name)
    }
}

/// What of a kind a definition can change.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) list_kind: String,
    /// `None` if there is no such definition any more.
    live: RwLock<Option<Arc<Live>>>,
    /// What its objects begin with: members stand in the order of their names.
    head: String,
}

impl Custom {
    /// True if an object is of this version already. It is asked for every event of a watch.
    pub(crate) fn is_version_of(&self, object: &Object) -> bool {
        object.as_bytes().starts_with(self.head.as_bytes())
    }

    fn set(&self, live: Option<Arc<Live>>) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What tells kinds apart. A kind with other names is another kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    group: String,
    version: String,
    plural: String,
    kind: String,
    list_kind: String,
    namespaced: bool,
}

/// The kinds of all definitions that there have been.
///
/// Requests and watches hold kinds for as long as the process lives, so they are never given back. Bound: one for each name and
/// version that was ever defined, a few hundred bytes; what is big about a definition is in [`Live`] and goes with it.
#[derive(Debug, Default)]
pub(super) struct Interned(HashMap<Identity, &'static Kind>);

impl Interned {
    /// The kinds of all versions of a definition, which from now on are as it says.
    pub(super) fn kinds(
        &mut self,
        definition: &Arc<Definition>,
        object: &Object,
        terminating: bool,
    ) -> Vec<(&'static Kind, bool)> {
        let versions = definition.versions.iter().enumerate();
        let kinds = versions.map(|(at, version)| {
            let live = Arc::new(Live {
                definition: definition.clone(),
                object: object.clone(),
                at,
                terminating,
            });
            (self.kind(definition, version, live), version.served)
        });
        kinds.collect()
    }

    /// Lets go of all that a definition has said.
    pub(super) fn forget(&mut self, group: &str, plural: &str) {
        for (identity, kind) in &self.0 {
            let custom = kind.custom.filter(|_| identity.group == group);
            if let Some(custom) = custom.filter(|_| identity.plural == plural) {
                custom.set(None);
            }
        }
    }

    fn kind(
        &mut self,
        definition: &Definition,
        version: &Version,
        live: Arc<Live>,
    ) -> &'static Kind {
        let names = &definition.names;
        let identity = Identity {
            group: definition.group.clone(),
            version: version.name.clone(),
            plural: names.plural.clone(),
            kind: names.kind.clone(),
            list_kind: names.list_kind.clone(),
            namespaced: definition.namespaced,
        };
        if let Some(kind) = self.0.get(&identity) {
            if let Some(custom) = kind.custom {
                custom.set(Some(live));
            }
            return kind;
        }
        let kept = |text: &String| -> &'static str { text.clone().leak() };
        let custom: &'static Custom = Box::leak(Box::new(Custom {
            list_kind: names.list_kind.clone(),
            head: format!(
                "{{\"apiVersion\":\"{}/{}\",",
                definition.group, version.name
            ),
            live: RwLock::new(Some(live)),
        }));
        let kind = Box::leak(Box::new(Kind {
            group: kept(&definition.group),
            version: kept(&version.name),
            kind: kept(&names.kind),
            plural: kept(&names.plural),
            namespaced: definition.namespaced,
            ..custom_kind(custom)
        }));
        self.0.insert(identity, kind);
        kind
    }
}

/// How the objects of a custom resource are read: as their definition of now says.
#[derive(Debug)]
pub(crate) struct Reader(RwLock<Arc<Definition>>);

impl Reader {
    pub(super) fn new(definition: Arc<Definition>) -> Reader {
        Reader(RwLock::new(definition))
    }

    /// True if that is another definition than before.
    pub(super) fn set(&self, definition: &Arc<Definition>) -> bool {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let other = !Arc::ptr_eq(&known, definition);
        *known = definition.clone();
        other
    }

    /// What objects are read by now.
    pub(crate) fn form(&self) -> Form {
        let definition = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Form(definition.clone())
    }

    /// True if that is what objects are read by still.
    pub(crate) fn is_now(&self, form: &Form) -> bool {
        Arc::ptr_eq(&self.form().0, &form.0)
    }
}

/// What objects are read by at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Form(Arc<Definition>);

impl Form {
    /// A stored object as it is read; `None` if that is how it is stored.
    pub(crate) fn of(&self, stored: &Object, event: EventType) -> Option<Object> {
        let json = super::object::as_read(&self.0, stored.as_bytes())?;
        Object::stamped(&json, stored.revision(), event).ok()
    }
}
