//! `CertificateSigningRequest` of `certificates.k8s.io`: entry and table.

use jiff::SignedDuration;
use tidings_json::Value;

use crate::kinds::{names, selectable};
use crate::model::{Kind, NameRule};
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
        ..Kind::plain()
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
