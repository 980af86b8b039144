//! `tidings new` as a user sees it: the project compiles and passes its tests, and what cannot be made is refused.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tidings_new(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.arg("new").args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Makes a project that uses the source of this repository.
///
/// Always in the same folder, so that the next run compiles less and leaves nothing more behind. The folder is in the workspace: the project has to be one of its own.
fn project(name: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new");
    fs::create_dir_all(&folder).unwrap();
    let project = folder.join(name);
    if project.exists() {
        fs::remove_dir_all(&project).unwrap();
    }
    let source = fs::canonicalize(WORKSPACE).unwrap();
    let mut all = vec![name, "--path", source.to_str().unwrap()];
    all.extend(arguments);
    let made = tidings_new(&folder, &all);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let said = text(&made.stdout);
    assert!(said.contains(&format!("cd {name}\n")), "{said}");
    assert!(!said.contains("not published"), "{said}");
    // The versions of dependencies that are here already.
    fs::copy(source.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    project
}

/// Runs cargo on a project. It shares the target folder and the profile of the workspace, so that few dependencies are compiled again.
fn cargo(project: &Path, arguments: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_NET_OFFLINE", "true");
    command.output().unwrap()
}

#[test]
fn a_new_project_compiles_and_passes_its_tests() {
    let project = project("website", &["--kind", "Website"]);
    let formatted = cargo(&project, &["fmt", "--check"]);
    assert!(formatted.status.success(), "{}", text(&formatted.stdout));
    let tested = cargo(&project, &["test"]);
    let (out, beside) = (text(&tested.stdout), text(&tested.stderr));
    assert!(tested.status.success(), "{out}{beside}");
    assert!(!beside.contains("warning"), "{beside}");
    for name in [
        "a_config_map_follows_its_owner",
        "the_permissions_are_what_the_controller_needs",
        "the_definition_is_that_of_the_type",
    ] {
        assert!(out.contains(&format!("test {name} ... ok")), "{out}");
    }

    // A file that is old is told with the command that renews it.
    let path = project.join("deploy/rbac.yaml");
    let permissions = fs::read_to_string(&path).unwrap();
    fs::write(&path, permissions.replace("create, patch, delete", "patch")).unwrap();
    let tested = cargo(&project, &["test", "--test", "manifests"]);
    assert!(!tested.status.success());
    let told = text(&tested.stdout);
    assert!(
        told.contains("`cargo run -- rbac > deploy/rbac.yaml`"),
        "{told}"
    );
    let renewed = cargo(&project, &["run", "--", "rbac"]);
    assert_eq!(text(&renewed.stdout), permissions);
}

#[test]
fn other_names_have_manifests_that_are_true_too() {
    let names = [
        "--kind",
        "DNSProxy",
        "--group",
        "a-2.shop.example",
        "--version",
        "v2beta1",
    ];
    let project = project("my-shop-2", &names);
    let tested = cargo(&project, &["test", "--test", "manifests"]);
    let (out, beside) = (text(&tested.stdout), text(&tested.stderr));
    assert!(tested.status.success(), "{out}{beside}");
    assert!(out.contains("3 passed"), "{out}");
    let definition = fs::read_to_string(project.join("deploy/crd.yaml")).unwrap();
    assert!(
        definition.contains("name: dnsproxies.a-2.shop.example\n"),
        "{definition}"
    );
}

#[test]
fn dependencies_are_on_a_folder_seen_from_the_project_or_on_a_version() {
    let here = tempfile::tempdir().unwrap();
    let crates = here.path().join("source/crates/tidings");
    fs::create_dir_all(&crates).unwrap();
    fs::write(crates.join("Cargo.toml"), "").unwrap();
    let manifest = |name: &str| {
        let text = fs::read_to_string(here.path().join(name).join("Cargo.toml"));
        text.unwrap()
    };
    let made = tidings_new(here.path(), &["a", "--kind", "A", "--path", "source"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let first = manifest("a");
    assert!(
        first.contains("tidings = { path = \"../source/crates/tidings\", "),
        "{first}"
    );
    assert!(!first.contains("[workspace]"), "{first}");

    let made = tidings_new(here.path(), &["b", "--kind", "B"]);
    let said = text(&made.stdout);
    assert!(
        said.contains("not published yet") && said.contains("--path DIR"),
        "{said}"
    );
    let second = manifest("b");
    assert!(second.contains("tidings = { version = \"0."), "{second}");
}

/// The names of what is in a folder.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_changes() {
    let here = tempfile::tempdir().unwrap();
    let full = here.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("precious"), "mine").unwrap();
    fs::write(here.path().join("file"), "mine").unwrap();
    fs::create_dir(here.path().join("empty")).unwrap();
    // Looks like an empty folder, but a folder cannot be put in its place: the last step fails.
    std::os::unix::fs::symlink("empty", here.path().join("link")).unwrap();
    let before = entries(here.path());
    for (arguments, hint) in [
        (
            &["full", "--kind", "Website"][..],
            "full is not empty: choose another name",
        ),
        (
            &["file", "--kind", "Website"],
            "file is a file: choose another name",
        ),
        (
            &["link", "--kind", "Website"],
            "the project link was not made",
        ),
        (&["Web", "--kind", "Website"], "lower case letters"),
        (&["../web", "--kind", "Website"], "is a path"),
        (&["web", "--kind", "web-site"], "for example WebSite"),
        (
            &["web", "--kind", "Website", "--group", "example"],
            "at least one dot",
        ),
        (&["web", "--kind", "Website", "--version", "1"], "like v1"),
        (
            &["web", "--kind", "Website", "--path", "empty"],
            "crates/tidings in it",
        ),
        (&["web"], "--kind <KIND>"),
    ] {
        let refused = tidings_new(here.path(), arguments);
        let told = text(&refused.stderr);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(told.contains(hint), "{arguments:?}: {told}");
        assert_eq!(entries(here.path()), before, "{arguments:?}");
    }
    assert_eq!(fs::read_to_string(full.join("precious")).unwrap(), "mine");
    assert_eq!(entries(&full), ["precious"]);

    let made = tidings_new(here.path(), &["empty", "--kind", "Website"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(entries(&here.path().join("empty")).contains(&"Cargo.toml".to_owned()));
    assert_eq!(entries(here.path()), before, "no other folder is left");
}
