//! Bootstrap: one consistent cut, whatever happens meanwhile.

use alluvium_engine::{BOOTSTRAP_WINDOW_BYTES, BootstrapBody, BootstrapLimits};
use alluvium_protocol::{Lifetime, Offset};

use crate::states::cut;
use crate::support::{Fixture, append_request, path, publish_request, read_body, small_options};
use crate::world::World;

#[tokio::test]
async fn messages_of_all_sizes_come_back_one_by_one_in_every_state() {
    let mut fixture = Fixture::new();
    for (name, content_type) in [("bytes", "text/plain"), ("json", "application/json")] {
        fixture.create(name, content_type).await;
        let mut expected = Vec::new();
        for number in 0..120_usize {
            let text = "m".repeat(1 + number * number * 7 % 30_000);
            if content_type == "text/plain" {
                fixture.append(name, content_type, text.as_bytes()).await;
                expected.push(text);
            } else {
                let body = format!(" [ \"{text}\" , {number} ] ");
                fixture.append(name, content_type, body.as_bytes()).await;
                expected.extend([format!("\"{text}\""), number.to_string()]);
            }
        }
        for state in 0..4 {
            let (snapshot, messages, end, closed) = cut(&fixture, name);
            let bodies: Vec<String> = messages.into_iter().map(|message| message.0).collect();
            assert!(bodies == expected, "{name} in state {state}");
            assert_eq!((snapshot, closed), (None, false));
            assert_eq!(end, fixture.engine.head(&path(name)).unwrap().tail);
            if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
        }
    }
}

#[tokio::test]
async fn units_larger_than_what_is_kept_come_back_whole_in_every_state() {
    let mut options = small_options();
    options.segment_bytes = 8 * 1024 * 1024;
    options.limits.append_bytes_max = 1024 * 1024;
    let mut fixture = Fixture::with(options);
    fixture.create("s", "application/json").await;
    // Many messages in few bytes, one message of many bytes, and both in one append.
    let many = |count: usize| vec!["7".to_owned(); count];
    let large = |fill: &str| format!("\"{}\"", fill.repeat(700_000));
    let appends = [many(40_000), vec![large("a")], [many(20_000), vec![large("b")], many(20_000)].concat()];
    for append in &appends {
        fixture.append("s", "application/json", format!("[{}]", append.join(",")).as_bytes()).await;
    }
    for state in 0..4 {
        let (_, messages, ..) = cut(&fixture, "s");
        let bodies: Vec<String> = messages.into_iter().map(|message| message.0).collect();
        assert!(bodies == appends.concat(), "in state {state}");
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
}

#[tokio::test]
async fn an_empty_stream_is_an_empty_cut() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    assert_eq!(cut(&fixture, "s"), (None, Vec::new(), Offset::ZERO, false));
}

#[tokio::test]
async fn a_cut_stays_whole_while_appends_publishes_and_folds_run() {
    let mut world = World::new();
    let s = path("s");
    world.create("s", Lifetime::Forever).await;
    let append = async |world: &World, byte: u8| {
        let request = append_request("text/plain", &vec![byte; 30_000]);
        world.run(world.engine.append(&path("s"), request)).await.unwrap().tail
    };
    let publish = async |world: &World, offset| {
        let upload = world.engine.begin_publish(&path("s"), publish_request(offset)).await.unwrap();
        world.run(upload.publish()).await.unwrap();
    };
    let first = append(&world, 0).await;
    publish(&world, first).await;
    for byte in 1..20 {
        append(&world, byte).await;
    }
    let mut cut = world.engine.bootstrap(&s, BootstrapLimits::NONE).unwrap();
    let mut last = cut.end;
    for byte in 20..40 {
        last = append(&world, byte).await;
        publish(&world, last).await;
        world.clock.advance_ms(61_000);
        world.sweep();
        for shard in 0..2 {
            world.engine.step_fold(shard).unwrap();
        }
    }
    assert_eq!(world.engine.head(&s).unwrap().floor, last);
    assert_eq!(read_body(cut.snapshot.as_ref().unwrap()), b"");
    let (mut expected, mut next) = (1, first);
    while let Some(messages) = cut.next_messages() {
        for message in messages.unwrap() {
            next = message.next;
            let body = message.body.whole().unwrap();
            assert!(body.len() == 30_000 && body.iter().all(|byte| *byte == expected));
            expected += 1;
        }
    }
    assert_eq!((expected, next), (20, cut.end));
    let used = world.disk.used_bytes();
    drop(cut);
    for _ in 0..4 {
        last = append(&world, 50).await;
        publish(&world, last).await;
        for shard in 0..2 {
            world.engine.step_fold(shard).unwrap();
        }
    }
    assert!(world.disk.used_bytes() < used - 400_000, "the space comes back when the cut is let go");
    world.restart();
    assert_eq!(world.engine.head(&s).unwrap().floor, last);
}

#[tokio::test]
async fn a_cut_brings_the_same_however_little_of_it_is_kept() {
    let mut fixture = Fixture::new();
    fixture.create("s", "application/json").await;
    for number in 0..60_u32 {
        let long = "x".repeat((number * number * 7 % 5_000) as usize);
        let many: Vec<String> = (0..number * 5).map(|at| format!("{at}")).collect();
        let body =
            format!("[\"{long}\",{number}{}{}]", if many.is_empty() { "" } else { "," }, many.join(","));
        fixture.append("s", "application/json", body.as_bytes()).await;
    }
    for _ in 0..2 {
        let mut expected = None;
        for window in [BOOTSTRAP_WINDOW_BYTES, 32 * 1024, 1_000, 1] {
            let mut cut = fixture.engine.bootstrap(&path("s"), BootstrapLimits::NONE).unwrap();
            cut.set_window_bytes(window);
            let mut found = Vec::new();
            while let Some(messages) = cut.next_messages() {
                let messages = messages.unwrap();
                assert!(cut.kept_bytes() <= window);
                let read = messages.iter().filter_map(|message| match &message.body {
                    BootstrapBody::Read(bytes) => Some(bytes.len()),
                    BootstrapBody::Plan(_) => None,
                });
                assert!(read.sum::<usize>() <= 2 * window.max(1), "{window}");
                found.extend(
                    messages.into_iter().map(|message| (message.body.whole().unwrap(), message.next)),
                );
                if found.len() % 3 == 0 {
                    cut.forget_window();
                }
            }
            assert_eq!(found.last().map(|(_, next)| *next), Some(cut.end));
            assert_eq!(*expected.get_or_insert_with(|| found.clone()), found, "{window}");
        }
        fixture.fold();
        fixture.restart();
    }
}

#[tokio::test]
async fn a_long_cut_ends_early_at_a_boundary_and_reads_go_on_from_there() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    for byte in 0..100 {
        fixture.append("s", "text/plain", &vec![byte; 10_000]).await;
    }
    for _ in 0..2 {
        let limits = BootstrapLimits { bytes_max: 150_000, message_bytes: 100 };
        let mut cut = fixture.engine.bootstrap(&path("s"), limits).unwrap();
        assert!(!cut.at_tail && !cut.closed);
        assert_eq!(cut.end, Offset::new(15, 150_000));
        let mut bytes = Vec::new();
        while let Some(messages) = cut.next_messages() {
            for message in messages.unwrap() {
                bytes.extend_from_slice(&message.body.whole().unwrap());
            }
        }
        bytes.extend(fixture.read_pages_from("s", cut.end));
        assert_eq!(bytes, (0..100).flat_map(|byte| vec![byte; 10_000]).collect::<Vec<u8>>());
        fixture.fold();
        fixture.restart();
    }
}

#[tokio::test]
async fn what_is_sent_with_each_message_counts_and_the_end_is_the_same_in_every_state() {
    let mut fixture = Fixture::new();
    fixture.create("s", "application/json").await;
    let tiny = |count| format!("[{}]", vec!["1"; count].join(","));
    // Two bytes each as stored: 20,000 in one append, then 400 by themselves, then 5,000.
    fixture.append("s", "application/json", tiny(20_000).as_bytes()).await;
    for _ in 0..400 {
        fixture.append("s", "application/json", b"1").await;
    }
    fixture.append("s", "application/json", tiny(5000).as_bytes()).await;
    let part = fixture.fork("f", "s", Some(Offset::new(4, 40_006)), 0).await.unwrap().tail;
    assert_eq!(part, Offset::new(4, 40_006));
    let ends = |fixture: &Fixture, name: &str| -> Vec<(Offset, bool)> {
        let cut = |count: u64| {
            let limits = BootstrapLimits { bytes_max: count * 102, message_bytes: 100 };
            let cut = fixture.engine.bootstrap(&path(name), limits).unwrap();
            (cut.end, cut.at_tail)
        };
        [0, 1, 7000, 20_000, 20_001, 20_003, 20_399, 20_400, 25_399, 25_400].map(cut).to_vec()
    };
    let (zero, tail) = (Offset::new(0, 2), Offset::new(402, 50_800));
    let at = |appends, messages: u64| (Offset::new(appends, 2 * messages), false);
    let expected = [
        (zero, false),
        (zero, false),
        at(0, 7000),
        at(1, 20_000),
        at(2, 20_001),
        at(4, 20_003),
        at(400, 20_399),
        at(401, 20_400),
        at(401, 25_399),
        (tail, true),
    ];
    for state in 0..5 {
        assert_eq!(ends(&fixture, "s"), expected, "state {state}");
        assert_eq!(ends(&fixture, "f")[..5], expected[..5], "state {state}");
        assert_eq!(ends(&fixture, "f")[5..], [(part, true); 5], "state {state}");
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
}

#[tokio::test]
async fn a_cut_of_a_fork_has_the_boundary_that_only_the_fork_has() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let at = fixture.append("s", "text/plain", b"abc").await.tail;
    fixture.append("s", "text/plain", b"defg").await;
    fixture.fork("f", "s", Some(at), 2).await.unwrap();
    fixture.append("f", "text/plain", b"XY").await;
    let inside = Offset::new(1, 5);
    fixture.publish("f", inside, false).await.unwrap();
    let refused = fixture.publish("s", inside, false).await;
    assert_eq!(refused, Err(alluvium_engine::PublishError::Unaligned));
    for state in 0..4 {
        let (snapshot, messages, ..) = cut(&fixture, "f");
        assert_eq!((snapshot.is_some(), messages), (true, vec![("XY".to_owned(), Offset::new(2, 7))]));
        let source: Vec<String> = cut(&fixture, "s").1.into_iter().map(|message| message.0).collect();
        assert_eq!(source, ["abc", "defg"]);
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
}

#[tokio::test]
async fn the_deletion_of_a_stream_ends_its_cuts_with_a_fault_at_worst() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    for _ in 0..30 {
        fixture.append("s", "text/plain", &vec![b'x'; 20_000]).await;
    }
    fixture.fold();
    fixture.restart();
    let mut cut = fixture.engine.bootstrap(&path("s"), BootstrapLimits::NONE).unwrap();
    fixture.engine.delete(&path("s")).await.unwrap();
    fixture.fold();
    let mut whole = 0;
    while let Some(next) = cut.next_messages() {
        match next {
            Ok(messages) => whole += messages.len(),
            Err(fault) => assert!(fault.is_gone(), "{fault}"),
        }
    }
    assert!(whole <= 30);
    assert!(cut.next_messages().is_none(), "after a fault it is over");
}
