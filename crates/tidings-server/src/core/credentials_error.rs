//! Why a file of credentials cannot be used.

use std::path::{Path, PathBuf};

use tidings_access::TokenFileError;
use tidings_config::ConfigError;

/// Why a file of credentials cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line of a file of tokens is wrong.
    #[error("{}, {error}", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// Which line, and why.
        error: TokenFileError,
    },
    /// A file of tokens is not text.
    #[error("{} is not text in UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of certificates is wrong.
    #[error("{} has no certificates of authorities in PEM: {why}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl CredentialsError {
    /// The content of a file that must be there.
    pub(super) fn readable<'b>(
        path: &Path,
        read: std::io::Result<&'b [u8]>,
    ) -> Result<&'b [u8], CredentialsError> {
        read.map_err(|source| CredentialsError::Unreadable {
            path: path.to_owned(),
            source,
        })
    }
}
