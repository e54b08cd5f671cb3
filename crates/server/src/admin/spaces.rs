//! `GET /admin/v1/spaces`: the spaces of feeds by size, page by page.

use alluvium_feeds::Service;
use serde_json::{Value, json};

use super::query::Query;
use super::refusal::Refusal;

/// A page that is asked for: spaces by size, the largest first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    limit: usize,
    /// The size and the folder of the last item of the page before.
    after: Option<(u64, String)>,
}

impl Asked {
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Refusal> {
        let query = Query::parse(raw, &["limit", "cursor"])?;
        let after = query.get("cursor").filter(|cursor| !cursor.is_empty()).map(cursor).transpose()?;
        Ok(Self { limit: query.limit()?, after })
    }
}

fn cursor(text: &str) -> Result<(u64, String), Refusal> {
    let (bytes, folder) = text.split_once('.').ok_or(Refusal::Cursor)?;
    let bytes = u64::from_str_radix(bytes, 16).map_err(|_| Refusal::Cursor)?;
    let is_folder = !folder.is_empty() && folder.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_folder { Ok((bytes, folder.to_owned())) } else { Err(Refusal::Cursor) }
}

/// The page.
pub(crate) fn page(feeds: &Service, asked: &Asked, now_ms: u64) -> Result<Value, Refusal> {
    let all = feeds.survey().map_err(|error| {
        tracing::error!(%error, "the folder of feeds cannot be read");
        Refusal::Unreadable
    })?;
    let (total, total_bytes) = (all.len(), all.iter().map(|space| space.bytes).sum::<u64>());
    let is_after = |bytes: u64, folder: &str| match &asked.after {
        None => true,
        Some((after, at)) => bytes < *after || (bytes == *after && folder > at.as_str()),
    };
    let mut rest = all.into_iter().filter(|space| is_after(space.bytes, &space.folder));
    let page: Vec<_> = rest.by_ref().take(asked.limit).collect();
    let has_more = rest.next().is_some();
    let next = page.last().filter(|_| has_more).map(|last| format!("{:x}.{}", last.bytes, last.folder));
    let spaces: Vec<Value> = page
        .iter()
        .map(|space| {
            // None of one that cannot be read now.
            let listed = feeds.space_in(&space.folder);
            json!({
                "space_id": listed.as_ref().map(|listed| listed.id.as_str()),
                "deleted_at_ms": listed.as_ref().and_then(|listed| listed.deleted_at),
                "folder": space.folder,
                "bytes": space.bytes,
                "last_write_at_ms": space.modified_s.map(|seconds| seconds.saturating_mul(1000)),
            })
        })
        .collect();
    Ok(json!({
        "as_of_ms": now_ms,
        "total": { "spaces": total, "bytes": total_bytes },
        "spaces": spaces,
        "next_cursor": next,
        "has_more": has_more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_and_what_is_none_is_refused() {
        assert_eq!(cursor("1f.00ab"), Ok((31, "00ab".to_owned())));
        for text in ["", "1f", "1f.", "1f.x", "g.00", "1f.00/.."] {
            assert_eq!(cursor(text), Err(Refusal::Cursor), "{text}");
        }
    }
}
