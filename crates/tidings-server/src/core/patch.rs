//! PATCH: JSON patch, merge patch, strategic merge patch (W149-W153).

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tidings_api::Status;
use tidings_registry::{Patch, PatchTarget, PatchType, WriteOptions};

use super::answer::Answer;
use super::call::Call;
use super::edit;

pub(super) async fn patch(
    call: &mut Call,
    options: WriteOptions,
    patch_type: PatchType,
    body: &Bytes,
) -> Result<Answer, Status> {
    let target = &call.target;
    // As in kube-apiserver, 404 comes before errors in the body.
    if target.resource()?.current(&target.key).await?.is_none() {
        return Err(target.not_found());
    }
    let patch = Patch::read(patch_type, body, options.validation)?;
    let target = PatchTarget {
        kind: &target.kind,
        key: &target.key,
        subresource: target.subresource,
    };
    // The patch may be applied several times; the warnings of the last attempt count.
    let warnings = Mutex::new(Vec::new());
    let answer = edit::change(call, options, &|existing| {
        let (draft, found) = patch.apply(&target, existing)?;
        *warnings.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(draft)
    })
    .await;
    let warnings = warnings.into_inner();
    call.warnings
        .extend(warnings.unwrap_or_else(PoisonError::into_inner));
    answer
}
