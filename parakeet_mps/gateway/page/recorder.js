import { byId } from "./elements.js";
import { clock } from "./times.js";

const RECORDED_TYPES = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"];

/** Records the microphone and shows its level. */
export class Recorder {
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

/** Returns why there is no recording, from what `start` threw. */
export function microphoneTrouble(error) {
  if (!navigator.mediaDevices) return "Browsers record only on pages that come over https or from localhost.";
  if (error.name === "NotAllowedError") return "The browser does not let this page use the microphone.";
  if (error.name === "NotFoundError") return "There is no microphone.";
  return `The microphone cannot be used: ${error.message}`;
}
