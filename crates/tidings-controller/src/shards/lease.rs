//! The Leases of a group: how members and the table are written into them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings_informer::Snapshot;
use tidings_kube::ApiResource;

use super::machine::{GroupRecords, MemberRecord};
use super::table::{Acknowledged, MemberList, ShardTable};

/// The label of all Leases of a group.
pub(crate) const GROUP_LABEL: &str = "tidings.dev/shard-group";
const ACKNOWLEDGED: &str = "tidings.dev/shard-epoch";
const LEAVING: &str = "tidings.dev/shard-leaving";
const TABLE: &str = "tidings.dev/shard-table";

/// The resource `leases.coordination.k8s.io`.
pub(crate) fn leases() -> ApiResource {
    ApiResource {
        group: "coordination.k8s.io".into(),
        version: "v1".into(),
        api_version: "coordination.k8s.io/v1".into(),
        kind: "Lease".into(),
        plural: "leases".into(),
    }
}

/// The members of a Lease that groups read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseForm {
    metadata: LeaseMetadata,
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseMetadata {
    name: String,
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    lease_duration_seconds: u64,
}

/// Reads the Leases of a group from the cache.
pub(crate) fn records(group: &str, leases: &Snapshot<LeaseForm>) -> GroupRecords {
    let mut records = GroupRecords::default();
    for lease in leases.iter() {
        let LeaseForm { metadata, spec } = lease.value();
        let annotation = |name: &str| metadata.annotations.get(name);
        let version = metadata.resource_version.clone();
        if metadata.name == group {
            let table = annotation(TABLE).and_then(|table| serde_json::from_str(table).ok());
            // A table that cannot be read is none: the next one gets a higher epoch than all that were acknowledged.
            let unreadable = ShardTable {
                epoch: 0,
                members: MemberList::default(),
                before: None,
            };
            records.table = Some((table.unwrap_or(unreadable), version));
            continue;
        }
        let record = MemberRecord {
            version,
            acknowledged: annotation(ACKNOWLEDGED)
                .map(|text| Acknowledged::parse(text))
                .unwrap_or_default(),
            leaving: annotation(LEAVING).is_some(),
            lease: Duration::from_secs(spec.lease_duration_seconds.max(1)),
        };
        records.members.insert(metadata.name.clone(), record);
    }
    records
}

fn micro_time(time: SystemTime) -> Value {
    Timestamp::try_from(time).map_or(Value::Null, |time| format!("{time:.6}").into())
}

/// The Lease of a member that joins.
pub(crate) fn joining(group: &str, member: &str, lease: Duration, now: SystemTime) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": member, "labels": {GROUP_LABEL: group}},
        "spec": {"holderIdentity": member, "leaseDurationSeconds": lease.as_secs(),
            "acquireTime": micro_time(now), "renewTime": micro_time(now)},
    })
}

/// The merge patch that renews a member's Lease, if it has this version.
pub(crate) fn renewal(
    version: &str,
    acknowledged: Acknowledged,
    leaving: bool,
    now: SystemTime,
) -> Value {
    let mut annotations = json!({ACKNOWLEDGED: acknowledged.to_string()});
    if leaving {
        annotations[LEAVING] = "true".into();
    }
    json!({
        "metadata": {"resourceVersion": version, "annotations": annotations},
        "spec": {"renewTime": micro_time(now)},
    })
}

/// The Lease of the table: whole, to create it, or with a version, as a merge patch.
pub(crate) fn table(
    group: &str,
    table: &ShardTable,
    version: Option<&str>,
    writer: &str,
    now: SystemTime,
) -> Value {
    let text = serde_json::to_string(table).unwrap_or_default();
    let transitions = i32::try_from(table.epoch).unwrap_or(i32::MAX);
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": group, "labels": {GROUP_LABEL: group}, "annotations": {TABLE: text}},
        "spec": {"holderIdentity": writer, "leaseTransitions": transitions, "renewTime": micro_time(now)},
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = version.into();
    }
    lease
}
