//! Every statement finds its rows by a key or an index, never by looking at all of them.

use alluvium_sqlstore::plan::{reads, writes};

use crate::batch_runner::database;

/// What SQLite calls a scan and is none of a table of streams: rows made in the statement, the steps of a search, and
/// lists that hold nothing but what is looked for, of which the first is taken.
const ALLOWED: [&str; 6] = [
    "SCAN CONSTANT ROW",
    "SCAN s",
    "SCAN search",
    "SCAN garbage USING COVERING INDEX",
    "SCAN garbage",
    "SCAN streams USING INDEX streams_left_over",
];

#[test]
fn no_statement_scans_a_table() {
    let database = database();
    let mut searches = 0;
    for sql in reads::ALL.iter().chain(writes::ALL) {
        let mut statement = database.raw().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
        let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
        let steps: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
            .expect("explains")
            .collect::<Result<_, _>>()
            .expect("steps");
        for step in &steps {
            assert!(!step.starts_with("SCAN") || ALLOWED.contains(&step.as_str()), "{sql}\n{steps:#?}");
            searches += u32::from(step.starts_with("SEARCH"));
        }
    }
    assert!(searches > 30, "the plans are there: {searches}");
}
