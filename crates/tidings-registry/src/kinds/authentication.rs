//! The kinds of the group `authentication.k8s.io`: reviews that tell who a user is. They are answered and not stored.

use crate::model::{Kind, Review};

fn plain() -> Kind {
    Kind {
        group: "authentication.k8s.io".into(),
        go_package: "authentication",
        namespaced: false,
        ..Kind::plain()
    }
}

/// What is posted to the subresource `token` of a service account. It is not served by itself.
pub(crate) fn token_request() -> Kind {
    Kind {
        kind: "TokenRequest".into(),
        plural: "serviceaccounts".into(),
        namespaced: true,
        review: Some(Review::NewToken),
        ..plain()
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            kind: "SelfSubjectReview".into(),
            plural: "selfsubjectreviews".into(),
            review: Some(Review::SelfSubject),
            ..plain()
        },
        Kind {
            kind: "TokenReview".into(),
            plural: "tokenreviews".into(),
            review: Some(Review::Token),
            ..plain()
        },
    ]
}
