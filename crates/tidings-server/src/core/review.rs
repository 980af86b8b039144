//! POST of a review (SubjectAccessReview, TokenReview, …): a question about who a user is or what they may do. It is answered, not stored.

use bytes::Bytes;
use tidings_access::{Attributes, Decision, PolicyRule, User};
use tidings_api::{FieldSelector, LabelSelector, Object, Status};
use tidings_json::{Map, Value, json};
use tidings_registry::{Draft, Review, WriteOptions, check_review, track_created};

use super::access::{Access, Decider};
use super::answer::{Answer, ObjectOutcome};
use super::call::Call;
use super::clock;
use super::state::Core;
use super::{binding, eviction, token_request};

pub(super) async fn review(
    core: &Core,
    call: &mut Call,
    review: Review,
    options: WriteOptions,
    body: &Bytes,
) -> Result<Answer, Status> {
    match review {
        Review::NewToken => return token_request::issue(core, call, options, body).await,
        Review::Binding => return binding::bind(core, call, options, body).await,
        Review::Eviction => return eviction::evict(core, call, options, body).await,
        _ => {}
    }
    let kind = call.target.kind.clone();
    let mut draft = Draft::read(&kind, body)?;
    let odd = options.validation.odd_fields(&kind, &draft.odd)?;
    call.warnings.extend(odd);
    draft.settle_namespace(&kind, call.target.key.namespace())?;
    call.warnings.extend(draft.meta.deduplicate_owners(false));
    draft.check_depth()?;
    track_created(&mut draft, &call.manager(), &clock::now());
    let access = core.access();
    let status = match review {
        Review::SelfSubjectAccess => {
            check_review(&draft, review)?;
            let decide = |decider: &Decider<'_>| access_status(decider, &draft, &call.user);
            access.decide(decide).await
        }
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            check_review(&draft, review)?;
            let user = asked_user(&draft);
            let decide = |decider: &Decider<'_>| access_status(decider, &draft, &user);
            access.decide(decide).await
        }
        Review::SelfSubjectRules => {
            let namespace = draft.text(&["spec", "namespace"]).to_owned();
            if namespace.is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            // The answer does not repeat the spec.
            draft = Draft::empty(&kind);
            rules_status(access, &call.user, &namespace)
        }
        Review::SelfSubject => {
            draft = Draft::empty(&kind);
            draft.meta.creation_timestamp = Some(clock::now());
            json!({ "userInfo": user_info(&call.user) })
        }
        Review::Token => token_status(core, &draft).await?,
        Review::NewToken | Review::Binding | Review::Eviction => {
            return Err(Status::method_not_allowed());
        }
    };
    draft.members.insert("status".into(), status);
    let json = draft.write()?.value().clone();
    let object = Object::parse(json).map_err(Status::internal)?;
    Ok(Answer::Object(ObjectOutcome::Created, object))
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let values = |(key, values): (&String, &Vec<String>)| (key.clone(), values.clone().into());
        let extra: Map = user.extra.iter().map(values).collect();
        info.insert("extra".into(), extra.into());
    }
    info.into()
}

/// The user whom an access review asks about.
fn asked_user(draft: &Draft) -> User {
    let extra = draft.at(&["spec", "extra"]).and_then(Value::as_object);
    let extra = extra.into_iter().flat_map(Map::keys);
    User {
        name: draft.text(&["spec", "user"]).to_owned(),
        uid: draft.text(&["spec", "uid"]).to_owned(),
        groups: draft.texts(&["spec", "groups"]),
        extra: extra
            .map(|key| (key.clone(), draft.texts(&["spec", "extra", key])))
            .collect(),
    }
}

/// The status of a TokenReview: the user to whom the token belongs.
async fn token_status(core: &Core, draft: &Draft) -> Result<Value, Status> {
    let token = draft.text(&["spec", "token"]);
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(Status::bad_request(message));
    }
    let audiences = draft.texts(&["spec", "audiences"]);
    Ok(match core.user_of_token(token, &audiences).await {
        Ok(known) => json!({
            "authenticated": true,
            "user": user_info(&known.user),
            "audiences": known.audiences,
        }),
        Err(why) => json!({ "user": {}, "error": why }),
    })
}

/// What an access review asks about.
fn attributes<'a>(draft: &'a Draft, user: &'a User) -> Attributes<'a> {
    if draft.at(&["spec", "nonResourceAttributes"]).is_some() {
        let of = |name: &str| draft.text(&["spec", "nonResourceAttributes", name]);
        return Attributes::path(user, of("verb"), of("path"));
    }
    let of = |name: &str| draft.text(&["spec", "resourceAttributes", name]);
    Attributes::resource(user, of("verb"), of("group"), of("resource"))
        .subresource(of("subresource"))
        .in_namespace(of("namespace"))
        .named(of("name"))
        .with_version(of("version"))
        .with_selectors(
            selector_text(draft, "fieldSelector"),
            selector_text(draft, "labelSelector"),
        )
}

/// A selector of a review as text. What cannot be written is left out, which asks for more than is meant.
fn selector_text(draft: &Draft, name: &str) -> String {
    let Some(selector) = draft.at(&["spec", "resourceAttributes", name]) else {
        return String::new();
    };
    if let Some(raw) = selector.get("rawSelector").and_then(Value::as_str) {
        return raw.to_owned();
    }
    let requirements = selector.get("requirements").and_then(Value::as_array);
    let text = |requirement: &Value| {
        let of = |name: &str| requirement.get(name).and_then(Value::as_str);
        let (key, operator) = (of("key")?, of("operator")?);
        let values = requirement.get("values").and_then(Value::as_array);
        let values = values.into_iter().flatten().filter_map(Value::as_str);
        let values: Vec<&str> = values.collect();
        match (name, operator, values.as_slice()) {
            ("fieldSelector", "In", [value]) => Some(format!("{key}={}", escaped(value))),
            ("fieldSelector", "NotIn", [value]) => Some(format!("{key}!={}", escaped(value))),
            ("fieldSelector", ..) => None,
            (_, "In", values) => Some(format!("{key} in ({})", values.join(","))),
            (_, "NotIn", values) => Some(format!("{key} notin ({})", values.join(","))),
            (_, "Exists", _) => Some(key.to_owned()),
            (_, "DoesNotExist", _) => Some(format!("!{key}")),
            _ => None,
        }
    };
    let texts = requirements.into_iter().flatten().filter_map(text);
    texts.collect::<Vec<_>>().join(",")
}

/// A value of a field selector.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=")
}

/// The status of an access review: whether a user may do what it asks about.
fn access_status(decider: &Decider<'_>, draft: &Draft, user: &User) -> Value {
    let verdict = decider.authorize(&attributes(draft, user));
    let mut status = Map::new();
    status.insert("allowed".into(), verdict.is_allowed().into());
    if verdict.decision == Decision::Deny {
        status.insert("denied".into(), true.into());
    }
    if !verdict.reason.is_empty() {
        status.insert("reason".into(), verdict.reason.into());
    }
    let ignored = ["fieldSelector", "labelSelector"].into_iter();
    let ignored = ignored.filter_map(|name| ignored_selector(draft, name));
    let mut errors: Vec<String> = ignored.collect();
    if !verdict.error.is_empty() {
        errors.insert(0, verdict.error);
    }
    if !errors.is_empty() {
        status.insert("evaluationError".into(), errors.join("; ").into());
    }
    status.into()
}

/// What is said of a selector that nobody understands: it is ignored, which asks for more than is meant.
fn ignored_selector(draft: &Draft, name: &str) -> Option<String> {
    let selector = draft.at(&["spec", "resourceAttributes", name])?;
    let is_label = name == "labelSelector";
    let raw = selector.get("rawSelector").and_then(Value::as_str);
    let raw = raw.unwrap_or_default();
    let is_readable = match is_label {
        true => LabelSelector::parse(raw).is_ok(),
        false => FieldSelector::parse(raw).is_ok(),
    };
    let requirements = selector.get("requirements").and_then(Value::as_array);
    let requirements = requirements.map(Vec::as_slice).unwrap_or_default();
    let is_known = |requirement: &&Value| {
        let operator = requirement.get("operator").and_then(Value::as_str);
        let values = requirement.get("values").and_then(Value::as_array);
        match (is_label, operator.unwrap_or_default()) {
            (true, operator) => ["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator),
            (false, "In" | "NotIn") => values.is_some_and(|values| values.len() == 1),
            (false, _) => false,
        }
    };
    let known = requirements.iter().filter(is_known).count();
    let how = match (raw.is_empty() || is_readable, known, requirements.len()) {
        (true, known, all) if known == all => return None,
        (_, 0, _) => "ignored",
        _ => "partially ignored",
    };
    Some(format!(
        "spec.resourceAttributes.{name} {how} due to parse error"
    ))
}

/// The status of a SelfSubjectRulesReview: everything that a user may do in a namespace.
fn rules_status(access: &Access, user: &User, namespace: &str) -> Value {
    let (rules, error) = access.rules_for(user, namespace);
    let resource_rule = |rule: &PolicyRule| {
        let mut shown = Map::new();
        shown.insert("verbs".into(), rule.verbs.clone().into());
        for (name, values) in [
            ("apiGroups", &rule.api_groups),
            ("resources", &rule.resources),
            ("resourceNames", &rule.resource_names),
        ] {
            if !values.is_empty() {
                shown.insert(name.into(), values.clone().into());
            }
        }
        Value::from(shown)
    };
    let of_resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    let of_paths = rules.iter().filter(|rule| !rule.paths.is_empty());
    let path_rule =
        |rule: &PolicyRule| json!({ "verbs": rule.verbs, "nonResourceURLs": rule.paths });
    let mut status = json!({
        "resourceRules": of_resources.map(resource_rule).collect::<Vec<Value>>(),
        "nonResourceRules": of_paths.map(path_rule).collect::<Vec<Value>>(),
        // Nobody can list what a webhook would allow.
        "incomplete": access.asks_webhook(),
    });
    if let Some(error) = error {
        status["evaluationError"] = error.into();
    }
    status
}
