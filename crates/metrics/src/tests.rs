//! What is written is read back, and what is not written like that is not read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;

use super::*;

static SEEN: Family = Family::counter("seen_total", &["kind"], "Things seen.");
static HELD: Family = Family::gauge("held_bytes", &[], "Bytes held, \"about\".\\");
static TOOK: Family = Family::histogram("took_seconds", &["what"], "How long it took.");

fn page() -> Page {
    let took = Histogram::new(&MICROSECONDS);
    for microseconds in [0, 50, 51, 1_000_000, 40_000_000] {
        took.observe(microseconds);
    }
    let mut page = Page::new();
    page.whole(&SEEN, &["a"], 3);
    page.fraction(&HELD, &[], 0.5);
    page.observed(&TOOK, &["x"], took.observed());
    // A family's samples stand together whatever the order in which they come.
    page.whole(&SEEN, &["b\\\"\n"], 4);
    page
}

#[test]
fn the_text_is_what_prometheus_reads() {
    let text = page().text(Format::Prometheus);
    assert!(text.starts_with(
        "# HELP seen_total Things seen.\n# TYPE seen_total counter\nseen_total{kind=\"a\"} 3\n\
         seen_total{kind=\"b\\\\\\\"\\n\"} 4\n\
         # HELP held_bytes Bytes held, \"about\".\\\\\n# TYPE held_bytes gauge\nheld_bytes 0.5\n"
    ));
    assert!(text.contains("took_seconds_bucket{what=\"x\",le=\"5e-5\"} 2\n"), "{text}");
    assert!(text.contains("took_seconds_bucket{what=\"x\",le=\"0.0001\"} 3\n"));
    assert!(text.contains("took_seconds_bucket{what=\"x\",le=\"1.0\"} 4\n"));
    assert!(text.contains("took_seconds_bucket{what=\"x\",le=\"+Inf\"} 5\n"));
    assert!(text.ends_with("took_seconds_sum{what=\"x\"} 41.000101\ntook_seconds_count{what=\"x\"} 5\n"));
}

#[test]
fn open_metrics_names_counters_without_their_ending_and_says_where_it_ends() {
    let text = page().text(Format::OpenMetrics);
    assert!(text.contains("# TYPE seen counter\nseen_total{kind=\"a\"} 3\n"));
    assert!(text.contains("# HELP held_bytes Bytes held, \\\"about\\\".\\\\\n"));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn who_names_open_metrics_gets_it() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
    assert_eq!(Format::negotiate(Some(prometheus)), Format::OpenMetrics);
    for accept in [None, Some("*/*"), Some("text/plain")] {
        assert_eq!(Format::negotiate(accept), Format::Prometheus);
    }
}

#[test]
fn what_is_written_is_read_back_from_both_formats() {
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let read = parse(&page().text(format)).expect("it was written here");
        assert_eq!(read.families.len(), 3);
        assert_eq!(read.value("seen_total", &[("kind", "b\\\"\n")]), Some(4.0));
        assert!((read.sum("seen_total", &[]) - 7.0).abs() < f64::EPSILON);
        assert_eq!(read.value("held_bytes", &[]), Some(0.5));
        assert_eq!(read.families[1].help, HELD.help);
        assert_eq!(read.value("took_seconds_bucket", &[("what", "x"), ("le", "+Inf")]), Some(5.0));
        assert_eq!(read.value("took_seconds_count", &[]), None);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let head = "# HELP a_total x\n# TYPE a_total counter\n";
    let histogram = "# HELP h x\n# TYPE h histogram\n";
    for (text, line) in [
        ("a 1\n", 1),
        ("# TYPE a gauge\n", 1),
        ("# NOTE a gauge\n", 1),
        ("# HELP a x\na 1\n", 2),
        ("# HELP a x\n", 0),
        ("# HELP a x\n# TYPE b gauge\n", 2),
        ("# HELP a x\n# TYPE a summary\n", 2),
        ("# HELP a x\n# TYPE a gauge\n\n", 3),
        (&format!("{head}a_total -1\n"), 3),
        (&format!("{head}a_total 1 1700000000\n"), 3),
        (&format!("{head}a_total  1\n"), 3),
        (&format!("{head}a_total 0x1\n"), 3),
        (&format!("{head}a_total inf\n"), 3),
        (&format!("{head}a_total{{}} 1\n"), 3),
        (&format!("{head}a_total{{b=\"c\" 1\n"), 3),
        (&format!("{head}a_total{{b=\"\\x\"}} 1\n"), 3),
        (&format!("{head}a_total{{1=\"c\"}} 1\n"), 3),
        (&format!("{head}a_total{{b=\"c\",b=\"d\"}} 1\n"), 3),
        (&format!("{head}a_total 1\na_total 2\n"), 4),
        (&format!("{head}b_total 1\n"), 3),
        (&format!("{head}{head}"), 4),
        (&format!("{head}# EOF\na_total 1\n"), 4),
        (&format!("{head}a_total 1"), 0),
        (&format!("{histogram}h 1\n"), 3),
        (&format!("{histogram}h_bucket{{le=\"+Inf\"}} 1\nh_sum 1\n"), 0),
        (&format!("{histogram}h_bucket{{le=\"+Inf\"}} 1\nh_sum 1\nh_count 2\n"), 0),
        (&format!("{histogram}h_bucket{{le=\"1\"}} 1\nh_sum 1\nh_count 1\n"), 0),
        (&format!("{histogram}h_bucket{{le=\"1\"}} 2\nh_bucket{{le=\"+Inf\"}} 1\nh_sum 1\nh_count 1\n"), 0),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text:?}: {error}");
    }
}

#[test]
fn threads_count_apart_and_together() {
    let counters = PerThread::new(|| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..100 {
                    counters.mine().fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(counters.all().map(|counter| counter.load(Relaxed)).sum::<u64>(), 2000);
}

proptest! {
    /// Each number is in the first bucket that it fits, and the sum is theirs.
    #[test]
    fn a_histogram_is_what_counting_by_hand_gives(values in prop::collection::vec(0..100_000_u64, 0..50)) {
        let histogram = Histogram::new(&BYTES);
        for value in &values {
            histogram.observe(*value);
        }
        let mut observed = histogram.observed();
        for (index, count) in observed.buckets.iter().enumerate() {
            let fits = |value: &&u64| BYTES.bounds.get(index).is_none_or(|bound| *value <= bound)
                && (index == 0 || BYTES.bounds[index - 1] < **value);
            prop_assert_eq!(*count, values.iter().filter(fits).count() as u64);
        }
        prop_assert_eq!(observed.sum, values.iter().sum::<u64>());
        let same = observed.clone();
        observed.add(&same);
        prop_assert_eq!(observed.count(), 2 * values.len() as u64);
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text_is_read_or_refused(text in "(# (HELP|TYPE) [a-z_]{1,3} (gauge|histogram|counter|x)\n|[a-z_]{1,8}(\\{[a-z]{0,2}=\"[^\n]{0,3}\"\\})? ?[0-9.e+-]{0,4}\n|[ -~]{0,9}\n){0,6}") {
        drop(parse(&text));
    }

    /// Labels come back whatever is in them.
    #[test]
    fn labels_come_back(value in any::<String>()) {
        let mut page = Page::new();
        page.whole(&SEEN, &[&value], 1);
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let read = parse(&page.text(format)).expect("it was written here");
            prop_assert_eq!(read.value("seen_total", &[("kind", value.as_str())]), Some(1.0));
        }
    }
}
