//! The files of a new project: templates, and what is put into their placeholders.

use std::collections::BTreeSet;

/// A file of the project: its path, and the template of its text.
pub(crate) struct TemplateFile {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
}

/// All files, in the order of their paths.
pub(crate) const TEMPLATES: [TemplateFile; 14] = [
    file(".dockerignore", include_str!("template/dockerignore")),
    file(".gitignore", include_str!("template/gitignore")),
    // Under its real name it would be a package of its own, and left out of this one.
    file("Cargo.toml", include_str!("template/manifest.toml")),
    file("Dockerfile", include_str!("template/Dockerfile")),
    file("README.md", include_str!("template/README.md")),
    file("deploy/crd.yaml", include_str!("template/deploy/crd.yaml")),
    file(
        "deploy/deployment.yaml",
        include_str!("template/deploy/deployment.yaml"),
    ),
    file(
        "deploy/rbac.yaml",
        include_str!("template/deploy/rbac.yaml"),
    ),
    file(
        "src/controller.rs",
        include_str!("template/src/controller.rs"),
    ),
    file("src/lib.rs", include_str!("template/src/lib.rs")),
    file("src/main.rs", include_str!("template/src/main.rs")),
    file("src/types.rs", include_str!("template/src/types.rs")),
    file(
        "tests/controller.rs",
        include_str!("template/tests/controller.rs"),
    ),
    file(
        "tests/manifests.rs",
        include_str!("template/tests/manifests.rs"),
    ),
];

/// The placeholder of the kind; names of types begin with it.
pub(crate) const KIND: &str = "TemplateKind";

const fn file(path: &'static str, text: &'static str) -> TemplateFile {
    TemplateFile { path, text }
}

/// A placeholder and what replaces it.
pub(crate) type Replacement = (&'static str, String);

/// Fills in a template. Each place is replaced once: a name that looks like a placeholder stays as it is.
pub(crate) fn fill(template: &str, replacements: &[Replacement]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(next) = rest.chars().next() {
        // The longest first: `templatekinds` begins with `templatekind`.
        let found = replacements
            .iter()
            .filter(|(placeholder, _)| rest.starts_with(placeholder))
            .max_by_key(|(placeholder, _)| placeholder.len());
        match found {
            Some((placeholder, value)) => {
                text.push_str(value);
                rest = &rest[placeholder.len()..];
            }
            None => {
                text.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    text
}

/// The names of types, traits and variants in the code of the templates: a kind of the same name would hide one of them.
pub(crate) fn type_names() -> BTreeSet<&'static str> {
    let code = TEMPLATES.iter().filter(|file| file.path.ends_with(".rs"));
    let lines = code.flat_map(|file| file.text.lines());
    let words = lines
        .filter_map(|line| line.split("//").next())
        // What is between quotes is text.
        .flat_map(|line| line.split('"').step_by(2))
        .flat_map(|code| code.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    words
        .filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter(|word| word.contains(|letter: char| letter.is_ascii_lowercase()))
        .filter(|word| *word != KIND)
        .collect()
}

/// The names of the crates that the project depends on: a package of the same name would hide one of them.
pub(crate) fn dependencies() -> BTreeSet<&'static str> {
    let manifests = TEMPLATES.iter().filter(|file| file.path == "Cargo.toml");
    let lines = manifests.flat_map(|file| file.text.lines());
    lines
        .skip_while(|line| *line != "[dependencies]")
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_once() {
        let replacements = [
            ("name", "names".to_owned()),
            ("names", "name".to_owned()),
            ("ö", "o".to_owned()),
        ];
        let filled = fill("name names ö é name", &replacements);
        assert_eq!(filled, "names name o é names");
    }

    #[test]
    fn the_names_that_templates_use_are_found() {
        let types = type_names();
        for name in ["ConfigMap", "Controller", "Arc", "TemplateKindSpec"] {
            assert!(types.contains(name), "{name} in {types:?}");
        }
        for name in [KIND, "NAMESPACE", "Ready", "Makes"] {
            assert!(!types.contains(name), "{name} in {types:?}");
        }
        let crates = dependencies();
        for name in ["kube", "tidings-server", "serde_json"] {
            assert!(crates.contains(name), "{name} in {crates:?}");
        }
        assert!(!crates.contains("edition"), "{crates:?}");
    }
}
