//! Command lines of other programs: which flags they know, and what was given.

use anyhow::bail;

/// The flags of a program: a line each, the name and `bool` or `value`.
pub(super) struct KnownFlags(pub(super) &'static str);

/// The flags that were given, in their order. One without a value is a bool, and true.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GivenFlags(pub(super) Vec<(String, String)>);

impl KnownFlags {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.0.lines();
        lines.filter_map(|line| line.split(' ').next())
    }

    fn is_bool(&self, name: &str) -> Option<bool> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(known, _)| *known == name);
        found.map(|(_, kind)| kind == "bool")
    }

    /// Reads the arguments of a program: `--name=value`, `--name value`, and `--name` of a bool.
    pub(super) fn read(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<GivenFlags> {
        let mut given = GivenFlags::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or(argument.strip_prefix('-')) else {
                bail!("{program} takes flags only, and got {argument:?}");
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let Some(is_bool) = self.is_bool(name) else {
                bail!("unknown flag: --{name}{}", self.meant(name));
            };
            let value = match (value, is_bool) {
                (Some(value), _) => value,
                (None, true) => "true".to_owned(),
                (None, false) => match arguments.next() {
                    Some(value) => value,
                    None => bail!("flag needs an argument: --{name}"),
                },
            };
            given.0.push((name.to_owned(), value));
        }
        Ok(given)
    }

    /// A flag that was perhaps meant.
    fn meant(&self, name: &str) -> String {
        let near = |known: &&str| {
            let long = name.len() > 4 && known.len() > 4;
            long && (known.starts_with(name) || name.starts_with(*known) || is_one_off(known, name))
        };
        let found = self.names().find(near);
        found.map_or(String::new(), |known| {
            format!(", perhaps --{known} is meant")
        })
    }
}

/// True if one text becomes the other by one character more, less or different, or by two that change places.
fn is_one_off(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let same =
        |from: &mut dyn Iterator<Item = (&u8, &u8)>| from.take_while(|(a, b)| a == b).count();
    let head = same(&mut one.iter().zip(other));
    let tail = same(&mut one.iter().rev().zip(other.iter().rev()));
    let longest = one.len().max(other.len());
    let shortest = one.len().min(other.len());
    let swapped = one.len() == other.len() && head + tail + 2 == longest && {
        one[head] == other[head + 1] && one[head + 1] == other[head]
    };
    longest - shortest <= 1 && (head + tail + 1 >= longest || swapped)
}

impl GivenFlags {
    /// The value of a flag; the last one counts.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut given = self.0.iter().rev();
        let found = given.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: KnownFlags = KnownFlags("allow-privileged bool\nsecure-port value\n");

    fn read(arguments: &[&str]) -> Result<Vec<(String, String)>, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let read = KNOWN.read("kube-apiserver", arguments);
        read.map(|given| given.0).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let both = read(&["--allow-privileged", "--secure-port", "1"]).unwrap();
        assert_eq!(
            both,
            [
                ("allow-privileged".into(), "true".into()),
                ("secure-port".into(), "1".into())
            ]
        );
        assert_eq!(
            read(&["--allow-privileged=false", "--secure-port=1=2"]).unwrap(),
            [
                ("allow-privileged".into(), "false".into()),
                ("secure-port".into(), "1=2".into())
            ]
        );
        for (arguments, expected) in [
            (
                &["--secure-port"][..],
                "flag needs an argument: --secure-port",
            ),
            (
                &["--secure-prot=1"],
                "unknown flag: --secure-prot, perhaps --secure-port is meant",
            ),
            (
                &["--alow-privileged"],
                "unknown flag: --alow-privileged, perhaps --allow-privileged is meant",
            ),
            (&["--insecure-port=0"], "unknown flag: --insecure-port"),
            (
                &["serve"],
                "kube-apiserver takes flags only, and got \"serve\"",
            ),
        ] {
            assert_eq!(read(arguments).unwrap_err(), expected);
        }
    }
}
