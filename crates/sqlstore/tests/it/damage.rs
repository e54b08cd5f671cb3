//! Damage is refused where it is, and nowhere else.

use alluvium_protocol::store::{
    AppendOptions, FoldCheckpoint, GetOptions, PutOptions, StoreError, StoreFault, StreamStore,
};
use alluvium_protocol::{Offset, OffsetQuery, StreamPath};
use alluvium_sqlstore::SqliteStore;
use bytes::Bytes;
use rusqlite::Connection;

use crate::world::{World, bounds, runtime};

const APPENDS: u64 = 12;
/// Two chunk rows each.
const APPEND_BYTES: usize = 1500;

fn path(text: &str) -> StreamPath {
    StreamPath::parse_decoded(text).expect("a path")
}

fn piece(stream: usize, at: u64) -> Vec<u8> {
    let mark = format!("<stream {stream}, append {at}>");
    mark.bytes().cycle().take(APPEND_BYTES).collect()
}

async fn fill(store: &SqliteStore) {
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let at = path(name);
        store.put(&at, PutOptions::default()).await.expect("creates");
        for append in 0..APPENDS {
            let data = Bytes::from(piece(number, append));
            store.append(&at, data, AppendOptions::default()).await.expect("appends");
        }
    }
}

/// The offset before an append, counted from 0.
fn before(append: u64) -> Offset {
    Offset::new(append, append * APPEND_BYTES as u64)
}

/// Reads each append of each stream by itself and tells which are refused.
async fn refused(store: &SqliteStore) -> Vec<(usize, u64)> {
    let mut refused = Vec::new();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        for append in 0..APPENDS {
            let batches = store.read_append_batches(&path(name), append + 1, 1, None, None).await;
            match batches {
                Ok(batches) => assert_eq!(batches[0].data, piece(number, append)),
                Err(StoreError::Fault(StoreFault::Corrupt(_))) => refused.push((number, append)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    refused
}

#[test]
fn one_flipped_byte_is_refused_at_that_read_and_nowhere_else() {
    let world = World::new(1);
    let runtime = runtime();
    let store = world.open();
    runtime.block_on(fill(&store));
    store.close();
    let file = world.file();
    let mut image = std::fs::read(&file).expect("the database");
    // A place in the second chunk row of append 5 of stream b.
    let sought = piece(1, 5);
    let place = find(&image, &sought[1100..1400]).expect("the bytes are in the file");
    for offset in [0, 1, 150, 299] {
        image[place + offset] ^= 0x10;
        write(&file, &image);
        let store = world.open();
        runtime.block_on(async {
            assert_eq!(refused(&store).await, [(1, 5)]);
            // A window that ends before the damaged row is good, one that reaches it is not.
            let get = async |append| {
                let offset = OffsetQuery::At(before(append));
                store.get(&path("b"), GetOptions { offset, ..GetOptions::default() }).await
            };
            assert!(get(4).await.is_ok(), "2,048 bytes from there end in the first row of append 5");
            assert!(matches!(get(5).await, Err(StoreError::Fault(StoreFault::Corrupt(_)))));
            assert!(get(6).await.is_ok());
            // And the stream can still be written.
            let metadata = store.storage_state(&path("b")).await.expect("reads").expect("is there");
            assert_eq!(metadata.next_offset, before(APPENDS));
        });
        store.close();
        image[place + offset] ^= 0x10;
    }
    write(&file, &image);
    let store = world.open();
    assert_eq!(runtime.block_on(refused(&store)), [], "undamaged again");
}

#[test]
fn a_flipped_bit_in_any_column_of_a_row_never_gives_wrong_bytes() {
    let world = World::new(4);
    let runtime = runtime();
    let store = world.open();
    runtime.block_on(fill(&store));
    store.close();
    let file = world.file();
    let mut image = std::fs::read(&file).expect("the database");
    // The second row of append 5 of stream b. Before its bytes: stream (1 byte), start (2), number (1), shape (2),
    // checksum (6).
    let place = find(&image, &piece(1, 5)[1024..1400]).expect("the bytes are in the file");
    let mut unnoticed = Vec::new();
    for byte in place - 12..place {
        for bit in 0..8 {
            image[byte] ^= 1 << bit;
            write(&file, &image);
            let store = world.open();
            let found = runtime.block_on(refused(&store));
            // A number that is wrong may mislead the search for a neighbour, but not past it.
            assert!(
                found.iter().all(|place| [(1, 4), (1, 5), (1, 6)].contains(place)),
                "{byte} {bit}: {found:?}"
            );
            if !found.contains(&(1, 5)) {
                unnoticed.push(place - byte);
            }
            store.close();
            image[byte] ^= 1 << bit;
        }
    }
    // What is found by the index is not read from the row: stream and start.
    assert!(unnoticed.iter().all(|before| *before > 9), "{unnoticed:?}");
}

#[test]
fn a_row_that_lies_about_itself_is_refused() {
    let world = World::new(2);
    let runtime = runtime();
    let store = world.open();
    runtime.block_on(fill(&store));
    store.close();
    // Rows 5 and 6 are append 3 of stream a (two rows each, from 1), counted from 0: append 2.
    let lies = [
        "UPDATE chunks SET append_index = append_index + 1 WHERE rowid = 5",
        // Two chunks become one, the second becomes the first, and a message begins in it.
        "UPDATE chunks SET shape = 1 << 12 WHERE rowid = 5",
        "UPDATE chunks SET shape = 2 << 12 WHERE rowid = 6",
        "UPDATE chunks SET shape = shape | (1 << 24) WHERE rowid = 5",
        "UPDATE chunks SET shape = -shape WHERE rowid = 5",
        "UPDATE chunks SET data = substr(data, 2) WHERE rowid = 5",
        "UPDATE chunks SET data = substr(data, 2) WHERE rowid = 6",
        "UPDATE chunks SET checksum = checksum + 1 WHERE rowid = 6",
        "UPDATE chunks SET data = (SELECT data FROM chunks WHERE rowid = 7) WHERE rowid = 5",
        "UPDATE chunks SET stream_id = 99 WHERE rowid = 6",
        "DELETE FROM chunks WHERE rowid = 5",
    ];
    for lie in lies {
        let original = std::fs::read(world.file()).expect("the database");
        let sql = Connection::open(world.file()).expect("opens");
        assert_eq!(sql.execute(lie, []).expect(lie), 1);
        drop(sql);
        let store = world.open();
        let found = runtime.block_on(refused(&store));
        assert!(found.contains(&(0, 2)), "{lie}: {found:?}");
        // Finding an append walks over the rows in between, so a row that names another append may mislead the search
        // for its neighbours; what is never wrong is bytes.
        assert!(
            found.iter().all(|(stream, append)| *stream == 0 && (1..=3).contains(append)),
            "{lie}: {found:?}"
        );
        store.close();
        write(&world.file(), &original);
    }
}

#[test]
fn a_damaged_checkpoint_is_never_given() {
    let world = World::new(3);
    let runtime = runtime();
    let at = path("a");
    let checkpoint = runtime.block_on(async {
        let store = world.open();
        fill(&store).await;
        let head = store.head(&at, None).await.expect("reads").expect("is there");
        let checkpoint = FoldCheckpoint {
            offset: head.next_offset,
            incarnation: head.incarnation,
            format_version: 1,
            data: "state ".repeat(500),
        };
        store.put_fold_checkpoint(&at, checkpoint.clone()).await.expect("is kept");
        checkpoint
    });
    let damages = [
        "UPDATE checkpoint_chunks SET data = replace(data, 'state', 'State') WHERE chunk_index = 1",
        "DELETE FROM checkpoint_chunks WHERE chunk_index = 2",
        "UPDATE checkpoints SET format_version = 2",
        "UPDATE checkpoints SET chunk_count = 2",
    ];
    for damage in damages {
        let original = std::fs::read(world.file()).expect("the database");
        let sql = Connection::open(world.file()).expect("opens");
        assert_eq!(sql.execute(damage, []).expect(damage), 1);
        drop(sql);
        let store = world.open();
        let got = runtime.block_on(store.fold_checkpoint(&at, None));
        assert!(matches!(got, Err(StoreError::Fault(StoreFault::Corrupt(_)))), "{damage}: {got:?}");
        store.close();
        write(&world.file(), &original);
    }
    let store = world.open();
    assert_eq!(runtime.block_on(store.fold_checkpoint(&at, None)), Ok(Some(checkpoint)));
    assert!(bounds().checkpoint_bytes_max > 3000);
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[expect(clippy::disallowed_methods, reason = "the test puts a damaged file in place of a good one")]
fn write(file: &std::path::Path, bytes: &[u8]) {
    std::fs::write(file, bytes).expect("writes");
}
