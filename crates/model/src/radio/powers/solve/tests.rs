use manyways_unit::Random;
use proptest::prelude::*;

use super::*;

fn system(columns: usize, rows: &[Vec<f64>], seen: &[f64]) -> System {
    System {
        columns,
        design: rows.concat(),
        measured: seen.to_vec(),
        assumed: vec![0.0; seen.len()],
        is_consecutive: (0..seen.len()).map(|row| row > 0).collect(),
    }
}

/// The solution with unshifted rows as the shifted ones.
fn solved(system: &System) -> Vec<Column> {
    solve(system, &[system.clone(), system.clone()]).columns
}

fn value(column: &Column) -> Option<f64> {
    match column {
        Column::Determined { value, .. } => Some(*value),
        _ => None,
    }
}

#[test]
fn of_columns_that_are_not_apart_only_those_are_named() {
    // The second column is twice the first, the fourth is the sum of the first and the fifth, the
    // last is zero.
    let mut random = Random::new(2);
    let mut row = || {
        let [one, other, third] = [random.uniform(), random.uniform(), random.uniform()];
        vec![one, 2.0 * one, other, one + third, third, 0.0]
    };
    let rows: Vec<Vec<f64>> = (0..40).map(|_| row()).collect();
    let seen: Vec<f64> = rows.iter().map(|row| 3.0 * row[2] + row[0] + 2.0 * row[4]).collect();
    let columns = solved(&system(6, &rows, &seen));
    assert_eq!(columns[0], Column::Indistinguishable(vec![1, 3, 4]));
    assert_eq!(columns[1], Column::Indistinguishable(vec![0, 3, 4]));
    assert!((value(&columns[2]).unwrap() - 3.0).abs() < 1e-12, "{columns:?}");
    assert_eq!(columns[3], Column::Indistinguishable(vec![0, 1, 4]));
    assert_eq!(columns[4], Column::Indistinguishable(vec![0, 1, 3]));
    assert_eq!(columns[5], Column::Absent);
}

/// A bound at zero would fit 3.5 to the first column, and its error would not tell.
#[test]
fn a_negative_value_does_not_change_the_others() {
    let rows: Vec<Vec<f64>> = (0..8).map(|row| vec![1.0, f64::from(row)]).collect();
    let seen: Vec<f64> = (0..8).map(|row| 7.0 - f64::from(row)).collect();
    let columns = solved(&system(2, &rows, &seen));
    let [first, slope] = [0, 1].map(|index| value(&columns[index]).unwrap());
    assert!((first - 7.0).abs() < 1e-12 && (slope + 1.0).abs() < 1e-12, "{columns:?}");
}

/// The error of a value whose rows contain no other column is derived from the scatter of all rows.
#[test]
fn a_row_that_is_explained_by_one_column_alone_is_not_certain() {
    let mut random = Random::new(4);
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0, 0.0]; 60];
    rows.push(vec![1.0, 1.0]);
    let mut noise = || random.uniform() - 0.5;
    let mut seen: Vec<f64> = (0..60).map(|_| 5.0 + noise()).collect();
    seen.push(9.0);
    let Column::Determined { error, .. } = solved(&system(2, &rows, &seen))[1] else { panic!() };
    assert!((0.2..0.5).contains(&error), "{error}");
}

#[test]
fn what_the_assumption_takes_is_told() {
    let rows = vec![vec![2.0]; 20];
    let mut system = system(1, &rows, &[5.0; 20]);
    system.assumed = vec![0.3; 20];
    let Column::Determined { value, error, assumption } = solved(&system)[0] else { panic!() };
    assert!((value - 2.5).abs() < 1e-12 && error < 1e-12, "{value} {error}");
    assert!((assumption - 0.15).abs() < 1e-12, "{assumption}");
}

proptest! {
    /// Whether a column is determined does not depend on its scale or that of its rows.
    #[test]
    fn units_do_not_matter(seed in any::<u64>(), scale in -9..9_i32) {
        let mut random = Random::new(seed);
        let mut row = || {
            let [one, other] = [random.uniform(), random.uniform()];
            vec![one, other, one + other, random.uniform()]
        };
        let rows: Vec<Vec<f64>> = (0..30).map(|_| row()).collect();
        let seen: Vec<f64> = rows.iter().map(|row| row.iter().sum()).collect();
        let factor = 10_f64.powi(scale);
        let scaled: Vec<Vec<f64>> =
            rows.iter().map(|row| vec![row[0] * factor, row[1], row[2], row[3]]).collect();
        let [before, after] = [&rows, &scaled].map(|rows| solved(&system(4, rows, &seen)));
        for (one, other) in before.iter().zip(&after) {
            prop_assert_eq!(value(one).is_some(), value(other).is_some());
        }
        prop_assert!((value(&before[3]).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_panics(
        rows in prop::collection::vec(prop::collection::vec(-1e6..1e6_f64, 3), 0..20), seen in -1e9..1e9_f64,
    ) {
        let seen = vec![seen; rows.len()];
        let _ = solved(&system(3, &rows, &seen));
    }
}
