//! What the catalog believes: which sites answer, and which copies it takes for good.

use super::options::Options;
use eyas_keeping::verification::{self, Pace, Verified};
use eyas_keeping::{Copy, Object, Site, Takes};

pub(super) struct Catalog {
    copies: u32,
    file_bytes: u64,
    sites: Vec<Site>,
    /// When the copy of each file at each site was verified last, in nanoseconds; `None`: there is none, or it is bad.
    verified: Vec<Vec<Option<u64>>>,
}

impl Catalog {
    pub fn new(options: &Options) -> Catalog {
        let site = |n: usize| Site {
            domain: (n % options.n_domains) as u32,
            takes: Takes::Copies,
            keep_bytes: options.room_bytes,
            used_bytes: 0,
            is_busy: false,
        };
        Catalog {
            copies: options.copies,
            file_bytes: options.file_bytes,
            sites: (0..options.n_sites).map(site).collect(),
            verified: vec![vec![None; options.n_sites]; options.n_files],
        }
    }

    pub fn verified(&mut self, file: usize, site: usize, now_ns: u64) {
        if self.verified[file][site].replace(now_ns).is_none() {
            self.sites[site].used_bytes += self.file_bytes;
        }
    }

    pub fn bad(&mut self, file: usize, site: usize) {
        if self.verified[file][site].take().is_some() {
            self.sites[site].used_bytes -= self.file_bytes;
        }
    }

    /// Another folder stands in the place of a site.
    pub fn forget(&mut self, site: usize) {
        for file in 0..self.verified.len() {
            self.bad(file, site);
        }
    }

    pub fn reached(&mut self, site: usize) {
        self.sites[site].takes = Takes::Copies;
    }

    /// Its copies do not count until it answers again, as in `eyas data repair`.
    pub fn unreached(&mut self, site: usize) {
        self.sites[site].takes = Takes::NothingNow;
    }

    /// The copies that are to be made, beside those that are `coming`: files and targets.
    pub fn plan(&self, coming: &[(usize, usize)]) -> Vec<Copy> {
        let reached = |site: &usize| self.sites[*site].takes == Takes::Copies;
        let having = |file: usize| {
            let there = self.verified[file].iter().enumerate();
            there.filter_map(|(site, at)| at.map(|_| site))
        };
        // As in a live catalog, the plan is made for what is short of copies.
        let is_short = |file: &usize| having(*file).filter(reached).count() < self.copies as usize;
        let files: Vec<usize> = (0..self.verified.len()).filter(is_short).collect();
        let objects: Vec<Object> = files
            .iter()
            .map(|&file| Object {
                size_bytes: self.file_bytes,
                wanted: self.copies,
                ready: having(file).filter(reached).collect(),
                is_away: having(file).any(|site| !reached(&site)),
                coming: coming.iter().filter(|(of, _)| *of == file).map(|(_, to)| *to).collect(),
                resting: vec![],
                barred: vec![],
            })
            .collect();
        if objects.is_empty() {
            return vec![];
        }
        let mut sites = self.sites.clone();
        for (_, to) in coming {
            sites[*to].used_bytes += self.file_bytes;
        }
        let mut copies = eyas_keeping::plan(&sites, &objects).copies;
        for copy in &mut copies {
            copy.object = files[copy.object];
        }
        copies
    }

    /// The files whose copies at a site are read through now.
    pub fn due(&self, site: usize, pace: Pace, now_ns: u64) -> Vec<usize> {
        let ms = |at_ns: u64| (at_ns / 1_000_000) as i64;
        let (files, copies): (Vec<usize>, Vec<Verified>) = self
            .verified
            .iter()
            .enumerate()
            .filter_map(|(file, at)| Some((file, at[site]?)))
            .map(|(file, at)| (file, Verified { size_bytes: self.file_bytes, at_ms: Some(ms(at)) }))
            .unzip();
        verification::due(&copies, pace, ms(now_ns)).into_iter().map(|n| files[n]).collect()
    }
}
