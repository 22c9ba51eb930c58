// How numbers, times and states are written.

const UNITS = ["", "k", "M", "G", "T"];

function scaled(value, base, units) {
  let power = 0;
  while (Math.abs(value) >= base * 0.9995 && power < units.length - 1) {
    value /= base;
    power += 1;
  }
  const digits = power > 0 && Math.abs(value) < 99.95 ? 1 : 0;
  return value.toFixed(digits) + units[power];
}

export const UNKNOWN = "–";

const known = (write) => (value, ...more) => (value === null || value === undefined
  ? UNKNOWN : write(value, ...more));

/// 52,724.7 as 52.7k.
export const short = known((value) => scaled(value, 1000, UNITS));

/// Requests a second: tenths only of what is slow.
export const rate =
  known((value) => (value > 0 && value < 10 ? value.toFixed(1) : scaled(value, 1000, UNITS)));

/// 52724 as 52,724.
export const whole = known((value) => Math.round(value).toLocaleString("en-US"));

/// Bytes in powers of 1024.
export const bytes = known((value) => (value < 1024
  ? `${value} B` : `${scaled(value, 1024, ["", " KiB", " MiB", " GiB", " TiB"])}`));

/// A share from 0 to 1 in per cent.
export const percent = known((value, digits = 0) => `${(100 * value).toFixed(digits)} %`);

/// Seconds in the unit that fits.
export const duration = known((value) => {
  if (value < 0.0095) return `${(1000 * value).toFixed(1)} ms`;
  if (value < 0.9995) return `${Math.round(1000 * value)} ms`;
  if (value < 99.5) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.round(value / 86400)} days`;
});

/// A time of day; with the date if it isn't today's.
export const clock = known((unix, seconds = true) => {
  const time = new Date(1000 * unix);
  const two = (number) => String(number).padStart(2, "0");
  let text = `${two(time.getHours())}:${two(time.getMinutes())}`;
  if (seconds) text += `:${two(time.getSeconds())}`;
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday
    ? text : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${text}`;
});

/// A hash range, as the first byte of its keys' hashes.
export const hex = (range) => range.toString(16).padStart(2, "0");

/// Why a key is where it is.
const PLACES = {
  cached: "switch",
  moving: "on its way in or out",
  waiting: "node: waits for a slot",
  no_cache: "node: scheme caches nothing",
  key_too_long: "node: key too long",
  value_too_large: "node: value fits no slot",
  cache_full: "node: cache full of keys as hot",
  not_hot_enough: "node: not hot enough",
};
export const place = known((name) => PLACES[name] ?? name);

/// Written as `node 3`, or as `3 nodes`.
export const count =
  (number, word, plural = "s") => `${whole(number)} ${word}${number === 1 ? "" : plural}`;
