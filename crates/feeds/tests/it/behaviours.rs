//! Which test stands for which requirement of the protocol, and for which behaviour that other implementations test.
//!
//! R1 to R52 are the requirements of the protocol's text, D1 to D14 the decisions where it is open, B1 to B55 the behaviours.
//! `I-n` in the last column is an invariant of the simulation (`docs/feeds.md`), which `feeds_simulation` runs. A name that
//! no test has any more fails here.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What runs the simulation.
const SIMULATION: &str = "nothing_is_found_in_the_first_seeds";

/// The table: what, and the tests that fail if it doesn't hold.
const TABLE: &[(&str, &[&str])] = &[
    ("R1 a position in an append is not taken", &["a_position_in_an_append_is_not_taken"]),
    (
        "R2 R3 pulled blocks give the authority's order",
        &["what_is_written_offline_is_there_at_once_and_comes_to_others_in_one_order", SIMULATION],
    ),
    (
        "R4 push and pull are independent",
        &["a_follower_pushes_what_another_command_appends_and_shows_what_comes", SIMULATION],
    ),
    (
        "R5-R9 R12 R14 per feed, from a position on, none by default",
        &[
            "only_what_is_chosen_comes_and_from_where_it_was_chosen",
            "there_is_no_way_to_ask_for_an_end",
            SIMULATION,
        ],
    ),
    ("R10 from a time on", &["a_time_stands_for_the_first_position_since_then", SIMULATION]),
    ("R11 R31 settings and local numbers stay here", &["local_numbers_never_leave_the_store"]),
    ("R13 selectors", &["selectors_pick_by_namespace_prefix_and_own_writing", SIMULATION]),
    (
        "R15 the start moves both ways",
        &["what_is_not_wanted_any_more_goes_and_comes_back_on_demand", SIMULATION],
    ),
    (
        "R16 R17 one authority, no gaps",
        &[
            "concurrent_appends_get_positions_without_gap_or_repetition",
            "a_folder_is_used_by_one_service_at_a_time",
        ],
    ),
    ("R19 R20 order", &["positions_come_first_and_then_sequence_and_actor", SIMULATION]),
    (
        "R21 B7 sequences",
        &["what_is_written_offline_is_there_at_once_and_comes_to_others_in_one_order", SIMULATION],
    ),
    (
        "R22 D3 B8 B9 one counter per space, from 1",
        &["positions_rise_over_all_feeds_and_namespaces_of_a_space"],
    ),
    (
        "R23 B11 B12 B23 positions are never used again, also after pruning",
        &["pruned_blocks_are_gone_and_said_to_be_and_their_numbers_stay_used", SIMULATION],
    ),
    (
        "R25-R28 B13 a repetition is answered as the first time",
        &["a_repeated_append_is_answered_as_the_first_time_and_uses_no_position", SIMULATION],
    ),
    (
        "R29 D7 B14 B15 same key, other bytes",
        &[
            "other_bytes_under_the_same_key_are_reported_and_the_first_stay",
            "a_copy_that_writes_as_the_same_actor_is_told_of_the_conflict",
        ],
    ),
    (
        "R30 R32-R35 B27 the tables",
        &[
            "the_tables_of_the_protocol_are_as_it_has_them",
            "a_file_of_an_older_version_is_brought_up_to_date_once",
        ],
    ),
    ("R36 D8 times", &["a_time_stands_for_the_first_position_since_then"]),
    (
        "R37 B1 the request's name is repeated",
        &[
            "the_name_of_a_bad_request_is_told_as_far_as_it_can_be_read",
            "a_namespace_is_plain_text_and_a_request_id_is_anything",
        ],
    ),
    (
        "R38 R39 B4 B10 after the cursor, of the named feeds",
        &["only_blocks_after_the_cursor_are_given", "one_cursor_serves_feeds_of_several_namespaces"],
    ),
    (
        "R40 pages, or a stream of them",
        &[
            "pages_follow_each_other_without_gap_or_repetition",
            "pages_come_as_a_stream_under_one_name_until_there_are_no_more",
        ],
    ),
    (
        "R41 R42 D9 B3 subscriptions",
        &[
            "an_expired_or_unknown_subscription_is_an_error_and_never_an_empty_page",
            "a_subscription_survives_a_restart_and_is_renewed_under_its_name",
        ],
    ),
    (
        "R43 R44 R45 D10 B2 B22 positions by index, namespaces",
        &["a_namespace_is_set_by_the_first_block_and_stays"],
    ),
    ("R46 R47 listings", &["listings_come_in_pages_by_name"]),
    (
        "R48 R49 the exchanges",
        &[
            "the_four_exchanges_run_as_they_are_written",
            "the_four_exchanges_run_literally_through_every_door",
        ],
    ),
    ("R51 namespaces together", &["one_cursor_serves_feeds_of_several_namespaces"]),
    ("D1 D2 feed and space of a block", &["the_feed_is_the_blocks_own_or_the_requests_or_the_actor"]),
    (
        "D5 D6 cursor and selection left out",
        &["feeds_and_subscription_together_are_refused", "numbers_are_whole_and_within_53_bits"],
    ),
    (
        "D11 a feed that is named before its first block",
        &["a_feed_that_was_named_before_its_first_block_lives"],
    ),
    ("D12 D13 names", &["identifiers_are_bounded_and_free_of_control_characters"]),
    ("D14 numbers", &["numbers_are_whole_and_within_53_bits"]),
    ("B5 B6 local cursors", &["a_store_keeps_its_actor_and_its_cursors_mean_nothing_elsewhere"]),
    (
        "B16 B17 B41 the token",
        &[
            "a_clean_restart_keeps_token_and_positions",
            "the_cursors_block_and_check_tell_which_history_it_is",
        ],
    ),
    (
        "B18 B42 a wiped server",
        &[
            "a_wiped_server_is_filled_again",
            "the_longer_tour_of_feeds_ends_with_one_order_also_on_a_server_without_data",
        ],
    ),
    (
        "B19 B35 what is left survives a restart",
        &["a_file_works_without_a_server_and_remembers_who_writes_where", SIMULATION],
    ),
    (
        "B20 B21 a caught-up reader",
        &[
            "a_quiet_selection_moves_its_cursor_to_the_head",
            "a_commit_makes_only_those_ask_the_store_whom_it_concerns",
            "those_who_wait_by_namespace_hear_of_new_feeds_and_of_nothing_hidden",
        ],
    ),
    (
        "B24-B26 sealed data",
        &[
            "a_sealed_block_opens_with_its_key_and_shows_nothing_without",
            "changed_bytes_another_block_and_another_key_fail",
            "sealed_and_signed_blocks_pass_through_a_server_that_cannot_read_them",
        ],
    ),
    (
        "B28 B31 answers that are none",
        &["what_is_no_answer_is_none_and_what_is_too_large_is_not_read", SIMULATION],
    ),
    (
        "B30 B54 a deleted space",
        &["a_deleted_space_says_so", "a_server_that_refuses_the_space_ends_the_attempt_with_its_reason"],
    ),
    (
        "B32-B34 B43-B49 a server that was set back",
        &["a_database_that_was_set_back_gets_a_new_token", SIMULATION, "each_historical_bug_is_found"],
    ),
    ("B36 pull and push of a space take turns", &["each_historical_bug_is_found"]),
    ("B37-B40 several peers", &["what_is_written_offline_reaches_others_once_there_is_a_server", SIMULATION]),
    (
        "B50 B52 backlog and hints",
        &[
            "news_comes_by_a_request_that_waits_and_not_by_looking_again",
            "news_comes_over_a_socket",
            "a_hint_brings_a_block_long_before_the_next_look",
        ],
    ),
    (
        "B51 one subscription for everything that selectors pick",
        &["one_cursor_serves_feeds_of_several_namespaces", SIMULATION],
    ),
    (
        "pushed blocks",
        &[
            "blocks_are_pushed_to_who_asks_for_them_each_once_and_in_order",
            "more_than_is_pushed_at_once_is_a_hint_and_blocks_follow_again_after_it",
            "pushed_blocks_are_taken_only_where_they_follow_on_what_is_here",
            SIMULATION,
        ],
    ),
    (
        "greetings, limits and warnings",
        &[
            "a_greeting_tells_when_the_server_pings_and_brings_new_credentials",
            "a_server_says_which_one_it_is_and_stays_that",
            "a_socket_without_credentials_may_only_greet_with_some",
            "answers_and_hints_go_back_to_the_peer_that_asked",
            "over_http_a_client_keeps_to_what_the_server_accepts",
            "what_a_server_accepts_is_kept_to",
            "more_than_is_good_for_a_feed_or_a_space_is_said_and_counted_but_not_refused",
            "a_warning_stands_in_the_head_too",
        ],
    ),
    (
        "what was pruned is said, feed by feed",
        &[
            "pruned_blocks_are_gone_and_said_to_be_and_their_numbers_stay_used",
            "a_replica_knows_from_where_a_pruned_feed_is_complete",
        ],
    ),
    (
        "server-sent events of a selection",
        &[
            "events_have_what_follows_a_cursor_and_go_on_where_the_last_one_ended",
            "what_is_appended_meanwhile_is_an_event",
        ],
    ),
    ("what is wrong with a message is said", &["an_error_names_the_field_at_fault_in_either_encoding"]),
    (
        "a disk that takes nothing",
        &[
            "a_file_is_readable_where_nothing_can_be_written_and_writable_again_where_it_can",
            "a_guard_that_cannot_be_written_keeps_nobody_from_reading",
        ],
    ),
    (
        "B53 waits after failures",
        &["waits_grow_within_their_bounds_and_differ", "a_wait_that_was_told_is_kept"],
    ),
];

/// What has no test, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("R18", "shards are not built; one space has one authority"),
    ("R24", "decided by D3 and D4"),
    ("R50", "the benchmark `capacity`"),
    ("R52", "the rules are a crate without I/O, which the norms check"),
    ("D4", "part of R21: the simulation's model has sequences from 0"),
    ("B29", "a server of this protocol always tells its token"),
    ("B55", "names of services on a carrier that this protocol doesn't have"),
];

/// The numbers of a line: `R5-R9 R12 …`.
fn numbers(line: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    for word in line.split(' ') {
        let number = |part: &str| {
            let digits = part.strip_prefix(['R', 'D', 'B'])?;
            digits.parse::<u32>().ok().map(|number| (part[..1].to_owned(), number))
        };
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (Some((kind, first)), Some((_, last))) = (number(first), number(last)) else { break };
        numbers.extend((first..=last).map(|number| format!("{kind}{number}")));
    }
    numbers
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_requirement_and_behaviour_has_its_test_or_its_reason() {
    let numbered = TABLE.iter().flat_map(|(line, _)| numbers(line));
    let excused = WITHOUT.iter().flat_map(|(line, _)| numbers(line));
    let covered: HashSet<String> = numbered.chain(excused).collect();
    for (kind, count) in [("R", 52), ("D", 14), ("B", 55)] {
        for number in 1..=count {
            assert!(covered.contains(&format!("{kind}{number}")), "{kind}{number} has neither");
        }
    }
}

#[test]
fn every_test_of_the_table_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "testing"] {
        sources(&root.join(folder), &mut files);
    }
    let all: String = files.iter().map(|path| fs::read_to_string(path).expect("text")).collect();
    for test in TABLE.iter().flat_map(|(_, tests)| *tests) {
        assert!(all.contains(&format!("fn {test}(")), "no test is called `{test}`");
    }
}
