//! Replicas as an application has them, over the driver and a transport that is a function call.

use std::sync::Arc;

use alluvium_env::Env;
use alluvium_feed_protocol::{
    Advanced, BlocksPushed, Data, FeedAdvanced, From, Id, Limits, QueryRequest, Request, Response, Selector,
    SubscribeResponse, Token, limits, signature,
};
use alluvium_feed_replica::{
    After, CallError, Keep, LocalCursor, Options, Replica, ReplicaError, Transport, driver,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{Cypher, Durability};
use alluvium_feeds::{Listener, Principal, Service};
use ed25519_dalek::SigningKey;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::{Authority, append, block, id, namespace};

struct Direct {
    service: Arc<Service>,
    listener: Arc<Listener>,
}

impl Transport for Direct {
    async fn call(&self, space: &Id, request: Request) -> Result<Response, CallError> {
        Ok(self.service.handle(&Principal::anyone(), space, request, Some(&self.listener)).await)
    }

    async fn hint(&self) -> Advanced {
        loop {
            self.listener.ready().await;
            // One is as good as many: each only says that there is something.
            if let Some(hint) = self.listener.take().pop() {
                return Advanced::FeedAdvanced(hint);
            }
        }
    }
}

struct Peer {
    replica: Arc<Mutex<Replica>>,
    wake: Arc<Notify>,
    folder: TempDir,
}

fn options() -> Options {
    Options { durability: Durability::Process, push_delay_ms: 0, ..Options::default() }
}

impl Peer {
    fn new(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let replica = Replica::open(&folder.path().join("r.sqlite"), None, Env::real(), options).unwrap();
        Self { replica: Arc::new(Mutex::new(replica)), wake: Arc::default(), folder }
    }

    /// Another one that has what this one has now.
    fn copy(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sqlite");
        let connection = Connection::open(self.folder.path().join("r.sqlite")).unwrap();
        connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
        let replica = Replica::open(&path, None, Env::real(), options()).unwrap();
        Self { replica: Arc::new(Mutex::new(replica)), wake: Arc::default(), folder }
    }

    /// The positions that the blocks of a feed have here, settled or not.
    fn positions(&self, feed: &str) -> Vec<Option<u64>> {
        let connection = Connection::open(self.folder.path().join("r.sqlite")).unwrap();
        let sql = "SELECT b.position FROM blocks b JOIN feeds f USING (feedPrivateId) WHERE f.feedId = ?1 ORDER BY 1";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([feed], |row| row.get(0)).unwrap();
        rows.map(|row| row.unwrap()).collect()
    }

    fn write(&self, feed: &str, data: &str) {
        let feed = id(feed);
        let data = data.as_bytes().to_vec();
        self.replica.lock().append(&id("space"), &feed, Some(&namespace("notes")), data).unwrap();
        self.wake.notify_one();
    }

    /// Positions and contents of a feed, in its order.
    fn read(&self, feed: &str) -> Vec<(Option<u64>, String)> {
        let blocks = self.replica.lock().read(&id("space"), &id(feed), &After::Start, 1000).unwrap();
        let text = |data: Data| String::from_utf8_lossy(&data.0).into_owned();
        blocks.into_iter().map(|block| (block.position, text(block.data))).collect()
    }

    /// Synchronises until the future is dropped, and until `done` meanwhile.
    async fn until(&self, authority: &Authority, done: impl Fn(&Self) -> bool) {
        let transport = Direct { service: Arc::clone(authority.service()), listener: Listener::new() };
        let mut changes = self.replica.lock().changes();
        let space = id("space");
        let running = driver::run(&self.replica, &space, &transport, &self.wake);
        let finished = async {
            while !done(self) {
                changes.changed().await.unwrap();
            }
        };
        tokio::select! {
            ended = running => panic!("the driver ended: {ended:?}"),
            () = finished => {}
        }
        self.replica.lock().disconnected(&space);
    }

    fn is_settled(&self) -> bool {
        let status = self.replica.lock().status(&id("space")).unwrap();
        (status.blocks_to_push, status.blocks_to_pull) == (0, 0) && status.last_ok_at.is_some()
    }
}

#[tokio::test]
async fn what_is_written_offline_is_there_at_once_and_comes_to_others_in_one_order() {
    let authority = Authority::new();
    let (one, two) = (Peer::new(options()), Peer::new(options()));
    for text in ["a", "b"] {
        one.write("f", text);
    }
    assert_eq!(one.read("f"), [(None, "a".to_owned()), (None, "b".to_owned())]);
    let status = one.replica.lock().status(&id("space")).unwrap();
    assert_eq!((status.blocks_to_push, status.connected, status.last_ok_at), (2, false, None));
    two.write("f", "c");
    for peer in [&one, &two] {
        peer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
        peer.until(&authority, |peer| peer.is_settled() && !peer.read("f").is_empty()).await;
    }
    // What was pushed has its positions once they were pulled, which a peer does by and by.
    for peer in [&one, &two] {
        let is_there =
            |peer: &Peer| peer.read("f").len() == 3 && peer.read("f").iter().all(|block| block.0.is_some());
        peer.until(&authority, is_there).await;
    }
    let order = one.read("f");
    assert_eq!(order, two.read("f"));
    assert_eq!(order.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
}

#[tokio::test]
async fn a_hint_brings_a_block_long_before_the_next_look() {
    let authority = Authority::new();
    let (writer, reader) = (Peer::new(options()), Peer::new(options()));
    reader
        .replica
        .lock()
        .select(&id("space"), &Selector::Namespace(namespace("notes")), From::Beginning)
        .unwrap();
    let reading = reader.until(&authority, |reader| reader.read("later").len() == 1);
    let writing = async {
        // The reader has its subscriptions before the feed exists.
        writer.until(&authority, |_| true).await;
        writer.write("later", "x");
        writer.until(&authority, Peer::is_settled).await;
    };
    tokio::join!(reading, writing);
    assert_eq!(reader.read("later"), [(Some(1), "x".to_owned())]);
}

#[tokio::test]
async fn only_what_is_chosen_comes_and_from_where_it_was_chosen() {
    let authority = Authority::new();
    let (writer, reader) = (Peer::new(options()), Peer::new(options()));
    for number in 0..3 {
        writer.write("f", &format!("f{number}"));
        writer.write("g", &format!("g{number}"));
    }
    writer.until(&authority, Peer::is_settled).await;
    reader.replica.lock().replicate(&id("space"), &id("f"), From::Position(3)).unwrap();
    reader.until(&authority, Peer::is_settled).await;
    assert_eq!(reader.read("f").len(), 2);
    assert!(reader.read("g").is_empty());
    // The start is moved back: what is missing is fetched.
    reader.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    reader.until(&authority, |reader| reader.read("f").len() == 3).await;
    // Live only: nothing of what was before.
    reader.replica.lock().replicate(&id("space"), &id("g"), From::Current).unwrap();
    reader.until(&authority, Peer::is_settled).await;
    writer.write("g", "new");
    writer.until(&authority, Peer::is_settled).await;
    reader.until(&authority, |reader| !reader.read("g").is_empty()).await;
    assert_eq!(reader.read("g"), [(Some(7), "new".to_owned())]);
    reader.replica.lock().stop_replicating(&id("space"), &id("g"), Keep::Unpushed).unwrap();
    assert!(reader.read("g").is_empty());
}

#[tokio::test]
async fn a_wiped_server_is_filled_again() {
    let mut authority = Authority::new();
    let peer = Peer::new(options());
    peer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    for text in ["a", "b"] {
        peer.write("f", text);
    }
    peer.until(&authority, |peer| peer.is_settled() && peer.read("f")[1].0.is_some()).await;
    authority = Authority::new();
    peer.until(&authority, |peer| peer.is_settled() && !authority.after(0).blocks.is_empty()).await;
    let texts: Vec<_> = authority.after(0).blocks.iter().map(|block| block.data.0.to_vec()).collect();
    assert_eq!(texts, [b"a", b"b"]);
}

/// What has come first to a wiped server stands first, be it the end of a feed. Nothing is lost or doubled by that, whoever
/// pushes keeps its order, authors' sequences stay what they were, and all replicas show the same.
#[tokio::test]
async fn a_part_of_a_feed_that_comes_first_to_a_wiped_server_stands_first() {
    let authority = Authority::new();
    let (writer, part) = (Peer::new(options()), Peer::new(options()));
    writer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    for text in ["a", "b", "c", "d"] {
        writer.write("f", text);
    }
    writer.until(&authority, Peer::is_settled).await;
    part.replica.lock().replicate(&id("space"), &id("f"), From::Position(3)).unwrap();
    part.until(&authority, Peer::is_settled).await;
    let mut wiped = Authority::new();
    // It has a token of its own.
    wiped.restart();
    part.until(&wiped, |part| part.is_settled() && wiped.after(0).blocks.len() == 2).await;
    writer.until(&wiped, |writer| writer.is_settled() && wiped.after(0).blocks.len() == 4).await;
    part.until(&wiped, |part| part.is_settled() && part.read("f").len() == 4).await;
    let stored = wiped.after(0).blocks;
    let told: Vec<_> = stored.iter().map(|block| (block.data.0.to_vec(), block.sequence)).collect();
    assert_eq!(told, [(b"c".to_vec(), 2), (b"d".to_vec(), 3), (b"a".to_vec(), 0), (b"b".to_vec(), 1)]);
    let expected = ["c", "d", "a", "b"].map(str::to_owned);
    let expected: Vec<_> = (1..).map(Some).zip(expected).collect();
    assert_eq!((writer.read("f"), part.read("f")), (expected.clone(), expected));
}

#[tokio::test]
async fn sealed_and_signed_blocks_pass_through_a_server_that_cannot_read_them() {
    let authority = Authority::new();
    let key = SigningKey::from_bytes(&[3; 32]);
    let cypher = || Some(Cypher::new(&[9; 32], |_| true));
    let author = Peer::new(Options { cypher: cypher(), signing: Some(key.clone()), ..options() });
    let (friend, stranger) = (Peer::new(Options { cypher: cypher(), ..options() }), Peer::new(options()));
    assert_eq!(*author.replica.lock().actor(), signature::actor_of(&key));
    author.write("f", "secret");
    author.until(&authority, Peer::is_settled).await;
    assert!(authority.after(0).blocks[0].data.0.windows(6).all(|bytes| bytes != b"secret"));
    for peer in [&friend, &stranger] {
        peer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
        peer.until(&authority, |peer| peer.read("f").len() == 1).await;
    }
    assert_eq!(friend.read("f"), [(Some(1), "secret".to_owned())]);
    assert_ne!(stranger.read("f")[0].1, "secret");
}

#[tokio::test]
async fn a_copy_that_writes_as_the_same_actor_is_told_of_the_conflict() {
    let authority = Authority::new();
    let one = Peer::new(options());
    one.write("f", "shared");
    one.until(&authority, Peer::is_settled).await;
    let actor = one.replica.lock().actor().clone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.sqlite");
    let replica = Replica::open(&path, Some(&actor), Env::real(), options()).unwrap();
    let two = Peer { replica: Arc::new(Mutex::new(replica)), wake: Arc::default(), folder };
    two.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    two.write("f", "other bytes under the same key");
    two.until(&authority, |two| two.read("f") == [(Some(1), "shared".to_owned())]).await;
    let conflicts = two.replica.lock().conflicts(&id("space")).unwrap();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(&conflicts[0].data.0[..], b"other bytes under the same key");
    two.replica.lock().forget_conflict(conflicts[0].id).unwrap();
    assert!(two.replica.lock().conflicts(&id("space")).unwrap().is_empty());
    let counted = |peer: &Peer| peer.replica.lock().status(&id("space")).unwrap().total_blocks;
    assert_eq!(counted(&two), 1);
    // One that only pushes is told as well, and has nothing then.
    let folder = tempfile::tempdir().unwrap();
    let replica =
        Replica::open(&folder.path().join("r.sqlite"), Some(&actor), Env::real(), options()).unwrap();
    let three = Peer { replica: Arc::new(Mutex::new(replica)), wake: Arc::default(), folder };
    three.write("f", "a third");
    let conflicts = |peer: &Peer| peer.replica.lock().conflicts(&id("space")).unwrap().len();
    three.until(&authority, |three| conflicts(three) == 1).await;
    assert_eq!((counted(&three), three.read("f").len()), (0, 0));
}

#[test]
fn a_store_keeps_its_actor_and_its_cursors_mean_nothing_elsewhere() {
    let (one, two) = (Peer::new(options()), Peer::new(options()));
    one.write("f", "a");
    let tailed = one.replica.lock().tail(&id("space"), None, None, 10).unwrap();
    assert_eq!(tailed.blocks.len(), 1);
    one.write("g", "b");
    let cursor: LocalCursor = tailed.next.to_string().parse().unwrap();
    let next = one.replica.lock().tail(&id("space"), None, Some(&cursor), 10).unwrap();
    assert_eq!(next.blocks.len(), 1);
    let foreign = two.replica.lock().tail(&id("space"), None, Some(&cursor), 10);
    assert!(matches!(foreign, Err(ReplicaError::ForeignCursor)));
    let path = one.folder.path().join("r.sqlite");
    let actor = one.replica.lock().actor().clone();
    drop(one.replica);
    let again = Replica::open(&path, None, Env::real(), options()).unwrap();
    assert_eq!(*again.actor(), actor);
    drop(again);
    let other = Replica::open(&path, Some(&id("another")), Env::real(), options());
    assert!(matches!(other, Err(ReplicaError::OtherActor(_))));
}

#[tokio::test]
async fn what_nothing_can_come_after_is_refused_and_holds_up_no_other_feed() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "mallory", limits::NUMBER_MAX, "the last")]));
    let peer = Peer::new(options());
    peer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    peer.until(&authority, |peer| peer.read("f").len() == 1).await;
    let refused = peer.replica.lock().append(&id("space"), &id("f"), None, b"after it".to_vec());
    assert!(matches!(refused, Err(ReplicaError::SequencesUsedUp(feed)) if feed == "f"));
    peer.write("g", "elsewhere");
    peer.until(&authority, Peer::is_settled).await;
    assert_eq!(authority.after(1).blocks.len(), 1);
}

#[test]
fn a_block_that_no_server_takes_is_refused_at_once() {
    let peer = Peer::new(Options { data_bytes_max: 10, ..options() });
    let refused = peer.replica.lock().append(&id("space"), &id("f"), None, vec![0; 11]);
    assert!(matches!(refused, Err(ReplicaError::TooLarge { bytes: 11, bytes_max: 10 })));
    assert!(peer.read("f").is_empty());
}

impl Peer {
    /// Answers it until it has nothing to ask.
    fn ask_all(&self, authority: &Authority) {
        let mut replica = self.replica.lock();
        while let Some(request) = replica.next_request(&id("space")).unwrap() {
            let answer = authority.handle(request);
            replica.answered(&id("space"), answer).unwrap();
        }
    }
}

/// Connects a peer and answers it until it has its subscription.
fn attached(peer: &Peer, authority: &Authority) -> SubscribeResponse {
    let mut replica = peer.replica.lock();
    replica.connected(&id("space"));
    loop {
        let request = replica.next_request(&id("space")).unwrap().expect("something to ask");
        let answer = authority.handle(request);
        let found = if let Response::Subscribe(answer) = &answer { Some(answer.clone()) } else { None };
        replica.answered(&id("space"), answer).unwrap();
        if let Some(found) = found {
            return found;
        }
    }
}

#[tokio::test]
async fn pushed_blocks_are_taken_only_where_they_follow_on_what_is_here() {
    let authority = Authority::new();
    let (writer, reader) = (Peer::new(options()), Peer::new(options()));
    writer.write("f", "one");
    writer.until(&authority, Peer::is_settled).await;
    reader.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    reader.until(&authority, |reader| reader.is_settled() && !reader.read("f").is_empty()).await;
    // It stays connected, but asks nobody: what comes now is only what is pushed.
    let subscription = attached(&reader, &authority);
    reader.ask_all(&authority);
    for text in ["two", "three"] {
        writer.write("f", text);
    }
    writer.until(&authority, Peer::is_settled).await;
    let page = authority.after(1);
    let pushed = |after: u64, from: usize| BlocksPushed {
        space_id: id("space"),
        subscription_id: subscription.subscription_id.clone(),
        after,
        blocks: page.blocks[from..].to_vec(),
        position: page.next_cursor,
        server_token: page.server_token.clone(),
        check: page.check,
    };
    let read = |message: BlocksPushed| {
        reader.replica.lock().pushed(message).unwrap();
        reader.read("f").len()
    };
    let gap = pushed(2, 1);
    let elsewhere = BlocksPushed { server_token: Token::from_random(7), ..pushed(1, 0) };
    let unknown = BlocksPushed { subscription_id: id("another"), ..pushed(1, 0) };
    for message in [gap, elsewhere, unknown] {
        assert_eq!(read(message), 1, "a hint and no more");
    }
    let mut nonsense = pushed(1, 0);
    nonsense.blocks.reverse();
    assert_eq!(read(nonsense), 1);
    assert_eq!(read(pushed(1, 0)), 3);
    assert_eq!(read(pushed(1, 0)), 3, "what came already");
    assert_eq!(reader.replica.lock().status(&id("space")).unwrap().position, 3);
    // Over a new connection it may be another history with the same token, from in front of the cursor on: nothing is
    // taken before an answer has shown that it isn't.
    reader.replica.lock().connected(&id("space"));
    writer.write("f", "four");
    writer.until(&authority, Peer::is_settled).await;
    let page = authority.after(3);
    let next = BlocksPushed {
        after: 3,
        blocks: page.blocks.clone(),
        position: page.next_cursor,
        check: page.check,
        ..pushed(1, 0)
    };
    assert_eq!(read(next), 3);
    reader.ask_all(&authority);
    assert_eq!(reader.read("f").len(), 4);
}

#[test]
fn what_a_server_accepts_is_kept_to() {
    let peer = Peer::new(options());
    for number in 0..10 {
        peer.write("f", &number.to_string());
    }
    let mut replica = peer.replica.lock();
    replica.connected(&id("space"));
    replica.set_limits(&id("space"), Limits { append_blocks_max: 4, ..Limits::default() });
    let Some(Request::Append(append)) = replica.next_request(&id("space")).unwrap() else { panic!() };
    assert_eq!(append.blocks.len(), 4);
}

#[tokio::test]
async fn a_replica_knows_from_where_a_pruned_feed_is_complete() {
    let authority = Authority::new();
    let (writer, reader) = (Peer::new(options()), Peer::new(options()));
    for number in 0..6 {
        writer.write(if number % 2 == 0 { "even" } else { "odd" }, "x");
    }
    writer.until(&authority, Peer::is_settled).await;
    authority.service().prune(&id("space"), &id("even"), 4).unwrap();
    for feed in ["even", "odd"] {
        reader.replica.lock().replicate(&id("space"), &id(feed), From::Beginning).unwrap();
    }
    reader.until(&authority, |reader| reader.is_settled() && reader.read("odd").len() == 3).await;
    let known = reader.replica.lock().feeds(&id("space")).unwrap();
    let known: Vec<_> = known.iter().map(|feed| (feed.feed_id.as_str(), feed.pruned_below)).collect();
    assert_eq!(known, [("even", Some(4)), ("odd", None)]);
    // Another history: nothing is known of what that one has lost.
    let fresh = Authority::new();
    reader.until(&fresh, |reader| reader.is_settled() && !fresh.after(0).blocks.is_empty()).await;
    let known = reader.replica.lock().feeds(&id("space")).unwrap();
    assert!(known.iter().all(|feed| feed.pruned_below.is_none()));
}

#[tokio::test]
async fn a_server_set_back_with_its_guard_is_noticed_where_the_last_block_seen_was_pruned() {
    let authority = Authority::new();
    let (writer, reader) = (Peer::new(options()), Peer::new(options()));
    for text in ["one", "two", "three"] {
        writer.write("f", text);
    }
    writer.until(&authority, Peer::is_settled).await;
    reader.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    reader.until(&authority, |reader| reader.read("f").len() == 3 && reader.is_settled()).await;
    // The same authority as it would be if it had lost all of that and been written to again: under the same token.
    for pruned in [1, 2, 3] {
        let again = Authority::new();
        for sequence in 0..3 {
            let feed = if sequence + 1 == pruned { "g" } else { "f" };
            again.append(append(vec![block(feed, "z", sequence, "theirs")]));
        }
        assert_eq!(again.after(0).server_token, authority.after(0).server_token);
        again.append(append(vec![block("h", "z", 0, "theirs")]));
        again.service().prune(&id("space"), &id("g"), pruned + 1).unwrap();
        let copy = reader.copy();
        copy.replica.lock().connected(&id("space"));
        copy.ask_all(&again);
        let theirs = copy.read("f").into_iter().filter(|(_, text)| text == "theirs").count();
        assert_eq!(theirs, 2, "{pruned} is pruned");
        // And what was lost over there is there again.
        assert_eq!(again.after(0).blocks.len(), 6, "{pruned} is pruned");
    }
}

/// Asks until nothing more is to be asked; how many requests and how many appends that were.
fn asked_of(peer: &Peer, authority: &Authority) -> (usize, usize) {
    let (mut requests, mut appends) = (0, 0);
    let mut replica = peer.replica.lock();
    while let Some(request) = replica.next_request(&id("space")).unwrap() {
        requests += 1;
        appends += usize::from(matches!(request, Request::Append(_)));
        assert!(requests < 50, "no end of it: {request:?}");
        let answer = authority.handle(request);
        replica.answered(&id("space"), answer).unwrap();
    }
    assert_eq!(replica.status(&id("space")).unwrap().last_error, None);
    (requests, appends)
}

#[test]
fn feeds_that_begin_ahead_of_the_head_are_waited_for_without_asking_all_the_time() {
    let far = ("f", From::Position(10));
    let near = ("g", From::Beginning);
    let further = ("g", From::Position(12));
    for choices in [vec![far], vec![far, near], vec![near, far], vec![far, further]] {
        let authority = Authority::new();
        let put = |sequence| {
            authority.append(append(vec![block("f", "z", sequence, "x"), block("g", "z", sequence, "x")]));
        };
        put(0);
        let peer = Peer::new(options());
        peer.replica.lock().connected(&id("space"));
        for (feed, from) in &choices {
            peer.replica.lock().replicate(&id("space"), &id(feed), *from).unwrap();
            asked_of(&peer, &authority);
        }
        // What is written here before the start is pushed once, and keeps its place.
        peer.write("f", "own");
        assert_eq!(asked_of(&peer, &authority).1, 1, "{choices:?}");
        put(1);
        peer.replica.lock().connected(&id("space"));
        assert_eq!(asked_of(&peer, &authority).1, 0, "{choices:?}");
        // The head passes the starts.
        for sequence in 2..6 {
            put(sequence);
        }
        peer.replica.lock().connected(&id("space"));
        asked_of(&peer, &authority);
        for (feed, from) in &choices {
            let start = if let From::Position(start) = from { *start } else { 1 };
            let is_due = |position: &u64| *position >= start;
            let there =
                authority.query(QueryRequest { feed_ids: Some(vec![id(feed)]), ..QueryRequest::default() });
            let there = there.blocks.iter().filter_map(|block| block.position);
            let there: Vec<u64> = there.filter(is_due).collect();
            let here: Vec<u64> = peer.read(feed).iter().filter_map(|(position, _)| *position).collect();
            let here: Vec<u64> = here.into_iter().filter(is_due).collect();
            assert!(!there.is_empty(), "{choices:?}");
            assert_eq!(here, there, "{choices:?}, {feed}");
        }
        let status = peer.replica.lock().status(&id("space")).unwrap();
        assert!(status.is_done(), "{choices:?}: {status:?}");
    }
}

#[test]
fn news_of_a_feed_that_begins_ahead_of_the_head_come_by_themselves() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "z", 0, "x")]));
    let reader = Peer::new(options());
    reader.replica.lock().replicate(&id("space"), &id("f"), From::Position(3)).unwrap();
    let subscription = attached(&reader, &authority);
    asked_of(&reader, &authority);
    authority.append(append(vec![block("f", "z", 1, "too early"), block("f", "z", 2, "news")]));
    let hint = FeedAdvanced {
        space_id: id("space"),
        subscription_id: subscription.subscription_id,
        position: 3,
        feed_ids: vec![id("f")],
        count: 2,
    };
    reader.replica.lock().hint(&hint).unwrap();
    asked_of(&reader, &authority);
    assert_eq!(reader.read("f"), [(Some(3), "news".to_owned())]);
}

#[tokio::test]
async fn a_choice_made_while_everything_is_pulled_anew_leaves_no_position_of_before() {
    let authority = Authority::new();
    let writer = Peer::new(options());
    writer.replica.lock().replicate(&id("space"), &id("f"), From::Beginning).unwrap();
    for text in ["one", "two", "three"] {
        writer.write("f", text);
    }
    let is_there = |peer: &Peer| peer.is_settled() && peer.read("f").iter().all(|block| block.0.is_some());
    writer.until(&authority, is_there).await;
    let choices: [fn(&mut Replica); 5] = [
        |replica| replica.replicate(&id("space"), &id("f"), From::Current).unwrap(),
        |replica| replica.replicate(&id("space"), &id("f"), From::Position(9)).unwrap(),
        |replica| replica.stop_replicating(&id("space"), &id("f"), Keep::All).unwrap(),
        // They are the only copies, and nobody has confirmed that they are anywhere else.
        |replica| replica.stop_replicating(&id("space"), &id("f"), Keep::Unpushed).unwrap(),
        |replica| replica.replicate(&id("space"), &id("f"), From::Beginning).unwrap(),
    ];
    for (number, choose) in choices.iter().enumerate() {
        // The same authority as it would be if it had lost all of that and been written to again: under the same token.
        let again = Authority::new();
        again.append(append((0..4).map(|sequence| block("g", "z", sequence, "theirs")).collect()));
        let copy = writer.copy();
        {
            let mut replica = copy.replica.lock();
            replica.connected(&id("space"));
            // Until the answer that says that the history is another one.
            loop {
                let request = replica.next_request(&id("space")).unwrap().unwrap();
                let answer = again.handle(request);
                let is_reset = matches!(&answer, Response::Query(page) if page.reset);
                replica.answered(&id("space"), answer).unwrap();
                if is_reset {
                    break;
                }
            }
            choose(&mut replica);
        }
        asked_of(&copy, &again);
        let there = again.query(QueryRequest { feed_ids: Some(vec![id("f")]), ..QueryRequest::default() });
        let there: Vec<_> = there.blocks.iter().map(|block| block.position).collect();
        assert_eq!(there.len(), 3, "choice {number}");
        let status = copy.replica.lock().status(&id("space")).unwrap();
        assert_eq!(status.blocks_to_push, 0, "choice {number}");
        let here = copy.positions("f");
        assert_eq!(here, there, "choice {number}");
    }
}
