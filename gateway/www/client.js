// SPDX-License-Identifier: Apache-2.0
// A small client of Sluice and other servers with OpenAI's API, for browsers and Node 18 or later. No dependencies.
// client.d.ts has the types and says what each thing means.
//
// A run is one answer. It is pulled: the next piece is read when the consumer asks for it, so a slow reader slows the
// server and not its own memory. Sluice numbers the events of an answer (it is asked to by a header) and keeps the answer
// for a while when its reader is gone; so a connection that is cut is made again and goes on with the next number: no
// event is lost or seen twice, also over a reload of the page when the application keeps `run.state`. A server without
// these numbers is served too; there a cut is an error.
//
// Order of an answer's life: connect (with retries) → read → (cut → connect again → read)* → end. What ends it is [DONE],
// a SluiceError, stop() or the signal. Sources: WHATWG HTML 9.2 (server-sent events), RFC 9110 10.2.3 (Retry-After).

const MAX_EVENT_CHARS = 4 << 20;
const MAX_WAIT_MS = 60_000; // a server that asks for more wants no automatic retry
const BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 8000;
const DRAIN_MS = 2000;

/** What went wrong; status 0 when it was not an HTTP status that said so. */
export class SluiceError extends Error {
  constructor(message, { status = 0, code = null, param = null, type = null, requestId = null, retryAfterMs = null, retryable = false, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'SluiceError';
    Object.assign(this, { status, code, param, type, requestId, retryAfterMs, retryable });
  }
}

/**
 * Incremental parser of an event stream: text or UTF-8 bytes, cut anywhere. LF, CR and CRLF end a line, a byte order mark
 * at the start is skipped, an unfinished event at the end is dropped. Only new text is scanned, so the cost is linear
 * however small the pieces are.
 */
export class SseParser {
  #on;
  #max;
  #decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // the mark is stripped below, once for bytes and text
  #atStart = true;
  #afterCr = false;
  #line = [];
  #size = 0; // characters of the event so far, its unfinished line included
  #data = [];
  #type = '';
  #own = null; // the id line of this event
  #lastId = '';

  /** on: {event({type, data, id, lastEventId}), retry(ms), comment(text)}, each optional, or the first alone. */
  constructor(on, { maxEventChars = MAX_EVENT_CHARS } = {}) {
    this.#on = typeof on === 'function' ? { event: on } : on;
    this.#max = maxEventChars;
  }

  push(piece) {
    const text = typeof piece === 'string' ? piece : this.#decoder.decode(piece, { stream: true });
    if (text === '') return;
    let from = 0;
    if (this.#atStart) {
      this.#atStart = false;
      if (text.charCodeAt(0) === 0xfeff) from = 1;
    } else if (this.#afterCr && text.charCodeAt(0) === 10) {
      from = 1;
    }
    this.#afterCr = false;
    for (let i = from; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c !== 10 && c !== 13) continue;
      this.#take(text.slice(from, i));
      this.#endLine();
      if (c === 13) {
        if (i + 1 === text.length) this.#afterCr = true;
        else if (text.charCodeAt(i + 1) === 10) i++;
      }
      from = i + 1;
    }
    if (from < text.length) this.#take(text.slice(from));
  }

  #take(piece) {
    this.#size += piece.length;
    if (this.#size > this.#max) throw new SluiceError('an event of the stream is too long', { code: 'malformed_answer' });
    if (piece) this.#line.push(piece);
  }

  #endLine() {
    const line = this.#line.length === 1 ? this.#line[0] : this.#line.join('');
    this.#line.length = 0;
    if (line === '') { this.#dispatch(); return; }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
    if (field === 'data') { this.#data.push(value); return; }
    if (field === 'event') this.#type = value;
    else if (field === 'id' && !value.includes('\0')) this.#own = this.#lastId = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.#on.retry?.(Number(value));
    else if (field === '') this.#on.comment?.(value);
    this.#size -= line.length; // only data gathers, so a stream of comments never gets too long
  }

  #dispatch() {
    const event = { type: this.#type || 'message', data: this.#data.join('\n'), id: this.#own, lastEventId: this.#lastId };
    const any = this.#data.length > 0;
    this.#data = [];
    this.#type = '';
    this.#own = null;
    this.#size = 0;
    if (any) this.#on.event?.(event);
  }
}

/** How long the server asks to wait: Retry-After-Ms, or Retry-After in seconds or as a date; null when it does not say. */
export function retryAfterMs(headers, now = Date.now()) {
  const ms = headers.get('retry-after-ms')?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(ms)) return Number(ms);
  const value = headers.get('retry-after')?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}

async function errorOf(response) {
  let error = {};
  try { error = (JSON.parse(await response.text())).error ?? {}; } catch { /* a proxy's page, or nothing */ }
  if (typeof error !== 'object') error = { message: String(error) };
  const { status, headers } = response;
  const said = headers.get('x-should-retry');
  return new SluiceError(String(error.message || `HTTP status ${status}`), {
    status, code: error.code ?? null, param: error.param ?? null, type: error.type ?? null,
    requestId: headers.get('x-request-id'), retryAfterMs: retryAfterMs(headers),
    retryable: said === 'true' || (said !== 'false' && (status === 408 || status === 409 || status === 429 || status >= 500)),
  });
}

async function jsonOf(response) {
  let text;
  try { text = await response.text(); } catch (cause) { throw new SluiceError('the connection was cut', { code: 'connection_lost', retryable: true, cause }); }
  try { return JSON.parse(text); } catch (cause) { throw new SluiceError('the answer is no JSON', { code: 'malformed_answer', cause }); }
}

/** Resolves after `ms`, or at once when the signal is aborted. */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}

/** Settles as `promise`, or calls `late` and rejects after `ms`. */
function within(promise, ms, late) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => {
      reject(new SluiceError(`nothing came for ${ms} ms`, { code: 'timeout', retryable: true }));
      late();
    }, ms);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

// After [DONE] the rest is read away for a moment, so that a finished request never looks cancelled to the server.
function drain(reader) {
  const cancel = () => reader.cancel().catch(() => {});
  within((async () => { while (!(await reader.read()).done); })(), DRAIN_MS, cancel).catch(() => {});
}

const settings = {
  baseURL: '', apiKey: undefined, getToken: undefined, headers: {}, fetch: (...args) => globalThis.fetch(...args),
  resume: true, maxRetries: 2, shouldRetry: (error) => error.retryable,
  timeoutMs: 120_000, stallMs: 45_000, reconnectMs: 30_000,
  clock: { now: () => Date.now(), pause, random: () => Math.random() },
};

export function createClient(options = {}) {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const config = { ...settings, ...given };
  config.base = config.baseURL === '' ? '' : `${config.baseURL.replace(/\/+$/, '').replace(/\/v1$/, '')}/`;
  return {
    chat: (body, runOptions) => new Run(config, body, null, runOptions),
    resume: (state, runOptions) => new Run(config, null, state, runOptions),
    request: (path, requestOptions) => requestJson(config, path, requestOptions),
    async models(requestOptions) {
      const list = (await requestJson(config, 'v1/models', requestOptions))?.data;
      return (Array.isArray(list) ? list : []).filter((m) => typeof m?.id === 'string' && m.id !== '');
    },
  };
}

async function authorize(config) {
  const token = config.getToken ? await config.getToken() : config.apiKey;
  return token ? { ...config.headers, Authorization: `Bearer ${token}` } : { ...config.headers };
}

/** One HTTP exchange up to its headers; anything but a success is thrown. `abort` ends it, its body too. */
async function exchange(config, path, { method, headers, body, abort }) {
  let response;
  try {
    response = await within(config.fetch(config.base + path, {
      method, headers, body, signal: abort.signal, cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error',
    }), config.timeoutMs, () => abort.abort());
  } catch (cause) {
    if (cause instanceof SluiceError || abort.signal.aborted) throw cause;
    throw new SluiceError(`the server cannot be reached: ${cause?.message ?? cause}`, { code: 'connection_failed', retryable: true, cause });
  }
  if (response.ok) return response;
  throw await within(errorOf(response), config.timeoutMs, () => abort.abort());
}

/** Full jitter: anything up to a limit that doubles. A server's wish is a minimum that the jitter is added to. */
function waitOf(config, error, attempt, unit = BACKOFF_MS) {
  const jitter = config.clock.random() * Math.min(MAX_BACKOFF_MS, unit * 2 ** attempt);
  return Math.round((error?.retryAfterMs ?? 0) + jitter);
}

const mayRetry = (config, error, attempt) => error instanceof SluiceError && attempt < config.maxRetries
  && (error.retryAfterMs ?? 0) <= MAX_WAIT_MS && config.shouldRetry(error, attempt);

async function requestJson(config, path, { method, body, signal } = {}) {
  for (let attempt = 0; ; attempt++) {
    const abort = new AbortController();
    const onAbort = () => abort.abort(signal.reason);
    signal?.throwIfAborted();
    signal?.addEventListener('abort', onAbort);
    try {
      const headers = { Accept: 'application/json', ...await authorize(config) };
      if (body !== undefined) headers['Content-Type'] = 'application/json';
      const text = body === undefined ? undefined : JSON.stringify(body);
      const response = await exchange(config, path.replace(/^\//, ''), { method: method ?? (body === undefined ? 'GET' : 'POST'), headers, body: text, abort });
      return response.status === 204 ? null : await within(jsonOf(response), config.timeoutMs, () => abort.abort());
    } catch (error) {
      signal?.throwIfAborted();
      if (!mayRetry(config, error, attempt)) throw error;
      await config.clock.pause(waitOf(config, error, attempt), signal);
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }
}

class Run {
  text = '';
  reasoning = '';
  finishReason = null;
  usage = null;
  model = null;
  /** running, done, stopped (by stop(), the signal or leaving the loop), detached, failed */
  status = 'running';

  #config;
  #body;
  #id = null;
  #last = null; // number of the last event that was delivered
  #retryMs = BACKOFF_MS;
  #attempt = 0; // connections made in vain since the last event
  #cutAt = null; // when the connection broke; null again when an event or a heartbeat has come
  #auth = null; // of the last request, so that stop() needs not wait for a token
  #over = new AbortController(); // the run is over for its reader
  #exchange = null; // aborts the connection of the moment
  #signal;
  #onEvent;
  #requestId = null;
  #taken = false;
  #ended;
  #settle;

  constructor(config, body, state, { signal, onEvent } = {}) {
    this.#config = config;
    this.#body = body;
    if (state) {
      if (typeof state.id !== 'string' || state.id === '') throw new TypeError('resume() wants the state of a run: {id, lastEventId}');
      this.#id = state.id;
      this.#last = Number.isInteger(state.lastEventId) ? state.lastEventId : null;
    }
    this.#ended = new Promise((resolve, reject) => { this.#settle = { resolve, reject }; });
    this.#ended.catch(() => {}); // whoever asks for the result hears of it
    this.#signal = signal;
    this.#onEvent = onEvent;
    signal?.addEventListener('abort', this.#onSignal);
    if (signal?.aborted) this.stop();
    if (onEvent) queueMicrotask(() => { if (!this.#taken) this.result().catch(() => {}); });
  }

  /** All that client.resume() needs, right for what has been delivered; null while nothing can be resumed. */
  get state() { return this.#id === null ? null : { id: this.#id, lastEventId: this.#last }; }

  #onSignal = () => { this.stop(); };

  /** Ends the answer here and on the server. Resolves when the server has been told. */
  async stop() {
    if (this.status !== 'running') return;
    this.status = 'stopped';
    const told = this.#id === null ? null : this.#tellStop();
    this.#leave();
    try { await told; } catch { /* the server ends by itself what nobody reads */ }
  }

  /** Leaves the answer to go on without a reader, for as long as the server keeps it; resume() takes it up again. */
  detach() {
    if (this.status !== 'running') return;
    this.status = 'detached';
    this.#leave();
  }

  #leave() {
    this.#over.abort();
    this.#exchange?.abort();
  }

  // Nothing is awaited before the request when its headers are known: the page may be about to go.
  async #tellStop() {
    const headers = this.#auth ?? await authorize(this.#config);
    await this.#config.fetch(this.#config.base + this.#path, {
      method: 'DELETE', headers, keepalive: true, credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error',
    });
  }

  get #path() { return `v1/streams/${encodeURIComponent(this.#id)}`; }

  /** Reads to the end, or waits for it while somebody else reads. */
  async result() {
    if (!this.#taken) {
      try { for await (const event of this) void event; } catch { /* kept in #ended */ }
    }
    return this.#ended;
  }

  /** The whole text. */
  async answer() { return (await this.result()).text; }

  /** The iterator; a run is read once. */
  [Symbol.asyncIterator]() {
    if (this.#taken) throw new TypeError('a run is read once');
    this.#taken = true;
    return this.#events();
  }

  async* #events() {
    try {
      for (let error = null; ;) {
        const response = yield* this.#connect(error);
        if (response === null || (yield* this.#read(response))) break;
        error = new SluiceError('the connection was cut before the answer was complete', { code: 'connection_lost', retryable: true });
        if (this.#id === null) throw error;
        this.#cutAt ??= this.#config.clock.now();
      }
      this.status = 'done';
      yield this.#say({ type: 'done' });
    } catch (error) {
      if (this.status === 'running') {
        this.status = 'failed';
        this.#settle.reject(error);
        this.#onEvent?.({ type: 'error', error });
      }
      if (this.status === 'failed') throw error;
    } finally {
      if (this.status === 'running') this.stop(); // the consumer left its loop
      this.#signal?.removeEventListener('abort', this.#onSignal);
      if (this.status === 'stopped' && this.#signal?.aborted) this.#settle.reject(this.#signal.reason);
      const { text, reasoning, finishReason, usage, model, status } = this;
      this.#settle.resolve({ text, reasoning, finishReason, usage, model, status });
    }
    if (this.status === 'stopped') this.#signal?.throwIfAborted();
  }

  #say(event) {
    this.#onEvent?.(event);
    return event;
  }

  /** The next connection, with waits as the policy wants them; null when the server has nothing more. `error`: why it is needed. */
  async* #connect(error) {
    const { clock, reconnectMs } = this.#config;
    for (;;) {
      if (error !== null) {
        const resuming = this.#id !== null;
        const ms = waitOf(this.#config, error, this.#attempt, resuming ? this.#retryMs : BACKOFF_MS);
        if (!resuming && !mayRetry(this.#config, error, this.#attempt)) throw error;
        if (resuming && !error.retryable) throw error;
        if (resuming && clock.now() + ms > this.#cutAt + reconnectMs) {
          throw new SluiceError(`the answer could not be taken up again: ${error.message}`, { ...error, code: 'connection_lost', cause: error });
        }
        yield this.#say({ type: 'waiting', ms, attempt: this.#attempt++, resuming, error });
        await clock.pause(ms, this.#over.signal);
      }
      this.#over.signal.throwIfAborted();
      try {
        return yield* this.#open();
      } catch (cause) {
        this.#over.signal.throwIfAborted();
        if (!(cause instanceof SluiceError)) throw cause;
        this.#cutAt ??= clock.now();
        error = cause;
      }
    }
  }

  async* #open() {
    const resuming = this.#id !== null;
    const abort = this.#exchange = new AbortController();
    this.#auth = await authorize(this.#config);
    this.#over.signal.throwIfAborted();
    const headers = { ...this.#auth, Accept: 'text/event-stream' };
    let response;
    if (resuming) {
      if (this.#last !== null) headers['Last-Event-ID'] = String(this.#last);
      try {
        response = await exchange(this.#config, this.#path, { method: 'GET', headers, abort });
      } catch (error) {
        if (error.status !== 404 && error.status !== 410) throw error;
        throw new SluiceError('the rest of the answer is lost: the server no longer has it', { ...error, code: 'stream_lost', retryable: false, cause: error });
      }
      if (response.status === 204) return null;
    } else {
      headers['Content-Type'] = 'application/json';
      if (this.#config.resume) headers['x-sluice-events'] = '1';
      const body = { ...this.#body, stream: true, stream_options: { include_usage: true, ...this.#body.stream_options } };
      response = await exchange(this.#config, 'v1/chat/completions', { method: 'POST', headers, body: JSON.stringify(body), abort });
      if (this.#config.resume) this.#id = response.headers.get('x-sluice-stream-id') || null;
      this.#attempt = 0;
      this.#cutAt = null;
    }
    this.#requestId = response.headers.get('x-request-id');
    yield this.#say({ type: 'open', state: this.state, requestId: this.#requestId, resumed: resuming });
    return response;
  }

  /** Reads one connection; true after [DONE], false when it was cut. */
  async* #read(response) {
    const kind = response.headers.get('content-type') ?? '';
    if (kind.startsWith('application/json')) { // a server that does not stream
      yield* this.#chunk(await jsonOf(response));
      return true;
    }
    if (!kind.startsWith('text/event-stream')) throw new SluiceError(`the answer is no event stream but '${kind}'`, { code: 'malformed_answer' });
    const found = [];
    const parser = new SseParser({
      event: (event) => found.push(event),
      comment: () => { this.#cutAt = null; }, // a heartbeat: a long wait for the first token is no failure
      retry: (ms) => { this.#retryMs = Math.min(ms, MAX_BACKOFF_MS); },
    });
    const reader = response.body.getReader();
    const abort = this.#exchange;
    let done = false;
    try {
      for (;;) {
        let part;
        try {
          part = await (this.#id === null ? reader.read() : within(reader.read(), this.#config.stallMs, () => abort.abort()));
        } catch {
          this.#over.signal.throwIfAborted();
          return false;
        }
        if (part.done) return false;
        parser.push(part.value);
        for (const event of found.splice(0)) {
          done = yield* this.#take(event);
          this.#over.signal.throwIfAborted();
          if (done) return true;
        }
      }
    } finally {
      if (done) drain(reader);
      else reader.cancel().catch(() => {});
    }
  }

  /** One event in order; true for [DONE]. */
  * #take({ data, id }) {
    if (this.#id !== null && id !== null && /^\d{1,15}$/.test(id)) {
      const wanted = this.#last === null ? 0 : this.#last + 1;
      if (Number(id) < wanted) {
        yield* this.#seen(data);
        return false;
      }
      if (Number(id) > wanted) throw new SluiceError(`events ${wanted} to ${Number(id) - 1} of the answer are missing`, { code: 'stream_lost' });
      this.#last = wanted;
      this.#attempt = 0;
      this.#cutAt = null;
    }
    if (data.trim() === '[DONE]') return true;
    let chunk;
    try { chunk = JSON.parse(data); } catch (cause) { throw new SluiceError('the stream holds a malformed event', { code: 'malformed_answer', cause }); }
    yield* this.#chunk(chunk);
    return false;
  }

  /** An event under a number that was seen. Only of a stream that could not be continued it is news: its error. */
  * #seen(data) {
    let chunk = null;
    try { chunk = JSON.parse(data); } catch { /* none */ }
    if (chunk?.error) yield* this.#chunk(chunk);
  }

  * #chunk(chunk) {
    if (chunk === null || typeof chunk !== 'object') return;
    if (chunk.error && typeof chunk.error === 'object') {
      const { message, code = null, param = null, type = null } = chunk.error;
      throw new SluiceError(String(message || 'the server ended the answer with an error'), { code, param, type, requestId: this.#requestId });
    }
    if (typeof chunk.model === 'string' && chunk.model) this.model = chunk.model;
    for (const choice of Array.isArray(chunk.choices) ? chunk.choices : []) {
      const index = choice.index ?? 0;
      const delta = choice.delta ?? choice.message ?? {};
      const text = typeof delta.content === 'string' ? delta.content : '';
      const reasoning = typeof delta.reasoning_content === 'string' ? delta.reasoning_content : '';
      if (index === 0) {
        this.text += text;
        this.reasoning += reasoning;
        if (choice.finish_reason) this.finishReason = String(choice.finish_reason);
      }
      if (Object.entries(delta).some(([name, value]) => name !== 'role' && value)) yield this.#say({ type: 'delta', index, text, reasoning, delta, chunk });
      if (choice.finish_reason) yield this.#say({ type: 'finish', index, reason: String(choice.finish_reason), chunk });
    }
    if (chunk.usage && typeof chunk.usage === 'object') {
      this.usage = chunk.usage;
      yield this.#say({ type: 'usage', usage: chunk.usage, chunk });
    }
  }
}
