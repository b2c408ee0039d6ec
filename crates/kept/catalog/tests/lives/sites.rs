//! Sites in memory, which fail as they are told to, and which know what the catalog does to good copies.

use eyas_catalog::{Arrivals, Aside, Condition, Error, Holding, Key, Reach, Result, Sealed, SitePlace};
use eyas_data::Digest;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The number of the next object that is set aside.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What is at a site.
#[derive(Default)]
pub struct Site {
    pub folder_id: String,
    pub catalog: Option<String>,
    pub objects: BTreeMap<Digest, Vec<u8>>,
    pub seals: HashMap<String, Vec<u8>>,
    pub aside: Vec<(Aside, Vec<u8>)>,
    /// What was read since somebody asked.
    pub read: HashMap<Digest, u64>,
    pub answers: bool,
    pub free_bytes: u64,
    /// So many requests and objects later it stops to answer, in the middle of what it is doing.
    pub fuse: Option<u64>,
}

impl Site {
    pub fn is_good(&self, digest: &Digest) -> bool {
        self.objects.get(digest).is_some_and(|bytes| Digest::of(bytes) == *digest)
    }
}

/// All sites, and what is to be kept at them.
#[derive(Default)]
pub struct Disks {
    pub sites: BTreeMap<String, Site>,
    /// The objects of committed data sets.
    /// With how many copies each should have.
    pub needed: HashMap<Digest, u32>,
    /// What the catalog did that it must never do.
    pub violation: Option<String>,
}

impl Disks {
    pub fn n_good(&self, digest: &Digest) -> usize {
        self.sites.values().filter(|site| site.is_good(digest)).count()
    }
}

#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Disks>>);

impl World {
    pub fn disks(&self) -> MutexGuard<'_, Disks> {
        self.0.lock().unwrap()
    }

    /// Does something at a site that answers.
    fn at<T>(&self, name: &str, work: impl FnOnce(&mut Site) -> T) -> Result<T> {
        let mut disks = self.disks();
        let site = disks.sites.get_mut(name).expect("the catalog asks for sites that it was given");
        match site.fuse {
            Some(0) => (site.answers, site.fuse) = (false, None),
            Some(left) => site.fuse = Some(left - 1),
            None => {}
        }
        match site.answers {
            true => Ok(work(site)),
            false => Err(Error::Unreached { site: name.into(), reason: "it does not answer".into() }),
        }
    }
}

impl Reach for World {
    fn reach(&self, site: &str, _: &str) -> Result<Box<dyn Holding>> {
        let place = self.at(site, |site| SitePlace {
            folder_id: site.folder_id.clone(),
            catalog: site.catalog.clone(),
            free_bytes: site.free_bytes,
            rate_bytes_per_s: None,
        })?;
        Ok(Box::new(Remote { world: self.clone(), name: site.into(), place }))
    }
}

struct Remote {
    world: World,
    name: String,
    place: SitePlace,
}

impl Remote {
    fn at<T>(&self, work: impl FnOnce(&mut Site) -> T) -> Result<T> {
        self.world.at(&self.name, work)
    }
}

fn broken(error: Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl Holding for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> &SitePlace {
        &self.place
    }

    fn claim(&self, catalog: &str) -> Result<String> {
        self.at(|site| {
            site.catalog = Some(catalog.into());
            site.folder_id.clone()
        })
    }

    fn batch(&self) -> Result<Box<dyn Arrivals + '_>> {
        self.at(|_| ())?;
        Ok(Box::new(Batch { site: self, objects: vec![] }))
    }

    fn open(&self, digest: Digest) -> Result<Option<Box<dyn Read + '_>>> {
        let bytes = self.at(|site| site.objects.get(&digest).cloned())?;
        Ok(bytes.map(|bytes| Box::new(Reading { site: self, bytes, n_read: 0 }) as Box<dyn Read>))
    }

    fn verify_all(&self, digests: &[Digest], found: &mut dyn FnMut(usize, Condition)) -> Result<()> {
        for (n, digest) in digests.iter().enumerate() {
            let condition =
                self.at(|site| match (site.is_good(digest), site.objects.contains_key(digest)) {
                    (true, _) => Condition::Good,
                    (false, true) => Condition::Bad,
                    (false, false) => Condition::Missing,
                })?;
            found(n, condition);
        }
        Ok(())
    }

    fn take_reads(&self) -> Result<HashMap<Digest, u64>> {
        self.at(|site| std::mem::take(&mut site.read))
    }

    fn objects(&self) -> Result<Vec<Digest>> {
        self.at(|site| site.objects.keys().copied().collect())
    }

    fn set_aside(&self, digests: &[Digest]) -> Result<()> {
        for digest in digests {
            self.at(|site| {
                let by = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
                let bytes = site.objects.remove(digest);
                site.aside.extend(bytes.map(|bytes| (Aside { digest: *digest, by }, bytes)));
            })?;
        }
        Ok(())
    }

    fn aside(&self) -> Result<Vec<Aside>> {
        self.at(|site| site.aside.iter().map(|(aside, _)| aside.clone()).collect())
    }

    fn settle(&self, unneeded: &[Aside], needed: &[Aside]) -> Result<()> {
        let take = |site: &mut Site, aside: &Aside| {
            let n = site.aside.iter().position(|(found, _)| found == aside)?;
            Some(site.aside.swap_remove(n).1)
        };
        for aside in needed {
            self.at(|site| {
                let bytes = take(site, aside);
                bytes.map(|bytes| site.objects.entry(aside.digest).or_insert(bytes).len())
            })?;
        }
        for aside in unneeded {
            let bytes = self.at(|site| take(site, aside))?;
            let was_good = bytes.is_some_and(|bytes| Digest::of(&bytes) == aside.digest);
            let mut disks = self.world.disks();
            let digest = &aside.digest;
            let wanted = disks.needed.get(digest).copied();
            if was_good
                && let Some(wanted) = wanted
                && disks.n_good(digest) < wanted as usize
            {
                let n_left = disks.n_good(digest);
                disks.violation.get_or_insert(format!(
                    "a good copy of {digest} was removed from `{}` though a data set needs {wanted}; {n_left} are left",
                    self.name
                ));
            }
        }
        Ok(())
    }

    fn seal(&self, key: &Key, text: &[u8]) -> Result<bool> {
        self.at(|site| {
            let files = |text: &[u8]| Sealed::of_text(text).map(|sealed| sealed.files);
            let is_free = site.seals.get(&key.to_string()).is_none_or(|there| files(there) == files(text));
            if is_free {
                site.seals.insert(key.to_string(), text.to_vec());
            }
            is_free
        })
    }

    fn unseal(&self, key: &Key) -> Result<()> {
        self.at(|site| {
            site.seals.remove(&key.to_string());
        })
    }

    fn seal_digests(&self) -> Result<HashMap<String, Digest>> {
        self.at(|site| site.seals.iter().map(|(key, text)| (key.clone(), Digest::of(text))).collect())
    }

    fn seals(&self) -> Result<(Vec<Sealed>, Vec<String>)> {
        let seals =
            self.at(|site| site.seals.values().map(|text| Sealed::of_text(text)).collect::<Vec<_>>())?;
        let (good, bad): (Vec<_>, Vec<_>) = seals.into_iter().partition(std::result::Result::is_ok);
        Ok((good.into_iter().flatten().collect(), bad.into_iter().filter_map(|seal| seal.err()).collect()))
    }
}

/// An object that comes in pieces, from a site that may go away between them.
struct Reading<'a> {
    site: &'a Remote,
    bytes: Vec<u8>,
    n_read: usize,
}

impl Read for Reading<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        self.site.at(|_| ()).map_err(broken)?;
        let n = piece.len().min(400).min(self.bytes.len() - self.n_read);
        piece[..n].copy_from_slice(&self.bytes[self.n_read..][..n]);
        self.n_read += n;
        Ok(n)
    }
}

struct Batch<'a> {
    site: &'a Remote,
    objects: Vec<Vec<u8>>,
}

impl Arrivals for Batch<'_> {
    fn add(&mut self, from: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let mut bytes = vec![];
        from.read_to_end(&mut bytes)?;
        self.site.at(|_| ()).map_err(broken)?;
        let digest = Digest::of(&bytes);
        let n = bytes.len() as u64;
        self.objects.push(bytes);
        Ok((digest, n))
    }

    fn undo(&mut self) -> io::Result<()> {
        self.objects.pop();
        Ok(())
    }

    /// A site that goes away meanwhile has some of them.
    fn keep(self: Box<Self>) -> io::Result<()> {
        let Batch { site, objects } = *self;
        for bytes in objects {
            let n = bytes.len() as u64;
            let has_room = site.at(|site| {
                let has_room = site.free_bytes >= n;
                if has_room {
                    let before =
                        site.objects.insert(Digest::of(&bytes), bytes).map_or(0, |old| old.len() as u64);
                    site.free_bytes = site.free_bytes + before - n;
                }
                has_room
            });
            if !has_room.map_err(broken)? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        // Its answer can be lost, too.
        site.at(|_| ()).map_err(broken)
    }
}
