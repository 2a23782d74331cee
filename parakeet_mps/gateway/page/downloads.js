import { byId } from "./elements.js";
import { renderings } from "./renderings.js";

/** Offers each rendering of a `transcript.text.done` event, named after the recording. */
export function offer(done, recording) {
  const stem = recording.replace(/\.\w+$/, "");
  const buttons = Object.entries(renderings(done)).map(([ending, [name, type, text]]) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: name });
    button.onclick = () => save(new Blob([text], { type }), `${stem}.${ending}`);
    return button;
  });
  byId("formats").replaceChildren(...buttons);
  byId("downloads").hidden = false;
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
