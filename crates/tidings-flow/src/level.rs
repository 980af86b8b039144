//! Priority levels: how many seats they have, and how many they lend and borrow.

use std::sync::Arc;

use serde::Deserialize;

/// The queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// How many queues there are.
    pub queues: u32,
    /// How many queues are dealt to a flow: of those its request takes the one with the least in it.
    pub hand: u32,
    /// How many requests may wait in a queue.
    pub waiting_max: u32,
}

/// A priority level.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LevelConfig {
    /// The name.
    pub name: Arc<str>,
    /// Its requests are not limited.
    pub is_exempt: bool,
    /// Its part of all seats.
    pub shares: u32,
    /// How much of its seats others may use.
    pub lendable_percent: u32,
    /// How much more than its seats it may use; `None`: as much as there is.
    pub borrowing_percent: Option<u32>,
    /// Where requests wait; `None`: they are refused instead.
    pub queues: Option<QueueConfig>,
}

#[derive(Deserialize)]
struct WrittenLevel {
    metadata: WrittenMetadata,
    #[serde(default)]
    spec: WrittenSpec,
}

#[derive(Deserialize)]
struct WrittenMetadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenSpec {
    #[serde(rename = "type")]
    kind: String,
    limited: WrittenLimited,
    exempt: WrittenLimited,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenLimited {
    nominal_concurrency_shares: u32,
    lendable_percent: u32,
    borrowing_limit_percent: Option<u32>,
    limit_response: WrittenResponse,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenResponse {
    queuing: Option<WrittenQueuing>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenQueuing {
    queues: u32,
    hand_size: u32,
    queue_length_limit: u32,
}

impl LevelConfig {
    /// The level that a `PriorityLevelConfiguration` in JSON describes. `None` if it cannot be read.
    pub fn read(json: &[u8]) -> Option<LevelConfig> {
        let written: WrittenLevel = serde_json::from_slice(json).ok()?;
        let spec = written.spec;
        let is_exempt = spec.kind == "Exempt";
        let of = if is_exempt { spec.exempt } else { spec.limited };
        let queues = of.limit_response.queuing.map(|queuing| QueueConfig {
            queues: queuing.queues.max(1),
            hand: queuing.hand_size.clamp(1, queuing.queues.max(1)),
            waiting_max: queuing.queue_length_limit,
        });
        Some(LevelConfig {
            name: written.metadata.name.into(),
            is_exempt,
            shares: of.nominal_concurrency_shares,
            lendable_percent: of.lendable_percent.min(100),
            borrowing_percent: of.borrowing_limit_percent,
            queues: queues.filter(|_| !is_exempt),
        })
    }
}

/// The seats of a level among others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LevelSeats {
    /// What is its own.
    pub(crate) nominal: u32,
    /// What nobody else may use.
    pub(crate) min: u32,
    /// What it may use if others lend.
    pub(crate) max: u32,
}

impl LevelSeats {
    pub(crate) fn of(config: &LevelConfig, shares_of_all: u64, seats_of_all: u32) -> LevelSeats {
        let part = u64::from(seats_of_all) * u64::from(config.shares);
        let nominal = part.div_ceil(shares_of_all.max(1)).min(u64::from(u32::MAX)) as u32;
        let percent = |of: u32, percent: u32| (u64::from(of) * u64::from(percent) / 100) as u32;
        let max = match config.borrowing_percent {
            None => seats_of_all,
            Some(more) => nominal
                .saturating_add(percent(nominal, more))
                .min(seats_of_all),
        };
        LevelSeats {
            nominal,
            min: nominal - percent(nominal, config.lendable_percent),
            // Somebody must be able to run.
            max: max.max(1),
        }
    }
}
