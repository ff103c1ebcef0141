//! Figures of a set of values.

/// Returns Jain's index of fairness: 1 if all shares are equal, 1/n if one of them is everything;
/// `None` if nothing was shared.
pub fn jain(shares: impl IntoIterator<Item = u64>) -> Option<f64> {
    let mut count = 0.0;
    let mut sum = 0.0;
    let mut squares = 0.0;
    for share in shares {
        let share = share as f64;
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

/// Returns the median, the higher of two in the middle; `None` without values.
pub fn median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_index_measures_fairness() {
        let is = |shares: &[u64], index: f64| {
            jain(shares.iter().copied()).is_some_and(|it| (it - index).abs() < 1e-9)
        };
        assert!(is(&[7, 7, 7], 1.0) && is(&[9, 0, 0], 1.0 / 3.0));
        assert_eq!((jain([]), jain([0, 0])), (None, None));
    }

    #[test]
    fn median_is_in_the_middle() {
        assert_eq!(median(&mut [9, 1, 5]), Some(5));
        assert_eq!(median(&mut [9, 1]), Some(9));
        assert_eq!(median::<u8>(&mut []), None);
    }
}
