//! Finds out who makes a request: by certificate, or by a token that one of several authenticators knows.

use std::sync::Arc;

use tidings_access::User;
use tidings_api::Status;
use tidings_identity::intersection;

use super::access::admin;
use super::authentication::Authentication;
use super::client_certificate::ShownCertificate;
use super::clock;
use super::state::Core;

/// Whose token it is.
pub(crate) struct KnownToken {
    pub(crate) user: Arc<User>,
    /// For which of the audiences that were asked for.
    pub(crate) audiences: Vec<String>,
}

/// What is said of a token that nobody has.
const UNKNOWN: &str = "invalid bearer token";

impl Core {
    /// The user of a request for a path with this certificate and token, or without (W9). A certificate counts first.
    ///
    /// # Errors
    /// If nobody has what was shown.
    pub(crate) async fn identify(
        &self,
        shown: Option<&ShownCertificate>,
        token: Option<&str>,
        path: &str,
    ) -> Result<Arc<User>, Status> {
        if matches!(self.authentication(), Authentication::Trusted) {
            return Ok(admin());
        }
        if let Some(user) = shown.and_then(ShownCertificate::user) {
            return Ok(user);
        }
        match (shown, token) {
            // Boxed: every request would reserve space for what few need.
            (_, Some(token)) => match Box::pin(self.user_of_token(token, &[])).await {
                Ok(known) => Ok(known.user),
                Err(_) => Err(Status::unauthorized()),
            },
            (Some(_), None) => Err(Status::unauthorized()),
            (None, None) if self.authentication().allows_anonymous(path) => {
                Ok(Arc::new(User::anonymous()))
            }
            (None, None) => Err(Status::unauthorized()),
        }
    }

    /// Whose token it is, for one of the wanted audiences; those of the server if none are named.
    ///
    /// # Errors
    /// Why it is not believed, in upstream's words.
    pub(crate) async fn user_of_token(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Result<KnownToken, String> {
        let accounts = self.service_accounts();
        let ours = match wanted {
            [] => accounts.audiences().to_vec(),
            wanted => intersection(accounts.audiences(), wanted),
        };
        let known = |user| KnownToken {
            user,
            audiences: ours.clone(),
        };
        // Tokens that name no audience are for the server.
        if !ours.is_empty() {
            if let Some(user) = self.authentication().user_of_token(token) {
                return Ok(known(user));
            }
            if let Some(user) = accounts.bootstrap_user(token).await {
                return Ok(known(Arc::new(user)));
            }
            if let Some(issuers) = self.authentication().issuers() {
                match issuers.user(token, clock::timestamp().as_second()).await {
                    Some(Ok(user)) => return Ok(known(Arc::new(user.authenticated()))),
                    Some(Err(why)) => return Err(format!("[{UNKNOWN}, {why}]")),
                    None => {}
                }
            }
        }
        match accounts.user(token, wanted).await {
            Some(Ok(known)) => Ok(KnownToken {
                user: Arc::new(known.user),
                audiences: known.audiences,
            }),
            Some(Err(why)) => Err(format!("[{UNKNOWN}, {why}]")),
            None => Err(UNKNOWN.to_owned()),
        }
    }
}
