// The page's program. It knows the service by its HTTP API only, and keeps what it gets in this tab.

/** Words below this confidence are marked. */
export const SURE = 0.6;

const POLL_MS = 10_000;
const PARAGRAPH_PAUSE_S = 1.5;
const PARAGRAPH_WORDS = 80;
const SEEK_S = 5;

/** Decoding a recording of PICTURE_S takes about 0.7 GB; one whose length is not known beforehand may be compressed. */
const PICTURE_S = 1800;
const PICTURE_BYTES = 128 << 20;
const UNKNOWN_PICTURE_BYTES = 16 << 20;
const PICTURE_HZ = 8000;
const PICTURE_BARS = 4000;
const ALL_THE_SAME = "The service may read it all the same.";

const RECORDED_TYPES = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"];

// --- What is downloaded: the last event of a transcription, as the service would render it. A test compares the two.

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

function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = whole < 3600 ? [Math.floor(whole / 60)] : [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return [...parts, whole % 60].map((part, index) => (index ? String(part).padStart(2, "0") : part)).join(":");
}

// --- The service

/** Reads the events of an answer that grows; `part(event)` hears of each piece of the text. */
class AnswerReader {
  #read = 0;
  done = null;
  error = null;

  constructor(part) {
    this.part = part;
  }

  read(text) {
    for (let end; (end = text.indexOf("\n\n", this.#read)) >= 0; this.#read = end + 2) {
      const lines = text.slice(this.#read, end).split("\n").map((line) => line.split(/: (.*)/s));
      const { event, data } = Object.fromEntries(lines);
      this.#take(event, JSON.parse(data));
    }
  }

  #take(name, event) {
    if (name === "error") this.error = event.error;
    else if (event.type === "transcript.text.done") this.done = event;
    else this.part(event);
  }
}

/** What the service refused, in its own words. */
class Refusal extends Error {
  constructor(message, status = 0, retryAfter = null) {
    super(retryAfter ? `${message} (Try again in ${retryAfter} s.)` : message);
    this.status = status;
  }

  static of(request) {
    let message = `The service answered with status ${request.status}.`;
    try {
      message = JSON.parse(request.responseText).error.message;
    } catch { /* no answer of the service's: a proxy's, perhaps */ }
    return new Refusal(message, request.status, request.getResponseHeader("retry-after"));
  }
}

class Cancelled extends Error {}

class Service {
  key = "";

  get(path) {
    return fetch(path, { headers: this.#headers(), cache: "no-store" });
  }

  /** Sends the form; `tell.sent(share)` and `tell.part(event)` hear of it. Returns {answer: Promise, cancel}. */
  transcribe(form, tell) {
    const request = new XMLHttpRequest(); // fetch does not tell how much of a body has been sent
    const reader = new AnswerReader(tell.part);
    const answer = new Promise((resolve, reject) => {
      request.upload.onprogress = ({ loaded, total }) => tell.sent(loaded / total);
      request.onprogress = () => request.status === 200 && reader.read(request.responseText);
      request.onload = () => {
        if (request.status !== 200) return reject(Refusal.of(request));
        reader.read(request.responseText);
        if (reader.done) resolve(reader.done);
        else reject(new Refusal(reader.error?.message ?? "The answer ended early."));
      };
      request.onerror = () => reject(new Refusal("The service cannot be reached."));
      request.onabort = () => reject(new Cancelled());
    });
    request.open("POST", "v1/audio/transcriptions");
    for (const [name, value] of Object.entries(this.#headers())) request.setRequestHeader(name, value);
    request.send(form);
    return { answer, cancel: () => request.abort() };
  }

  #headers() {
    return this.key ? { authorization: `Bearer ${this.key}` } : {};
  }
}

/** Shows whether the service is ready and how busy it is; asks now and then while the page is seen. */
class ServiceState {
  #timer;

  constructor(service) {
    this.service = service;
    document.addEventListener("visibilitychange", () => this.look());
  }

  async look() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const goesOn = await this.#ask().catch(() => this.#show("unavailable", "Cannot be reached"));
    clearTimeout(this.#timer);
    if (goesOn !== false) this.#timer = setTimeout(() => this.look(), POLL_MS);
  }

  /** Returns false when asking again is of no use before there is another key. */
  async #ask() {
    const health = await this.service.get("health");
    if (health.status === 401) {
      this.#show("closed", "Shown to those with a key");
      return false;
    }
    const { reason } = await health.json();
    if (health.ok) this.#show("ready", "Ready");
    else this.#show("unavailable", `Not ready: ${reason}`);
    const metrics = await this.service.get("metrics");
    if (metrics.ok) this.#showFigures(await metrics.text());
    return metrics.status !== 401;
  }

  #show(state, text) {
    byId("service").dataset.state = state;
    if (byId("state").textContent !== text) byId("state").textContent = text;
  }

  #showFigures(metrics) {
    const quantile = (level) => figure(metrics, `parakeet_request_latency_seconds{quantile="${level}"}`);
    const inFlight = figure(metrics, "parakeet_transcriptions_in_flight");
    byId("in-flight").textContent = Number.isFinite(inFlight) ? inFlight : "–";
    for (const [id, level] of [["p50", "0.5"], ["p95", "0.95"]]) byId(id).textContent = latency(quantile(level));
  }
}

function figure(metrics, name) {
  const line = metrics.split("\n").find((one) => one.startsWith(`${name} `));
  return line ? Number(line.slice(name.length)) : NaN;
}

function latency(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toPrecision(3)} s`;
}

// --- The recording

class Recorder {
  #recorder;
  #timer;

  get isOn() {
    return this.#recorder?.state === "recording";
  }

  /** Asks for the microphone; resolves when it records. `done(file)` is called when it was stopped. */
  async start(done) {
    const audio = { echoCancellation: false, noiseSuppression: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    const type = RECORDED_TYPES.find((one) => MediaRecorder.isTypeSupported(one));
    const parts = [];
    this.#recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
    this.#recorder.ondataavailable = ({ data }) => parts.push(data);
    this.#recorder.onstop = () => {
      clearInterval(this.#timer);
      for (const track of stream.getTracks()) track.stop();
      done(new File(parts, `recording.${/\/(\w+)/.exec(this.#recorder.mimeType)[1]}`, { type: this.#recorder.mimeType }));
    };
    this.#recorder.start();
    this.#show(stream);
  }

  stop() {
    this.#recorder.stop();
  }

  #show(stream) {
    const began = performance.now();
    const analyser = new AnalyserNode(new AudioContext());
    analyser.context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    const show = () => {
      byId("recorded").textContent = clock((performance.now() - began) / 1000);
      analyser.getFloatTimeDomainData(samples);
      byId("level").value = Math.sqrt(Math.max(...samples.map(Math.abs))); // the root makes quiet speech visible
    };
    this.#timer = setInterval(show, 100);
    this.#recorder.addEventListener("stop", () => analyser.context.close());
    show();
  }
}

function microphoneTrouble(error) {
  if (!navigator.mediaDevices) return "Browsers record only on pages that come over https or from localhost.";
  if (error.name === "NotAllowedError") return "The browser does not let this page use the microphone.";
  if (error.name === "NotFoundError") return "There is no microphone.";
  return `The microphone cannot be used: ${error.message}`;
}

/** Plays the recording and draws its waveform, as far as the browser can. */
class Player {
  #audio = byId("audio");
  #canvas = byId("waveform");
  #peaks = null;
  #duration = 0;

  /** `moved(seconds)` is called when the position changes. */
  constructor(moved) {
    this.moved = moved;
    byId("play").onclick = () => this.toggle();
    byId("speed").onchange = ({ target }) => (this.#audio.playbackRate = Number(target.value));
    this.#audio.onplay = () => this.#follow();
    this.#audio.onpause = this.#audio.onseeked = () => this.#show();
    this.#canvas.onclick = ({ offsetX }) => this.seek((offsetX / this.#canvas.clientWidth) * this.#duration);
    this.#canvas.onkeydown = (event) => this.#onKey(event);
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  get duration() {
    return this.#duration;
  }

  /** Takes the service's word for the length of a recording that does not tell the browser. */
  learn(duration) {
    this.#duration ||= duration;
    this.#show();
  }

  /** Shows another recording; one that comes while this one is being read takes its place. */
  async load(file) {
    URL.revokeObjectURL(this.#audio.src);
    const url = URL.createObjectURL(file);
    Object.assign(byId("speed"), { value: "1" });
    this.#set(null, 0, "");
    byId("player").hidden = false;
    const plays = await this.#open(url);
    const { peaks, duration, trouble } = await picture(file, this.#audio.duration);
    if (this.#audio.src !== url) return;
    this.#canvas.hidden = !plays && !peaks;
    byId("controls").hidden = !plays;
    this.#set(peaks, duration, plays ? trouble : `This browser cannot play this recording. ${ALL_THE_SAME}`);
  }

  seek(seconds) {
    this.#audio.currentTime = Math.min(Math.max(0, seconds), this.#duration || seconds);
    this.#show();
  }

  toggle() {
    if (this.#audio.paused) this.#audio.play();
    else this.#audio.pause();
  }

  /** Resolves to whether the browser plays it. */
  #open(url) {
    return new Promise((resolve) => {
      this.#audio.onloadedmetadata = () => resolve(true);
      this.#audio.onerror = () => resolve(false);
      this.#audio.src = url;
    });
  }

  #set(peaks, duration, trouble) {
    this.#peaks = peaks;
    this.#duration = duration;
    byId("no-picture").textContent = trouble;
    byId("no-picture").hidden = !trouble;
    this.#canvas.ariaValueMax = duration.toFixed(1);
    this.#show();
  }

  #follow() {
    this.#show();
    if (!this.#audio.paused) requestAnimationFrame(() => this.#follow());
  }

  #show() {
    const seconds = this.#audio.currentTime;
    const text = `${clock(seconds)} / ${clock(this.#duration)}`;
    byId("play").textContent = this.#audio.paused ? "Play" : "Pause";
    if (byId("clock").textContent !== text) {
      byId("clock").textContent = text;
      Object.assign(this.#canvas, { ariaValueNow: seconds.toFixed(1), ariaValueText: text.replace("/", "of") });
    }
    this.#draw();
    this.moved(seconds);
  }

  #onKey(event) {
    const now = this.#audio.currentTime;
    const to = { ArrowLeft: now - SEEK_S, ArrowRight: now + SEEK_S, Home: 0, End: this.#duration }[event.key];
    if (to !== undefined) this.seek(to);
    else if (event.key === " ") this.toggle();
    else return;
    event.preventDefault();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio;
    Object.assign(this.#canvas, { width: width * scale, height: height * scale });
    const pen = this.#canvas.getContext("2d");
    pen.scale(scale, scale);
    const colours = getComputedStyle(this.#canvas);
    const bars = Math.floor(width / 3);
    const played = (this.#audio.currentTime / this.#duration) * bars;
    for (let bar = 0; bar < bars; bar += 1) {
      const tall = Math.max(2, this.#loudness(bar / bars, (bar + 1) / bars) * (height - 12));
      pen.fillStyle = colours.getPropertyValue(bar < played ? "--accent" : "--wave");
      pen.fillRect(bar * 3, (height - tall) / 2, 2, tall);
    }
    pen.fillStyle = colours.getPropertyValue("--accent");
    if (played > 0) pen.fillRect(played * 3, 0, 1, height);
  }

  /** Returns the peak in a part of the recording, whose ends are shares of its length. */
  #loudness(from, to) {
    if (!this.#peaks) return 0;
    const count = this.#peaks.length;
    return Math.max(...this.#peaks.subarray(Math.floor(from * count), Math.max(from * count + 1, to * count)));
  }
}

/** Returns {peaks, duration, trouble}: the waveform's peaks from 0 to 1, or null and why there are none. */
async function picture(file, playedDuration) {
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

// --- The words

/** Shows words as they come, lights the one being spoken, and lets a person go to each. One of them is a tab stop. */
class TranscriptView {
  #box = byId("transcript");
  #words = [];
  #marks = [];
  #lit = -1;
  #stop = -1;

  /** `seek(seconds)` is called for the word that was chosen. */
  constructor(seek) {
    this.seek = seek;
    this.#box.onclick = ({ target }) => this.#onClick(target);
    this.#box.onkeydown = (event) => this.#onKey(event);
  }

  get end() {
    return this.#words.at(-1)?.end ?? 0;
  }

  get text() {
    return this.#words.map(({ word }) => word).join(" ");
  }

  clear() {
    this.#box.replaceChildren();
    [this.#words, this.#marks, this.#lit, this.#stop] = [[], [], -1, -1];
    this.#box.hidden = byId("legend").hidden = true;
  }

  add(words) {
    for (const word of words) this.#append(word);
    this.#box.hidden = byId("legend").hidden = !this.#words.length;
    if (this.#stop < 0 && this.#words.length) this.#stopAt(0);
  }

  /** Lights the word that is spoken at a time, if one is. */
  light(seconds) {
    const index = this.#indexAt(seconds + 0.01); // a browser may arrive a little before where it was sent
    const at = index >= 0 && seconds < this.#words[index].end + 0.1 ? index : -1;
    if (at === this.#lit) return;
    this.#marks[this.#lit]?.removeAttribute("aria-current");
    this.#lit = at;
    this.#marks[at]?.setAttribute("aria-current", "true");
    if (at >= 0) this.#keepInView(this.#marks[at]);
  }

  #append(word) {
    const last = this.#words.at(-1);
    let paragraph = this.#box.lastElementChild;
    const isLong = paragraph?.childElementCount >= PARAGRAPH_WORDS;
    if (!last || isLong || word.start - last.end >= PARAGRAPH_PAUSE_S) {
      paragraph = this.#box.appendChild(document.createElement("p"));
      paragraph.dataset.time = clock(word.start);
    } else {
      paragraph.append(" ");
    }
    const mark = document.createElement(word.confidence < SURE ? "mark" : "span");
    mark.className = word.confidence < SURE ? "word unsure" : "word";
    mark.title = `${clock(word.start)}, confidence ${Math.round(word.confidence * 100)} %`;
    mark.textContent = word.word;
    paragraph.append(mark);
    this.#words.push(word);
    this.#marks.push(mark);
  }

  /** Returns the last word that began by then. */
  #indexAt(seconds) {
    let [low, high] = [0, this.#words.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#words[middle].start <= seconds) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  #keepInView(mark) {
    const [box, word] = [this.#box.getBoundingClientRect(), mark.getBoundingClientRect()];
    if (word.top < box.top || word.bottom > box.bottom) this.#box.scrollTop += word.top - box.top - box.height / 3;
  }

  #stopAt(index) {
    for (const name of ["tabindex", "role"]) this.#marks[this.#stop]?.removeAttribute(name);
    this.#stop = index;
    Object.assign(this.#marks[index], { tabIndex: 0, role: "button" });
  }

  #onClick(target) {
    const index = this.#marks.indexOf(target);
    if (index < 0 || !getSelection().isCollapsed) return;
    this.#stopAt(index);
    target.focus({ preventScroll: true });
    this.seek(this.#words[index].start);
  }

  #onKey(event) {
    const last = this.#words.length - 1;
    const to = { ArrowLeft: this.#stop - 1, ArrowRight: this.#stop + 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      this.#stopAt(Math.min(Math.max(0, to), last));
      this.#marks[this.#stop].focus();
    } else if (event.key === "Enter") {
      this.seek(this.#words[this.#stop].start);
    } else {
      return;
    }
    event.preventDefault();
  }
}

// --- The page

class Page {
  #service = new Service();
  #state = new ServiceState(this.#service);
  #recorder = new Recorder();
  #player = new Player((seconds) => this.#view.light(seconds));
  #view = new TranscriptView((seconds) => this.#player.seek(seconds));
  #file = null;
  #job = null;

  start() {
    byId("choose").onclick = () => byId("file").click();
    byId("file").onchange = ({ target }) => this.#chooseFrom(target.files);
    byId("record").onclick = () => this.#record();
    byId("transcribe").onclick = () => this.#transcribe();
    byId("cancel").onclick = () => this.#job.cancel();
    byId("copy").onclick = () => navigator.clipboard.writeText(this.#view.text);
    byId("key-form").onsubmit = (event) => this.#useKey(event);
    byId("key-form").hidden = fact("asks-key") !== "yes";
    this.#letDrop();
    this.#state.look();
  }

  #letDrop() {
    document.ondragover = (event) => {
      event.preventDefault();
      byId("drop").dataset.over = "";
    };
    document.ondragleave = () => delete byId("drop").dataset.over;
    document.ondrop = (event) => {
      event.preventDefault();
      delete byId("drop").dataset.over;
      this.#chooseFrom(event.dataTransfer.files);
    };
  }

  #chooseFrom(files) {
    if (files.length) this.#choose(files[0]);
    byId("file").value = ""; // so that the same file can be chosen again
  }

  #choose(file) {
    this.#job?.cancel();
    this.#clear();
    const most = Number(fact("max-upload-mb"));
    this.#file = file.size <= most << 20 ? file : null;
    byId("chosen").textContent = `${file.name} (${size(file.size)})`;
    byId("chosen").hidden = false;
    byId("transcribe").disabled = !this.#file;
    if (this.#file) this.#player.load(file);
    else this.#complain(`The upload is too large; at most ${most} MiB are accepted.`);
  }

  async #record() {
    if (this.#recorder.isOn) return this.#recorder.stop();
    try {
      await this.#recorder.start((file) => {
        this.#showRecording(false);
        this.#choose(file);
      });
      this.#showRecording(true);
    } catch (error) {
      this.#complain(microphoneTrouble(error));
    }
  }

  #showRecording(on) {
    byId("recorder").hidden = !on;
    byId("choose").disabled = on;
    byId("record").textContent = on ? "Stop" : "Record";
    byId("record").toggleAttribute("data-on", on);
  }

  async #transcribe() {
    this.#clear();
    this.#showWork(true);
    const began = performance.now();
    try {
      this.#job = this.#service.transcribe(this.#form(), {
        sent: (share) => this.#tellSent(share),
        part: (event) => this.#hear(event),
      });
      this.#finish(await this.#job.answer, (performance.now() - began) / 1000);
    } catch (error) {
      this.#fail(error);
    }
    this.#job = null;
    this.#showWork(false);
    this.#state.look();
  }

  #form() {
    const form = new FormData();
    form.append("model", "parakeet-tdt");
    form.append("response_format", "verbose_json");
    form.append("stream", "true");
    for (const one of ["word", "segment"]) form.append("timestamp_granularities[]", one);
    if (byId("hotwords").value.trim()) form.append("hotwords", byId("hotwords").value);
    form.append("file", this.#file);
    return form;
  }

  #tellSent(share) {
    if (share < 1) this.#progress(share, `Sending: ${Math.round(share * 100)} %`);
    else this.#progress();
  }

  #hear({ words }) {
    if (!byId("empty").hidden) this.#showPanel();
    this.#view.add(words);
    const [end, duration] = [this.#view.end, this.#player.duration];
    if (duration) this.#progress(end / duration, `Transcribed: ${clock(end)} of ${clock(duration)}`);
    else this.#progress(undefined, `Transcribed: ${clock(end)}`);
  }

  /** Makes room for the first words; on a small screen they are below what is seen. */
  #showPanel() {
    byId("empty").hidden = true;
    const title = byId("transcript-title");
    if (title.getBoundingClientRect().top > innerHeight) title.scrollIntoView();
  }

  #finish(done, seconds) {
    const { words, duration, warnings } = done;
    this.#player.learn(duration);
    byId("outcome").textContent = words.length
      ? `${words.length} words in ${clock(duration)} of audio, after ${latency(seconds)}.`
      : "No words were recognised.";
    byId("warnings").textContent = warnings.join(" ");
    byId("warnings").hidden = !warnings.length;
    byId("copy").hidden = !navigator.clipboard || !words.length;
    this.#offer(renderings(done));
  }

  #offer(files) {
    const stem = this.#file.name.replace(/\.\w+$/, "");
    const buttons = Object.entries(files).map(([ending, [name, type, text]]) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name });
      button.onclick = () => save(new Blob([text], { type }), `${stem}.${ending}`);
      return button;
    });
    byId("formats").replaceChildren(...buttons);
    byId("downloads").hidden = false;
  }

  #fail(error) {
    if (error instanceof Cancelled) byId("outcome").textContent = "Cancelled.";
    else if (error instanceof Refusal) this.#complain(error.message);
    else throw error;
    if (error.status !== 401) return;
    byId("key-form").hidden = false;
    byId("key").select();
  }

  #complain(message) {
    byId("error").textContent = message;
    byId("error").hidden = false;
  }

  #useKey(event) {
    event.preventDefault();
    this.#service.key = byId("key").value;
    byId("key-form").hidden = true;
    byId("error").hidden = true;
    this.#state.look();
    (this.#file ? byId("transcribe") : byId("choose")).focus();
  }

  #clear() {
    this.#view.clear();
    for (const id of ["error", "warnings", "downloads", "copy"]) byId(id).hidden = true;
    byId("empty").hidden = false;
    byId("outcome").textContent = "";
  }

  #showWork(on) {
    byId("transcribe").hidden = on;
    byId("cancel").hidden = byId("progress").hidden = !on;
    if (on) this.#progress(0, "Sending");
  }

  #progress(share, text = "Transcribing") {
    if (share === undefined) byId("bar").removeAttribute("value");
    else byId("bar").value = share;
    byId("doing").textContent = text;
  }
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

function size(bytes) {
  return bytes < 1 << 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}

/** Returns what the service has written into the page. */
function fact(name) {
  return document.querySelector(`meta[name="${name}"]`).content;
}

function byId(id) {
  return document.getElementById(id);
}

if (typeof document !== "undefined") new Page().start();
