//! Finds the GPU in the device table for the name in a measurement: `rtx4090`,
//! `Tesla_V100-PCIE-32GB`, `pro6000-maxq`.

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;

/// A device, and whether it is exactly the named variant: for example, the table has a V100 with 16
/// GB, but 32 GB were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceMatch<'a> {
    /// The row of the table.
    pub device: &'a DeviceSpec,
    /// Whether every word of the name is in the device's name.
    pub exact: bool,
}

/// Returns the device with this name. `None` if the table does not have the model. A model is its
/// number with the letters around it, and never matches approximately.
pub fn named<'a>(name: &str, table: &'a DeviceTable) -> Option<DeviceMatch<'a>> {
    named_with_power(name, None, table)
}

/// Like [`named`], with the power of the board, which distinguishes variants that the name does not
/// (a V100 with 250 W is a PCIe card, one with 300 W an SXM module).
pub fn named_with_power<'a>(
    name: &str,
    watts: Option<f64>,
    table: &'a DeviceTable,
) -> Option<DeviceMatch<'a>> {
    const MAX_LENGTH: usize = 100;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let plain = name.replace('_', " ");
    let mut rest = plain.trim();
    loop {
        if let Some(named) = named_exactly(rest, watts, table) {
            return Some(named);
        }
        rest = without_first_word(rest)?;
    }
}

/// Removes the first word, which may be a vendor or owner (`Dell`, `1CC`, `LambdaCloud`), if the
/// rest begins like the name of a GPU. A bare number does not count: `Radeon RX 6000` would become
/// a Quadro.
fn without_first_word(name: &str) -> Option<&str> {
    let (dropped, rest) = name.split_once(' ')?;
    if OTHER_MODELS.contains(&dropped.to_ascii_lowercase().as_str()) {
        return None;
    }
    let rest = rest.trim_start();
    let first = rest.split(' ').next()?.to_ascii_lowercase();
    let has = |class: fn(&u8) -> bool| first.bytes().any(|byte| class(&byte));
    let starts_a_name = BRAND_WORDS.contains(&first.as_str())
        || (first.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && has(u8::is_ascii_digit));
    // A later word may start the name: `Dell PowerEdge H100`.
    if starts_a_name { Some(rest) } else { without_first_word(rest) }
}

/// Returns the device of a name without a prefix.
fn named_exactly<'a>(
    plain: &str,
    watts: Option<f64>,
    table: &'a DeviceTable,
) -> Option<DeviceMatch<'a>> {
    if let Some(device) = table.find(plain) {
        return Some(DeviceMatch { device, exact: true });
    }
    let wanted = words(plain);
    let mut best: Option<(usize, f64, usize, &DeviceSpec)> = None;
    for device in table.devices() {
        let names = std::iter::once(&device.name).chain(&device.aliases);
        let Some((shared, extra)) = names
            .map(|name| words(name))
            .filter(|candidate| is_same_model(&wanted, candidate))
            .map(|candidate| overlap(&wanted, &candidate))
            .max_by_key(|(shared, extra)| (*shared, usize::MAX - extra))
        else {
            continue;
        };
        let other_power = match (watts, device.tdp_w) {
            (Some(watts), Some(candidate)) => (watts - candidate).abs(),
            _ => 0.0,
        };
        // Prefer more words in common, then the closest power, then fewer extra words.
        let better = best.is_none_or(|(most, least, fewest, _)| {
            let by_power = other_power.total_cmp(&least);
            shared.cmp(&most).then(by_power.reverse()).then(fewest.cmp(&extra)).is_gt()
        });
        if better {
            best = Some((shared, other_power, extra, device));
        }
    }
    let (shared, _, _, device) = best?;
    Some(DeviceMatch { device, exact: shared == wanted.len() })
}

/// Vendors and brand names, which do not identify the model.
const BRAND_WORDS: [&str; 12] = [
    "nvidia",
    "amd",
    "geforce",
    "rtx",
    "gtx",
    "tesla",
    "quadro",
    "generation",
    "workstation",
    "edition",
    "blackwell",
    "instinct",
];

/// Words that belong to the names of other models, some of which share a number with one in the
/// table (`Intel Arc Pro A40`, `NVIDIA A40`).
const OTHER_MODELS: [&str; 4] = ["intel", "arc", "radeon", "firepro"];

/// Words for a form factor or memory size of the same model.
const VARIANT_WORDS: [&str; 8] = ["pcie", "sxm", "nvl", "maxq", "gb", "hbm", "dgxs", "max"];

/// Splits a name into lower-case words of letters or digits: `RTX4090` is `rtx`, `4090`; brand
/// words are left out. One or two letters before digits belong to them: `a100`, `l4`, `h100`.
fn words(name: &str) -> Vec<String> {
    let mut plain = name.to_ascii_lowercase().replace("max-q", "maxq").replace("6k", "6000");
    plain = plain.replace("max q", "maxq");
    let mut found: Vec<String> = Vec::new();
    for word in plain.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let mut rest = word;
        while !rest.is_empty() {
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let digits = rest[letters..].bytes().take_while(u8::is_ascii_digit).count();
            // One or two letters are part of a model's number (A100, GH200); `rtx`, `pro` are not.
            let is_model_number = letters <= 2 && digits > 0;
            let end = if is_model_number || letters == 0 { letters + digits } else { letters };
            let (piece, after) = rest.split_at(end);
            if !BRAND_WORDS.contains(&piece) {
                found.push(piece.to_owned());
            }
            rest = after;
        }
    }
    found
}

/// Returns whether two names have the same words except for variants.
fn is_same_model(one: &[String], other: &[String]) -> bool {
    let model = |words: &[String]| {
        let mut model: Vec<String> =
            words.iter().filter(|word| !is_variant_word(words, word)).cloned().collect();
        model.sort();
        model.dedup();
        model
    };
    let (one, other) = (model(one), model(other));
    !one.is_empty() && one == other
}

fn is_variant_word(all: &[String], word: &str) -> bool {
    if VARIANT_WORDS.contains(&word) {
        return true;
    }
    let next = all.iter().skip_while(|other| *other != word).nth(1).map(String::as_str);
    let number = word.bytes().all(|byte| byte.is_ascii_digit());
    // 80 GB, HBM3, SXM5: a number next to a variant word belongs to it. The number of a model is
    // longer.
    (number && (next == Some("gb") || word.len() <= 2)) || word == "sxm2" || word == "hbm3"
}

/// Counts the words that both have, and those that only `own` has.
fn overlap(wanted: &[String], own: &[String]) -> (usize, usize) {
    let shared = wanted.iter().filter(|word| own.contains(word)).count();
    let extra = own.iter().filter(|word| !wanted.contains(word)).count();
    (shared, extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Option<(&'static str, bool)> {
        let named = named(name, DeviceTable::shipped())?;
        Some((named.device.name.as_str(), named.exact))
    }

    #[test]
    fn names_of_result_files_are_known() {
        for (name, device) in [
            ("rtx3090", "RTX3090"),
            ("3090", "RTX3090"),
            ("4090", "RTX4090"),
            ("5090", "RTX5090"),
            ("rtx-5090", "RTX5090"),
            ("geforce-rtx5090", "RTX5090"),
            ("rtx-pro6000-maxq", "RTXPRO6000-Blackwell-MaxQ"),
            ("pro6000-max-q", "RTXPRO6000-Blackwell-MaxQ"),
            ("rtx6000pro-maxq", "RTXPRO6000-Blackwell-MaxQ"),
            ("rtx6kpro-maxq", "RTXPRO6000-Blackwell-MaxQ"),
            ("rtxpro6000", "RTXPRO6000-Blackwell-MaxQ"),
            ("rtx6000ada", "RTX6000Ada"),
            ("a6000", "RTXA6000"),
            ("l4", "L4"),
            ("l40s", "L40S"),
        ] {
            assert_eq!(found(name).map(|(device, _)| device), Some(device), "{name}");
        }
    }

    #[test]
    fn driver_names_with_underscores_are_known() {
        for (name, device) in [
            ("NVIDIA_A100-PCIE-40GB", "A100-PCIe-40GB"),
            ("NVIDIA_A100_80GB_PCIe", "A100-PCIe-80GB"),
            ("NVIDIA_A100-SXM4-80GB", "A100-SXM4-80GB"),
            ("NVIDIA_H100_80GB_HBM3", "H100-SXM5-80GB"),
            ("NVIDIA_H100_PCIe", "H100-PCIe-80GB"),
            ("NVIDIA_L4", "L4"),
            ("Tesla_T4", "T4"),
            ("Tesla_P100-PCIE-16GB", "P100-PCIe-16GB"),
        ] {
            assert_eq!(found(name), Some((device, true)), "{name}");
        }
    }

    #[test]
    fn a_different_variant_is_found_but_not_exact() {
        let (device, exact) = found("Tesla_V100-PCIE-32GB").expect("a V100");
        assert!(device.starts_with("V100-PCIe"), "{device}");
        assert_eq!(exact, device.contains("32GB"));
    }

    #[test]
    fn power_distinguishes_variants_that_the_name_does_not() {
        let found = |name: &str, watts| {
            let named = named_with_power(name, watts, DeviceTable::shipped());
            named.map(|named| named.device.name.as_str())
        };
        assert_eq!(found("V100 16GB", Some(300.0)), Some("V100-SXM2-16GB"));
        assert_eq!(found("V100 16GB", Some(250.0)), Some("V100-PCIe-16GB"));
        assert_eq!(found("V100 16GB", None), Some("V100-PCIe-16GB"));
        // The name takes precedence.
        assert_eq!(found("A100 80GB PCIe", Some(400.0)), Some("A100-PCIe-80GB"));
    }

    #[test]
    fn vendors_and_owners_before_the_name_are_ignored() {
        for (name, device) in [
            ("Dell H100 80GB SXM5", "H100-SXM5-80GB"),
            ("1CC H100 80GB SXM5", "H100-SXM5-80GB"),
            ("RAIDZ1 H100 80GB SXM5", "H100-SXM5-80GB"),
            ("LambdaCloud A100 40GB PCIe", "A100-PCIe-40GB"),
            ("SMC_NVIDIA_H100_80GB_HBM3", "H100-SXM5-80GB"),
            ("Dell PowerEdge L40S", "L40S"),
            ("AMD_Instinct_MI300X", "MI300X"),
            ("AMD_Instinct_MI210", "MI210"),
            ("Supermicro RTX 6000 Ada", "RTX6000Ada"),
            ("Lenovo Quadro RTX 8000", "QuadroRTX8000"),
        ] {
            assert_eq!(found(name).map(|(device, _)| device), Some(device), "{name}");
        }
    }

    #[test]
    fn no_model_is_mistaken_for_another() {
        for name in [
            "",
            "4091",
            "a10000",
            "gpu",
            "90",
            "rtx",
            "maxq",
            "b",
            "\u{1F600}",
            "-",
            "Radeon RX 6000",
            "Intel Arc Pro A40",
            "Dell Arc Pro A40",
            "Dell",
            "Dell 4091",
            "4090 Laptop GPU",
            "A100 B",
        ] {
            assert_eq!(found(name), None, "{name}");
        }
        assert_eq!(named(&"4090".repeat(100), DeviceTable::shipped()), None);
    }
}
