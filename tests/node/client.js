// Usage: node client.js BASE_URL AUDIO_FILE. Prints what the openai package reads, as one JSON document.
import fs from "node:fs";
import { File } from "node:buffer";
globalThis.File ??= File; // Node 18 has it, but not as a global
const { default: OpenAI } = await import("openai");

const [baseURL, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
const create = (options) =>
  client.audio.transcriptions.create({ file: fs.createReadStream(path), model: "gpt-4o-transcribe", ...options });
const failure = async (promise) => promise.then(() => null, (error) => ({ status: error.status, code: error.code, param: error.param }));

const events = [];
for await (const event of await create({ stream: true, include: ["logprobs"] })) events.push(event);

console.log(JSON.stringify({
  json: await create({ include: ["logprobs"] }),
  text: await create({ response_format: "text" }),
  srt: await create({ response_format: "srt" }),
  vtt: await create({ response_format: "vtt" }),
  verbose: await create({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] }),
  events,
  models: (await client.models.list()).data.map((model) => model.id),
  model: await client.models.retrieve("parakeet-tdt"),
  refused: await failure(create({ language: "fi" })),
  missing: await failure(client.models.retrieve("nvidia/nothing")),
  translated: await failure(client.audio.translations.create({ file: fs.createReadStream(path), model: "whisper-1" })),
}));
