#![doc = include_str!("../README.md")]

mod followed;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use followed::{FileParser, FollowedFile};

/// The largest configuration file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {why}", path.display(), shown(*line))]
pub struct ConfigError {
    path: PathBuf,
    /// Which line, from 1, if it is known.
    line: Option<u64>,
    why: String,
}

fn shown(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}"))
        .unwrap_or_default()
}

/// A value of a file, with its place.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Placed<T>(serde_saphyr::Spanned<T>);

impl<T> Placed<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.0.value
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// A member that was checked already, as `apiVersion` and `kind` are.
pub type Checked = serde::de::IgnoredAny;

/// A configuration file that was read.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    /// Errors quote nothing of it.
    is_secret: bool,
}

impl std::fmt::Debug for ConfigFile {
    /// Never shows the content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigFile({})", self.path.display())
    }
}

fn too_large() -> String {
    format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20)
}

/// The first members of every file.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is too large, or is not text.
    pub fn open(path: &Path) -> Result<ConfigFile, ConfigError> {
        let wrong = |why: String| ConfigError {
            path: path.to_owned(),
            line: None,
            why,
        };
        // Only a file that is not too large is read.
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > FILE_BYTES_MAX) {
            return Err(wrong(too_large()));
        }
        match std::fs::read(path) {
            Ok(bytes) => ConfigFile::from_read(path, Ok(&bytes)),
            Err(error) => ConfigFile::from_read(path, Err(error)),
        }
    }

    /// What was read of a file: the content, or why it cannot be read. For a [`FileParser`].
    ///
    /// # Errors
    /// If it could not be read, is too large, or is not text.
    pub fn from_read(path: &Path, read: std::io::Result<&[u8]>) -> Result<ConfigFile, ConfigError> {
        let wrong = |why: String| ConfigError {
            path: path.to_owned(),
            line: None,
            why,
        };
        match read {
            Ok(bytes) if bytes.len() as u64 > FILE_BYTES_MAX => Err(wrong(too_large())),
            Ok(bytes) => ConfigFile::new(path, bytes),
            Err(error) => Err(wrong(format!("it cannot be read: {error}"))),
        }
    }

    /// A file with this content.
    ///
    /// # Errors
    /// If it is not text.
    pub fn new(path: impl Into<PathBuf>, content: &[u8]) -> Result<ConfigFile, ConfigError> {
        let path = path.into();
        match std::str::from_utf8(content) {
            Ok(text) => Ok(ConfigFile {
                path,
                text: text.to_owned(),
                is_secret: false,
            }),
            Err(_) => Err(ConfigError {
                path,
                line: None,
                why: "it is not text in UTF-8".to_owned(),
            }),
        }
    }

    /// Errors quote nothing of the file but the names of members.
    #[must_use]
    pub fn secret(mut self) -> ConfigFile {
        self.is_secret = true;
        self
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads the content as this version of this kind. `T` has members for `apiVersion` and `kind` too, which may be [`Checked`].
    ///
    /// # Errors
    /// If it is of another version or kind, or is not of the form of `T`.
    pub fn read<T: DeserializeOwned>(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<T, ConfigError> {
        self.read_versions(&[api_version], kind)
    }

    /// Reads the content as one of several versions of a kind that have the same form.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn read_versions<T: DeserializeOwned>(
        &self,
        api_versions: &[&str],
        kind: &str,
    ) -> Result<T, ConfigError> {
        let head: Head = self.parse()?;
        if !api_versions.contains(&head.api_version.as_str()) || head.kind != kind {
            return Err(self.wrong(format!(
                "it must begin with apiVersion: {} and kind: {kind}",
                api_versions[0]
            )));
        }
        self.parse()
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        serde_saphyr::from_str(&self.text).map_err(|error| {
            let place = error.location().map(|location| location.line());
            let text = error.without_snippet().to_string();
            let text = text.lines().next().unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            let text = text.split_once(": ").map_or(text, |(front, rest)| {
                match front.starts_with("line ") {
                    true => rest,
                    false => text,
                }
            });
            let text = text
                .rsplit_once(" at line ")
                .map_or(text, |(front, _)| front);
            // Those name members; others quote values.
            let is_safe = ["unknown field", "missing field", "duplicate"]
                .iter()
                .any(|safe| text.starts_with(safe));
            let why = match self.is_secret && !is_safe {
                true => "a value is not of the form that is expected here".to_owned(),
                false => text.to_owned(),
            };
            ConfigError {
                path: self.path.clone(),
                line: place.filter(|line| *line > 0),
                why,
            }
        })
    }

    /// Something is wrong with the file as a whole.
    pub fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError {
            path: self.path.clone(),
            line: None,
            why: why.into(),
        }
    }

    /// Something is wrong at the place of a value.
    pub fn wrong_at<T>(&self, value: &Placed<T>, why: impl Into<String>) -> ConfigError {
        ConfigError {
            line: Some(value.0.referenced.line()).filter(|line| *line > 0),
            ..self.wrong(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        #[serde(rename = "apiVersion")]
        _version: Checked,
        #[serde(rename = "kind")]
        _kind: Checked,
        keys: Vec<Placed<Key>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Key {
        #[allow(dead_code)]
        size: u32,
    }

    fn read(text: &str) -> String {
        let file = ConfigFile::new("k.yaml", text.as_bytes()).unwrap().secret();
        match file.read::<Keys>("x/v1", "Keys") {
            Ok(keys) => format!("{} keys", keys.keys.len()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_values() {
        let head = "apiVersion: x/v1\nkind: Keys\n";
        assert_eq!(
            read(&format!("{head}keys:\n- size: 3\n- size: 4\n")),
            "2 keys"
        );
        let wrong = "a value is not of the form that is expected here";
        for (text, expected) in [
            (
                "keys:\n- size: hunter2\n",
                format!("k.yaml, line 4: {wrong}"),
            ),
            (
                "keys:\n- size: 1\n  hunter: 2\n",
                "k.yaml, line 5: unknown field `hunter`, expected one of size".to_owned(),
            ),
            ("keys: hunter2\n", format!("k.yaml, line 3: {wrong}")),
            ("keys: [hunter2\n", format!("k.yaml, line 3: {wrong}")),
        ] {
            assert_eq!(read(&format!("{head}{text}")), expected, "{text}");
        }
        for text in [
            "",
            "kind: Keys\nkeys: []\n",
            "apiVersion: x/v1\nkind: Other\n",
        ] {
            let said = read(text);
            assert!(
                said.ends_with("it must begin with apiVersion: x/v1 and kind: Keys"),
                "{text}: {said}"
            );
        }
    }
}
