//! Many comparisons at once: which of them stand.

/// Which of the probabilities are significant together (Benjamini and Hochberg, 1995): at most a share `rate` of
/// the significant ones is expected to be false, and with no true difference at all, a false one in a share
/// `rate` of gates.
pub(super) fn significant(probabilities: &[f64], rate: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let limit = |place: usize| rate * (place + 1) as f64 / probabilities.len() as f64;
    let last = order.iter().enumerate().rev().find(|(place, index)| probabilities[**index] <= limit(*place));
    let mut stands = vec![false; probabilities.len()];
    if let Some((last, _)) = last {
        order[..=last].iter().for_each(|index| stands[*index] = true);
    }
    stands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_comes_out() {
        // The fifteen values of the paper's example; the four smallest stand at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let stands = significant(&p, 0.05);
        assert_eq!(stands.iter().filter(|s| **s).count(), 4);
        assert!(stands[..4].iter().all(|s| *s));
    }

    #[test]
    fn a_larger_one_stands_when_a_later_one_carries_it() {
        assert_eq!(significant(&[0.04, 0.03], 0.05), [true, true]);
        assert_eq!(significant(&[0.06, 0.03], 0.05), [false, false]);
        assert_eq!(significant(&[], 0.05), Vec::<bool>::new());
    }
}
