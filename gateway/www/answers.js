// The answers under way in this tab: one Run per conversation, kept as it grows, taken up again after a reload. What they
// show is app.js' matter; `actions` say what has happened.

import { pathWith } from './branches.js';
import { LIMITS } from './records.js';
import { Run } from './run.js';
import { isRefused } from './views.js';

const SAVE_EVERY_MS = 2000;

export class Answers {
  #live = new Map(); // chat id → {run, chat, message, keyName, key, savedAt, state}
  #keys;
  #actions;

  /**
   * actions: onLive(ids), save(chat, changed), onChange(live, what), onEnd(live).
   */
  constructor(keys, actions) {
    this.#keys = keys;
    this.#actions = actions;
  }

  get(id) { return this.#live.get(id) ?? null; }

  has(id) { return this.#live.has(id); }

  ids() { return [...this.#live.keys()]; }

  /** Makes an answer's run; start() it once it is shown. */
  begin(chat, message, keyName, options) {
    const live = { chat, message, keyName, key: options.key, savedAt: Date.now(), run: null, state: '' };
    live.run = new Run({ ...options, onChange: (run, what) => this.#on(live, run, what) });
    this.#live.set(chat.id, live);
    this.#actions.onLive(this.ids());
    return live;
  }

  #forget(live) {
    this.#live.delete(live.chat.id);
    this.#actions.onLive(this.ids());
  }

  drop(live) {
    this.#forget(live);
    live.run.stop();
  }

  stop(id) { this.get(id)?.run.stop(); }

  /** Resumes an answer that was in progress when the page was left, or reads along with another tab. */
  takeUp(chat) {
    const message = chat.messages.filter((m) => m.stream && m.end === null).at(-1);
    if (!message || this.has(chat.id)) return;
    const key = message.stream.key === '' ? null : this.#keys.named(message.stream.key);
    this.begin(chat, message, message.stream.key, { key: key?.key ?? '', kept: message }).run.start();
  }

  /** The page is left: keeps what has come. */
  leave() {
    for (const live of this.#live.values()) {
      this.#keep(live);
      if (!live.message.stream) live.message.end = 'lost';
      this.#actions.save(live.chat, [live.message]);
    }
  }

  #keep(live) {
    const { run, message } = live;
    message.text = run.text.slice(0, LIMITS.messageChars);
    if (run.reasoning) message.reasoning = run.reasoning.slice(0, LIMITS.messageChars);
    if (run.calls) message.calls = run.calls.slice(0, LIMITS.messageChars);
    message.model = run.model;
    if (run.asked && run.asked !== run.model) message.asked = run.asked;
    message.end = run.end;
    if (run.end === null && run.stream !== null) message.stream = { ...run.stream, key: live.keyName };
    else delete message.stream;
    message.stats = run.stats();
    if (run.error) message.error = run.error;
  }

  #on(live, run, what) {
    if (this.get(live.chat.id) !== live) return; // removed or replaced meanwhile
    if (run.state !== 'done') {
      this.#actions.onChange(live, what);
      live.state = run.state;
      if (what === 'stream' || (what === 'text' && Date.now() - live.savedAt > SAVE_EVERY_MS)) {
        live.savedAt = Date.now();
        this.#keep(live);
        this.#actions.save(live.chat, [live.message]);
      }
      return;
    }
    this.#forget(live);
    this.#keep(live);
    this.#actions.save(live.chat, [live.message, ...markUnsent(live)]);
    this.#actions.onEnd(live);
  }
}

/** Marks the questions that the server refused, so that they are not sent again. Returns them. */
function markUnsent({ chat, message }) {
  const marked = [];
  if (!isRefused(message.error) || message.joins) return marked;
  const path = pathWith(chat.messages, chat.picks, message.id).map((e) => e.message);
  for (let i = path.indexOf(message) - 1; i >= 0 && (path[i].role === 'user' || path[i].text === ''); i--) {
    if (path[i].role === 'user') marked.push(path[i]);
  }
  for (const m of marked) m.unsent = true;
  return marked;
}
