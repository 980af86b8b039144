//! Where the Service of a webhook leads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidings_api::{Object, ObjectKey};
use tidings_json::Value;

use super::resource::Resource;
use super::served::ServedSet;
use super::webhook_clients::FindService;

/// Says where Services lead, instead of the objects in the store: for tests, and where Services have no addresses that can be reached.
pub trait ServiceResolver: Send + Sync + std::fmt::Debug {
    /// The address of a port of a Service; `None` if the objects in the store say it.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Option<SocketAddr>;
}

/// Services and their endpoints, in the caches.
#[derive(Clone)]
pub(super) struct Services {
    services: Option<Arc<Resource>>,
    slices: Option<Arc<Resource>>,
    endpoints: Option<Arc<Resource>>,
    resolver: Option<Arc<dyn ServiceResolver>>,
}

impl Services {
    pub(super) fn new(served: &ServedSet, resolver: Option<Arc<dyn ServiceResolver>>) -> Services {
        let resource = |group: &str, plural: &str| served.find(group, "v1", plural)?.1;
        Services {
            services: resource("", "services"),
            slices: resource("discovery.k8s.io", "endpointslices"),
            endpoints: resource("", "endpoints"),
            resolver,
        }
    }

    /// The address of a ready endpoint behind a port.
    fn endpoint(&self, namespace: &str, name: &str, port: &Value) -> Option<SocketAddr> {
        let is_meant = |known: &Value| {
            let (known, wanted) = (known["name"].as_str(), port["name"].as_str());
            known.unwrap_or_default() == wanted.unwrap_or_default()
        };
        let port_of = |ports: &Value| {
            let mut ports = ports.as_array().into_iter().flatten();
            let port = ports.find(|port| is_meant(port))?["port"].as_u64()?;
            u16::try_from(port).ok()
        };
        let address = |address: &Value, port: u16| {
            let address: IpAddr = address.as_str()?.parse().ok()?;
            Some(SocketAddr::new(address, port))
        };
        let snapshot = self.slices.as_ref().map(|slices| slices.cache().snapshot());
        for (key, slice) in snapshot.iter().flat_map(|snapshot| snapshot.state.iter()) {
            let is_of_service = key.namespace() == namespace
                && slice.labels().get("kubernetes.io/service-name") == Some(name);
            if !is_of_service {
                continue;
            }
            let slice = json(slice);
            let Some(port) = port_of(&slice["ports"]) else {
                continue;
            };
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            let mut ready = endpoints.filter(|one| one["conditions"]["ready"] != false);
            let found = ready.find_map(|one| address(&one["addresses"][0], port));
            if found.is_some() {
                return found;
            }
        }
        let endpoints = self
            .endpoints
            .as_ref()?
            .get(&ObjectKey::new(namespace, name))?;
        let endpoints = json(&endpoints);
        let mut subsets = endpoints["subsets"].as_array().into_iter().flatten();
        subsets.find_map(|subset| {
            let port = port_of(&subset["ports"])?;
            address(&subset["addresses"][0]["ip"], port)
        })
    }
}

impl FindService for Services {
    /// The host and port where a port of a Service is reached: its own address, or that of one of its endpoints if it has none.
    fn find(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let resolver = self.resolver.as_ref();
        if let Some(address) = resolver.and_then(|known| known.resolve(namespace, name, port)) {
            return Ok(address.to_string());
        }
        let key = ObjectKey::new(namespace, name);
        let service = self
            .services
            .as_ref()
            .and_then(|services| services.get(&key));
        let Some(service) = service.as_ref().map(json) else {
            return Err(format!("service {} not found", tidings_go::quote(name)));
        };
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" {
            let host = spec["externalName"].as_str().unwrap_or_default();
            return Ok(format!("{host}:{port}"));
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let mut ports = ports.filter(|known| known["port"].as_u64() == Some(u64::from(port)));
        let Some(known) = ports.next() else {
            return Err(format!(
                "no service port {port} found for service {}",
                tidings_go::quote(name)
            ));
        };
        match spec["clusterIP"].as_str() {
            Some(address) if !matches!(address, "" | "None") => {
                let address: IpAddr = address
                    .parse()
                    .map_err(|_| format!("the clusterIP {address} is no address"))?;
                Ok(SocketAddr::new(address, port).to_string())
            }
            _ => self
                .endpoint(namespace, name, known)
                .map(|address| address.to_string())
                .ok_or_else(|| {
                    format!(
                        "no endpoints available for service {}",
                        tidings_go::quote(name)
                    )
                }),
        }
    }
}

fn json(object: &Object) -> Value {
    serde_json::from_slice(object.as_bytes()).unwrap_or_default()
}
