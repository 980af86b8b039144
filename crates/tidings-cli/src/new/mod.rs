//! `tidings new`: writes the project of an operator that compiles, passes its tests, and can be deployed.

mod files;
mod names;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use files::{Replacement, TEMPLATES, fill};
use names::ProjectNames;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: tidings new website --kind Website --group example.com --path ../tidings"
)]
pub(crate) struct NewArguments {
    /// The name of the operator, and of the folder that is made for it
    name: String,

    /// The kind of the custom resource, for example Website
    #[arg(long, value_name = "KIND")]
    kind: String,

    /// The API group of the custom resource: a domain of yours
    #[arg(long, value_name = "GROUP", default_value = "example.com")]
    group: String,

    /// The version of the custom resource
    #[arg(long, value_name = "VERSION", default_value = "v1")]
    version: String,

    /// The folder with Tidings' source, for path dependencies: the crates are not published yet
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

pub(crate) fn run(arguments: &NewArguments) -> anyhow::Result<()> {
    let NewArguments {
        name,
        kind,
        group,
        version,
        path,
    } = arguments;
    let names = ProjectNames::new(name, kind, group, version)?;
    let source = path.as_deref().map(source_folder).transpose()?;
    let here = std::env::current_dir().context("the current folder cannot be read")?;
    let replacements = replacements(&names, source.as_deref(), is_in_workspace(&here));
    create(Path::new(name), &replacements)
        .with_context(|| format!("the project {name} was not made"))?;
    println!("{}", next_steps(&names, source.is_some()));
    Ok(())
}

/// The path to Tidings' source as the project has to write it.
fn source_folder(path: &Path) -> anyhow::Result<String> {
    if !path.join("crates/tidings/Cargo.toml").is_file() {
        bail!(
            "{} is not the source of Tidings: give --path the folder that has crates/tidings in it",
            path.display()
        );
    }
    // The project is a folder of the current one.
    let seen_from_project = match path.is_absolute() {
        true => path.to_owned(),
        false => Path::new("..").join(path),
    };
    match seen_from_project.to_str() {
        Some(path) => Ok(path.trim_end_matches('/').to_owned()),
        None => bail!(
            "{} is no UTF-8: cargo cannot read such a path",
            path.display()
        ),
    }
}

/// True if a folder is in one with a workspace of cargo: cargo refuses packages there that are no members.
fn is_in_workspace(folder: &Path) -> bool {
    let mut above = folder.ancestors().map(|folder| folder.join("Cargo.toml"));
    above.any(|manifest| {
        let text = fs::read_to_string(manifest).unwrap_or_default();
        text.lines().any(|line| line.trim() == "[workspace]")
    })
}

fn replacements(
    names: &ProjectNames,
    source: Option<&str>,
    is_in_workspace: bool,
) -> Vec<Replacement> {
    let dependency = |name: &str| match source {
        Some(source) => format!("path = {}", quoted(&format!("{source}/crates/{name}"))),
        None => format!("version = {}", quoted(minor_version())),
    };
    let workspace = match is_in_workspace {
        true => {
            "\n# A workspace of its own: there is another one above this folder.\n[workspace]\n"
        }
        false => "",
    };
    let docker_sources = source.map(|source| {
        format!(
            "# The source of Tidings comes from a second folder: --build-context tidings={}\n\
             COPY --from=tidings [\".\", {}]\n",
            shell_word(source),
            quoted(source)
        )
    });
    let docker_build = source.map_or("docker build".to_owned(), |source| {
        format!(
            "docker build --build-context tidings={}",
            shell_word(source)
        )
    });
    vec![
        ("TemplateKind", names.kind.clone()),
        ("templatekinds", names.plural()),
        ("templatekind", names.singular()),
        ("template-name", names.name.clone()),
        ("template_name", names.library()),
        ("template.group", names.group.clone()),
        ("templateversion", names.version.clone()),
        ("source = \"tidings\"", dependency("tidings")),
        ("source = \"tidings-server\"", dependency("tidings-server")),
        (
            "source = \"tidings-storage\"",
            dependency("tidings-storage"),
        ),
        ("# template-workspace\n", workspace.to_owned()),
        ("# template-sources\n", docker_sources.unwrap_or_default()),
        ("template-docker-build", docker_build),
    ]
}

/// A text in quotes. What JSON quotes, TOML reads too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The version that dependencies on Tidings name: `0.2`.
fn minor_version() -> &'static str {
    concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        ".",
        env!("CARGO_PKG_VERSION_MINOR")
    )
}

/// A path as a word of a shell.
fn shell_word(path: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Writes the project: completely or not at all.
fn create(folder: &Path, replacements: &[Replacement]) -> anyhow::Result<()> {
    check_is_free(folder)?;
    // First under another name, so that a folder of the final name is always complete.
    let partial = PathBuf::from(format!(
        ".{}.partial-{}",
        folder.display(),
        std::process::id()
    ));
    let written = write_all(&partial, replacements).and_then(|()| {
        // Replaces an empty folder, and fails if something came into it meanwhile.
        fs::rename(&partial, folder).with_context(|| format!("{} cannot be made", folder.display()))
    });
    if written.is_err() {
        // If this fails too, the first error says why.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn check_is_free(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            Some(_) => bail!(
                "the folder {shown} is not empty: choose another name, or move it away; nothing was changed"
            ),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("{shown} is a file: choose another name, or move it away; nothing was changed")
        }
        Err(error) => Err(error).with_context(|| format!("the folder {shown} cannot be read")),
    }
}

fn write_all(folder: &Path, replacements: &[Replacement]) -> anyhow::Result<()> {
    for file in &TEMPLATES {
        let path = folder.join(file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, fill(file.text, replacements)))
            .with_context(|| format!("{} cannot be written", file.path))?;
    }
    Ok(())
}

/// What a person does next.
fn next_steps(names: &ProjectNames, has_source: bool) -> String {
    let ProjectNames { name, kind, .. } = names;
    let resource = format!("{}.{}/{}", names.plural(), names.group, names.version);
    let mut text = format!(
        "{name}/ has an operator for {kind} ({resource}), {} files.\n\n",
        TEMPLATES.len()
    );
    if !has_source {
        let version = minor_version();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "Its Cargo.toml asks for tidings {version} from the registry, where it is not published yet.\n\
             To build it now, clone Tidings, delete {name}/, and run this command again with --path DIR, the folder of the clone.\n\n"
        );
    }
    let _ = write!(
        text,
        "  cd {name}\n  cargo test          the operator on an API server inside the test\n\n\
         Then change src/types.rs and src/controller.rs. README.md says how to run and deploy it."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_templates_is_left() -> anyhow::Result<()> {
        let names = ProjectNames::new("shop", "Proxy", "shop.example", "v2beta1")?;
        for (source, is_in_workspace) in [(None, false), (Some("../my tidings"), true)] {
            let replacements = replacements(&names, source, is_in_workspace);
            for file in &TEMPLATES {
                let text = fill(file.text, &replacements);
                let lines = text.lines();
                let left: Vec<_> = lines
                    // A Deployment has a member of this name.
                    .filter(|line| line.trim() != "template:")
                    .filter(|line| line.to_lowercase().contains("template"))
                    .collect();
                assert!(left.is_empty(), "{}: {left:?}", file.path);
                assert!(!text.contains("source ="), "{}: {text}", file.path);
            }
        }
        Ok(())
    }

    #[test]
    fn dependencies_are_on_a_version_or_on_a_folder() -> anyhow::Result<()> {
        let names = ProjectNames::new("shop", "Proxy", "shop.example", "v1")?;
        let line = "tidings-server = { source = \"tidings-server\" }\n# template-workspace\n";
        let filled =
            |source, is_in_workspace| fill(line, &replacements(&names, source, is_in_workspace));
        assert_eq!(
            filled(None, false),
            format!("tidings-server = {{ version = {:?} }}\n", minor_version())
        );
        let text = filled(Some("/a \"b\""), true);
        assert!(
            text.contains(r#"{ path = "/a \"b\"/crates/tidings-server" }"#),
            "{text}"
        );
        assert!(text.ends_with("[workspace]\n"), "{text}");
        Ok(())
    }
}
