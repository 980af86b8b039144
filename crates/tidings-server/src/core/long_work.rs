//! Work that takes longer than other requests should wait.

use tidings_api::{FieldErrors, Status};
use tidings_registry::{Draft, Kind, Subresource};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work of more than a millisecond. A thread of the runtime gives its other tasks to another thread first; a runtime with one thread has
/// none to give them to.
pub(crate) fn do_long_work<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::CurrentThread) | Err(_) => work(),
        Ok(_) => tokio::task::block_in_place(work),
    }
}

/// Compiles the schemas that a command needs. Reading needs none, unless objects are stored in another version.
pub(super) fn compile(kind: &Kind, writes: bool) {
    if let Some(custom) = &kind.custom
        && (writes || !custom.version().storage)
        && !custom.is_compiled()
    {
        do_long_work(|| custom.compile());
    }
}

/// Refuses a draft that breaks the rules of its kind. `old` is the object that it replaces.
pub(super) fn check(
    kind: &Kind,
    name: &str,
    new: &Draft,
    old: Option<&Draft>,
    subresource: Option<Subresource>,
) -> Result<(), Status> {
    let mut errors = FieldErrors::new();
    let mut validate = || new.validate(kind, old, subresource, &mut errors);
    match kind.strategy.is_slow_to_check() {
        true => do_long_work(&mut validate),
        false => validate(),
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(kind.group_version_kind(), name, &errors))
}
