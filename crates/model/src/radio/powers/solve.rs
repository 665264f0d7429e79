//! Least squares that says which of its numbers the rows determine.

/// A singular value that is less than this part of the largest one is taken for zero: columns have a
/// length of one, and times are whole nanoseconds, so that smaller ones are rounding errors.
const RANK: f64 = 1e-6;
/// A column is determined where no more than this of its unit vector is outside the row space.
const OUTSIDE: f64 = 1e-4;
/// Two columns are mixed up where the projector onto the null space has more than this for them.
const MIXED: f64 = 1e-3;
/// A value that is less than nothing by no more than this part of the largest one is nothing.
const DUST: f64 = 1e-9;

/// Rows of a linear model and what was seen of each.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub columns: usize,
    /// Row by row.
    pub design: Vec<f64>,
    pub seen: Vec<f64>,
    /// What was taken out of what was seen of each row because of an assumption.
    pub assumed: Vec<f64>,
    /// Whether a row follows the one before it without a gap.
    pub follows: Vec<bool>,
}

/// What is known of a column.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Column {
    /// All of its cells are zero.
    Absent,
    /// It is not in the row space: what these and it come to is known at most.
    Mixed(Vec<usize>),
    /// Its value, which is not negative, what least squares gave without that bound, and its error.
    Told { value: f64, free: f64, error: f64 },
}

#[derive(Clone, Debug)]
pub(super) struct Solved {
    pub columns: Vec<Column>,
    /// The sum of squares that is left.
    pub rest: f64,
    /// The mean square that is left by rows that begin earlier, by these, and by those that begin later,
    /// where values may be negative.
    pub left: [f64; 3],
}

impl System {
    fn rows(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.design.chunks_exact(self.columns.max(1)).zip(self.seen.iter().copied())
    }

    /// Rows taken together in pairs that follow each other.
    fn halved(&self) -> Self {
        let mut half = Self { columns: self.columns, ..Self::default() };
        let mut first: Option<(&[f64], f64)> = None;
        for ((row, seen), follows) in self.rows().zip(&self.follows) {
            let Some((before, sum)) = first.filter(|_| *follows) else {
                first = Some((row, seen));
                continue;
            };
            half.design.extend(before.iter().zip(row).map(|(one, other)| one + other));
            half.seen.push(sum + seen);
            first = None;
        }
        half
    }

    /// The length of each column.
    fn lengths(&self) -> Vec<f64> {
        let mut squares = vec![0.0; self.columns];
        for (row, _) in self.rows() {
            for (square, cell) in squares.iter_mut().zip(row) {
                *square += cell * cell;
            }
        }
        squares.into_iter().map(f64::sqrt).collect()
    }
}

/// Solves by the singular values of the design, whose columns are scaled to a length of one. `shifted`
/// is the same with rows that begin and end a little earlier, and a little later.
///
/// A column is told if and only if its unit vector lies in the row space. No value is negative; where
/// least squares would have one that is, those that are not are fitted again with that bound.
///
/// Errors have four parts, the squares of which are added:
/// - The rows' scatter or, where that makes more, the scatter with its autocorrelation (Bartlett's kernel
///   over 1.3 √n rows, with each row's leverage taken out).
/// - What rows are too short for: a promotion that lasts into the next row gives wrong values that
///   scatter says nothing of. Such errors fall with the length of rows, so that they are twice what rows
///   of twice the length give differently.
/// - What the shifted rows give differently, where any shift between the two is as likely. A value that
///   they do not tell may be anything between nothing and twice itself.
/// - What the assumption changes.
pub(super) fn solve(system: &System, shifted: &[System; 2]) -> Solved {
    let lengths = system.lengths();
    let space = Space::of(system, &lengths);
    let largest = space.solution.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let told: Vec<usize> = (0..system.columns).filter(|place| space.is_told(*place)).collect();
    let is_negative = |place: &usize| space.solution[*place] < -DUST * largest;
    let values = match told.iter().any(is_negative) {
        true => bounded(&space.triangle, &space.right),
        false => space.solution.clone(),
    };
    let (errors, rest) = scatter(system, &lengths, &space, &values, &told);
    let longer = Space::of(&system.halved(), &lengths);
    let shifted = shifted.each_ref().map(|system| Space::of(system, &lengths));
    let mut columns: Vec<Column> = (0..system.columns)
        .map(|place| match lengths[place] > 0.0 {
            true => Column::Mixed(space.mixed(place)),
            false => Column::Absent,
        })
        .collect();
    for (place, error) in told.iter().zip(errors) {
        let value = values[*place].max(0.0);
        let differs = |other: &Space| {
            other.is_told(*place).then(|| (other.solution[*place] - space.solution[*place]).abs())
        };
        let late = shifted.iter().filter_map(differs).reduce(f64::max).unwrap_or(value);
        let short = 2.0 * differs(&longer).unwrap_or(0.0);
        let error = error.hypot(short).hypot(late / 3.0_f64.sqrt());
        let free = if is_negative(place) { space.solution[*place] } else { value };
        columns[*place] = Column::Told {
            value: value / lengths[*place],
            free: free / lengths[*place],
            error: error / lengths[*place],
        };
    }
    let left = [&shifted[0], &space, &shifted[1]].map(Space::left);
    Solved { columns, rest, left }
}

/// The errors that the rows' scatter and the assumption make in columns that are told, and the sum of
/// squares that is left.
fn scatter(
    system: &System,
    lengths: &[f64],
    space: &Space,
    values: &[f64],
    told: &[usize],
) -> (Vec<f64>, f64) {
    let count = system.seen.len();
    let inverse = space.inverse();
    let reach = ((1.3 * (count as f64).sqrt()).ceil() as usize).clamp(1, count.max(1));
    let mut rest = 0.0;
    // Of each column, what each of the last rows has added to it, their sum, and the sum of squares of
    // such sums, which begin before the first row and end behind the last one.
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
            let left = seen - dot(&row, values);
            rest += left * left;
            let pulls: Vec<f64> = inverse.iter().map(|line| dot(line, &row)).collect();
            let leverage = dot(&row, &pulls).clamp(0.0, 0.999);
            for (change, column) in changes.iter_mut().zip(told) {
                *change += pulls[*column] * assumed;
            }
            (pulls, left / (1.0 - leverage))
        });
        let slot = number % reach * told.len();
        for (place, column) in told.iter().enumerate() {
            let new = pull.as_ref().map_or(0.0, |(pulls, left)| pulls[*column] * left);
            sums[place] += new - added[slot + place];
            added[slot + place] = new;
            squares[place] += sums[place] * sums[place];
        }
    }
    let free = count.saturating_sub(space.rank).max(1);
    let error = |((column, square), change): ((&usize, &f64), &f64)| {
        let plain = rest / free as f64 * inverse[*column][*column];
        plain.max(square / reach as f64).sqrt().hypot(*change)
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

/// The row space of a design with scaled columns.
struct Space {
    /// The design's upper triangle, row by row, and what was seen, turned the same way.
    triangle: Vec<Vec<f64>>,
    right: Vec<f64>,
    /// The singular values that are not zero, with their right vectors.
    values: Vec<(f64, Vec<f64>)>,
    rank: usize,
    /// The projector onto the null space.
    null: Vec<Vec<f64>>,
    /// The shortest of all solutions.
    solution: Vec<f64>,
    /// Rows, and the sum of squares that the solution leaves of them.
    count: usize,
    rest: f64,
}

impl Space {
    fn of(system: &System, lengths: &[f64]) -> Self {
        let columns = system.columns;
        let (triangle, right, mut rest) = triangle(system, lengths);
        let mut unexplained = right.clone();
        let all = singular(&triangle);
        let largest = all.iter().fold(0.0, |most: f64, (value, ..)| most.max(*value));
        let mut solution = vec![0.0; columns];
        let mut null = vec![vec![0.0; columns]; columns];
        (0..columns).for_each(|place| null[place][place] = 1.0);
        let mut values = Vec::new();
        for (value, left, vector) in all {
            if value <= RANK * largest {
                continue;
            }
            let along = dot(&left, &right);
            let part = along / value;
            unexplained.iter_mut().zip(&left).for_each(|(cell, turn)| *cell -= along * turn);
            for (place, cell) in vector.iter().enumerate() {
                solution[place] += part * cell;
                for (projected, other) in null[place].iter_mut().zip(&vector) {
                    *projected -= cell * other;
                }
            }
            values.push((value, vector));
        }
        rest += dot(&unexplained, &unexplained);
        let (rank, count) = (values.len(), system.seen.len());
        Self { triangle, right, values, rank, null, solution, count, rest }
    }

    /// The mean square that is left.
    fn left(&self) -> f64 {
        self.rest / self.count.max(1) as f64
    }

    fn is_told(&self, place: usize) -> bool {
        self.null[place][place] < OUTSIDE * OUTSIDE
    }

    /// The others of which a column cannot be told apart.
    fn mixed(&self, place: usize) -> Vec<usize> {
        let others = (0..self.null.len()).filter(|other| *other != place);
        others.filter(|other| self.null[place][*other].abs() > MIXED).collect()
    }

    /// The pseudo-inverse of the normal matrix.
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

/// Turns all rows into an upper triangle by Givens rotations, which lose no digits as the squares of
/// the normal equations do.
///
/// Gives the triangle, what was seen turned the same way, and the sum of squares of what is left of that.
fn triangle(system: &System, lengths: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>, f64) {
    let columns = system.columns;
    let mut triangle = vec![vec![0.0; columns]; columns];
    let mut right = vec![0.0; columns];
    let mut rest = 0.0;
    for (row, mut seen) in system.rows() {
        let mut row = scaled(row, lengths);
        for place in 0..columns {
            let length = f64::hypot(triangle[place][place], row[place]);
            if row[place] == 0.0 {
                continue;
            }
            let (cosine, sine) = (triangle[place][place] / length, row[place] / length);
            let turn = |kept: &mut f64, cell: &mut f64| {
                (*kept, *cell) = (cosine * *kept + sine * *cell, cosine * *cell - sine * *kept);
            };
            for other in place..columns {
                turn(&mut triangle[place][other], &mut row[other]);
            }
            turn(&mut right[place], &mut seen);
        }
        rest += seen * seen;
    }
    (triangle, right, rest)
}

/// The singular values of a square matrix with their left and right vectors, by one-sided Jacobi
/// rotations, which are exact also for small ones. Those that are zero have no left vector.
fn singular(matrix: &[Vec<f64>]) -> Vec<(f64, Vec<f64>, Vec<f64>)> {
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
                    [one, other].map(|place| dot(&columns[place], &columns[place]));
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

/// Least squares without negative values (C. Lawson and R. Hanson, Solving Least Squares Problems,
/// chapter 23), where some columns may depend on others.
fn bounded(triangle: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let columns = right.len();
    let gradient = |values: &[f64]| {
        let left: Vec<f64> =
            triangle.iter().zip(right).map(|(row, seen)| seen - dot(row, values)).collect();
        let mut pulls = vec![0.0; columns];
        for (row, left) in triangle.iter().zip(left) {
            pulls.iter_mut().zip(row).for_each(|(pull, cell)| *pull += cell * left);
        }
        pulls
    };
    let least = f64::EPSILON * columns as f64 * dot(right, right).sqrt();
    let mut values = vec![0.0; columns];
    let mut is_free = vec![false; columns];
    // Each round frees one; more than these come only of rounding errors.
    for _ in 0..10 * columns {
        let pulls = gradient(&values);
        let bound = (0..columns).filter(|place| !is_free[*place] && pulls[*place] > least);
        let Some(next) = bound.max_by(|one, other| pulls[*one].total_cmp(&pulls[*other])) else {
            break;
        };
        is_free[next] = true;
        loop {
            let wanted = within(triangle, right, &is_free);
            // How far to go until each one that falls is nothing.
            let shares: Vec<f64> = (0..columns)
                .map(|place| match is_free[place] && wanted[place] <= 0.0 {
                    true => values[place] / (values[place] - wanted[place]).max(f64::MIN_POSITIVE),
                    false => f64::INFINITY,
                })
                .collect();
            let first = shares.iter().copied().fold(1.0, f64::min);
            let is_bound = shares.iter().any(|share| share.is_finite());
            for place in 0..columns {
                if !is_free[place] {
                    continue;
                }
                values[place] += first * (wanted[place] - values[place]);
                if shares[place] <= first {
                    values[place] = 0.0;
                    is_free[place] = false;
                }
            }
            if !is_bound {
                break;
            }
        }
    }
    values
}

/// The shortest solution in which only some columns have a value.
fn within(triangle: &[Vec<f64>], right: &[f64], is_free: &[bool]) -> Vec<f64> {
    let only = |row: &Vec<f64>| {
        let cells = row.iter().zip(is_free);
        cells.map(|(cell, is_free)| if *is_free { *cell } else { 0.0 }).collect::<Vec<f64>>()
    };
    let all = singular(&triangle.iter().map(only).collect::<Vec<_>>());
    let largest = all.iter().fold(0.0, |most: f64, (value, ..)| most.max(*value));
    let mut values = vec![0.0; right.len()];
    for (value, left, vector) in all.iter().filter(|(value, ..)| *value > RANK * largest) {
        let part = dot(left, right) / value;
        for (sum, cell) in values.iter_mut().zip(vector) {
            *sum += part * cell;
        }
    }
    values
}

#[cfg(test)]
mod tests;
