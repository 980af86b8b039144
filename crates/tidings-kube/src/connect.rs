//! From a kubeconfig to a client.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::client::RestClient;

/// A client, and what the kubeconfig says beside it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connection {
    /// The client.
    pub client: RestClient,
    /// The namespace of the context, `default` if it names none.
    pub namespace: String,
    /// The server's address.
    pub server: String,
}

/// There is no client to be had from a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig cannot be found, read or understood, or names something that is not in it.
    #[error("the kubeconfig is of no use: {0}")]
    Kubeconfig(Box<kube::config::KubeconfigError>),
    /// Neither a kubeconfig nor the environment of a Pod was found.
    #[error("there is no kubeconfig and this is not a Pod: {0}")]
    NotConfigured(Box<kube::config::InferConfigError>),
    /// The certificates or credentials are of no use.
    #[error("the kubeconfig's certificates or credentials are of no use: {0}")]
    Client(Box<kube::Error>),
}

/// Connects as kubectl would: by a kubeconfig (the one named, else `KUBECONFIG`, else the one in the home directory) and one of
/// its contexts, or as a Pod does.
///
/// # Errors
/// If there is no such kubeconfig or context, or it is of no use. The server is not asked anything yet.
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
            kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(wrong)?
        }
        None if context.is_some() || std::env::var_os("KUBECONFIG").is_some() => {
            kube::Config::from_kubeconfig(&options)
                .await
                .map_err(wrong)?
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
