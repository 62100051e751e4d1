//! Classifies GPU copies and fills by the names that profilers give them. No other module parses
//! these names.
//!
//! Kineto writes `Memcpy HtoD (Pageable -> Device)`, and on ROCm, which does not distinguish kinds
//! of host memory, `Memcpy HtoD (Host -> Device)`. ROCm traces until 2023 have roctracer's names
//! (`getOclCommandKindString` of AMD's ROCclr), among the kernels: `CopyHostToDevice`,
//! `FillBuffer`.

use super::trace::ActivityKind;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to a GPU.
    ToDevice,
    /// From a GPU to the host.
    ToHost,
    /// From a GPU to itself or to another one.
    OnDevices,
}

/// Returns the direction of a copy, or `None` if its name does not contain it.
pub fn direction(copy: &str) -> Option<Direction> {
    const MARKS: [(Direction, [&str; 3]); 3] = [
        (Direction::OnDevices, ["DtoD", "Device -> Device", "DeviceToDevice"]),
        (Direction::ToDevice, ["HtoD", "Host To Device", "HostToDevice"]),
        (Direction::ToHost, ["DtoH", "Device To Host", "DeviceToHost"]),
    ];
    let mut found = MARKS.iter().filter(|(_, marks)| marks.iter().any(|it| copy.contains(it)));
    found.next().map(|(direction, _)| *direction)
}

/// Returns the kind of a kernel entry: a copy or a fill if it has one of roctracer's names, else a
/// kernel.
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
    fn direction_parses_names_of_all_profilers() {
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
    fn kernel_entries_can_be_copies_and_fills() {
        assert_eq!(kind_of_kernel(b"CopyHostToDevice"), ActivityKind::Memcpy);
        assert_eq!(kind_of_kernel(b"CopyDeviceToDevice2D"), ActivityKind::Memcpy);
        assert_eq!(kind_of_kernel(b"FillBuffer"), ActivityKind::Memset);
        for kernel in ["Cijk_Ailk_Bljk_SB_MT64x64x16", "void copyDeviceToDevice<float>", "2D", ""] {
            assert_eq!(kind_of_kernel(kernel.as_bytes()), ActivityKind::Kernel, "{kernel}");
        }
    }
}
