// Formats money and energy exactly as `analysis/present/src/devices.rs` does.

import { percent, significant } from "../format";
import type { Device } from "./document";

/** Formats a price: `$312`, `$3.00`, `$0.0042`. Two significant digits below $0.10. */
export function dollars(usd: number): string {
  if (usd <= 0 || usd >= 9.995) return `$${significant(Math.max(0, usd))}`;
  if (usd >= 0.0995) return `$${usd.toFixed(2)}`;
  return `$${usd.toFixed(Math.min(10, Math.ceil(-Math.log10(usd)) + 1))}`;
}

/** Formats an energy: `420 mJ`, `36 J`, `1.2 kJ`. */
export function energy(joules: number): string {
  if (joules < 0.9995) return `${significant(joules * 1e3)} mJ`;
  return joules < 999.5 ? `${significant(joules)} J` : `${significant(joules / 1e3)} kJ`;
}

/** Marks predictions with `~`. Measurements have no mark. */
export function estimated(device: Device, text: string): string {
  return device.here ? text : `~${text}`;
}

export function memory(device: Device): string {
  if (device.peakShare === null) return "unknown";
  return device.fits === false ? `${percent(device.peakShare)}, out of memory` : percent(device.peakShare);
}

export function hourly(device: Device): string {
  if (device.usdPerHour === null) return "unknown";
  const since = device.priceDate === null ? "" : ` (${device.priceDate})`;
  return `${dollars(device.usdPerHour)}${device.ownPrice ? ", yours" : ""}${since}`;
}
