//! The metadata of a list, as JSON.

use crate::core::ListHead;

/// The members of a list's metadata, as JSON.
pub(crate) fn metadata_members(head: &ListHead) -> String {
    let mut meta = format!("\"resourceVersion\":\"{}\"", head.revision);
    if !head.continue_token.is_empty() {
        // The token is base64 and needs no escapes.
        meta.push_str(&format!(",\"continue\":\"{}\"", head.continue_token));
    }
    if let Some(remaining) = head.remaining.filter(|remaining| *remaining > 0) {
        meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    meta.push_str(&shard_member(head));
    meta
}

/// The member that names the shard, if only objects of one are listed. A shard selector needs no escapes.
fn shard_member(head: &ListHead) -> String {
    let member = |shard| format!(",\"shardInfo\":{{\"selector\":\"{shard}\"}}");
    head.shard.as_ref().map(member).unwrap_or_default()
}

/// The members of a list's metadata sorted by name, as in lists of custom resources. These contain `continue` even if it is empty.
pub(crate) fn sorted_metadata_members(head: &ListHead) -> String {
    let mut meta = format!("\"continue\":\"{}\"", head.continue_token);
    if let Some(remaining) = head.remaining.filter(|remaining| *remaining > 0) {
        meta.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    meta.push_str(&format!(",\"resourceVersion\":\"{}\"", head.revision));
    meta.push_str(&shard_member(head));
    meta
}
