//! The authority against a model of a hundred lines: whatever is appended, repeated, pruned and asked, both answer the
//! same.

use std::collections::BTreeMap;

use alluvium_feed_protocol::{AppendRequest, Block, QueryRequest, Request, Response};
use alluvium_feeds::PruneError;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{Authority, append, block, id};

#[derive(Clone, Debug)]
enum Step {
    /// Blocks as feed, actor, sequence and content.
    Append {
        blocks: Vec<(u8, u8, u8, u8)>,
        strict: bool,
    },
    Prune {
        feed: u8,
        below: u8,
    },
    Query {
        feeds: Option<Vec<u8>>,
        cursor: u8,
        limit: u8,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let key = (0..3u8, 0..2u8, 0..8u8, 0..2u8);
    prop_oneof![
        5 => (vec(key, 0..6), any::<bool>()).prop_map(|(blocks, strict)| Step::Append { blocks, strict }),
        1 => (0..3u8, 0..40u8).prop_map(|(feed, below)| Step::Prune { feed, below }),
        4 => (proptest::option::of(vec(0..4u8, 0..4)), 0..40u8, 1..9u8)
            .prop_map(|(feeds, cursor, limit)| Step::Query { feeds, cursor, limit }),
        1 => Just(Step::Restart),
    ]
}

/// What the authority is: a counter, and blocks by position.
#[derive(Clone, Debug, Default)]
struct Model {
    given: u64,
    blocks: BTreeMap<u64, (u8, u8, u8, u8)>,
}

impl Model {
    /// Positions and indexes of conflicts; `None` if a strict append is refused.
    fn append(&mut self, blocks: &[(u8, u8, u8, u8)], strict: bool) -> Option<(Vec<u64>, Vec<u64>)> {
        let mut changed = self.clone();
        let (mut positions, mut conflicts) = (Vec::new(), Vec::new());
        for (index, new) in (0u64..).zip(blocks) {
            let same_key =
                |(_, old): &(&u64, &(u8, u8, u8, u8))| (old.0, old.1, old.2) == (new.0, new.1, new.2);
            if let Some((position, old)) = changed.blocks.iter().find(same_key) {
                if old.3 != new.3 {
                    conflicts.push(index);
                }
                positions.push(*position);
            } else {
                changed.given += 1;
                changed.blocks.insert(changed.given, *new);
                positions.push(changed.given);
            }
        }
        if strict && !conflicts.is_empty() {
            return None;
        }
        *self = changed;
        Some((positions, conflicts))
    }

    fn query(&self, feeds: Option<&[u8]>, cursor: u64, limit: usize) -> Vec<(u64, (u8, u8, u8, u8))> {
        let selected = |block: &(u8, u8, u8, u8)| feeds.is_none_or(|feeds| feeds.contains(&block.0));
        let after = self.blocks.range(cursor + 1..).filter(|(_, block)| selected(block));
        after.take(limit).map(|(position, block)| (*position, *block)).collect()
    }
}

fn as_block((feed, actor, sequence, content): (u8, u8, u8, u8)) -> Block {
    block(&format!("f{feed}"), &format!("a{actor}"), u64::from(sequence), &content.to_string())
}

fn run(authority: &mut Authority, model: &mut Model, step: &Step) {
    match step {
        Step::Append { blocks, strict } => {
            let request = append(blocks.iter().copied().map(as_block).collect());
            let request = AppendRequest { strict: Some(*strict), ..request };
            match (authority.handle(Request::Append(request)), model.append(blocks, *strict)) {
                (Response::Append(response), Some((positions, conflicts))) => {
                    assert_eq!((response.positions, response.conflicts), (positions, conflicts));
                    assert_eq!(response.max_position, model.given);
                }
                (Response::Error(error), None) => assert_eq!(error.code, "block_conflict"),
                (response, expected) => panic!("{response:?}, the model: {expected:?}"),
            }
        }
        Step::Prune { feed, below } => {
            match authority.service().prune(&id("space"), &id(&format!("f{feed}")), u64::from(*below)) {
                Err(PruneError::SpaceNotFound) => assert_eq!(model.given, 0),
                pruned => drop(pruned.unwrap()),
            }
            model.blocks.retain(|position, block| block.0 != *feed || *position >= u64::from(*below));
        }
        Step::Query { feeds, cursor, limit } => {
            let page = authority.query(QueryRequest {
                feed_ids: feeds
                    .as_ref()
                    .map(|feeds| feeds.iter().map(|feed| id(&format!("f{feed}"))).collect()),
                cursor: Some(u64::from(*cursor)),
                limit: Some(u64::from(*limit)),
                ..QueryRequest::default()
            });
            let expected = model.query(feeds.as_deref(), u64::from(*cursor), usize::from(*limit) + 1);
            let shown: Vec<_> = expected.iter().take(usize::from(*limit)).collect();
            let read: Vec<_> =
                page.blocks.iter().map(|block| (block.position.unwrap(), block.data.0.to_vec())).collect();
            let wanted: Vec<_> =
                shown.iter().map(|(position, block)| (*position, block.3.to_string().into_bytes())).collect();
            assert_eq!(read, wanted);
            assert_eq!(page.has_more, expected.len() > usize::from(*limit));
            if !page.has_more {
                assert_eq!(page.next_cursor, model.given);
            }
        }
        Step::Restart => authority.restart(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_authority_answers_as_the_model_does(steps in vec(step(), 1..40)) {
        let (mut authority, mut model) = (Authority::new(), Model::default());
        for step in &steps {
            run(&mut authority, &mut model, step);
        }
    }
}
