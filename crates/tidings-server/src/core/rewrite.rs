//! Changes of stored objects that the server makes itself: they are not checked as those of clients are, and nobody owns what they change.

use tidings_api::{Object, ObjectKey, Status};
use tidings_json::{Map, Value};
use tidings_registry::Draft;

use super::resource::{ObjectWrite, Resource};

/// Makes the next state of an object; `None` if it stays as it is.
pub(super) type RewriteFn<'a> =
    &'a (dyn Fn(&Object) -> Result<Option<Draft>, Status> + Send + Sync);

/// Replaces an object by what `next` makes of it. Tries again if another write was faster. `None` if the object does not exist.
pub(super) async fn rewrite(
    resource: &Resource,
    key: &ObjectKey,
    next: RewriteFn<'_>,
) -> Result<Option<Object>, Status> {
    loop {
        let Some(existing) = resource.current(key).await? else {
            return Ok(None);
        };
        let at = existing.revision();
        let next = match next(&existing) {
            Ok(None) => return Ok(Some(existing)),
            Ok(Some(mut draft)) => {
                draft.complete();
                let written = draft.write()?;
                drop(draft);
                let update = ObjectWrite::Update(at, &written);
                let written = resource.commit(&resource.kind, key, update).await?;
                if written.is_some() {
                    return Ok(written);
                }
                None
            }
            Err(status) => Some(status),
        };
        // Another write was faster, or it was refused because the cache was behind.
        resource.refresh().await?;
        let fresh = resource.get(key).map(|fresh| fresh.revision());
        if let (Some(status), true) = (next, fresh == Some(at)) {
            return Err(status);
        }
    }
}

/// Sets a condition in the status of an object. The time of its last transition stays if it says what it said.
pub(super) fn set_condition(draft: &mut Draft, mut condition: Value, now: &str) {
    let status = draft.members.entry("status");
    let status = status.or_insert_with(|| Value::Object(Map::new()));
    if status["conditions"].is_null() {
        status["conditions"] = Value::Array(Vec::new());
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    let same = |known: &Value, member: &str| known[member] == condition[member];
    let at = conditions.iter().position(|known| same(known, "type"));
    let known = at.map(|at| &conditions[at]);
    let since = match known.filter(|known| same(known, "status")) {
        Some(known) => known["lastTransitionTime"].clone(),
        None => now.into(),
    };
    condition["lastTransitionTime"] = since;
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}
