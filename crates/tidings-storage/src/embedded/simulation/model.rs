//! The model of a store: every state that it has had.

use std::collections::BTreeMap;

use crate::contract::{Expected, Revision, Write};

pub(super) type ModelState = BTreeMap<String, (u64, String)>;

/// A write, and its revision if it should be accepted.
#[derive(Debug, Clone)]
pub(super) struct PlannedWrite {
    pub(super) write: Write,
    pub(super) revision: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct StoreModel {
    /// The state after each revision; revision 0 is empty.
    states: Vec<ModelState>,
    oldest: Revision,
    /// Groups since the last commit that may or may not have been done.
    doubtful: Vec<Vec<PlannedWrite>>,
    written: u64,
}

impl StoreModel {
    pub(super) fn is_empty(&self) -> bool {
        self.states.len() <= 1
    }

    pub(super) fn revision(&self) -> u64 {
        self.states.len().saturating_sub(1) as u64
    }

    pub(super) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(super) fn at(&self, revision: u64) -> &ModelState {
        static EMPTY: ModelState = ModelState::new();
        self.states.get(revision as usize).unwrap_or(&EMPTY)
    }

    /// The expected event of a revision: the key, its value unless it was deleted, and true if the key was created.
    pub(super) fn event(&self, revision: u64) -> (u64, String, Option<String>, bool) {
        let (before, after) = (self.at(revision - 1), self.at(revision));
        let put = after.iter().find(|(_, (at, _))| *at == revision);
        match put {
            Some((key, (_, value))) => {
                let created = !before.contains_key(key);
                (revision, key.clone(), Some(value.clone()), created)
            }
            None => {
                let deleted = before.keys().find(|key| !after.contains_key(*key));
                (revision, deleted.unwrap().clone(), None, false)
            }
        }
    }

    /// Random writes, most of which should be accepted.
    pub(super) fn plan(&mut self, random: &mut fastrand::Rng, count: usize) -> Vec<PlannedWrite> {
        if self.states.is_empty() {
            self.states.push(ModelState::new());
        }
        let mut state = self.at(self.revision()).clone();
        let mut revision = self.revision();
        let mut planned = Vec::new();
        for _ in 0..count {
            let key = format!("k{}", random.u32(..7));
            self.written += 1;
            let fill = "x".repeat(random.usize(..120));
            let value = format!("{}{fill}", self.written);
            let current = state.get(&key).map(|(at, _)| Revision(*at));
            let deletes = current.is_some() && random.u32(..3) == 0;
            let mut write = match current {
                Some(at) if deletes => Write::delete(key.clone(), at),
                Some(at) => Write::update(key.clone(), at, value.clone()),
                None => Write::create(key.clone(), value.clone()),
            };
            if random.u32(..10) == 0 {
                write.expected = match write.expected {
                    Expected::Absent => Expected::At(Revision(revision + 1)),
                    Expected::At(_) => Expected::Absent,
                };
                planned.push(PlannedWrite {
                    write,
                    revision: None,
                });
                continue;
            }
            revision += 1;
            match deletes {
                true => state.remove(&key),
                false => state.insert(key, (revision, value)),
            };
            planned.push(PlannedWrite {
                write,
                revision: Some(revision),
            });
        }
        planned
    }

    /// Applies writes that were done.
    pub(super) fn commit(&mut self, planned: &[PlannedWrite]) {
        self.doubtful.clear();
        self.apply(planned);
    }

    fn apply(&mut self, planned: &[PlannedWrite]) {
        for PlannedWrite { write, revision } in planned {
            let revision = revision.unwrap();
            let mut state = self.at(self.revision()).clone();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let key = text(&write.key);
            match &write.value {
                Some(value) => state.insert(key, (revision, text(value))),
                None => state.remove(&key),
            };
            self.states.push(state);
            assert_eq!(self.revision(), revision);
        }
    }

    /// Notes writes that may or may not have been done.
    pub(super) fn doubt(&mut self, planned: Vec<PlannedWrite>) {
        self.doubtful.push(planned);
    }

    /// Decides which uncertain writes were done, from the state of the opened store. Returns their number.
    pub(super) fn settle(&mut self, revision: u64, state: &ModelState) -> u64 {
        if self.states.is_empty() {
            self.states.push(ModelState::new());
        }
        let new = revision.checked_sub(self.revision());
        let new = new.expect("nothing that was acknowledged is lost") as usize;
        let doubtful = std::mem::take(&mut self.doubtful);
        let known = self.states.len();
        if new == 0 {
            return 0;
        }
        for group in doubtful.iter().filter(|group| group.len() >= new) {
            self.apply(&group[..new]);
            if self.at(revision) == state {
                return new as u64;
            }
            self.states.truncate(known);
        }
        panic!("nothing appears that was never written");
    }

    pub(super) fn forget_before(&mut self, oldest: Revision) {
        self.oldest = self.oldest.max(oldest);
    }
}
