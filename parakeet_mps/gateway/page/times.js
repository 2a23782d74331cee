// How times are written for people.

/** Returns a position in a recording, like 0:07 or 1:02:03. */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = whole < 3600 ? [Math.floor(whole / 60)] : [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return [...parts, whole % 60].map((part, index) => (index ? String(part).padStart(2, "0") : part)).join(":");
}

/** Returns how long something took; a dash where that is not a number. */
export function latency(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toPrecision(3)} s`;
}
