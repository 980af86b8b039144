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
