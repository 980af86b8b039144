//! The names of a new project: which are allowed, and what is derived from them.

use anyhow::{bail, ensure};

use super::files;

/// Names of objects and labels are no longer than this.
const NAME_LENGTH_MAX: usize = 63;
/// Names of API groups are no longer than this.
const GROUP_LENGTH_MAX: usize = 253;

/// Words that Rust, cargo or YAML keep for themselves.
const TAKEN_NAMES: &str = "\
    abstract alloc as async aux await become box break build con const continue core crate deps \
    do dyn else enum examples extern false final fn for gen if impl in incremental let loop \
    macro match mod move mut n no nul null off on override priv prn proc-macro pub ref return \
    self static std struct super test trait true try type typeof union unsafe unsized use \
    virtual where while y yes yield";

/// Types and variants that every Rust program has without naming them.
const PRELUDE: &str = "\
    AsMut AsRef Box Clone Copy Debug Default DoubleEndedIterator Drop Eq Err ExactSizeIterator \
    Extend Fn FnMut FnOnce From FromIterator Future Into IntoFuture IntoIterator Iterator None \
    Ok Option Ord Result Self Some String Vec";

/// The names of a project, checked.
#[derive(Debug)]
pub(crate) struct ProjectNames {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) group: String,
    pub(crate) version: String,
}

impl ProjectNames {
    pub(crate) fn new(
        name: &str,
        kind: &str,
        group: &str,
        version: &str,
    ) -> anyhow::Result<ProjectNames> {
        check_name(name)?;
        check_kind(kind)?;
        check_group(group)?;
        check_version(version)?;
        Ok(ProjectNames {
            name: name.to_owned(),
            kind: kind.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
        })
    }

    /// The name of the library in Rust code.
    pub(crate) fn library(&self) -> String {
        self.name.replace('-', "_")
    }

    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// As kube derives it from the kind.
    pub(crate) fn plural(&self) -> String {
        plural(&self.singular())
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if name.contains(['/', '\\']) {
        bail!(
            "{name:?} is a path: change to the folder in which the project is to be, and give its name alone"
        );
    }
    ensure!(
        is_label(name),
        "{name:?} cannot be the name of a program and of its objects in the cluster: use up to {NAME_LENGTH_MAX} lower case letters, digits and '-', \
         beginning with a letter and not ending with '-', for example website-operator"
    );
    let is_taken = has_word(TAKEN_NAMES, name);
    ensure!(
        !is_taken,
        "{name:?} means something else to Rust, cargo or YAML: choose another name, for example {name}-operator"
    );
    let library = name.replace('-', "_");
    let is_dependency = files::dependencies()
        .iter()
        .any(|known| known.replace('-', "_") == library);
    ensure!(
        !is_dependency,
        "the project will depend on a crate {name:?}: choose another name, for example {name}-operator"
    );
    Ok(())
}

fn check_kind(kind: &str) -> anyhow::Result<()> {
    let is_camel_case = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric())
        && kind.len() <= NAME_LENGTH_MAX;
    if !is_camel_case {
        let camel = camel_case(kind);
        let example = match camel.is_empty() {
            true => "Website",
            false => &camel,
        };
        bail!(
            "{kind:?} cannot be a kind: use up to {NAME_LENGTH_MAX} letters and digits, beginning with a capital letter, for example {example}"
        );
    }
    let is_used = has_word(PRELUDE, kind)
        || files::type_names().iter().any(|known| {
            // `TemplateKindSpec` becomes `WebsiteSpec`.
            *known == kind && !known.starts_with(files::KIND)
        });
    let is_taken = has_word(TAKEN_NAMES, &kind.to_lowercase());
    ensure!(
        !is_used && !is_taken,
        "the code of the project uses {kind} for something else: choose another kind, for example My{kind}"
    );
    Ok(())
}

fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

/// A kind that a user may have meant.
fn camel_case(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()));
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let camel: String = words.map(capital).collect();
    camel.chars().take(NAME_LENGTH_MAX).collect()
}

fn check_group(group: &str) -> anyhow::Result<()> {
    let is_domain = group.len() <= GROUP_LENGTH_MAX
        && group.contains('.')
        && group.split('.').all(is_part)
        && group.starts_with(|first: char| first.is_ascii_lowercase());
    ensure!(
        is_domain,
        "{group:?} cannot be an API group: use a domain of yours, with at least one dot, of lower case letters, digits, '-' and '.', beginning with a \
         letter, for example example.com"
    );
    let is_reserved = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|known| group == *known || group.ends_with(&format!(".{known}")));
    ensure!(
        !is_reserved,
        "the API group {group:?} belongs to Kubernetes: use a domain of yours, for example example.com"
    );
    Ok(())
}

fn check_version(version: &str) -> anyhow::Result<()> {
    let is_number = |text: &str| {
        !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_version = version.len() <= NAME_LENGTH_MAX
        && version.strip_prefix('v').is_some_and(|rest| {
            let parts = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
            let (major, minor) = parts.unwrap_or((rest, "1"));
            is_number(major) && is_number(minor)
        });
    ensure!(
        is_version,
        "{version:?} cannot be the version of an API: use one like v1, v1beta1 or v2alpha3"
    );
    Ok(())
}

/// True for a label of a domain name that begins with a letter.
fn is_label(text: &str) -> bool {
    is_part(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// True for a label of a domain name.
fn is_part(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= NAME_LENGTH_MAX
        && text.bytes().all(is_allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The plural of a word in lower case, by the rule of kube's derive.
fn plural(word: &str) -> String {
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    if ends(&["s", "x", "z", "ch", "sh"]) {
        return format!("{word}es");
    }
    if let Some(stem) = word.strip_suffix('y')
        && !stem.is_empty()
        && !stem.ends_with(['a', 'e', 'i', 'o', 'u'])
    {
        return format!("{stem}ies");
    }
    format!("{word}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_with_what_to_change() {
        let check = |[name, kind, group, version]: [&str; 4], hint: &str| {
            let names = ProjectNames::new(name, kind, group, version);
            match names {
                Ok(names) => assert_eq!(hint, "", "{names:?}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!hint.is_empty() && text.contains(hint), "{text}");
                }
            }
        };
        let long = "a".repeat(64);
        let name = |name, hint| check([name, "Website", "example.com", "v1"], hint);
        name("website", "");
        name("my-website2", "");
        name("My_Website", "lower case letters");
        name("2website", "beginning with a letter");
        name("website-", "not ending with '-'");
        name("", "beginning with a letter");
        name(&long, "up to 63");
        name("a/b", "is a path");
        name("fn", "fn-operator");
        name("on", "means something else");
        name("serde-json", "depend on a crate");
        name("tidings", "depend on a crate");
        let kind = |kind, hint| check(["a", kind, "example.com", "v1"], hint);
        kind("Website", "");
        kind("DNSRecord2", "");
        kind("webSite", "for example WebSite");
        kind("web-site", "for example WebSite");
        kind("Web_Site", "for example WebSite");
        kind("", "for example Website");
        kind("2", "for example Website");
        kind("ConfigMap", "for example MyConfigMap");
        kind("Option", "for example MyOption");
        kind("No", "for example MyNo");
        let group = |group, hint| check(["a", "Website", group, "v1"], hint);
        group("example.com", "");
        group("a-b.example2.com", "");
        group("example", "at least one dot");
        group("Example.com", "lower case");
        group("example..com", "at least one dot");
        group("2.example.com", "beginning with a letter");
        group("apps.k8s.io", "belongs to Kubernetes");
        let version = |version, hint| check(["a", "Website", "example.com", version], hint);
        version("v1", "");
        version("v12beta3", "");
        version("v2alpha1", "");
        for wrong in [
            "1", "v", "v0", "v1gamma1", "v1beta", "V1", "v1.0", "valpha1",
        ] {
            version(wrong, "like v1, v1beta1");
        }
    }

    #[test]
    fn plurals_are_those_of_kube() {
        for (kind, expected) in [
            ("Website", "websites"),
            ("Proxy", "proxies"),
            ("Gateway", "gateways"),
            ("Ingress", "ingresses"),
            ("Mailbox", "mailboxes"),
            ("Branch", "branches"),
            ("Y", "ys"),
        ] {
            assert_eq!(plural(&kind.to_lowercase()), expected);
        }
    }
}
