//! Which operation a request asks for, by method and path alone: what is counted is counted by it, and so must be one of
//! few, whatever a client sends.

use alluvium_protocol::{bucket::RESERVED_STREAM_ID, path::BUCKET_MOUNT};
use http::{Method, Uri};

use super::{MOUNT, RESERVED};

macro_rules! operations {
    ($($variant:ident $name:literal $what:literal;)+) => {
        /// An operation of the surface.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Operation {
            $(#[doc = $what] $variant,)+
        }

        impl Operation {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in metrics and log lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

operations! {
    Append "append" "`POST` of a stream.";
    Read "read" "`GET` of a stream.";
    LongPoll "read_long_poll" "`GET` of a stream that waits for news.";
    Sse "read_sse" "`GET` of a stream as events.";
    Head "head" "`HEAD` of a stream.";
    Create "create" "`PUT` of a stream.";
    Delete "delete" "`DELETE` of a stream.";
    Batch "append_batch" "A batch of appends.";
    Bucket "bucket_read" "`GET` of a bucket.";
    CreateBucket "bucket_create" "`PUT` of a bucket.";
    DeleteBucket "bucket_delete" "`DELETE` of a bucket.";
    List "list" "The streams of a bucket.";
    Snapshot "snapshot_read" "A snapshot, or the way to the latest.";
    Publish "snapshot_publish" "`PUT` of a snapshot.";
    DeleteSnapshot "snapshot_delete" "`DELETE` of a snapshot.";
    Bootstrap "bootstrap" "A snapshot and what follows it.";
    Attributes "attributes" "The attributes of a stream.";
    Claim "claim" "The claim of a producer.";
    Appends "appends" "A read by appends.";
    Checkpoint "checkpoint" "A reader's checkpoint.";
    Subscription "subscription" "What the protocol keeps under `__ds`.";
    Preflight "preflight" "What a browser asks first.";
    Other "other" "Nothing that there is.";
}

/// What a request asks for, as far as method and path tell.
pub fn operation(method: &Method, uri: &Uri) -> Operation {
    if *method == Method::OPTIONS {
        return Operation::Preflight;
    }
    let path = uri.path();
    if let Some(path) = path.strip_prefix(MOUNT) {
        return match path.strip_prefix(RESERVED) {
            None => of_stream(method, uri),
            Some(rest) => {
                of_contract(rest.split('/').next().unwrap_or_default()).unwrap_or(Operation::Subscription)
            }
        };
    }
    let Some(path) = path.strip_prefix(BUCKET_MOUNT) else { return Operation::Other };
    let mut segments = path.split('/').skip(1);
    match (segments.next(), segments.next()) {
        (None, _) => match *method {
            Method::PUT => Operation::CreateBucket,
            Method::DELETE => Operation::DeleteBucket,
            _ => Operation::Bucket,
        },
        (Some(RESERVED_STREAM_ID), None) => Operation::List,
        (Some(_), None) => of_stream(method, uri),
        (Some(_), Some("snapshot")) => match *method {
            Method::PUT => Operation::Publish,
            Method::DELETE => Operation::DeleteSnapshot,
            _ => Operation::Snapshot,
        },
        (Some(_), Some("bootstrap")) => Operation::Bootstrap,
        (Some(_), Some("append-batch")) => Operation::Batch,
        (Some(_), Some("attrs")) => Operation::Attributes,
        (Some(_), Some(name)) => of_contract(name).unwrap_or(Operation::Other),
    }
}

fn of_contract(name: &str) -> Option<Operation> {
    match name {
        "claim" => Some(Operation::Claim),
        "appends" => Some(Operation::Appends),
        "checkpoint" => Some(Operation::Checkpoint),
        _ => None,
    }
}

fn of_stream(method: &Method, uri: &Uri) -> Operation {
    match *method {
        Method::POST => Operation::Append,
        Method::GET => of_read(uri.query()),
        Method::HEAD => Operation::Head,
        Method::PUT => Operation::Create,
        Method::DELETE => Operation::Delete,
        _ => Operation::Other,
    }
}

fn of_read(query: Option<&str>) -> Operation {
    let live = query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("live=")));
    match live {
        Some("sse") => Operation::Sse,
        Some("long-poll") => Operation::LongPoll,
        _ => Operation::Read,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_request_is_of_one_operation() {
        for (request, expected) in [
            ("POST /v1/stream/a/b", Operation::Append),
            ("GET /v1/stream/a?offset=-1", Operation::Read),
            ("GET /v1/stream/a?offset=-1&live=sse", Operation::Sse),
            ("GET /v1/stream/a?live=long-poll&offset=now", Operation::LongPoll),
            ("HEAD /v1/stream/a", Operation::Head),
            ("PUT /v1/stream/a", Operation::Create),
            ("DELETE /v1/stream/a", Operation::Delete),
            ("PATCH /v1/stream/a", Operation::Other),
            ("POST /v1/stream/__ds/claim/a", Operation::Claim),
            ("GET /v1/stream/__ds/appends/a", Operation::Appends),
            ("PUT /v1/stream/__ds/checkpoint/a", Operation::Checkpoint),
            ("PUT /v1/stream/__ds/subscriptions/a", Operation::Subscription),
            ("GET /ds/abcd", Operation::Bucket),
            ("PUT /ds/abcd", Operation::CreateBucket),
            ("DELETE /ds/abcd", Operation::DeleteBucket),
            ("GET /ds/abcd/streams?limit=2", Operation::List),
            ("GET /ds/abcd/s?live=sse&offset=-1", Operation::Sse),
            ("POST /ds/abcd/s", Operation::Append),
            ("POST /ds/abcd/s/append-batch", Operation::Batch),
            ("GET /ds/abcd/s/snapshot", Operation::Snapshot),
            ("GET /ds/abcd/s/snapshot/1", Operation::Snapshot),
            ("PUT /ds/abcd/s/snapshot/1", Operation::Publish),
            ("DELETE /ds/abcd/s/snapshot/1", Operation::DeleteSnapshot),
            ("GET /ds/abcd/s/bootstrap", Operation::Bootstrap),
            ("PUT /ds/abcd/s/attrs", Operation::Attributes),
            ("GET /ds/abcd/s/claim", Operation::Claim),
            ("GET /ds/abcd/s/unknown", Operation::Other),
            ("OPTIONS /ds/abcd/s", Operation::Preflight),
            ("GET /", Operation::Other),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method");
            let method = Method::try_from(method).expect("a method");
            assert_eq!(operation(&method, &uri.parse().expect("a path")), expected, "{request}");
        }
    }

    #[test]
    fn each_has_a_place_and_a_name_of_its_own() {
        let names: BTreeSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
        for (index, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, index);
        }
    }
}
