//! The life of a catalog over years: sites that are lost, copies that rot, audits and repairs.
//!
//! Input: what the sites are like, how often what goes wrong, and how copies are looked after ([`Options`]), and a seed. Output: how
//! many files were lost, and what keeping the others cost ([`Life`]). The same options and seed give the same life on every machine.
//!
//! Which copies are made is the decision of [`eyas_keeping::plan`], and which ones are read through that of
//! [`eyas_keeping::verification::due`], as in a live catalog. Here are only the things that happen to disks, and what the
//! catalog gets to know of them:
//!
//! * a site is lost with all its copies (alone, or with its domain), and after a time an empty one stands in its place;
//! * a site does not answer for a while, and comes back with its copies. Until then nobody knows whether it is lost;
//! * a single copy is damaged, and nobody knows it before it is read: by an audit, or to make another one;
//! * a copy that is being made is none when its source or its target is lost meanwhile.
//!
//! A file is lost when no site has a good copy of it, whatever the catalog believes. What goes wrong comes as Poisson processes.

mod catalog;
pub mod markov;
mod options;
mod statistics;

pub use options::{Copying, Options};
pub use statistics::{Estimate, Lives, lives};

use catalog::Catalog;
use eyas_sim::agenda::Agenda;
use eyas_terms::rng::Rng;

/// What came of one catalog.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Life {
    pub n_files: u64,
    pub n_lost: u64,
    /// Good copies of a file that is not lost, over the whole time.
    pub mean_copies: f64,
    pub copied_bytes: u64,
    pub audited_bytes: u64,
    pub n_sites_lost: u64,
}

/// What is to come. The number of a site's stay says whether the event still concerns what is at the site now.
enum Event {
    SiteLost(usize),
    DomainLost(usize),
    Replaced(usize),
    Away(usize),
    Back { site: usize, stay: u64 },
    Noticed { site: usize, stay: u64 },
    Damaged { file: usize, site: usize, copy: u64 },
    Copied { copy: u64 },
    Look,
}

/// A copy that is being made.
#[derive(Clone, Copy)]
struct Coming {
    number: u64,
    file: usize,
    from: usize,
    to: usize,
}

struct World<'a> {
    options: &'a Options,
    rng: Rng,
    agenda: Agenda<Event>,
    now_ns: u64,
    catalog: Catalog,
    /// The number of each site's stay: another one whenever it stops to answer, or answers again.
    stay: Vec<u64>,
    is_there: Vec<bool>,
    answers: Vec<bool>,
    /// The number of the good copy of each file at each site, 0: there is none.
    good: Vec<Vec<u64>>,
    /// Good copies of each file; 0: it is lost.
    n_good: Vec<u64>,
    coming: Vec<Coming>,
    n_numbers: u64,
    /// Good copies, and files that are not lost, times seconds.
    copies_s: f64,
    files_s: f64,
    life: Life,
}

const NS: f64 = 1e9;

fn ns(seconds: f64) -> u64 {
    (seconds * NS) as u64
}

/// Lives through the years of one catalog.
pub fn live(options: &Options, seed: u64) -> Life {
    let mut world = World::new(options, seed);
    let end_ns = ns(options.lasts_s);
    while let Some(at_ns) = world.agenda.next_ns().filter(|at_ns| *at_ns < end_ns) {
        world.pass_until(at_ns);
        let (_, event) = world.agenda.pop().expect("it was just seen");
        world.take(event);
        if world.n_good.iter().all(|n| *n == 0) {
            break;
        }
    }
    world.pass_until(end_ns);
    let life = world.life;
    Life {
        n_files: options.n_files as u64,
        n_lost: world.n_good.iter().filter(|n| **n == 0).count() as u64,
        mean_copies: if world.files_s > 0.0 { world.copies_s / world.files_s } else { 0.0 },
        ..life
    }
}

impl World<'_> {
    fn new(options: &Options, seed: u64) -> World<'_> {
        let n = options.n_sites;
        let mut world = World {
            options,
            rng: Rng::new(seed),
            agenda: Agenda::default(),
            now_ns: 0,
            catalog: Catalog::new(options),
            stay: vec![1; n],
            is_there: vec![true; n],
            answers: vec![true; n],
            good: vec![vec![0; n]; options.n_files],
            n_good: vec![0; options.n_files],
            coming: vec![],
            n_numbers: 1,
            copies_s: 0.0,
            files_s: 0.0,
            life: Life::default(),
        };
        // Each file is put to a site, and has its copies when the watch begins.
        for file in 0..options.n_files {
            let site = world.rng.below(n as u64) as usize;
            world.arrive(file, site);
        }
        for copy in world.catalog.plan(&[]) {
            world.arrive(copy.object, copy.to);
        }
        for site in 0..n {
            world.after(options.site_life_s, Event::SiteLost(site));
            world.after(options.away_every_s, Event::Away(site));
        }
        for domain in 0..options.n_domains {
            world.after(options.domain_life_s, Event::DomainLost(domain));
        }
        if let Some(pace) = options.audit {
            world.agenda.put(pace.look_ms * 1_000_000, Event::Look);
        }
        world
    }

    fn pass_until(&mut self, at_ns: u64) {
        let seconds = (at_ns - self.now_ns) as f64 / NS;
        self.copies_s += self.n_good.iter().sum::<u64>() as f64 * seconds;
        self.files_s += self.n_good.iter().filter(|n| **n > 0).count() as f64 * seconds;
        self.now_ns = at_ns;
    }

    /// A time of this mean, exponentially distributed.
    fn random_s(&mut self, mean_s: f64) -> f64 {
        // In (0, 1], so that the logarithm is there.
        let uniform = ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -libm::log(uniform) * mean_s
    }

    /// Puts an event of a Poisson process on the agenda, if it ever comes.
    fn after(&mut self, mean_s: Option<f64>, event: Event) {
        if let Some(mean_s) = mean_s {
            let after_s = self.random_s(mean_s);
            // What comes later than anybody watches need not fit into a number.
            if after_s < self.options.lasts_s {
                self.agenda.put(self.now_ns + ns(after_s), event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        let options = self.options;
        match event {
            Event::SiteLost(site) => {
                self.after(options.site_life_s, Event::SiteLost(site));
                self.lose(site);
            }
            Event::DomainLost(domain) => {
                self.after(options.domain_life_s, Event::DomainLost(domain));
                for site in (0..options.n_sites).filter(|site| site % options.n_domains == domain) {
                    self.lose(site);
                }
            }
            Event::Replaced(site) => {
                self.is_there[site] = true;
                self.catalog.forget(site);
                self.answer(site);
            }
            Event::Away(site) => {
                self.after(options.away_every_s, Event::Away(site));
                if self.answers[site] {
                    self.fall_silent(site);
                    let (stay, back_s) = (self.stay[site], self.random_s(options.away_for_s));
                    self.agenda.put(self.now_ns + ns(back_s), Event::Back { site, stay });
                }
            }
            Event::Back { site, stay } if self.stay[site] == stay => self.answer(site),
            Event::Noticed { site, stay } if self.stay[site] == stay => self.catalog.unreached(site),
            Event::Back { .. } | Event::Noticed { .. } => return,
            Event::Damaged { file, site, copy } => {
                if self.good[file][site] == copy {
                    self.spoil(file, site);
                }
                // Nobody knows.
                return;
            }
            Event::Copied { copy } => match self.coming.iter().position(|coming| coming.number == copy) {
                Some(place) => self.copied(place),
                None => return,
            },
            Event::Look => {
                self.look();
            }
        }
        self.repair();
    }

    /// A site is gone with all that it has.
    fn lose(&mut self, site: usize) {
        if !self.is_there[site] {
            return;
        }
        self.is_there[site] = false;
        self.life.n_sites_lost += 1;
        for file in 0..self.options.n_files {
            if self.good[file][site] > 0 {
                self.spoil(file, site);
            }
        }
        self.fall_silent(site);
        self.agenda.put(self.now_ns + ns(self.options.replaced_after_s), Event::Replaced(site));
    }

    fn spoil(&mut self, file: usize, site: usize) {
        self.good[file][site] = 0;
        self.n_good[file] -= 1;
        if self.n_good[file] == 0 {
            self.coming.retain(|coming| coming.file != file);
        }
    }

    /// A site does not answer any more. Whoever was copying from it or to it notices that at once, the others after a time.
    fn fall_silent(&mut self, site: usize) {
        self.answers[site] = false;
        self.stay[site] += 1;
        let n_before = self.coming.len();
        self.coming.retain(|coming| coming.from != site && coming.to != site);
        if self.coming.len() < n_before || self.options.noticed_after_s == 0.0 {
            self.catalog.unreached(site);
        } else {
            let event = Event::Noticed { site, stay: self.stay[site] };
            self.agenda.put(self.now_ns + ns(self.options.noticed_after_s), event);
        }
    }

    fn answer(&mut self, site: usize) {
        self.answers[site] = true;
        self.stay[site] += 1;
        self.catalog.reached(site);
    }

    fn arrive(&mut self, file: usize, site: usize) {
        if self.good[file][site] == 0 {
            self.n_good[file] += 1;
        }
        self.n_numbers += 1;
        self.good[file][site] = self.n_numbers;
        self.catalog.verified(file, site, self.now_ns);
        self.after(self.options.copy_life_s, Event::Damaged { file, site, copy: self.n_numbers });
    }

    fn copied(&mut self, place: usize) {
        let Coming { file, from, to, .. } = self.coming.swap_remove(place);
        self.life.copied_bytes += self.options.file_bytes;
        // Whoever copies hashes, and so finds what is damaged.
        match self.good[file][from] > 0 {
            true => self.arrive(file, to),
            false => self.catalog.bad(file, from),
        }
    }

    /// Each site reads through what is due.
    fn look(&mut self) {
        let pace = self.options.audit.expect("there are looks where there are audits");
        self.agenda.put(self.now_ns + pace.look_ms * 1_000_000, Event::Look);
        for site in 0..self.options.n_sites {
            if !self.answers[site] {
                continue;
            }
            for file in self.catalog.due(site, pace, self.now_ns) {
                self.life.audited_bytes += self.options.file_bytes;
                match self.good[file][site] > 0 {
                    true => self.catalog.verified(file, site, self.now_ns),
                    false => self.catalog.bad(file, site),
                }
            }
        }
    }

    /// Begins the copies that the plan asks for and whose sites are free.
    fn repair(&mut self) {
        loop {
            let coming: Vec<(usize, usize)> = self.coming.iter().map(|c| (c.file, c.to)).collect();
            let mut is_new_to_us = false;
            for copy in self.catalog.plan(&coming) {
                // A site that does not answer is noticed by whoever needs it.
                for site in [copy.from, copy.to] {
                    if !self.answers[site] {
                        self.catalog.unreached(site);
                        is_new_to_us = true;
                    }
                }
                let takes_s = match self.options.copying {
                    _ if !self.answers[copy.from] || !self.answers[copy.to] => continue,
                    Copying::Random { mean_s } => self.random_s(mean_s),
                    Copying::Bandwidth { bytes_per_s } => {
                        let is_busy = |c: &Coming| c.from == copy.from || c.to == copy.to;
                        if self.coming.iter().any(is_busy) {
                            continue;
                        }
                        self.options.file_bytes as f64 / bytes_per_s
                    }
                };
                self.n_numbers += 1;
                let number = self.n_numbers;
                self.coming.push(Coming { number, file: copy.object, from: copy.from, to: copy.to });
                self.agenda.put(self.now_ns + ns(takes_s), Event::Copied { copy: number });
            }
            if !is_new_to_us {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
