//! Authentication: which user a credential belongs to.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use tidings_access::{TokenFile, User};
use tidings_config::{ConfigFile, FollowedFile};
use tidings_identity::{PublicKey, is_same_secret};
use tidings_oidc::{AuthenticationConfig, TokenIssuers};

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
    issuers: Option<Arc<FollowedFile<TokenIssuers, CredentialsError>>>,
    refuses_anonymous: bool,
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

    /// Believes tokens of the issuers in a file (`AuthenticationConfiguration`), which may also say who may ask without a credential. `keys` are
    /// those of issuers that are not asked for them, by URL. The file is read again when it changes.
    ///
    /// # Errors
    /// If the file cannot be read, or is wrong.
    pub fn authentication_config(
        mut self,
        path: &Path,
        keys: HashMap<String, Vec<PublicKey>>,
        forbidden_issuers: Vec<String>,
    ) -> Result<Credentials, CredentialsError> {
        let issuers = FollowedFile::open(path, move |path, read| {
            let file = ConfigFile::from_read(path, read)?;
            let config = AuthenticationConfig::read(&file)?;
            if let Some(issuer) = config
                .issuers()
                .find(|url| forbidden_issuers.iter().any(|own| own == url))
            {
                let why = format!(
                    "the issuer {issuer} is that of service accounts: it cannot be another one too"
                );
                return Err(file.wrong(why).into());
            }
            if let Some(unknown) = keys
                .keys()
                .find(|url| !config.issuers().any(|known| known == *url))
            {
                let why = format!("there are keys for {unknown}, which is none of its issuers");
                return Err(file.wrong(why).into());
            }
            TokenIssuers::new(config, keys.clone()).map_err(|why| file.wrong(why).into())
        })?;
        self.issuers = Some(Arc::new(issuers));
        Ok(self)
    }

    /// True if the file of issuers says who may ask without a credential.
    pub fn configures_anonymous(&self) -> bool {
        let issuers = self.issuers.as_ref();
        issuers.is_some_and(|issuers| issuers.current().anonymous().is_some())
    }

    /// Refuses all requests without a credential.
    #[must_use]
    pub fn refuse_anonymous(mut self) -> Credentials {
        self.refuses_anonymous = true;
        self
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

    /// The issuers whose tokens are believed.
    pub(crate) fn issuers(&self) -> Option<Arc<TokenIssuers>> {
        let Authentication::Credentials(known) = self else {
            return None;
        };
        known.issuers.as_ref().map(|issuers| issuers.current())
    }

    /// True if a request without a credential may ask for a path.
    pub(crate) fn allows_anonymous(&self, path: &str) -> bool {
        let Authentication::Credentials(known) = self else {
            return true;
        };
        let rule = self.issuers();
        match rule.as_ref().and_then(|issuers| issuers.anonymous()) {
            Some(rule) => rule.allows(path),
            None => !known.refuses_anonymous,
        }
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
            if let Some(issuers) = &known.issuers {
                issuers.follow();
            }
        }
    }

    /// True if there are files that may change.
    pub(crate) fn has_files(&self) -> bool {
        match self {
            Authentication::Trusted => false,
            Authentication::Credentials(known) => {
                !known.tokens.is_empty() || known.clients.is_some() || known.issuers.is_some()
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
