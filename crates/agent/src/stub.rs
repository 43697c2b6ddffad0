//! The handlers of hooks, in the agent's image.

use crate::image;

/// The handler of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stub {
    Jump,
    Libraries,
    Exec,
    ExecAt,
    ExecDescriptor,
    LockAll,
    Prctl,
    Seccomp,
    SignalAction,
    Protect,
    Move,
    SystemCall,
    FindObject,
    IterateObjects,
}

impl Stub {
    pub(crate) fn offset(self) -> usize {
        match self {
            Stub::Jump => image::STUB_JUMP,
            Stub::Libraries => image::STUB_LIBRARIES,
            Stub::Exec => image::STUB_EXEC,
            Stub::ExecAt => image::STUB_EXEC_AT,
            Stub::ExecDescriptor => image::STUB_EXEC_DESCRIPTOR,
            Stub::LockAll => image::STUB_LOCK_ALL,
            Stub::Prctl => image::STUB_PRCTL,
            Stub::Seccomp => image::STUB_SECCOMP,
            Stub::SignalAction => image::STUB_SIGNAL_ACTION,
            Stub::Protect => image::STUB_PROTECT,
            Stub::Move => image::STUB_MOVE,
            Stub::SystemCall => image::STUB_SYSTEM_CALL,
            Stub::FindObject => image::STUB_FIND_OBJECT,
            Stub::IterateObjects => image::STUB_ITERATE_OBJECTS,
        }
    }
}
