// The service's HTTP API.

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
export class Refusal extends Error {
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

/** The person no longer waits for the answer. */
export class Cancelled extends Error {}

/** Asks the service, with the key that the person gave. */
export class Service {
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
