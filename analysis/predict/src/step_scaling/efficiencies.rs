//! The shares of a device's limits that kernels reach, and the fit they come from.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use ridgeline_devices::device_spec::DeviceSpec;

/// Kernels that multiply matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MatmulKind {
    /// A half-precision GEMM with rows of a multiple of 8 elements.
    Gemm,
    /// With rows of a multiple of 2 or 4 elements.
    GemmHalfAligned,
    /// With rows of an odd number of elements.
    GemmUnaligned,
    /// A 1x1 convolution.
    #[serde(rename = "convolution_1x1")]
    Convolution1x1,
    /// Any other convolution with one group.
    Convolution,
    /// A convolution with several groups of several channels.
    GroupedConvolution,
    /// A depthwise convolution.
    Depthwise,
    /// Fused attention.
    Attention,
    /// A GEMM or convolution in FP32.
    SinglePrecision,
}

impl MatmulKind {
    pub(super) fn uses_tensor_cores(self) -> bool {
        !matches!(self, MatmulKind::Depthwise | MatmulKind::SinglePrecision)
    }
}

/// Kernels by their memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stream {
    /// Element-wise sums and products.
    Elementwise,
    /// Element-wise functions with more arithmetic.
    Activation,
    /// Batch, layer and group norms.
    Norm,
    /// Softmax.
    Softmax,
    /// Copies, casts, gathers.
    Copy,
    /// Sums and means.
    Reduction,
    /// Pooling and resampling.
    Pooling,
    /// The reads and writes of a GEMM.
    Product,
    /// Those of a convolution.
    Convolution,
    /// Those of a depthwise convolution.
    Depthwise,
}

/// The fitted efficiencies.
#[derive(Clone, Debug, Deserialize)]
pub struct Efficiencies {
    /// The devices of the fit.
    devices: Vec<String>,
    products: BTreeMap<MatmulKind, f64>,
    streams: BTreeMap<Stream, f64>,
    /// The share of the last-level cache that holds data that is read again.
    pub(super) cache_share: f64,
    /// Bytes that a multiprocessor reads from it per clock.
    pub(super) cache_bytes_per_clock: f64,
    /// The share to which the rest of a step scales with compute; otherwise it scales with
    /// bandwidth.
    pub(super) arithmetic_share: f64,
    /// Architectures that reach less of their datasheet values than those of the fit.
    attained: Vec<ArchitectureEfficiency>,
    /// Error factors of predictions.
    pub(super) ranges: Ranges,
}

/// Factors of 90% intervals.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Ranges {
    /// Between two devices of the fit.
    pub(super) fitted_pair: f64,
    /// Between other devices, and for compiled steps.
    pub(super) other_pair: f64,
}

/// The share of the datasheet values that an architecture reaches, relative to those of the fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ArchitectureEfficiency {
    /// The major number of its compute capability.
    architecture: String,
    /// The share of peak compute rates.
    pub(super) arithmetic: f64,
    /// The share of bandwidth.
    pub(super) bandwidth: f64,
}

static SHIPPED: LazyLock<Efficiencies> = LazyLock::new(|| {
    // A test checks that the file parses.
    serde_json::from_str(include_str!("efficiencies.json")).unwrap_or_else(|_| Efficiencies {
        devices: Vec::new(),
        products: BTreeMap::new(),
        streams: BTreeMap::new(),
        cache_share: 0.5,
        cache_bytes_per_clock: 16.0,
        arithmetic_share: 0.5,
        attained: Vec::new(),
        ranges: Ranges { fitted_pair: 1.1, other_pair: 1.2 },
    })
});

impl Efficiencies {
    /// Returns the efficiencies embedded in the binary.
    pub fn shipped() -> &'static Efficiencies {
        &SHIPPED
    }

    /// The names of [`Efficiencies::values`].
    pub const NAMES: [&str; 22] = [
        "products.gemm",
        "products.gemm_half_aligned",
        "products.gemm_unaligned",
        "products.convolution_1x1",
        "products.convolution",
        "products.grouped_convolution",
        "products.depthwise",
        "products.attention",
        "products.single_precision",
        "streams.elementwise",
        "streams.activation",
        "streams.norm",
        "streams.softmax",
        "streams.copy",
        "streams.reduction",
        "streams.pooling",
        "streams.product",
        "streams.convolution",
        "streams.depthwise",
        "cache_share",
        "cache_bytes_per_clock",
        "arithmetic_share",
    ];

    /// Returns all fitted values, in the order of [`Efficiencies::NAMES`].
    pub fn values(&self) -> Vec<f64> {
        let shares = self.products.values().chain(self.streams.values()).copied();
        shares
            .chain([self.cache_share, self.cache_bytes_per_clock, self.arithmetic_share])
            .collect()
    }

    /// Returns a copy with other values. Missing values keep theirs.
    #[must_use]
    pub fn with_values(&self, values: &[f64]) -> Efficiencies {
        let mut new = self.clone();
        let places = new
            .products
            .values_mut()
            .chain(new.streams.values_mut())
            .chain([&mut new.cache_share, &mut new.cache_bytes_per_clock])
            .chain([&mut new.arithmetic_share]);
        for (place, value) in places.zip(values) {
            *place = *value;
        }
        new
    }

    /// Limits a value to a plausible range: no kernel exceeds a limit, except by boost clocks above
    /// the datasheet.
    pub fn clamped(place: usize, value: f64) -> f64 {
        match place {
            0..=8 => value.clamp(0.03, 1.1),
            9..=18 => value.clamp(0.3, 0.95),
            20 => value.clamp(4.0, 40.0),
            _ => value.clamp(0.1, 1.0),
        }
    }

    pub(super) fn fitted_on(&self, device: &DeviceSpec) -> bool {
        self.devices.contains(&device.name)
    }

    /// Returns the relative shares of compute and bandwidth that a device reaches.
    pub(super) fn attained(&self, device: &DeviceSpec) -> (f64, f64) {
        let major = device.architecture.split('.').next().unwrap_or_default();
        let found = self.attained.iter().find(|attained| attained.architecture == major);
        found.map_or((1.0, 1.0), |attained| (attained.arithmetic, attained.bandwidth))
    }

    pub(super) fn product(&self, kind: MatmulKind) -> f64 {
        self.products.get(&kind).copied().unwrap_or(0.5)
    }

    pub(super) fn stream(&self, kind: Stream) -> f64 {
        self.streams.get(&kind).copied().unwrap_or(0.8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_has_every_kind_and_plausible_shares() {
        let read: Efficiencies =
            serde_json::from_str(include_str!("efficiencies.json")).expect("it parses");
        assert_eq!(read.values().len(), Efficiencies::NAMES.len());
        let names = |text: &str, group: &str| -> Vec<String> {
            let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let keys = json[group].as_object().expect("an object").keys();
            keys.map(|key| format!("{group}.{key}")).collect()
        };
        let text = include_str!("efficiencies.json");
        let mut all = names(text, "products");
        all.extend(names(text, "streams"));
        let mut expected = Efficiencies::NAMES[..19].to_vec();
        expected.sort_unstable();
        all.sort();
        assert_eq!(all, expected);
        let shares = read.products.values().chain(read.streams.values());
        assert!(shares.into_iter().all(|share| (0.01..=1.2).contains(share)));
        let table = ridgeline_devices::device_table::DeviceTable::shipped();
        assert!(read.devices.iter().all(|name| table.find(name).is_some()));
    }
}
