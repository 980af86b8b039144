//! Writes to etcd: each is a transaction that compares the revision of the key's last change.

use std::sync::atomic::Ordering;

use super::EtcdShared;
use super::client::CallEffect;
use super::proto::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse, request_op, response_op,
};
use crate::contract::{Error, Expected, Revision, Write};

impl EtcdShared {
    pub(super) async fn write(&self, write: Write) -> Result<Revision, Error> {
        let lease = match &write.value {
            Some(_) => self.leases.of(&write.key, &self.client).await?,
            None => 0,
        };
        let outcome = match self.transact(&write, lease).await {
            Err(Error::Failed(why)) if lease != 0 && why.contains("lease not found") => {
                self.leases.forget();
                let lease = self.leases.of(&write.key, &self.client).await?;
                self.transact(&write, lease).await
            }
            outcome => outcome,
        };
        outcome.map_err(|error| match error {
            Error::TooLarge { bytes_max, .. } => Error::TooLarge {
                bytes: write.bytes() as u64,
                bytes_max,
            },
            other => other,
        })
    }

    async fn transact(&self, write: &Write, lease: i64) -> Result<Revision, Error> {
        let key = self.key(&write.key);
        let expected = match write.expected {
            Expected::Absent => 0,
            Expected::At(revision) => revision.0 as i64,
        };
        let change = match &write.value {
            Some(value) => request_op::RequestOperation::Put(PutRequest {
                key: key.clone(),
                value: value.clone(),
                lease,
            }),
            None => {
                request_op::RequestOperation::DeleteRange(DeleteRangeRequest { key: key.clone() })
            }
        };
        let look = request_op::RequestOperation::Range(RangeRequest {
            key: key.clone(),
            keys_only: true,
            ..RangeRequest::default()
        });
        let operation = |request| RequestOp {
            request: Some(request),
        };
        let request = TxnRequest {
            compare: vec![Compare::last_changed_at(key, expected)],
            success: vec![operation(change)],
            failure: vec![operation(look)],
        };
        let path = "/etcdserverpb.KV/Txn";
        let answer: TxnResponse = self.client.call(path, request, CallEffect::Write).await?;
        let ResponseHeader { revision, .. } = answer.header.unwrap_or_default();
        if !answer.succeeded {
            let current = answer.responses.into_iter().find_map(|operation| {
                let Some(response_op::ResponseOperation::Range(found)) = operation.response else {
                    return None;
                };
                let entry = found.kvs.first()?;
                Some(Revision(entry.mod_revision as u64))
            });
            return Err(Error::Conflict { current });
        }
        let revision = Revision(revision as u64);
        self.note(revision);
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(revision)
    }
}
