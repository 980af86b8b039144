//! GET of one object (W68, W69).

use http::{Response, StatusCode};
use tidings_api::{ObjectKey, Status};

use crate::api::Inner;
use crate::request::{Query, Target};
use crate::respond::{self, ResponseBody};

pub(crate) async fn get(
    api: &Inner,
    target: &Target,
    key: &ObjectKey,
    query: &Query,
) -> Result<Response<ResponseBody>, Status> {
    if query.get("export").is_some_and(tidings_api::go::query_bool) {
        let message = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(Status::bad_request(message));
    }
    let cache = api.cache(target.kind);
    match query.get("resourceVersion").unwrap_or_default() {
        "" => api.refresh(target.kind).await?,
        "0" => {}
        version => {
            api.reach(target.kind, super::list::parse_version(version)?)
                .await?
        }
    }
    match cache.get(key) {
        Some(object) => Ok(respond::object(StatusCode::OK, &object)),
        None => Err(Status::not_found(target.kind.group_resource(), key.name())),
    }
}
