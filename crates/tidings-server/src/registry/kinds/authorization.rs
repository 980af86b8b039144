//! The kinds of the group `authorization.k8s.io`: who may do what.

use super::{PLAIN, spec, status};
use crate::registry::{Kind, Review};

const AUTHORIZATION: Kind = Kind {
    group: "authorization.k8s.io",
    go_package: "authorization",
    namespaced: false,
    bookmark: r#","spec":{},"status":{"allowed":false}"#,
    ..PLAIN
};

const ALLOWED: &str = r#"{"allowed":false}"#;

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        review: Some(Review::LocalSubjectAccess),
        members: &[
            spec("v1.SubjectAccessReviewSpec"),
            status("v1.SubjectAccessReviewStatus", ALLOWED),
        ],
        ..AUTHORIZATION
    },
    Kind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        review: Some(Review::SelfSubjectAccess),
        members: &[
            spec("v1.SelfSubjectAccessReviewSpec"),
            status("v1.SubjectAccessReviewStatus", ALLOWED),
        ],
        ..AUTHORIZATION
    },
    Kind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        review: Some(Review::SelfSubjectRules),
        members: &[
            spec("v1.SelfSubjectRulesReviewSpec"),
            status(
                "v1.SubjectRulesReviewStatus",
                r#"{"resourceRules":null,"nonResourceRules":null,"incomplete":false}"#,
            ),
        ],
        bookmark: r#","spec":{},"status":{"resourceRules":null,"nonResourceRules":null,"incomplete":false}"#,
        ..AUTHORIZATION
    },
    Kind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        review: Some(Review::SubjectAccess),
        members: &[
            spec("v1.SubjectAccessReviewSpec"),
            status("v1.SubjectAccessReviewStatus", ALLOWED),
        ],
        ..AUTHORIZATION
    },
];
