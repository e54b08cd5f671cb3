use proptest::prelude::*;

use super::*;
use crate::path::StreamPath;

#[test]
fn a_bucket_id_is_four_to_sixty_four_plain_characters() {
    for good in ["abcd", "a_-9", "0000", &"x".repeat(64)] {
        assert_eq!(BucketId::parse(good).map(|id| id.to_string()).as_deref(), Ok(good));
    }
    for short_or_long in ["", "abc", &"x".repeat(65)] {
        assert_eq!(BucketId::parse(short_or_long), Err(InvalidBucketId::Length), "{short_or_long:?}");
    }
    for strange in ["ABCD", "a.bc", "a bc", "éabc", "a/bc", "ab%20", "abc\0"] {
        assert_eq!(BucketId::parse(strange), Err(InvalidBucketId::Character), "{strange:?}");
    }
}

fn in_bucket(stream_id: &str) -> Result<StreamPath, InvalidStreamId> {
    StreamPath::in_bucket(&BucketId::parse("abcd").expect("a bucket id"), stream_id)
}

#[test]
fn a_stream_id_is_any_text_without_slash_nul_and_dots() {
    for good in ["a", "a.b", ".", "é ü", "stream", "streams2", "%", "a\nb", "😀"] {
        assert_eq!(in_bucket(good).expect(good).stream_id(), Some(good));
    }
    for (bad, why) in [
        ("", InvalidStreamId::Empty),
        ("a/b", InvalidStreamId::Character),
        ("a\0b", InvalidStreamId::Character),
        ("a..b", InvalidStreamId::Character),
        ("...", InvalidStreamId::Character),
        ("streams", InvalidStreamId::Reserved),
    ] {
        assert_eq!(in_bucket(bad), Err(why), "{bad:?}");
    }
}

#[test]
fn bucket_and_stream_together_have_at_most_122_bytes() {
    for unit in ["x", "é", "€", "😀"] {
        let fitting = unit.repeat(117 / unit.len());
        assert!(in_bucket(&fitting).is_ok(), "{} bytes of {unit}", fitting.len());
        let longer = unit.repeat(117 / unit.len() + 1);
        assert_eq!(in_bucket(&longer), Err(InvalidStreamId::TooLong), "{} bytes of {unit}", longer.len());
    }
    let bucket = BucketId::parse(&"b".repeat(64)).expect("a bucket id");
    assert!(StreamPath::in_bucket(&bucket, &"s".repeat(57)).is_ok());
    assert_eq!(StreamPath::in_bucket(&bucket, &"s".repeat(58)), Err(InvalidStreamId::TooLong));
}

proptest! {
    #[test]
    fn the_two_namespaces_never_share_a_key(bucket in "[a-z0-9_-]{4,8}", stream in "[^/\0]{1,8}", other in ".{1,20}") {
        let bucket = BucketId::parse(&bucket).expect("a bucket id");
        if let (Ok(ours), Ok(theirs)) =
            (StreamPath::in_bucket(&bucket, &stream), StreamPath::parse_decoded(&other))
        {
            prop_assert_ne!(ours.as_str(), theirs.as_str());
            prop_assert_ne!(ours.url_path(), theirs.url_path());
        }
    }

    #[test]
    fn a_bucketed_path_survives_its_key_and_its_url(bucket in "[a-z0-9_-]{4,8}", stream in "[^/\0]{1,20}") {
        let bucket = BucketId::parse(&bucket).expect("a bucket id");
        if let Ok(path) = StreamPath::in_bucket(&bucket, &stream) {
            prop_assert_eq!(StreamPath::from_key(path.as_str()), Some(path.clone()));
            prop_assert_eq!(StreamPath::parse_url_path(&path.url_path()), Some(path.clone()));
            prop_assert_eq!(path.bucket(), Some(bucket.as_str()));
            prop_assert_eq!(path.stream_id(), Some(&*stream));
        }
    }
}
