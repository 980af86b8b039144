//! Which watches an event is for.
//!
//! A watch waits in a scope: everything, a namespace, a value of a facet (`spec.nodeName=n1`, `app=web`, a name), or what a test says of
//! objects. Each scope has the positions of the events that its watches have to examine, so that the cost of an event does not grow with
//! the watches that it is not for. Watches with equal scopes share one.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use slab::Slab;
use tidings_api::{Facet, FieldFacet, Object};

use crate::log::LoggedEvent;

/// The objects that a watch may have to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct WatchScope {
    /// Only the objects of this namespace.
    pub namespace: Option<Box<str>>,
    /// Only some of them.
    pub narrowed: Narrowing,
}

/// What narrows a scope beside the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Narrowing {
    /// Nothing does.
    #[default]
    None,
    /// The objects in which a facet has this value.
    Value(Facet, Box<str>),
    /// The objects for which a test holds. Each event is tested for every such scope, before any watch is told: a value is cheaper.
    Test(ObjectTest),
}

/// A test of objects. Tests with the same name are taken for the same test.
#[derive(Clone)]
pub struct ObjectTest {
    name: Box<str>,
    test: Arc<dyn Fn(&Object) -> bool + Send + Sync>,
}

impl ObjectTest {
    /// A test. The name must say everything that decides which objects it holds for.
    pub fn new(
        name: impl Into<Box<str>>,
        test: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> ObjectTest {
        ObjectTest {
            name: name.into(),
            test: Arc::new(test),
        }
    }
}

impl std::fmt::Debug for ObjectTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectTest({})", self.name)
    }
}

impl PartialEq for ObjectTest {
    fn eq(&self, other: &ObjectTest) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectTest {}

impl Hash for ObjectTest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// How many events are listed for a scope.
const LISTED_MAX: usize = if cfg!(test) { 8 } else { 16_384 };

/// Identifies a scope as long as it has watches.
pub(crate) type ScopeId = usize;

/// A scope that has watches.
#[derive(Debug)]
struct Scope {
    scope: WatchScope,
    watches: usize,
    /// Events before this position are not listed.
    since: u64,
    /// The positions of the events that may be for its watches; those of events that the log has dropped are not kept.
    ///
    /// Bound: [`LISTED_MAX`].
    events: VecDeque<u64>,
    /// An event before this position may have been for its watches and was dropped.
    lost_before: u64,
}

impl Scope {
    /// Which of the listed events is the first from a position on.
    fn first_from(&self, position: u64) -> usize {
        self.events.partition_point(|listed| *listed < position)
    }
}

/// The scopes of a facet, by value, and by namespace where they have one.
#[derive(Debug, Default)]
struct ValueScopes {
    everywhere: HashMap<Box<str>, ScopeId>,
    in_namespace: HashMap<Box<str>, HashMap<Box<str>, ScopeId>>,
}

impl ValueScopes {
    fn insert(&mut self, namespace: Option<Box<str>>, value: Box<str>, id: ScopeId) {
        let values = match namespace {
            Some(namespace) => self.in_namespace.entry(namespace).or_default(),
            None => &mut self.everywhere,
        };
        values.insert(value, id);
    }

    fn remove(&mut self, namespace: Option<&str>, value: &str) {
        let Some(namespace) = namespace else {
            self.everywhere.remove(value);
            return;
        };
        if let Some(values) = self.in_namespace.get_mut(namespace) {
            values.remove(value);
            if values.is_empty() {
                self.in_namespace.remove(namespace);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.in_namespace.is_empty()
    }

    fn find(&self, namespace: &str, value: &str, found: &mut Vec<ScopeId>) {
        let here = self.in_namespace.get(namespace);
        let scopes = [
            self.everywhere.get(value),
            here.and_then(|here| here.get(value)),
        ];
        found.extend(scopes.into_iter().flatten());
    }
}

/// The scopes that have watches, and the events for each of them. The scope of all objects is not in it: its events are the log.
#[derive(Debug, Default)]
pub(crate) struct ScopeTable {
    scopes: Slab<Scope>,
    ids: HashMap<WatchScope, ScopeId>,
    namespaces: HashMap<Box<str>, ScopeId>,
    names: ValueScopes,
    labels: HashMap<Box<str>, ValueScopes>,
    /// A few: kinds have few fields that can be selected by.
    fields: Vec<(FieldFacet, ValueScopes)>,
    tests: Vec<ScopeId>,
}

impl ScopeTable {
    /// Adds a watch. The log ends at `end`.
    pub(crate) fn enter(&mut self, scope: WatchScope, end: u64) -> ScopeId {
        if let Some(id) = self.ids.get(&scope) {
            self.scopes[*id].watches += 1;
            return *id;
        }
        let id = self.scopes.insert(Scope {
            scope: scope.clone(),
            watches: 1,
            since: end,
            events: VecDeque::new(),
            lost_before: 0,
        });
        let namespace = scope.namespace.clone();
        match scope.narrowed.clone() {
            Narrowing::None => {
                self.namespaces.insert(namespace.unwrap_or_default(), id);
            }
            Narrowing::Value(facet, value) => self.values(&facet).insert(namespace, value, id),
            Narrowing::Test(_) => self.tests.push(id),
        }
        self.ids.insert(scope, id);
        id
    }

    /// Removes a watch.
    pub(crate) fn leave(&mut self, id: ScopeId) {
        self.scopes[id].watches -= 1;
        if self.scopes[id].watches > 0 {
            return;
        }
        let scope = self.scopes.remove(id).scope;
        self.ids.remove(&scope);
        let namespace = scope.namespace.as_deref();
        match &scope.narrowed {
            Narrowing::None => {
                self.namespaces.remove(namespace.unwrap_or_default());
            }
            Narrowing::Value(facet, value) => {
                let values = self.values(facet);
                values.remove(namespace, value);
                if values.is_empty() {
                    self.forget(facet);
                }
            }
            Narrowing::Test(_) => self.tests.retain(|test| *test != id),
        }
    }

    /// Removes a facet that has no scopes any more.
    fn forget(&mut self, facet: &Facet) {
        match facet {
            Facet::Name => {}
            Facet::Label(key) => {
                self.labels.remove(key);
            }
            Facet::Field(field) => self.fields.retain(|(known, _)| known != field),
        }
    }

    fn values(&mut self, facet: &Facet) -> &mut ValueScopes {
        match facet {
            Facet::Name => &mut self.names,
            Facet::Label(key) => self.labels.entry(key.clone()).or_default(),
            Facet::Field(field) => {
                let known = self.fields.iter().position(|(known, _)| known == field);
                let at = known.unwrap_or_else(|| {
                    self.fields.push((field.clone(), ValueScopes::default()));
                    self.fields.len() - 1
                });
                &mut self.fields[at].1
            }
        }
    }

    /// Lists an event at its position for the scopes that it may be for, before and after the change. Returns these scopes.
    pub(crate) fn list(&mut self, position: u64, event: &LoggedEvent) -> Vec<ScopeId> {
        let mut found = Vec::new();
        if self.scopes.is_empty() {
            return found;
        }
        let (namespace, name) = (event.object.namespace(), event.object.name());
        found.extend(self.namespaces.get(&*namespace));
        self.names.find(&namespace, &name, &mut found);
        let after = Some(&event.object).filter(|_| !event.deleted);
        for state in event.previous.iter().chain(after) {
            if !self.labels.is_empty() {
                for (key, value) in state.labels().iter() {
                    if let Some(scopes) = self.labels.get(key) {
                        scopes.find(&namespace, value, &mut found);
                    }
                }
            }
            for (field, scopes) in &self.fields {
                scopes.find(&namespace, &field.value(state), &mut found);
            }
            for id in &self.tests {
                let WatchScope {
                    namespace: wanted,
                    narrowed,
                } = &self.scopes[*id].scope;
                let is_here = wanted.as_deref().is_none_or(|wanted| *wanted == *namespace);
                if let Narrowing::Test(test) = narrowed
                    && is_here
                    && (test.test)(state)
                {
                    found.push(*id);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        for id in &found {
            let scope = &mut self.scopes[*id];
            scope.events.push_back(position);
            if scope.events.len() > LISTED_MAX {
                // A watch that is so far behind reads the log.
                let first = scope.events.pop_front();
                scope.since = first.map_or(scope.since, |first| first + 1);
            }
        }
        found
    }

    /// The next event for a scope from a position on.
    pub(crate) fn next(&self, id: ScopeId, position: u64) -> NextEvent {
        let scope = &self.scopes[id];
        if position < scope.since {
            return NextEvent::Unlisted;
        }
        if position < scope.lost_before {
            return NextEvent::Dropped;
        }
        match scope.events.get(scope.first_from(position)) {
            Some(listed) => NextEvent::At(*listed),
            None => NextEvent::None,
        }
    }

    /// The positions of events for a scope, from `position` on and before `end`, and the position of the next one after them.
    pub(crate) fn read(&self, id: ScopeId, position: u64, end: u64) -> (Vec<u64>, Option<u64>) {
        let scope = &self.scopes[id];
        let mut listed = scope.events.range(scope.first_from(position)..).copied();
        let mut positions = Vec::new();
        let next = listed.find(|listed| {
            let is_read = *listed < end;
            if is_read {
                positions.push(*listed);
            }
            !is_read
        });
        (positions, next)
    }

    /// The log has dropped the events before a position.
    pub(crate) fn dropped(&mut self, front: u64) {
        for (_, scope) in &mut self.scopes {
            while let Some(listed) = scope.events.pop_front_if(|listed| *listed < front) {
                scope.lost_before = listed + 1;
            }
        }
    }

    /// The log was emptied and begins at a position: every watch has fallen behind.
    pub(crate) fn restarted(&mut self, front: u64) {
        for (_, scope) in &mut self.scopes {
            scope.events.clear();
            (scope.since, scope.lost_before) = (0, front);
        }
    }

    /// How many positions are listed.
    pub(crate) fn listed(&self) -> usize {
        self.scopes
            .iter()
            .map(|(_, scope)| scope.events.len())
            .sum()
    }

    /// How many scopes have watches.
    pub(crate) fn len(&self) -> usize {
        self.scopes.len()
    }
}

/// Where the next event for a scope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextEvent {
    /// At a position.
    At(u64),
    /// There is none yet.
    None,
    /// Events at this position are not listed: the log has to be read.
    Unlisted,
    /// An event for the scope may have been dropped.
    Dropped,
}
