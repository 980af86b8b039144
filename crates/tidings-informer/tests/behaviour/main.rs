//! How informers behave: points B1 to B110 and B133 to B148 of the informer contract, its defects D1 to D29, and the list K1 to
//! K20 of what kube-rs lacks, by the names of the tests.
#![cfg(not(feature = "shuttle"))] // shuttle's locks work only inside shuttle's tests
#![allow(clippy::unwrap_used)]

mod faults;
mod informer;
mod metrics;
mod model;
mod pager;
mod queue;
mod reflector;
mod store;
mod support;
