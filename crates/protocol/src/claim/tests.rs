use super::*;

fn id(name: &str) -> ProducerId {
    ProducerId::parse(name).unwrap()
}

fn stamp(name: &str, epoch: u64, seq: u64) -> ProducerStamp {
    ProducerStamp { id: id(name), epoch, seq }
}

fn fenced(current_epoch: u64) -> Result<ProducerDecision, ProducerRefusal> {
    Err(ProducerRejection::Fenced { current_epoch }.into())
}

#[test]
fn each_acquisition_gives_a_new_epoch_that_begins_at_zero() {
    let first = Claim::acquire(None, id("a")).unwrap();
    assert_eq!((first.epoch, first.next_seq), (1, 0));
    let written = Claim { next_seq: 9, ..first };
    let again = Claim::acquire(Some(&written), id("a")).unwrap();
    assert_eq!((again.epoch, again.next_seq), (2, 0));
    assert_eq!(Claim::acquire(Some(&Claim { epoch: INTEGER_MAX, ..again }), id("b")), None);
}

#[test]
fn a_claimed_stream_takes_only_the_next_append_of_its_claim() {
    let claim = Claim { id: id("a"), epoch: 4, next_seq: 2 };
    let judge = |stamp: Option<&ProducerStamp>| evaluate(Some(&claim), None, stamp, false);
    assert_eq!(judge(None), Err(ProducerRefusal::ClaimRequired));
    assert_eq!(judge(Some(&stamp("b", 4, 2))), Err(ProducerRefusal::NotOwner));
    assert_eq!(judge(Some(&stamp("a", 3, 2))), fenced(4));
    assert_eq!(judge(Some(&stamp("a", 5, 0))), fenced(4));
    for seq in 0..2 {
        let standing = ProducerState { epoch: 4, seq: 1 };
        assert_eq!(judge(Some(&stamp("a", 4, seq))), Ok(ProducerDecision::Duplicate(standing)));
    }
    let next = Claim { next_seq: 3, ..claim.clone() };
    assert_eq!(judge(Some(&stamp("a", 4, 2))), Ok(ProducerDecision::Claimed(next)));
    let gap = ProducerRejection::Gap { expected: 2, received: 3 };
    assert_eq!(judge(Some(&stamp("a", 4, 3))), Err(gap.into()));
}

#[test]
fn a_claim_makes_what_lanes_remember_irrelevant() {
    let claim = Claim { id: id("a"), epoch: 1, next_seq: 0 };
    let lane = Some(ProducerState { epoch: 7, seq: 70 });
    let decision = evaluate(Some(&claim), lane, Some(&stamp("a", 1, 0)), false);
    assert_eq!(decision, Ok(ProducerDecision::Claimed(Claim { next_seq: 1, ..claim })));
}

#[test]
fn without_a_claim_lanes_judge_unless_claims_are_required() {
    let stamp = stamp("a", 0, 0);
    let lane = ProducerState { epoch: 0, seq: 0 };
    assert_eq!(evaluate(None, None, None, false), Ok(ProducerDecision::Plain));
    assert_eq!(evaluate(None, None, Some(&stamp), false), Ok(ProducerDecision::Lane(lane)));
    assert_eq!(evaluate(None, Some(lane), Some(&stamp), false), Ok(ProducerDecision::Duplicate(lane)));
    assert_eq!(evaluate(None, None, None, true), Err(ProducerRefusal::ClaimRequired));
    assert_eq!(evaluate(None, None, Some(&stamp), true), Err(ProducerRefusal::NotOwner));
}

#[test]
fn committed_lanes_are_what_the_next_append_is_judged_by() {
    let mut lanes = ProducerStateMap::new();
    for seq in 0..3 {
        let stamp = stamp("a", 0, seq);
        let lane = lanes.get(&stamp.id).copied();
        let Ok(ProducerDecision::Lane(state)) = evaluate(None, lane, Some(&stamp), false) else {
            panic!("append {seq} is new");
        };
        commit(&mut lanes, &stamp.id, state);
    }
    assert_eq!(lanes[&id("a")], ProducerState { epoch: 0, seq: 2 });
}
