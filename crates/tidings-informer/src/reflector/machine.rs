//! What a reflector does next: a pure function of what it has seen.

use std::time::Duration;

use tidings_api::ResourceVersion;

use crate::source::SourceError;

const BACKOFF_FIRST: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// List: "0" is any state, "" the newest.
    List {
        resource_version: String,
    },
    Watch {
        resource_version: ResourceVersion,
    },
    Wait {
        delay: Duration,
    },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Listed(ResourceVersion),
    /// A watch was open and has ended, cleanly or not, after everything up to `reached`.
    Ended {
        reached: ResourceVersion,
        error: Option<SourceError>,
    },
    /// A list or watch could not be had.
    Failed(SourceError),
    Waited,
}

#[derive(Debug)]
pub(super) struct Machine {
    /// The version that the store reflects; `None` before the first list.
    reached: Option<ResourceVersion>,
    must_list: bool,
    /// The last list at a version failed because of the version: ask for the newest.
    newest: bool,
    delay: Option<Duration>,
    failures: u32,
}

impl Machine {
    pub(super) fn new() -> Machine {
        Machine {
            reached: None,
            must_list: true,
            newest: false,
            delay: None,
            failures: 0,
        }
    }

    pub(super) fn step(&self) -> Step {
        match (self.delay, self.must_list, self.reached) {
            (Some(delay), _, _) => Step::Wait { delay },
            (None, true, _) if self.newest => Step::List {
                resource_version: String::new(),
            },
            (None, true, reached) => Step::List {
                resource_version: reached.unwrap_or_default().to_string(),
            },
            (None, false, reached) => Step::Watch {
                resource_version: reached.unwrap_or_default(),
            },
        }
    }

    pub(super) fn observe(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Waited => self.delay = None,
            Outcome::Listed(version) => {
                self.reached = Some(*version);
                self.must_list = false;
                self.newest = false;
            }
            Outcome::Ended { reached, error } => {
                if self.reached < Some(*reached) {
                    self.failures = 0; // it was of use
                }
                self.reached = Some(*reached);
                if let Some(error) = error {
                    self.failed(error);
                }
            }
            Outcome::Failed(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: &SourceError) {
        if error.version_is_unusable() {
            // A list that fails for its version is repeated without one; a watch leads to a list at its version first.
            self.newest = self.must_list;
            self.must_list = true;
        }
        let doubled = BACKOFF_FIRST * 2_u32.saturating_pow(self.failures.min(10));
        self.delay = Some(doubled.min(BACKOFF_MAX));
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use tidings_api::Status;

    use super::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number)
    }

    fn list(text: &str) -> Step {
        Step::List {
            resource_version: text.into(),
        }
    }

    fn transport() -> Outcome {
        Outcome::Failed(SourceError::Transport("refused".into()))
    }

    #[test]
    fn the_first_list_takes_any_state_and_the_watch_goes_on_from_it() {
        let mut machine = Machine::new();
        assert_eq!(machine.step(), list("0"));
        machine.observe(&Outcome::Listed(version(5)));
        assert_eq!(
            machine.step(),
            Step::Watch {
                resource_version: version(5)
            }
        );
        machine.observe(&Outcome::Ended {
            reached: version(9),
            error: None,
        });
        assert_eq!(
            machine.step(),
            Step::Watch {
                resource_version: version(9)
            },
            "resume, do not list again"
        );
    }

    #[test]
    fn an_expired_watch_lists_at_its_version_and_then_at_the_newest() {
        let mut machine = Machine::new();
        machine.observe(&Outcome::Listed(version(5)));
        let expired = || Some(SourceError::from(Status::expired("too old")));
        machine.observe(&Outcome::Ended {
            reached: version(7),
            error: expired(),
        });
        machine.observe(&Outcome::Waited);
        assert_eq!(machine.step(), list("7"));
        machine.observe(&Outcome::Failed(Status::expired("too old").into()));
        machine.observe(&Outcome::Waited);
        assert_eq!(machine.step(), list(""));
    }

    #[test]
    fn failures_back_off_to_a_bound_and_do_not_lose_the_version() {
        let mut machine = Machine::new();
        machine.observe(&Outcome::Listed(version(5)));
        let mut delays = Vec::new();
        for _ in 0..8 {
            machine.observe(&transport());
            let Step::Wait { delay } = machine.step() else {
                panic!("{:?}", machine.step())
            };
            delays.push(delay.as_millis());
            machine.observe(&Outcome::Waited);
            assert_eq!(
                machine.step(),
                Step::Watch {
                    resource_version: version(5)
                }
            );
        }
        assert_eq!(delays, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    }
}
