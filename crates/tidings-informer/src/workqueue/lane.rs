//! The items of one priority: flows take turns, and each flow is first in, first out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

/// The lane of one priority. Every operation is O(log n) in the number of items; removed items leave nothing behind.
#[derive(Debug)]
pub(super) struct Lane<T> {
    flows: HashMap<Arc<str>, Flow<T>>,
    /// The flows by turn, lowest first. A flow that runs empty and comes back goes to the end, so that it gains no turns by that.
    turns: BTreeMap<u64, Arc<str>>,
    /// The arrival of every item by sequence number, to know how long the oldest has waited.
    arrivals: BTreeMap<u64, Instant>,
    next_turn: u64,
    /// The number of the pick, counted over the queue, that last served this lane. It stays when the lane runs empty: a lane that
    /// runs empty at each pick must not count as never served.
    pub(super) last_pick: u64,
}

/// The items of one flow, and its turn.
#[derive(Debug)]
struct Flow<T> {
    turn: u64,
    items: BTreeMap<u64, T>,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Lane<T> {
        Lane {
            flows: HashMap::new(),
            turns: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_turn: 0,
            last_pick: 0,
        }
    }

    /// When the oldest item arrived; `None` for an empty lane.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.arrivals.first_key_value().map(|(_, since)| *since)
    }

    /// Inserts an item by its sequence number, which may be lower than those of other items of its flow.
    pub(super) fn insert(&mut self, flow: &str, sequence: u64, since: Instant, item: T) {
        self.arrivals.insert(sequence, since);
        if let Some(known) = self.flows.get_mut(flow) {
            known.items.insert(sequence, item);
            return;
        }
        let turn = self.take_turn();
        let name: Arc<str> = flow.into();
        self.turns.insert(turn, Arc::clone(&name));
        let items = BTreeMap::from([(sequence, item)]);
        self.flows.insert(name, Flow { turn, items });
    }

    pub(super) fn remove(&mut self, flow: &str, sequence: u64) -> Option<T> {
        let known = self.flows.get_mut(flow)?;
        let item = known.items.remove(&sequence)?;
        self.arrivals.remove(&sequence);
        if known.items.is_empty() {
            let turn = known.turn;
            self.turns.remove(&turn);
            self.flows.remove(flow);
        }
        Some(item)
    }

    /// Takes the first item of the flow whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (_, name) = self.turns.pop_first()?;
        let turn = self.take_turn();
        let flow = self.flows.get_mut(&name)?;
        let (sequence, item) = flow.items.pop_first()?;
        self.arrivals.remove(&sequence);
        if flow.items.is_empty() {
            self.flows.remove(&name);
        } else {
            flow.turn = turn;
            self.turns.insert(turn, name);
        }
        Some(item)
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}
