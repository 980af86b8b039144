//! The kinds of the group `admissionregistration.k8s.io`.

use super::{PLAIN, member, spec, status};
use crate::printers::admissionregistration;
use crate::registry::{Generation, Kind, Shape};

const ADMISSION: Kind = Kind {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    go_package: "admissionregistration",
    namespaced: false,
    generation: Generation::Counted,
    conditional_update: true,
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        printer: &admissionregistration::MUTATING_ADMISSION_POLICY,
        members: &[spec("v1.MutatingAdmissionPolicySpec")],
        bookmark: r#","spec":{}"#,
        ..ADMISSION
    },
    Kind {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        printer: &admissionregistration::MUTATING_ADMISSION_POLICY_BINDING,
        members: &[spec("v1.MutatingAdmissionPolicyBindingSpec")],
        bookmark: r#","spec":{}"#,
        ..ADMISSION
    },
    Kind {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        printer: &admissionregistration::MUTATING_WEBHOOK_CONFIGURATION,
        members: &[member("webhooks", Shape::Array("[]v1.MutatingWebhook"), "")],
        ..ADMISSION
    },
    Kind {
        // Unlike its mutating sister it has a status.
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        printer: &admissionregistration::VALIDATING_ADMISSION_POLICY,
        members: &[
            spec("v1.ValidatingAdmissionPolicySpec"),
            status("v1.ValidatingAdmissionPolicyStatus", "{}"),
        ],
        status: true,
        bookmark: r#","spec":{},"status":{}"#,
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        printer: &admissionregistration::VALIDATING_ADMISSION_POLICY_BINDING,
        members: &[spec("v1.ValidatingAdmissionPolicyBindingSpec")],
        bookmark: r#","spec":{}"#,
        ..ADMISSION
    },
    Kind {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        printer: &admissionregistration::VALIDATING_WEBHOOK_CONFIGURATION,
        members: &[member(
            "webhooks",
            Shape::Array("[]v1.ValidatingWebhook"),
            "",
        )],
        ..ADMISSION
    },
];
