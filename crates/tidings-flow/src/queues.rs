//! Fair queues: which request may run, and which begins when another one ends.
//!
//! A level may use its own seats, and idle ones that others lend; what a level does not lend is free for it at any time. The flows of a level
//! wait in queues that were dealt to them; a queue is charged for the time that its requests take, and the one that was charged least is next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::level::{LevelConfig, LevelSeats, QueueConfig};

/// For how long a request is charged when it begins, in seconds; corrected when it ends.
const CHARGED_FIRST: f64 = 0.003;

/// A request that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What becomes of a request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It runs.
    Runs(Ticket),
    /// It waits until [`FairQueues::finish`] or [`FairQueues::cancel`] names it.
    Waits(Ticket),
    /// It is refused.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The level has no queues, and no seat is free.
    NoSeat,
    /// The queue is full.
    QueueFull,
}

/// How many requests of a level run and wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelFigures {
    /// The name of the level.
    pub name: Arc<str>,
    /// The seats that are its own.
    pub seats: u32,
    /// The seats that are in use.
    pub in_use: u32,
    /// The requests that wait.
    pub waiting: u32,
}

#[derive(Debug, Default)]
struct Queue {
    /// Requests and their seats.
    waiting: VecDeque<(Ticket, u32)>,
    /// The seats that its requests use.
    in_use: u32,
    /// What it was charged for: it is next if this is the least.
    charged: f64,
}

#[derive(Debug)]
struct Level {
    config: LevelConfig,
    seats: LevelSeats,
    in_use: u32,
    waiting: u32,
    /// Queues in which something waits or runs, or that were charged ahead of time.
    queues: HashMap<u32, Queue>,
    /// What the queue that began last was charged before: an idle queue begins here.
    time: f64,
}

#[derive(Debug)]
struct Request {
    level: Arc<str>,
    /// Where it waited; `None` if it ran at once.
    queue: Option<u32>,
    seats: u32,
    runs: bool,
}

/// Fair queues of several priority levels.
#[derive(Debug)]
pub struct FairQueues {
    /// Few, so that they are found by looking at each.
    levels: Vec<Level>,
    requests: HashMap<Ticket, Request>,
    seats: u32,
    /// For all levels together what is in use, or kept for them if that is more.
    kept: u64,
    next: u64,
}

impl FairQueues {
    /// Queues of these levels, which together have so many seats.
    pub fn new(levels: Vec<LevelConfig>, seats: u32) -> FairQueues {
        let mut queues = FairQueues {
            levels: Vec::new(),
            requests: HashMap::new(),
            seats,
            kept: 0,
            next: 0,
        };
        queues.configure(levels);
        queues
    }

    /// Changes the levels. Requests of a level that is gone run and wait on, without seats that are kept for them. Returns the requests that begin.
    pub fn configure(&mut self, levels: Vec<LevelConfig>) -> Vec<Ticket> {
        let shares = levels.iter().map(|level| u64::from(level.shares)).sum();
        let names: HashSet<Arc<str>> = levels.iter().map(|level| level.name.clone()).collect();
        for level in &mut self.levels {
            level.seats.min = 0;
        }
        for config in levels {
            let seats = LevelSeats::of(&config, shares, self.seats);
            match self
                .levels
                .iter_mut()
                .find(|level| level.config.name == config.name)
            {
                Some(level) => (level.config, level.seats) = (config, seats),
                None => self.levels.push(Level {
                    config,
                    seats,
                    in_use: 0,
                    waiting: 0,
                    queues: HashMap::new(),
                    time: 0.0,
                }),
            }
        }
        self.levels
            .retain(|level| names.contains(&level.config.name) || level.in_use + level.waiting > 0);
        self.kept = self.levels.iter().map(Level::kept).sum();
        self.begin_waiting()
    }

    /// A request of a flow arrives. One of a level that is not known is refused.
    pub fn arrive(&mut self, level: &str, flow: u64, seats: u32) -> Arrival {
        let Some(at) = self.position(level) else {
            return Arrival::Refused(Refusal::NoSeat);
        };
        let found = &self.levels[at];
        let ticket = Ticket(self.next);
        self.next += 1;
        let seats = seats.clamp(1, found.seats.max);
        let mut request = Request {
            level: found.config.name.clone(),
            queue: None,
            seats,
            runs: true,
        };
        // Where nobody waits, nobody has to take turns.
        if found.config.is_exempt || found.waiting == 0 && self.has_seats(at, seats) {
            self.requests.insert(ticket, request);
            self.use_seats(at, seats);
            return Arrival::Runs(ticket);
        }
        let Some(config) = found.config.queues else {
            return Arrival::Refused(Refusal::NoSeat);
        };
        let found = &mut self.levels[at];
        let number = found.least_used(flow, config);
        let time = found.time;
        let queue = found.queues.entry(number).or_default();
        if queue.waiting.len() >= config.waiting_max as usize {
            return Arrival::Refused(Refusal::QueueFull);
        }
        if queue.waiting.is_empty() && queue.in_use == 0 {
            queue.charged = queue.charged.max(time);
        }
        queue.waiting.push_back((ticket, seats));
        found.waiting += 1;
        request.queue = Some(number);
        request.runs = false;
        self.requests.insert(ticket, request);
        let begun = self.begin_waiting();
        // What could begin before has begun before.
        debug_assert!(begun.iter().all(|begun| *begun == ticket));
        match begun.contains(&ticket) {
            true => Arrival::Runs(ticket),
            false => Arrival::Waits(ticket),
        }
    }

    /// A request that ran has ended after a time. Returns the requests that begin now.
    pub fn finish(&mut self, ticket: Ticket, took: Duration) -> Vec<Ticket> {
        let Some(request) = self.requests.remove(&ticket) else {
            return Vec::new();
        };
        debug_assert!(request.runs);
        let Some(at) = self.position(&request.level) else {
            return Vec::new();
        };
        self.free_seats(at, request.seats);
        let level = &mut self.levels[at];
        if let Some(queue) = request
            .queue
            .and_then(|number| level.queues.get_mut(&number))
        {
            queue.in_use = queue.in_use.saturating_sub(request.seats);
            queue.charged += f64::from(request.seats) * (took.as_secs_f64() - CHARGED_FIRST);
            level.forget_idle();
        }
        self.begin_waiting()
    }

    /// A request is given up, whether it waits or runs. Returns the requests that begin now.
    pub fn cancel(&mut self, ticket: Ticket, took: Duration) -> Vec<Ticket> {
        match self.requests.get(&ticket) {
            Some(request) if request.runs => self.finish(ticket, took),
            Some(_) => {
                if let Some(request) = self.requests.remove(&ticket)
                    && let Some(at) = self.position(&request.level)
                {
                    let level = &mut self.levels[at];
                    level.waiting -= 1;
                    if let Some(queue) = request
                        .queue
                        .and_then(|number| level.queues.get_mut(&number))
                    {
                        queue.waiting.retain(|(waiting, _)| *waiting != ticket);
                    }
                    level.forget_idle();
                }
                // It may have stood before smaller ones.
                self.begin_waiting()
            }
            None => Vec::new(),
        }
    }

    /// How many requests of each level run and wait.
    pub fn figures(&self) -> Vec<LevelFigures> {
        let levels = self.levels.iter().map(|level| LevelFigures {
            name: level.config.name.clone(),
            seats: level.seats.nominal,
            in_use: level.in_use,
            waiting: level.waiting,
        });
        let mut figures: Vec<LevelFigures> = levels.collect();
        figures.sort_by(|one, other| one.name.cmp(&other.name));
        figures
    }

    fn position(&self, name: &str) -> Option<usize> {
        let mut levels = self.levels.iter();
        levels.position(|level| *level.config.name == *name)
    }

    fn use_seats(&mut self, at: usize, seats: u32) {
        let level = &mut self.levels[at];
        self.kept -= level.kept();
        level.in_use += seats;
        self.kept += level.kept();
    }

    fn free_seats(&mut self, at: usize, seats: u32) {
        let level = &mut self.levels[at];
        self.kept -= level.kept();
        level.in_use -= seats;
        self.kept += level.kept();
    }

    /// True if a level may use so many seats more, without taking what others do not lend.
    fn has_seats(&self, at: usize, seats: u32) -> bool {
        let own = &self.levels[at];
        let wanted = own.in_use.saturating_add(seats);
        let is_its_own = wanted <= own.seats.min;
        let is_free = self.kept - own.kept() + u64::from(wanted) <= u64::from(self.seats);
        // A level without seats of its own gets a turn too.
        own.in_use == 0 || wanted <= own.seats.max && (is_its_own || is_free)
    }

    /// Lets waiting requests begin as long as seats are free: of the level that uses least of its own, from the queue that was charged least.
    fn begin_waiting(&mut self) -> Vec<Ticket> {
        let mut begun = Vec::new();
        loop {
            let mut best: Option<(f64, usize, u32)> = None;
            for (at, level) in self.levels.iter().enumerate() {
                if level.waiting == 0 {
                    continue;
                }
                let Some((number, seats)) = level.next_queue() else {
                    continue;
                };
                if !self.has_seats(at, seats) {
                    continue;
                }
                let used = f64::from(level.in_use) / f64::from(level.seats.nominal.max(1));
                if best.is_none_or(|(least, ..)| used < least) {
                    best = Some((used, at, number));
                }
            }
            let Some((_, at, number)) = best else {
                return begun;
            };
            let level = &mut self.levels[at];
            let Some(queue) = level.queues.get_mut(&number) else {
                return begun;
            };
            let Some((ticket, seats)) = queue.waiting.pop_front() else {
                return begun;
            };
            level.time = level.time.max(queue.charged);
            queue.charged += f64::from(seats) * CHARGED_FIRST;
            queue.in_use += seats;
            level.waiting -= 1;
            self.use_seats(at, seats);
            if let Some(request) = self.requests.get_mut(&ticket) {
                request.runs = true;
            }
            begun.push(ticket);
        }
    }
}

impl Level {
    /// What is in use, or kept for the level if that is more. Requests that are not limited take nothing from others.
    fn kept(&self) -> u64 {
        match self.config.is_exempt {
            true => 0,
            false => u64::from(self.in_use.max(self.seats.min)),
        }
    }

    /// The queue that is next, and the seats of its first request.
    fn next_queue(&self) -> Option<(u32, u32)> {
        let waiting = self.queues.iter().filter_map(|(at, queue)| {
            let (_, seats) = queue.waiting.front()?;
            Some((queue.charged, *at, *seats))
        });
        let next = waiting.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        next.map(|(_, at, seats)| (at, seats))
    }

    /// Of the queues that are dealt to a flow the one with the least in it.
    fn least_used(&self, flow: u64, config: QueueConfig) -> u32 {
        let used = |at: &u32| {
            self.queues.get(at).map_or(0, |queue| {
                let waiting: u32 = queue.waiting.iter().map(|(_, seats)| seats).sum();
                waiting + queue.in_use
            })
        };
        let hand = deal(flow, config);
        hand.into_iter().min_by_key(used).unwrap_or_default()
    }

    /// Forgets queues in which nothing waits or runs, unless they were charged ahead of time.
    fn forget_idle(&mut self) {
        let time = self.time;
        self.queues.retain(|_, queue| {
            !queue.waiting.is_empty() || queue.in_use > 0 || queue.charged > time
        });
    }
}

/// Deals different queues to a flow: the same ones each time.
fn deal(mut flow: u64, config: QueueConfig) -> Vec<u32> {
    let mut hand: Vec<u32> = Vec::with_capacity(config.hand as usize);
    for dealt in 0..config.hand.min(config.queues) {
        let left = u64::from(config.queues - dealt);
        let mut card = (flow % left) as u32;
        flow /= left;
        let mut before = hand.clone();
        before.sort_unstable();
        // Counted among the queues that were not dealt yet.
        for known in before {
            if card >= known {
                card += 1;
            }
        }
        hand.push(card);
    }
    hand
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str, shares: u32, lendable_percent: u32) -> LevelConfig {
        LevelConfig {
            name: name.into(),
            shares,
            lendable_percent,
            queues: Some(QueueConfig {
                queues: 8,
                hand: 2,
                waiting_max: 4,
            }),
            ..LevelConfig::default()
        }
    }

    fn figures(queues: &FairQueues) -> Vec<(String, u32, u32)> {
        let all = queues.figures().into_iter();
        all.map(|level| (level.name.to_string(), level.in_use, level.waiting))
            .collect()
    }

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_hand_has_different_queues_and_is_the_same_each_time() {
        let config = QueueConfig {
            queues: 9,
            hand: 4,
            waiting_max: 1,
        };
        let mut seen = std::collections::HashSet::new();
        for flow in 0..3000_u64 {
            let hand = deal(flow, config);
            let mut sorted = hand.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 4);
            assert!(sorted.iter().all(|card| *card < 9));
            assert_eq!(hand, deal(flow, config));
            seen.insert(hand);
        }
        assert!(seen.len() > 1500, "{}", seen.len());
    }

    #[test]
    fn a_level_lends_idle_seats_and_has_at_once_what_it_does_not_lend() {
        let mut queues = FairQueues::new(vec![level("a", 1, 50), level("b", 1, 0)], 8);
        let mut running = Vec::new();
        // a has four seats, b four that it does not lend.
        for flow in 0..6 {
            if let Arrival::Runs(ticket) = queues.arrive("a", flow, 1) {
                running.push(ticket);
            }
        }
        assert_eq!(figures(&queues), [("a".into(), 4, 2), ("b".into(), 0, 0)]);
        // b borrows nothing while a uses all, and gets its own four.
        for flow in 0..6 {
            queues.arrive("b", flow, 1);
        }
        assert_eq!(figures(&queues), [("a".into(), 4, 2), ("b".into(), 4, 2)]);
        let begun = queues.finish(running[0], MOMENT);
        assert_eq!(begun.len(), 1);

        // Alone, b may use what a lends: two of its four.
        let mut queues = FairQueues::new(vec![level("a", 1, 50), level("b", 1, 0)], 8);
        for flow in 0..8 {
            queues.arrive("b", flow, 1);
        }
        assert_eq!(figures(&queues)[1], ("b".into(), 6, 2));
        for flow in 0..3 {
            queues.arrive("a", flow, 1);
        }
        assert_eq!(figures(&queues)[0], ("a".into(), 2, 1));
    }

    #[test]
    fn a_flow_with_much_does_not_hold_up_one_with_little() {
        let mut config = level("a", 1, 0);
        config.queues = Some(QueueConfig {
            queues: 64,
            hand: 3,
            waiting_max: 1000,
        });
        let mut queues = FairQueues::new(vec![config], 2);
        let mut running: VecDeque<Ticket> = VecDeque::new();
        for _ in 0..1000 {
            if let Arrival::Runs(ticket) = queues.arrive("a", 1, 1) {
                running.push_back(ticket);
            }
        }
        let mut waited_most = 0;
        for round in 0..50 {
            let mut own = match queues.arrive("a", 2, 1) {
                Arrival::Waits(ticket) => Some(ticket),
                Arrival::Runs(ticket) => {
                    running.push_back(ticket);
                    None
                }
                Arrival::Refused(why) => panic!("{why:?}"),
            };
            let mut turns = 0;
            while let Some(ticket) = own {
                turns += 1;
                let oldest = running.pop_front().unwrap();
                let begun = queues.finish(oldest, Duration::from_millis(10));
                if begun.contains(&ticket) {
                    own = None;
                }
                running.extend(begun);
            }
            if round > 3 {
                waited_most = waited_most.max(turns);
            }
        }
        assert!(waited_most <= 4, "{waited_most}");
    }

    #[test]
    fn full_queues_refuse_and_levels_without_queues_refuse_at_once() {
        let mut queues = FairQueues::new(vec![level("a", 1, 0)], 1);
        let arrivals: Vec<Arrival> = (0..10).map(|_| queues.arrive("a", 1, 1)).collect();
        let refused = arrivals
            .iter()
            .filter(|arrival| **arrival == Arrival::Refused(Refusal::QueueFull));
        assert_eq!(
            refused.count(),
            1,
            "two queues of four, and one runs: {arrivals:?}"
        );
        let mut rejecting = level("r", 1, 0);
        rejecting.queues = None;
        let mut queues = FairQueues::new(vec![rejecting], 1);
        assert!(matches!(queues.arrive("r", 1, 1), Arrival::Runs(_)));
        assert_eq!(queues.arrive("r", 1, 1), Arrival::Refused(Refusal::NoSeat));
        assert_eq!(
            queues.arrive("none", 1, 1),
            Arrival::Refused(Refusal::NoSeat)
        );
    }

    #[test]
    fn random_traffic_never_uses_more_than_there_is_and_nothing_is_forgotten() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let exempt = LevelConfig {
                name: "exempt".into(),
                is_exempt: true,
                ..LevelConfig::default()
            };
            let pick = |random: &mut fastrand::Rng| -> Vec<LevelConfig> {
                let mut levels = Vec::new();
                for name in ["a", "b", "c"] {
                    if random.u8(..4) > 0 {
                        let mut level = level(name, random.u32(0..5), random.u32(0..=100));
                        level.borrowing_percent = random.bool().then(|| random.u32(0..300));
                        levels.push(level);
                    }
                }
                levels.push(exempt.clone());
                levels
            };
            let seats = random.u32(1..10);
            let mut queues = FairQueues::new(pick(&mut random), seats);
            let (mut running, mut waiting) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                let begun = match random.u8(..10) {
                    0..5 => {
                        let name = ["a", "b", "c", "exempt"][random.usize(..4)];
                        match queues.arrive(name, random.u64(..5), random.u32(1..3)) {
                            Arrival::Runs(ticket) => running.push(ticket),
                            Arrival::Waits(ticket) => waiting.push(ticket),
                            Arrival::Refused(_) => {}
                        }
                        Vec::new()
                    }
                    5..8 if !running.is_empty() => {
                        let ticket = running.swap_remove(random.usize(..running.len()));
                        queues.finish(ticket, Duration::from_micros(random.u64(..10_000)))
                    }
                    8 if !waiting.is_empty() => {
                        let ticket = waiting.swap_remove(random.usize(..waiting.len()));
                        queues.cancel(ticket, MOMENT)
                    }
                    9 if random.u8(..5) == 0 => queues.configure(pick(&mut random)),
                    _ => Vec::new(),
                };
                for ticket in begun {
                    let at = waiting.iter().position(|known| *known == ticket);
                    running.push(waiting.swap_remove(at.expect("it waited")));
                }
                let levels = queues.figures();
                let total: u32 = levels.iter().map(|level| level.waiting).sum();
                assert_eq!(total as usize, waiting.len(), "seed {seed}");
                assert_eq!(queues.requests.len(), running.len() + waiting.len());
            }
            // Everything that waits begins at last.
            while let Some(ticket) = running.pop() {
                for ticket in queues.finish(ticket, MOMENT) {
                    let at = waiting.iter().position(|known| *known == ticket);
                    running.push(waiting.swap_remove(at.expect("it waited")));
                }
            }
            assert!(waiting.is_empty(), "seed {seed}: {waiting:?} wait for ever");
            assert!(queues.figures().iter().all(|level| level.in_use == 0));
        }
    }
}
