//! What a GPU copied or filled, by the name that the profiler gives it: the one place that reads such names.
//!
//! Kineto writes `Memcpy HtoD (Pageable -> Device)`, and on ROCm, which does not tell one memory of the host
//! from another, `Memcpy HtoD (Host -> Device)`. Its traces of ROCm until 2023 have roctracer's own names
//! (`getOclCommandKindString` of AMD's ROCclr), and have them among the kernels: `CopyHostToDevice`,
//! `FillBuffer`.

use super::trace::ActivityKind;

/// From where to where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to a GPU.
    ToDevice,
    /// From a GPU to the host.
    ToHost,
    /// From a GPU to itself or to another one.
    OnDevices,
}

/// Where a copy goes; nothing where its name does not say.
pub fn direction(copy: &str) -> Option<Direction> {
    const MARKS: [(Direction, [&str; 3]); 3] = [
        (Direction::OnDevices, ["DtoD", "Device -> Device", "DeviceToDevice"]),
        (Direction::ToDevice, ["HtoD", "Host To Device", "HostToDevice"]),
        (Direction::ToHost, ["DtoH", "Device To Host", "DeviceToHost"]),
    ];
    let mut found = MARKS.iter().filter(|(_, marks)| marks.iter().any(|it| copy.contains(it)));
    found.next().map(|(direction, _)| *direction)
}

/// What roctracer's name for a piece of work stands for: a copy, a fill, or else a kernel.
pub(super) fn kind_of_kernel(name: &[u8]) -> ActivityKind {
    match name.strip_suffix(b"2D").unwrap_or(name) {
        b"CopyHostToDevice" | b"CopyDeviceToHost" | b"CopyDeviceToDevice" => ActivityKind::Memcpy,
        b"FillBuffer" => ActivityKind::Memset,
        _ => ActivityKind::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_vendors_profilers() {
        for (name, expected) in [
            ("Memcpy HtoD (Pinned -> Device)", Some(Direction::ToDevice)),
            ("Memcpy HtoD (Host -> Device)", Some(Direction::ToDevice)),
            ("CopyHostToDevice", Some(Direction::ToDevice)),
            ("CopyHostToDevice2D", Some(Direction::ToDevice)),
            ("Memcpy DtoH (Device -> Pageable)", Some(Direction::ToHost)),
            ("CopyDeviceToHost", Some(Direction::ToHost)),
            ("Memcpy DtoD (Device -> Device)", Some(Direction::OnDevices)),
            ("Memcpy PtoP (Device -> Device)", Some(Direction::OnDevices)),
            ("CopyDeviceToDevice", Some(Direction::OnDevices)),
            ("Memcpy HtoH (Pageable -> Pinned)", None),
            ("", None),
        ] {
            assert_eq!(direction(name), expected, "{name}");
        }
    }

    #[test]
    fn copies_among_the_kernels() {
        assert_eq!(kind_of_kernel(b"CopyHostToDevice"), ActivityKind::Memcpy);
        assert_eq!(kind_of_kernel(b"CopyDeviceToDevice2D"), ActivityKind::Memcpy);
        assert_eq!(kind_of_kernel(b"FillBuffer"), ActivityKind::Memset);
        for kernel in ["Cijk_Ailk_Bljk_SB_MT64x64x16", "void copyDeviceToDevice<float>", "2D", ""] {
            assert_eq!(kind_of_kernel(kernel.as_bytes()), ActivityKind::Kernel, "{kernel}");
        }
    }
}
