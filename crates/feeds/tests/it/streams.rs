//! A feed as a durable stream under readers whose server loses or changes its history: nothing is skipped without a word,
//! whichever way it is read.

use std::fs;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

use alluvium_feeds::OpenGate;
use alluvium_feeds::http::SurfaceOptions;

use crate::guard::{files, folder, put};
use crate::http::{Site, head_of};
use crate::support::{Authority, append, block, id};

const FEED: &str = "/feeds/v1/spaces/space/streams/f";
/// Every way to read.
const WAYS: [&str; 3] = ["", "&live=long-poll", "&live=sse"];

fn over(authority: Authority) -> Site {
    Site::over(authority, Arc::new(OpenGate), SurfaceOptions::default())
}

/// Blocks of the feed, numbered from somewhere on.
fn write(site: &Site, from: u64, count: u64) {
    let blocks = (from..from + count).map(|n| block("f", "a", n, &format!("text {n}")));
    site.authority.append(append(blocks.collect()));
}

fn texts(answer: &serde_json::Value) -> Vec<u64> {
    let sequence = |block: &serde_json::Value| block["sequence"].as_u64().unwrap();
    answer.as_array().unwrap().iter().map(sequence).collect()
}

/// The end, as a reader of everything is told it.
fn end(site: &Site) -> String {
    site.get(&format!("{FEED}?offset=-1")).header("stream-next-offset").unwrap().to_owned()
}

/// That an offset is answered as one of another history, whichever way it is read.
fn assert_gone(site: &Site, offset: &str, what: &str) {
    for way in WAYS {
        let answer = site.get(&format!("{FEED}?offset={offset}{way}"));
        assert_eq!(answer.status, 410, "{what}{way}");
        assert_eq!(answer.header("alluvium-error"), Some("server_reset"), "{what}{way}");
        assert_eq!(answer.header("stream-next-offset"), None, "{what}{way}: nowhere to go on");
        assert!(answer.json()["message"].as_str().unwrap().contains("`-1`"), "{what}{way}");
    }
}

/// A reader of events that has come to the end of what there is; its last offset.
struct Reader {
    lines: std::io::BufReader<std::net::TcpStream>,
    offset: String,
}

impl Reader {
    fn at(site: &Site, offset: &str) -> Self {
        let mut lines = site.connect(&format!("GET {FEED}?offset={offset}&live=sse HTTP/1.1"), b"");
        assert_eq!(head_of(&mut lines).0, 200);
        let mut reader = Self { lines, offset: offset.to_owned() };
        assert!(reader.read_control());
        reader
    }

    /// Reads up to the next control event; false at the end of the stream.
    fn read_control(&mut self) -> bool {
        loop {
            let mut line = String::new();
            // However it is ended.
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            let control = line.trim_end().strip_prefix("data:{");
            if let Some(control) = control {
                let control: serde_json::Value = serde_json::from_str(&format!("{{{control}")).unwrap();
                control["streamNextOffset"].as_str().unwrap().clone_into(&mut self.offset);
                return true;
            }
        }
    }
}

#[test]
fn a_reader_of_a_wiped_server_is_told_whichever_way_it_reads() {
    let site = over(Authority::new());
    write(&site, 0, 3);
    let (known, mut reader) = (end(&site), Reader::at(&site, "-1"));
    assert_eq!(reader.offset, known);
    let waiting = site.connect(&format!("GET {FEED}?offset={known}&live=long-poll HTTP/1.1"), b"");
    let mut authority = site.stop();
    assert!(!reader.read_control(), "the stream ends with its server");
    drop(waiting);
    fs::remove_dir_all(folder(&authority)).unwrap();
    authority.start();
    let site = over(authority);
    // The new history is shorter, as long, and longer than what the readers know.
    for (from, count) in [(100, 1), (101, 2), (103, 4)] {
        write(&site, from, count);
        assert_gone(&site, &known, "after a wipe");
        assert_gone(&site, &reader.offset, "after a wipe, from an event stream");
    }
    assert_eq!(texts(&site.get(&format!("{FEED}?offset=-1")).json()), (100..107).collect::<Vec<_>>());
    // The feed is emptier than before, and nobody has written anything yet.
    let mut authority = site.stop();
    fs::remove_dir_all(folder(&authority)).unwrap();
    authority.start();
    assert_gone(&over(authority), &known, "of a space that is not there any more");
}

#[test]
fn a_reader_of_a_server_that_was_set_back_is_told_unless_its_place_is_still_there() {
    for goes_back_with_its_guard in [false, true] {
        let site = over(Authority::new());
        write(&site, 0, 2);
        let kept = end(&site);
        let authority = site.stop();
        let old = files(&authority);
        let mut authority = authority;
        authority.start();
        let site = over(authority);
        write(&site, 2, 3);
        let lost = end(&site);
        let page = site.authority.after(0);
        let mut reader = Reader::at(&site, &kept);
        assert_eq!(reader.offset, lost);
        let mut authority = site.stop();
        assert!(!reader.read_control());
        fs::remove_dir_all(folder(&authority)).unwrap();
        authority.start();
        // The folder is made anew by the first who writes, and then filled with what it had.
        authority.append(append(vec![block("f", "a", 0, "any")]));
        authority.service().close();
        authority.service = None;
        let fresh = files(&authority);
        put(&old, "");
        if !goes_back_with_its_guard {
            put(&fresh, "guard");
        }
        authority.start();
        let site = over(authority);
        let is_same_token = site.authority.after(0).server_token == page.server_token;
        assert_eq!(is_same_token, goes_back_with_its_guard);
        for (from, count) in [(50, 1), (51, 2), (53, 4)] {
            write(&site, from, count);
            assert_gone(&site, &lost, "after having been set back");
            assert_gone(&site, &reader.offset, "after having been set back, from an event stream");
        }
        if goes_back_with_its_guard {
            // What this one has read is still there, so it goes on.
            for way in WAYS.into_iter().take(2) {
                let answer = site.get(&format!("{FEED}?offset={kept}{way}"));
                assert_eq!((answer.status, texts(&answer.json())), (200, (50..57).collect()), "{way}");
            }
        } else {
            // Another token is another history.
            assert_gone(&site, &kept, "under another token");
        }
    }
}

/// A browser comes back with the URL that it began with and the `id` of the last event that its page has seen.
#[test]
fn a_browser_gets_each_block_once_wherever_it_was_cut_off() {
    let options = SurfaceOptions { sse_cycle: Duration::ZERO, ..SurfaceOptions::default() };
    let site = Site::over(Authority::new(), Arc::new(OpenGate), options);
    let ask = |query: &str, ids: &[&str]| {
        let ids = ids.iter().fold(String::new(), |ids, id| ids + "\r\nlast-event-id: " + id);
        site.ask(&format!("GET {FEED}?{query} HTTP/1.1{ids}"), b"")
    };
    // Of each event: the blocks, and the `id` that it has or has kept.
    let events = |ids: &[&str]| {
        let answer = ask("offset=-1&live=sse", ids);
        assert_eq!((answer.status, answer.header("vary")), (200, Some("Last-Event-ID")));
        let (mut all, mut id) = (Vec::new(), String::new());
        for event in String::from_utf8(answer.body).unwrap().split("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            id = field("id:").map_or(id, str::to_owned);
            let Some(data) = field("data:") else { continue };
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            all.push((if data.is_array() { texts(&data) } else { Vec::new() }, id.clone()));
        }
        all
    };
    let nothing = events(&[]);
    write(&site, 0, 2);
    let before = events(&[]);
    write(&site, 2, 3);
    assert_eq!((nothing.len(), before.len(), &before[0].0), (1, 2, &vec![0, 1]));
    assert_eq!(events(&[&nothing[0].1])[0].0, (0..5).collect::<Vec<_>>(), "after a control event alone");
    for (at, (_, id)) in before.iter().enumerate() {
        assert_eq!(events(&[id])[0].0, [2, 3, 4], "after event {at}");
    }
    assert_eq!(events(&[&end(&site)]), [(Vec::new(), end(&site))], "after everything");
    // It goes before the offset of the URL, and is refused like it.
    let (known, gone) = (end(&site), "00000000000000ff_0000000000000000");
    for (query, ids, status) in [
        (&*format!("offset={gone}&live=sse"), &[][..], 410),
        (&format!("offset={gone}&live=sse"), &[&*known], 200),
        ("offset=-1&live=sse", &[gone], 410),
        ("offset=-1&live=sse", &["x"], 400),
        ("offset=-1&live=sse", &[""], 400),
        ("offset=-1&live=sse", &[&known, &known], 400),
        ("offset=x&live=sse", &[&known], 400),
        ("offset=-1", &["x"], 200),
    ] {
        assert_eq!(ask(query, ids).status, status, "{query} {ids:?}");
    }
}

#[test]
fn an_offset_beyond_the_end_is_of_no_history_and_one_of_an_older_server_is_read() {
    let site = over(Authority::new());
    write(&site, 0, 3);
    let plain = |position: u64| format!("{position:016x}_0000000000000000");
    for way in ["", "&live=long-poll"] {
        let answer = site.get(&format!("{FEED}?offset={}{way}", plain(1)));
        assert_eq!((answer.status, texts(&answer.json())), (200, vec![1, 2]), "{way}");
    }
    assert_gone(&site, &plain(4), "beyond the end");
    let (end, other) = (end(&site), "0000000000000003_00000000000000aa_");
    assert_gone(&site, &format!("{other}{}", &end[34..]), "with the check of another history");
    let (place, token) = end.split_at(34);
    let other = if token.starts_with('0') { "1" } else { "0" };
    assert_gone(&site, &format!("{place}{other}{}", &token[1..]), "with another token");
    assert_eq!(site.get(&format!("{FEED}?offset={end}")).body, b"[]");
    let head = site.ask(&format!("HEAD {FEED} HTTP/1.1"), b"");
    assert_eq!(head.header("stream-next-offset"), Some(&end[..]));
}

#[test]
fn who_has_seen_nothing_of_a_space_that_is_not_there_goes_on_after_a_restart() {
    let site = over(Authority::new());
    let nothing = end(&site);
    let mut authority = site.stop();
    authority.start();
    let site = over(authority);
    write(&site, 0, 2);
    let answer = site.get(&format!("{FEED}?offset={nothing}"));
    assert_eq!((answer.status, texts(&answer.json())), (200, vec![0, 1]));
}

#[test]
fn a_reader_before_what_was_removed_is_told_and_one_after_it_goes_on() {
    let site = over(Authority::new());
    write(&site, 0, 2);
    let (early, mut reader) = (end(&site), Reader::at(&site, "-1"));
    let mut waiting = site.connect(&format!("GET {FEED}?offset={early}&live=long-poll HTTP/1.1"), b"");
    // Written and removed at once, so that those who wait may find it gone.
    site.authority.service().prune(&id("space"), &id("f"), 3).unwrap();
    write(&site, 2, 3);
    let mut answer = String::new();
    let (status, _) = head_of(&mut waiting);
    waiting.read_to_string(&mut answer).unwrap();
    assert!(status == 200 && answer.contains("\"sequence\":2"), "{answer}");
    assert!(reader.read_control());
    site.authority.service().prune(&id("space"), &id("f"), 5).unwrap();
    assert_gone(&site, &early, "before what was removed");
    let answer = site.get(&format!("{FEED}?offset=-1"));
    assert_eq!((answer.status, texts(&answer.json())), (200, vec![4]));
    let late = end(&site);
    write(&site, 5, 1);
    assert_eq!(texts(&site.get(&format!("{FEED}?offset={late}")).json()), vec![5]);
}
