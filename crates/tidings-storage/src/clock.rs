//! Running time: the clock for the age of history. Pure.

use std::time::Duration;

/// Counts the time that a store has been running, over restarts. It never goes back, and a jump of the clock adds at most
/// `step_max`. The time while the store is closed does not count.
#[derive(Debug)]
pub(crate) struct RunningTime {
    running_ms: u64,
    last_reading: Option<Duration>,
    step_max: Duration,
}

impl RunningTime {
    /// Continues from a stored running time.
    pub(crate) fn from(running_ms: u64, step_max: Duration) -> RunningTime {
        RunningTime {
            running_ms,
            last_reading: None,
            step_max,
        }
    }

    /// The running time in milliseconds. `reading` is the time of a clock that may count from any moment.
    pub(crate) fn at(&mut self, reading: Duration) -> u64 {
        let last = self.last_reading.replace(reading).unwrap_or(reading);
        let step = reading.saturating_sub(last).min(self.step_max);
        // Fractions of a millisecond are counted with the next reading.
        let step_ms = step.as_millis() as u64;
        if step < self.step_max && reading >= last {
            self.last_reading = Some(last + Duration::from_millis(step_ms));
        }
        self.running_ms += step_ms;
        self.running_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_with_the_clock_and_jumps_with_nothing() {
        let seconds = Duration::from_secs;
        let mut time = RunningTime::from(1000, seconds(10));
        assert_eq!(
            time.at(seconds(500)),
            1000,
            "the first reading is the start"
        );
        assert_eq!(time.at(seconds(503)), 4000);
        assert_eq!(time.at(seconds(7200)), 14_000, "two hours ahead");
        assert_eq!(time.at(seconds(7201)), 15_000);
        assert_eq!(time.at(seconds(504)), 15_000, "and back");
        assert_eq!(time.at(seconds(505)), 16_000);
    }

    #[test]
    fn readings_within_a_millisecond_add_up() {
        let mut time = RunningTime::from(0, Duration::from_secs(10));
        for reading in 0..=10_000 {
            time.at(Duration::from_micros(reading * 300));
        }
        assert_eq!(time.running_ms, 3000);
    }
}
