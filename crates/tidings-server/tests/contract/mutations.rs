//! MutatingAdmissionPolicies: what becomes of objects, as in kube-apiserver. `tools/mutations/record` asked it.

use crate::admission::{answer_as, refuse_as};

const RECORDED: &str = include_str!("mutations.json");

#[tokio::test]
async fn policies_change_objects_as_those_of_kube_apiserver() {
    answer_as(RECORDED).await;
}

#[tokio::test]
async fn policies_are_refused_as_kube_apiserver_refuses_them() {
    refuse_as(RECORDED).await;
}
