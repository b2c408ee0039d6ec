//! The durability of a file as a Markov chain: what is known without simulating.
//!
//! The states are how many good copies a file has, from all of them to none. A copy is lost after an exponential time of rate λ,
//! each alone; each copy that is missing comes after an exponential time of rate μ, all at once; a file without a copy is lost for
//! good. So the chain goes from `j` copies to `j - 1` at the rate `j λ`, and to `j + 1` at the rate `(k - j) μ`.
//!
//! It assumes that sites fail independently, that each loss is known at once, that repairs do not hinder each other, and that there
//! is always a site to repair to.

/// The chain of one file. Rates are per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chain {
    /// How many copies there should be, at least 1.
    pub copies: u32,
    /// λ: of each copy.
    pub loss_per_s: f64,
    /// μ: of each copy that is missing.
    pub repair_per_s: f64,
}

impl Chain {
    /// To one copy less, and to one more, of a file with `j` copies.
    fn rates(&self, j: usize) -> (f64, f64) {
        (j as f64 * self.loss_per_s, (self.copies as usize - j) as f64 * self.repair_per_s)
    }

    /// The probability that a file with all its copies is lost within a time in seconds: an entry of `exp(Q t)`, where `Q` has
    /// the rates.
    ///
    /// The exponential of a short part of the time is summed as the uniformized chain's series, and squared until it is that of the
    /// whole time. Nothing is ever subtracted, so that small probabilities are as exact as large ones.
    pub fn loss_within(&self, time_s: f64) -> f64 {
        let n = self.copies as usize + 1;
        // Without a copy the chain stays where it is.
        let fastest = (1..n).map(|j| self.rates(j)).map(|(down, up)| down + up).fold(0.0, f64::max);
        if fastest * time_s <= 0.0 {
            return 0.0;
        }
        let n_squarings = libm::ceil(libm::log2(fastest * time_s)).max(0.0) as u32;
        let part = fastest * time_s / libm::exp2(f64::from(n_squarings));
        // One step of the uniformized chain.
        let mut step = vec![vec![0.0; n]; n];
        step[0][0] = 1.0;
        for j in 1..n {
            let (down, up) = self.rates(j);
            step[j][j - 1] = down / fastest;
            step[j][j] = ((fastest - down - up) / fastest).max(0.0);
            if j + 1 < n {
                step[j][j + 1] = up / fastest;
            }
        }
        let mut term = identity(n, libm::exp(-part));
        let mut sum = term.clone();
        for i in 1..=40 {
            term = product(&term, &step);
            for (row, of) in sum.iter_mut().zip(&mut term) {
                for (all, one) in row.iter_mut().zip(of) {
                    *one *= part / f64::from(i);
                    *all += *one;
                }
            }
        }
        for _ in 0..n_squarings {
            sum = product(&sum, &sum);
            // Each row is a distribution. What rounding has added or taken would double with each squaring.
            for row in &mut sum {
                let all: f64 = row.iter().sum();
                row.iter_mut().for_each(|entry| *entry /= all);
            }
        }
        sum[n - 1][0].min(1.0)
    }
}

fn identity(n: usize, value: f64) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| if i == j { value } else { 0.0 }).collect()).collect()
}

fn product(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = a.len();
    let entry = |i: usize, j: usize| (0..n).map(|m| a[i][m] * b[m][j]).sum();
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: f64 = 86_400.0;

    /// Mean time in seconds until a file with all its copies is lost: the sum of the mean times from `j` copies to `j - 1`, which are
    /// `h_j = (1 + (k - j) μ h_(j+1)) / (j λ)`.
    fn mean_time_to_loss_s(chain: &Chain) -> f64 {
        let (mut step, mut sum) = (0.0, 0.0);
        for j in (1..=chain.copies as usize).rev() {
            let (down, up) = chain.rates(j);
            step = (1.0 + up * step) / down;
            sum += step;
        }
        sum
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
    }

    #[test]
    fn one_copy_is_lost_as_its_site_is() {
        let chain = Chain { copies: 1, loss_per_s: 1.0 / (100.0 * DAY_S), repair_per_s: 1.0 };
        close(mean_time_to_loss_s(&chain), 100.0 * DAY_S);
        close(chain.loss_within(50.0 * DAY_S), 1.0 - (-0.5f64).exp());
        assert_eq!(chain.loss_within(0.0), 0.0);
        close(chain.loss_within(1e12), 1.0);
    }

    #[test]
    fn two_copies_are_as_the_closed_form_says() {
        for (life_days, repair_days) in [(40.0, 0.5), (40.0, 30.0), (1000.0, 1.0)] {
            let (loss, repair) = (1.0 / life_days, 1.0 / repair_days);
            let chain = Chain { copies: 2, loss_per_s: loss / DAY_S, repair_per_s: repair / DAY_S };
            close(mean_time_to_loss_s(&chain) / DAY_S, (3.0 * loss + repair) / (2.0 * loss * loss));
            // The roots of s² + (3λ + μ) s + 2 λ² = 0.
            let half = (3.0 * loss + repair) / 2.0;
            let root = (half * half - 2.0 * loss * loss).sqrt();
            let (a, b): (f64, f64) = (-half + root, -half - root);
            for t in [30.0, 3650.0] {
                let expected = 1.0 + (b * (a * t).exp() - a * (b * t).exp()) / (a - b);
                close(chain.loss_within(t * DAY_S), expected);
            }
        }
    }

    #[test]
    fn without_repair_copies_are_lost_each_alone() {
        let chain = Chain { copies: 3, loss_per_s: 1.0 / DAY_S, repair_per_s: 0.0 };
        close(chain.loss_within(2.0 * DAY_S), (1.0 - (-2.0f64).exp()).powi(3));
        close(mean_time_to_loss_s(&chain), DAY_S * (1.0 + 0.5 + 1.0 / 3.0));
    }

    /// Losses that are too rare to be seen in a simulation come at the rate that the mean time says.
    #[test]
    fn rare_losses_are_not_rounded_away() {
        let year = 365.0 * DAY_S;
        let chain = Chain { copies: 4, loss_per_s: 1.0 / (5.0 * year), repair_per_s: 1.0 / 3600.0 };
        let expected = 10.0 * year / mean_time_to_loss_s(&chain);
        let found = chain.loss_within(10.0 * year);
        assert!(found > 0.0 && (found / expected - 1.0).abs() < 1e-3, "{found} is not about {expected}");
    }
}
