//! The authentication configuration (`AuthenticationConfiguration` of `apiserver.config.k8s.io/v1`): which issuers are believed, how claims become
//! users, and who may ask without a credential.

use std::collections::{BTreeMap, HashSet};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidings_config::{ConfigError, ConfigFile, Placed};
use tidings_structural::{CelExpression, CelType};

use crate::claims::{Mapping, Mappings, user_type};
use crate::written::{WrittenAuthenticator, WrittenConfig, WrittenExtra, WrittenMapping};

/// The most rules, mappings or issuers that a file may have.
const ISSUERS_MAX: usize = 64;

/// Which requests without a credential are anonymous; others are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnonymousRule {
    /// None.
    Nobody,
    /// All, or those for these paths.
    Paths(Vec<String>),
    /// All.
    Everybody,
}

impl AnonymousRule {
    /// True if a request for a path may be anonymous.
    pub fn allows(&self, path: &str) -> bool {
        match self {
            AnonymousRule::Nobody => false,
            AnonymousRule::Paths(paths) => paths.iter().any(|known| known == path),
            AnonymousRule::Everybody => true,
        }
    }
}

/// Which issuers are believed, and who may ask without a credential.
#[derive(Debug)]
pub struct AuthenticationConfig {
    pub(crate) issuers: Vec<IssuerConfig>,
    pub(crate) anonymous: Option<AnonymousRule>,
}

/// An issuer, and how its claims become users.
#[derive(Debug)]
pub(crate) struct IssuerConfig {
    pub(crate) url: String,
    /// Where its configuration is, if not below its URL.
    pub(crate) discovery_url: Option<String>,
    /// Whose certificates it may show; `None`: those that the machine believes.
    pub(crate) authorities: Option<Vec<CertificateDer<'static>>>,
    pub(crate) audiences: Vec<String>,
    pub(crate) mappings: Mappings,
}

impl AuthenticationConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// With the line, and what to change.
    pub fn read(file: &ConfigFile) -> Result<AuthenticationConfig, ConfigError> {
        let versions = [
            "apiserver.config.k8s.io/v1",
            "apiserver.config.k8s.io/v1beta1",
        ];
        let written: WrittenConfig =
            file.read_versions(&versions, "AuthenticationConfiguration")?;
        if written.jwt.len() > ISSUERS_MAX {
            return Err(file.wrong(format!("it has more than {ISSUERS_MAX} issuers")));
        }
        let reader = ConfigReader { file };
        let mut seen = HashSet::new();
        let mut issuers = Vec::new();
        for written in &written.jwt {
            let issuer = reader.issuer(written)?;
            let discovery = issuer.discovery_url.clone();
            for url in [Some(issuer.url.clone()), discovery].into_iter().flatten() {
                if !seen.insert(url) {
                    return Err(file.wrong_at(
                        &written.issuer.url,
                        "an issuer is there twice: remove one of the two",
                    ));
                }
            }
            issuers.push(issuer);
        }
        let anonymous = match &written.anonymous {
            None => None,
            Some(anonymous) if !anonymous.enabled && !anonymous.conditions.is_empty() => {
                let why = "conditions are for enabled: true: set that, or remove them";
                return Err(file.wrong_at(anonymous, why));
            }
            Some(anonymous) if !anonymous.enabled => Some(AnonymousRule::Nobody),
            Some(anonymous) if anonymous.conditions.is_empty() => Some(AnonymousRule::Everybody),
            Some(anonymous) => {
                let paths = anonymous
                    .conditions
                    .iter()
                    .map(|condition| condition.path.clone());
                Some(AnonymousRule::Paths(paths.collect()))
            }
        };
        Ok(AuthenticationConfig { issuers, anonymous })
    }

    /// The issuers that are believed.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.url.as_str())
    }
}

struct ConfigReader<'a> {
    file: &'a ConfigFile,
}

impl ConfigReader<'_> {
    fn issuer(&self, written: &Placed<WrittenAuthenticator>) -> Result<IssuerConfig, ConfigError> {
        let issuer = &written.issuer;
        self.check_url(&issuer.url)?;
        if let Some(discovery) = &issuer.discovery_url {
            self.check_url(discovery)?;
            if discovery.trim_end_matches('/') == issuer.url.trim_end_matches('/') {
                let why = "discoveryURL is the same as url: remove it, or write where the configuration is";
                return Err(self.file.wrong_at(discovery, why));
            }
        }
        if let Some(selector) = &issuer.egress_selector_type {
            let why = "egressSelectorType is not built: remove it";
            return Err(self.file.wrong_at(selector, why));
        }
        let authorities = issuer.certificate_authority.as_ref();
        let authorities = authorities.filter(|pem| !pem.is_empty()).map(|pem| {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            let read = read.ok().filter(|read| !read.is_empty());
            read.ok_or_else(|| {
                self.file
                    .wrong_at(pem, "certificateAuthority has no certificate in PEM")
            })
        });
        Ok(IssuerConfig {
            url: (*issuer.url).clone(),
            discovery_url: issuer.discovery_url.as_ref().map(|url| (**url).clone()),
            authorities: authorities.transpose()?,
            audiences: self.audiences(written)?,
            mappings: self.mappings(written)?,
        })
    }

    fn check_url(&self, url: &Placed<String>) -> Result<(), ConfigError> {
        let rest = url.strip_prefix("https://").unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        let is_right = !host.is_empty()
            && !host.contains('@')
            && !url.contains(['?', '#'])
            && url.parse::<http::Uri>().is_ok();
        match is_right {
            true => Ok(()),
            false => {
                let why =
                    "write a URL that begins with https:// and has no user, query or fragment";
                Err(self.file.wrong_at(url, why))
            }
        }
    }

    fn audiences(
        &self,
        written: &Placed<WrittenAuthenticator>,
    ) -> Result<Vec<String>, ConfigError> {
        let issuer = &written.issuer;
        if issuer.audiences.is_empty() {
            let why = "audiences is empty: name at least one, which tokens must be for";
            return Err(self.file.wrong_at(&issuer.url, why));
        }
        let mut audiences: Vec<String> = Vec::new();
        for audience in &issuer.audiences {
            if audience.is_empty() || audiences.contains(audience) {
                let why = "an audience is empty or there twice: remove it";
                return Err(self.file.wrong_at(audience, why));
            }
            audiences.push((**audience).clone());
        }
        match (audiences.len(), issuer.audience_match_policy.as_str()) {
            (1, "" | "MatchAny") | (_, "MatchAny") => Ok(audiences),
            _ => {
                let why = "audienceMatchPolicy must be MatchAny";
                Err(self.file.wrong_at(&issuer.url, why))
            }
        }
    }

    fn expression<T>(&self, at: &Placed<T>, text: &str) -> Result<CelExpression, ConfigError> {
        let compiled = CelExpression::compile(text, "claims", &CelType::AnyByName);
        compiled.map_err(|why| self.wrong_expression(at, &why))
    }

    fn wrong_expression<T>(&self, at: &Placed<T>, why: &str) -> ConfigError {
        let why = why.replace('\n', " ");
        self.file
            .wrong_at(at, format!("an expression cannot be used: {why}"))
    }

    fn mappings(&self, written: &Placed<WrittenAuthenticator>) -> Result<Mappings, ConfigError> {
        let mappings = &written.claim_mappings;
        let username = self.mapping(&mappings.username, true)?;
        let username = username.ok_or_else(|| {
            let why = "username has neither claim nor expression: write one of them";
            self.file.wrong_at(&mappings.username, why)
        })?;
        let groups = mappings
            .groups
            .as_ref()
            .map(|groups| self.mapping(groups, true));
        let uid = mappings.uid.as_ref().map(|uid| self.mapping(uid, false));
        let extra = mappings.extra.iter().map(|extra| self.extra(extra));
        let mut all = Mappings {
            username,
            groups: groups.transpose()?.flatten(),
            uid: uid.transpose()?.flatten(),
            extra: extra.collect::<Result<_, _>>()?,
            required: BTreeMap::new(),
            claim_rules: Vec::new(),
            user_rules: Vec::new(),
        };
        let mut seen = HashSet::new();
        for extra in &mappings.extra {
            if !seen.insert(extra.key.as_str()) {
                return Err(self.file.wrong_at(extra, "a key of extra is there twice"));
            }
        }
        self.claim_rules(written, &mut all)?;
        self.user_rules(written, &mut all)?;
        let reads_verified = |expression: &CelExpression| expression.reads("email_verified");
        if let Mapping::Expression(username) = &all.username
            && username.reads("email")
            && !reads_verified(username)
            && !all
                .extra
                .iter()
                .any(|(_, expression)| reads_verified(expression))
            && !all.claim_rules.iter().any(|(rule, _)| reads_verified(rule))
        {
            let why = "the name is an email address that nobody may have verified: use claims.email_verified too, as claims.?email_verified.orValue(true) == true";
            return Err(self.file.wrong_at(&mappings.username, why));
        }
        Ok(all)
    }

    fn mapping(
        &self,
        written: &Placed<WrittenMapping>,
        has_prefix: bool,
    ) -> Result<Option<Mapping>, ConfigError> {
        let wrong = |why: &str| Err(self.file.wrong_at(written, why));
        match (written.claim.is_empty(), written.expression.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => wrong("claim and expression cannot both be there: remove one"),
            (true, false) if written.prefix.is_some() => {
                wrong("a prefix is for a claim: put it into the expression")
            }
            (true, false) => {
                let expression = self.expression(written, &written.expression)?;
                Ok(Some(Mapping::Expression(expression)))
            }
            (false, true) if has_prefix && written.prefix.is_none() => {
                wrong("a claim needs a prefix, which may be empty: prefix: \"\"")
            }
            (false, true) if !has_prefix && written.prefix.is_some() => {
                wrong("a uid has no prefix: remove it")
            }
            (false, true) => Ok(Some(Mapping::Claim {
                name: written.claim.clone(),
                prefix: written.prefix.clone().unwrap_or_default(),
            })),
        }
    }

    fn extra(
        &self,
        written: &Placed<WrittenExtra>,
    ) -> Result<(String, CelExpression), ConfigError> {
        let wrong = |why: &str| Err(self.file.wrong_at(written, why));
        let Some((domain, _)) = written
            .key
            .split_once('/')
            .filter(|(_, path)| !path.is_empty())
        else {
            return wrong("a key of extra must begin with a domain, as example.com/key");
        };
        if !tidings_api::validate::dns1123_subdomain(domain).is_empty()
            || written.key.chars().any(char::is_uppercase)
        {
            return wrong(
                "a key of extra must be in small letters and begin with a domain, as example.com/key",
            );
        }
        let is_of =
            |reserved: &str| domain == reserved || domain.ends_with(&format!(".{reserved}"));
        if is_of("kubernetes.io") || is_of("k8s.io") {
            return wrong(
                "the domains k8s.io and kubernetes.io are for Kubernetes: use one of your own",
            );
        }
        if written.value_expression.is_empty() {
            return wrong("extra needs a valueExpression");
        }
        let expression = self.expression(written, &written.value_expression)?;
        Ok((written.key.clone(), expression))
    }

    fn claim_rules(
        &self,
        written: &Placed<WrittenAuthenticator>,
        all: &mut Mappings,
    ) -> Result<(), ConfigError> {
        for rule in &written.claim_validation_rules {
            let wrong = |why: &str| Err(self.file.wrong_at(rule, why));
            match (rule.claim.is_empty(), rule.expression.is_empty()) {
                (false, false) => {
                    return wrong("claim and expression cannot both be there: remove one");
                }
                (true, true) => {
                    return wrong("a rule has neither claim nor expression: write one of them");
                }
                (false, true) if !rule.message.is_empty() => {
                    return wrong("a message is for an expression: remove it");
                }
                (false, true) => {
                    let before = all
                        .required
                        .insert(rule.claim.clone(), rule.required_value.clone());
                    if before.is_some() {
                        return wrong("a claim is required twice: remove one of the two");
                    }
                }
                (true, false) if !rule.required_value.is_empty() => {
                    return wrong("a requiredValue is for a claim: remove it");
                }
                (true, false) => {
                    let expression = self.expression(rule, &rule.expression)?;
                    if !expression.may_be_bool() {
                        return wrong("a rule must be true or false");
                    }
                    all.claim_rules.push((expression, rule.message.clone()));
                }
            }
        }
        Ok(())
    }

    fn user_rules(
        &self,
        written: &Placed<WrittenAuthenticator>,
        all: &mut Mappings,
    ) -> Result<(), ConfigError> {
        for rule in &written.user_validation_rules {
            let compiled = CelExpression::compile(&rule.expression, "user", &user_type());
            let expression = compiled.map_err(|why| self.wrong_expression(rule, &why))?;
            if !expression.may_be_bool() {
                return Err(self.file.wrong_at(rule, "a rule must be true or false"));
            }
            all.user_rules.push((expression, rule.message.clone()));
        }
        Ok(())
    }
}
