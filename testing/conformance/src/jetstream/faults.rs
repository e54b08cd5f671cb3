//! Everything that can be wrong with a network, against the real server: each fault, each flaw of a frame and each act of
//! the simulator, and what must come of it. None may be left out: their names are asked of the simulator, and one that
//! nothing here fires is a failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use alluvium_atproto::Curve;
use alluvium_jetstream_simulator::{Account, Act, Config, FRAME_BYTES_MAX, Fault, Flaw, Operation, Status};
use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;

use super::paths;
use super::told::{Told, What};
use super::world::{SENTINEL, SMALL, World, steady};
use crate::check::Report;

/// Faults of what only the gathering of a network's past asks for. Here nobody may ask.
const OF_GATHERING: [&str; 6] = [
    "listHostsStatus",
    "hostStatus",
    "listReposStatus",
    "listReposRepeat",
    "listReposLoop",
    "listReposShort",
];
/// How long a server may take to be connected again.
const CONNECTED_SECONDS_MAX: Duration = Duration::from_mins(1);
/// What a `#sync` can have.
const OF_SYNCS: [Flaw; 8] = [
    Flaw::BadSignature,
    Flaw::HighS,
    Flaw::OtherDid,
    Flaw::OtherVersion,
    Flaw::OtherRev,
    Flaw::InvalidRev,
    Flaw::FutureRev,
    Flaw::NoCommit,
];
/// Where repositories are.
const GET_REPO: &str = "/xrpc/com.atproto.sync.getRepo";

/// What must come of a fault.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Then {
    /// Nothing at all: events come as if it were not there.
    Nothing,
    /// The repository is fetched, once it can be, and replaces what was known.
    Replaced,
}

/// A fault, once it is known of which account.
type Make = Box<dyn FnOnce(String) -> Fault>;

/// A world with everything that was let loose on it.
struct Loose {
    world: World,
    acts: BTreeSet<String>,
    flaws: BTreeSet<String>,
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let config = Config { accounts: 64, ..steady(301) };
    let mut loose =
        Loose { world: World::new(binary, config, SMALL)?, acts: BTreeSet::new(), flaws: BTreeSet::new() };
    loose.world.start()?;
    report.check("directories and hosts that fail, lie, hang and trickle", || hosts(&mut loose));
    report.check("connections to the relay that end, repeat, babble and leave out", || relay(&mut loose));
    report.check("frames that are untrue, in every way", || flaws(&mut loose));
    report.check("accounts that move, flood, go, and come back", || accounts(&mut loose));
    report.check("a relay that is set back tells nothing twice", || set_back(&mut loose));
    report.check("every fault, flaw and act of the simulator was let loose", || complete(&loose));
    loose.world.stop()
}

/// The names of all variants, as the error of one that is none lists them.
fn names<T: DeserializeOwned>(json: &str) -> Result<BTreeSet<String>> {
    let error = serde_json::from_str::<T>(json).err().context("a name that nothing has")?.to_string();
    let (_, list) = error.split_once("expected one of ").with_context(|| error.clone())?;
    let names: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    ensure!(names.len() > 5, "{error}");
    Ok(names)
}

impl Loose {
    fn act(&mut self, act: Act) -> Result<()> {
        let name = serde_json::to_value(&act)?["act"].as_str().context("a name")?.to_owned();
        if let Act::Lie { flaw, .. } | Act::LyingSync { flaw, .. } = &act {
            self.flaws.insert(serde_json::to_value(flaw)?.as_str().context("a name")?.to_owned());
        }
        self.acts.insert(name);
        self.world.act(act).map(drop)
    }

    fn put(&mut self, account: u32, key: &str, silent: bool) -> Result<()> {
        let path = format!("app.bsky.feed.post/{key}");
        let operations = vec![Operation::Put { path, record: None }];
        self.act(Act::Write { account, operations, silent, missing_block: None })
    }

    /// A commit that follows another one than the last that was told.
    fn tear(&mut self, account: u32) -> Result<()> {
        self.put(account, "unseen", true)?;
        self.put(account, "torn", false)
    }
}

fn syncs(events: &[Told], did: &str) -> usize {
    events.iter().filter(|event| event.did == did && event.what.kind() == "sync").count()
}

/// An answer in place of a repository.
fn response(status: u16, headers: &[(&str, String)], body: &str) -> impl FnOnce(String) -> Fault + use<> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let body = body.to_owned();
    move |did| Fault::GetRepoResponse { did, status, headers, body }
}

fn hosts(loose: &mut Loose) -> Result<()> {
    let hosts = loose.world.network().hosts();
    let host =
        |account| loose.world.network().world(|world| world.account(account).map(|a| a.host() as usize));
    let redirect = format!("http://{}{GET_REPO}?did={}", hosts[host(15)?], loose.world.did(15)?);
    let path = || GET_REPO.to_owned();
    // What is wrong, with the answers about which account, and what must come of it.
    let table: Vec<(Make, Then)> = vec![
        (Box::new(|did| Fault::PlcMalformedHandle { did }), Then::Nothing),
        (Box::new(|did| Fault::PlcNoEndpoint { did }), Then::Replaced),
        (Box::new(|did| Fault::PlcMalformedEndpoint { did }), Then::Replaced),
        (Box::new(|did| Fault::PlcStatus { did, status: 500 }), Then::Replaced),
        (Box::new(|did| Fault::PlcStatus { did, status: 404 }), Then::Replaced),
        (Box::new(|did| Fault::PlcHang { did }), Then::Replaced),
        (Box::new(|did| Fault::GetRepoStatus { did, status: 500 }), Then::Replaced),
        (Box::new(|did| Fault::GetRepoStatus { did, status: 404 }), Then::Replaced),
        (Box::new(|did| Fault::GetRepoCut { did }), Then::Replaced),
        (Box::new(|did| Fault::GetRepoNotFound { did }), Then::Replaced),
        (Box::new(|did| Fault::GetRepoOld { did }), Then::Replaced),
        (Box::new(response(200, &[], "no repository")), Then::Replaced),
        (Box::new(response(429, &[("retry-after", "1".to_owned())], "")), Then::Replaced),
        (Box::new(response(400, &[], r#"{"error":"SomethingElse"}"#)), Then::Replaced),
        (Box::new(response(302, &[("location", redirect)], "")), Then::Replaced),
        (Box::new(move |_| Fault::Trickle { path: path(), bytes: 1024, pause_ms: 5 }), Then::Replaced),
        (Box::new(move |_| Fault::EarlyClose { path: path(), bytes: 200 }), Then::Replaced),
        (Box::new(move |_| Fault::WrongLength { path: path(), extra: 9 }), Then::Replaced),
        (Box::new(|did| Fault::EarlyClose { path: format!("/{did}"), bytes: 20 }), Then::Replaced),
        (Box::new(|did| Fault::WrongLength { path: format!("/{did}"), extra: 9 }), Then::Replaced),
        (Box::new(|did| Fault::Trickle { path: format!("/{did}"), bytes: 40, pause_ms: 5 }), Then::Nothing),
    ];
    let mut expected = Vec::new();
    for (account, (fault, then)) in (1..).zip(table) {
        let did = loose.world.did(account)?;
        let fault = fault(did.clone());
        expected.push((loose.world.arm(fault.clone(), 1)?, did, fault, then));
    }
    for (account, (.., then)) in (1..).zip(&expected) {
        loose.put(account, "first", false)?;
        if *then == Then::Replaced {
            loose.tear(account)?;
        }
    }
    // Those alone: of an account that was never heard of before, a `#sync` would have the repository fetched.
    loose.world.conclude(1..22)?;
    let events = loose.world.caught_up()?;
    for (id, did, fault, then) in expected {
        let (fired, syncs) = (loose.world.network().fired(id), syncs(&events, &did));
        ensure!(fired == 1, "{fault:?} came {fired} times");
        ensure!((syncs > 0) == (then == Then::Replaced), "{fault:?}: {then:?} and {syncs} replacements");
        ensure!(
            (loose.world.network().served(&did) > 0) == (syncs > 0),
            "{fault:?}: it was not from its host"
        );
    }
    Ok(())
}

fn relay(loose: &mut Loose) -> Result<()> {
    let before = loose.world.caught_up()?.len();
    let seq = loose.world.network().world(alluvium_jetstream_simulator::World::tip).saturating_sub(30);
    let table = [
        (Fault::Close { after: 0 }, 3),
        (Fault::Resend { after: 5, frames: 20 }, 2),
        (Fault::ResendSince { after: 8, seq }, 1),
        (Fault::Inject { after: 3, bytes: b"\xff\x00nonsense".to_vec() }, 2),
        (Fault::Inject { after: 3, bytes: Vec::new() }, 1),
    ];
    let mut armed = Vec::new();
    for (fault, count) in table {
        armed.push((loose.world.arm(fault.clone(), count)?, fault, u64::from(count)));
    }
    // Nobody but accounts that are in order, so that each event must come once and in its place.
    for number in 0..40 {
        loose.put(30 + number % 8, &format!("relay{number}"), false)?;
        loose.act(Act::Identity { account: 30 + number % 5, rename: number % 2 == 0, says_handle: true })?;
    }
    let events = loose.world.caught_up()?;
    ensure!(events.len() == before + 80, "{} events of {}", events.len(), before + 80);
    for (id, fault, count) in armed {
        let fired = loose.world.network().fired(id);
        ensure!(fired == count, "{fault:?} came {fired} times of {count}");
    }
    // A frame that is left out: of a commit the next one tells, of an account's own event nothing does.
    let (did, lost) = (loose.world.did(30)?, loose.world.did(31)?);
    let identities = |events: &[Told]| {
        let of_lost = events.iter().filter(|event| event.did == lost);
        of_lost.filter(|event| matches!(event.what, What::Identity { .. })).count()
    };
    let known = identities(&events);
    let swallow = loose.world.arm(Fault::Swallow { after: 0 }, 1)?;
    loose.world.act_unheard(Act::Identity { account: 31, rename: false, says_handle: false })?;
    await_fired(loose, swallow)?;
    let swallow = loose.world.arm(Fault::Swallow { after: 0 }, 1)?;
    let path = "app.bsky.feed.post/swallowed".to_owned();
    let operations = vec![Operation::Put { path, record: None }];
    let write = Act::Write { account: 30, operations, silent: false, missing_block: None };
    loose.world.act_unheard(write)?;
    await_fired(loose, swallow)?;
    loose.put(30, "behind", false)?;
    let events = loose.world.caught_up()?;
    ensure!(syncs(&events, &did) == 1, "{did} is replaced");
    ensure!(identities(&events) == known && syncs(&events, &lost) == 0, "what nobody told is not there");
    Ok(())
}

fn await_fired(loose: &Loose, id: u64) -> Result<()> {
    let deadline = Instant::now() + CONNECTED_SECONDS_MAX;
    while loose.world.network().fired(id) == 0 {
        ensure!(Instant::now() < deadline, "the fault does not come");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn flaws(loose: &mut Loose) -> Result<()> {
    let mut at = 40;
    let mut next = || {
        at = if at == 63 { 40 } else { at + 1 };
        at
    };
    let commits = Flaw::OF_COMMITS.into_iter().chain([Flaw::TooLong]);
    let lies = commits.map(|flaw| (flaw, false)).chain(OF_SYNCS.map(|flaw| (flaw, true)));
    for (number, (flaw, is_sync)) in (0..).zip(lies) {
        // A `#sync` that leads to a fetch is told of accounts of which everything is there: what the archive has of others
        // begins with their first commit, and a fetch that finds nothing new adds nothing.
        let account = if is_sync { 2 + number % 16 } else { next() };
        loose.put(account, &format!("before{number}"), false)?;
        if flaw == Flaw::OldKey {
            // What was signed before must be judged before its key is gone.
            loose.world.caught_up()?;
        }
        loose.act(if is_sync { Act::LyingSync { account, flaw } } else { Act::Lie { account, flaw } })?;
        loose.put(account, &format!("after{number}"), false)?;
    }
    // Paths that are none, signed into the tree, and a record that did not come: dropped alone.
    let put = |path: &str| Operation::Put { path: path.to_owned(), record: None };
    let operations = vec![
        put("app.bsky.feed.post/good"),
        put("nothing/bad"),
        put("app.bsky.feed.post/a b"),
        put("app.bsky.feed.post/gone"),
    ];
    loose.act(Act::Write { account: 39, operations, silent: false, missing_block: Some(3) })?;
    for bytes in [FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1] {
        loose.act(Act::SizedFrame { account: 38, bytes })?;
    }
    loose.act(Act::UnknownFrame)?;
    loose.act(Act::Garbage { bytes: 100 })?;
    loose.act(Act::MalformedIdentity { did: "not a DID".to_owned() })?;
    loose.world.conclude(38..64)?;
    let did = loose.world.did(39)?;
    let events = loose.world.caught_up()?;
    let keys: Vec<&str> = events
        .iter()
        .filter(|event| event.did == did)
        .filter_map(
            |event| if let What::Record { rkey, .. } = &event.what { Some(rkey.as_str()) } else { None },
        )
        .collect();
    ensure!(keys == ["good"], "{keys:?}");
    ensure!(events.iter().any(|event| event.did == "not a DID"), "identities are not judged");
    let p256 = loose.world.network().world(|world| {
        let of = |event: &&Told| world.find(&event.did).is_some_and(|account| account.curve() == Curve::P256);
        events.iter().filter(of).count()
    });
    ensure!(p256 > 20, "{p256} events of accounts with the other curve");
    Ok(())
}

fn accounts(loose: &mut Loose) -> Result<()> {
    // Announced and not, and then something is missing: it is found where the account lives now.
    for (account, announce) in [(32, true), (33, false)] {
        let host = loose.world.network().world(|world| world.account(account).map(Account::host))?;
        loose.act(Act::Migrate { account, host: (host + 1) % 3, announce })?;
        loose.tear(account)?;
    }
    // Unannounced it is found by the first signature that does not fit, if the key was not asked for a moment ago.
    for (account, announce) in [(34, true), (1, false)] {
        loose.act(Act::Rotate { account, announce })?;
        loose.put(account, "signed-anew", false)?;
    }
    loose.act(Act::Hide { account: 36, hidden: true })?;
    loose.put(36, "hidden", false)?;
    loose.act(Act::HiddenRecord { account: 36 })?;
    loose.act(Act::Sync { account: 36 })?;
    for status in [Status::Deactivated, Status::Active, Status::Suspended, Status::Active, Status::Takendown]
    {
        loose.act(Act::Account { account: 37, status })?;
    }
    loose.put(20, "to-be-gone", false)?;
    loose.act(Act::Account { account: 20, status: Status::Deleted })?;
    loose.act(Act::Account { account: 20, status: Status::Active })?;
    loose.put(20, "again", false)?;
    loose.act(Act::Tombstone { account: 19 })?;
    loose.act(Act::Burst { account: 0, commits: 400 })?;
    loose.act(Act::Advance { micros: 3_600_000_000 })?;
    loose.act(Act::Step { count: 60 })?;
    loose.world.conclude(0..64)?;
    let events = loose.world.caught_up()?;
    for account in [32, 33, 36, 20] {
        let did = loose.world.did(account)?;
        ensure!(syncs(&events, &did) > 0, "account {account} was not replaced");
    }
    // Whatever of the flood was dropped came back by a replacement.
    let did = loose.world.did(0)?;
    let (told, rows) =
        (loose.world.expected_rows(&did), events.iter().filter(|event| event.did == did).count());
    ensure!(rows >= told.min(400) || syncs(&events, &did) > 0, "{rows} events of a flood of {told}");
    Ok(())
}

/// The relay forgets, and gives numbers again that it gave before.
fn set_back(loose: &mut Loose) -> Result<()> {
    loose.act(Act::Account { account: 23, status: Status::Deactivated })?;
    loose.act(Act::Account { account: 24, status: Status::Deactivated })?;
    let before = loose.world.caught_up()?.len();
    loose.act(Act::RestoreRelay { frames: 1_000_000 })?;
    // It is connected again once it hears of somebody.
    let deadline = Instant::now() + CONNECTED_SECONDS_MAX;
    let mut number = 0;
    let heard = |loose: &Loose| {
        let events = paths::stream(loose.world.address())?;
        anyhow::Ok(events.iter().any(|event| event.did.starts_with(SENTINEL)))
    };
    while !heard(loose)? {
        ensure!(Instant::now() < deadline, "the server does not come back to the relay");
        loose.world.act_unheard(Act::MalformedIdentity { did: format!("{SENTINEL}{number}") })?;
        number += 1;
        thread::sleep(Duration::from_millis(50));
    }
    // Told under numbers that say that it was told before.
    for account in [23, 24] {
        loose.act(Act::Account { account, status: Status::Deleted })?;
    }
    loose.act(Act::Identity { account: 30, rename: false, says_handle: true })?;
    loose.put(32, "behind-the-restoration", false)?;
    let events = loose.world.caught_up()?;
    let told: Vec<&Told> = events[before..].iter().filter(|event| !event.did.starts_with(SENTINEL)).collect();
    ensure!(told.len() == 1 && told[0].what.kind() == "commit", "{told:?}");
    Ok(())
}

fn complete(loose: &Loose) -> Result<()> {
    let acts = names::<Act>(r#"{"act":"?"}"#)?;
    ensure!(loose.acts == acts, "not let loose: {:?}", acts.difference(&loose.acts));
    let flaws = names::<Flaw>("\"?\"")?;
    ensure!(loose.flaws == flaws, "not told: {:?}", flaws.difference(&loose.flaws));
    let mut fired: BTreeSet<String> = OF_GATHERING.map(str::to_owned).into();
    for armed in loose.world.network().faults() {
        ensure!(armed.left == 0 && armed.fired > 0, "{armed:?} has not come");
        fired.insert(serde_json::to_value(&armed.fault)?["fault"].as_str().context("a name")?.to_owned());
    }
    let faults = names::<Fault>(r#"{"fault":"?"}"#)?;
    ensure!(fired == faults, "not armed: {:?}", faults.difference(&fired));
    Ok(())
}
