//! How long collectives take here, learnt from those that have ended; the source of the predictions that
//! users see.
//!
//! In: [`Lesson`]s, one per collective that brought all its objects. Out: an [`Expectation`] for another
//! collective: the expected time, and the factor within which nine in ten such expectations are right.
//!
//! Why not the cost model with the links as measured: that is good for choosing between ways, because what it
//! leaves out is left out of all of them. But nodes share processors and switches, a request passes the
//! dispatcher, and makers wait for slots, for other tasks and for their processes. So for each kind of
//! collective the model's numbers are fitted anew to whole collectives: latency, cost per object, seconds per
//! byte, and the cost of each arrival to all nodes together. The links as measured are the prior. The fitted numbers describe what collectives of that kind meet in this cluster,
//! and not one link. How far the lessons differ from them is the remaining uncertainty.
//!
//! Times count from the moment at which all files exist: when makers end, nobody can know.
//!
//! Collectives that are under way at the same time share links and nodes. What all of them have to move through the busiest of a
//! collective's nodes is known; how much of it one waits for is fitted, too. Such
//! collectives meet the same weather, so all of them together are one lesson: each counts for its share.
//!
//! Expectations are checked against what the collectives then took. Where more than one in ten was further off than it
//! should have been, the factor of the next ones is widened by as much. Where nine in ten were nearer, and there are enough
//! of them to say so, it is narrowed.
//!
//! Not here: choosing, which [`super::choose`] does with the links.

use super::Way;
use super::cost::{self, GatherCase, MulticastCase, ScatterCase, Streams};
use super::fit::{self, Normal};
use super::links::LinkModel;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A predicted time is shown only if nine in ten such predictions are within this factor of the measured
/// time.
pub const PROMISE: f64 = 1.5;
/// The number of lessons of each kind that are kept.
const WINDOW: usize = 24;
/// The number of lessons after which the numbers are fitted anew, once there are many.
const FIT_EVERY: u32 = 12;
/// The assumed cost of one arriving object to the dispatcher and to processors that nodes share, in seconds.
const ARRIVAL_S: f64 = 100e-6;
/// The number of fitted numbers: latency, cost per object, seconds per byte, cost of an arrival, and what
/// other collectives under way cost.
const N: usize = 5;
/// Nine in ten collectives are assumed to meet numbers within the first factors of the links' numbers, and arrivals
/// within the fourth of [`ARRIVAL_S`]. For the last, see [`SHARED`].
const PRIOR_FACTORS: [f64; N] = [5.0, 5.0, 5.0, 30.0, 1.648_721_270_700_128];
/// Where the busiest node has `crowd` times as much to move as for this collective alone, it takes `crowd` to this power times as
/// long as alone. Nine in ten powers are assumed to lie between 0 (what others move is not waited for) and 1 (all of it is).
const SHARED: f64 = 0.5;
const ROUNDS: usize = 3;
const STEPS: usize = 8;
/// The least power that a doubt is narrowed by.
const NARROWED_MIN: f64 = 0.2;
/// Larger uncertainty than this is not distinguished.
const DOUBT_MAX: f64 = 1e6;

/// The work of one collective.
#[derive(Clone, PartialEq, Debug)]
pub enum Case {
    Gather(GatherCase),
    Multicast(MulticastCase),
    Scatter(ScatterCase),
}

impl Case {
    fn kind(&self) -> usize {
        match self {
            Case::Gather(_) => 0,
            Case::Multicast(_) => 1,
            Case::Scatter(_) => 2,
        }
    }

    /// Objects times receivers.
    fn n_arrivals(&self) -> u64 {
        match self {
            Case::Gather(case) => case.n_objects(),
            Case::Multicast(case) => case.n_objects * u64::from(case.n_receivers),
            Case::Scatter(case) => case.n_objects,
        }
    }

    /// The time that a way is predicted to take. `makers_factor`: the factor on the time until files that do
    /// not exist yet appear.
    pub fn seconds(&self, way: Way, link: &LinkModel, makers_factor: f64, streams: &Streams) -> f64 {
        match (self, way) {
            (Case::Gather(case), _) => {
                let case = case.delayed(makers_factor);
                match way {
                    Way::CollectiveGather => cost::gather_collective_s(&case, link, streams),
                    Way::AsyncArchives => cost::gather_async_archives_s(&case, link, streams),
                    Way::AsyncGather => cost::gather_async_s(&case, link, streams),
                    Way::ArchiveTree { arity } => cost::gather_tree_s(&case, arity, link, streams),
                    _ => cost::plain_fetches_s(&case, link, streams),
                }
            }
            (Case::Multicast(case), Way::Binomial) => cost::binomial_s(case, link),
            (Case::Multicast(case), Way::Pipelined { arity }) => {
                cost::pipelined_s(case, arity, link, streams)
            }
            (Case::Multicast(case), _) => cost::flat_s(case, link, streams),
            (Case::Scatter(case), Way::Archives) => cost::scatter_archives_s(case, link, streams),
            (Case::Scatter(case), Way::ArchiveTree { arity }) => {
                cost::scatter_tree_s(case, arity, link, streams)
            }
            (Case::Scatter(case), _) => cost::scatter_plain_s(case, link, streams),
        }
    }
}

/// A collective that ended with all that it wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Lesson {
    pub case: Case,
    pub way: Way,
    /// What all collectives had to move through its busiest node when it began, by what it had to: [`super::Left`].
    pub crowd: f64,
    /// Other collectives that were under way for at least a part of the time.
    pub n_met: u32,
    pub took_s: f64,
}

impl Lesson {
    /// How much the lesson counts for: all those that met are one lesson.
    fn weight(&self) -> f64 {
        1.0 / (1.0 + f64::from(self.n_met))
    }
}

/// How an expectation compares with what the collective took.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Check {
    /// The logarithm of the error by the logarithm of the fitted doubt: at most 1 in nine of ten, if the doubt was right.
    off: f64,
    weight: f64,
}

/// The time that is expected of a collective.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Expectation {
    pub expected_ns: u64,
    /// Nine in ten such expectations are within this factor of the measured time.
    pub doubt: f64,
}

/// An expectation, and what is needed to check it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    pub expectation: Expectation,
    /// The doubt as fitted, before it was widened.
    fitted_doubt: f64,
}

/// The numbers of one kind of collective: the logarithms of factors on the link's numbers, and how sure they
/// are.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fitted {
    around: LinkModel,
    x: [f64; N],
    axes: [[f64; N]; N],
    noise: f64,
}

#[derive(Default)]
struct Kind {
    lessons: VecDeque<Lesson>,
    fitted: Option<Fitted>,
    n_since: u32,
    /// The last expectations of this kind.
    checks: VecDeque<Check>,
}

impl Kind {
    /// The power by which the fitted doubt is widened or narrowed: nine in ten of the checks are within it. As long as there are too
    /// few checks to say that, all of them are, and it is at least 1.
    fn widening(&self) -> f64 {
        let mut checks: Vec<Check> = self.checks.iter().copied().collect();
        checks.sort_unstable_by(|a, b| a.off.total_cmp(&b.off));
        // The next expectation may be further off than all before it, and counts as one more check that is.
        let enough = 0.9 * (checks.iter().map(|c| c.weight).sum::<f64>() + 1.0);
        let mut sum = 0.0;
        let reaches = |c: &&Check| {
            sum += c.weight;
            sum >= enough
        };
        match checks.iter().find(reaches) {
            Some(check) => check.off.max(NARROWED_MIN),
            None => checks.last().map_or(1.0, |check| check.off.max(1.0)),
        }
    }
}

/// Lessons by kind of collective.
#[derive(Default)]
pub struct Lessons {
    kinds: [Kind; 3],
}

impl Lessons {
    pub fn learn(&mut self, lesson: Lesson) {
        let kind = &mut self.kinds[lesson.case.kind()];
        if kind.lessons.len() == WINDOW {
            kind.lessons.pop_front();
        }
        kind.lessons.push_back(lesson);
        kind.n_since += 1;
        if kind.lessons.len() < WINDOW || kind.n_since >= FIT_EVERY {
            kind.fitted = None;
        }
    }

    /// A collective of which this was expected took `took_s`, whether or not it teaches anything. `n_met`: as in [`Lesson`].
    pub fn check(&mut self, case: &Case, forecast: &Forecast, took_s: f64, n_met: u32) {
        let checks = &mut self.kinds[case.kind()].checks;
        if checks.len() == WINDOW {
            checks.pop_front();
        }
        let error = libm::log(took_s.max(1e-9) / (forecast.expectation.expected_ns.max(1) as f64 / 1e9));
        let off = error.abs() / libm::log(forecast.fitted_doubt.max(1.01));
        checks.push_back(Check { off, weight: 1.0 / (1.0 + f64::from(n_met)) });
    }

    /// The expectation for a collective, where `around` is the link as measured, and `crowd` is as in [`Lesson`].
    pub fn forecast(&mut self, case: &Case, way: Way, around: &LinkModel, crowd: f64) -> Forecast {
        let kind = &mut self.kinds[case.kind()];
        let streams = Streams::default();
        if kind.fitted.is_none() {
            (kind.fitted, kind.n_since) = (Some(fit(&kind.lessons, around, &streams)), 0);
        }
        let fitted = kind.fitted.expect("it was just fitted");
        let seconds = |x: &[f64; N]| seconds(case, way, crowd, &fitted.around, x, &streams);
        let likely_s = seconds(&fitted.x);
        let off = |axis: &[f64; N]| {
            let at = |sign: f64| std::array::from_fn(|i| fitted.x[i] + sign * axis[i]);
            [at(1.0), at(-1.0)].iter().map(|x| libm::log(seconds(x) / likely_s).abs()).fold(0.0, f64::max)
        };
        let noise = fitted.noise * fit::NINE_IN_TEN;
        let square = fitted.axes.iter().map(off).map(|x| x * x).sum::<f64>() + noise * noise;
        let doubt = |power: f64| libm::exp(power * square.sqrt()).min(DOUBT_MAX);
        let expectation = Expectation { expected_ns: (likely_s * 1e9) as u64, doubt: doubt(kind.widening()) };
        Forecast { expectation, fitted_doubt: doubt(1.0) }
    }
}

/// The predicted seconds, at least a nanosecond. `x`: the logarithms of the factors, and the difference from [`SHARED`].
fn seconds(case: &Case, way: Way, crowd: f64, around: &LinkModel, x: &[f64; N], streams: &Streams) -> f64 {
    let [latency, per_object, byte, arrival, _] = x.map(libm::exp);
    let shared = libm::pow(crowd, SHARED + x[N - 1]);
    let link = LinkModel {
        latency_s: around.latency_s * latency,
        per_object_s: around.per_object_s * per_object,
        bandwidth_bytes_per_s: around.bandwidth_bytes_per_s / byte,
    };
    let alone_s = case.seconds(way, &link, 1.0, streams) + case.n_arrivals() as f64 * ARRIVAL_S * arrival;
    (alone_s * shared).max(1e-9)
}

fn fit(lessons: &VecDeque<Lesson>, around: &LinkModel, streams: &Streams) -> Fitted {
    /// The step of a numerical derivative, as the costs have no simple derivatives.
    const SMALL: f64 = 0.01;
    let deviations = PRIOR_FACTORS.map(fit::deviation_of);
    let mut weights = vec![1.0; lessons.len()];
    let (mut x, mut noise) = ([0.0; N], fit::NOISE_ASSUMED);
    let ln_s = |lesson: &Lesson, x: &[f64; N]| {
        libm::log(seconds(&lesson.case, lesson.way, lesson.crowd, around, x, streams))
    };
    let n_independent = lessons.iter().map(Lesson::weight).sum::<f64>();
    let error = |lesson: &Lesson, x: &[f64; N]| libm::log(lesson.took_s.max(1e-9)) - ln_s(lesson, x);
    let normal = |x: &[f64; N], weights: &[f64], noise: f64| {
        let mut normal = Normal::prior(&deviations, x);
        for (lesson, weight) in lessons.iter().zip(weights) {
            let at = ln_s(lesson, x);
            let parts = std::array::from_fn(|i| {
                let mut moved = *x;
                moved[i] += SMALL;
                (ln_s(lesson, &moved) - at) / SMALL
            });
            normal.add(&parts, error(lesson, x), lesson.weight() * weight / (noise * noise));
        }
        normal
    };
    for _ in 0..ROUNDS {
        for _ in 0..STEPS {
            let step = normal(&x, &weights, noise).step();
            x = std::array::from_fn(|i| x[i] + step[i]);
            if step.iter().all(|s| s.abs() < 1e-3) {
                break;
            }
        }
        let errors: Vec<f64> = lessons.iter().map(|lesson| error(lesson, &x)).collect();
        noise = fit::judge(&errors, &mut weights, n_independent);
    }
    Fitted { around: *around, x, axes: normal(&x, &weights, noise).axes(), noise }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_terms::rng::Rng;

    /// What the links are measured to be, and what collectives meet: nodes that share two processors.
    const LINK: LinkModel = LinkModel { latency_s: 1e-3, per_object_s: 1e-4, bandwidth_bytes_per_s: 1e9 };
    const MET: LinkModel = LinkModel { latency_s: 8e-3, per_object_s: 5e-4, bandwidth_bytes_per_s: 2.2e8 };

    fn multicast(n_objects: u64, file_bytes: u64) -> Case {
        let bytes = n_objects * file_bytes;
        Case::Multicast(MulticastCase {
            n_receivers: 5,
            n_holders: 1,
            n_objects,
            bytes,
            largest_bytes: file_bytes,
        })
    }

    fn gather(n_files: u32, file_bytes: u64) -> Case {
        Case::Gather(GatherCase::new((0..n_files).map(|_| (0.0, file_bytes)).collect(), 6))
    }

    const SIZES: [(u64, u64); 6] =
        [(64, 1_000), (16, 10_000), (8, 100_000), (4, 1_000_000), (2, 10_000_000), (1, 100_000_000)];

    /// Collectives of all sizes, with noise. Gives how many shown predictions are as close as promised, how
    /// many predictions are shown, and how many collectives there are.
    fn live(makes: impl Fn(u64, u64) -> Case, way: Way, noise: f64) -> (u32, u32, u32) {
        let (mut lessons, mut rng) = (Lessons::default(), Rng::new(9));
        let (mut n_near, mut n_told, mut n) = (0, 0, 0);
        for i in 0..60 {
            let (n_objects, bytes) = SIZES[(i * 5 + i / 6) % 6];
            let case = makes(n_objects, bytes);
            let forecast = lessons.forecast(&case, way, &LINK, 1.0);
            let expectation = forecast.expectation;
            let even = rng.below(2_000_001) as f64 / 1e6 - 1.0;
            let arrivals_s = case.n_arrivals() as f64 * 7e-4;
            let met_s = case.seconds(way, &MET, 1.0, &Streams::default()) + arrivals_s;
            let took_s = met_s * libm::exp(noise * even);
            let ratio = expectation.expected_ns as f64 / 1e9 / took_s;
            if expectation.doubt <= PROMISE {
                n_told += 1;
                n_near += u32::from((1.0 / PROMISE..=PROMISE).contains(&ratio));
            }
            n += 1;
            lessons.check(&case, &forecast, took_s, 0);
            lessons.learn(Lesson { case, way, crowd: 1.0, n_met: 0, took_s });
        }
        (n_near, n_told, n)
    }

    #[test]
    fn what_collectives_meet_is_learnt_and_nine_in_ten_of_what_is_told_are_near() {
        let chain = Way::Pipelined { arity: 1 };
        let kinds: [(&dyn Fn(u64, u64) -> Case, Way); 2] =
            [(&multicast, chain), (&|n, bytes| gather(n as u32 * 4, bytes), Way::AsyncArchives)];
        for (makes, way) in kinds {
            let (n_near, n_told, n) = live(makes, way, 0.15);
            assert!(n_told * 2 > n, "{way}: {n_told} of {n} told");
            assert!(n_near * 10 >= n_told * 9, "{way}: {n_near} of {n_told} near");
        }
    }

    #[test]
    fn where_the_same_takes_now_this_and_now_that_nothing_is_told() {
        let (_, n_told, _) = live(multicast, Way::Pipelined { arity: 1 }, 1.5);
        assert_eq!(n_told, 0);
    }

    #[test]
    fn the_first_of_its_kind_is_not_told() {
        let mut lessons = Lessons::default();
        let forecast = lessons.forecast(&multicast(1, 1_000_000), Way::Binomial, &LINK, 1.0);
        let expectation = forecast.expectation;
        assert!(expectation.doubt > PROMISE && expectation.doubt < 10.0, "{expectation:?}");
        let sent_s = multicast(1, 1_000_000).seconds(Way::Binomial, &LINK, 1.0, &Streams::default());
        assert_eq!(expectation.expected_ns, ((sent_s + 5.0 * ARRIVAL_S) * 1e9) as u64);
    }

    #[test]
    fn what_was_nearer_than_its_doubt_narrows_the_next_doubt_after_nine_of_them() {
        let (mut lessons, way) = (Lessons::default(), Way::Pipelined { arity: 1 });
        let case = multicast(4, 1_000_000);
        let first = lessons.forecast(&case, way, &LINK, 1.0);
        assert!(first.fitted_doubt > 3.0, "{first:?}");
        let took_s = first.expectation.expected_ns as f64 / 1e9 * 1.7;
        (0..8).for_each(|_| lessons.check(&case, &first, took_s, 0));
        assert_eq!(lessons.forecast(&case, way, &LINK, 1.0).expectation.doubt, first.fitted_doubt);
        lessons.check(&case, &first, took_s, 0);
        let narrow = lessons.forecast(&case, way, &LINK, 1.0);
        assert_eq!(narrow.fitted_doubt, first.fitted_doubt);
        assert!((narrow.expectation.doubt - 1.7).abs() < 0.01, "{narrow:?}");
    }

    #[test]
    fn what_others_have_to_move_through_the_same_node_is_waited_for() {
        let (mut lessons, way) = (Lessons::default(), Way::Pipelined { arity: 1 });
        let case = multicast(4, 1_000_000);
        let alone_s = case.seconds(way, &MET, 1.0, &Streams::default());
        for i in 0..20 {
            let crowd = f64::from(1 + i % 5);
            let forecast = lessons.forecast(&case, way, &LINK, crowd);
            let took_s = alone_s * crowd;
            lessons.check(&case, &forecast, took_s, 0);
            lessons.learn(Lesson { case: case.clone(), way, crowd, n_met: 0, took_s });
        }
        let of = |lessons: &mut Lessons, crowd| {
            let expectation = lessons.forecast(&case, way, &LINK, crowd).expectation;
            assert!(expectation.doubt <= PROMISE, "{expectation:?}");
            expectation.expected_ns as f64 / 1e9 / alone_s
        };
        let (one, five) = (of(&mut lessons, 1.0), of(&mut lessons, 5.0));
        assert!((0.8..1.25).contains(&one) && (4.0..6.25).contains(&five), "{one} and {five}");
    }

    /// Collectives in bursts of `n`, each burst with weather of its own. Gives how many of the promised times were near, and how many
    /// were promised, in all bursts but the first 3.
    fn live_in_bursts(n: u32, weather: impl Fn(u64) -> f64) -> (u32, u32) {
        let (mut lessons, way) = (Lessons::default(), Way::Pipelined { arity: 1 });
        let (mut n_near, mut n_promised) = (0, 0);
        for burst in 0..20 {
            let (n_objects, bytes) = SIZES[2 + burst as usize % 3];
            let case = multicast(n_objects, bytes);
            let alone_s = case.seconds(way, &MET, 1.0, &Streams::default());
            let took_s = alone_s * f64::from(n) * weather(burst);
            let forecasts: Vec<Forecast> =
                (1..=n).map(|crowd| lessons.forecast(&case, way, &LINK, f64::from(crowd))).collect();
            for (crowd, forecast) in (1..=n).map(f64::from).zip(forecasts) {
                let Expectation { expected_ns, doubt } = forecast.expectation;
                if doubt <= PROMISE && burst >= 3 {
                    let ratio = expected_ns as f64 / 1e9 / took_s;
                    n_promised += 1;
                    n_near += u32::from((1.0 / PROMISE..=PROMISE).contains(&ratio));
                }
                lessons.check(&case, &forecast, took_s, n - 1);
                lessons.learn(Lesson { case: case.clone(), way, crowd, n_met: n - 1, took_s });
            }
        }
        (n_near, n_promised)
    }

    #[test]
    fn collectives_that_meet_are_one_lesson_and_no_promise_follows_from_one_burst() {
        let (n_near, n_promised) = live_in_bursts(30, |burst| [1.0, 4.0, 0.3, 2.0, 0.5][burst as usize % 5]);
        assert!(n_near * 10 >= n_promised * 9, "{n_near} of {n_promised} near");
    }

    #[test]
    fn what_was_further_off_than_promised_widens_the_next_doubt() {
        let (mut lessons, way) = (Lessons::default(), Way::Pipelined { arity: 1 });
        let case = multicast(4, 1_000_000);
        let took_s = case.seconds(way, &MET, 1.0, &Streams::default());
        for _ in 0..20 {
            let forecast = lessons.forecast(&case, way, &LINK, 1.0);
            lessons.check(&case, &forecast, took_s, 0);
            lessons.learn(Lesson { case: case.clone(), way, crowd: 1.0, n_met: 0, took_s });
        }
        let sure = lessons.forecast(&case, way, &LINK, 1.0);
        assert!(sure.expectation.doubt <= PROMISE, "{sure:?}");
        // Three that took four times as long and teach nothing, as they had to change their sources.
        (0..3).for_each(|_| lessons.check(&case, &sure, 4.0 * took_s, 0));
        let wide = lessons.forecast(&case, way, &LINK, 1.0);
        assert_eq!(wide.fitted_doubt, sure.fitted_doubt);
        assert!(wide.expectation.doubt > 3.0, "{wide:?}");
    }
}
