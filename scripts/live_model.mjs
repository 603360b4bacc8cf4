// Serves one GGUF model as an OpenAI-compatible endpoint on loopback, by node-llama-cpp. scripts/live-model fetches both and starts it.
//
// One request is answered at a time, the others wait in order; a client that hangs up is dropped. An answer depends on seed, request
// and retry count alone: the first message of a prompt is evaluated by itself, so that it makes no difference whether it was in the cache.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { grammarOf, SchemaError } from "./gbnf.mjs";

const BODY_BYTES_MAX = 1024 * 1024;
const QUEUE_MAX = 256;
const ANSWER_TOKENS = 1024;
const GRAMMARS_KEPT = 16;
// What llama.cpp draws from, unless told otherwise.
const SAMPLING = { topK: 40, topP: 0.95, minP: 0.05 };
// Options: least, most, default.
const NUMBERS = {
  port: [0, 65535, 9090],
  seed: [0, Number.MAX_SAFE_INTEGER, 1],
  threads: [1, 256, 1],
  context: [256, 32768, 8192],
  temperature: [0, 2, 0.3],
};

/** An error as OpenAI says it. */
class Refusal extends Error {
  constructor(status, message, param = null, code = null) {
    super(message);
    this.status = status;
    const type = status < 500 ? "invalid_request_error" : "server_error";
    this.body = { error: { message, type, param, code } };
  }
}

const refuseForm = (why) => new Refusal(400, `response_format: ${why}`, "response_format");

function textOf({ role, content }) {
  const text = Array.isArray(content) ? content.map((part) => part?.text ?? "").join("") : content;
  if (typeof role !== "string" || typeof text !== "string") throw new Refusal(400, "messages: each has role and content", "messages");
  return { role, text };
}

/** What a request asks for, checked. */
function parse(body) {
  const request = JSON.parse(body);
  if (!Array.isArray(request?.messages) || !request.messages.length) throw new Refusal(400, "messages: a list, not empty", "messages");
  const number = (name, min, max, fallback, isInteger) => {
    const value = request[name] ?? fallback;
    const isFit = value === undefined || (isInteger ? Number.isSafeInteger(value) : Number.isFinite(value)) && value >= min && value <= max;
    if (!isFit) throw new Refusal(400, `${name}: a number from ${min} to ${max}`, name);
    return value;
  };
  number("n", 1, 1, 1, true);
  if (request.tools?.length) throw new Refusal(400, "tools: this endpoint has none", "tools");
  return {
    messages: request.messages.map((message) => textOf(message ?? {})),
    tokensMax: number("max_completion_tokens", 1, 1e6, number("max_tokens", 1, 1e6, ANSWER_TOKENS, true), true),
    temperature: number("temperature", 0, 2, settings.temperature),
    seed: number("seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, undefined, true),
    grammar: grammarOf(request.response_format ?? undefined),
    isStream: request.stream === true,
    hasStreamUsage: request.stream_options?.include_usage === true,
  };
}

/** The model, and what of a prompt is in its cache. */
class Model {
  static async load({ runtime, model: modelPath, threads, context }) {
    const { getLlama, LlamaGrammar, LlamaGrammarEvaluationState } = await import(pathToFileURL(`${runtime}/dist/index.js`));
    const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, maxThreads: threads, logLevel: "error" });
    const model = await llama.loadModel({ modelPath });
    const sequence = (await model.createContext({ contextSize: context, threads, swaFullCache: true })).getSequence();
    const stateOf = (grammar) => new LlamaGrammarEvaluationState({ model, grammar });
    const compile = (grammar) => new LlamaGrammar(llama, { grammar });
    return Object.assign(new Model(), { model, sequence, stateOf, compile, grammars: new Map(), head: null });
  }

  /** Where a grammar begins; the latest grammars are kept. */
  grammarState(text) {
    if (text === undefined) return undefined;
    let grammar = this.grammars.get(text);
    try {
      grammar ??= this.compile(text);
    } catch (error) {
      throw refuseForm(`no grammar: ${error.message}`);
    }
    this.grammars.delete(text);
    this.grammars.set(text, grammar);
    if (this.grammars.size > GRAMMARS_KEPT) this.grammars.delete(this.grammars.keys().next().value);
    return this.stateOf(grammar);
  }

  /** Evaluates rules of a prompt, unless they are in the cache. */
  async evaluateHead(text, tokens) {
    if (text === this.head) {
      const end = this.sequence.nextTokenIndex;
      if (end > tokens.length) await this.sequence.eraseContextTokenRanges([{ start: tokens.length, end }]);
      return;
    }
    this.head = null;
    await this.sequence.clearHistory();
    await this.sequence.evaluateWithoutGeneratingNewTokens(tokens);
    this.head = text;
  }

  /** Answers a request; `say` hears each piece of the text. */
  async answer({ messages, tokensMax, temperature, seed, grammar, retry }, signal, say) {
    const [head, tail] = promptOf(messages);
    const { bos } = this.model.tokens;
    const [headTokens, tailTokens] = [[bos, ...this.model.tokenize(head)], this.model.tokenize(tail)];
    const promptTokens = headTokens.length + tailTokens.length;
    const room = this.sequence.contextSize - promptTokens - 1;
    if (room < 1) throw new Refusal(400, `messages: ${promptTokens} tokens, more than the context`, "messages", "context_length_exceeded");
    const grammarEvaluationState = this.grammarState(grammar);
    await this.evaluateHead(head, headTokens);
    seed ??= createHash("sha256").update(`${settings.seed} ${retry}\n${head}${tail}`).digest().readUInt32LE();
    const [tokens, limit] = [[], Math.min(tokensMax, room)];
    let said = "";
    let reason = "stop";
    for await (const token of this.sequence.evaluate(tailTokens, { temperature, seed, grammarEvaluationState, ...SAMPLING })) {
      if (signal.aborted) break;
      tokens.push(token);
      const text = this.model.detokenize(tokens);
      // A character may be cut between two tokens.
      if (!text.endsWith("\uFFFD")) {
        say(text.slice(said.length));
        said = text;
      }
      if (tokens.length >= limit) {
        reason = "length";
        break;
      }
    }
    const usage = { prompt_tokens: promptTokens, completion_tokens: tokens.length, total_tokens: promptTokens + tokens.length };
    return { content: said, reason, usage };
  }
}

/** Head and tail of the prompt. The model knows no chat: it continues a text, in which each message is a paragraph. */
function promptOf(messages) {
  const paragraphs = messages.map(({ role, text }) => (role === "assistant" ? `Answer:\n${text}\n\n` : `${text}\n\n`));
  const head = messages.length > 1 && messages[0].role === "system" ? paragraphs.shift() : "";
  return [head, `${paragraphs.join("")}Answer:\n`];
}

let last = Promise.resolve();
let waiting = 0;

/** Runs work when all before it has ended; not at all once its client has gone. */
function inTurn(signal, work) {
  if (waiting >= QUEUE_MAX) throw new Refusal(429, `${QUEUE_MAX} requests wait`, null, "rate_limit_exceeded");
  waiting += 1;
  const turn = last.then(() => (signal.aborted ? undefined : work()));
  last = turn.catch(() => {}).finally(() => (waiting -= 1));
  return turn;
}

async function bodyOf(request) {
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > BODY_BYTES_MAX) throw new Refusal(413, `the body has more than ${BODY_BYTES_MAX} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

function send(response, status, document) {
  if (response.headersSent) return void response.end();
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(document));
}

let answers = 0;

async function complete(request, response) {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const asked = parse(await bodyOf(request));
  // A client that asks again gets another answer.
  asked.retry = request.headers["x-retry-count"] ?? request.headers["x-stainless-retry-count"] ?? "0";
  const envelope = { id: `chatcmpl-${(answers += 1)}`, created: Math.floor(Date.now() / 1000), model: settings.name };
  envelope.system_fingerprint = settings.fingerprint;
  const chunk = (delta, finish_reason = null) =>
    event({ choices: [{ index: 0, delta, finish_reason, logprobs: null }], ...(asked.hasStreamUsage && { usage: null }) });
  const event = (more) => response.write(`data: ${JSON.stringify({ ...envelope, object: "chat.completion.chunk", ...more })}\n\n`);
  const begin = () => {
    if (response.headersSent) return;
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    chunk({ role: "assistant", content: "" });
  };
  const say = (content) => asked.isStream && (begin(), chunk({ content }));
  const answer = await inTurn(gone.signal, () => model.answer(asked, gone.signal, say));
  if (gone.signal.aborted) return;
  if (!asked.isStream) {
    const message = { role: "assistant", content: answer.content, refusal: null };
    const choices = [{ index: 0, message, finish_reason: answer.reason, logprobs: null }];
    return send(response, 200, { ...envelope, object: "chat.completion", choices, usage: answer.usage });
  }
  begin();
  chunk({}, answer.reason);
  if (asked.hasStreamUsage) event({ choices: [], usage: answer.usage });
  response.end("data: [DONE]\n\n");
}

async function route(request, response) {
  const known = { id: settings.name, object: "model", created: 0, owned_by: "google" };
  const { pathname } = new URL(request.url, "http://localhost");
  if (request.method === "POST" && pathname === "/v1/chat/completions") return complete(request, response);
  if (request.method !== "GET") throw new Refusal(404, `${request.method} ${pathname} is unknown`);
  if (pathname === "/health") return send(response, 200, { status: "ok", waiting });
  if (pathname === "/v1/models") return send(response, 200, { object: "list", data: [known] });
  if (pathname === `/v1/models/${settings.name}`) return send(response, 200, known);
  throw new Refusal(404, `GET ${pathname} is unknown`, null, pathname.startsWith("/v1/models/") ? "model_not_found" : null);
}

function refuse(response, error) {
  if (error instanceof SchemaError) error = refuseForm(error.message);
  if (error instanceof SyntaxError) error = new Refusal(400, `no JSON: ${error.message}`);
  if (!(error instanceof Refusal)) {
    console.error(error);
    error = new Refusal(500, "the model failed; why is in the endpoint's log");
  }
  send(response, error.status, error.body);
}

/** What the command line says; ends where it says it wrong. */
function settingsOf() {
  try {
    const names = ["runtime", "model", ...Object.keys(NUMBERS)];
    const { values } = parseArgs({ options: Object.fromEntries(names.map((name) => [name, { type: "string" }])) });
    for (const [name, [min, max, fallback]] of Object.entries(NUMBERS)) {
      const number = Number(values[name] ?? fallback);
      if (!(number >= min && number <= max)) throw new Error(`--${name} takes a number from ${min} to ${max}`);
      values[name] = number;
    }
    return { ...values, name: "gemma-3-270m", fingerprint: "gemma-3-270m-q4_k_m" };
  } catch (error) {
    console.error(`live-model: ${error.message}; --help shows what there is`);
    return process.exit(2);
  }
}

const settings = settingsOf();
const model = await Model.load(settings);
const server = createServer((request, response) => route(request, response).catch((error) => refuse(response, error)));
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => {
    server.close();
    server.closeAllConnections();
    last.then(() => process.exit(0));
  });
}
server.on("error", (error) => {
  console.error(`live-model: ${error.message}`);
  process.exit(1);
});
server.listen(settings.port, "127.0.0.1", () => {
  const { port } = server.address();
  console.log(`${settings.fingerprint} listens on http://127.0.0.1:${port}/v1`);
});
