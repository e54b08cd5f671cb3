//! Which bug is found by which test.

use alluvium_jss::planted::Bug;

/// A bug, and the test that must find it.
pub(crate) struct Mutant {
    /// Its numbers with the reference implementation; none if it is one of our own.
    pub(crate) ids: &'static [&'static str],
    pub(crate) bug: Bug,
    /// The folder of the package, and its target.
    pub(crate) package: &'static str,
    pub(crate) target: &'static str,
    pub(crate) test: &'static str,
    /// Whether the test finds it by waiting for what never comes.
    pub(crate) hangs: bool,
}

impl Mutant {
    pub(crate) fn name(&self) -> String {
        let ids: String = self.ids.iter().map(|id| format!("m{id}_")).collect();
        format!("{ids}{:?} by {}::{}::{}", self.bug, self.package, self.target, self.test)
    }
}

/// The mutants of the reference implementation that are active.
pub(crate) const REFERENCE: [&str; 47] = [
    "001", "002", "003", "004", "005", "006", "008", "009", "011", "012", "015", "016", "017", "018", "019",
    "022", "024", "026", "027", "028", "029", "030", "031", "032", "033", "034", "035", "036", "037", "038",
    "039", "040", "041", "042", "043", "044", "045", "046", "047", "048", "049", "050", "051", "052", "053",
    "054", "055",
];

/// Those that are of gathering a network's past, of merging and compacting it, which come later.
pub(crate) const OF_GATHERING: [(&str, &str); 15] = [
    ("002", "the watermark of compaction begins at the next number"),
    ("003", "the cursor of the merge does not pass a finished source"),
    ("004", "the merge compares revisions the other way round"),
    ("005", "the merge takes repositories that are complete for others"),
    ("006", "an error of the merge's cursor is passed over"),
    ("022", "compaction compares with the deletion of an account the other way round"),
    ("024", "compaction drops what nothing supersedes"),
    ("028", "an error of compaction's watermark is passed over"),
    ("034", "compaction checks itself against an old watermark"),
    ("039", "the gate of paths is skipped in what is gathered"),
    ("051", "the gathered files are not removed durably before their cursor"),
    ("052", "the cursor of a host leads what was gathered from it"),
    ("053", "a host that was given up counts as one that was finished"),
    ("054", "repositories are asked of the relay alone"),
    ("055", "it is forgotten which host an account is with"),
];

const fn of(
    ids: &'static [&'static str],
    bug: Bug,
    package: &'static str,
    target: &'static str,
    test: &'static str,
) -> Mutant {
    Mutant { ids, bug, package, target, test, hangs: false }
}

/// One that a test finds by waiting for what never comes.
const fn hanging(mutant: Mutant) -> Mutant {
    Mutant { hangs: true, ..mutant }
}

const JSS: &str = "jss";
const ARCHIVE: &str = "jetstream-archive";
const INGEST: &str = "jetstream-ingest";
const SERVED: &str = "jetstream";
const CLIENT: &str = "jetstream-client";
const SIMULATION: &str = "jetstream-sim";
const FIELDS: &str = "convert::tests::each_field_of_a_row_is_the_one_of_its_operation";
const REPLACED_FIELDS: &str = "convert::tests::a_record_of_a_whole_repository_is_a_row_of_its_own_kind";
const ALONE: &str = "convert::tests::a_bad_operation_is_dropped_alone";
const REPAIRED: &str =
    "account::tests::repairs::a_gap_is_repaired_by_the_whole_repository_and_the_commits_behind_it";
const DROPPED: &str = "account::tests::repairs::a_drop_is_followed_by_a_repair";
const SEGMENT: &str = "model::a_segment_holds_what_was_flushed";
const LOSSES: &str = "crashes::no_acknowledged_row_is_lost_at_any_crash";
const ARCHIVE_LOSSES: &str = "crashes::one_crash_anywhere_loses_nothing_and_doubles_nothing";
const PLANS: &str = "planning::a_client_that_follows_any_plan_has_all_that_it_wants";
const PACKED: &str = "live::every_compression_carries_the_same_text";

/// All of them.
pub(crate) const MUTANTS: &[Mutant] = &[
    // First, since others run while it waits.
    hanging(of(
        &[],
        Bug::DropKeepsNumber,
        SIMULATION,
        "worlds",
        "one_account_that_floods_is_dropped_from_and_repaired_or_waited_for",
    )),
    of(
        &[],
        Bug::RefusalForgotten,
        SIMULATION,
        "worlds",
        "keys_that_were_rotated_before_the_beginning_lose_nothing",
    ),
    of(
        &[],
        Bug::WritesUnbounded,
        SIMULATION,
        "power",
        "a_disk_that_stands_still_holds_verification_back_within_its_bound",
    ),
    of(&["001"], Bug::DeleteAsUpdate, INGEST, "lib", FIELDS),
    of(&["008"], Bug::HeaderFieldOff, JSS, "lib", "header::tests::fields_lie_where_the_format_says"),
    of(
        &["009"],
        Bug::ChecksumRangeOff,
        JSS,
        "lib",
        "header::tests::the_checksum_is_over_all_that_follows_it",
    ),
    of(&["011"], Bug::LengthWithPrefix, JSS, "it", LOSSES),
    of(&["012"], Bug::RowUncounted, JSS, "it", SEGMENT),
    of(&["015"], Bug::CollectionCountedTwice, JSS, "it", SEGMENT),
    of(&["016"], Bug::FilterStrideOff, JSS, "it", SEGMENT),
    of(&["017"], Bug::NamesSwapped, INGEST, "lib", FIELDS),
    of(&["036"], Bug::NamesSwapped, INGEST, "lib", REPLACED_FIELDS),
    of(&["018"], Bug::RevisionMissing, INGEST, "lib", FIELDS),
    of(&["037"], Bug::RevisionMissing, INGEST, "lib", REPLACED_FIELDS),
    of(&["026"], Bug::RevisionAltered, INGEST, "lib", FIELDS),
    of(&["019"], Bug::MarkerDropped, INGEST, "lib", REPAIRED),
    of(
        &["027"],
        Bug::FaultsOff,
        SIMULATION,
        "worlds",
        "connections_that_end_repeat_and_babble_lose_and_double_nothing",
    ),
    hanging(of(
        &["029"],
        Bug::ContinuationPlusOne,
        CLIENT,
        "it",
        "reading::archive_then_live_is_everything_that_passes_once_and_in_order",
    )),
    of(
        &["030"],
        Bug::CutSaysSegment,
        ARCHIVE,
        "it",
        "planning::a_page_cut_within_a_segment_says_the_last_block",
    ),
    of(&["031"], Bug::EmptyPage, ARCHIVE, "it", PLANS),
    of(
        &["032"],
        Bug::FloorClamps,
        SERVED,
        "it",
        "old_cursors::a_number_before_the_floor_is_moved_on_the_oldest_feed_and_refused_on_the_others",
    ),
    of(
        &["033"],
        Bug::TooOldIgnored,
        CLIENT,
        "it",
        "faults::a_cursor_that_became_too_old_is_gone_on_from_in_the_archive",
    ),
    of(
        &["035"],
        Bug::AccountGuardOff,
        SIMULATION,
        "worlds",
        "a_relay_that_is_set_back_deletes_nothing_twice",
    ),
    of(&["038"], Bug::PathGateOff, INGEST, "lib", ALONE),
    of(&["040"], Bug::SiblingsDropped, INGEST, "lib", ALONE),
    of(
        &["041"],
        Bug::IdentitySwallowed,
        SIMULATION,
        "worlds",
        "every_event_of_many_worlds_is_archived_once_and_folds_to_the_truth",
    ),
    of(&["042"], Bug::MissingBlockDropsSiblings, INGEST, "lib", ALONE),
    of(
        &["043"],
        Bug::InactiveIsDeleted,
        INGEST,
        "lib",
        "account::tests::repairs::commits_that_waited_for_a_key_are_archived_although_the_account_has_gone_away",
    ),
    of(
        &["044"],
        Bug::FlushErrorIgnored,
        JSS,
        "it",
        "crashes::after_a_failed_write_or_sync_nothing_more_is_written",
    ),
    of(&["045"], Bug::RewriteErrorIgnored, JSS, "it", "crashes::a_replacement_that_fails_says_so"),
    of(&["046"], Bug::BlockUnsynced, JSS, "it", LOSSES),
    of(&["047", "048"], Bug::ReplacementNameUnsynced, JSS, "it", "crashes::a_replacement_is_one_step"),
    of(&["049"], Bug::MetadataFirst, ARCHIVE, "it", ARCHIVE_LOSSES),
    of(&["050"], Bug::MetadataUnsynced, ARCHIVE, "it", ARCHIVE_LOSSES),
    of(&[], Bug::FooterUnrecognised, JSS, "it", LOSSES),
    of(&[], Bug::ZerosUnrecognised, JSS, "it", "damage::zeros_behind_the_last_block_are_cut"),
    of(&[], Bug::ContentSizeNeeded, JSS, "lib", "frame::tests::a_frame_need_not_say_how_long_its_content_is"),
    of(&[], Bug::FilterCountsRows, JSS, "it", SEGMENT),
    of(
        &[],
        Bug::ActiveTimeInexact,
        ARCHIVE,
        "it",
        "times::a_time_leads_to_the_first_row_of_it_or_later_everywhere",
    ),
    of(&[], Bug::ChangesAfterFlush, ARCHIVE, "it", ARCHIVE_LOSSES),
    of(&[], Bug::ShownEarly, ARCHIVE, "it", ARCHIVE_LOSSES),
    of(&[], Bug::SentinelsForgotten, ARCHIVE, "it", PLANS),
    of(&[], Bug::FormsShared, SERVED, "it", PACKED),
    of(&[], Bug::TakeoverTold, SERVED, "it", PACKED),
    of(&[], Bug::TagOfManifest, SERVED, "it", "archive::what_is_served_is_named_by_the_file_that_is_open"),
    of(&[], Bug::RepairBehind, INGEST, "lib", REPAIRED),
    of(&[], Bug::ChainAhead, INGEST, "lib", DROPPED),
    of(&[], Bug::OrderLost, INGEST, "lib", "queues::tests::order_within_an_account_holds"),
    of(
        &[],
        Bug::BehindDropFirst,
        INGEST,
        "lib",
        "account::tests::dropped::whichever_commits_are_dropped_no_record_is_missing",
    ),
    of(
        &[],
        Bug::DeletionForgotten,
        INGEST,
        "lib",
        "account::tests::deleted::a_repository_of_today_is_archived_again_behind_a_deletion_of_the_past",
    ),
    of(
        &[],
        Bug::SyncUnverified,
        INGEST,
        "lib",
        "account::tests::unverified::nothing_that_an_account_has_not_signed_is_archived_in_any_state",
    ),
    of(
        &[],
        Bug::CursorLeads,
        INGEST,
        "lib",
        "watermark::tests::the_lowest_number_in_flight_holds_the_cursor_back",
    ),
];
