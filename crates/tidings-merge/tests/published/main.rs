//! The cases that structured-merge-diff (6.3.3) publishes in its tests, held against this crate.
//!
//! The files in `cases/` have inputs and results, one case a line; the results after each step are those that it computes. Left
//! out are the cases with several versions that are converted into each other, with types that change meanwhile, and of
//! extracting what a manager owns: there is nothing here that does any of it.

mod schema;
mod sets;
mod stories;
mod values;
