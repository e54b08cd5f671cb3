//! Plans against the rows that they are for.

use std::collections::BTreeSet;

use alluvium_jetstream_archive::plan::{PlanLimits, PlanRequest, plan};
use alluvium_jetstream_archive::{Archive, Batch, Changes, CollectionPattern, Kinds, Plan, Selection};
use alluvium_jss::{Kind, Row, Sealed};
use proptest::prelude::*;

use crate::world::{World, commit, event};

/// An archive whose rows vary in account, collection and kind; 240 rows, all sealed.
fn archive(world: &World) -> Archive {
    let archive = world.opened();
    for number in 0..240_u64 {
        let mut event = event(number * number % 97);
        event.did = format!("did:plc:{}", number / 20);
        event.kind = match number % 13 {
            5 => Kind::Account,
            9 if number > 100 => Kind::Sync,
            11 if number < 60 => Kind::Identity,
            _ => Kind::Create,
        };
        event.collection =
            if event.kind == Kind::Create { format!("com.c{}.x", number / 31) } else { String::new() };
        commit(&archive, Batch { events: vec![event], changes: Changes::new() }).unwrap();
    }
    archive.request_rotation().unwrap();
    archive.commit_waiting().unwrap();
    archive
}

/// What a client gets that follows a plan: the rows of all blocks that it names, from the files.
fn download(world: &World, archive: &Archive, plan: &Plan) -> Vec<Row> {
    let manifest = archive.manifest();
    let mut rows = Vec::new();
    for planned in &plan.segments {
        let descriptor = manifest.get(planned.index).unwrap();
        assert_eq!(descriptor.header().checksum, planned.checksum);
        let segment = Sealed::open(&world.disk, &descriptor.path, world.options.read).unwrap();
        let all = 0..u32::try_from(segment.metadata().blocks.len()).unwrap();
        let blocks: Vec<u32> = match &planned.ranges {
            None => all.collect(),
            Some(ranges) => ranges.iter().flat_map(|(first, last)| *first..=*last).collect(),
        };
        for block in blocks {
            let block = segment.block(block as usize).unwrap();
            rows.extend(block.rows().map(|row| row.to_row()));
        }
    }
    rows
}

/// The loop of a client: pages until the tip of the first one, each row once.
fn pages(world: &World, archive: &Archive, request: &PlanRequest, limits: PlanLimits) -> (Vec<Row>, usize) {
    let manifest = archive.manifest();
    let mut request = request.clone();
    let (mut found, mut pages, mut tip) = (Vec::new(), 0, None);
    loop {
        let page = plan(&manifest, &request, limits);
        pages += 1;
        let tip = *tip.get_or_insert(page.sealed_tip_seq);
        assert!(page.planned_through_seq > request.after_seq || page.planned_through_seq >= tip, "{page:?}");
        if limits.entries > 0 {
            assert!(page.stats.entries <= limits.entries as u64);
        }
        found.extend(download(world, archive, &page));
        if page.planned_through_seq >= tip {
            return (found, pages);
        }
        request.after_seq = page.planned_through_seq;
        request.before_seq = Some(tip);
    }
}

fn wanted(archive: &Archive, request: &PlanRequest) -> BTreeSet<u64> {
    let rows = crate::world::rows_from(archive, 1).into_iter();
    let within =
        |row: &Row| row.seq > request.after_seq && request.before_seq.is_none_or(|before| row.seq <= before);
    rows.filter(|row| within(row) && request.selection.matches(&row.as_ref())).map(|row| row.seq).collect()
}

fn selection() -> impl Strategy<Value = Selection> {
    let dids = proptest::collection::vec((0..14_u8).prop_map(|did| format!("did:plc:{did}")), 0..3);
    let pattern = prop_oneof![
        (0..9_u8).prop_map(|number| CollectionPattern::Exact(format!("com.c{number}.x"))),
        (0..9_u8).prop_map(|number| CollectionPattern::Prefix(format!("com.c{number}."))),
        Just(CollectionPattern::Prefix("com.".into())),
    ];
    let kinds = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let kinds = prop_oneof![
        2 => Just(Kinds::ALL),
        1 => kinds.prop_map(|(commit, identity, account, sync)| Kinds { commit, identity, account, sync }),
    ];
    (dids, proptest::collection::vec(pattern, 0..3), kinds)
        .prop_map(|(dids, collections, kinds)| Selection::new(dids, collections, kinds))
}

#[test]
fn a_client_that_follows_any_plan_has_all_that_it_wants() {
    let world = World::new(1);
    let archive = archive(&world);
    let cases = (
        selection(),
        0..250_u64,
        proptest::option::of(0..260_u64),
        prop_oneof![Just(0_usize), 1..4_usize],
        prop_oneof![Just(1_u64), Just(50), Just(u64::MAX)],
        prop_oneof![Just(0.0), Just(0.5), Just(2.0)],
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let outcome = runner.run(&cases, |(selection, after_seq, before_seq, entries, work, whole_segment)| {
        let request = PlanRequest { selection, after_seq, before_seq };
        let wanted = wanted(&archive, &request);
        let limits = PlanLimits { entries, whole_segment, work };
        let (found, pages) = pages(&world, &archive, &request, limits);
        let seqs: BTreeSet<u64> = found.iter().map(|row| row.seq).collect();
        prop_assert!(wanted.is_subset(&seqs), "{wanted:?} of {seqs:?}, {request:?}");
        prop_assert!(work != u64::MAX || entries != 0 || pages == 1);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_plan_leaves_out_what_cannot_be_wanted() {
    let world = World::new(1);
    let archive = archive(&world);
    let manifest = archive.manifest();
    let limits = PlanLimits::default();
    let everything = plan(&manifest, &PlanRequest::default(), limits);
    assert_eq!(everything.segments.len(), manifest.segments.len());
    assert!(everything.segments.iter().all(|segment| segment.ranges.is_none()));
    assert_eq!((everything.planned_through_seq, everything.sealed_tip_seq), (240, 240));
    let one = Selection::new(["did:plc:3".into()], Vec::new(), Kinds::ALL);
    let one = plan(&manifest, &PlanRequest { selection: one, ..PlanRequest::default() }, limits);
    assert!(one.stats.segments_matched < 5 && one.stats.blocks_matched <= 8, "{one:?}");
    // Markers come along with a collection, so that a client forgets what it must.
    let collection = vec![CollectionPattern::Exact("com.c1.x".into())];
    let markers = plan(
        &manifest,
        &PlanRequest { selection: Selection::new([], collection, Kinds::ALL), ..PlanRequest::default() },
        limits,
    );
    let rows = download(&world, &archive, &markers);
    let accounts = rows.iter().filter(|row| row.event.kind == Kind::Account).count();
    assert_eq!(accounts, (0..240).filter(|number| number % 13 == 5).count());
}

/// A page that is cut within a segment goes on within it.
#[test]
fn a_page_cut_within_a_segment_says_the_last_block() {
    let mut world = World::new(1);
    world.options.segment_bytes = 1 << 20;
    let archive = archive(&world);
    let manifest = archive.manifest();
    assert_eq!(manifest.segments.len(), 1);
    let selection = Selection::new(["did:plc:1".into(), "did:plc:9".into()], Vec::new(), Kinds::ALL);
    let request = PlanRequest { selection, ..PlanRequest::default() };
    let limits = PlanLimits { entries: 1, ..PlanLimits::default() };
    let page = plan(&manifest, &request, limits);
    let (_, last) = page.segments[0].ranges.as_ref().unwrap()[0];
    assert_eq!(page.planned_through_seq, manifest.segments[0].metadata.blocks[last as usize].max_seq);
    assert!(page.planned_through_seq < page.sealed_tip_seq);
    let (found, pages) = pages(&world, &archive, &request, limits);
    assert!(pages > 1 && wanted(&archive, &request).len() == 40 && found.len() >= 40);
}

#[test]
fn an_empty_archive_is_planned_at_once() {
    let world = World::new(1);
    let page = plan(&world.opened().manifest(), &PlanRequest::default(), PlanLimits::default());
    assert_eq!(page, Plan::default());
}
