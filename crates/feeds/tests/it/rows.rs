//! Every column of every row that is served changes, and every entry of an index is lost or leads elsewhere: whatever is then
//! asked for is answered as before, or is refused, and what is given out before a refusal is the beginning of what was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::sim::SeededRandom;
use alluvium_env::{Env, RealDisk};
use alluvium_feed_protocol::{
    AppendRequest, AppendResponse, Block, BlockKey, Check, ErrorCode, FeedInfo, Id, ListFeedsRequest,
    QueryRequest, Request, Response, SubscribeRequest, Token,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::rusqlite::types::Value;
use alluvium_feeds::{Principal, Service};

use crate::support::{Authority, append, block, id, namespace};

/// More than what is looked up one by one.
const FEEDS: u64 = 56;
/// Blocks of each, by turns.
const BLOCKS: u64 = 4;
/// The rows that are changed: of feeds in the middle, and of one of which something was pruned.
const NAMES: [&str; 3] = ["f03", "f05", "f52"];

fn name(number: u64) -> String {
    format!("f{number:02}")
}

fn names(numbers: impl IntoIterator<Item = u64>) -> Vec<Id> {
    numbers.into_iter().map(|number| id(&name(number))).collect()
}

/// A space with all of that, and two subscriptions.
fn filled() -> (Authority, [Id; 2]) {
    let authority = Authority::new();
    for sequence in 0..BLOCKS {
        for (rest, of) in [(0, "ns"), (1, "mm")] {
            let blocks = (0..FEEDS).filter(|feed| feed % 2 == rest);
            let blocks = blocks.map(|feed| block(&name(feed), "a", sequence, "data")).collect();
            authority.append(AppendRequest { namespace: Some(namespace(of)), ..append(blocks) });
            authority.clock.advance_ms(1000);
        }
    }
    let service = authority.service();
    // All but the last two of one, all of another.
    service.prune(&id("space"), &id("f05"), FEEDS * 2).unwrap();
    service.prune(&id("space"), &id("f07"), FEEDS * BLOCKS + 1).unwrap();
    let feed_ids = Some(vec![id("f03"), id("f05"), id("nowhere")]);
    let few = SubscribeRequest { feed_ids, ttl_ms: Some(80_000_000), ..SubscribeRequest::default() };
    let namespaces = Some(vec![namespace("mm")]);
    let many = SubscribeRequest { namespaces, ..few.clone() };
    let few = authority.subscribe(few).subscription_id;
    let many = authority.subscribe(SubscribeRequest { feed_ids: None, ..many }).subscription_id;
    (authority, [few, many])
}

fn file(folder: &Path) -> PathBuf {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap().join("space.sqlite")
}

/// What is read from a place on, until there is no more or it is refused.
#[derive(Debug, Default, PartialEq)]
struct Told {
    blocks: Vec<Block>,
    pruned: BTreeMap<Id, u64>,
    /// What every page says of the space, the cursor and the time that was asked for.
    of_space: Option<(Token, u64, Option<u64>)>,
    /// Checks and blocks at the ends of pages.
    checks: BTreeMap<u64, Option<Check>>,
    keys: BTreeMap<u64, Option<BlockKey>>,
    feeds: Vec<FeedInfo>,
    end: Option<u64>,
    /// Whether it is told that the history is another, or two pages say so.
    is_reset: bool,
    refused: Option<String>,
}

impl Told {
    /// Whether it is what is right, or a beginning of that.
    fn is_no_other(&self, right: &Self, known: &Self) -> bool {
        let is_known = self
            .checks
            .iter()
            .all(|(at, check)| known.checks.get(at).is_none_or(|due| check.is_none() || check == due));
        let is_key = self
            .keys
            .iter()
            .all(|(at, key)| known.keys.get(at).is_none_or(|due| key.is_none() || key == due));
        let is_begun = right.blocks.starts_with(&self.blocks)
            && self.pruned.iter().all(|(feed, below)| right.pruned.get(feed) == Some(below))
            && (self.of_space.is_none() || self.of_space == right.of_space);
        let is_whole = || {
            (&self.blocks, &self.pruned, &self.feeds, self.end)
                == (&right.blocks, &right.pruned, &right.feeds, right.end)
        };
        !self.is_reset && is_known && is_key && is_begun && (self.refused.is_some() || is_whole())
    }
}

/// One way to ask.
#[derive(Clone, Debug)]
enum Asked {
    Pages(QueryRequest),
    List(ListFeedsRequest),
}

type Question = (Asked, Principal);

fn questions(subscriptions: &[Id; 2]) -> Vec<Question> {
    let anyone = Principal::anyone();
    let bound = Principal { namespaces: Some(vec![namespace("mm")]), ..Principal::anyone() };
    let of = |feeds: Vec<Id>| QueryRequest { feed_ids: Some(feeds), ..QueryRequest::default() };
    let by = |id: &Id| QueryRequest { subscription_id: Some(id.clone()), ..QueryRequest::default() };
    let within = QueryRequest { namespaces: Some(vec![namespace("mm")]), ..QueryRequest::default() };
    let mut all = Vec::new();
    for (request, principal, limits) in [
        (QueryRequest::default(), &anyone, &[1000, 50][..]),
        (of(names([3])), &anyone, &[1000, 1]),
        (of(names([5])), &anyone, &[1]),
        (of(names([3])), &bound, &[2]),
        (of(names([3, 5, 52])), &anyone, &[1000, 3]),
        (of(vec![id("f03"), id("nowhere"), id("f05")]), &anyone, &[4]),
        (of(names(0..FEEDS)), &anyone, &[60]),
        (of(names(0..FEEDS - 3)), &anyone, &[40]),
        (within, &anyone, &[40]),
        (QueryRequest::default(), &bound, &[40]),
        (by(&subscriptions[0]), &anyone, &[3]),
        (by(&subscriptions[1]), &anyone, &[50]),
    ] {
        for (cursor, limit) in limits.iter().flat_map(|limit| [(0, *limit), (FEEDS * 2 + 9, *limit)]) {
            let request = QueryRequest { cursor: Some(cursor), limit: Some(limit), ..request.clone() };
            all.push((Asked::Pages(request), principal.clone()));
        }
    }
    let list = ListFeedsRequest::default;
    for (request, principal) in [
        (list(), &anyone),
        (ListFeedsRequest { namespace: Some(namespace("mm")), limit: Some(9), ..list() }, &anyone),
        (ListFeedsRequest { prefix: Some("f0".to_owned()), limit: Some(4), ..list() }, &anyone),
        (ListFeedsRequest { after: Some(id("f51")), ..list() }, &bound),
    ] {
        all.push((Asked::List(request), principal.clone()));
    }
    all
}

fn ask(service: &Service, (asked, principal): &Question) -> Told {
    let mut told = Told::default();
    let handle = |request| service.handle_blocking(principal, &id("space"), request, None);
    match asked {
        Asked::List(request) => {
            let mut request = request.clone();
            loop {
                match handle(Request::ListFeeds(request.clone())) {
                    Response::ListFeeds(listed) => {
                        told.feeds.extend(listed.feeds);
                        let Some(after) = listed.next_after else { return told };
                        request.after = Some(after);
                    }
                    Response::Error(error) => {
                        told.refused = Some(error.code.clone());
                        return told;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        Asked::Pages(request) => {
            let mut request = QueryRequest { since: Some(crate::support::NOW_MS + 3000), ..request.clone() };
            loop {
                match handle(Request::Query(request.clone())) {
                    Response::Query(page) => {
                        told.is_reset |= page.reset;
                        told.blocks.extend(page.blocks);
                        let pruned = page.pruned.into_iter().map(|pruned| (pruned.feed_id, pruned.below));
                        told.pruned.extend(pruned);
                        told.checks.insert(page.next_cursor, page.check);
                        told.keys.insert(request.cursor.unwrap(), page.cursor_block);
                        let of_space = (page.server_token.clone(), page.max_position, page.since_position);
                        told.is_reset |= told.of_space.as_ref().is_some_and(|before| *before != of_space);
                        told.of_space = Some(of_space);
                        told.end = Some(page.next_cursor);
                        if !page.has_more || told.is_reset {
                            return told;
                        }
                        // As a reader of a stream goes on, who also compares the history.
                        request.cursor = Some(page.next_cursor);
                        request.expected_position = Some(page.next_cursor);
                        request.expected_check = page.check;
                        request.expected_server_token = Some(page.server_token);
                    }
                    Response::Error(error) => {
                        told.refused = Some(error.code.clone());
                        return told;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// What is right, and what is at each position.
fn right(service: &Service, questions: &[Question]) -> (Vec<Told>, Told) {
    let right: Vec<Told> = questions.iter().map(|question| ask(service, question)).collect();
    for (told, question) in right.iter().zip(questions) {
        assert!(
            told.refused.is_none() && (told.blocks.len() > 1 || told.feeds.len() > 1),
            "{question:?}: {told:?}"
        );
    }
    let one = Asked::Pages(QueryRequest { cursor: Some(0), limit: Some(1), ..QueryRequest::default() });
    let known = ask(service, &(one, Principal::anyone()));
    (right, known)
}

/// What changes come to.
#[derive(Default)]
struct Outcome {
    changed: usize,
    /// How many of them somebody was refused for.
    refused: usize,
    /// What was told that isn't so.
    wrong: Vec<String>,
}

impl Outcome {
    fn compare(
        &mut self,
        service: &Service,
        questions: &[Question],
        right: &(Vec<Told>, Told),
        change: &str,
    ) {
        self.changed += 1;
        let mut is_refused = false;
        for (question, due) in questions.iter().zip(&right.0) {
            let told = ask(service, question);
            let is_known = told.refused.as_ref().is_none_or(|code| {
                let gone = ErrorCode::SubscriptionNotFound.as_str();
                let is_subscribed =
                    matches!(&question.0, Asked::Pages(request) if request.subscription_id.is_some());
                code == ErrorCode::ReadFailed.as_str() || (is_subscribed && code == gone)
            });
            is_refused |= told.refused.is_some();
            if !is_known || !told.is_no_other(due, &right.1) {
                let positions: Vec<_> = told.blocks.iter().filter_map(|block| block.position).collect();
                let end = (told.end, told.refused, told.pruned, told.feeds.len());
                let (asked, within) = (&question.0, &question.1.namespaces);
                self.wrong.push(format!("{change}\n  {asked:?}, {within:?}\n  {end:?} {positions:?}"));
            }
        }
        self.refused += usize::from(is_refused);
    }

    /// Sees that nothing was wrong, and that enough was refused for so many changes.
    fn end(&self, changed_min: usize) {
        let wrong = self.wrong.iter().take(30).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.wrong.is_empty(), "{} are wrong:\n{wrong}", self.wrong.len());
        let (changed, refused) = (self.changed, self.refused);
        assert!(changed >= changed_min && refused > changed / 2, "{refused} of {changed}");
    }
}

/// Other values for one, as a statement has them.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Integer(number) => [0, 3, 40]
            .map(|bit| Value::Integer(number ^ (1 << bit)))
            .into_iter()
            .chain([Value::Null])
            .collect(),
        Value::Text(text) => {
            let turned = |at: usize| {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                Value::Text(String::from_utf8(bytes).unwrap())
            };
            (0..text.len()).step_by(text.len().div_ceil(2).max(1)).map(turned).collect()
        }
        Value::Blob(bytes) => {
            let mut turned = bytes.clone();
            turned[0] ^= 4;
            vec![Value::Blob(turned)]
        }
        // Where there was nothing, something is.
        Value::Null => vec![Value::Integer(1), Value::Text("1".to_owned()), Value::Blob(vec![1])],
        Value::Real(_) => Vec::new(),
    }
}

/// A change of one row, and back: what is changed, the statement with the new value, and that with the old one.
struct Change {
    what: String,
    sql: String,
    new: Value,
    old: Value,
}

/// Every column of some rows of the tables.
fn changes(connection: &Connection) -> Vec<Change> {
    let list = NAMES.map(|name| format!("'{name}'")).join(",");
    let numbers = format!("SELECT feedPrivateId FROM feeds WHERE feedId IN ({list})");
    let mut all = Vec::new();
    for (table, rows) in [
        ("feeds", format!("feedId IN ({list})")),
        // In the middle of their feeds, and at the end.
        ("blocks", format!("feedPrivateId IN ({numbers}) AND sequence >= 2")),
        ("spaces", "true".to_owned()),
        ("subscriptions", "true".to_owned()),
    ] {
        let columns = strings(connection, &format!("SELECT name FROM pragma_table_info('{table}')"));
        let rows = strings(connection, &format!("SELECT CAST(rowid AS TEXT) FROM {table} WHERE {rows}"));
        for (row, column) in rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column))) {
            let sql = format!("SELECT {column} FROM {table} WHERE rowid = {row}");
            let old: Value = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            // The number of a row moves with it; then it is told by that.
            let is_number = ["feedPrivateId", "spaceKey", "insertionId"].contains(&column.as_str())
                && (table != "blocks" || column == "insertionId");
            for new in others(&old) {
                if is_number && new == Value::Null {
                    continue;
                }
                let (what, of) = (format!("{table}.{column} of {row}: {old:?} to {new:?}"), row.clone());
                let sql = if is_number {
                    format!("UPDATE {table} SET rowid = ?1 WHERE rowid = ?2")
                } else {
                    format!("UPDATE {table} SET {column} = ?1 WHERE rowid = {of} AND ?2 IS ?2")
                };
                all.push(Change { what, sql, new, old: old.clone() });
            }
        }
    }
    all
}

fn strings(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// A connection that may do anything to the rows of a file.
fn open(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    let free = "DROP TRIGGER IF EXISTS blocks_data_is_immutable; PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON";
    connection.execute_batch(free).unwrap();
    connection
}

#[test]
fn whatever_a_row_says_wrong_is_refused_or_not_told() {
    let (authority, subscriptions) = filled();
    let questions = questions(&subscriptions);
    let right = right(authority.service(), &questions);
    let connection = open(&file(authority.folder.path()));
    let mut outcome = Outcome::default();
    for Change { what, sql, new, old } in changes(&connection) {
        // Not every value can be put there.
        if connection.execute(&sql, (&new, &old)).is_err() {
            continue;
        }
        outcome.compare(authority.service(), &questions, &right, &what);
        connection.execute(&sql, (&old, &new)).unwrap();
    }
    let before = outcome.refused;
    outcome.compare(authority.service(), &questions, &right, "nothing");
    assert_eq!(outcome.refused, before);
    outcome.end(200);
}

/// Indexes, and how many columns each has.
const INDEXES: [(&str, usize); 6] = [
    ("sqlite_autoindex_spaces_1", 1),
    ("feeds_space_feed", 2),
    ("feeds_pruned", 2),
    ("blocks_feed_position", 2),
    ("blocks_space_position", 2),
    ("blocks_feed_sequence_actor", 3),
];

/// Has each index of a file be a table beside, of the same pages, so that an entry can be changed and its row can't.
fn lay_bare(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.pragma_update(None, "writable_schema", true).unwrap();
    for (index, columns) in INDEXES {
        let list = (0..=columns).map(|column| format!("c{column}")).collect::<Vec<_>>().join(", ");
        let sql = format!("CREATE TABLE bare_{index} ({list}, PRIMARY KEY ({list})) WITHOUT ROWID");
        connection
            .execute(
                "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) \
                 SELECT 'table', 'bare_' || name, 'bare_' || name, rootpage, ?2 FROM sqlite_schema WHERE name = ?1",
                (index, sql),
            )
            .unwrap();
    }
    drop(connection);
    open(file)
}

#[test]
fn whatever_an_index_has_lost_or_leads_elsewhere_is_refused_or_not_told() {
    let (mut authority, subscriptions) = filled();
    authority.service().close();
    authority.service = None;
    drop(lay_bare(&file(authority.folder.path())));
    authority.start();
    let questions = questions(&subscriptions);
    let right = right(authority.service(), &questions);
    let connection = open(&file(authority.folder.path()));
    let mut outcome = Outcome::default();
    for (index, columns) in INDEXES {
        let list = NAMES.map(|name| format!("'{name}'")).join(",");
        let rows = match index.split('_').next() {
            Some("sqlite") => "SELECT CAST(spaceKey AS TEXT) FROM spaces".to_owned(),
            Some("feeds") => format!("SELECT CAST(rowid AS TEXT) FROM feeds WHERE feedId IN ({list})"),
            _ => format!(
                "SELECT CAST(b.insertionId AS TEXT) FROM blocks b JOIN feeds f USING (feedPrivateId) \
                 WHERE f.feedId IN ({list}) AND b.sequence >= 1"
            ),
        };
        for row in strings(&connection, &rows) {
            let of_row = format!("c{columns} = {row}");
            let sql = format!("SELECT * FROM bare_{index} WHERE {of_row}");
            let entry: Vec<Value> = match connection
                .query_row(&sql, [], |row| (0..=columns).map(|column| row.get(column)).collect())
            {
                Ok(entry) => entry,
                Err(_) => continue,
            };
            let marks = (1..=entry.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
            let put = |entry: &[Value]| {
                let sql = format!("INSERT INTO bare_{index} VALUES ({marks})");
                connection.execute(&sql, alluvium_feed_store::rusqlite::params_from_iter(entry))
            };
            let take = |entry: &[Value]| {
                let is = (0..entry.len()).map(|at| format!("c{at} IS ?{}", at + 1)).collect::<Vec<_>>();
                let sql = format!("DELETE FROM bare_{index} WHERE {}", is.join(" AND "));
                let taken = connection.execute(&sql, alluvium_feed_store::rusqlite::params_from_iter(entry));
                assert_eq!(taken.unwrap(), 1, "{index}");
            };
            let mut instead = vec![None];
            for column in 0..=columns {
                for other in others(&entry[column]) {
                    let mut other_entry = entry.clone();
                    other_entry[column] = other;
                    instead.push(Some(other_entry));
                }
            }
            for instead in instead {
                // Keys of blocks are for those who append.
                let what = format!("{index}: {entry:?} to {instead:?}");
                take(&entry);
                if instead.as_ref().is_none_or(|instead| put(instead).is_ok()) {
                    outcome.compare(authority.service(), &questions, &right, &what);
                    if let Some(instead) = &instead {
                        take(instead);
                    }
                }
                put(&entry).unwrap();
            }
        }
    }
    let before = outcome.refused;
    outcome.compare(authority.service(), &questions, &right, "nothing");
    assert_eq!(outcome.refused, before);
    outcome.end(150);
}

/// The names of all feeds are known once somebody asked for one that isn't there. Feeds that are made later are known too.
#[test]
fn a_feed_made_after_all_were_looked_at_is_missed_like_any_other() {
    let (mut authority, _) = filled();
    authority.service().close();
    authority.service = None;
    drop(lay_bare(&file(authority.folder.path())));
    authority.start();
    let ask = |name: &str| {
        let request = QueryRequest { feed_ids: Some(vec![id(name)]), ..QueryRequest::default() };
        authority.handle(Request::Query(request))
    };
    let is_empty = |response: Response| matches!(response, Response::Query(page) if page.blocks.is_empty());
    assert!(is_empty(ask("late")));
    authority.append(append(vec![block("late", "a", 0, "data")]));
    assert!(!is_empty(ask("late")));
    let connection = open(&file(authority.folder.path()));
    for (name, left) in [("late", "nowhere"), ("f03", "neither")] {
        let sql = "DELETE FROM bare_feeds_space_feed WHERE c1 = ?1";
        assert_eq!(connection.execute(sql, [name]).unwrap(), 1);
        let refusal = ask(name);
        assert!(
            matches!(&refusal, Response::Error(error) if error.code == ErrorCode::ReadFailed.as_str()),
            "{refusal:?}"
        );
        assert!(is_empty(ask(left)));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a server that starts with a folder answers to appends: of one block to a feed, of one that is there already.
fn append_to(authority: &Authority, folder: &Path) -> Vec<Result<AppendResponse, String>> {
    let env = Env {
        disk: Arc::new(RealDisk),
        random: Arc::new(SeededRandom::new(9)),
        clock: authority.clock.clone(),
    };
    let service = Service::open(folder, env, authority.options.clone()).unwrap();
    let one = |feed: &str, sequence| append(vec![block(feed, "a", sequence, "data")]);
    let appends = NAMES.iter().map(|feed| one(feed, BLOCKS)).chain([one("f03", 2), one("new", 0)]);
    let answers = appends.map(|append| {
        match service.handle_blocking(&Principal::anyone(), &id("space"), Request::Append(append), None) {
            Response::Append(answer) => Ok(answer),
            Response::Error(error) => Err(error.code),
            other => panic!("{other:?}"),
        }
    });
    let answers = answers.collect();
    service.close();
    answers
}

#[test]
fn a_server_that_starts_with_a_wrong_row_appends_as_if_it_were_right_or_not_at_all() {
    let (mut authority, subscriptions) = filled();
    let questions = questions(&subscriptions);
    let right = right(authority.service(), &questions);
    authority.service().close();
    authority.service = None;
    let folder = authority.folder.path();
    let (scratch, mut number) = (tempfile::tempdir().unwrap(), 0);
    let mut fresh = || {
        number += 1;
        let target = scratch.path().join(number.to_string());
        copy(folder, &target);
        target
    };
    let due = append_to(&authority, &fresh());
    assert!(due.iter().all(Result::is_ok), "{due:?}");
    let all = changes(&open(&file(&fresh())));
    let keys =
        ["blocks.feedPrivateId ", "blocks.sequence ", "blocks.actorId ", "feeds.spaceId ", "feeds.feedId "];
    let (mut outcome, mut refused, mut before) = (Outcome::default(), 0, String::new());
    for Change { what, sql, new, old } in all {
        // One change of each column.
        let column = what.split(':').next().unwrap_or_default().to_owned();
        if std::mem::replace(&mut before, column.clone()) == column {
            continue;
        }
        let target = fresh();
        if open(&file(&target)).execute(&sql, (&new, &old)).is_err() {
            continue;
        }
        {
            let env = Env {
                disk: Arc::new(RealDisk),
                random: Arc::new(SeededRandom::new(9)),
                clock: authority.clock.clone(),
            };
            let service = Service::open(&target, env, authority.options.clone()).unwrap();
            outcome.compare(&service, &questions, &right, &what);
        }
        let answers = append_to(&authority, &target);
        let positions: Vec<u64> =
            answers.iter().flatten().flat_map(|answer| answer.positions.clone()).collect();
        for (answer, due) in answers.iter().zip(&due) {
            match (answer, due) {
                (Err(code), _) if code == ErrorCode::ReadFailed.as_str() => refused += 1,
                // The statement has changed the index over keys or names as well, which a fault of a row does not.
                (Ok(_), Ok(_)) if keys.iter().any(|key| what.starts_with(key)) => {}
                (Ok(answer), Ok(due))
                    if (&answer.server_token, answer.duplicates, &answer.conflicts)
                        == (&due.server_token, due.duplicates, &due.conflicts) => {}
                _ => outcome.wrong.push(format!("{what}: {answer:?} to an append")),
            }
        }
        // What was given is new: the next ones in their order, but for the block that was there.
        let there = due[3].as_ref().unwrap().positions[0];
        let given: Vec<u64> = positions.into_iter().filter(|position| *position != there).collect();
        let first = FEEDS * BLOCKS + 1;
        if !given.iter().copied().eq((first..).take(given.len())) {
            outcome.wrong.push(format!("{what}: positions {given:?}"));
        }
        std::fs::remove_dir_all(target).unwrap();
    }
    outcome.end(60);
    assert!(refused > 30, "{refused}");
}

#[test]
fn a_wrong_check_of_a_pruned_block_is_not_taken_for_another_history() {
    let (authority, _) = filled();
    let connection = open(&file(authority.folder.path()));
    let positions = strings(&connection, "SELECT CAST(position AS TEXT) FROM prunedChecks ORDER BY position");
    let position: u64 = positions[positions.len() / 2].parse().unwrap();
    let before = Some(Check(1));
    let one = QueryRequest { cursor: Some(position), feed_ids: Some(Vec::new()), ..QueryRequest::default() };
    let stands = |expected_check| {
        let request = QueryRequest { expected_position: Some(position), expected_check, ..one.clone() };
        authority.handle(Request::Query(request))
    };
    let sql = "SELECT positionCheck FROM prunedChecks WHERE position = ?1";
    let right: i64 = connection.query_row(sql, [position], |row| row.get(0)).unwrap();
    let right = Some(Check(right.cast_unsigned()));
    let is_reset = |answer: &Response| match answer {
        Response::Query(page) => Some(page.reset),
        Response::Error(error) if error.code == ErrorCode::ReadFailed.as_str() => None,
        other => panic!("{other:?}"),
    };
    assert_eq!((is_reset(&stands(right)), is_reset(&stands(before))), (Some(false), Some(true)));
    for column in ["spaceKey", "position", "positionCheck", "rowCheck"] {
        for bit in [0, 5, 40] {
            let turn = format!(
                "UPDATE prunedChecks SET {column} = ({column} | {0}) - ({column} & {0})",
                1_i64 << bit
            );
            let of = if column == "position" {
                ((position | 1 << bit) - (position & 1 << bit)).to_string()
            } else {
                position.to_string()
            };
            // Another one may be there.
            if connection.execute(&format!("{turn} WHERE position = {position}"), []).is_err() {
                continue;
            }
            assert_ne!(is_reset(&stands(right)), Some(true), "{column}, bit {bit}");
            connection.execute(&format!("{turn} WHERE position = {of}"), []).unwrap();
            assert_eq!(is_reset(&stands(right)), Some(false), "{column}, bit {bit}");
        }
    }
}
