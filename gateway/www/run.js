// One answer being made: request, automatic retries while the engine starts, streaming, connections that are lost and made
// again, and the end. An answer that was under way when the page was left is taken up again from its beginning and drawn
// anew, which cannot lose or repeat anything; what had been kept of it is shown until then.
//
// States, moved only by #set: connecting → streaming → done, with connecting ⇄ waiting while a 503 is retried and
// streaming ⇄ reconnecting. `onChange(run, what)`: what is 'state', 'text' or 'stream' (the stream has its id). After
// 'done' nothing more is reported.

import { resultOf } from './calculator.js';
import { createClient, SluiceError } from './client.js';

const MAX_RETRIES = 5;
const AT_ONCE_MS = 20; // an answer within less came as one burst
const MAX_ROUNDS = 8; // requests of one answer: each result of a tool goes back in one more
const PARTS = ['text', 'reasoning', 'calls'];

/**
 * Parts the thoughts that some models write into their answer, as a leading <think>…</think>, from the answer itself.
 * Takes the text in any pieces; what might still be the beginning of a tag is held back until it is decided.
 */
export class ThinkingSplitter {
  #onText;
  #onThought;
  #state = 'start'; // start → thought → after → text, or start → text
  #held = '';

  constructor(onText, onThought) {
    this.#onText = onText;
    this.#onThought = onThought;
  }

  push(piece) {
    if (this.#state === 'text') { if (piece) this.#onText(piece); return; }
    this.#held += piece;
    if (this.#state === 'start') {
      const head = this.#held.trimStart();
      if (head.startsWith('<think>')) {
        this.#held = head.slice(7);
        this.#state = 'thought';
      } else if (!'<think>'.startsWith(head)) {
        this.#release('text');
      }
    }
    if (this.#state === 'thought') {
      const close = this.#held.indexOf('</think>');
      if (close < 0) {
        const keep = heldBack(this.#held, '</think>');
        if (this.#held.length > keep) this.#onThought(this.#held.slice(0, this.#held.length - keep));
        this.#held = this.#held.slice(this.#held.length - keep);
      } else {
        if (close > 0) this.#onThought(this.#held.slice(0, close));
        this.#held = this.#held.slice(close + 8);
        this.#state = 'after';
      }
    }
    if (this.#state === 'after') {
      this.#held = this.#held.trimStart();
      if (this.#held) this.#release('text');
    }
  }

  #release(state) {
    const text = this.#held;
    this.#held = '';
    this.#state = state;
    if (text) this.#onText(text);
  }

  /** The text is over: what was held back is what it looks like. */
  end() {
    if (this.#state === 'thought') this.#onThought(this.#held);
    else if (this.#held) this.#onText(this.#held);
    this.#held = '';
  }
}

/** How many characters at the end of `text` are a beginning of `tag`. */
function heldBack(text, tag) {
  for (let n = Math.min(text.length, tag.length - 1); n > 0; n--) if (tag.startsWith(text.slice(-n))) return n;
  return 0;
}

/** The models that a cascade's answer comes from, in the order of the text; '' where it says none. */
export function writersOf(chunk) {
  const parts = chunk?.sluice?.cascade?.parts;
  const names = (Array.isArray(parts) ? parts : []).filter((p) => typeof p?.model === 'string' && p.tokens > 0).map((p) => p.model);
  return [...new Set(names)].slice(0, 4).join(', ');
}

export class Run {
  state = 'connecting';
  text = '';
  reasoning = '';
  /** Calls of tools, one a line: the name, the arguments so far, and the result where the page has computed it. */
  calls = '';
  /** stop, length, content_filter, stopped, lost, gone (the server no longer has it), error; null while it runs. */
  end = null;
  error = null;
  model = '';
  /** the model that was asked for; another one may have answered */
  asked = '';
  /** when the next attempt starts, in Date.now() milliseconds, while waiting */
  retryAt = 0;

  #options;
  #stopped = new AbortController();
  #answer = null; // of the client
  #streamId = null;
  #deltas = 0;
  #sentAt = 0;
  #firstAt = 0;
  #lastAt = 0;
  #usage = null;
  #wrote = ''; // the models that wrote it, where one name stands for several
  #made = { text: '', reasoning: '', calls: '' }; // what has come; behind what is shown only while a kept answer is read again
  #before = [0, 0, 0]; // the lengths of what was made before the current request
  #calls = []; // of the current request
  #thinking = this.#splitter();

  /**
   * options: key, model() (a promise of its id), messages, tools, params (other members of the request), onChange; or kept: an answer to take up again, {text,
   * reasoning, calls, model, stream}, instead of model, messages and tools. fetchFn, now and clock for tests.
   */
  constructor(options) {
    this.#options = { now: () => performance.timeOrigin + performance.now(), fetchFn: (...a) => fetch(...a), ...options };
    const { kept } = this.#options;
    if (!kept) return;
    this.#before = kept.stream.before ?? this.#before;
    PARTS.forEach((part, i) => {
      this[part] = kept[part] ?? '';
      this.#made[part] = this[part].slice(0, this.#before[i]);
    });
    this.model = kept.model;
    this.asked = kept.asked ?? kept.model;
    this.#streamId = kept.stream.id;
    this.#sentAt = kept.stream.sentAt;
    this.#firstAt = kept.stream.firstAt;
  }

  #set(state) {
    if (this.state === 'done') return;
    this.state = state;
    this.#options.onChange(this, 'state');
  }

  stop() {
    this.#stopped.abort();
    this.#answer?.stop();
  }

  /** What is needed to take the answer up again after the page was left; null while it cannot be. */
  get stream() { return this.#streamId === null ? null : { id: this.#streamId, sentAt: this.#sentAt, firstAt: this.#firstAt, before: this.#before }; }

  #splitter() { return new ThinkingSplitter((text) => { this.#made.text += text; }, (text) => { this.#made.reasoning += text; }); }

  async start() {
    try {
      await this.#read();
    } catch (error) {
      if (!this.#stopped.signal.aborted) {
        this.end = { stream_lost: 'gone', connection_lost: 'lost' }[error.code] ?? 'error';
        if (this.end === 'error') this.error = describe(error);
      }
    }
    if (this.#stopped.signal.aborted && this.end === null) this.end = 'stopped';
    this.#thinking.end();
    this.#show();
    this.#set('done');
  }

  #show() {
    const whole = this.#answer?.status === 'done';
    for (const part of PARTS) if (whole || this.#made[part].length >= this[part].length) this[part] = this.#made[part];
  }

  async #read() {
    const { key, kept, model, messages, tools, params, conversation, fetchFn, clock } = this.#options;
    const headers = conversation ? { 'x-sluice-conversation': conversation } : {}; // its older answer, if another tab has one, ends
    const client = createClient({ apiKey: key, headers, fetch: fetchFn, clock, maxRetries: MAX_RETRIES, shouldRetry: (error) => error.status === 503 });
    if (kept) {
      this.#answer = client.resume({ id: kept.stream.id });
    } else {
      const { signal } = this.#stopped;
      const stopped = new Promise((resolve) => { signal.addEventListener('abort', resolve, { once: true }); });
      const known = await Promise.race([model(), stopped]);
      if (signal.aborted) return;
      this.model = this.asked = known;
      this.#sentAt = this.#options.now();
      this.#answer = client.chat({ model: known, messages, ...(tools && { tools }), ...params });
    }
    for (let sent = messages, round = 1; ; round++) {
      for await (const event of this.#answer) this.#on(event);
      if (this.#answer.status !== 'done') return;
      if (!tools || this.#stopped.signal.aborted || this.#answer.finishReason !== 'tool_calls' || this.#calls.length === 0 || round === MAX_ROUNDS) break;
      sent = [...sent, ...this.#results()];
      this.#answer = client.chat({ model: this.asked, messages: sent, tools, ...params });
    }
    this.end = this.#answer.finishReason ?? 'stop';
  }

  /** Computes what was called for. Returns the messages that go back to the model, and prepares for its answer. */
  #results() {
    this.#thinking.end();
    const content = this.#made.text.slice(this.#before[0]);
    const done = Object.values(this.#calls).map(({ id, name, args }) => ({ id, name, args, result: resultOf(name, args) }));
    this.#showCalls(done);
    this.#before = PARTS.map((part) => this.#made[part].length);
    this.#calls = [];
    this.#thinking = this.#splitter();
    this.#show();
    return [{ role: 'assistant', content, tool_calls: done.map(({ id, name, args }) => ({ id, type: 'function', function: { name, arguments: args } })) },
      ...done.map(({ id, result }) => ({ role: 'tool', tool_call_id: id, content: result }))];
  }

  #call({ index = 0, id, function: { name, arguments: piece } = {} }) {
    const call = this.#calls[index] ??= { id: '', name: '', args: '' };
    if (id) call.id = id;
    if (name) call.name = name;
    call.args += piece ?? '';
    this.#showCalls(this.#calls);
  }

  #showCalls(calls) {
    const lines = calls.map(({ name, args, result }) => `${name} ${args}${result === undefined ? '' : ` → ${result}`}`);
    this.#made.calls = [this.#made.calls.slice(0, this.#before[2]), ...lines].filter(Boolean).join('\n');
  }

  #on(event) {
    if (event.type === 'open') {
      this.#streamId = event.state?.id ?? null;
      this.#options.onChange(this, 'stream');
      if (this.state !== 'connecting') this.#set(this.#deltas > 0 ? 'streaming' : 'connecting');
    } else if (event.type === 'waiting') {
      this.retryAt = Date.now() + event.ms;
      this.#set(event.resuming ? 'reconnecting' : 'waiting');
    } else if (event.type === 'delta' && event.index === 0 && (event.text || event.reasoning || event.delta.tool_calls)) {
      const t = this.#options.now();
      this.#deltas++;
      if (!this.#firstAt) this.#firstAt = t;
      this.#lastAt = t;
      this.#made.reasoning += event.reasoning;
      for (const call of event.delta.tool_calls ?? []) this.#call(call);
      this.#thinking.push(event.text);
      this.#show();
      if (this.state !== 'streaming') this.#set('streaming');
      this.#options.onChange(this, 'text');
    } else if (event.type === 'usage') {
      const before = this.#usage?.completion_tokens ?? 0;
      this.#usage = { ...event.usage, completion_tokens: event.usage.completion_tokens + before };
    }
    if (event.type === 'finish' && event.index === 0) this.#wrote = writersOf(event.chunk);
    if (this.#answer.model) this.model = this.#wrote || this.#answer.model;
  }

  /**
   * {ttftMs, tps, promptTokens, completionTokens, exact}. The rate counts the tokens after the first one over the time
   * from the first to the last; of an answer that came all at once that time says nothing, so the whole wait counts.
   * Until the usage arrives each delta counts as one token and exact is false.
   */
  stats() {
    const exact = Number.isFinite(this.#usage?.completion_tokens);
    const tokens = exact ? this.#usage.completion_tokens : this.#deltas;
    const atOnce = this.#lastAt - this.#firstAt < AT_ONCE_MS;
    const span = this.#lastAt - (atOnce ? this.#sentAt : this.#firstAt);
    return {
      ttftMs: this.#firstAt ? this.#firstAt - this.#sentAt : null,
      tps: tokens > 1 && span > 0 ? ((tokens - (atOnce ? 0 : 1)) * 1000) / span : null,
      promptTokens: exact && Number.isFinite(this.#usage.prompt_tokens) ? this.#usage.prompt_tokens : null,
      completionTokens: tokens,
      exact,
    };
  }
}

/** A plain record of an error, fit for the history. */
export function describe(error) {
  const known = error instanceof SluiceError;
  const unreachable = known && (error.code === 'connection_failed' || error.code === 'timeout');
  return {
    kind: known && error.status > 0 ? 'http' : unreachable ? 'network' : 'stream',
    status: known ? error.status : 0,
    code: known && error.code !== null ? String(error.code) : null,
    message: String(error?.message ?? error).slice(0, 2000),
    retryAt: known && error.retryAfterMs !== null ? Date.now() + error.retryAfterMs : null,
  };
}
