//! The coefficients as a vector of logarithms, each with a prior.

use std::path::Path;

use anyhow::{Context, Result};
use ridgeline_operators::op_cost::Coefficients;
use serde_json::Value;

use crate::cases::Case;
use crate::report::factor;

/// One coefficient.
pub(crate) struct Parameter {
    /// The path in the file: `stream.copy`.
    pub name: String,
    /// The expected value without measurements.
    pub prior: f64,
    /// The standard deviation of its logarithm.
    pub spread: f64,
    /// The minimum and maximum.
    pub limits: (f64, f64),
}

/// All fitted coefficients, and the file that they came from.
pub(crate) struct Parameters {
    pub list: Vec<Parameter>,
    base: Value,
    /// The provenance and errors of the former fit.
    former: Value,
}

/// Round numbers from the literature and from experience with kernels: the start of the fit, and
/// the result for coefficients without measurements.
const PRIORS: &str = include_str!("priors.json");

/// The standard deviation of the logarithm of a coefficient from that of the former fit.
const FORMER_SPREAD: f64 = 0.03;

/// Coefficients that the image models, which ran on GeForce boards, say little or nothing about.
const DATA_CENTER_ONLY: [&str; 13] = [
    "product.unaligned",
    "product.tensor_joules",
    "product.joules_of_8_0",
    "product.scalar_joules",
    "product.scalar_joules_of_8_0",
    "product.scalar.matrix",
    "product.scalar.batched",
    "product.tile_load_scalar",
    "attainable.pascal",
    "attainable.volta",
    "attainable.turing",
    "attainable.ampere",
    "attainable.later",
];

impl Parameters {
    /// Returns the parameters, with the result of a former fit as priors if there is one.
    pub(crate) fn after(former: Option<&Path>) -> Result<Parameters> {
        let mut base: Value = serde_json::from_str(PRIORS)?;
        let mut list = Vec::new();
        collect("", &base, &mut list);
        let Some(file) = former else {
            return Ok(Parameters { list, base, former: Value::Null });
        };
        let text = std::fs::read(file).with_context(|| format!("{}", file.display()))?;
        let mut former: Value = serde_json::from_slice(&text)?;
        for parameter in &mut list {
            let pointer = format!("/{}", parameter.name.replace('.', "/"));
            let found = former.pointer(&format!("/coefficients{pointer}")).and_then(Value::as_f64);
            if let Some(found) = found
                && !DATA_CENTER_ONLY.contains(&parameter.name.as_str())
                && let Some(place) = base.pointer_mut(&pointer)
            {
                (parameter.prior, parameter.spread) = (found, FORMER_SPREAD);
                *place = Value::from(found);
            }
        }
        Ok(Parameters { list, base, former: former["provenance"].take() })
    }

    /// Returns the logarithms of the priors.
    pub(crate) fn start(&self) -> Vec<f64> {
        self.list.iter().map(|parameter| parameter.prior.ln()).collect()
    }

    /// Converts a vector of logarithms to coefficients.
    #[expect(clippy::expect_used, reason = "a fit without priors cannot go on")]
    pub(crate) fn coefficients(&self, point: &[f64]) -> Coefficients {
        serde_json::from_value(self.value(point)).expect("priors.json has every coefficient")
    }

    fn value(&self, point: &[f64]) -> Value {
        let mut value = self.base.clone();
        for (parameter, logarithm) in self.list.iter().zip(point) {
            let pointer = format!("/{}", parameter.name.replace('.', "/"));
            if let Some(place) = value.pointer_mut(&pointer) {
                *place = Value::from(logarithm.exp());
            }
        }
        value
    }

    /// Formats one line for each coefficient: its value, its prior, and the elasticity of each set.
    pub(crate) fn show(&self, point: &[f64], shares: &[Vec<f64>]) -> String {
        let lines =
            self.list.iter().zip(point).enumerate().map(|(index, (parameter, logarithm))| {
                let (name, value, prior) = (&parameter.name, logarithm.exp(), parameter.prior);
                let shares: Vec<String> =
                    shares.iter().map(|of| format!("{:6.3}", of[index])).collect();
                format!("  {name:44} {value:10.3e} from {prior:9.2e}  {}", shares.join(" "))
            });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the contents of `coefficients.json`.
    pub(crate) fn file(
        &self,
        point: &[f64],
        provenance: &Value,
        unseen: &[f64],
        cases: &[Case],
    ) -> String {
        let mut value = self.value(point);
        round(&mut value);
        let errors = |of: &dyn Fn(&Case) -> bool| {
            let of = cases
                .iter()
                .zip(unseen)
                .filter(|(case, _)| of(case) && case.is_current_generation());
            factor(of.map(|(_, error)| *error).collect())
        };
        for (name, found) in [
            ("product", errors(&|case| case.set == "linear" || case.set == "bmm")),
            ("convolution", errors(&|case| case.set == "conv")),
            ("stream", errors(&|case| case.is_stream())),
            ("step", errors(&|case| case.is_step)),
        ] {
            if let Some(found) = found {
                value["range"][name] = Value::from((found * 100.0).ceil() / 100.0);
            }
        }
        let mut provenance = provenance.clone();
        if !self.former.is_null() {
            provenance["former_fit"] = self.former.clone();
        }
        let file = serde_json::json!({ "provenance": provenance, "coefficients": value });
        format!("{file:#}\n")
    }
}

fn collect(path: &str, value: &Value, list: &mut Vec<Parameter>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(&path, value, list);
            }
        }
        Value::Number(number) if is_fitted(path) => {
            let prior = number.as_f64().unwrap_or(1.0);
            let (spread, limits) = prior_spread_and_limits(path);
            list.push(Parameter { name: path.to_owned(), prior, spread, limits });
        }
        _ => {}
    }
}

/// Returns whether a coefficient is fitted. There are no measurements of CPUs, or of FP32 on chips
/// that `issue` is for, and ranges follow from the errors.
fn is_fitted(path: &str) -> bool {
    !path.starts_with("range.") && !matches!(path, "cpu_floor_ns" | "product.issue")
}

fn prior_spread_and_limits(path: &str) -> (f64, (f64, f64)) {
    match path {
        "floor_ns" => (0.4, (500.0, 5e3)),
        "cache.share" => (0.5, (0.05, 1.0)),
        "cache.speed" => (0.3, (1.0, 5.0)),
        "product.quantization" => (0.5, (0.05, 1.0)),
        "product.overlap" => (0.5, (1.0, 8.0)),
        "stream.arithmetic_generic_channels_last" => (0.7, (1.0, 200.0)),
        _ if path.starts_with("stream.arithmetic_") => (0.5, (0.5, 20.0)),
        "product.unaligned" => (0.5, (50.0, 5e3)),
        "product.tile_load" => (0.5, (1.0, 200.0)),
        // A 400 W A100 reaches 98% of its FP32 peak with 256 x 128 tiles (`REPORTED_TFLOPS`).
        "product.tile_load_scalar" => (0.2, (0.5, 200.0)),
        "product.prologue" => (0.5, (4.0, 600.0)),
        "product.scalar_joules" => (0.5, (1e-13, 1e-10)),
        "product.tensor_joules" => (0.3, (1e-13, 1e-10)),
        "product.joules_of_8_0" | "product.scalar_joules_of_8_0" => (0.3, (0.2, 2.0)),
        // Winograd's algorithm needs up to 2.25 times fewer multiplications for a 3 x 3 window
        // (Lavin and Gray, 2016).
        "product.scalar.window" => (0.4, (0.02, 2.25)),
        _ if path.contains(".of_") => (0.3, (0.1, 2.0)),
        // Consumer boards reach higher clocks than their datasheets state.
        _ if path.starts_with("product.tensor") => (0.4, (0.02, 1.25)),
        _ if path.starts_with("attainable.") => (0.1, (0.4, 1.0)),
        _ => (0.4, (0.005, 1.0)),
    }
}

/// Rounds to four significant digits, which is more than the accuracy.
fn round(value: &mut Value) {
    match value {
        Value::Object(object) => object.values_mut().for_each(round),
        Value::Number(number) => {
            if let Some(found) = number.as_f64().filter(|found| *found != 0.0) {
                let text = format!("{found:.3e}");
                *value = Value::from(text.parse::<f64>().unwrap_or(found));
            }
        }
        _ => {}
    }
}
