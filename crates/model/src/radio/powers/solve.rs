//! Least squares that reports which values the rows determine.

/// Singular values below this part of the largest one count as zero. Columns have unit length and
/// times are whole nanoseconds, so smaller values are rounding errors.
const RANK_TOLERANCE: f64 = 1e-6;
/// A column is determined if at most this part of its unit vector is outside the row space.
const ROW_SPACE_TOLERANCE: f64 = 1e-4;
/// Two columns are not distinguishable if their entry in the projector onto the null space exceeds
/// this.
const NULL_SPACE_TOLERANCE: f64 = 1e-3;
/// Negative values above minus this part of the largest one count as zero.
const ZERO_TOLERANCE: f64 = 1e-9;

/// A linear model: design matrix and measured value of each row.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub columns: usize,
    /// In row-major order.
    pub design: Vec<f64>,
    pub measured: Vec<f64>,
    /// Part that was subtracted from each measured value for an assumption.
    pub assumed: Vec<f64>,
    /// Whether a row follows the previous one without a gap in time.
    pub is_consecutive: Vec<bool>,
}

/// Result for one column.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Column {
    /// All cells are zero.
    Absent,
    /// Not in the row space: only combinations with these columns are determined.
    Indistinguishable(Vec<usize>),
    /// `value` can be negative, `error` is its standard error, and `assumption` what the value
    /// would be larger by without the assumption.
    Determined { value: f64, error: f64, assumption: f64 },
}

#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub columns: Vec<Column>,
    /// Residual sum of squares.
    pub residual: f64,
    /// Residual mean squares of rows that start earlier, of these rows, and of later ones.
    pub mean_squares: [f64; 3],
}

impl System {
    fn rows(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.design.chunks_exact(self.columns.max(1)).zip(self.measured.iter().copied())
    }

    /// Merges pairs of consecutive rows.
    fn merge_pairs(&self) -> Self {
        let mut half = Self { columns: self.columns, ..Self::default() };
        let mut first: Option<(&[f64], f64)> = None;
        for ((row, seen), follows) in self.rows().zip(&self.is_consecutive) {
            let Some((before, sum)) = first.filter(|_| *follows) else {
                first = Some((row, seen));
                continue;
            };
            half.design.extend(before.iter().zip(row).map(|(one, other)| one + other));
            half.measured.push(sum + seen);
            first = None;
        }
        half
    }

    /// Euclidean length of each column.
    fn column_lengths(&self) -> Vec<f64> {
        let mut squares = vec![0.0; self.columns];
        for (row, _) in self.rows() {
            for (square, cell) in squares.iter_mut().zip(row) {
                *square += cell * cell;
            }
        }
        squares.into_iter().map(f64::sqrt).collect()
    }
}

/// Solves by the singular value decomposition of the design, with columns scaled to unit length.
/// `shifted` contains the same rows started a little earlier, and a little later.
///
/// A column is determined if and only if its unit vector lies in the row space. A negative value
/// remains: clocks that disagree by half a sample make a small energy negative, and a fit with a
/// bound at zero would move the difference into the other columns, beyond their errors.
///
/// Errors are the root of the sum of the squares of three parts:
/// - The scatter of the rows or, if larger, the scatter with its autocorrelation (Bartlett's kernel
///   over 1.3 √n rows, corrected for the leverage of each row).
/// - The effect of short rows: a promotion that lasts into the next row biases values without
///   scatter. This bias decreases with the length of rows, so it is estimated as twice the
///   difference to rows of twice the length.
/// - The difference to the shifted rows, if all shifts between the two are equally likely. If the
///   shifted rows do not determine a value, the true one is assumed to lie between zero and twice
///   the value.
pub(super) fn solve(system: &System, shifted: &[System; 2]) -> Solution {
    let lengths = system.column_lengths();
    let space = RowSpace::of(system, &lengths);
    let largest = space.solution.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let told: Vec<usize> =
        (0..system.columns).filter(|index| space.is_determined(*index)).collect();
    let (errors, rest) = add_errors(system, &lengths, &space, &told);
    let longer = RowSpace::of(&system.merge_pairs(), &lengths);
    let shifted = shifted.each_ref().map(|system| RowSpace::of(system, &lengths));
    let mut columns: Vec<Column> = (0..system.columns)
        .map(|index| match lengths[index] > 0.0 {
            true => Column::Indistinguishable(space.indistinguishable_from(index)),
            false => Column::Absent,
        })
        .collect();
    for (index, (error, assumption)) in told.iter().zip(errors) {
        let solved = space.solution[*index];
        let is_zero = solved < 0.0 && solved >= -ZERO_TOLERANCE * largest;
        let value = if is_zero { 0.0 } else { solved };
        let differs = |other: &RowSpace| {
            other
                .is_determined(*index)
                .then(|| (other.solution[*index] - space.solution[*index]).abs())
        };
        let late = shifted.iter().filter_map(differs).reduce(f64::max).unwrap_or(value.abs());
        let short = 2.0 * differs(&longer).unwrap_or(0.0);
        let error = error.hypot(short).hypot(late / 3.0_f64.sqrt());
        columns[*index] = Column::Determined {
            value: value / lengths[*index],
            error: error / lengths[*index],
            assumption: assumption / lengths[*index],
        };
    }
    let left = [&shifted[0], &space, &shifted[1]].map(RowSpace::mean_square);
    Solution { columns, residual: rest, mean_squares: left }
}

/// The errors of the determined columns from scatter, what the assumption takes from each, and the
/// residual sum of squares.
fn add_errors(
    system: &System,
    lengths: &[f64],
    space: &RowSpace,
    told: &[usize],
) -> (Vec<(f64, f64)>, f64) {
    let count = system.measured.len();
    let inverse = space.inverse();
    let reach = ((1.3 * (count as f64).sqrt()).ceil() as usize).clamp(1, count.max(1));
    let mut rest = 0.0;
    // For each column: contributions of the last rows, the sum of these, and the sum of squares of
    // all these sums, from before the first row to after the last one.
    let mut added = vec![0.0; reach * told.len()];
    let mut sums = vec![0.0; told.len()];
    let mut squares = vec![0.0; told.len()];
    let mut changes = vec![0.0; told.len()];
    let assumed = system.assumed.iter().copied();
    let scaled_rows = system
        .rows()
        .zip(assumed)
        .map(|((row, seen), assumed)| (scaled(row, lengths), seen, assumed));
    for (number, one) in scaled_rows.map(Some).chain((1..reach).map(|_| None)).enumerate() {
        let pull = one.map(|(row, seen, assumed)| {
            let remaining = seen - dot(&row, &space.solution);
            rest += remaining * remaining;
            let pulls: Vec<f64> = inverse.iter().map(|line| dot(line, &row)).collect();
            let leverage = dot(&row, &pulls).clamp(0.0, 0.999);
            for (change, column) in changes.iter_mut().zip(told) {
                *change += pulls[*column] * assumed;
            }
            (pulls, remaining / (1.0 - leverage))
        });
        let slot = number % reach * told.len();
        for (index, column) in told.iter().enumerate() {
            let new = pull.as_ref().map_or(0.0, |(pulls, remaining)| pulls[*column] * remaining);
            sums[index] += new - added[slot + index];
            added[slot + index] = new;
            squares[index] += sums[index] * sums[index];
        }
    }
    let free = count.saturating_sub(space.rank).max(1);
    let error = |((column, square), change): ((&usize, &f64), &f64)| {
        let plain = rest / free as f64 * inverse[*column][*column];
        (plain.max(square / reach as f64).sqrt(), *change)
    };
    (told.iter().zip(&squares).zip(&changes).map(error).collect(), rest)
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn scaled(row: &[f64], lengths: &[f64]) -> Vec<f64> {
    let scaled = |(cell, length): (&f64, &f64)| if *length > 0.0 { cell / length } else { 0.0 };
    row.iter().zip(lengths).map(scaled).collect()
}

/// Row space of a design with scaled columns.
struct RowSpace {
    /// Non-zero singular values with their right vectors.
    values: Vec<(f64, Vec<f64>)>,
    rank: usize,
    /// Projector onto the null space.
    null: Vec<Vec<f64>>,
    /// The minimum-norm solution.
    solution: Vec<f64>,
    /// Number of rows, and their residual sum of squares.
    count: usize,
    residual: f64,
}

impl RowSpace {
    fn of(system: &System, lengths: &[f64]) -> Self {
        let columns = system.columns;
        let (triangle, right, mut rest) = triangulate(system, lengths);
        let mut unexplained = right.clone();
        let all = singular_values(&triangle);
        let largest = all.iter().fold(0.0, |most: f64, (value, ..)| most.max(*value));
        let mut solution = vec![0.0; columns];
        let mut null = vec![vec![0.0; columns]; columns];
        (0..columns).for_each(|index| null[index][index] = 1.0);
        let mut values = Vec::new();
        for (value, left, vector) in all {
            if value <= RANK_TOLERANCE * largest {
                continue;
            }
            let along = dot(&left, &right);
            let part = along / value;
            unexplained.iter_mut().zip(&left).for_each(|(cell, turn)| *cell -= along * turn);
            for (index, cell) in vector.iter().enumerate() {
                solution[index] += part * cell;
                for (projected, other) in null[index].iter_mut().zip(&vector) {
                    *projected -= cell * other;
                }
            }
            values.push((value, vector));
        }
        rest += dot(&unexplained, &unexplained);
        let (rank, count) = (values.len(), system.measured.len());
        Self { values, rank, null, solution, count, residual: rest }
    }

    /// Residual mean square.
    fn mean_square(&self) -> f64 {
        self.residual / self.count.max(1) as f64
    }

    fn is_determined(&self, index: usize) -> bool {
        self.null[index][index] < ROW_SPACE_TOLERANCE * ROW_SPACE_TOLERANCE
    }

    /// The columns from which this one is not distinguishable.
    fn indistinguishable_from(&self, index: usize) -> Vec<usize> {
        let others = (0..self.null.len()).filter(|other| *other != index);
        others.filter(|other| self.null[index][*other].abs() > NULL_SPACE_TOLERANCE).collect()
    }

    /// Pseudo-inverse of the normal matrix.
    fn inverse(&self) -> Vec<Vec<f64>> {
        let mut inverse = vec![vec![0.0; self.null.len()]; self.null.len()];
        for (value, vector) in &self.values {
            for (row, one) in inverse.iter_mut().zip(vector) {
                for (cell, other) in row.iter_mut().zip(vector) {
                    *cell += one * other / (value * value);
                }
            }
        }
        inverse
    }
}

/// Reduces all rows to an upper triangle by Givens rotations, which keep the digits that the
/// squares of the normal equations would lose.
///
/// Returns the triangle, the rotated measured values, and the residual sum of squares.
fn triangulate(system: &System, lengths: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>, f64) {
    let columns = system.columns;
    let mut triangle = vec![vec![0.0; columns]; columns];
    let mut right = vec![0.0; columns];
    let mut rest = 0.0;
    for (row, mut seen) in system.rows() {
        let mut row = scaled(row, lengths);
        for index in 0..columns {
            let length = f64::hypot(triangle[index][index], row[index]);
            if row[index] == 0.0 {
                continue;
            }
            let (cosine, sine) = (triangle[index][index] / length, row[index] / length);
            let turn = |kept: &mut f64, cell: &mut f64| {
                (*kept, *cell) = (cosine * *kept + sine * *cell, cosine * *cell - sine * *kept);
            };
            for other in index..columns {
                turn(&mut triangle[index][other], &mut row[other]);
            }
            turn(&mut right[index], &mut seen);
        }
        rest += seen * seen;
    }
    (triangle, right, rest)
}

/// Singular value decomposition of a square matrix by one-sided Jacobi rotations, which are
/// accurate for small values too. Zero values do not have a left vector.
fn singular_values(matrix: &[Vec<f64>]) -> Vec<(f64, Vec<f64>, Vec<f64>)> {
    const SWEEPS: usize = 60;
    let size = matrix.len();
    let column = |place: usize| matrix.iter().map(|row| row[place]).collect::<Vec<f64>>();
    let mut columns: Vec<Vec<f64>> = (0..size).map(column).collect();
    let unit = |place: usize| (0..size).map(|row| f64::from(u8::from(row == place))).collect();
    let mut vectors: Vec<Vec<f64>> = (0..size).map(unit).collect();
    for _ in 0..SWEEPS {
        let mut is_done = true;
        for one in 0..size {
            for other in one + 1..size {
                let [first, second] =
                    [one, other].map(|index| dot(&columns[index], &columns[index]));
                let both = dot(&columns[one], &columns[other]);
                if both.abs() <= f64::EPSILON * (first * second).sqrt() {
                    continue;
                }
                is_done = false;
                let zeta = (second - first) / (2.0 * both);
                let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = cosine * tangent;
                for all in [&mut columns, &mut vectors] {
                    let (left, right) = all.split_at_mut(other);
                    for (kept, cell) in left[one].iter_mut().zip(&mut right[0]) {
                        (*kept, *cell) =
                            (cosine * *kept - sine * *cell, sine * *kept + cosine * *cell);
                    }
                }
            }
        }
        if is_done {
            break;
        }
    }
    let length = |column: &[f64]| dot(column, column).sqrt();
    let all = columns.into_iter().zip(vectors).map(|(mut column, vector)| {
        let value = length(&column);
        if value > 0.0 {
            column.iter_mut().for_each(|cell| *cell /= value);
        }
        (value, column, vector)
    });
    all.collect()
}

#[cfg(test)]
mod tests;
