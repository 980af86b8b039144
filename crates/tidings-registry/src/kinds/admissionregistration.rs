//! The kinds of the group `admissionregistration.k8s.io`.

use crate::complete::{TypeDefaults, defaults};
use crate::kind::{Generation, Kind};
use crate::kinds::names;
use crate::printers::admissionregistration as printers;

fn plain() -> Kind {
    Kind {
        group: "admissionregistration.k8s.io".into(),
        categories: names(["api-extensions"]),
        go_package: "admissionregistration",
        namespaced: false,
        generation: Generation::Counted,
        conditional_update: true,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "MutatingAdmissionPolicy".into(),
            plural: "mutatingadmissionpolicies".into(),
            printer: &printers::MUTATING_ADMISSION_POLICY,
            ..plain()
        },
        Kind {
            kind: "MutatingAdmissionPolicyBinding".into(),
            plural: "mutatingadmissionpolicybindings".into(),
            printer: &printers::MUTATING_ADMISSION_POLICY_BINDING,
            ..plain()
        },
        Kind {
            kind: "MutatingWebhookConfiguration".into(),
            plural: "mutatingwebhookconfigurations".into(),
            printer: &printers::MUTATING_WEBHOOK_CONFIGURATION,
            ..plain()
        },
        Kind {
            kind: "ValidatingAdmissionPolicy".into(),
            plural: "validatingadmissionpolicies".into(),
            printer: &printers::VALIDATING_ADMISSION_POLICY,
            status: true, // unlike a mutating policy
            ..plain()
        },
        Kind {
            kind: "ValidatingAdmissionPolicyBinding".into(),
            plural: "validatingadmissionpolicybindings".into(),
            printer: &printers::VALIDATING_ADMISSION_POLICY_BINDING,
            ..plain()
        },
        Kind {
            kind: "ValidatingWebhookConfiguration".into(),
            plural: "validatingwebhookconfigurations".into(),
            printer: &printers::VALIDATING_WEBHOOK_CONFIGURATION,
            ..plain()
        },
    ]
}

const FAIL: &[(&str, &str)] = &[("failurePolicy", r#""Fail""#)];
const RULE_SCOPE: &[(&str, &str)] = &[("scope", r#""*""#)];

pub(super) const DEFAULTS: &[TypeDefaults] = &[
    defaults(
        "admissionregistration/v1.MatchResources",
        &[
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
        ],
    ),
    defaults("admissionregistration/v1.MutatingAdmissionPolicySpec", FAIL),
    defaults(
        "admissionregistration/v1.MutatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
            ("reinvocationPolicy", r#""Never""#),
        ],
    ),
    defaults("admissionregistration/v1.Rule", RULE_SCOPE),
    defaults("admissionregistration/v1.RuleWithOperations", RULE_SCOPE),
    defaults(
        "admissionregistration/v1.NamedRuleWithOperations",
        RULE_SCOPE,
    ),
    defaults(
        "admissionregistration/v1.ServiceReference",
        &[("port", "443")],
    ),
    defaults(
        "admissionregistration/v1.ValidatingAdmissionPolicySpec",
        FAIL,
    ),
    defaults(
        "admissionregistration/v1.ValidatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
        ],
    ),
];
