//! Kinds that definitions bring.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidings_api::Object;
use tidings_structural::definition::{Definition, Version};

use crate::registry::{Kind, custom_kind};

/// What a definition says of one of its versions, now.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) definition: Arc<Definition>,
    /// Which of its versions this is.
    at: usize,
    /// The definition is being deleted: no object can be created any more.
    pub(crate) terminating: bool,
}

impl Live {
    pub(crate) fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    /// True if objects are stored in this version.
    pub(crate) fn is_stored(&self) -> bool {
        self.version().storage
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
    live: RwLock<Arc<Live>>,
}

impl Custom {
    pub(crate) fn live(&self) -> Arc<Live> {
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
        terminating: bool,
    ) -> Vec<(&'static Kind, bool)> {
        let versions = definition.versions.iter().enumerate();
        let kinds = versions.map(|(at, version)| {
            let live = Arc::new(Live {
                definition: definition.clone(),
                at,
                terminating,
            });
            (self.kind(definition, version, live), version.served)
        });
        kinds.collect()
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
                *custom.live.write().unwrap_or_else(PoisonError::into_inner) = live;
            }
            return kind;
        }
        let kept = |text: &String| -> &'static str { text.clone().leak() };
        let custom: &'static Custom = Box::leak(Box::new(Custom {
            list_kind: names.list_kind.clone(),
            live: RwLock::new(live),
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

/// The form in which the cache of a custom resource has its objects.
#[derive(Debug)]
pub(crate) struct Stored(RwLock<Arc<Definition>>);

impl Stored {
    pub(super) fn new(definition: Arc<Definition>) -> Stored {
        Stored(RwLock::new(definition))
    }

    pub(super) fn set(&self, definition: Arc<Definition>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = definition;
    }

    fn definition(&self) -> Arc<Definition> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What was stored, as it is read now; `None` if that is the same.
    pub(crate) fn read(&self, json: &[u8]) -> Option<Vec<u8>> {
        super::object::as_stored_now(&self.definition(), json)
    }

    /// The same for an object that is in the cache.
    pub(super) fn read_again(&self, object: &Object) -> Option<Vec<u8>> {
        self.read(object.as_bytes())
    }
}
