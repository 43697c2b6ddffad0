//! Times that are summed up by site, and taken from time to time.

pub struct OwnTimes {
    /// In ticks, by site; and the sites that have any.
    by_site: Vec<u64>,
    touched: Vec<u32>,
}

impl OwnTimes {
    pub fn new(sites: usize) -> OwnTimes {
        OwnTimes {
            by_site: vec![0; sites.max(1)],
            touched: Vec::new(),
        }
    }

    /// Sites that the trace does not describe count as 0.
    #[inline(always)]
    pub fn add(&mut self, site: u32, ticks: u64) {
        let known = (site as usize) < self.by_site.len();
        let site = if known { site } else { 0 };
        let sum = &mut self.by_site[site as usize];
        if *sum == 0 && ticks > 0 {
            self.touched.push(site);
        }
        *sum = sum.saturating_add(ticks);
    }

    /// Takes all times that are not 0; they are 0 afterwards.
    pub fn take(&mut self) -> impl Iterator<Item = (u32, u64)> {
        let times = self.touched.drain(..);
        times.map(|site| (site, std::mem::take(&mut self.by_site[site as usize])))
    }
}
