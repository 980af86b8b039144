//! Custom resources (W177–W187): kinds that definitions bring, change and take away while the server runs.
//!
//! A definition is read and checked by `tidings-structural`. The [`Controller`] follows the definitions: it accepts their names,
//! opens a cache for their objects, and replaces the set of what is served. Each version of a definition is a [`Kind`] that
//! stays the same as long as its names do; what else the definition says of it is [`Live`], and can change under requests and
//! watches that are open.
//!
//! An object is stored in the version that was the storage version when it was written. The cache has it as the schema of that
//! version reads it now, pruned and with its defaults; other versions are made of that when they are asked for.

mod columns;
mod control;
mod kinds;
mod object;

pub(crate) use columns::{cells, definitions as column_definitions};
pub(crate) use control::{Controller, serves, warnings};
pub(crate) use kinds::{Custom, Form, Live, Reader};
pub(crate) use object::{as_seen, check_type};
