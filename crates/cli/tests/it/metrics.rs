//! What is written about metrics agrees with what there is: the dashboard and the page.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::support::Cli;

/// A metric, as the documentation's table has it.
struct Known {
    kind: String,
    labels: Vec<String>,
}

/// Every metric that the program knows, by name.
fn known() -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    for command in ["config metrics", "config jetstream-metrics"] {
        let table = String::from_utf8(Cli::new(command).run().stdout).unwrap();
        for row in table.lines().skip(2) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [name, kind, labels, ..] = cells[..] else { panic!("{row}") };
            let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
            known.insert(name.trim_matches('`').to_owned(), Known { kind: kind.to_owned(), labels });
        }
    }
    assert!(known.len() > 80, "{} metrics", known.len());
    known
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating").join(name);
    fs::read_to_string(path).unwrap()
}

/// Every expression of a dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// The words of an expression that name metrics, each with what stands in the braces behind it.
fn metrics(expression: &str) -> Vec<(String, String)> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_word) {
        let word: String = rest[start..].chars().take_while(|letter| is_word(*letter)).collect();
        rest = &rest[start + word.len()..];
        if ["alluvium_", "jetstream_", "process_"].iter().any(|prefix| word.starts_with(prefix)) {
            let braces = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
            found.push((word, braces.unwrap_or_default().to_owned()));
        }
    }
    found
}

#[test]
fn the_dashboard_shows_what_there_is_and_nothing_else() {
    let known = known();
    let dashboard: Value = serde_json::from_str(&page("grafana.json")).unwrap();
    let mut all = Vec::new();
    expressions(&dashboard["panels"], &mut all);
    assert!(all.len() > 50, "{} expressions", all.len());
    for expression in &all {
        let named = metrics(expression);
        assert!(!named.is_empty(), "{expression}");
        for (name, braces) in named {
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let (base, is_histogram) = match of_histogram {
                Some(base) if known.contains_key(base) => (base, true),
                _ => (name.as_str(), false),
            };
            let metric = known.get(base).unwrap_or_else(|| panic!("`{name}` is no metric: {expression}"));
            assert_eq!(is_histogram, metric.kind == "histogram", "{expression}");
            // What grows without end is shown as a rate, or as a rate of its buckets.
            if metric.kind != "gauge" {
                assert!(expression.contains("rate("), "{expression}");
            }
            let matchers = braces.split(',').filter_map(|matcher| matcher.split(['=', '!']).next());
            let by = expression.split("by (").nth(1).and_then(|rest| rest.split(')').next());
            let by = by.unwrap_or_default().split(", ").filter(|label| !label.is_empty());
            for label in matchers.chain(by).filter(|label| !label.is_empty()) {
                let always = ["job", "instance"].contains(&label) || (label == "le" && is_histogram);
                let has = metric.labels.iter().any(|known| known == label);
                assert!(always || has, "`{name}` has no label `{label}`: {expression}");
            }
        }
    }
}

#[test]
fn every_metric_is_on_the_page_and_most_are_on_the_dashboard() {
    let (written, dashboard) = (page("metrics.md"), page("grafana.json"));
    let known = known();
    for (name, metric) in &known {
        assert!(written.contains(&format!("| `{name}` | {} |", metric.kind)), "`{name}` is not documented");
    }
    let shown = known.keys().filter(|name| dashboard.contains(name.as_str())).count();
    assert!(shown * 2 > known.len(), "only {shown} of {} are on the dashboard", known.len());
}
