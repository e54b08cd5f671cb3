//! The tables of the protocol's text, in a file as it is made.

use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{Database, Durability, StoreError};

use crate::older::back_to;

/// Columns as the protocol has them, with their types, and whether they may be missing.
const TABLES: &[(&str, &[(&str, &str)])] = &[
    (
        "feeds",
        &[("feedPrivateId", "INTEGER"), ("spaceId", "TEXT"), ("feedId", "TEXT"), ("feedNamespace", "TEXT")],
    ),
    (
        "blocks",
        &[
            ("feedPrivateId", "INTEGER"),
            ("position", "INTEGER"),
            ("sequence", "INTEGER"),
            ("actorId", "TEXT"),
            ("prevSequence", "INTEGER"),
            ("prevActorId", "TEXT"),
            ("timestamp", "INTEGER"),
            ("data", "BLOB"),
        ],
    ),
    ("subscriptions", &[("subscriptionId", "TEXT"), ("expiresAt", "INTEGER"), ("feedPrivateIds", "TEXT")]),
];

/// Unique indexes as the protocol has them.
const INDEXES: &[(&str, &[&str])] = &[
    ("feeds", &["spaceId", "feedId"]),
    ("blocks", &["feedPrivateId", "position"]),
    ("blocks", &["feedPrivateId", "sequence", "actorId"]),
];

fn strings(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).expect("a statement");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a text")).collect()
}

#[test]
fn the_tables_of_the_protocol_are_as_it_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.sqlite");
    drop(Database::open(&path, Durability::Process).unwrap());
    let connection = Connection::open(&path).unwrap();
    for (table, columns) in TABLES {
        let found =
            strings(&connection, &format!("SELECT name || ' ' || type FROM pragma_table_info('{table}')"));
        for (name, kind) in *columns {
            assert!(found.contains(&format!("{name} {kind}")), "{table}: {found:?}");
        }
    }
    for (table, columns) in INDEXES {
        let sql =
            format!("SELECT name FROM pragma_index_list('{table}') WHERE \"unique\" = 1 AND partial = 0");
        let of_index = |index: &String| {
            strings(&connection, &format!("SELECT name FROM pragma_index_info('{index}') ORDER BY seqno"))
        };
        let found: Vec<Vec<String>> = strings(&connection, &sql).iter().map(of_index).collect();
        assert!(found.iter().any(|index| index == columns), "{table}: {found:?}");
    }
    // Many blocks of a feed may wait for their positions; none changes its data.
    let fill = "INSERT INTO feeds (feedPrivateId, spaceId, feedId) VALUES (1, 's', 'f');
                INSERT INTO blocks (spaceKey, feedPrivateId, sequence, actorId, insertionTimestamp, dataHash, data)
                VALUES (1, 1, 0, 'a', 0, x'00', x'01'), (1, 1, 1, 'a', 0, x'00', x'02');";
    connection.execute_batch(fill).unwrap();
    let changed = connection.execute("UPDATE blocks SET data = x'03'", []);
    assert!(changed.unwrap_err().to_string().contains("never changes"));
}

#[test]
fn a_file_of_an_older_version_is_brought_up_to_date_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.sqlite");
    drop(Database::open(&path, Durability::Process).unwrap());
    let connection = Connection::open(&path).unwrap();
    let rows = "INSERT INTO feeds (feedPrivateId, spaceId, feedId, headPosition) VALUES (1, 's', 'f', 7);
                 INSERT INTO blocks (spaceKey, feedPrivateId, position, sequence, actorId, insertionTimestamp,
                 timestamp, dataHash, data) VALUES (1, 1, 7, 0, 'a', 0, 42, x'00', x'01');
                 INSERT INTO syncState (spaceId, tailCursor, tailCheck, seenPosition, seenCheck)
                 VALUES ('ahead', 9, NULL, 4, 44), ('behind', 3, 33, 5, 55);";
    connection.execute_batch(&format!("{}{rows}", back_to(1))).unwrap();
    for _ in 0..2 {
        drop(Database::open(&path, Durability::Process).unwrap());
        assert_eq!(strings(&connection, "SELECT feedId FROM feeds"), ["f"]);
        assert_eq!(
            strings(&connection, "SELECT group_concat(version) FROM migrations"),
            ["1,2,3,4,5,6,7,8,9"]
        );
        assert!(strings(&connection, "SELECT CAST(position AS TEXT) FROM prunedChecks").is_empty());
        let tails = "SELECT spaceId || tailCursor || '/' || tailCheck FROM syncState ORDER BY spaceId";
        assert_eq!(strings(&connection, tails), ["ahead4/44", "behind3/33"]);
        assert!(strings(&connection, "SELECT name FROM settings").is_empty());
        assert_eq!(strings(&connection, "SELECT CAST(lastTimestamp AS TEXT) FROM feeds"), ["42"]);
    }
    connection.execute("INSERT INTO migrations (version) VALUES (99)", []).unwrap();
    assert!(Database::open(&path, Durability::Process).is_err(), "a file of a later version is left alone");
}

#[test]
fn a_file_is_readable_where_nothing_can_be_written_and_writable_again_where_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.sqlite");
    let fill = "INSERT INTO spaces (spaceId) VALUES ('s')";
    let database = Database::open(&path, Durability::Process).unwrap();
    database.write::<_, StoreError>(|transaction| Ok(transaction.execute(fill, [])?)).unwrap();
    drop(database);
    // The index that connections share can't be made: what a full disk leaves of a start.
    let index = folder.path().join("f.sqlite-shm");
    std::fs::create_dir(&index).unwrap();
    let database = Database::open(&path, Durability::Process).unwrap();
    let count = |database: &Database| {
        let sql = "SELECT count(*) FROM spaces";
        database.read::<u64, StoreError>(|connection| Ok(connection.query_row(sql, [], |row| row.get(0))?))
    };
    let more = |database: &Database| {
        let sql = "INSERT INTO spaces (spaceId) VALUES ('t')";
        database.write::<_, StoreError>(|transaction| Ok(transaction.execute(sql, [])?))
    };
    for _ in 0..2 {
        assert_eq!(count(&database).unwrap(), 1);
        assert!(more(&database).is_err());
    }
    std::fs::remove_dir(&index).unwrap();
    more(&database).unwrap();
    assert_eq!(count(&database).unwrap(), 2);
    database.rest().unwrap();
    assert_eq!(std::fs::metadata(folder.path().join("f.sqlite-wal")).unwrap().len(), 0);
}
