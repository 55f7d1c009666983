//! What differs from run to run although nothing changed.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::shift::median;

/// Runs below which their spread says nothing.
pub(super) const RUNS_MIN: usize = 3;

/// The spread of runs of one thing, in steps of the scale on which up is worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    /// Step that a further run goes beyond, by chance alone, with the probability asked for.
    pub(super) reach: f64,
    /// Step below which a further run stays with 95 % probability.
    pub(super) usual: f64,
}

/// The spread of the medians of `runs`; `None` below [`RUNS_MIN`] runs.
///
/// The reach is the upper prediction limit of one further run (Student's t), for the chance of a false alarm in
/// one comparison, and never less than the largest difference between two of the runs.
pub(super) fn noise(runs: &[Vec<f64>], chance: f64) -> Option<Noise> {
    let medians: Vec<f64> = runs.iter().filter_map(|run| median(&mut run.clone())).collect();
    if medians.len() < RUNS_MIN {
        return None;
    }
    let count = medians.len() as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let variance = medians.iter().map(|median| (median - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let error = (variance * (1.0 + 1.0 / count)).sqrt();
    let (low, high) =
        medians.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), m| (low.min(*m), high.max(*m)));
    let reach = (student.inverse_cdf(1.0 - chance) * error).max(high - low);
    Some(Noise { reach, usual: student.inverse_cdf(0.95) * error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_lies_above_everything_that_was_seen() {
        let runs: Vec<Vec<f64>> = [1.0, 1.02, 0.97, 1.05, 1.0].iter().map(|m| vec![*m; 5]).collect();
        let found = noise(&runs, 0.05).unwrap();
        assert!(found.reach >= 0.08 && found.usual <= found.reach, "{found:?}");
        assert!(noise(&runs, 0.001).unwrap().reach > found.reach);
    }

    #[test]
    fn equal_runs_have_none_and_two_runs_say_nothing() {
        let equal = vec![vec![1.0, 2.0, 3.0]; 4];
        assert!(noise(&equal, 0.01).unwrap().reach.abs() < 1e-12);
        assert_eq!(noise(&equal[..2], 0.01), None);
    }
}
