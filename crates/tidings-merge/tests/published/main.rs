//! Runs the published test cases of structured-merge-diff 6.3.3 against this crate.
//!
//! The files in `cases/` have inputs and results, one case per line; structured-merge-diff computed the results of each step.
//! Cases that convert between versions, change types between writes or extract a manager's fields are left out, because this
//! crate has no such functions.

mod schema;
mod sets;
mod stories;
mod values;
