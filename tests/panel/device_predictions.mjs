// Builds `predictions.devices` as specified in docs/panel.md.

const range = (value, factor) => ({ low: value / factor, value, high: value * factor });

/** GPUs as `[name, milliseconds, dollars an hour, gigabytes]`; a batch of 32 that takes 20 GB. */
const GPUS = [
  ["B200-SXM6-180GB", 41, 6.99, 180],
  ["H200-SXM5-141GB", 72, 3.59, 141],
  ["H100-SXM5-80GB", 78, 2.99, 80],
  ["RTX5090", 96, 0.89, 32],
  ["NVIDIA H200 of ours", 102, 2.5, 141],
  ["A100-SXM4-80GB", 151, 1.89, 80],
  ["RTX4090", 158, 0.74, 24],
  ["L40S", 170, 1.09, 48],
  ["A40", 330, 0.4, 48],
  ["RTX3090", 340, 0.46, 24],
  ["V100-SXM2-32GB", 380, 2.3, 32],
  ["RTX3080-10GB", 400, null, 10],
  ["T4", 1400, 0.35, 16],
  ["P4000", 3900, 0.51, 8],
];

/** The batch size that keeps a GPU busy: the faster it is, the larger. */
const batch = (milliseconds, hourly, gigabytes) => {
  const size = 2 ** Math.round(Math.log2(64e3 / milliseconds));
  const fits = Math.round(gigabytes * 1.5);
  const rate = (1e3 / milliseconds) * 32;
  return {
    size: Math.min(size, fits),
    limit: size > fits ? "memory" : null,
    time_ns: range((Math.min(size, fits) / rate) * 1e9, 1.3),
    samples_per_second: range(rate, 1.3),
    usd_per_million_samples: hourly === null ? null : range((hourly / 3600 / rate) * 1e6, 1.3),
    largest: { low: fits - 2, value: fits, high: fits + 2 },
  };
};

/** GPUs of one model in a machine; each exchange costs a tenth of the iteration. */
const machine = (name, milliseconds, hourly, gpus) => {
  const time = milliseconds * (gpus === 1 ? 1 : 1.1);
  const rate = (1e3 / time) * 32 * gpus;
  return {
    name,
    gpus,
    batch_size: 32,
    time_ns: range(time * 1e6, 1.3),
    measured: false,
    samples_per_second: range(rate, 1.3),
    usd_per_hour: hourly * gpus,
    usd_per_million_samples: range(((hourly * gpus) / 3600 / rate) * 1e6, 1.3),
  };
};

export function devicePredictions({ here = "NVIDIA H200 of ours", epoch = null, batches = false, machines = false } = {}) {
  const rows = GPUS.map(([name, milliseconds, hourly, gigabytes]) => {
    const factor = name === here ? 1.02 : 1.25;
    const time = range(milliseconds * 1e6, factor);
    const usd = hourly === null ? null : (hourly / 3.6e12) * (time.value / 32);
    return {
      name,
      here: name === here,
      time_ns: time,
      samples_per_second: range(32e9 / time.value, factor),
      peak_share: 20 / gigabytes,
      fits: gigabytes >= 20,
      usd_per_hour: hourly,
      price_date: hourly === null ? null : "2026-11-20",
      price_from: hourly === null ? null : name === here ? "settings" : "list",
      usd_per_million_samples: usd === null ? null : range(usd * 1e6, factor),
      usd_per_epoch: usd === null || epoch === null ? null : range(usd * epoch, factor),
      joules_per_iteration: range(milliseconds * 0.4, 1.4),
      energy_from: name === here ? "measured" : "utilization",
      note: gigabytes >= 20 ? null : "Its memory is too small for this batch.",
      batch: batches ? batch(milliseconds, hourly, gigabytes) : null,
    };
  });
  return {
    from: here,
    basis: here === null ? "operator costs" : "wave scaling",
    batch_size: 32,
    samples_per_epoch: epoch,
    rows,
    machines: machines
      ? ["RTX5090", "B200-SXM6-180GB"].flatMap((name) => {
          const [, milliseconds, hourly] = GPUS.find(([other]) => other === name);
          return [1, 2, 4, 8].map((gpus) => machine(name, milliseconds, hourly, gpus));
        })
      : [],
    notes: ["The GPU is busy for 48% of the iteration. The rest waits for this machine's host."],
  };
}
