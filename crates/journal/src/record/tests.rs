//! Round trips of records, and what decoding does with bytes that are none.

use bytes::BytesMut;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// An append of one message, as a writer with a producer sends it.
pub(crate) fn append_of(data: Bytes) -> Record {
    let lengths = vec![u32::try_from(data.len()).expect("a short message")];
    let producer = Some(Producer { id: "writer-1".to_owned(), epoch: 3, seq: 1_000 });
    let append = Append {
        start: (1_000, 1_000_000),
        lengths,
        data,
        producer,
        seq: None,
        close: false,
        renew_deadline_ms: None,
        receipt: None,
    };
    Record { stream: StreamId(0x0102), time_ms: 1_790_000_000_000, mutation: Mutation::Append(append) }
}

fn arbitrary_producer() -> impl Strategy<Value = Producer> {
    (".{1,20}", any::<u64>(), any::<u64>()).prop_map(|(id, epoch, seq)| Producer { id, epoch, seq })
}

fn arbitrary_append() -> impl Strategy<Value = Append> {
    let messages = prop_oneof![
        8 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6),
        1 => (33_000usize..40_000).prop_map(|len| vec![vec![b'm'; len]]),
    ];
    (
        any::<(u64, u64)>(),
        messages,
        option::of(arbitrary_producer()),
        option::of(".{0,9}"),
        any::<(bool, Option<u64>)>(),
        option::of(".{0,9}"),
    )
        .prop_map(|(start, messages, producer, seq, (close, renew_deadline_ms), receipt)| Append {
            start,
            lengths: messages.iter().map(|message| crate::codec::len_u32(message.len())).collect(),
            data: messages.concat().into(),
            producer,
            seq,
            close,
            renew_deadline_ms,
            receipt,
        })
}

fn arbitrary_fork() -> impl Strategy<Value = Fork> {
    let range = any::<(u64, RawOffset, RawOffset)>().prop_map(|(stream, start, end)| ForkRange {
        stream: StreamId(stream),
        start,
        end,
    });
    (".{1,20}", any::<(u64, Option<RawOffset>, u64, RawOffset)>(), prop::collection::vec(range, 0..4))
        .prop_map(|(source_path, (source, source_offset, sub_offset, at), ranges)| Fork {
            source: StreamId(source),
            source_path,
            source_offset,
            sub_offset,
            at,
            ranges,
        })
}

pub(crate) fn arbitrary_create() -> impl Strategy<Value = Create> {
    let names = (".{0,40}", ".{1,20}", option::of(".{0,20}"), option::of(any::<u64>().prop_map(StreamId)));
    let inherited = (option::of(arbitrary_fork()), option::of(arbitrary_retention()));
    (names, any::<u128>(), any::<[Option<u64>; 3]>(), inherited).prop_map(
        |(names, incarnation, [ttl_s, expires_at_ms, deadline_ms], (fork, retention))| {
            let (path, content_type, attributes, bucket) = names;
            Create {
                path,
                incarnation,
                content_type,
                ttl_s,
                expires_at_ms,
                deadline_ms,
                fork,
                body: None,
                bucket,
                retention,
                attributes,
            }
        },
    )
}

fn arbitrary_snapshot() -> impl Strategy<Value = Snapshot> {
    any::<(RawOffset, u64, u64)>().prop_map(|(offset, body, length)| Snapshot {
        offset,
        body: StreamId(body),
        length,
    })
}

pub(crate) fn arbitrary_retention() -> impl Strategy<Value = Retention> {
    let one = || option::of(arbitrary_snapshot());
    let superseded = prop::collection::vec((arbitrary_snapshot(), any::<u64>()), 0..4);
    let marks = prop::collection::vec(arbitrary_mark(), 0..4);
    (any::<RawOffset>(), one(), one(), superseded, marks).prop_map(
        |(floor, latest, base, superseded, marks)| Retention { floor, latest, base, superseded, marks },
    )
}

fn arbitrary_mark() -> impl Strategy<Value = Mark> {
    any::<(u64, RawOffset)>().prop_map(|(time_ms, offset)| Mark { time_ms, offset })
}

fn arbitrary_trim() -> impl Strategy<Value = Trim> {
    let both = (any::<RawOffset>(), arbitrary_mark());
    (both, 1..4_u8).prop_map(|((floor, mark), which)| Trim {
        floor: (which & 1 != 0).then_some(floor),
        mark: (which & 2 != 0).then_some(mark),
    })
}

fn arbitrary_publish() -> impl Strategy<Value = Publish> {
    (arbitrary_snapshot(), any::<(bool, u64, Option<u64>)>()).prop_map(
        |(snapshot, (retain_all, superseded_until_ms, renew_deadline_ms))| Publish {
            snapshot,
            retain_all,
            superseded_until_ms,
            renew_deadline_ms,
        },
    )
}

fn arbitrary_fold_checkpoint() -> impl Strategy<Value = FoldCheckpoint> {
    any::<(RawOffset, u32, u64, u64)>().prop_map(|(offset, format_version, body, length)| FoldCheckpoint {
        offset,
        format_version,
        body: StreamId(body),
        length,
    })
}

pub(crate) fn arbitrary_contract() -> impl Strategy<Value = Contract> {
    let receipt = (arbitrary_producer(), any::<(RawOffset, RawOffset, bool)>(), ".{0,9}").prop_map(
        |(producer, (start, end, closed), metadata)| Receipt { producer, start, end, closed, metadata },
    );
    let claim = option::of(arbitrary_producer());
    (claim, prop::collection::vec(receipt, 0..4), option::of(arbitrary_fold_checkpoint()))
        .prop_map(|(claim, receipts, fold_checkpoint)| Contract { claim, receipts, fold_checkpoint })
}

pub(crate) fn arbitrary_record() -> impl Strategy<Value = Record> {
    let create = (arbitrary_create(), option::of(arbitrary_append()))
        .prop_map(|(create, body)| Mutation::Create(Create { body, ..create }));
    let mutation = prop_oneof![
        3 => arbitrary_append().prop_map(Mutation::Append),
        1 => create,
        1 => any::<bool>().prop_map(|expired| Mutation::Delete { expired }),
        1 => any::<u64>().prop_map(|deadline_ms| Mutation::Renew { deadline_ms }),
        1 => arbitrary_publish().prop_map(Mutation::Publish),
        1 => (".{0,40}", any::<Option<u64>>()).prop_map(|(text, renew_deadline_ms)| {
            Mutation::Attributes(SetAttributes { text, renew_deadline_ms })
        }),
        1 => (".{1,20}", any::<u64>()).prop_map(|(id, epoch)| Mutation::Claim(Claim { id, epoch })),
        1 => arbitrary_fold_checkpoint().prop_map(Mutation::FoldCheckpoint),
        1 => (".{1,20}", any::<RawOffset>())
            .prop_map(|(content_type, end)| Mutation::Body(Body { content_type, end })),
        1 => arbitrary_trim().prop_map(Mutation::Trim),
    ];
    (any::<u64>(), any::<u64>(), mutation).prop_map(|(stream, time_ms, mutation)| Record {
        stream: StreamId(stream),
        time_ms,
        mutation,
    })
}

fn encoded(record: &Record) -> Bytes {
    let mut out = BytesMut::new();
    let data = data_of(record).cloned().unwrap_or_default();
    encode_record_start(&mut out, record, crate::codec::len_u32(data.len()), crc32c::crc32c(&data));
    out.extend_from_slice(&data);
    out.freeze()
}

proptest! {
    #[test]
    fn records_round_trip(record in arbitrary_record()) {
        let bytes = encoded(&record);
        prop_assert_eq!(decode_record(&bytes), Ok((record, bytes.len() as u64)));
    }

    #[test]
    fn arbitrary_bytes_are_no_record_and_no_panic(bytes: Vec<u8>) {
        prop_assert!(decode_record(&bytes.into()).is_err());
    }

    #[test]
    fn arbitrary_meta_with_the_right_checksum_is_no_panic(kind in 0u8..11, meta: Vec<u8>, data: Vec<u8>) {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&crate::codec::len_u32(meta.len()).to_le_bytes());
        bytes.extend_from_slice(&crate::codec::len_u32(data.len()).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&data).to_le_bytes());
        bytes.extend_from_slice(&7u64.to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&meta);
        let mut record = crc32c::crc32c(&bytes).to_le_bytes().to_vec();
        record.extend_from_slice(&bytes);
        record.extend_from_slice(&data);
        if let Ok((decoded, _)) = decode_record(&record.clone().into()) {
            prop_assert_eq!(&encoded(&decoded)[..], &record[..], "two encodings of one record");
        }
    }
}

#[test]
fn a_record_cut_short_anywhere_is_refused() {
    let bytes = encoded(&append_of(Bytes::from_static(b"some data")));
    for len in 0..bytes.len() {
        assert!(decode_record(&bytes.slice(..len)).is_err(), "cut to {len}");
    }
}

#[test]
fn a_flipped_bit_anywhere_makes_a_record_invalid() {
    let bytes = encoded(&append_of(Bytes::from_static(b"some data")));
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_record(&flipped.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn only_messages_move_the_append_index() {
    let Mutation::Append(mut append) = append_of(Bytes::from_static(b"12345")).mutation else {
        unreachable!()
    };
    assert_eq!(append.end(), (1_001, 1_000_005));
    append.data = Bytes::new();
    append.lengths.clear();
    assert_eq!(append.end(), append.start);
}
