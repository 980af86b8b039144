//! Makes a client from a kubeconfig.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::client::RestClient;

/// A client, and the namespace and server of its context.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connection {
    /// The client.
    pub client: RestClient,
    /// The namespace of the context; `default` if it has none.
    pub namespace: String,
    /// The server's address.
    pub server: String,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig is missing or invalid, or refers to an entry that it does not have.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(Box<kube::config::KubeconfigError>),
    /// The kubeconfig does not have the context.
    #[error("the kubeconfig has no context {context:?}{}", known(.contexts))]
    NoContext {
        /// The name of the context.
        context: String,
        /// The contexts that it has.
        contexts: Vec<String>,
    },
    /// Neither a kubeconfig nor the environment of a Pod was found.
    #[error(
        "found no kubeconfig, and this program does not run in a Pod: set KUBECONFIG to the path of one, or write ~/.kube/config"
    )]
    NotConfigured(Box<kube::config::InferConfigError>),
    /// The certificates or credentials are invalid.
    #[error("the kubeconfig's certificates or credentials cannot be used: {0}")]
    Client(Box<kube::Error>),
}

fn known(contexts: &[String]) -> String {
    match contexts {
        [] => String::new(),
        contexts => format!(": it has {}", contexts.join(", ")),
    }
}

/// Makes a client as kubectl does: from a kubeconfig (the given one, else `KUBECONFIG`, else the one in the home directory) and
/// one of its contexts, or from the service account of a Pod.
///
/// # Errors
/// If the kubeconfig or context is missing or invalid. No request is sent to the server.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Connection, ConnectError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let wrong = |error| ConnectError::Kubeconfig(Box::new(error));
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
            of_kubeconfig(kubeconfig, &options).await?
        }
        None if context.is_some() || std::env::var_os("KUBECONFIG").is_some() => {
            of_kubeconfig(Kubeconfig::read().map_err(wrong)?, &options).await?
        }
        None => kube::Config::infer()
            .await
            .map_err(|error| ConnectError::NotConfigured(Box::new(error)))?,
    };
    let (namespace, server) = (
        config.default_namespace.clone(),
        config.cluster_url.to_string(),
    );
    let client =
        RestClient::from_config(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
    Ok(Connection {
        client,
        namespace,
        server,
    })
}

async fn of_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, ConnectError> {
    if let Some(context) = &options.context
        && !kubeconfig
            .contexts
            .iter()
            .any(|known| known.name == *context)
    {
        let contexts = kubeconfig.contexts.into_iter();
        return Err(ConnectError::NoContext {
            context: context.clone(),
            contexts: contexts.map(|known| known.name).collect(),
        });
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, options);
    config
        .await
        .map_err(|error| ConnectError::Kubeconfig(Box::new(error)))
}
