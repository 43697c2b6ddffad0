/// A function of a file that a session traces, in whichever of its processes. The engine numbers them from 0 on, with
/// few gaps. A number means the same function until the session ends, also while the file is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey(pub u32);
