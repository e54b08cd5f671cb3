//! Whether something grows: a straight line through the second half of a run.

use serde_json::{Value, json};

/// A second half shorter than this says nothing, in hours: caches still fill, and one fold is half of it.
const HOURS_MIN: f64 = 1.0 / 6.0;
/// What a line may rise within the second half, as a share of its mean, before that is called growth.
const RISE_MAX: f64 = 0.10;

/// Values by time, in hours since the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<(f64, f64)>);

/// The line through the second half of a series.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Fit {
    /// Of the second half.
    mean: f64,
    /// A unit an hour.
    slope: f64,
    /// How long the second half is.
    hours: f64,
}

impl Series {
    pub(crate) fn push(&mut self, hours: f64, value: f64) {
        self.0.push((hours, value));
    }

    /// Least squares over what came after half of the time; `None` without two different times.
    pub(crate) fn second_half(&self) -> Option<Fit> {
        let (begin, end) = (self.0.first()?.0, self.0.last()?.0);
        let middle = f64::midpoint(begin, end);
        let half: Vec<(f64, f64)> = self.0.iter().copied().filter(|(at, _)| *at >= middle).collect();
        let count = float(half.len());
        let mean_at = half.iter().map(|(at, _)| at).sum::<f64>() / count;
        let mean = half.iter().map(|(_, value)| value).sum::<f64>() / count;
        let spread: f64 = half.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let together: f64 = half.iter().map(|(at, value)| (at - mean_at) * (value - mean)).sum();
        Some(Fit { mean, slope: together / spread, hours: end - middle })
    }
}

impl Fit {
    /// Whether it grew; `None` if it is too short to say.
    pub(crate) fn grew(&self, tolerance: f64) -> Option<bool> {
        let rise = self.slope * self.hours;
        (self.hours >= HOURS_MIN).then(|| rise > (RISE_MAX * self.mean).max(tolerance))
    }

    pub(crate) fn to_json(self, tolerance: f64) -> Value {
        json!({"mean": round(self.mean), "per_hour": round(self.slope), "grew": self.grew(tolerance)})
    }

    pub(crate) fn describe(&self, name: &str, unit: &str, tolerance: f64) -> String {
        let verdict = match self.grew(tolerance) {
            Some(true) => "GREW",
            Some(false) => "flat",
            None => "too short to say",
        };
        format!("{name:<28} mean {:>12.1} {unit:<6} {:>+12.2} an hour   {verdict}", self.mean, self.slope)
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(value: impl Fn(f64) -> f64) -> Series {
        let mut series = Series::default();
        for minute in 0..=60 {
            let hours = f64::from(minute) / 60.0;
            series.push(hours, value(hours));
        }
        series
    }

    #[test]
    fn what_grows_in_the_second_half_is_found() {
        let fit = series(|hours| 100.0 + 50.0 * hours).second_half().unwrap();
        assert!((fit.slope - 50.0).abs() < 1e-6 && (fit.hours - 0.5).abs() < 1e-6);
        assert_eq!(fit.grew(0.0), Some(true));
        assert_eq!(fit.grew(30.0), Some(false), "less than what is tolerated");
    }

    #[test]
    fn what_filled_up_in_the_first_half_or_shrinks_is_flat() {
        assert_eq!(series(|hours| 100.0 * hours.min(0.4)).second_half().unwrap().grew(0.0), Some(false));
        assert_eq!(series(|hours| 100.0 - 50.0 * hours).second_half().unwrap().grew(0.0), Some(false));
    }

    #[test]
    fn a_short_run_says_nothing() {
        let mut series = Series::default();
        assert!(series.second_half().is_none());
        series.push(0.0, 1.0);
        assert!(series.second_half().is_none());
        series.push(0.01, 2.0);
        series.push(0.02, 3.0);
        assert_eq!(series.second_half().unwrap().grew(0.0), None);
    }
}
