//! What the tool and the kernel's module say to each other beside text, as `runtime/port/linux_kernel/device.h` lays it out.

include!(concat!(env!("OUT_DIR"), "/device.rs"));
