//! Fits positive numbers to times that depend on them: the likeliest numbers, and how sure they are.
//!
//! In: for each measured time, the logarithm of measured by expected time, and the part that each number has
//! in it (the derivative of the logarithm of the expected time by the logarithm of the number). Out: steps of
//! Gauss and Newton on the logarithms of the numbers, and a root of their covariance. Minimised is the sum of
//! squared errors of logarithms and of squared distances from a prior.
//!
//! Pure arithmetic, with logarithms that are the same on every machine.

/// Nine in ten values of a normal distribution are within this many standard deviations.
pub(super) const NINE_IN_TEN: f64 = 1.645;
/// Four in five values of a normal distribution are within this many standard deviations.
const FOUR_IN_FIVE: f64 = 1.282;
/// Noise of a time (standard deviation of its logarithm) that is assumed; how many observations the
/// assumption counts for; and the least noise that is believed.
pub(super) const NOISE_ASSUMED: f64 = 0.3;
const NOISE_WEIGHT: f64 = 4.0;
const NOISE_MIN: f64 = 0.03;
/// No step changes a number by more than this power of e.
const STEP_MAX: f64 = 2.0;

/// The standard deviation of a logarithm, if nine in ten values are within this factor, which is more than 1.
pub(super) fn deviation_of(factor: f64) -> f64 {
    libm::log(factor) / NINE_IN_TEN
}

/// The equations of one step, `matrix · step = vector`; the matrix is the inverse of the covariance.
pub(super) struct Normal<const N: usize> {
    matrix: [[f64; N]; N],
    vector: [f64; N],
}

impl<const N: usize> Normal<N> {
    /// Only the prior: the logarithms are 0, with these standard deviations. `x`: the point where the step
    /// begins.
    pub fn prior(deviations: &[f64; N], x: &[f64; N]) -> Normal<N> {
        let mut normal = Normal { matrix: [[0.0; N]; N], vector: [0.0; N] };
        for i in 0..N {
            let weight = 1.0 / (deviations[i] * deviations[i]);
            normal.matrix[i][i] = weight;
            normal.vector[i] = -x[i] * weight;
        }
        normal
    }

    /// Adds one time: the `parts` that the numbers have in it, and the logarithm of measured by expected
    /// time.
    pub fn add(&mut self, parts: &[f64; N], error: f64, weight: f64) {
        for i in 0..N {
            self.vector[i] += weight * parts[i] * error;
            for j in 0..N {
                self.matrix[i][j] += weight * parts[i] * parts[j];
            }
        }
    }

    pub fn step(&self) -> [f64; N] {
        let covariance = inverse(&self.matrix);
        let full = covariance.map(|row| row.iter().zip(&self.vector).map(|(c, v)| c * v).sum::<f64>());
        full.map(|step| step.clamp(-STEP_MAX, STEP_MAX))
    }

    /// Independent directions in which the truth may differ, each as far as nine in ten go: the columns of a
    /// root of the covariance.
    pub fn axes(&self) -> [[f64; N]; N] {
        let c = inverse(&self.matrix);
        let mut l = [[0.0f64; N]; N];
        for i in 0..N {
            for j in 0..=i {
                let rest = c[i][j] - (0..j).map(|k| l[i][k] * l[j][k]).sum::<f64>();
                l[i][j] = if i == j { rest.max(0.0).sqrt() } else { rest / l[j][j].max(1e-12) };
            }
        }
        std::array::from_fn(|axis| std::array::from_fn(|i| l[i][axis] * NINE_IN_TEN))
    }
}

/// The inverse of a symmetric matrix with positive eigenvalues, by elimination; such a matrix needs no
/// exchange of rows.
fn inverse<const N: usize>(m: &[[f64; N]; N]) -> [[f64; N]; N] {
    let mut left = *m;
    let mut right: [[f64; N]; N] =
        std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
    for i in 0..N {
        let pivot = left[i][i];
        (0..N).for_each(|j| (left[i][j], right[i][j]) = (left[i][j] / pivot, right[i][j] / pivot));
        let (left_i, right_i) = (left[i], right[i]);
        for row in (0..N).filter(|row| *row != i) {
            let factor = left[row][i];
            for j in 0..N {
                left[row][j] -= factor * left_i[j];
                right[row][j] -= factor * right_i[j];
            }
        }
    }
    right
}

/// Sets the weights to `1 / (1 + (e/scale)²)` with the median error as scale, which leaves outliers almost
/// without influence. Gives the noise, from the errors that four in five do not exceed, mixed with the
/// assumed noise. `n`: how many independent times the errors are of, at most as many as there are.
pub(super) fn judge(errors: &[f64], weights: &mut [f64], n: f64) -> f64 {
    let mut sorted: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| {
        let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(0.0)
    };
    let scale = quantile(0.5).max(0.02);
    for (weight, error) in weights.iter_mut().zip(errors) {
        *weight = 1.0 / (1.0 + (error / scale) * (error / scale));
    }
    let seen = quantile(0.8) / FOUR_IN_FIVE;
    let square = (n * seen * seen + NOISE_WEIGHT * NOISE_ASSUMED * NOISE_ASSUMED) / (n + NOISE_WEIGHT);
    square.sqrt().max(NOISE_MIN)
}
