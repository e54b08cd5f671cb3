//! The relay over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use alluvium_env::Env;
use alluvium_jetstream_simulator::serve::Options;
use alluvium_jetstream_simulator::{Act, Config, Emitted, Fault, Simulator};
use alluvium_websocket::{ConnectError, ConnectOptions, Message, Stream, WebSocket, connect};
use bytes::Bytes;

fn start() -> Simulator {
    start_with(&Options::new(SocketAddr::from(([127, 0, 0, 1], 0))))
}

fn start_with(options: &Options) -> Simulator {
    Simulator::start(Config::small(3), options).expect("it starts")
}

async fn open(simulator: &Simulator, query: &str) -> Result<WebSocket<Stream>, ConnectError> {
    let url = format!("ws://{}/xrpc/com.atproto.sync.subscribeRepos{query}", simulator.address());
    Ok(connect(&url, ConnectOptions::default(), Env::real().random).await?.socket)
}

async fn next(socket: &mut WebSocket<Stream>) -> Option<Bytes> {
    match socket.next().await {
        Ok(Some(Message::Binary(bytes))) => Some(bytes),
        Ok(None) | Err(_) => None,
        Ok(Some(other)) => panic!("{other:?}"),
    }
}

async fn take(socket: &mut WebSocket<Stream>, count: usize) -> Vec<Bytes> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(next(socket).await.expect("more frames"));
    }
    taken
}

fn frames(emitted: &[Arc<Emitted>]) -> Vec<Bytes> {
    emitted.iter().map(|emitted| emitted.frame.clone()).collect()
}

fn step(simulator: &Simulator, count: u32) -> Vec<Bytes> {
    frames(&simulator.act(Act::Step { count }).expect("it can be done"))
}

#[tokio::test]
async fn subscribers_get_history_and_then_what_happens() {
    let simulator = start();
    let past = step(&simulator, 40);
    let mut old = open(&simulator, "?cursor=0").await.expect("open");
    let mut new = open(&simulator, "").await.expect("open");
    assert_eq!(take(&mut old, past.len()).await, past);
    let live = step(&simulator, 30);
    assert_eq!(take(&mut old, live.len()).await, live);
    assert_eq!(take(&mut new, live.len()).await, live);
    let ended = tokio::join!(simulator.stop(), next(&mut old), next(&mut new));
    assert_eq!((ended.1, ended.2), (None, None));
}

#[tokio::test]
async fn who_resumes_after_a_cut_misses_nothing_and_gets_nothing_twice() {
    let simulator = start();
    let past = step(&simulator, 60);
    for after in [3, 0, 17, 5] {
        simulator.arm(Fault::Close { after }, 1).expect("room");
    }
    let mut seen = Vec::new();
    let mut connections = 0;
    while seen.len() < past.len() {
        connections += 1;
        let mut socket = open(&simulator, &format!("?cursor={}", seen.len())).await.expect("open");
        while seen.len() < past.len() {
            match next(&mut socket).await {
                Some(frame) => seen.push(frame),
                None => break,
            }
        }
    }
    assert_eq!(seen, past);
    assert_eq!(connections, 5);
    assert!(simulator.faults().iter().all(|armed| armed.fired == 1));
    simulator.stop().await;
}

#[tokio::test]
async fn bytes_are_injected_frames_swallowed_and_sent_again() {
    let simulator = start();
    let past = step(&simulator, 20);
    simulator.arm(Fault::Inject { after: 2, bytes: vec![0xff, 1, 2] }, 1).expect("room");
    simulator.arm(Fault::Swallow { after: 4 }, 1).expect("room");
    simulator.arm(Fault::Resend { after: 10, frames: 5 }, 1).expect("room");
    let mut socket = open(&simulator, "?cursor=0").await.expect("open");
    let mut expected = past[..2].to_vec();
    expected.push(Bytes::from_static(&[0xff, 1, 2]));
    expected.extend_from_slice(&past[2..4]);
    expected.extend_from_slice(&past[5..11]);
    expected.extend_from_slice(&past[6..]);
    assert_eq!(take(&mut socket, expected.len()).await, expected);
    assert!(simulator.faults().iter().all(|armed| armed.fired == 1));
    drop(socket);
    simulator.stop().await;
}

#[tokio::test]
async fn what_is_no_subscription_is_refused() {
    let options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let simulator = start_with(&Options { subscribers_max: 1, ..options });
    for query in ["?cursor=x", "?cursor=-1", "?cursor=99999999999999999999"] {
        let refused = open(&simulator, query).await.expect_err("refused");
        assert!(matches!(refused, ConnectError::Refused(refusal) if refusal.status == 400), "{query}");
    }
    let held = open(&simulator, "").await.expect("open");
    let refused = open(&simulator, "").await.expect_err("one place only");
    assert!(matches!(refused, ConnectError::Refused(refusal) if refusal.status == 503));
    drop(held);
    simulator.stop().await;
}

#[tokio::test]
async fn events_happen_by_themselves_at_a_rate_and_not_without_one() {
    let simulator = start();
    simulator.set_rate(2000);
    let mut socket = open(&simulator, "?cursor=0").await.expect("open");
    let taken = tokio::select! {
        taken = take(&mut socket, 50) => taken,
        () = simulator.run() => Vec::new(),
    };
    // The same as in a world without sockets: no time of the machine is in it.
    let mut world =
        alluvium_jetstream_simulator::World::new(Config::small(3)).expect("a valid configuration");
    world.set_rate(2000);
    let mut expected = frames(&world.run(50));
    expected.truncate(50);
    assert_eq!(taken, expected);
    drop(socket);
    simulator.set_rate(0);
    let tip = simulator.world(alluvium_jetstream_simulator::World::tip);
    tokio::select! {
        () = simulator.run() => {}
        () = async { for _ in 0..100 { tokio::task::yield_now().await; } } => {}
    }
    assert_eq!(simulator.world(alluvium_jetstream_simulator::World::tip), tip);
    simulator.stop().await;
}

#[tokio::test]
async fn long_frames_come_whole() {
    let simulator = start();
    for bytes in [2 * 1024 * 1024 - 1, 2 * 1024 * 1024, 2 * 1024 * 1024 + 1] {
        simulator.act(Act::SizedFrame { account: 0, bytes }).expect("it can be done");
    }
    let url = format!("ws://{}/xrpc/com.atproto.sync.subscribeRepos?cursor=0", simulator.address());
    let mut options = ConnectOptions::default();
    options.connection.limits.frame_bytes_max = 4 << 20;
    let mut socket = connect(&url, options, Env::real().random).await.expect("open").socket;
    let lengths: Vec<usize> = take(&mut socket, 3).await.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [2_097_151, 2_097_152, 2_097_153]);
    drop(socket);
    simulator.stop().await;
}
