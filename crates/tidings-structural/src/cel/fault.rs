//! The result of an evaluation, and why there is none.

use super::val::Val;

/// Why an evaluation has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EvalFault {
    /// The expression failed. `||`, `&&` and `all` can still decide without this part.
    Error(String),
    /// The cost limit is exceeded; the evaluation stops.
    Cost,
}

impl From<String> for EvalFault {
    fn from(text: String) -> EvalFault {
        EvalFault::Error(text)
    }
}

/// The value of an expression, or why it has none.
pub(crate) type EvalResult<'a> = Result<Val<'a>, EvalFault>;
