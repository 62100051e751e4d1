//! The terminal page on whether the network is fast enough for training on several GPUs.

use super::terminal::Style;
use super::what_ifs::speedup;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_optimize::network::{Layer, NetworkReport};

/// The maximum number of layers listed, those that send most first.
const MAX_LAYERS: usize = 5;

/// Formats the report as a paragraph, with a line for each number of GPUs.
pub fn page(report: &NetworkReport, style: Style) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        page += text.trim_end();
        page.push('\n');
    };
    let gpus = report.gpus;
    line(style.faint(&format!("on {gpus} GPUs, {} between them", rate(report.bandwidth))));
    line(format!(
        "Iterations take ~{} instead of {}, and each GPU sends {} of gradients",
        units::duration(report.step_ns),
        units::duration(report.alone_ns),
        units::bytes(report.bytes),
    ));
    line(format!(
        "Communication takes ~{}: ~{} overlapped with compute, ~{} exposed",
        units::duration(report.exchange_ns),
        units::duration(report.hidden_ns),
        units::duration(report.exposed_ns),
    ));
    line(required_bandwidth(
        "Bandwidth for 90% scaling efficiency:",
        report.bandwidth_for_90_percent,
    ));
    line(required_bandwidth("Bandwidth to be faster than one GPU:", report.bandwidth_to_gain));
    for scaling in &report.scaling {
        line(format!(
            "{:>4} GPUs: ~{}, {} scaling efficiency",
            scaling.gpus,
            speedup(scaling.speedup),
            units::percent(scaling.efficiency),
        ));
    }
    let layers = report.layers.iter().take(MAX_LAYERS);
    let layers: Vec<String> = layers.map(layer).collect();
    if !layers.is_empty() {
        line(format!("Most data from {}", layers.join(", ")));
    }
    for note in &report.notes {
        line(style.faint(&clean(&shorten(note, 400))));
    }
    page
}

fn required_bandwidth(what: &str, bandwidth: Option<f64>) -> String {
    match bandwidth {
        Some(bandwidth) => format!("{what} at least ~{}", rate(bandwidth)),
        None => format!("{what} more than any network provides"),
    }
}

/// `12.5 GB/s (100 Gbit/s)`.
fn rate(bytes_per_second: f64) -> String {
    let bits = units::significant(bytes_per_second * 8.0 / 1e9);
    format!("{}/s ({bits} Gbit/s)", units::bytes(bytes_per_second))
}

fn layer(layer: &Layer) -> String {
    let name = layer.module.as_deref().filter(|name| !name.is_empty());
    let name = name.map_or("an unknown layer".to_owned(), |name| clean(&shorten(name, 60)));
    let exposed = if layer.exposed_ns > 0.0 {
        format!(", ~{} exposed", units::duration(layer.exposed_ns))
    } else {
        String::new()
    };
    format!("{name} ({}{exposed})", units::bytes(layer.bytes))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use ridgeline_optimize::network::Scaling;

    #[test]
    fn a_network_that_is_nearly_fast_enough() {
        let layer = |name: Option<&str>, bytes: f64, exposed_ns: f64| Layer {
            module: name.map(str::to_owned),
            bytes,
            exposed_ns,
            ..Layer::default()
        };
        let report = NetworkReport {
            gpus: 4,
            gpus_per_machine: 8,
            bandwidth: 1.25e9,
            bytes: 100e6,
            alone_ns: 100e6,
            step_ns: 125e6,
            exchange_ns: 120e6,
            hidden_ns: 95e6,
            exposed_ns: 25e6,
            layers: vec![layer(Some("fc"), 8e6, 5e6), layer(None, 4e6, 0.0)],
            scaling: vec![Scaling { gpus: 2, step_ns: 110e6, speedup: 1.8, efficiency: 0.9 }],
            bandwidth_for_90_percent: Some(2e9),
            bandwidth_to_gain: None,
            notes: vec!["a note".to_owned()],
        };
        expect![[r#"
            on 4 GPUs, 1.2 GB/s (10 Gbit/s) between them
            Iterations take ~125 ms instead of 100 ms, and each GPU sends 100 MB of gradients
            Communication takes ~120 ms: ~95 ms overlapped with compute, ~25 ms exposed
            Bandwidth for 90% scaling efficiency: at least ~2.0 GB/s (16 Gbit/s)
            Bandwidth to be faster than one GPU: more than any network provides
               2 GPUs: ~1.8×, 90% scaling efficiency
            Most data from fc (8.0 MB, ~5.0 ms exposed), an unknown layer (4.0 MB)
            a note
        "#]]
        .assert_eq(&page(&report, Style { color: false, width: 100 }));
    }
}
