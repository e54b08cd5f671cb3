use super::*;
use crate::offset::Offset;
use crate::path::StreamPath;

fn content_type(value: &str) -> ContentType {
    ContentType::parse(value).unwrap()
}

fn origin(source: &str, offset: Option<Offset>, sub_offset: u64) -> ForkOrigin {
    ForkOrigin { source: StreamPath::parse_decoded(source).unwrap(), offset, sub_offset }
}

fn plain() -> StreamConfig {
    StreamConfig {
        content_type: content_type("text/plain"),
        lifetime: Lifetime::Ttl { seconds: 60 },
        closed: false,
        fork: None,
        attributes: Attributes::parse(br#"{"title":"x"}"#).unwrap(),
    }
}

fn fork() -> StreamConfig {
    StreamConfig { fork: Some(origin("source", Some(Offset::new(2, 8)), 3)), ..plain() }
}

/// The request that spells out all of a configuration.
fn exactly(config: &StreamConfig) -> RequestedConfig<'_> {
    RequestedConfig {
        content_type: Some(&config.content_type),
        lifetime: config.lifetime,
        closed: config.closed,
        fork: config.fork.as_ref(),
        attributes: Some(&config.attributes),
    }
}

#[test]
fn the_same_request_again_is_the_same_stream() {
    for closed in [false, true] {
        for config in [plain(), fork()] {
            let config = StreamConfig { closed, ..config };
            assert!(matches(&config, &exactly(&config)));
        }
    }
}

#[test]
fn every_difference_is_a_conflict() {
    let json = content_type("application/json");
    for config in [plain(), fork()] {
        let same = exactly(&config);
        let other = RequestedConfig { content_type: Some(&json), ..same };
        assert_eq!(reconfirm(&config, &other), Err(ConfigConflict::ContentType));
        for lifetime in [Lifetime::Ttl { seconds: 61 }, Lifetime::Until { unix_ms: 60 }] {
            let other = RequestedConfig { lifetime, ..same };
            assert_eq!(reconfirm(&config, &other), Err(ConfigConflict::Lifetime));
        }
        let other = RequestedConfig { closed: true, ..same };
        assert_eq!(reconfirm(&config, &other), Err(ConfigConflict::Closed));
        let closed = StreamConfig { closed: true, ..config.clone() };
        assert_eq!(reconfirm(&closed, &same), Err(ConfigConflict::Closed));
        assert!(!matches(&closed, &same));
    }
}

#[test]
fn a_fork_is_told_by_source_and_cut() {
    let config = fork();
    let offset = Some(Offset::new(2, 8));
    for (requested, same) in [
        (origin("source", offset, 3), true),
        (origin("source", None, 3), true),
        (origin("other", offset, 3), false),
        (origin("source", Some(Offset::new(2, 9)), 3), false),
        (origin("source", offset, 2), false),
        (origin("source", None, 0), false),
    ] {
        let requested = RequestedConfig { fork: Some(&requested), ..exactly(&config) };
        assert_eq!(matches(&config, &requested), same, "{requested:?}");
    }
    let as_plain = RequestedConfig { fork: None, ..exactly(&config) };
    assert_eq!(reconfirm(&config, &as_plain), Err(ConfigConflict::Fork));
    let forked = fork();
    assert_eq!(reconfirm(&plain(), &exactly(&forked)), Err(ConfigConflict::Fork));
}

#[test]
fn what_a_fork_request_omits_matches_what_was_inherited() {
    let config = fork();
    let bare = RequestedConfig { content_type: None, lifetime: Lifetime::Forever, ..exactly(&config) };
    assert!(matches(&config, &bare));
}

#[test]
fn what_a_plain_request_omits_stands_for_the_default() {
    let config = plain();
    let no_lifetime = RequestedConfig { lifetime: Lifetime::Forever, ..exactly(&config) };
    assert_eq!(reconfirm(&config, &no_lifetime), Err(ConfigConflict::Lifetime));
    let no_type = RequestedConfig { content_type: None, ..exactly(&config) };
    assert_eq!(reconfirm(&config, &no_type), Err(ConfigConflict::ContentType));
    let default = StreamConfig { content_type: ContentType::DEFAULT, ..plain() };
    assert!(matches(&default, &no_type));
}

#[test]
fn content_types_are_compared_by_media_type() {
    let spelled = content_type("TEXT/plain; charset=utf-8");
    let config = plain();
    assert!(matches(&config, &RequestedConfig { content_type: Some(&spelled), ..exactly(&config) }));
}

#[test]
fn attributes_are_compared_only_when_they_are_given() {
    let (config, none) = (plain(), Attributes::default());
    let other = RequestedConfig { attributes: Some(&none), ..exactly(&config) };
    assert_eq!(reconfirm(&config, &other), Err(ConfigConflict::Attributes));
    assert!(matches(&config, &RequestedConfig { attributes: None, ..exactly(&config) }));
}
