//! What a plugin is.

use tidings_api::Status;
use tidings_registry::{Draft, Kind};

use crate::write::{PluginSaid, PluginWrite};

/// A plugin: what it fills in, and what it refuses.
pub(crate) trait Plugin: Sync {
    /// True if it looks at the objects of a kind.
    fn concerns(&self, kind: &Kind) -> bool;

    /// Fills in members before webhooks are asked. Returns true if something has changed.
    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        old: Option<&Draft>,
    ) -> Result<bool, Status> {
        let _ = (write, draft, old);
        Ok(false)
    }

    /// Refuses what may not be, after everything is filled in and checked.
    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        old: Option<&Draft>,
        said: &mut PluginSaid,
    ) -> Result<(), Status> {
        let _ = (write, new, old, said);
        Ok(())
    }
}
