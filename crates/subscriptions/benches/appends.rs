//! What a thousand subscriptions cost the appends of a hundred thousand streams: the same load without and with them.
//!
//! `cargo bench -p alluvium-subscriptions`. Figures are of the machine it runs on, and of its disk.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on should stop")]
#![expect(clippy::print_stdout, reason = "a measurement reports on standard output")]
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium_engine::{AppendRequest, CreateRequest, Engine};
use alluvium_env::Env;
use alluvium_protocol::subscription::Config;
use alluvium_protocol::{ContentType, StreamPath};
use alluvium_subscriptions::{Core, Delivery, Handle, Options, Outcome, Request, Service, Transport, What};
use bytes::Bytes;

const STREAMS: usize = 100_000;
const SUBSCRIPTIONS: usize = 1_000;
const WRITERS: usize = 256;
const ROUND: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

/// A receiver that is done at once.
#[derive(Debug)]
struct Done;

impl Transport for Done {
    fn send(&self, _delivery: &Delivery) -> Outcome {
        Outcome::Accepted { done: true }
    }
}

fn path(number: usize) -> StreamPath {
    StreamPath::parse_decoded(&format!("t{}/{}", number % SUBSCRIPTIONS, number / SUBSCRIPTIONS)).unwrap()
}

async fn create(engine: &Engine) {
    let mut creates = tokio::task::JoinSet::new();
    for number in 0..STREAMS {
        let engine = engine.clone();
        creates.spawn(async move {
            let request = CreateRequest { body: Bytes::from_static(b"x"), ..CreateRequest::default() };
            engine.create(&path(number), request).await.unwrap();
        });
        if creates.len() >= 4_000 {
            creates.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(created) = creates.join_next().await {
        created.unwrap();
    }
}

/// Appends a second, from many writers to streams all over.
async fn appends(engine: &Engine) -> f64 {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (engine, stop, count) = (engine.clone(), stop.clone(), count.clone());
            tokio::spawn(async move {
                let mut number = writer * 391;
                while !stop.load(Ordering::Relaxed) {
                    number = (number + 7_919) % STREAMS;
                    let request = AppendRequest {
                        content_type: Some(ContentType::DEFAULT),
                        body: Bytes::from_static(&[b'y'; 100]),
                        ..AppendRequest::default()
                    };
                    engine.append(&path(number), request).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(ROUND).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = count.load(Ordering::Relaxed) as f64;
    count / began.elapsed().as_secs_f64()
}

async fn subscribe(handle: &Handle, receivers: bool) {
    for number in 0..SUBSCRIPTIONS {
        let kind = if receivers {
            r#""type":"webhook","webhook":{"url":"https://w.test/"}"#
        } else {
            r#""type":"pull-wake","wake_stream":"wakes""#
        };
        let document = format!(r#"{{{kind},"pattern":"t{number}/*"}}"#);
        let config = Box::new(Config::parse(document.as_bytes()).unwrap());
        let what = What::Put { config, origin: "http://h".to_owned() };
        handle.ask(Request::About { id: format!("s{number}"), what }).await.unwrap();
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = alluvium_engine::Options::new(Arc::new(|fault| panic!("{fault}")));
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    runtime.block_on(async {
        create(&engine).await;
        for _ in 0..ROUNDS {
            println!(
                "no subscriptions:                            {:>9.0} appends/s",
                appends(&engine).await
            );
        }
        for receivers in [false, true] {
            let core = Core::open(engine.clone(), Env::real(), Options::default()).unwrap();
            let service = Service::start(core, Arc::new(Done)).unwrap();
            let began = Instant::now();
            subscribe(&service.handle(), receivers).await;
            println!(
                "made {SUBSCRIPTIONS} subscriptions to {STREAMS} streams in {} ms",
                began.elapsed().as_millis()
            );
            let name = if receivers {
                "all of them woken, over and over:"
            } else {
                "all of them with a wake that nobody claims:"
            };
            for _ in 0..ROUNDS {
                println!("{name:<44} {:>9.0} appends/s", appends(&engine).await);
            }
            let counters = service.handle().counters();
            println!("{} wakes, {} webhooks", counters.wakes, counters.delivered);
            for number in 0..SUBSCRIPTIONS {
                let what = What::Delete;
                service.handle().ask(Request::About { id: format!("s{number}"), what }).await.unwrap();
            }
            service.stop();
        }
    });
    engine.shutdown();
}
