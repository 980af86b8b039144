//! GET of one object (W68, W69).

use http::StatusCode;
use tidings_api::Status;

use super::{Ask, list, scale};
use crate::api::Inner;
use crate::respond::Answer;

pub(crate) async fn get(api: &Inner, ask: &Ask<'_>) -> Result<Answer, Status> {
    if ask
        .query
        .get("export")
        .is_some_and(tidings_api::go::query_bool)
    {
        let gone = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(Status::bad_request(gone));
    }
    let kind = ask.kind();
    match ask.query.get("resourceVersion").unwrap_or_default() {
        "" => api.refresh(kind).await?,
        "0" => {}
        version => api.reach(kind, list::parse_version(version)?).await?,
    }
    let Some(object) = api.cache(kind).get(&ask.key) else {
        return Err(Status::not_found(kind.group_resource(), ask.key.name()));
    };
    match ask.target.subresource.as_deref() {
        Some("scale") => Ok(Answer::Document(
            StatusCode::OK,
            scale::of(&object, kind)?.to_json()?,
        )),
        _ => Ok(Answer::Object(StatusCode::OK, object)),
    }
}
