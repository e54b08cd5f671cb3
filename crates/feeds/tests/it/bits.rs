//! One bit that turns, anywhere in what is stored: what is read is right, or refused.

use std::fs;
use std::path::PathBuf;

use alluvium_env::Random as _;
use alluvium_env::sim::SeededRandom;
use alluvium_feed_protocol::{
    AppendRequest, Block, BlockKey, Check, Data, ErrorCode, Id, ListFeedsRequest, QueryRequest,
    QueryResponse, Request, Response,
};
use alluvium_feed_store::feeds::{KnownNames, Pick, Within};
use alluvium_feed_store::rusqlite::types::Value;
use alluvium_feed_store::rusqlite::{Connection, OpenFlags};
use alluvium_feed_store::{PageLimits, Selection, StoreResult, blocks, feeds, page, spaces};

use crate::support::{Authority, NOW_MS, append, block, id, namespace};

/// How many blocks there are, in three feeds by turns.
const BLOCKS: u64 = 12;
const FEEDS: [&str; 3] = ["fa", "fb", "fc"];

/// The feed of the block at a position.
fn feed_of(position: u64) -> &'static str {
    FEEDS[usize::try_from(position - 1).unwrap() % 3]
}

/// A space whose blocks have everything that a block can have, but for signatures.
fn filled() -> Authority {
    let authority = Authority::new();
    for number in 0..BLOCKS {
        let feed = FEEDS[usize::try_from(number).unwrap() % 3];
        let block = Block {
            prev_sequence: Some(99 + number),
            prev_actor_id: Some(id("before")),
            timestamp: Some(NOW_MS + number),
            encryption_key_id: (number % 2 == 0).then(|| id("key")),
            iv: (number % 2 == 0).then(|| Data::from(vec![7; 12])),
            ..block(feed, "author", 100 + number, &format!("the data of block {number}"))
        };
        let request = AppendRequest { namespace: Some(namespace("ns")), ..append(vec![block]) };
        authority.append(request);
        authority.clock.advance_ms(1000);
    }
    authority
}

fn file(authority: &Authority) -> PathBuf {
    let folders = fs::read_dir(authority.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap().join("space.sqlite")
}

/// Everything that can be asked for. Whether it is a page of everything that it asks for.
fn questions() -> Vec<(Request, bool)> {
    let mut all = vec![(Request::ListFeeds(ListFeedsRequest::default()), false)];
    for feeds in [&[][..], &["fc"], &["fa", "fc"]] {
        for (cursor, limit) in [(0, 50), (4, 3), (6, 50), (11, 1)] {
            let feed_ids = (!feeds.is_empty()).then(|| feeds.iter().map(|feed| id(feed)).collect());
            let since = Some(NOW_MS + 1000 * cursor);
            let (cursor, limit) = (Some(cursor), Some(limit));
            let query = QueryRequest { feed_ids, cursor, limit, since, ..QueryRequest::default() };
            all.push((Request::Query(query), (cursor, limit) == (Some(0), Some(50))));
        }
    }
    all
}

/// Whether an answer is no other than the right one: none is missing from a page that has everything, and every block of
/// another is one that there is. Which those are says the index, and a bit of that is not all that turns here.
fn is_right(is_whole: bool, all: &[Block], right: &Response, answer: &Response) -> bool {
    match (right, answer) {
        (Response::Query(right), Response::Query(answer)) if !is_whole => {
            let told = |page: &QueryResponse| {
                (page.server_token.clone(), page.max_position, page.since_position, page.cursor_block.clone())
            };
            let is_check = right.next_cursor != answer.next_cursor || right.check == answer.check;
            answer.blocks.iter().all(|block| all.contains(block)) && told(right) == told(answer) && is_check
        }
        (right, answer) => right == answer,
    }
}

/// Whether an answer is the beginning of the right one, up to a damaged block, and who goes on from there is refused.
fn is_begun(
    authority: &Authority,
    checks: &[Option<Check>],
    question: &Request,
    pages: [&Response; 2],
) -> bool {
    let (Request::Query(question), [Response::Query(right), Response::Query(answer)]) = (question, pages)
    else {
        return false;
    };
    let end = answer.next_cursor;
    let begun = right.blocks.iter().take_while(|block| block.position <= Some(end));
    let expected = QueryResponse {
        blocks: begun.cloned().collect(),
        next_cursor: end,
        has_more: true,
        check: checks[usize::try_from(end).unwrap()],
        ..right.clone()
    };
    let onwards = QueryRequest { cursor: Some(end), ..question.clone() };
    end < right.next_cursor
        && *answer == expected
        && matches!(authority.handle(Request::Query(onwards)), Response::Error(error) if error.code == ErrorCode::ReadFailed.as_str())
}

/// A value with one bit turned, for every so-manieth bit.
fn turned(value: &Value, step: usize) -> Vec<Value> {
    let of_bytes = |bytes: &[u8]| {
        let flip = |bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        (0..bytes.len() * 8).step_by(step).map(flip).collect::<Vec<_>>()
    };
    match value {
        Value::Integer(number) => {
            [0, 2, 17, 40, 61, 63].map(|bit| Value::Integer(number ^ (1 << bit))).into()
        }
        Value::Blob(bytes) => of_bytes(bytes).into_iter().map(Value::Blob).collect(),
        // What is not UTF-8 any more is cast to text by the statement.
        Value::Text(text) => of_bytes(text.as_bytes()).into_iter().map(Value::Blob).collect(),
        Value::Null | Value::Real(_) => Vec::new(),
    }
}

#[test]
fn a_bit_of_any_column_of_what_is_served_turns_and_nothing_wrong_is_served() {
    let authority = filled();
    let connection = Connection::open(file(&authority)).unwrap();
    connection.execute_batch("DROP TRIGGER blocks_data_is_immutable; PRAGMA foreign_keys = OFF").unwrap();
    let questions = questions();
    let right: Vec<Response> =
        questions.iter().map(|(question, _)| authority.handle(question.clone())).collect();
    assert!(right.iter().all(|answer| !matches!(answer, Response::Error(_))), "{right:#?}");
    let all = authority.after(0).blocks;
    let one = |cursor| QueryRequest { cursor: Some(cursor), limit: Some(1), ..QueryRequest::default() };
    let checks: Vec<Option<Check>> =
        [None].into_iter().chain((0..BLOCKS).map(|before| authority.query(one(before)).check)).collect();
    let mut refused = 0;
    for (table, key, rows) in [
        ("blocks", "insertionId", &[6, 12][..]),
        ("feeds", "feedPrivateId", &[2]),
        ("spaces", "spaceKey", &[1]),
    ] {
        let sql =
            format!("SELECT name FROM pragma_table_info('{table}') WHERE name NOT IN ('{key}', 'spaceId')");
        let columns: Vec<String> = connection
            .prepare(&sql)
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for (row, column) in rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column))) {
            let sql = format!("SELECT {column} FROM {table} WHERE {key} = ?1");
            let value: Value = connection.query_row(&sql, [row], |row| row.get(0)).unwrap();
            let is_text = matches!(value, Value::Text(_));
            let new = if is_text { "CAST(?2 AS TEXT)" } else { "?2" };
            let update = format!("UPDATE {table} SET {column} = {new} WHERE {key} = ?1");
            for changed in turned(&value, 23) {
                // Another block may have it, as of positions.
                if connection.execute(&update, (row, &changed)).is_err() {
                    continue;
                }
                let before = refused;
                for ((question, is_whole), right) in questions.iter().zip(&right) {
                    match authority.handle(question.clone()) {
                        Response::Error(error) => {
                            assert_eq!(
                                error.code,
                                ErrorCode::ReadFailed.as_str(),
                                "{table}.{column} {changed:?}"
                            );
                            refused += 1;
                        }
                        answer if is_begun(&authority, &checks, question, [right, &answer]) => refused += 1,
                        answer => assert!(
                            is_right(*is_whole, &all, right, &answer),
                            "{table}.{column} of {row}: {value:?}, {changed:?}\n{question:?}\n{answer:#?}"
                        ),
                    }
                }
                assert!(refused > before, "{table}.{column} of {row}: {changed:?} goes unnoticed");
                let back = if let Value::Text(text) = &value {
                    Value::Blob(text.clone().into())
                } else {
                    value.clone()
                };
                connection.execute(&update, (row, back)).unwrap();
            }
        }
    }
}

/// Everything that is read of a file for whoever asks, without those checks that a server makes when it opens one. Whether a
/// key is free is for its index to say.
fn read(file: &std::path::Path, has_keys: bool) -> StoreResult<Vec<Read>> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let missing = || alluvium_feed_store::StoreError::Inconsistent("no space".to_owned());
    let space = spaces::find(&connection, &id("space"))?.ok_or_else(missing)?;
    let place = (space.key, space.max_position());
    let limits = PageLimits { blocks_max: 100, bytes_max: 1 << 20, examined_max: 1000 };
    let mut all = Vec::new();
    let pages = |selection: Selection<'_>| {
        let page = page::read(&connection, place, selection, 0, limits)?;
        let Some(end) = page.complete_to else { return Ok(Read::Page(page.blocks)) };
        // Nothing ends it but a damaged block, that is told to whoever goes on from there.
        Ok(match page::read(&connection, place, selection, end, limits) {
            Err(_) => Read::Begun(page.blocks, end),
            Ok(onwards) => Read::Onwards(onwards.blocks),
        })
    };
    all.push(pages(Selection::All));
    for names in [&["fa"][..], &["fb"], &["fc"], &["fa", "fc"], &["fa", "fb", "fc"]] {
        for name in names {
            let feed = feeds::find(&connection, &id("space"), &id(name))?.ok_or_else(missing)?;
            all.push(blocks::check_end(&connection, &feed).map(|()| Read::Nothing));
        }
        let names: Vec<Id> = names.iter().map(|name| id(name)).collect();
        let selected = feeds::select(
            &connection,
            &id("space"),
            Pick::Names(&names, &KnownNames::default()),
            &Within::default(),
        )?;
        all.push(pages(Selection::Feeds(&selected)));
    }
    for position in 1..=BLOCKS {
        all.push(blocks::key_at(&connection, space.key, position).map(Read::Key));
        all.push(blocks::check_at(&connection, space.key, position).map(Read::Check));
        all.push(blocks::arrival_from(&connection, space.key, position).map(Read::Arrival));
        if has_keys {
            let feed = feeds::find(&connection, &id("space"), &id(feed_of(position)))?;
            let feed = feed.ok_or_else(missing)?.private_id;
            let stored = blocks::find_whole(&connection, feed, 99 + position, &id("author"));
            all.push(stored.map(|stored| Read::Stored(stored.map(|stored| StoredAt(stored.position)))));
        }
    }
    // What fails is an answer too, and the only one that differs.
    Ok(all.into_iter().map(|read| read.unwrap_or(Read::Failed)).collect())
}

#[derive(Debug, PartialEq)]
struct StoredAt(Option<u64>);

#[derive(Debug, PartialEq)]
enum Read {
    Page(Vec<Block>),
    /// What is before a damaged block, and up to where that is all.
    Begun(Vec<Block>, u64),
    /// What comes after a page that was cut for no reason.
    Onwards(Vec<Block>),
    Key(Option<BlockKey>),
    Check(Option<Check>),
    /// The position of the block with a key, if it has one.
    Stored(Option<StoredAt>),
    Arrival(Option<(u64, u64)>),
    Nothing,
    Failed,
}

impl Read {
    /// Whether it is what is right, or tells that it isn't, with nothing wrong before that.
    fn is_no_other(&self, right: &Self) -> bool {
        match (self, right) {
            (Self::Failed, _) => true,
            (Self::Begun(begun, end), Self::Page(whole)) => {
                let up_to = whole.iter().take_while(|block| block.position <= Some(*end));
                begun.len() < whole.len() && up_to.eq(begun)
            }
            _ => self == right,
        }
    }

    fn tells(&self) -> bool {
        matches!(self, Self::Failed | Self::Begun(..))
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "files are changed behind the back of the code under test")]
fn a_bit_of_the_file_turns_wherever_it_is_and_nothing_wrong_is_read() {
    let mut authority = filled();
    let path = file(&authority);
    authority.service().close();
    authority.service = None;
    Connection::open(&path).unwrap().execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    let bytes = fs::read(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.sqlite");
    fs::write(&copy, &bytes).unwrap();
    let right = [false, true].map(|has_keys| read(&copy, has_keys).unwrap());
    assert!(right.iter().flatten().all(|read| !read.tells()), "{right:#?}");
    // The row of a block, as it lies in the file, and whatever else there is besides empty pages and the schema.
    let data = b"the data of block 5";
    let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
    let row = (at - 180) * 8..(at + data.len() + 30) * 8;
    let random = SeededRandom::new(3);
    let schema = bytes.windows(6).rposition(|window| window == b"CREATE").unwrap() / 4096 + 1;
    let mut anywhere = Vec::new();
    while anywhere.len() < 150 {
        let bit = usize::try_from(random.next_u128() % (bytes.len() as u128 * 8)).unwrap();
        if bytes[bit / 8] != 0 && bit / 8 >= schema * 4096 {
            anywhere.push(bit);
        }
    }
    let mut noticed = 0;
    for (bit, is_of_row) in
        row.step_by(5).map(|bit| (bit, true)).chain(anywhere.into_iter().map(|bit| (bit, false)))
    {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&copy, &changed).unwrap();
        let Ok(reads) = read(&copy, is_of_row) else {
            noticed += 1;
            continue;
        };
        noticed += u32::from(reads.iter().any(Read::tells));
        for (right, read) in right[usize::from(is_of_row)].iter().zip(&reads) {
            assert!(read.is_no_other(right), "byte {}, bit {}: {read:?} and not {right:?}", bit / 8, bit % 8);
        }
    }
    assert!(noticed > 150, "{noticed}");
}
