import { byId } from "./elements.js";
import { ALL_THE_SAME, picture } from "./picture.js";
import { clock } from "./times.js";

const SEEK_S = 5;

/** Plays the recording and draws its waveform, as far as the browser can. */
export class Player {
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
