//! Signs approved requests for certificates of clients, if the server was given an authority.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings_api::{Object, Status};
use tidings_json::{Map, Value, json};
use tidings_registry::{Draft, Subresource, read_request};

use super::client;
use crate::core::{CLIENT_SIGNER, Core, Resource};
use crate::signer::ClientSigner;

/// How often requests are looked at after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);

fn requests(core: &Core) -> Option<Arc<Resource>> {
    let (_, resource) =
        core.served()
            .find("certificates.k8s.io", "v1", "certificatesigningrequests")?;
    resource
}

/// Signs approved requests until the server stops.
pub(super) async fn run(core: Weak<Core>, signer: Option<ClientSigner>) {
    let found = core.upgrade().and_then(|core| requests(&core));
    let (Some(requests), Some(signer)) = (found, signer) else {
        return std::future::pending().await;
    };
    let mut changes = requests.cache().changes();
    drop(requests);
    loop {
        let is_settled = {
            let Some(core) = core.upgrade() else { return };
            sign_all(&core, &signer).await
        };
        let changed = match is_settled {
            true => changes.changed().await,
            false => {
                tokio::time::sleep(RETRY_EVERY).await;
                Ok(())
            }
        };
        if changed.is_err() {
            return; // the cache is gone, and the server with it
        }
    }
}

/// Signs what is approved and not signed yet. False if it has to be tried again.
async fn sign_all(core: &Core, signer: &ClientSigner) -> bool {
    let Some(requests) = requests(core) else {
        return true;
    };
    let waiting: Vec<(Object, Draft)> = {
        let (snapshot, _) = requests.cache().tail();
        let drafts = snapshot.state.iter().filter_map(|(_, object)| {
            let draft = Draft::of(&requests.kind, object).ok()?;
            is_waiting(&draft).then(|| (object.clone(), draft))
        });
        drafts.collect()
    };
    let mut is_settled = true;
    for (object, draft) in waiting {
        if let Err(status) = settle(core, &requests, signer, &object, &draft).await {
            tracing::warn!(name = draft.meta.name, %status, "an approved certificate request is not answered yet");
            is_settled = false;
        }
    }
    is_settled
}

fn is_waiting(draft: &Draft) -> bool {
    let conditions = draft
        .at(&["status", "conditions"])
        .and_then(Value::as_array);
    let has = |kind: &str| {
        conditions
            .is_some_and(|conditions| conditions.iter().any(|condition| condition["type"] == kind))
    };
    draft.text(&["spec", "signerName"]) == CLIENT_SIGNER
        && draft.text(&["status", "certificate"]).is_empty()
        && has("Approved")
        && !has("Denied")
        && !has("Failed")
}

/// Writes the certificate, or why there is none.
async fn settle(
    core: &Core,
    requests: &Arc<Resource>,
    signer: &ClientSigner,
    object: &Object,
    draft: &Draft,
) -> Result<(), Status> {
    let seconds = draft
        .at(&["spec", "expirationSeconds"])
        .and_then(Value::as_u64);
    let signed = read_request(draft.text(&["spec", "request"])).and_then(|request| {
        let usages = draft.texts(&["spec", "usages"]);
        signer.sign(
            &request.der,
            &usages,
            seconds.map(Duration::from_secs),
            SystemTime::now(),
        )
    });
    let same = |existing: &Object| existing.uid() == object.uid();
    let write = |draft: &mut Draft| {
        let status = draft
            .members
            .entry("status")
            .or_insert_with(|| Map::new().into());
        match &signed {
            Ok(certificate) => status["certificate"] = STANDARD.encode(certificate).into(),
            Err(why) => {
                let failed = json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why,
                });
                if let Some(conditions) = status["conditions"].as_array_mut() {
                    conditions.push(failed);
                }
            }
        }
    };
    let part = Some(Subresource::Status);
    match client::edit(core, requests, &object.key(), same, part, write).await {
        Err(status) if status.code == 404 => Ok(()),
        edited => edited,
    }
}
