//! The messages between the tool and the kernel's module beside text, as `runtime/port/linux_kernel/device.h` lays them
//! out.

include!(concat!(env!("OUT_DIR"), "/device.rs"));
