import { byId } from "./elements.js";
import { clock } from "./times.js";

/** Words below this confidence are marked. */
const SURE = 0.6;
const PARAGRAPH_PAUSE_S = 1.5;
const PARAGRAPH_WORDS = 80;

/** Shows words as they come, lights the one being spoken, and lets a person go to each. One of them is a tab stop. */
export class TranscriptView {
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
