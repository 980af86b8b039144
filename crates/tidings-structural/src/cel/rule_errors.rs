//! The errors of a rule. A rule can be wrong at each of its characters, and each error repeats a line: their text is bounded as
//! upstream bounds it.

/// Further errors are only counted.
pub(crate) const ERRORS_MAX: usize = 100;

/// The first errors of a rule, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct RuleErrors {
    told: Vec<String>,
    truncated: usize,
}

impl RuleErrors {
    /// Adds an error. Its text is made only if it is told.
    pub(crate) fn push(&mut self, text: impl FnOnce() -> String) {
        if self.told.len() < ERRORS_MAX {
            self.told.push(text());
        } else {
            self.truncated += 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.told.len() + self.truncated
    }

    /// All errors as one text.
    pub(crate) fn into_text(mut self) -> String {
        if self.truncated > 0 {
            let more = format!("{} more errors were truncated", self.truncated);
            self.told.push(more);
        }
        self.told.join("\n")
    }
}
