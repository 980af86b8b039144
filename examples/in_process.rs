//! An API server inside the program, and a client of kube that talks to it without a socket.

use std::sync::Arc;

use tidings_server::{Api, ApiOptions};
use tidings_storage::{Embedded, EmbeddedOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = Arc::new(Embedded::ephemeral(EmbeddedOptions::default()));
    let api = Api::start(store, ApiOptions::default()).await?;
    let client = kube::Client::new(api, "default");
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    let list = namespaces.list(&Default::default()).await?;
    println!("{} namespaces", list.items.len());
    Ok(())
}
