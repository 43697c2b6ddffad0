//! The sites of a trace that is written, with their names.

use nopal_abi::SITE_LIMIT;
use std::borrow::Cow;
use std::ops::Range;

/// The data of a site that `metadata` needs.
pub struct NamedSite {
    pub number: u32,
    pub image: u32,
    pub address: u64,
    /// The range of its name among those of all.
    name: Range<usize>,
}

#[derive(Default)]
pub struct NamedSites {
    /// By number up to those of the last [`NamedSites::sort`], then in the order of their notes. The first of a number
    /// counts.
    sites: Vec<NamedSite>,
    names: String,
}

impl NamedSites {
    /// Adds the data of each site in a [`Note::Sites`](crate::Note::Sites): number, address, size and name.
    pub fn learn<'a>(
        &mut self,
        image: u32,
        sites: impl ExactSizeIterator<Item = (u32, u64, u64, Cow<'a, str>)>,
    ) {
        /// Usual bytes of a name.
        const BYTES: usize = 32;
        self.sites.reserve(sites.len());
        self.names.reserve(BYTES * sites.len());
        for (number, address, _, name) in sites {
            if (1..SITE_LIMIT).contains(&number) {
                let begin = self.names.len();
                self.names.push_str(&name);
                self.sites.push(NamedSite {
                    number,
                    image,
                    address,
                    name: begin..self.names.len(),
                });
            }
        }
    }

    pub fn sort(&mut self) {
        if !self
            .sites
            .is_sorted_by(|one, next| one.number < next.number)
        {
            // This sort leaves the first of a number first.
            self.sites.sort_by_key(|site| site.number);
            self.sites.dedup_by_key(|site| site.number);
        }
    }

    /// The site of a number, once they are sorted.
    pub fn get(&self, number: u32) -> Option<&NamedSite> {
        let found = self.sites.binary_search_by_key(&number, |site| site.number);
        Some(&self.sites[found.ok()?])
    }

    pub fn iter(&self) -> impl Iterator<Item = &NamedSite> {
        self.sites.iter()
    }

    /// The name of a site, as it is recorded.
    pub fn name(&self, site: &NamedSite) -> &str {
        &self.names[site.name.clone()]
    }

    /// The name of a site; empty if it is not known.
    pub fn name_of(&self, number: u32) -> &str {
        let known = self.sites.iter().find(|known| known.number == number);
        known.map_or("", |site| self.name(site))
    }
}
