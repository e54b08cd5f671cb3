//! Records as they look on the network, in their collections.

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_atproto::{Cid, Codec};

use crate::frame::time;
use crate::random::{Random, digest};
use crate::text::{language, text, word};

/// Posts.
pub(crate) const POST: &str = "app.bsky.feed.post";
/// Likes.
pub(crate) const LIKE: &str = "app.bsky.feed.like";
/// Reposts.
pub(crate) const REPOST: &str = "app.bsky.feed.repost";
/// Follows.
pub(crate) const FOLLOW: &str = "app.bsky.graph.follow";
/// The profile, whose key is always `self`.
pub(crate) const PROFILE: &str = "app.bsky.actor.profile";
/// Blocks.
pub(crate) const BLOCK: &str = "app.bsky.graph.block";
/// Lists.
pub(crate) const LIST: &str = "app.bsky.graph.list";
/// Whose collection is of somebody else's lexicon.
pub(crate) const NOTE: &str = "com.example.notes.entry";

/// Collections and how often each is written to.
const WEIGHTS: [(&str, u32); 8] =
    [(POST, 58), (LIKE, 20), (FOLLOW, 10), (REPOST, 5), (PROFILE, 4), (BLOCK, 1), (LIST, 1), (NOTE, 1)];
/// The longest text of a post, in bytes.
const POST_BYTES_MAX: u64 = 3000;

/// A record that others refer to.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) uri: String,
    pub(crate) cid: Cid,
}

impl Subject {
    /// One that nobody has: most of what an account refers to was never seen by a reader either.
    pub(crate) fn invented(random: &mut Random, did: &str, rkey: &str) -> Self {
        let cid = Cid::from_digest(Codec::DagCbor, digest(random.bits(), "subject", 0));
        Self { uri: format!("at://{did}/{POST}/{rkey}"), cid }
    }

    fn value(&self) -> Value {
        map([("uri", Value::from(self.uri.as_str())), ("cid", Value::Text(self.cid.to_string()))])
    }
}

/// A collection, as often as it is written to.
pub(crate) fn collection(random: &mut Random) -> &'static str {
    WEIGHTS[random.weighted(&WEIGHTS.map(|(_, weight)| weight))].0
}

/// A record of `collection`, as its bytes. `subject` is what it is about, `who` the account that it is about.
pub(crate) fn record(
    random: &mut Random,
    collection: &str,
    micros: u64,
    subject: &Subject,
    who: &str,
) -> Vec<u8> {
    let now = Value::Text(time(micros));
    let mut fields = match collection {
        LIKE | REPOST => map([("subject", subject.value()), ("createdAt", now)]),
        FOLLOW | BLOCK => map([("subject", Value::from(who)), ("createdAt", now)]),
        PROFILE => profile(random, now),
        LIST => map([
            ("name", Value::from(word(random))),
            ("purpose", Value::from("app.bsky.graph.defs#curatelist")),
            ("description", Value::Text(text(random, 40, 300))),
            ("createdAt", now),
        ]),
        NOTE => map([
            ("body", Value::Text(text(random, 200, 3000))),
            ("revision", Value::Integer(random.between(0, 1 << 40).cast_signed() - (1 << 39))),
            ("sealed", Value::Bytes(random.bits().to_be_bytes().to_vec())),
            ("parent", if random.chance(50) { Value::Null } else { Value::Link(subject.cid) }),
            ("tags", Value::List((0..random.below(4)).map(|_| Value::from(word(random))).collect())),
            ("createdAt", now),
        ]),
        _ => post(random, now, subject, who),
    };
    if let Value::Map(fields) = &mut fields {
        fields.insert("$type", Value::from(collection));
    }
    encode(&fields)
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let mut map = Map::new();
    for (key, value) in entries {
        map.insert(key, value);
    }
    Value::Map(map)
}

fn profile(random: &mut Random, now: Value) -> Value {
    let mut fields = Map::new();
    fields.insert("displayName", Value::Text(text(random, 14, 64)));
    fields.insert("description", Value::Text(text(random, 90, 256)));
    fields.insert("createdAt", now);
    if random.chance(70) {
        fields.insert("avatar", blob(random, "image/jpeg"));
    }
    if random.chance(20) {
        fields.insert("banner", blob(random, "image/png"));
    }
    Value::Map(fields)
}

fn blob(random: &mut Random, media: &str) -> Value {
    let cid = Cid::from_digest(Codec::Raw, digest(random.bits(), "blob", 0));
    map([
        ("$type", Value::from("blob")),
        ("ref", Value::Link(cid)),
        ("mimeType", Value::from(media)),
        ("size", Value::Integer(random.between(900, 976_000).cast_signed())),
    ])
}

fn post(random: &mut Random, now: Value, subject: &Subject, who: &str) -> Value {
    let text = text(random, 80, POST_BYTES_MAX);
    let mut fields = Map::new();
    if random.chance(30) {
        fields.insert("reply", map([("root", subject.value()), ("parent", subject.value())]));
    }
    if random.chance(80) {
        fields.insert("langs", Value::List(vec![Value::from(language(random))]));
    }
    if random.chance(12) {
        fields.insert("facets", Value::List(vec![mention(&text, who)]));
    }
    if random.chance(25) {
        fields.insert("embed", embed(random, subject));
    }
    fields.insert("text", Value::Text(text));
    fields.insert("createdAt", now);
    Value::Map(fields)
}

/// That the text begins with the name of somebody.
fn mention(text: &str, who: &str) -> Value {
    let end = text.find([' ', '\n']).unwrap_or(text.len());
    let end = i64::try_from(end).unwrap_or(0);
    let feature = map([("$type", Value::from("app.bsky.richtext.facet#mention")), ("did", Value::from(who))]);
    map([
        ("index", map([("byteStart", Value::Integer(0)), ("byteEnd", Value::Integer(end))])),
        ("features", Value::List(vec![feature])),
    ])
}

fn embed(random: &mut Random, subject: &Subject) -> Value {
    match random.below(3) {
        0 => map([("$type", Value::from("app.bsky.embed.record")), ("record", subject.value())]),
        1 => {
            let external = map([
                ("uri", Value::Text(format!("https://{}.example/{}", word(random), random.below(100_000)))),
                ("title", Value::Text(text(random, 30, 120))),
                ("description", Value::Text(text(random, 80, 400))),
            ]);
            map([("$type", Value::from("app.bsky.embed.external")), ("external", external)])
        }
        _ => {
            let images = (0..random.between(1, 4)).map(|_| {
                let ratio = map([
                    ("width", Value::Integer(random.between(200, 4000).cast_signed())),
                    ("height", Value::Integer(random.between(200, 4000).cast_signed())),
                ]);
                map([
                    ("alt", Value::Text(text(random, 30, 500))),
                    ("aspectRatio", ratio),
                    ("image", blob(random, "image/jpeg")),
                ])
            });
            map([("$type", Value::from("app.bsky.embed.images")), ("images", Value::List(images.collect()))])
        }
    }
}
