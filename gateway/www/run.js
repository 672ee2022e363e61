// One answer being made: request, automatic retries while the engine starts, streaming, and the end.
//
// States, moved only by #set: connecting → streaming → done, with connecting ⇄ waiting while a 503 is retried.
// `onChange(run, what)`: what is 'state' or 'text'. After 'done' nothing more is reported.

import { ApiError, streamChat } from './api.js';

const MAX_RETRIES = 5;
const MAX_WAIT_MS = 30_000;
const AT_ONCE_MS = 20; // an answer within less came as one burst

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

export class Run {
  state = 'connecting';
  text = '';
  reasoning = '';
  /** stop, length, content_filter, stopped, lost, error; null while it runs. */
  end = null;
  error = null;
  model = '';
  /** when the next attempt starts, in Date.now() milliseconds, while waiting */
  retryAt = 0;

  #abort = new AbortController();
  #options;
  #deltas = 0;
  #sentAt = 0;
  #firstAt = 0;
  #lastAt = 0;
  #usage = null;
  #thinking = new ThinkingSplitter((text) => { this.text += text; }, (text) => { this.reasoning += text; });

  /** options: key, model() (a promise of its id), messages, onChange; fetchFn, now and sleep for tests. */
  constructor(options) {
    this.#options = { now: () => performance.now(), fetchFn: (...a) => fetch(...a), sleep, ...options };
  }

  #set(state) {
    if (this.state === 'done') return;
    this.state = state;
    this.#options.onChange(this, 'state');
  }

  stop() { this.#abort.abort(); }

  async start() {
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#once();
        break;
      } catch (error) {
        if (this.#abort.signal.aborted) { this.end = 'stopped'; break; }
        if (error instanceof ApiError && error.status === 503 && attempt < MAX_RETRIES && this.#deltas === 0) {
          if (await this.#wait(error, attempt)) continue;
          this.end = 'stopped';
          break;
        }
        this.end = 'error';
        this.error = describe(error);
        break;
      }
    }
    this.#thinking.end();
    this.#set('done');
  }

  async #wait(error, attempt) {
    const ms = Math.min(MAX_WAIT_MS, Math.max(1000, error.retryAfterMs ?? 1000 * 2 ** attempt));
    this.retryAt = Date.now() + ms;
    this.#set('waiting');
    await this.#options.sleep(ms, this.#abort.signal);
    if (this.#abort.signal.aborted) return false;
    this.#set('connecting');
    return true;
  }

  async #once() {
    const { key, model, messages, fetchFn, now } = this.#options;
    const { signal } = this.#abort;
    const stopped = new Promise((_, reject) => { signal.addEventListener('abort', () => reject(signal.reason), { once: true }); });
    this.model = await Promise.race([model(), stopped]);
    stopped.catch(() => {}); // streamChat hears of it by the signal
    this.#sentAt = now();
    const result = await streamChat({
      key, model: this.model, messages, fetchFn, signal,
      onDelta: ({ content, reasoning }) => {
        const t = now();
        this.#deltas++;
        if (!this.#firstAt) this.#firstAt = t;
        this.#lastAt = t;
        this.reasoning += reasoning;
        this.#thinking.push(content);
        if (this.state !== 'streaming') this.#set('streaming');
        this.#options.onChange(this, 'text');
      },
    });
    if (result.model) this.model = result.model;
    this.#usage = result.usage;
    this.end = result.done ? (result.finishReason ?? 'stop') : 'lost';
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
  const api = error instanceof ApiError;
  return {
    kind: api ? error.kind : 'stream',
    status: api ? error.status : 0,
    code: api && error.code !== null ? String(error.code) : null,
    message: String(error?.message ?? error).slice(0, 2000),
    retryAt: api && error.retryAfterMs !== null ? Date.now() + error.retryAfterMs : null,
  };
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) { resolve(); return; }
    const finish = () => { clearTimeout(timer); signal.removeEventListener('abort', finish); resolve(); };
    const timer = setTimeout(finish, ms);
    signal.addEventListener('abort', finish);
  });
}
