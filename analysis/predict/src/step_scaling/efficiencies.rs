//! The shares of a device's limits that kernels reach, with where they come from.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use ridgeline_devices::device_spec::DeviceSpec;

/// Kernels that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Product {
    /// A half-precision matrix product whose rows are multiples of 8 elements.
    Gemm,
    /// Whose rows are multiples of 2 or 4.
    GemmHalfAligned,
    /// Whose rows are odd.
    GemmUnaligned,
    /// A convolution of single pixels.
    #[serde(rename = "convolution_1x1")]
    Convolution1x1,
    /// Any other, of one group.
    Convolution,
    /// Of several groups with several channels.
    GroupedConvolution,
    /// With a window for each channel.
    Depthwise,
    /// Attention in one kernel.
    Attention,
    /// In FP32.
    SinglePrecision,
}

impl Product {
    pub(super) fn uses_tensor_cores(self) -> bool {
        !matches!(self, Product::Depthwise | Product::SinglePrecision)
    }
}

/// Kernels by how they move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stream {
    /// Sums and products element by element.
    Elementwise,
    /// Functions with more arithmetic.
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
    /// What a matrix product reads and writes.
    Product,
    /// What a convolution does.
    Convolution,
    /// What a depthwise convolution does.
    Depthwise,
}

/// What was fitted.
#[derive(Clone, Debug, Deserialize)]
pub struct Efficiencies {
    /// The devices that it was fitted on.
    devices: Vec<String>,
    products: BTreeMap<Product, f64>,
    streams: BTreeMap<Stream, f64>,
    /// The share of the last cache that holds what is read again.
    pub(super) cache_share: f64,
    /// Bytes that a multiprocessor gets from it in a clock.
    pub(super) cache_bytes_per_clock: f64,
    /// How far the rest of a step follows arithmetic; otherwise it follows bandwidth.
    pub(super) arithmetic_share: f64,
    /// Architectures that reach less of their datasheet than those that were fitted on.
    attained: Vec<Attained>,
    /// Factors by which a prediction may be off.
    pub(super) ranges: Ranges,
}

/// Factors within which nine in ten predictions lie.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Ranges {
    /// Between two devices that the efficiencies were fitted on.
    pub(super) fitted_pair: f64,
    /// Between other devices, and of compiled steps.
    pub(super) other_pair: f64,
}

/// What an architecture reaches of its datasheet, beside those that were fitted on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Attained {
    /// The major number of its compute capability.
    architecture: String,
    /// Of its peak rates.
    pub(super) arithmetic: f64,
    /// Of its bandwidth.
    pub(super) bandwidth: f64,
}

static SHIPPED: LazyLock<Efficiencies> = LazyLock::new(|| {
    // A test holds the file to this.
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
    /// Those that travel in the binary.
    pub fn shipped() -> &'static Efficiencies {
        &SHIPPED
    }

    /// What [`Efficiencies::values`] are.
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

    /// All that is fitted, in the order of [`Efficiencies::NAMES`].
    pub fn values(&self) -> Vec<f64> {
        let shares = self.products.values().chain(self.streams.values()).copied();
        shares
            .chain([self.cache_share, self.cache_bytes_per_clock, self.arithmetic_share])
            .collect()
    }

    /// The same devices and architectures with other values. Those that are missing stay.
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

    /// A value within what makes sense: no kernel reaches more than a limit, but for boost clocks
    /// beyond the datasheet's.
    pub fn held(place: usize, value: f64) -> f64 {
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

    /// The shares of arithmetic and of bandwidth that a device reaches beside others.
    pub(super) fn attained(&self, device: &DeviceSpec) -> (f64, f64) {
        let major = device.architecture.split('.').next().unwrap_or_default();
        let found = self.attained.iter().find(|attained| attained.architecture == major);
        found.map_or((1.0, 1.0), |attained| (attained.arithmetic, attained.bandwidth))
    }

    pub(super) fn product(&self, kind: Product) -> f64 {
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
    fn the_shipped_file_has_every_kind_and_only_sensible_shares() {
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
        let mut told = Efficiencies::NAMES[..19].to_vec();
        told.sort_unstable();
        all.sort();
        assert_eq!(all, told);
        let shares = read.products.values().chain(read.streams.values());
        assert!(shares.into_iter().all(|share| (0.01..=1.2).contains(share)));
        let table = ridgeline_devices::device_table::DeviceTable::shipped();
        assert!(read.devices.iter().all(|name| table.find(name).is_some()));
    }
}
