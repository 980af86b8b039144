//! `tidings` under the name kube-apiserver: takes its flags, and serves from memory.

use std::path::{Path, PathBuf};

use anyhow::bail;
use tracing::warn;

use super::flags::{GivenFlags, KnownFlags};

/// All flags of kube-apiserver 1.36.
const FLAGS: KnownFlags = KnownFlags(include_str!("apiserver_flags.txt"));
/// The name under which the server is started.
pub(crate) const NAME: &str = "kube-apiserver";
/// The version whose flags and answers these are.
const VERSION: &str = "v1.36.4";

/// Flags that `tidings serve` has too.
const SHARED: [&str; 44] = [
    "anonymous-auth",
    "api-audiences",
    "audit-log-batch-buffer-size",
    "audit-log-compress",
    "audit-log-maxage",
    "audit-log-maxbackup",
    "audit-log-maxsize",
    "audit-log-mode",
    "audit-log-path",
    "audit-log-truncate-enabled",
    "audit-log-truncate-max-event-size",
    "audit-policy-file",
    "audit-webhook-batch-buffer-size",
    "audit-webhook-batch-max-size",
    "audit-webhook-batch-max-wait",
    "audit-webhook-batch-throttle-burst",
    "audit-webhook-batch-throttle-enable",
    "audit-webhook-batch-throttle-qps",
    "audit-webhook-config-file",
    "audit-webhook-initial-backoff",
    "audit-webhook-mode",
    "audit-webhook-truncate-enabled",
    "audit-webhook-truncate-max-event-size",
    "authentication-config",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "client-ca-file",
    "disable-admission-plugins",
    "enable-admission-plugins",
    "enable-bootstrap-token-auth",
    "encryption-provider-config",
    "encryption-provider-config-automatic-reload",
    "service-account-extend-token-expiration",
    "service-account-issuer",
    "service-account-jwks-uri",
    "service-account-key-file",
    "service-account-max-token-expiration",
    "service-account-signing-key-file",
    "tls-cert-file",
    "tls-private-key-file",
    "tls-sni-cert-key",
    "token-auth-file",
];
/// Flags that are read here, or mean nothing for a server in memory whose port is its own.
const READ: [&str; 7] = [
    "allow-privileged",
    "authorization-mode",
    "bind-address",
    "cert-dir",
    "etcd-servers",
    "secure-port",
    "service-cluster-ip-range",
];
/// Where kube-apiserver has its certificates.
const CERTIFICATES: &str = "/var/run/kubernetes";
/// The environment variable that says which controllers run; as kube-apiserver's, none does.
const CONTROLLERS: &str = "TIDINGS_CONTROLLERS";

/// What to do for a command line of kube-apiserver.
pub(crate) enum Asked {
    /// Print a text.
    Print(String),
    /// Run `tidings serve` with these arguments, and say in the log which flags have no effect.
    Serve(Vec<String>, Vec<String>),
}

/// Reads the arguments of kube-apiserver.
pub(crate) fn read(arguments: Vec<String>) -> anyhow::Result<Asked> {
    if arguments
        .iter()
        .any(|argument| matches!(argument.as_str(), "--help" | "-h"))
    {
        return Ok(Asked::Print(help()));
    }
    if arguments
        .iter()
        .any(|argument| argument.starts_with("--version"))
    {
        return Ok(Asked::Print(format!("Kubernetes {VERSION}\n")));
    }
    let controllers = std::env::var(CONTROLLERS).unwrap_or_default();
    serving(&FLAGS.read(NAME, arguments)?, &controllers)
}

fn serving(given: &GivenFlags, controllers: &str) -> anyhow::Result<Asked> {
    let certificates = PathBuf::from(given.get("cert-dir").unwrap_or(CERTIFICATES));
    let port = given.get("secure-port").unwrap_or("6443");
    let Ok(port) = port.parse::<u16>() else {
        bail!("--secure-port {port} is no port: write a number below 65536");
    };
    let address = given.get("bind-address").unwrap_or("0.0.0.0");
    let address = match address {
        "::" => "[::]".to_owned(),
        address if address.contains(':') => format!("[{address}]"),
        address => address.to_owned(),
    };
    let option = |name: &str, value: &str| format!("--{name}={value}");
    let path = |path: &Path| path.display().to_string();
    let mut arguments: Vec<String> = vec![
        "tidings".into(),
        "serve".into(),
        "--ephemeral".into(),
        option("listen", &format!("{address}:{port}")),
        option(
            "kubeconfig",
            &path(&certificates.join("tidings.kubeconfig")),
        ),
        option("controllers", controllers),
    ];
    let own = [
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
    ];
    let own = own.map(|(name, file)| (name, certificates.join(file)));
    if given.get("tls-cert-file").is_none() && own.iter().all(|(_, file)| file.exists()) {
        arguments.extend(own.iter().map(|(name, file)| option(name, &path(file))));
    }
    let modes = given.get("authorization-mode").unwrap_or("AlwaysAllow");
    let (mut kept, mut without_effect) = (Vec::new(), Vec::new());
    for mode in modes.split(',') {
        match mode {
            "Node" => without_effect.push("--authorization-mode=Node".to_owned()),
            "ABAC" => bail!("--authorization-mode=ABAC is not built: use RBAC or Webhook"),
            mode => kept.push(mode),
        }
    }
    arguments.push(option("authorization-mode", &kept.join(",")));
    for (name, value) in &given.0 {
        if SHARED.contains(&name.as_str()) {
            arguments.push(option(name, value));
        } else if !READ.contains(&name.as_str()) {
            without_effect.push(format!("--{name}"));
        }
    }
    Ok(Asked::Serve(arguments, without_effect))
}

/// Says which flags were accepted and do nothing.
pub(crate) fn tell(without_effect: &[String]) {
    for flag in without_effect {
        warn!(flag, "a flag of kube-apiserver that has no effect here");
    }
}

fn help() -> String {
    let mut help = format!(
        "Tidings as {NAME} {VERSION}: an API server in memory for tests, with the flags of {NAME}.\n\n\
         Flags that have an effect:\n\n"
    );
    let (mut acts, mut accepted) = (String::new(), String::new());
    for name in FLAGS.names() {
        let has_effect = [&SHARED[..], &READ].iter().any(|all| all.contains(&name));
        let list = if has_effect { &mut acts } else { &mut accepted };
        list.push_str(&format!("      --{name}\n"));
    }
    help.push_str(&acts);
    help.push_str("\nFlags that are accepted and have none:\n\n");
    help.push_str(&accepted);
    help.push_str(&format!(
        "\n{CONTROLLERS} in the environment says which controllers run, as --controllers of `tidings serve` does: none by default, as in {NAME}.\n"
    ));
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        match serving(&FLAGS.read(NAME, arguments).unwrap(), "").unwrap() {
            Asked::Serve(arguments, without_effect) => (arguments, without_effect),
            Asked::Print(text) => panic!("{text}"),
        }
    }

    #[test]
    fn what_envtest_passes_becomes_options_of_serve() {
        let (arguments, without_effect) = served(&[
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--cert-dir=/tmp/none",
            "--client-ca-file=/tmp/none/client-cert-auth-ca.crt",
            "--disable-admission-plugins=ServiceAccount",
            "--etcd-servers=http://127.0.0.1:1234",
            "--secure-port=5678",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--feature-gates=A=true",
            "-v=3",
        ]);
        assert_eq!(
            arguments[2..],
            [
                "--ephemeral",
                "--listen=127.0.0.1:5678",
                "--kubeconfig=/tmp/none/tidings.kubeconfig",
                "--controllers=",
                "--authorization-mode=RBAC",
                "--client-ca-file=/tmp/none/client-cert-auth-ca.crt",
                "--disable-admission-plugins=ServiceAccount",
            ]
        );
        assert_eq!(without_effect, ["--feature-gates", "--v"]);
        let (arguments, without_effect) =
            served(&["--authorization-mode=Node,RBAC", "--bind-address=::1"]);
        assert!(arguments.contains(&"--listen=[::1]:6443".to_owned()));
        assert!(arguments.contains(&"--authorization-mode=RBAC".to_owned()));
        assert_eq!(without_effect, ["--authorization-mode=Node"]);
    }

    #[test]
    fn every_flag_that_is_used_is_one_of_kube_apiserver() {
        let known: Vec<&str> = FLAGS.names().collect();
        for name in [&SHARED[..], &READ].concat() {
            assert!(known.contains(&name), "{name}");
        }
        // envtest looks for this one at the beginning of a line.
        assert!(
            !help()
                .lines()
                .any(|line| line.trim_start().starts_with("--insecure-port"))
        );
    }
}
