//! The kinds of the group `authentication.k8s.io`: who somebody is.

use super::{PLAIN, spec, status};
use crate::registry::{Kind, Review};

const AUTHENTICATION: Kind = Kind {
    group: "authentication.k8s.io",
    go_package: "authentication",
    namespaced: false,
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        review: Some(Review::SelfSubject),
        members: &[status("v1.SelfSubjectReviewStatus", r#"{"userInfo":{}}"#)],
        bookmark: r#","status":{"userInfo":{}}"#,
        ..AUTHENTICATION
    },
    Kind {
        kind: "TokenReview",
        plural: "tokenreviews",
        review: Some(Review::Token),
        members: &[
            spec("v1.TokenReviewSpec"),
            status("v1.TokenReviewStatus", r#"{"user":{}}"#),
        ],
        bookmark: r#","spec":{},"status":{"user":{}}"#,
        ..AUTHENTICATION
    },
];
