//! Authentication: which user a credential belongs to.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use tidings_access::{TokenFile, User};
use tidings_config::FollowedFile;
use tidings_identity::is_same_secret;

use super::access::admin;
use super::client_certificate::{AnyCertificate, ClientAuthority, ShownCertificate};
use super::credentials_error::CredentialsError;

/// The audience of tokens.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How requests are authenticated.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// Every request is the administrator's. For a server inside a process, which nobody else can reach.
    Trusted,
    /// Requests show credentials. One without a credential is anonymous.
    Credentials(Credentials),
}

/// The credentials that a server knows. None at first.
#[derive(Clone, Default)]
pub struct Credentials {
    admin_token: String,
    tokens: Vec<Arc<FollowedFile<TokenFile, CredentialsError>>>,
    clients: Option<Arc<FollowedFile<ClientAuthority, CredentialsError>>>,
}

impl fmt::Debug for Credentials {
    /// Never shows a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: Vec<&Path> = self.tokens.iter().map(|tokens| tokens.path()).collect();
        f.debug_struct("Credentials")
            .field("tokens", &tokens)
            .field(
                "client_ca",
                &self.clients.as_ref().map(|clients| clients.path()),
            )
            .finish_non_exhaustive()
    }
}

fn parse_tokens(path: &Path, bytes: &[u8]) -> Result<TokenFile, CredentialsError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CredentialsError::NotText {
        path: path.to_owned(),
    })?;
    TokenFile::parse(text).map_err(|error| CredentialsError::Tokens {
        path: path.to_owned(),
        error,
    })
}

impl Credentials {
    /// Adds the bearer token of the administrator, who may do everything.
    #[must_use]
    pub fn admin_token(mut self, token: impl Into<String>) -> Credentials {
        self.admin_token = token.into();
        self
    }

    /// Adds the bearer tokens in a file of lines `token,user,uid,"group1,group2"`. The file is read again when it changes.
    ///
    /// # Errors
    /// If the file cannot be read, or a line of it is wrong.
    pub fn token_file(mut self, path: &Path) -> Result<Credentials, CredentialsError> {
        let tokens = FollowedFile::open(path, |path, read| {
            parse_tokens(path, CredentialsError::readable(path, read)?)
        })?;
        self.tokens.push(Arc::new(tokens));
        Ok(self)
    }

    /// Adds the bearer tokens of a file that need not be there yet.
    ///
    /// # Errors
    /// If the file is there and cannot be read, or a line of it is wrong.
    pub fn token_file_if_there(mut self, path: &Path) -> Result<Credentials, CredentialsError> {
        let tokens = FollowedFile::open(path, |path, read| match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => parse_tokens(path, b""),
            read => parse_tokens(path, CredentialsError::readable(path, read)?),
        })?;
        self.tokens.push(Arc::new(tokens));
        Ok(self)
    }

    /// Believes certificates of clients that an authority of this file in PEM has signed: their common name is the user, their organisations are
    /// the groups. The file is read again when it changes.
    ///
    /// # Errors
    /// If the file cannot be read, or has no certificate.
    pub fn client_ca(mut self, path: &Path) -> Result<Credentials, CredentialsError> {
        self.clients = Some(Arc::new(FollowedFile::open(path, ClientAuthority::parse)?));
        Ok(self)
    }

    /// Asks for certificates in the handshakes of a listener, if certificates are believed.
    pub(crate) fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let clients = self.clients.clone()?;
        Some(Arc::new(AnyCertificate(clients)))
    }
}

impl Authentication {
    /// The user to whom a bearer token belongs.
    pub(crate) fn user_of_token(&self, presented: &str) -> Option<Arc<User>> {
        let Authentication::Credentials(known) = self else {
            return None;
        };
        if is_same_secret(presented.as_bytes(), known.admin_token.as_bytes()) {
            return Some(admin());
        }
        let user =
            |tokens: &Arc<FollowedFile<TokenFile, _>>| tokens.current().user(presented).cloned();
        known.tokens.iter().find_map(user)
    }

    /// What a client has shown in the handshake.
    pub(crate) fn shown(&self, chain: &[CertificateDer<'_>]) -> Option<ShownCertificate> {
        let Authentication::Credentials(known) = self else {
            return None;
        };
        let authorities = known.clients.as_ref().filter(|_| !chain.is_empty())?;
        Some(ShownCertificate::new(authorities, chain))
    }

    /// Reads files again that have changed. Blocks.
    pub(crate) fn follow_files(&self) {
        if let Authentication::Credentials(known) = self {
            for tokens in &known.tokens {
                tokens.follow();
            }
            if let Some(clients) = &known.clients {
                clients.follow();
            }
        }
    }

    /// True if there are files that may change.
    pub(crate) fn has_files(&self) -> bool {
        match self {
            Authentication::Trusted => false,
            Authentication::Credentials(known) => {
                !known.tokens.is_empty() || known.clients.is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tokens_is_followed_and_a_wrong_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, "t1,ann,1\n").unwrap();
        let known = Credentials::default().admin_token("secret");
        let known = Authentication::Credentials(known.token_file(&path).unwrap());
        let name = |token: &str| known.user_of_token(token).map(|user| user.name.clone());
        assert_eq!(name("t1").as_deref(), Some("ann"));
        assert_eq!(name("secret").as_deref(), Some("admin"));
        assert_eq!(name(""), None);

        std::fs::write(&path, "t1,ann,1\nt2,bob,2\n").unwrap();
        known.follow_files();
        assert_eq!(name("t2").as_deref(), Some("bob"));
        for wrong in ["t3,no uid", ""] {
            std::fs::write(&path, wrong).unwrap();
            known.follow_files();
            // An empty file is right, and means that nobody has a token.
            let expected = (!wrong.is_empty()).then_some("bob");
            assert_eq!(name("t2").as_deref(), expected, "{wrong}");
        }
        std::fs::write(&path, "t4,eve,4\n").unwrap();
        known.follow_files();
        std::fs::remove_file(&path).unwrap();
        known.follow_files();
        assert_eq!(name("t4").as_deref(), Some("eve"));
        assert!(!format!("{known:?}").contains("secret"));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let absent = Credentials::default().token_file(&path).unwrap_err();
        assert!(
            absent.to_string().ends_with("tokens cannot be read"),
            "{absent}"
        );
        std::fs::write(&path, "t1,ann,1\nhunter2,bob\n").unwrap();
        let wrong = Credentials::default()
            .token_file(&path)
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("tokens, line 2: at least a token"),
            "{wrong}"
        );
        assert!(!wrong.contains("hunter"), "{wrong}");
    }
}
