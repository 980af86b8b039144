//! Tokens of issuers: which are believed, who their users are, where keys come from, and what a file may not say.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_access::User;
use tidings_config::ConfigFile;
use tidings_identity::{SigningKey, sign, web_keys};
use tidings_oidc::{AnonymousRule, AuthenticationConfig, TokenIssuers, read_keys};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const ISSUER: &str = "https://login.example.com";
const NOW: i64 = 1_800_000_000;

fn key() -> SigningKey {
    SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap()
}

fn config(jwt: &str) -> Result<AuthenticationConfig, String> {
    let text =
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{jwt}");
    let file = ConfigFile::new("a.yaml", text.as_bytes()).unwrap();
    AuthenticationConfig::read(&file).map_err(|error| error.to_string())
}

/// A configuration of one issuer with these mappings and rules, in YAML behind two spaces.
fn one(rest: &str) -> String {
    format!(
        "jwt:\n- issuer:\n    url: {ISSUER}\n    audiences: [kubernetes, other]\n    audienceMatchPolicy: MatchAny\n{rest}"
    )
}

fn issuers(rest: &str, key: &SigningKey) -> TokenIssuers {
    let keys = read_keys(&web_keys(&[key.public().clone()])).unwrap();
    let given = HashMap::from([(ISSUER.to_owned(), keys)]);
    TokenIssuers::new(config(&one(rest)).unwrap(), given).unwrap()
}

fn claims(more: &Value) -> Value {
    let mut all = json!({"iss": ISSUER, "aud": "kubernetes", "exp": NOW + 60, "sub": "u1"});
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

fn shown(user: Result<User, String>) -> String {
    match user {
        Err(why) => why,
        Ok(user) => {
            let mut text = format!("{} {:?}", user.name, user.groups);
            if !user.uid.is_empty() {
                write!(text, " {}", user.uid).unwrap();
            }
            if !user.extra.is_empty() {
                write!(text, " {:?}", user.extra).unwrap();
            }
            text
        }
    }
}

#[tokio::test]
async fn claims_become_users_by_name_and_by_expression() {
    let key = key();
    let by_name = "  claimMappings:\n    username: {claim: sub, prefix: 'x:'}\n    groups: {claim: roles, prefix: 'g:'}\n    uid: {claim: id}\n";
    let by_email = "  claimMappings:\n    username: {claim: email, prefix: ''}\n";
    let by_expression = "  claimValidationRules:\n  - {claim: tenant, requiredValue: t1}\n  - {expression: 'claims.exp - claims.iat <= 3600', message: 'it lives too long'}\n  \
         claimMappings:\n    username: {expression: '\"o:\" + claims.sub'}\n    groups: {expression: 'claims.?roles.orValue([])'}\n    uid: {expression: 'claims.sub'}\n    \
         extra:\n    - {key: example.com/tenant, valueExpression: claims.tenant}\n    - {key: example.com/none, valueExpression: \"''\"}\n  \
         userValidationRules:\n  - {expression: \"!user.username.startsWith('o:system:')\", message: 'reserved'}\n";
    let times = json!({"iat": NOW, "tenant": "t1"});
    let with = |more: Value| {
        let mut all = times.clone();
        for (name, value) in more.as_object().unwrap() {
            all[name] = value.clone();
        }
        all
    };
    for (rest, more, expected) in [
        (
            by_name,
            json!({"roles": ["a", "b"], "id": "7"}),
            r#"x:u1 ["g:a", "g:b"] 7"#,
        ),
        (
            by_name,
            json!({"roles": "a", "id": "7", "jti": "j1"}),
            r#"x:u1 ["g:a"] 7 {"authentication.kubernetes.io/credential-id": ["JTI=j1"]}"#,
        ),
        (
            by_name,
            json!({}),
            r#"oidc: parse uid claim "id": claim not present"#,
        ),
        (
            by_name,
            json!({"id": "7", "roles": [1]}),
            r#"oidc: parse groups claim "roles": it is neither a text nor a list of texts"#,
        ),
        (by_email, json!({"email": "a@x"}), "a@x []"),
        (
            by_email,
            json!({"email": "a@x", "email_verified": true}),
            "a@x []",
        ),
        (
            by_email,
            json!({"email": "a@x", "email_verified": false}),
            "oidc: email not verified",
        ),
        (
            by_email,
            json!({}),
            r#"oidc: parse username claims "email": claim not present"#,
        ),
        (
            by_expression,
            with(json!({"roles": ["a"]})),
            r#"o:u1 ["a"] u1 {"example.com/tenant": ["t1"]}"#,
        ),
        (
            by_expression,
            with(json!({"iat": NOW - 3600})),
            "oidc: error evaluating claim validation expression: validation expression failed: it lives too long",
        ),
        (
            by_expression,
            with(json!({"tenant": "t2"})),
            "oidc: required claim tenant value does not match. Got = t2, want = t1",
        ),
        (
            by_expression,
            with(json!({"sub": "system:x"})),
            "oidc: error evaluating user info validation rule: validation expression failed: reserved",
        ),
        (
            by_expression,
            with(json!({"sub": 3})),
            "oidc: error evaluating username claim expression: no such overload",
        ),
        (
            by_expression,
            with(json!({"roles": {"a": 1}})),
            "oidc: error evaluating group claim expression: expression must return a string or a list of strings",
        ),
    ] {
        let token = sign(&claims(&more), &key).unwrap();
        let user = issuers(rest, &key).user(&token, NOW).await.unwrap();
        assert_eq!(shown(user), expected, "{more}");
    }
}

#[tokio::test]
async fn tokens_that_are_wrong_late_or_for_others_are_refused() {
    let (own, other) = (key(), key());
    let rest = "  claimMappings:\n    username: {claim: sub, prefix: ''}\n";
    let issuers = issuers(rest, &own);
    for (more, by, expected) in [
        (json!({"aud": ["a", "other"]}), &own, "u1 []"),
        (
            json!({"aud": ["a"]}),
            &own,
            r#"oidc: verify token: oidc: expected audience in ["kubernetes" "other"] got ["a"]"#,
        ),
        (
            json!({"exp": NOW - 1}),
            &own,
            "oidc: verify token: oidc: token is expired",
        ),
        (
            json!({"exp": null}),
            &own,
            "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
        ),
        (json!({"nbf": NOW + 299}), &own, "u1 []"),
        (
            json!({"nbf": NOW + 301}),
            &own,
            "oidc: verify token: oidc: current time before the nbf (not before) time",
        ),
        (
            json!({}),
            &other,
            "oidc: verify token: failed to verify signature: invalid signature, no keys found",
        ),
    ] {
        let token = sign(&claims(&more), by).unwrap();
        let user = issuers.user(&token, NOW).await.unwrap();
        assert_eq!(shown(user), expected, "{more}");
    }
    // Of no issuer that is known: others may know it.
    let token = sign(&claims(&json!({"iss": "https://elsewhere"})), &own).unwrap();
    assert!(issuers.user(&token, NOW).await.is_none());
    assert!(issuers.user("hm", NOW).await.is_none());
    // Claims that somebody has changed.
    let token = sign(&claims(&json!({})), &own).unwrap();
    let changed = sign(&claims(&json!({"sub": "root"})), &own).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let forged = format!(
        "{}.{}.{}",
        parts[0],
        changed.split('.').nth(1).unwrap(),
        parts[2]
    );
    let user = issuers.user(&forged, NOW).await.unwrap();
    assert_eq!(
        shown(user),
        "oidc: verify token: failed to verify signature: error in cryptographic primitive"
    );
}

/// An issuer behind TLS, whose keys can change.
async fn serve(keys: Arc<Mutex<Vec<u8>>>, asked: Arc<AtomicUsize>) -> (String, String) {
    let own = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&own)
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            own.serialize_der().try_into().unwrap(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let own_url = url.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let body = match head.starts_with("GET /keys ") {
                true => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    keys.lock().unwrap().clone()
                }
                false => json!({"issuer": own_url, "jwks_uri": format!("{own_url}/keys")})
                    .to_string()
                    .into_bytes(),
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[answer.as_bytes(), &body].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, certificate.pem())
}

#[tokio::test]
async fn keys_are_read_from_the_issuer_when_a_token_needs_them() {
    let (first, second) = (key(), key());
    let keys = Arc::new(Mutex::new(web_keys(&[first.public().clone()])));
    let asked = Arc::new(AtomicUsize::new(0));
    let (url, authority) = serve(keys.clone(), asked.clone()).await;
    let indented = authority.replace('\n', "\n      ");
    let text = format!(
        "jwt:\n- issuer:\n    url: {url}\n    audiences: [kubernetes]\n    certificateAuthority: |\n      {indented}\n  claimMappings:\n    username: {{claim: sub, prefix: ''}}\n"
    );
    let issuers = TokenIssuers::new(config(&text).unwrap(), HashMap::new()).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let token = |key: &SigningKey| sign(&claims(&json!({"iss": url})), key).unwrap();
    for _ in 0..3 {
        let user = issuers.user(&token(&first), NOW).await.unwrap();
        assert_eq!(shown(user), "u1 []");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);

    // A new key is found, but nobody makes the server ask all the time.
    *keys.lock().unwrap() = web_keys(&[first.public().clone(), second.public().clone()]);
    for _ in 0..3 {
        assert!(issuers.user(&token(&second), NOW).await.unwrap().is_err());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(
        shown(issuers.user(&token(&second), NOW).await.unwrap()),
        "u1 []"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 2);

    // While the issuer serves nonsense, the keys before are used.
    *keys.lock().unwrap() = b"hm".to_vec();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert!(issuers.user(&token(&key()), NOW).await.unwrap().is_err());
    assert_eq!(
        shown(issuers.user(&token(&second), NOW).await.unwrap()),
        "u1 []"
    );
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    drop(listener);
    let text = format!(
        "jwt:\n- issuer: {{url: '{url}', audiences: [a]}}\n  claimMappings: {{username: {{claim: sub, prefix: ''}}}}\n"
    );
    let issuers = TokenIssuers::new(config(&text).unwrap(), HashMap::new()).unwrap();
    let token = sign(&claims(&json!({"iss": url})), &key()).unwrap();
    let why = issuers.user(&token, NOW).await.unwrap().unwrap_err();
    assert!(why.starts_with(&format!("oidc: authenticator for issuer {url:?} is not initialized: GET {url}/.well-known/openid-configuration: ")), "{why}");
}

#[test]
fn who_may_ask_without_a_credential() {
    let anonymous = |text: &str| {
        let issuers = TokenIssuers::new(config(text).unwrap(), HashMap::new()).unwrap();
        issuers.anonymous().cloned()
    };
    assert_eq!(anonymous(""), None);
    assert_eq!(
        anonymous("anonymous: {enabled: false}\n"),
        Some(AnonymousRule::Nobody)
    );
    assert_eq!(
        anonymous("anonymous: {enabled: true}\n"),
        Some(AnonymousRule::Everybody)
    );
    let some = anonymous("anonymous: {enabled: true, conditions: [{path: /livez}]}\n").unwrap();
    assert!(some.allows("/livez") && !some.allows("/livez/ping") && !some.allows("/api"));
    let wrong = config("anonymous: {enabled: false, conditions: [{path: /livez}]}\n").unwrap_err();
    assert!(
        wrong.contains("a.yaml, line 3: conditions are for enabled: true"),
        "{wrong}"
    );
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    let username = "  claimMappings:\n    username: {claim: sub, prefix: ''}\n";
    let issuer = |text: &str| format!("jwt:\n- issuer: {{{text}}}\n{username}");
    for (text, expected) in [
        (
            issuer("url: 'http://a', audiences: [a]"),
            "line 4: write a URL that begins with https://",
        ),
        (
            issuer("url: 'https://a/?b', audiences: [a]"),
            "line 4: write a URL",
        ),
        (
            issuer("url: 'https://a', audiences: []"),
            "line 4: audiences is empty",
        ),
        (
            issuer("url: 'https://a', audiences: [a, a], audienceMatchPolicy: MatchAny"),
            "line 4: an audience is empty or there twice",
        ),
        (
            issuer("url: 'https://a', audiences: [a, b]"),
            "line 4: audienceMatchPolicy must be MatchAny",
        ),
        (
            issuer("url: 'https://a', audiences: [a], discoveryURL: 'https://a/'"),
            "line 4: discoveryURL is the same as url",
        ),
        (
            issuer("url: 'https://a', audiences: [a], certificateAuthority: hm"),
            "line 4: certificateAuthority has no certificate",
        ),
        (
            issuer("url: 'https://a', audiences: [a], egressSelectorType: cluster"),
            "line 4: egressSelectorType is not built",
        ),
        (
            one("  claimMappings:\n    username: {}\n"),
            "line 9: username has neither claim nor expression",
        ),
        (
            one("  claimMappings:\n    username: {claim: sub}\n"),
            "line 9: a claim needs a prefix",
        ),
        (
            one("  claimMappings:\n    username: {claim: sub, expression: claims.sub}\n"),
            "line 9: claim and expression cannot both",
        ),
        (
            one("  claimMappings:\n    username: {expression: 'claims.sub +'}\n"),
            "line 9: an expression cannot be used",
        ),
        (
            one("  claimMappings:\n    username: {expression: claims.email}\n"),
            "line 9: the name is an email address",
        ),
        (
            one("  claimMappings:\n    username: {expression: 'user.name'}\n"),
            "undeclared reference to 'user'",
        ),
        (
            one(&format!(
                "{username}    extra:\n    - {{key: a, valueExpression: claims.a}}\n"
            )),
            "line 11: a key of extra must begin with a domain",
        ),
        (
            one(&format!(
                "{username}    extra:\n    - {{key: x.k8s.io/a, valueExpression: claims.a}}\n"
            )),
            "line 11: the domains k8s.io and kubernetes.io are for Kubernetes",
        ),
        (
            one(&format!("  claimValidationRules:\n  - {{}}\n{username}")),
            "line 9: a rule has neither claim nor expression",
        ),
        (
            one(&format!(
                "  claimValidationRules:\n  - {{expression: \"'a'\"}}\n{username}"
            )),
            "line 9: a rule must be true or false",
        ),
        (
            one(&format!(
                "{username}  userValidationRules:\n  - {{expression: user.nom == 'a'}}\n"
            )),
            "undefined field 'nom'",
        ),
        (
            format!(
                "{}{}",
                one(username),
                one(username).trim_start_matches("jwt:\n")
            ),
            "an issuer is there twice",
        ),
        ("jwts: []\n".to_owned(), "line 3: unknown field `jwts`"),
    ] {
        let said = config(&text).unwrap_err();
        assert!(said.contains(expected), "{said}\n{text}");
    }
}
