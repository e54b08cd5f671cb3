//! Replay: subscribers that begin at the start of an archive, on a server that has just started and so has nothing of it in
//! memory.

use std::cell::{Cell as Slot, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use tokio::task::{JoinSet, LocalSet};

use super::feed::{Door, Feed, Form};
use super::ingest::{Filled, fill};
use super::network::{Key, Network};
use super::socket::Socket;
use super::{WAIT_MAX, World};
use crate::report::{Cell, Metric};
use crate::server::{LaunchOptions, Session, StopSignal};
use crate::stats;
use crate::target::Target;
use crate::usage::{Mark, memory_metrics};

/// What is read again, how, and by how many.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replay {
    pub(crate) world: World,
    pub(crate) forms: Vec<Form>,
    /// How many subscribers at a time; each number is a measurement of its own.
    pub(crate) subscribers: Vec<u32>,
}

impl Replay {
    pub(super) fn name(&self) -> String {
        format!("replay of {} events", self.world.events)
    }

    pub(super) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        let Filled { network, mut session, .. } = fill(&self.world, target, launch).await?;
        let mut cells = Vec::new();
        let everything = network.expected(|_, _| true);
        for form in &self.forms {
            for &subscribers in &self.subscribers {
                let name = format!("replay, {}, {subscribers} subscribers", form.name());
                cells.push(replay(&mut session, *form, "", &everything, subscribers, name).await?);
            }
            if matches!(form, Form::V1 | Form::V2) {
                cells.push(filtered(&mut session, &network, *form).await?);
            }
        }
        session.stop().await?;
        Ok(cells)
    }
}

/// One collection of all, the rarest. What is about accounts as such passes every filter of collections.
async fn filtered(session: &mut Session, network: &Network, form: Form) -> anyhow::Result<Cell> {
    let rarest = network.rarest_collection().context("no collection")?;
    let expected = network.expected(|_, collection| collection.is_none_or(|name| name == rarest));
    let query = format!("&{}={rarest}", form.collections());
    let name = format!("replay, {}, one collection", form.name());
    replay(session, form, &query, &expected, 1, name).await
}

async fn replay(
    session: &mut Session,
    form: Form,
    query: &str,
    expected: &HashMap<Key, usize>,
    subscribers: u32,
    name: String,
) -> anyhow::Result<Cell> {
    session.halt(StopSignal::Term).await?;
    session.resume()?;
    session.ready().await?;
    let door = Door::of(form, &session.endpoint).await?;
    let resource = format!("{}{query}&cursor=1", door.resource);
    let feed = Rc::new(RefCell::new(Feed::default()));
    let strange = Rc::new(Slot::new(0_usize));
    let deflate = Rc::new(Slot::new(None));
    let before = Mark::now(session);
    let mut tasks = JoinSet::new();
    let local = LocalSet::new();
    for _ in 0..subscribers {
        let (endpoint, resource) = (session.endpoint.clone(), resource.clone());
        let (feed, strange, deflate) = (Rc::clone(&feed), Rc::clone(&strange), Rc::clone(&deflate));
        let wanted = expected.len();
        tasks.spawn_local_on(
            async move {
                let mut socket = Socket::open(&endpoint, &resource, form == Form::V1Deflate).await?;
                deflate.set(socket.deflate);
                let mut number = 0;
                while number < wanted {
                    let take = &mut |frame: &[u8]| {
                        if !feed.borrow_mut().take(number, frame) {
                            strange.set(strange.get() + 1);
                        }
                        number += 1;
                    };
                    socket.receive(take).await?;
                }
                Ok::<_, anyhow::Error>(())
            },
            &local,
        );
    }
    let all = local.run_until(async {
        while let Some(done) = tasks.join_next().await {
            done.context("a subscriber panicked")??;
        }
        Ok::<_, anyhow::Error>(())
    });
    let done = tokio::time::timeout(WAIT_MAX, all).await;
    let Ok(done) = done else { bail!("{} messages of {} came", feed.borrow().len(), expected.len()) };
    done?;
    let usage = before.until(&Mark::now(session));
    let feed = feed.borrow();
    let read = feed.read(&door, deflate.get(), expected)?;
    ensure!(read.missing == 0, "{} events are missing", read.missing);
    let count = feed.len() as u64 * u64::from(subscribers);
    let mut metrics = vec![
        Metric::new("throughput", "events/s", stats::float(count) / usage.wall.as_secs_f64()),
        Metric::new("time", "s", usage.wall.as_secs_f64()),
        Metric::new("irregular", "messages", stats::float((read.irregular + strange.get()) as u64)),
        Metric::new(
            "sent",
            "bytes/event",
            stats::float(feed.bytes() as u64) / stats::float(feed.len() as u64),
        ),
    ];
    metrics.extend(usage.metrics(count, "µs/event"));
    metrics.extend(memory_metrics(session));
    Ok(Cell { name, metrics })
}
