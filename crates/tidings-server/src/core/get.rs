//! GET of one object (W68, W69).

use tidings_api::{ResourceVersion, Status};
use tidings_registry::{ScaleView, Subresource};

use super::answer::{Answer, ObjectOutcome};
use super::call::Call;

pub(super) async fn get(call: &Call, version: Option<ResourceVersion>) -> Result<Answer, Status> {
    let target = &call.target;
    let resource = target.resource()?;
    match version {
        None => resource.refresh().await?,
        Some(version) if version == ResourceVersion::default() => {}
        Some(version) => resource.reach(version).await?,
    }
    let object = resource
        .get(&target.key)
        .ok_or_else(|| target.not_found())?;
    let object = match target.kind.is_converted_by_webhook() {
        true => Box::pin(resource.in_version(&target.kind, object)).await?,
        false => object,
    };
    match target.subresource {
        Some(Subresource::Scale) => {
            let scale = ScaleView::of(&object, &target.kind)?;
            Ok(Answer::Document(scale.to_json()?))
        }
        _ => Ok(Answer::Object(ObjectOutcome::Existing, object)),
    }
}
