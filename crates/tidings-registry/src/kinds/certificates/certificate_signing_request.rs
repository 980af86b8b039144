//! `CertificateSigningRequest` of `certificates.k8s.io`: entry, rules and table.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::SignedDuration;
use tidings_api::{FieldError, FieldErrors, validate};
use tidings_go::quote;
use tidings_json::{Map, Value};

use super::request::{check_certificates, read_request};
use crate::kinds::{names, selectable};
use crate::model::{Draft, Kind, NameRule, Strategy, Subresource};
use crate::table::fields::{field, list, name, nonempty, text};
use crate::table::format::{age, human_duration};
use crate::table::{AGE, NAME, TablePrinter, string};

pub(super) fn kind() -> Kind {
    Kind {
        group: "certificates.k8s.io".into(),
        kind: "CertificateSigningRequest".into(),
        plural: "certificatesigningrequests".into(),
        printer: &PRINTER,
        short_names: names(["csr"]),
        go_package: "certificates",
        namespaced: false,
        fields: vec![selectable("spec.signerName", &[&["spec", "signerName"]])],
        name_rule: NameRule::Segment,
        status: true,
        own_parts: &[Subresource::Approval],
        strategy: Arc::new(CertificateRequestStrategy),
        ..Kind::plain()
    }
}

/// The conditions by which a request is decided.
const DECIDED: [&str; 2] = ["Approved", "Denied"];
/// The conditions that stay.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
/// The signer of the version v1beta1, which nobody may name any more.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The shortest life of a certificate that may be asked for.
const LIFE_SECONDS_MIN: i64 = 600;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

#[derive(Debug)]
struct CertificateRequestStrategy;

fn conditions(draft: &Draft) -> &[Value] {
    let conditions = draft
        .at(&["status", "conditions"])
        .and_then(Value::as_array);
    conditions.map(Vec::as_slice).unwrap_or_default()
}

fn of_type<'d>(draft: &'d Draft, kind: &str) -> Vec<&'d Value> {
    let all = conditions(draft).iter();
    all.filter(|condition| text(condition, &["type"]) == kind)
        .collect()
}

impl Strategy for CertificateRequestStrategy {
    fn prepare_create(&self, draft: &mut Draft) {
        draft.members.insert("status".into(), Map::new().into());
    }

    fn prepare_update(&self, new: &mut Draft, old: &Draft, part: Option<Subresource>) {
        let status = |draft: &Draft| draft.members.get("status").cloned();
        match part {
            Some(Subresource::Approval) => {
                let conditions = new.at(&["status", "conditions"]).cloned();
                new.members.clone_from(&old.members);
                let mut status = match status(old) {
                    Some(Value::Object(status)) => status,
                    _ => Map::new(),
                };
                status.remove("conditions");
                if let Some(conditions) = conditions {
                    status.insert("conditions".into(), conditions);
                }
                new.members.insert("status".into(), status.into());
            }
            // Those are kept as they are, unless one is added or removed, which is refused.
            Some(Subresource::Status) => {
                for kind in DECIDED {
                    let before: Vec<Value> = of_type(old, kind).into_iter().cloned().collect();
                    if before.len() != of_type(new, kind).len() {
                        continue;
                    }
                    let status = new.members.get_mut("status");
                    let all = status.and_then(|status| status.get_mut("conditions"));
                    let all = all.and_then(Value::as_array_mut).into_iter().flatten();
                    let same = all.filter(|condition| text(condition, &["type"]) == kind);
                    same.zip(before).for_each(|(now, before)| *now = before);
                }
            }
            // The rest is fixed once it is there.
            _ => new.members.clone_from(&old.members),
        }
    }

    fn check(
        &self,
        new: &Draft,
        old: Option<&Draft>,
        part: Option<Subresource>,
        errors: &mut FieldErrors,
    ) {
        if old.is_none_or(|old| old.at(&["spec"]) != new.at(&["spec"])) {
            check_spec(new, errors);
        }
        check_conditions(new, old, errors);
        let certificate = |draft: &Draft| draft.text(&["status", "certificate"]).to_owned();
        let (issued, before) = (certificate(new), old.map(certificate).unwrap_or_default());
        if issued != before
            && let Err(why) = check_certificates(&issued)
        {
            let path = "status.certificate";
            errors.push(FieldError::invalid(path, "<certificate data>", why));
        }
        let Some(old) = old else { return };
        check_changed_conditions(new, old, part, errors);
        if issued != before {
            let why = match (part, before.is_empty()) {
                (Some(Subresource::Status), true) => return,
                (Some(Subresource::Status), false) => {
                    "updates may not modify existing certificate content"
                }
                _ => "updates may not set certificate content",
            };
            errors.push(FieldError::forbidden("status.certificate", why));
        }
    }
}

fn check_spec(new: &Draft, errors: &mut FieldErrors) {
    let request = new.text(&["spec", "request"]);
    if let Err(why) = read_request(request) {
        errors.push(FieldError::invalid_value(
            "spec.request",
            go_bytes(request),
            why,
        ));
    }
    let usages = new.texts(&["spec", "usages"]);
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&usage.as_str()) {
            let path = format!("spec.usages[{at}]");
            errors.push(FieldError::not_supported(path, quote(usage), &USAGES));
        }
    }
    let mut seen = HashSet::new();
    for (at, usage) in usages.iter().enumerate() {
        if !seen.insert(usage) {
            let path = format!("spec.usages[{at}]");
            errors.push(FieldError::duplicate(path, usage));
        }
    }
    check_signer(new.text(&["spec", "signerName"]), errors);
    let seconds = new
        .at(&["spec", "expirationSeconds"])
        .and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < LIFE_SECONDS_MIN) {
        errors.push(FieldError::invalid_value(
            "spec.expirationSeconds",
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        ));
    }
}

/// Bytes as Go shows them.
fn go_bytes(base64: &str) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64);
    let bytes: Vec<String> = bytes
        .unwrap_or_default()
        .iter()
        .map(|byte| format!("0x{byte:x}"))
        .collect();
    format!("[]byte{{{}}}", bytes.join(", "))
}

fn check_signer(signer: &str, errors: &mut FieldErrors) {
    let path = "spec.signerName";
    if signer == LEGACY_SIGNER {
        let why = "the legacy signerName is not allowed via this API version";
        return errors.push(FieldError::invalid(path, signer, why));
    }
    if signer.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    let Some((domain, name)) = signer
        .split_once('/')
        .filter(|(_, name)| !name.contains('/'))
    else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.push(FieldError::invalid(path, signer, why));
    };
    let wrong = domain.split('.').find_map(|label| {
        let why = validate::dns1123_label(label);
        (!why.is_empty()).then_some((label, why))
    });
    for why in wrong.iter().flat_map(|(_, why)| why) {
        let label = quote(wrong.as_ref().map_or("", |(label, _)| label));
        let why = format!("validating label {label}: {why}");
        errors.push(FieldError::invalid(path, domain, why));
    }
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, why));
    }
    let wrong = name.split('.').find_map(|label| {
        let why = validate::dns1123_subdomain(label);
        (!why.is_empty()).then_some((label, why))
    });
    for why in wrong.iter().flat_map(|(_, why)| why) {
        let label = quote(wrong.as_ref().map_or("", |(label, _)| label));
        let why = format!("validating label {label}: {why}");
        errors.push(FieldError::invalid(path, name, why));
    }
}

fn check_conditions(new: &Draft, old: Option<&Draft>, errors: &mut FieldErrors) {
    let both = |draft: &Draft| DECIDED.iter().all(|kind| !of_type(draft, kind).is_empty());
    let (mut seen, mut decided) = (HashSet::new(), HashSet::new());
    for (at, condition) in conditions(new).iter().enumerate() {
        let path = |name: &str| format!("status.conditions[{at}].{name}");
        let (kind, status) = (text(condition, &["type"]), text(condition, &["status"]));
        if kind.is_empty() {
            errors.push(FieldError::required(path("type"), ""));
        }
        let allowed: &[&str] = match LASTING.contains(&kind) {
            true => &["True"],
            false => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.push(FieldError::required(path("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(
                path("status"),
                quote(status),
                allowed,
            ));
        }
        if DECIDED.contains(&kind) {
            decided.insert(kind);
            if decided.len() == DECIDED.len() && !old.is_some_and(both) {
                errors.push(FieldError::invalid(
                    "status.conditions",
                    kind,
                    "Approved and Denied conditions are mutually exclusive",
                ));
            }
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(path("type"), kind));
        }
    }
}

fn check_changed_conditions(
    new: &Draft,
    old: &Draft,
    part: Option<Subresource>,
    errors: &mut FieldErrors,
) {
    let path = "status.conditions";
    for kind in LASTING {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            let why = format!("updates may not remove a condition of type {}", quote(kind));
            errors.push(FieldError::forbidden(path, why));
        }
    }
    if part == Some(Subresource::Approval) {
        return;
    }
    for kind in DECIDED {
        let (now, before) = (of_type(new, kind), of_type(old, kind));
        let what = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if now != before => "modify",
            _ => continue,
        };
        let why = format!("updates may not {what} a condition of type {}", quote(kind));
        errors.push(FieldError::forbidden(path, why));
    }
}

static PRINTER: TablePrinter = TablePrinter {
    columns: &[
        NAME,
        AGE,
        string("SignerName", "Who is asked to sign."),
        string("Requestor", "Who asked."),
        string("RequestedDuration", "How long the certificate shall last."),
        string("Condition", "How far the request has come."),
    ],
    cells: |object, now| {
        let duration = match field(object, &["spec", "expirationSeconds"]).and_then(Value::as_i64) {
            Some(seconds) => human_duration(SignedDuration::from_secs(seconds)),
            None => "<none>".to_string(),
        };
        cells![
            name(object),
            age(object, now),
            nonempty(text(object, &["spec", "signerName"]), "<none>"),
            text(object, &["spec", "username"]),
            duration,
            condition(object),
        ]
    },
};

fn condition(request: &Value) -> String {
    let has = |kind| {
        list(request, &["status", "conditions"])
            .iter()
            .any(|item| text(item, &["type"]) == kind)
    };
    // A request that is both denied and approved counts as denied.
    let mut condition = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_string();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(request, &["status", "certificate"]).is_empty() {
        condition.push_str(",Issued");
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{meta, print};
    use tidings_json::json;

    #[test]
    fn signing_requests() {
        let mut request = json!({
            "metadata": meta("csr"),
            "spec": {"signerName": "x.io/s", "username": "admin"},
        });
        assert_eq!(
            print(&PRINTER, request.clone()),
            json!(["csr", "24s", "x.io/s", "admin", "<none>", "Pending"])
        );
        request["spec"]["expirationSeconds"] = json!(86400);
        request["status"] = json!({"conditions": [{"type": "Approved"}, {"type": "Failed"}]});
        assert_eq!(
            print(&PRINTER, request.clone()),
            json!(["csr", "24s", "x.io/s", "admin", "24h", "Approved,Failed"])
        );
        request["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": "AAAA"});
        assert_eq!(print(&PRINTER, request)[5], "Approved,Issued");
    }
}
