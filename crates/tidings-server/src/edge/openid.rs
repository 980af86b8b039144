//! The documents for those who check tokens of service accounts: the keys, and where they are.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use tidings_api::Status;
use tidings_identity::{JWKS_PATH, openid_configuration, web_keys};

use super::request::OpenIdDocument;
use super::respond::{self, ResponseBody};
use crate::core::ServiceAccounts;

/// Answers a request for a document.
pub(super) fn answer(
    document: OpenIdDocument,
    accounts: &ServiceAccounts,
) -> Result<Response<ResponseBody>, Status> {
    let (bytes, content_type) = match document {
        OpenIdDocument::Keys => (web_keys(accounts.keys()), "application/jwk-set+json"),
        OpenIdDocument::Configuration => {
            let here = || format!("{}{JWKS_PATH}", accounts.issuer().trim_end_matches('/'));
            let keys_at = accounts.keys_at().map_or_else(here, ToOwned::to_owned);
            let made = openid_configuration(accounts.issuer(), &keys_at, accounts.keys());
            let Some(json) = made else {
                return Ok(respond::page_not_found());
            };
            (json, "application/json")
        }
    };
    let mut response = respond::text(StatusCode::OK, String::from_utf8_lossy(&bytes).into_owned());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=3600"),
    );
    Ok(response)
}
