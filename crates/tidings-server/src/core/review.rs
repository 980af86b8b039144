//! POST of a review (SubjectAccessReview, TokenReview, …): a question about who a user is or what they may do. It is answered, not stored.

use bytes::Bytes;
use tidings_api::{Object, Status};
use tidings_json::{Value, json};
use tidings_registry::{Draft, Review, WriteOptions, check_review, track_created};

use super::access::{self, User};
use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::state::Core;

pub(super) fn review(
    core: &Core,
    call: &mut Call,
    review: Review,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    let kind = call.target.kind.clone();
    let mut draft = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &draft.odd)?;
    call.warnings.extend(odd);
    draft.settle_namespace(&kind, call.target.key.namespace())?;
    call.warnings.extend(draft.meta.deduplicate_owners(false));
    draft.check_depth()?;
    track_created(&mut draft, &call.manager(), &clock::now());
    let status = match review {
        Review::SelfSubjectAccess => {
            check_review(&draft, review)?;
            access_status(&draft, call.user.groups())
        }
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            check_review(&draft, review)?;
            let groups = draft.at(&["spec", "groups"]);
            let groups = groups.and_then(Value::as_array).into_iter().flatten();
            let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
            access_status(&draft, &groups)
        }
        Review::SelfSubjectRules => {
            if draft.text(&["spec", "namespace"]).is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            // The answer does not repeat the spec.
            draft = Draft::empty(&kind);
            json!({
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
                "incomplete": false,
            })
        }
        Review::SelfSubject => {
            draft = Draft::empty(&kind);
            draft.meta.creation_timestamp = Some(clock::now());
            json!({ "userInfo": user_info(call.user) })
        }
        Review::Token => token_status(core, &draft)?,
    };
    draft.members.insert("status".into(), status);
    let json = draft.write()?.value().clone();
    let object = Object::parse(json).map_err(Status::internal)?;
    Ok(Answer::Object(ObjectOutcome::Created, object))
}

fn user_info(user: User) -> Value {
    json!({ "username": user.name(), "groups": user.groups() })
}

/// The status of a TokenReview: the user to whom the token belongs.
fn token_status(core: &Core, draft: &Draft) -> Result<Value, Status> {
    let token = draft.text(&["spec", "token"]);
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(Status::bad_request(message));
    }
    let audiences = draft.at(&["spec", "audiences"]).and_then(Value::as_array);
    let audience_matches = audiences.is_none_or(|audiences| {
        let mut all = audiences.iter();
        audiences.is_empty() || all.any(|audience| audience == access::AUDIENCE)
    });
    Ok(if audience_matches && core.authentication().knows(token) {
        json!({ "authenticated": true, "user": user_info(User::Admin), "audiences": [access::AUDIENCE] })
    } else {
        json!({ "user": {}, "error": "invalid bearer token" })
    })
}

/// The status of an access review: whether members of these groups may do what it asks about.
fn access_status(draft: &Draft, groups: &[&str]) -> Value {
    let path = draft.at(&["spec", "nonResourceAttributes"]);
    let path = path.map(|_| draft.text(&["spec", "nonResourceAttributes", "path"]));
    json!({ "allowed": access::allows(groups, path) })
}
