//! Leader election by a Lease, as client-go does it: kube-rs has none.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

/// client-go's times: how long a Lease holds, how long its leader tries to renew it, and how often anybody tries.
const LEASE_SECONDS: i32 = 15;
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

pub struct Leader {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

impl Leader {
    pub fn new(client: Client, namespace: &str, name: &str) -> Leader {
        Leader {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: format!("kube-rs-{}", Timestamp::now().as_nanosecond()),
        }
    }

    /// Waits until this process leads.
    pub async fn acquire(&self) {
        while !self.try_hold().await {
            sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews the Lease until that fails for too long.
    pub async fn lost(&self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < RENEW_DEADLINE {
            sleep(RETRY_PERIOD).await;
            if self.try_hold().await {
                renewed = Instant::now();
            }
        }
    }

    /// Gives the Lease back, so that the next process need not wait.
    pub async fn release(&self) {
        if let Ok(Some(mut lease)) = self.leases.get_opt(&self.name).await
            && let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_deref() == Some(&*self.identity)
        {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            let _ = self
                .leases
                .replace(&self.name, &PostParams::default(), &lease)
                .await;
        }
    }

    async fn try_hold(&self) -> bool {
        let held = timeout(RENEW_DEADLINE, self.hold()).await;
        matches!(held, Ok(Ok(true)))
    }

    async fn hold(&self) -> kube::Result<bool> {
        let now = Timestamp::now();
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(now)),
            };
            self.leases.create(&PostParams::default(), &lease).await?;
            return Ok(true);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let is_own = holder == self.identity;
        if !is_own && !holder.is_empty() && !has_expired(&spec, now) {
            return Ok(false);
        }
        let mut new = self.spec(now);
        if is_own {
            new.acquire_time = spec.acquire_time;
        }
        lease.spec = Some(new);
        // With the resourceVersion that was read: of two processes one gets a conflict.
        self.leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await?;
        Ok(true)
    }

    fn spec(&self, now: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }
    }
}

fn has_expired(spec: &LeaseSpec, now: Timestamp) -> bool {
    let length = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
    spec.renew_time
        .as_ref()
        .is_none_or(|renewed| renewed.0 + length < now)
}
