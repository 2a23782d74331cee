// What is downloaded: the last event of a transcription, as the service would render it. A test compares the two.

const LINE_CHARACTERS = 42;

/** Returns [name, media type, text] for each file ending, from a `transcript.text.done` event of `verbose_json`. */
export function renderings({ text, language, duration, words, segments, warnings }) {
  const usage = { type: "duration", seconds: duration };
  const verbose = { task: "transcribe", text, language, duration, words, segments, warnings, usage };
  return {
    "json": ["json", "application/json", JSON.stringify({ text, usage })],
    "verbose.json": ["verbose_json", "application/json", JSON.stringify(verbose)],
    "txt": ["text", "text/plain", `${text}\n`],
    "srt": ["srt", "application/x-subrip", segments.map(srtCue).join("\n")],
    "vtt": ["vtt", "text/vtt", ["WEBVTT\n", ...segments.map(vttCue)].join("\n")],
  };
}

function srtCue(segment, index) {
  return `${index + 1}\n${span(segment, ",")}\n${cueText(segment)}\n`;
}

function vttCue(segment) {
  const text = cueText(segment).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return `${span(segment, ".")}\n${text}\n`;
}

function cueText(segment) {
  const lines = [];
  for (const word of segment.text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && [...longer].length <= LINE_CHARACTERS) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.join("\n").replaceAll("-->", "->");
}

function span({ start, end }, point) {
  const from = milliseconds(start);
  const to = Math.max(milliseconds(end), from + 1);
  return `${subtitleClock(from, point)} --> ${subtitleClock(to, point)}`;
}

/** Rounds to whole milliseconds, a half to the even one, as the service does. */
function milliseconds(seconds) {
  const below = Math.floor(seconds * 1000);
  return seconds * 1000 - below === 0.5 ? below + (below % 2) : Math.round(seconds * 1000);
}

function subtitleClock(ms, point) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  const parts = [ms / 3_600_000, (ms / 60_000) % 60, (ms / 1000) % 60].map(two);
  return `${parts.join(":")}${point}${String(ms % 1000).padStart(3, "0")}`;
}
