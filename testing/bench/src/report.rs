//! What was measured, and how it is printed: medians over the runs, and the first target's ratio to the
//! second.

use std::fmt::Write as _;

use serde::Serialize;

use crate::stats;

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Metric {
    pub(crate) const fn new(name: &'static str, unit: &'static str, value: f64) -> Self {
        Self { name, unit, value }
    }
}

/// The figures of one workload at one setting, from one run of one target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) metrics: Vec<Metric>,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Names of the targets; the ratio is the first's to the second's.
    pub(crate) targets: Vec<String>,
    pub(crate) cores: usize,
    /// The 1-minute load average before the first run.
    pub(crate) load_average: Option<f64>,
    pub(crate) cells: Vec<CellSummary>,
}

/// One cell over all runs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct CellSummary {
    pub(crate) name: String,
    pub(crate) metrics: Vec<MetricSummary>,
}

/// One figure over all runs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct MetricSummary {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// By target, in the order of the runs.
    pub(crate) values: Vec<Vec<f64>>,
    /// By target; missing where the target gave no value.
    pub(crate) medians: Vec<Option<f64>>,
    /// The first target's median to the second's.
    pub(crate) ratio: Option<f64>,
}

/// Puts the cells of all runs together. `runs` are pairs of a target's index and one of its cells; the order
/// of cells and metrics is that of their first appearance.
pub(crate) fn summarise(targets: usize, runs: Vec<(usize, Cell)>) -> Vec<CellSummary> {
    let mut summaries: Vec<CellSummary> = Vec::new();
    for (target, cell) in runs {
        let index = summaries.iter().position(|summary| summary.name == cell.name).unwrap_or_else(|| {
            summaries.push(CellSummary { name: cell.name.clone(), metrics: Vec::new() });
            summaries.len() - 1
        });
        for metric in cell.metrics {
            add(&mut summaries[index].metrics, targets, target, &metric);
        }
    }
    for metric in summaries.iter_mut().flat_map(|summary| &mut summary.metrics) {
        metric.medians = metric.values.iter().map(|values| stats::median(values)).collect();
        if let [Some(a), Some(b)] = metric.medians[..] {
            metric.ratio = stats::ratio(a, b);
        }
    }
    summaries
}

fn add(metrics: &mut Vec<MetricSummary>, targets: usize, target: usize, metric: &Metric) {
    let same = |summary: &MetricSummary| summary.name == metric.name && summary.unit == metric.unit;
    let index = metrics.iter().position(same).unwrap_or_else(|| {
        metrics.push(MetricSummary {
            name: metric.name,
            unit: metric.unit,
            values: vec![Vec::new(); targets],
            medians: Vec::new(),
            ratio: None,
        });
        metrics.len() - 1
    });
    metrics[index].values[target].push(metric.value);
}

impl Report {
    /// The report as a table for people.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let load = self.load_average.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.2}"));
        let _ = writeln!(text, "{} cores, load average at the start {load}", self.cores);
        for cell in &self.cells {
            text.push('\n');
            text.push_str(&self.cell_text(cell));
        }
        text
    }

    /// One cell as a table: a column per target, the median with the range of the runs behind it.
    pub(crate) fn cell_text(&self, cell: &CellSummary) -> String {
        let mut text = format!("{:<44}", cell.name);
        for target in &self.targets {
            let _ = write!(text, " {target:>34}");
        }
        if self.targets.len() == 2 {
            let _ = write!(text, "   ratio");
        }
        text.push('\n');
        for metric in &cell.metrics {
            let _ = write!(text, "  {:<26}{:<16}", metric.name, metric.unit);
            for (median, values) in metric.medians.iter().zip(&metric.values) {
                let shown = median.map_or_else(|| "-".to_owned(), |median| with_range(median, values));
                let _ = write!(text, " {shown:>34}");
            }
            if let Some(ratio) = metric.ratio {
                let _ = write!(text, "  {ratio:>6.2}");
            }
            text.push('\n');
        }
        text
    }
}

fn with_range(median: f64, values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.len() < 2 || number(low) == number(high) {
        return number(median);
    }
    format!("{} ({}-{})", number(median), number(low), number(high))
}

/// Three or more significant digits, as far as they say something.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size == 0.0 || size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str, value: f64) -> Cell {
        Cell { name: name.to_owned(), metrics: vec![Metric::new("throughput", "op/s", value)] }
    }

    #[test]
    fn runs_are_summarised_by_cell_and_target() {
        let runs = vec![
            (0, cell("x", 10.0)),
            (1, cell("x", 5.0)),
            (0, cell("x", 30.0)),
            (1, cell("x", 4.0)),
            (0, cell("x", 20.0)),
            (1, cell("x", 100.0)),
        ];
        let summaries = summarise(2, runs);
        assert_eq!(summaries.len(), 1);
        let metric = &summaries[0].metrics[0];
        assert_eq!(metric.values, [vec![10.0, 30.0, 20.0], vec![5.0, 4.0, 100.0]]);
        assert_eq!(metric.medians, [Some(20.0), Some(5.0)]);
        assert_eq!(metric.ratio, Some(4.0));
    }

    #[test]
    fn a_missing_side_gives_no_ratio() {
        let summaries = summarise(2, vec![(1, cell("x", 10.0)), (0, cell("y", 1.0))]);
        assert_eq!(summaries[0].metrics[0].medians, [None, Some(10.0)]);
        assert_eq!(summaries[0].metrics[0].ratio, None);
        assert_eq!(summaries[1].name, "y");
    }

    #[test]
    fn one_target_has_no_ratio() {
        assert_eq!(summarise(1, vec![(0, cell("x", 10.0))])[0].metrics[0].ratio, None);
    }

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        assert_eq!(
            ["0", "0.123", "1.23", "12.3", "123", "12346"],
            [number(0.0), number(0.1234), number(1.234), number(12.34), number(123.4), number(12345.6)]
        );
    }

    #[test]
    fn the_table_shows_medians_ranges_and_the_ratio() {
        let cells = summarise(2, vec![(0, cell("x", 10.0)), (0, cell("x", 20.0)), (1, cell("x", 5.0))]);
        let report = Report { targets: vec!["a".into(), "b".into()], cores: 2, load_average: None, cells };
        let text = report.to_text();
        assert!(text.contains("15.0 (10.0-20.0)"), "{text}");
        assert!(text.trim_end().ends_with("3.00"), "{text}");
    }
}
