//! Outages, one after another, in a time that is moved by hand: which of them a reader sits out, and when it gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium_env::Env;
use alluvium_jetstream_client::{Client, Config, Cursor, Error, Events, Item, Limits, Mode, Notice};
use tokio::time::{Instant, advance};

use crate::front::{Fate, Front};
use crate::world::{World, config, take};

const LIMIT: Duration = Duration::from_secs(5);

/// A server behind a front that can take it away.
struct Outages {
    world: World,
    front: Front,
    is_down: Arc<AtomicBool>,
    reader: Events,
}

/// What a reader did about an outage.
#[derive(Debug, Eq, PartialEq)]
enum Sat {
    Out,
    GivenUp,
}

impl Outages {
    async fn new(mode: Mode, retry_after_s: Option<u64>) -> Self {
        let mut world = World::new();
        world.add(8);
        world.seal();
        let is_down = Arc::new(AtomicBool::new(false));
        let (down, asked) = (Arc::clone(&is_down), retry_after_s);
        let front = Front::new(world.address(), move |_| {
            if !down.load(Ordering::Relaxed) {
                return Fate::Pass;
            }
            let asks = asked.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
            Fate::Answer(format!("HTTP/1.1 503 x\r\n{asks}content-length: 0\r\nconnection: close\r\n\r\n"))
        })
        .await;
        let config = config(&front.url());
        let limits = Limits { give_up_after: Some(LIMIT), ..Limits::default() };
        let client = Client::new(Config { limits, ..config }, Env::real()).expect("a good configuration");
        let from = if mode == Mode::Live { Cursor::After(8) } else { Cursor::After(0) };
        let mut reader = client.events(from, mode).expect("a reader");
        assert_eq!(notice(&mut reader).await.expect("no fault"), Notice::Live);
        Self { world, front, is_down, reader }
    }

    fn cut(&self) {
        self.is_down.store(true, Ordering::Relaxed);
        self.front.turn_to(self.world.address());
    }

    /// The server is away for so long, or until the next attempt behind that.
    async fn outage(&mut self, lasts: Duration) -> Sat {
        self.cut();
        let began = Instant::now();
        loop {
            match notice(&mut self.reader).await {
                Ok(Notice::Again { pause, .. }) => {
                    let is_back = began.elapsed() + pause >= lasts;
                    self.is_down.store(!is_back, Ordering::Relaxed);
                    // Timers go off at whole milliseconds.
                    let pause_ms = u64::try_from(pause.as_nanos().div_ceil(1_000_000)).expect("no long time");
                    pass(Duration::from_millis(pause_ms + 1)).await;
                }
                Ok(Notice::Live) => return Sat::Out,
                Ok(notice) => panic!("{notice:?}"),
                Err(error) => {
                    assert!(error.is_passing(), "{error}");
                    return Sat::GivenUp;
                }
            }
        }
    }

    async fn one_more_event(&mut self) {
        self.world.add(1);
        assert_eq!(take(&mut self.reader, 1).await.len(), 1);
    }
}

/// What the reader tells next; events are passed over, and the archive with them.
async fn notice(reader: &mut Events) -> Result<Notice, Error> {
    loop {
        match reader.next_item().await? {
            Some(Item::Notice(Notice::Archive { .. }) | Item::Event(_) | Item::Passed(_)) => {}
            Some(Item::Notice(notice)) => return Ok(notice),
            None => panic!("there is no end"),
        }
    }
}

/// Lets time pass, once everybody who waits for it does so.
async fn pass(time: Duration) {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    advance(time).await;
}

/// Time that stands while the network is waited for: it would jump ahead if nobody had anything to do.
fn stopped_clock() -> std::sync::mpsc::Sender<()> {
    let (clock, dropped) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || dropped.recv().is_ok());
    clock
}

/// Outages in milliseconds with how long the feed was there behind each, and whether a quiet and a busy feed are followed
/// to the end.
type Row = (&'static [(u64, u64)], bool, bool);

const TABLE: &[Row] = &[
    (&[(400, 9000), (400, 9000), (400, 9000)], true, true),
    (&[(1000, 1000), (4000, 1000), (1000, 25_000), (4900, 1000), (4900, 1000)], true, true),
    (&[(4900, 1000), (4900, 1000), (4900, 1000)], true, true),
    (&[(0, 1500), (0, 1500), (0, 1500), (0, 1500), (0, 1500), (0, 1500)], true, true),
    // It is accepted and ended again and again: nothing of that is a feed.
    (&[(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)], false, true),
    (&[(500, 900), (500, 900), (500, 900), (500, 900), (500, 900)], false, true),
    (&[(4900, 999), (400, 9000)], false, true),
];

#[tokio::test(start_paused = true)]
async fn a_reader_sits_out_outages_that_are_short_and_gives_up_one_that_is_not() {
    let clock = stopped_clock();
    for (mode, retry_after_s) in [(Mode::Live, None), (Mode::Whole, None), (Mode::Live, Some(120))] {
        for (outages, quiet, busy) in TABLE {
            for is_busy in [false, true] {
                let what = format!("{mode:?} {retry_after_s:?} {outages:?}, busy: {is_busy}");
                let mut sut = Outages::new(mode, retry_after_s).await;
                let mut sat = Sat::Out;
                for (lasts_ms, there_ms) in *outages {
                    sat = sut.outage(Duration::from_millis(*lasts_ms)).await;
                    if sat == Sat::GivenUp {
                        break;
                    }
                    if is_busy {
                        sut.one_more_event().await;
                    }
                    pass(Duration::from_millis(*there_ms)).await;
                }
                let is_followed = if is_busy { *busy } else { *quiet };
                assert_eq!(sat == Sat::Out, is_followed, "{what}");
                if is_followed {
                    pass(Duration::from_secs(2)).await;
                    let began = Instant::now();
                    assert_eq!(sut.outage(Duration::MAX).await, Sat::GivenUp, "{what}");
                    let took = began.elapsed();
                    let is_in_time = took >= LIMIT && took < LIMIT + Duration::from_millis(100);
                    assert!(is_in_time, "{what}: {took:?}, although the wait ends with the patience");
                }
            }
        }
    }
    drop(clock);
}
