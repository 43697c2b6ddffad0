//! Gives the messages between the tool and the kernel's module names in Rust.

use nopal_headers::{Headers, Structure};
use std::path::Path;

const DERIVED: &str = "Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::Immutable, zerocopy::IntoBytes";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let structure = |c, rust| Structure::new(c, rust).derive(DERIVED).foreign();
    let folder = "port/linux_kernel";
    let headers = Headers::new(Path::new("../../runtime"), &[folder], &["device.h"])
        .all_constants()?
        .counts(["NOPAL_DEVICE_EXITS", "NOPAL_DEVICE_FUNCTIONS"])
        .structures([
            structure("nopal_device_exit", "Exit"),
            structure("nopal_device_function", "Function"),
            structure("nopal_device_modules", "DeviceModules"),
            structure("nopal_device_plan", "DevicePlan"),
            structure("nopal_device_sites", "DeviceSites"),
            structure("nopal_device_verdict", "DeviceVerdict"),
            structure("nopal_device_verdicts", "DeviceVerdicts"),
            structure("nopal_device_marker", "DeviceMarker"),
            structure("nopal_device_markers", "DeviceMarkers"),
            structure("nopal_device_probe", "DeviceProbe"),
        ]);
    Ok(headers.write("device.rs")?)
}
