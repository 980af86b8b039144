//! The files in `deploy/` say what the code says.

use std::fs;
use std::path::Path;

use template_name::{NAME, NAMESPACE, crd, rbac};

fn read(file: &str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file),
    )?)
}

fn check(file: &str, command: &str, derived: &str) -> anyhow::Result<()> {
    assert!(
        read(file)? == derived,
        "{file} is not what the code says any more: renew it with `cargo run -- {command} > {file}`. It has to be:\n{derived}"
    );
    Ok(())
}

#[tokio::test]
async fn the_permissions_are_what_the_controller_needs() -> anyhow::Result<()> {
    check("deploy/rbac.yaml", "rbac", &rbac()?)
}

#[test]
fn the_definition_is_that_of_the_type() -> anyhow::Result<()> {
    check("deploy/crd.yaml", "crd", &crd()?)
}

#[test]
fn the_deployment_runs_where_the_operator_thinks_it_runs() -> anyhow::Result<()> {
    let deployment = read("deploy/deployment.yaml")?;
    for line in [
        format!("  namespace: {NAMESPACE}"),
        format!("      serviceAccountName: {NAME}"),
    ] {
        assert!(
            deployment.lines().any(|known| known == line),
            "deploy/deployment.yaml has no line {line:?}, which src/lib.rs says"
        );
    }
    Ok(())
}
