//! The table by which the loader finds names (DT_GNU_HASH).

/// Words: number of buckets, first symbol, size of the filter, shift; the filter (8 bytes each); the buckets (where the
/// chain of each begins, as the number of a symbol); the chains, one word a symbol: its hash, but the lowest bit tells
/// that the chain ends.
pub(crate) struct HashTable<'a> {
    first: usize,
    shift: u32,
    filter: &'a [[u8; 8]],
    buckets: &'a [[u8; 4]],
    chains: &'a [[u8; 4]],
}

impl<'a> HashTable<'a> {
    /// `table` may go on behind its end.
    pub fn parse(table: &'a [u8]) -> Option<HashTable<'a>> {
        let words = table.as_chunks::<4>().0;
        let (header, _) = words.split_first_chunk::<4>()?;
        let [buckets, first, filter, shift] = header.map(u32::from_le_bytes);
        let (filter, rest) = table
            .get(16..)?
            .as_chunks()
            .0
            .split_at_checked(usize::try_from(filter).ok()?)?;
        let (buckets, chains) = rest
            .as_flattened()
            .as_chunks()
            .0
            .split_at_checked(usize::try_from(buckets).ok()?)?;
        Some(HashTable {
            first: usize::try_from(first).ok()?,
            shift,
            filter,
            buckets,
            chains,
        })
    }

    /// The number of symbols that the table knows the end of.
    pub fn symbols(&self) -> Option<usize> {
        let starts = self
            .buckets
            .iter()
            .map(|bucket| u32::from_le_bytes(*bucket));
        let last = usize::try_from(starts.max()?).ok()?;
        if last < self.first {
            return Some(self.first);
        }
        let chain = self.chains.get(last - self.first..)?;
        let end = chain.iter().position(|word| word[0] & 1 != 0)?;
        last.checked_add(end + 1)
    }

    /// The numbers of the symbols that may have a name, in order.
    pub fn candidates(&self, name: &[u8]) -> impl Iterator<Item = u32> + use<'a> {
        let hash = hash(name);
        let chain = self.chain(hash).unwrap_or_default();
        let first = self.bucket(hash).unwrap_or(0);
        let end = chain.iter().position(|word| word[0] & 1 != 0);
        let chain = &chain[..end.map_or(chain.len(), |end| end + 1)];
        let same = move |(_, word): &(u32, &[u8; 4])| (u32::from_le_bytes(**word) ^ hash) >> 1 == 0;
        (first..=u32::MAX)
            .zip(chain)
            .filter(same)
            .map(|(index, _)| index)
    }

    fn bucket(&self, hash: u32) -> Option<u32> {
        let index = (hash as usize).checked_rem(self.buckets.len())?;
        Some(u32::from_le_bytes(self.buckets[index]))
    }

    fn chain(&self, hash: u32) -> Option<&'a [[u8; 4]]> {
        let word = (hash as usize / 64).checked_rem(self.filter.len())?;
        let word = u64::from_le_bytes(self.filter[word]);
        let bit = |hash: u32| word >> (hash % 64) & 1 != 0;
        if !bit(hash) || !bit(hash.checked_shr(self.shift)?) {
            return None;
        }
        let start = usize::try_from(self.bucket(hash)?).ok()?;
        self.chains.get(start.checked_sub(self.first)?..)
    }
}

fn hash(name: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
    name.iter().fold(5381, step)
}
