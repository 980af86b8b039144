//! The connections to webhooks, by what is configured: those of admission and those that convert objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tidings_admission::ClientConfig;
use tidings_go::quote;
use tidings_webhook::{Dial, Webhook, WebhookAnswer};

/// How many webhooks have connections that are kept.
const CLIENTS_MAX: usize = 200;

/// Says where Services lead.
pub(super) trait FindService: Send + Sync {
    /// The host and port where a port of a Service is reached.
    fn find(&self, namespace: &str, name: &str, port: u16) -> Result<String, String>;
}

/// The connections to webhooks.
#[derive(Default)]
pub(super) struct WebhookClients {
    /// They read the caches of resources, which have this: they are the core's.
    services: OnceLock<Weak<dyn FindService>>,
    known: Mutex<HashMap<(ClientConfig, u32), Webhook>>,
}

impl WebhookClients {
    /// Reaches Services where `services` says from now on.
    pub(super) fn find_services(&self, services: Weak<dyn FindService>) {
        // It is called once, when the server is made.
        let _ = self.services.set(services);
    }

    /// The connections to a webhook that is given so many seconds for an answer.
    ///
    /// # Errors
    /// With Go's reason, if the configuration cannot be used.
    pub(super) fn client(&self, config: &ClientConfig, seconds: u32) -> Result<Webhook, String> {
        let key = (config.clone(), seconds);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known().get(&key) {
            return Ok(client.clone());
        }
        let ClientConfig {
            url,
            service,
            ca_bundle,
        } = config;
        let query = format!("?timeout={seconds}s");
        let client = match (url, service) {
            (Some(url), _) => Webhook::dialled(&format!("{url}{query}"), ca_bundle, None),
            (None, Some(service)) => {
                let (namespace, name) = (service.namespace.clone(), service.name.clone());
                let (services, port) = (self.services.get().cloned(), service.port);
                let path = service.path.trim_start_matches('/');
                let url = format!("https://{name}.{namespace}.svc:{port}/{path}{query}");
                let dial: Dial =
                    Arc::new(move || match services.as_ref().and_then(Weak::upgrade) {
                        Some(services) => services.find(&namespace, &name, port),
                        None => Err(format!("service {} not found", quote(&name))),
                    });
                Webhook::dialled(&url, ca_bundle, Some(dial))
            }
            (None, None) => Err("webhook configuration must have either service or URL".to_owned()),
        }?;
        let mut known = known();
        if known.len() >= CLIENTS_MAX {
            known.clear();
        }
        known.insert(key, client.clone());
        Ok(client)
    }
}

/// Why an answer is none, as a client in Go says it; `None` if it is one.
pub(super) fn not_answered(answered: &WebhookAnswer) -> Option<String> {
    let why = match answered.code {
        200..=206 => return None,
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => {
            let body = String::from_utf8_lossy(&answered.body);
            let start: String = match answered.is_text {
                true => body.trim().chars().take(2048).collect(),
                false => "unknown".to_owned(),
            };
            let start = quote(&start);
            format!("an error on the server ({start}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    Some(why)
}
