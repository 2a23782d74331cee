import { byId } from "./elements.js";
import { latency } from "./times.js";

const POLL_MS = 10_000;

/** Shows whether the service is ready and how busy it is; asks now and then while the page is seen. */
export class ServiceState {
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
