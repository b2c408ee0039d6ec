//! What happens to a catalog, and how its copies are looked after.

use eyas_keeping::verification::Pace;

/// How long it takes to make a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Copying {
    /// A random time of this mean, exponentially distributed; copies do not hinder each other. This is what a Markov chain assumes.
    Random { mean_s: f64 },
    /// A site sends one file at a time and receives one at a time, each at this rate.
    Bandwidth { bytes_per_s: f64 },
}

/// What happens to a catalog. Times are in seconds; `None` is never.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub n_sites: usize,
    /// The sites are divided evenly among so many domains.
    pub n_domains: usize,
    /// Bytes that each site has room for.
    pub room_bytes: u64,
    pub n_files: usize,
    pub file_bytes: u64,
    /// How many copies of each file there should be.
    pub copies: u32,
    /// Mean time until a site is lost for good.
    pub site_life_s: Option<f64>,
    /// Mean time until all sites of a domain are lost together.
    pub domain_life_s: Option<f64>,
    /// From the loss of a site to an empty one in its place.
    pub replaced_after_s: f64,
    /// Mean time between two absences of a site, and how long one lasts on average.
    pub away_every_s: Option<f64>,
    pub away_for_s: f64,
    /// From when a site does not answer, lost or not, until that is noticed.
    pub noticed_after_s: f64,
    /// Mean time until a single copy is damaged.
    pub copy_life_s: Option<f64>,
    pub copying: Copying,
    /// How often copies are read through.
    pub audit: Option<Pace>,
    /// How long the catalog is watched.
    pub lasts_s: f64,
}

impl Options {
    /// What a Markov chain assumes: eight sites that are lost alone, at once known and replaced, and one file of 1 GiB. Nothing else
    /// goes wrong. Times in seconds: the mean life of a site, the mean time of a repair, how long it lasts.
    pub fn as_the_chain_assumes(copies: u32, site_life_s: f64, repair_s: f64, lasts_s: f64) -> Options {
        Options {
            n_sites: 8,
            n_domains: 8,
            room_bytes: 1 << 50,
            n_files: 1,
            file_bytes: 1 << 30,
            copies,
            site_life_s: Some(site_life_s),
            domain_life_s: None,
            replaced_after_s: 0.0,
            away_every_s: None,
            away_for_s: 0.0,
            noticed_after_s: 0.0,
            copy_life_s: None,
            copying: Copying::Random { mean_s: repair_s },
            audit: None,
            lasts_s,
        }
    }
}
