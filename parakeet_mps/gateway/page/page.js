// The page's program. It knows the service by its HTTP API only, and keeps what it gets in this tab.

import { offer } from "./downloads.js";
import { byId, fact } from "./elements.js";
import { Player } from "./player.js";
import { Recorder, microphoneTrouble } from "./recorder.js";
import { Cancelled, Refusal, Service } from "./service.js";
import { ServiceState } from "./service_state.js";
import { clock, latency } from "./times.js";
import { TranscriptView } from "./transcript_view.js";

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
    offer(done, this.#file.name);
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

function size(bytes) {
  return bytes < 1 << 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}

new Page().start();
