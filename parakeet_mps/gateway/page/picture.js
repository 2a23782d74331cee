/** Decoding a recording of PICTURE_S takes about 0.7 GB; one whose length is not known beforehand may be compressed. */
const PICTURE_S = 1800;
const PICTURE_BYTES = 128 << 20;
const UNKNOWN_PICTURE_BYTES = 16 << 20;
const PICTURE_HZ = 8000;
const PICTURE_BARS = 4000;

/** What to add where it is the browser that cannot read a recording. */
export const ALL_THE_SAME = "The service may read it all the same.";

/** Returns {peaks, duration, trouble}: the waveform's peaks from 0 to 1, or null and why there are none. */
export async function picture(file, playedDuration) {
  const duration = Number.isFinite(playedDuration) ? playedDuration : 0;
  if (file.size > (duration ? PICTURE_BYTES : UNKNOWN_PICTURE_BYTES) || duration > PICTURE_S) {
    return { peaks: null, duration, trouble: "There is no waveform of recordings this long." };
  }
  try {
    const context = new OfflineAudioContext(1, 1, PICTURE_HZ);
    const audio = await context.decodeAudioData(await file.arrayBuffer());
    return { peaks: peaksOf(audio), duration: audio.duration, trouble: "" };
  } catch {
    return { peaks: null, duration, trouble: `This browser cannot draw this recording. ${ALL_THE_SAME}` };
  }
}

function peaksOf(audio) {
  const count = Math.min(PICTURE_BARS, audio.length);
  const peaks = new Float32Array(count);
  for (let channel = 0; channel < audio.numberOfChannels; channel += 1) {
    const samples = audio.getChannelData(channel);
    for (let at = 0; at < samples.length; at += 1) {
      const bar = Math.floor((at * count) / samples.length);
      peaks[bar] = Math.max(peaks[bar], Math.abs(samples[at]));
    }
  }
  const most = Math.max(0.01, ...peaks);
  return peaks.map((peak) => peak / most);
}
