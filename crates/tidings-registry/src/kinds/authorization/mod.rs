//! The kinds of the group `authorization.k8s.io`: reviews that tell what a user may do. They are answered and not stored.

mod access_review;

use crate::model::{Kind, Review};

pub use access_review::check_review;

fn plain() -> Kind {
    Kind {
        group: "authorization.k8s.io".into(),
        go_package: "authorization",
        namespaced: false,
        ..Kind::plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "LocalSubjectAccessReview".into(),
            plural: "localsubjectaccessreviews".into(),
            namespaced: true,
            review: Some(Review::LocalSubjectAccess),
            ..plain()
        },
        Kind {
            kind: "SelfSubjectAccessReview".into(),
            plural: "selfsubjectaccessreviews".into(),
            review: Some(Review::SelfSubjectAccess),
            ..plain()
        },
        Kind {
            kind: "SelfSubjectRulesReview".into(),
            plural: "selfsubjectrulesreviews".into(),
            review: Some(Review::SelfSubjectRules),
            ..plain()
        },
        Kind {
            kind: "SubjectAccessReview".into(),
            plural: "subjectaccessreviews".into(),
            review: Some(Review::SubjectAccess),
            ..plain()
        },
    ]
}
