//! `ServiceAccount`: Pods run as a service account that is there, and find its token in their containers.

use std::collections::BTreeSet;

use tidings_api::Status;
use tidings_json::{Value, json};
use tidings_registry::{Draft, Kind};

use crate::plugin::Plugin;
use crate::pod::{items, text};
use crate::write::{Known, PluginSaid, PluginWrite, is_kind, tree};

/// The account of Pods that name none.
pub const DEFAULT_ACCOUNT: &str = "default";
/// Pods that the kubelet reports of files: it would delete them if they were changed.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const MOUNTABLE_ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";
const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and a little more: by the odd number kube-apiserver knows tokens that may live longer.
const TOKEN_SECONDS: i64 = 3607;

pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn concerns(&self, kind: &Kind) -> bool {
        is_kind(kind, "", "pods")
    }

    fn change(
        &self,
        write: &PluginWrite<'_>,
        draft: &mut Draft,
        _: Option<&Draft>,
    ) -> Result<bool, Status> {
        if !write.creates() || is_mirror(draft) {
            return Ok(false);
        }
        if let Some(spec) = draft.members.get_mut("spec")
            && text(spec, "serviceAccountName").is_empty()
        {
            for name in ["serviceAccountName", "serviceAccount"] {
                spec[name] = DEFAULT_ACCOUNT.into();
            }
        }
        let account = account_of(write, draft)?;
        let Some(spec) = draft.members.get_mut("spec") else {
            return Ok(false);
        };
        let mounts = [
            &spec["automountServiceAccountToken"],
            &account["automountServiceAccountToken"],
        ];
        let mounts = mounts.into_iter().find_map(Value::as_bool);
        if mounts.unwrap_or(true) {
            mount_token(spec, write.random);
        }
        let pull_secrets = items(&account, "imagePullSecrets");
        if items(spec, "imagePullSecrets").is_empty() && !pull_secrets.is_empty() {
            spec["imagePullSecrets"] = Value::Array(pull_secrets.to_vec());
        }
        Ok(true)
    }

    fn check(
        &self,
        write: &PluginWrite<'_>,
        new: &Draft,
        _: Option<&Draft>,
        _: &mut PluginSaid,
    ) -> Result<(), Status> {
        if !write.creates() {
            return Ok(());
        }
        let null = Value::Null;
        let spec = new.members.get("spec").unwrap_or(&null);
        if is_mirror(new) {
            let wrong = what_mirrors_may_not(spec);
            return wrong.map_or(Ok(()), |why| Err(write.forbidden(new, why)));
        }
        if text(spec, "serviceAccountName").is_empty() {
            let (namespace, name) = (write.namespace, &new.meta.name);
            let why = format!("no service account specified for pod {namespace}/{name}");
            return Err(write.forbidden(new, &why));
        }
        let account = account_of(write, new)?;
        let enforced = account["metadata"]["annotations"][MOUNTABLE_ANNOTATION].as_str();
        let enforced =
            enforced.is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"));
        match enforced.then(|| secret_that_is_not_listed(spec, &account)) {
            Some(Some(why)) => Err(write.forbidden(new, &why)),
            _ => Ok(()),
        }
    }
}

fn is_mirror(draft: &Draft) -> bool {
    draft.meta.annotations.contains_key(MIRROR_ANNOTATION)
}

fn account_of(write: &PluginWrite<'_>, draft: &Draft) -> Result<Value, Status> {
    let name = draft.text(&["spec", "serviceAccountName"]);
    let found = write
        .cluster
        .get(Known::ServiceAccounts, write.namespace, name);
    found.as_ref().map(tree).ok_or_else(|| {
        let namespace = write.namespace;
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        write.forbidden(draft, &why)
    })
}

/// Gives the containers the token of the account, the authority of the server and the name of the namespace as files.
fn mount_token(spec: &mut Value, random: &str) {
    let volumes = items(spec, "volumes").iter();
    let known = volumes
        .map(|volume| text(volume, "name"))
        .find(|name| name.starts_with(TOKEN_VOLUME));
    let (name, is_there) = match known {
        Some(name) => (name.to_owned(), true),
        None => (format!("{TOKEN_VOLUME}{random}"), false),
    };
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut mounts = items(container, "volumeMounts").iter();
            if mounts.any(|mount| text(mount, "mountPath") == TOKEN_PATH) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
            push(container, "volumeMounts", mount);
            mounted = true;
        }
    }
    if mounted && !is_there {
        let projected = json!({
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ],
            "defaultMode": 0o644,
        });
        push(
            spec,
            "volumes",
            json!({"name": name, "projected": projected}),
        );
    }
}

fn push(into: &mut Value, list: &str, item: Value) {
    if into[list].is_null() {
        into[list] = Value::Array(Vec::new());
    }
    if let Some(values) = into[list].as_array_mut() {
        values.push(item);
    }
}

fn what_mirrors_may_not(spec: &Value) -> Option<&'static str> {
    if !text(spec, "serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = items(spec, "volumes");
    let of_secret = |volume: &Value| !volume["secret"].is_null();
    let containers = containers(spec);
    if volumes.iter().any(of_secret)
        || !items(spec, "imagePullSecrets").is_empty()
        || containers
            .iter()
            .any(|(_, container)| !secrets_of(container).is_empty())
    {
        return Some("a mirror pod may not reference secrets");
    }
    let sources = volumes
        .iter()
        .flat_map(|volume| items(&volume["projected"], "sources"));
    let mut sources = sources.filter(|source| !source["serviceAccountToken"].is_null());
    let why = "a mirror pod may not use ServiceAccountToken volume projections";
    sources.next().map(|_| why)
}

/// The containers of a spec, and what each is called.
fn containers(spec: &Value) -> Vec<(&'static str, &Value)> {
    let all = [
        ("init container", "initContainers"),
        ("container", "containers"),
    ];
    let of = |(called, list)| {
        items(spec, list)
            .iter()
            .map(move |container| (called, container))
    };
    all.into_iter().flat_map(of).collect()
}

/// The Secrets that a container takes its environment from: how each is named in messages, and its name.
fn secrets_of(container: &Value) -> Vec<(String, &str)> {
    let one = items(container, "env").iter().filter_map(|env| {
        let secret = env["valueFrom"]["secretKeyRef"].as_object()?;
        let name = secret
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Some((format!("envVar {}", text(env, "name")), name))
    });
    let all = items(container, "envFrom").iter().filter_map(|from| {
        let secret = from["secretRef"].as_object()?;
        let name = secret
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Some(("envFrom".to_owned(), name))
    });
    one.chain(all).collect()
}

/// Why a Pod may not use a Secret that its account does not list.
fn secret_that_is_not_listed(spec: &Value, account: &Value) -> Option<String> {
    let listed = |list: &str| -> BTreeSet<&str> {
        let named = items(account, list).iter();
        named.map(|secret| text(secret, "name")).collect()
    };
    let (secrets, pull_secrets) = (listed("secrets"), listed("imagePullSecrets"));
    let account_name = text(&account["metadata"], "name");
    let ends =
        format!("is not allowed because service account {account_name} does not reference that");
    for volume in items(spec, "volumes") {
        let Some(name) = volume["secret"]["secretName"].as_str() else {
            continue;
        };
        if !secrets.contains(name) {
            return Some(format!(
                "volume with secret.secretName=\"{name}\" {ends} secret"
            ));
        }
    }
    for (called, container) in containers(spec) {
        let container_name = text(container, "name");
        for (by, name) in secrets_of(container) {
            if !secrets.contains(name) {
                return Some(format!(
                    "{called} {container_name} with {by} referencing secret.secretName=\"{name}\" {ends} secret"
                ));
            }
        }
    }
    let mut pulled = items(spec, "imagePullSecrets").iter().enumerate();
    let (at, secret) = pulled.find(|(_, secret)| !pull_secrets.contains(text(secret, "name")))?;
    let name = text(secret, "name");
    Some(format!(
        "imagePullSecrets[{at}].name=\"{name}\" {ends} imagePullSecret"
    ))
}
