//! The little arithmetic of the report: medians, ratios, latencies from histograms.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is told apart from longer ones, in nanoseconds (10 minutes).
const LATENCY_NANOS_MAX: u64 = 600_000_000_000;
/// Significant decimal digits kept by histograms.
const LATENCY_DIGITS: u8 = 3;

/// The middle of `values`, or the mean of the two in the middle. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// `a / b`; `None` where that says nothing.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0 && a.is_finite() && b.is_finite()).then(|| a / b)
}

/// Latencies of one kind of operation.
#[derive(Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, LATENCY_DIGITS)
            .expect("the bounds are constants that the histogram accepts");
        Self { histogram }
    }

    /// Counts one operation; longer than the limit counts as the limit.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.clamp(1, LATENCY_NANOS_MAX));
    }

    /// Adds what another has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.histogram += &other.histogram;
    }

    /// How many were counted.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `quantile` (0 to 1) of the operations stayed within, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "three digits are kept, a double has fifteen")]
    pub(crate) fn millis(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// A count as a number to divide with.
#[expect(clippy::cast_precision_loss, reason = "counts of operations and bytes are far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_ratio_needs_something_to_divide_by() {
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(3.0, 0.0), None);
        assert_eq!(ratio(f64::NAN, 1.0), None);
    }

    #[test]
    fn quantiles_are_those_of_the_recorded_latencies() {
        let mut latencies = Latencies::new();
        for millis in 1..=100 {
            latencies.record(Duration::from_millis(millis));
        }
        assert_eq!(latencies.count(), 100);
        assert!((latencies.millis(0.5) - 50.0).abs() < 0.1);
        assert!((latencies.millis(0.99) - 99.0).abs() < 0.1);
    }

    #[test]
    fn latencies_beyond_the_limits_are_counted_at_the_limits() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.count(), 2);
        assert!(latencies.millis(1.0) >= 599_000.0);
    }
}
