//! Parses the resource and name on the command line: `cm`, `cm coredns`, `cm/coredns`, `deployments.v1.apps`.

use anyhow::bail;

/// The resource to watch, or one object of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WatchTarget {
    /// A name of the resource for discovery.
    pub(super) resource: String,
    pub(super) name: Option<String>,
}

impl WatchTarget {
    /// Parses the words as kubectl does. For forms that cannot be watched, the error says what to write instead.
    pub(super) fn parse(words: &[String]) -> anyhow::Result<WatchTarget> {
        let (resource, name) = match words {
            [word] => match word.split_once('/') {
                Some((resource, name)) => (resource, Some(name)),
                None => (word.as_str(), None),
            },
            [resource, name] if !resource.contains('/') && !name.contains('/') => {
                (resource.as_str(), Some(name.as_str()))
            }
            [first, others @ ..] => {
                let resource = first.split('/').next().unwrap_or(first);
                let is_list = others.iter().all(|word| !word.contains('/')) && resource == first;
                if is_list {
                    bail!(
                        "one object at a time: write `{resource} {}`, or only `{resource}` for all of them",
                        others[0]
                    );
                }
                bail!("one object at a time: write `{first}` alone, or RESOURCE NAME");
            }
            [] => bail!("there is no resource to follow: write RESOURCE, as in `cm`"),
        };
        if let Some((first, others)) = resource.split_once(',') {
            bail!(
                "one resource at a time: write `{first}` here, and `{others}` in a second terminal"
            );
        }
        if resource == "all" {
            bail!("`all` stands for several resources: write one of them, as in `pods`");
        }
        if resource.is_empty() || name.is_some_and(|name| !is_name(name)) {
            bail!(
                "`{}` names no object: write RESOURCE, RESOURCE NAME or RESOURCE/NAME, as in `cm/coredns`",
                words.join(" ")
            );
        }
        Ok(WatchTarget {
            resource: with_group(resource),
            name: name.map(str::to_owned),
        })
    }
}

/// False for text with characters that have a meaning in a path or a field selector; no name has them.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', ',', '=', '!', '\\', ' '])
}

/// Turns `ConfigMap.v1` into `ConfigMap.v1.`, with the empty core group. kubectl requires the last dot; it is optional here,
/// because no group has the name of a version.
fn with_group(resource: &str) -> String {
    match resource.split_once('.') {
        Some((_, qualifier)) if is_version(qualifier) => format!("{resource}."),
        _ => resource.to_owned(),
    }
}

/// `v1`, `v2beta1`.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(text) = text.strip_prefix('v') else {
        return false;
    };
    match text.split_once("alpha").or_else(|| text.split_once("beta")) {
        Some((major, minor)) => is_number(major) && is_number(minor),
        None => is_number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<(String, Option<String>), String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        WatchTarget::parse(&words)
            .map(|target| (target.resource, target.name))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_is_named_by_one_word_or_two() {
        let coredns = || Ok(("cm".to_owned(), Some("coredns".to_owned())));
        assert_eq!(parse("cm coredns"), coredns());
        assert_eq!(parse("cm/coredns"), coredns());
        assert_eq!(parse("cm"), Ok(("cm".to_owned(), None)));
    }

    #[test]
    fn a_version_alone_is_one_of_the_core_group() {
        let resource = |word: &str| parse(word).unwrap().0;
        assert_eq!(resource("ConfigMap.v1"), "ConfigMap.v1.");
        assert_eq!(resource("x.v2beta1"), "x.v2beta1.");
        for whole in [
            "configmaps.v1.",
            "deployments.apps",
            "deployments.v1.apps",
            "x.vault",
            "x.v1x",
        ] {
            assert_eq!(resource(whole), whole);
        }
    }

    #[test]
    fn other_forms_get_told_what_to_write() {
        for (words, advice) in [
            ("cm,secrets", "write `cm` here, and `secrets` in a second"),
            ("cm,secrets a", "write `cm` here, and `secrets` in a second"),
            ("cm a b", "write `cm a`, or only `cm` for all of them"),
            ("cm/a b", "write `cm/a` alone"),
            ("cm/a cm/b", "write `cm/a` alone"),
            ("cm cm/a", "RESOURCE NAME"),
            ("all", "write one of them"),
            ("apps/v1/deployments", "RESOURCE/NAME, as in `cm/coredns`"),
            ("cm/", "RESOURCE/NAME"),
            ("/a", "RESOURCE/NAME"),
            ("cm a,b", "RESOURCE NAME or"),
        ] {
            let said = parse(words).unwrap_err();
            assert!(said.contains(advice), "{words}: {said}");
        }
    }
}
