//! Suggests the known name that is closest to a mistyped one.

/// Returns the candidate closest to `word`. `None` if more than a third of its letters (at least
/// one, at most three) differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word far longer than every name is not a typing mistake. The limit also bounds the work.
    if word.len() > 40 {
        return None;
    }
    let word = word.to_lowercase().replace('_', "-");
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters inserted, removed, replaced, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = ["delay", "down", "up", "queue", "down-delay", "metered"];
        assert_eq!(nearest("deley", names), Some("delay"));
        assert_eq!(nearest("quee", names), Some("queue"));
        assert_eq!(nearest("down_delay", names), Some("down-delay"));
        assert_eq!(nearest("pu", names), Some("up"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
