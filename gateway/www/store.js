// Conversations and choices kept in this browser.
//
// Layout in localStorage, all under one versioned prefix. A conversation is several records, so that tabs that write into
// the same one never write over each other:
//   chat.<id>             {v: 2, created, updated, size}: that it is there; what the list is ordered by
//   chat.<id>.title       {title, at}: the latest name
//   chat.<id>.m.<mid>     one message. Its `at` orders it (then its id); made by one tab, which alone lets it grow
//   chat.<id>.x.<mid>     that message was taken out, for good (an edit, another answer)
//   chat.<id>.dead        {at}: the conversation was deleted, with every message up to then
// A conversation is what its records say, in whatever order they were written. Before version 2 the first one held all of it.
// Bounds: a number of chats and a total of characters; the least recently used go first. When the storage refuses (quota,
// private mode) the oldest are dropped, and if even that does not help the chat lives in memory until the page is closed.
// Whatever is read back is checked field by field.

const PREFIX = 'sluice.v1.';
export const LIMITS = { chats: 100, totalChars: 2_000_000, messageChars: 400_000, messages: 1000, titleChars: 80 };
const ENDS = new Set(['stop', 'length', 'content_filter', 'tool_calls', 'stopped', 'lost', 'gone', 'error']);
const BROKEN = new Set(['lost', 'gone', 'error']);
const ELSEWHERE_MS = 120_000; // an answer without a stream that began longer ago was lost with its tab
const REMEMBER_DEAD_MS = 86_400_000;
const CHAT = /^chat\.([0-9a-f]{4,40})$/;

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

/** The conversation that a record of the storage (`key` of an event) belongs to, or null. */
export const chatOfKey = (key) => /^sluice\.v1\.chat\.([0-9a-f]{4,40})(?:\.|$)/.exec(key ?? '')?.[1] ?? null;

/** The ids of a question and its answer, and when they were made: behind all that the conversation has. */
export function newTurn(messages, now = Date.now()) {
  const id = newId();
  return { question: `${id}q`, answer: `${id}r`, at: Math.max(now, (messages.at(-1)?.at ?? 0) + 1) };
}

const isTime = (v) => Number.isFinite(v) && v >= 0;
const number = (v) => (Number.isFinite(v) ? v : null);

/** An answer that was under way: its stream on the server, the name of the key it was asked with, and its times. */
function cleanStream(raw) {
  if (raw === null || typeof raw !== 'object' || typeof raw.id !== 'string' || !/^[\x21-\x7e]{1,200}$/.test(raw.id)) return null;
  return { id: raw.id, key: typeof raw.key === 'string' ? raw.key : '', sentAt: number(raw.sentAt) ?? 0, firstAt: number(raw.firstAt) ?? 0,
    ...(Array.isArray(raw.before) && raw.before.length === 3 && raw.before.every(isTime) && { before: raw.before }) };
}

function cleanMessage(raw, id, at, now = Date.now()) {
  if (raw === null || typeof raw !== 'object') return null;
  if ((raw.role !== 'user' && raw.role !== 'assistant') || typeof raw.text !== 'string') return null;
  const m = { id, at: isTime(raw.at) ? raw.at : at, role: raw.role, text: raw.text.slice(0, LIMITS.messageChars) };
  if (m.role === 'user') {
    if (raw.unsent === true) m.unsent = true;
    return m;
  }
  m.model = typeof raw.model === 'string' ? raw.model.slice(0, 200) : '';
  const stream = raw.end === null ? cleanStream(raw.stream) : null;
  if (stream) m.stream = stream;
  m.end = ENDS.has(raw.end) ? raw.end : stream || (raw.end === null && Math.abs(now - m.at) < ELSEWHERE_MS) ? null : 'lost';
  if (typeof raw.reasoning === 'string' && raw.reasoning) m.reasoning = raw.reasoning.slice(0, LIMITS.messageChars);
  if (typeof raw.calls === 'string' && raw.calls) m.calls = raw.calls.slice(0, LIMITS.messageChars);
  if (raw.stats && typeof raw.stats === 'object') {
    m.stats = {
      ttftMs: number(raw.stats.ttftMs), tps: number(raw.stats.tps), exact: raw.stats.exact === true,
      promptTokens: number(raw.stats.promptTokens), completionTokens: number(raw.stats.completionTokens),
    };
  }
  if (m.end === 'error') {
    const e = raw.error && typeof raw.error === 'object' ? raw.error : {};
    m.error = {
      kind: ['http', 'network', 'stream'].includes(e.kind) ? e.kind : 'stream',
      status: number(e.status) ?? 0, code: typeof e.code === 'string' ? e.code : null,
      message: typeof e.message === 'string' ? e.message.slice(0, 2000) : '', retryAt: number(e.retryAt),
    };
  }
  return m;
}

/** The order of a conversation's messages, the same in every tab. */
const byTime = (a, b) => a.at - b.at || (a.id < b.id ? -1 : 1);

/** As it is kept: what is longer is cut when it is read, too. */
const kept = (m) => (m.text.length > LIMITS.messageChars ? { ...m, text: m.text.slice(0, LIMITS.messageChars) } : m);

/** Whether `a` says more than `b`, another state of the same message. */
function isNewer(a, b) {
  if (a.role === 'user') return Boolean(a.unsent) !== Boolean(b.unsent);
  // Of an answer that was stopped the server tells others that it has ended: the tab that stopped it knows better.
  // One that has called tools may go on in the tab that computes them.
  const rank = (m) => (m.end === null ? 0 : BROKEN.has(m.end) ? 1 : m.end === 'tool_calls' ? 2 : m.end === 'stopped' ? 4 : 3);
  const length = (m) => m.text.length + (m.reasoning?.length ?? 0) + (m.calls?.length ?? 0);
  if (rank(a) !== rank(b)) return rank(a) > rank(b);
  return rank(a) < 3 && (length(a) > length(b) || (length(a) === length(b) && Boolean(a.stream) && !b.stream));
}

/** Whether `a` is an end that what is stored does not know: another tab wrote over it before it could see it. */
const isLost = (a, stored) => a.role === 'assistant' && a.end !== null && !BROKEN.has(a.end) && isNewer(a, stored);

/**
 * What a tab shows once it knows what is stored: that, with its own state of `mine`, the answer it is reading, and with what is not
 * stored (there may have been no room) unless some tab took it out. again: of these what has to be stored once more.
 */
export function mergeMessages(known, stored, isOut, mine) {
  const merged = new Map(stored.map((m) => [m.id, m]));
  const again = [];
  for (const m of known) {
    const other = merged.get(m.id);
    if (other && m !== mine && isLost(m, other)) again.push(m);
    if (!other || m === mine || again.at(-1) === m) merged.set(m.id, m);
  }
  return { messages: [...merged.values()].filter((m) => !isOut(m)).sort(byTime), again };
}

export class Store {
  #storage;
  #limits;
  #memory = new Map(); // chats the storage refused

  constructor(storage, limits = LIMITS) {
    this.#storage = storage;
    this.#limits = { ...LIMITS, ...limits };
    this.#tidy();
  }

  #text(name) {
    try { return this.#storage.getItem(PREFIX + name); } catch { return null; }
  }

  #read(name) {
    try { return JSON.parse(this.#text(name)); } catch { return null; }
  }

  #write(name, value) {
    try { this.#storage.setItem(PREFIX + name, typeof value === 'string' ? value : JSON.stringify(value)); return true; } catch { return false; }
  }

  #drop(name) {
    try { this.#storage.removeItem(PREFIX + name); } catch { /* nothing to free then */ }
  }

  /** The names of all records that begin so. */
  #names(prefix) {
    try { return this.#storage.keys().filter((k) => k.startsWith(PREFIX + prefix)).map((k) => k.slice(PREFIX.length)); } catch { return []; }
  }

  #tidy() {
    this.#drop('index'); // of version 1
    for (const name of this.#names('chat.')) {
      const id = CHAT.exec(name)?.[1];
      if (id && this.#read(name)?.v === 1) this.#split(id);
      if (id && (this.#meta(id)?.updated ?? 0) <= this.#diedAt(id)) this.forget(id);
      if (name.endsWith('.dead') && Date.now() - (this.#read(name)?.at ?? 0) > REMEMBER_DEAD_MS) this.#drop(name);
    }
  }

  /** A record of version 1 becomes records of version 2; as it is where there is no room for them. */
  #split(id) {
    const chat = this.#load(id);
    if (chat !== null && this.#put(chat, chat.messages)) this.#writeMeta(chat);
  }

  // ---- what is there ----

  #meta(id) {
    const raw = this.#read(`chat.${id}`);
    if (raw === null || typeof raw !== 'object' || (raw.v === 1 ? !Array.isArray(raw.messages) : raw.v !== 2)) return null;
    const title = this.#read(`chat.${id}.title`) ?? raw;
    return {
      title: typeof title.title === 'string' ? title.title.slice(0, LIMITS.titleChars) : '', titled: isTime(title.at) ? title.at : 0,
      created: isTime(raw.created) ? raw.created : 0, updated: isTime(raw.updated) ? raw.updated : 0, size: isTime(raw.size) ? raw.size : 0,
      old: raw.v === 1 ? raw.messages : [],
    };
  }

  #diedAt(id) {
    const at = this.#read(`chat.${id}.dead`)?.at;
    return isTime(at) ? at : -1;
  }

  /** Whether the user gave it its title. */
  isNamed(id) { return (this.#meta(id)?.titled ?? 0) > 0; }

  /** Tells of a message of the conversation whether any tab took it out, or deleted it with the whole. */
  outOf(id) {
    const died = this.#diedAt(id);
    const prefix = `chat.${id}.x.`;
    const out = new Set(this.#names(prefix).map((name) => name.slice(prefix.length)));
    return (message) => message.at <= died || out.has(message.id);
  }

  #load(id) {
    const meta = this.#meta(id);
    if (meta === null) return null;
    const { old, title, created, updated } = meta;
    const found = new Map();
    old.slice(-LIMITS.messages).forEach((raw, i) => found.set(`m${i}`, cleanMessage(raw, `m${i}`, i)));
    const prefix = `chat.${id}.m.`;
    for (const name of this.#names(prefix)) {
      const mid = name.slice(prefix.length);
      if (/^[0-9a-z]{1,40}$/.test(mid)) found.set(mid, cleanMessage(this.#read(name), mid, 0));
    }
    const isOut = this.outOf(id);
    const messages = [...found.values()].filter((m) => m !== null && !isOut(m)).sort(byTime);
    return { v: 1, id, title, created, updated, messages: messages.slice(-LIMITS.messages) };
  }

  /** [{id, title, updated}], newest first. */
  list() {
    const stored = [];
    for (const name of this.#names('chat.')) {
      const id = CHAT.exec(name)?.[1];
      const meta = id && !this.#memory.has(id) ? this.#meta(id) : null;
      if (meta && meta.updated > this.#diedAt(id)) stored.push({ id, title: meta.title, updated: meta.updated, size: meta.size });
    }
    const memory = [...this.#memory.values()].map(({ id, title, updated }) => ({ id, title, updated, size: 0 }));
    return [...memory, ...stored].sort((a, b) => b.updated - a.updated);
  }

  get(id) { return this.#memory.get(id) ?? this.#load(id); }

  // ---- what changes ----

  /** Writes what is there of `messages` and says more than what is stored. False where there is no room. */
  #put(chat, messages) {
    const isOut = this.outOf(chat.id);
    for (const m of messages) {
      const name = `chat.${chat.id}.m.${m.id}`;
      const raw = this.#read(name);
      const stored = cleanMessage(raw, m.id, 0, raw?.at);
      if (isOut(m) || (stored !== null && !isNewer(m, stored))) continue;
      if (!this.#write(name, kept(m))) return false;
    }
    return true;
  }

  #writeMeta(chat) {
    const { id, created, updated } = chat;
    const meta = this.#meta(id);
    let size = 0;
    for (const name of this.#names(`chat.${id}.`)) size += name.length + (this.#text(name)?.length ?? 0);
    if (this.#text(`chat.${id}.title`) === null || (meta?.titled === 0 && meta.title !== chat.title)) {
      if (!this.#write(`chat.${id}.title`, { title: chat.title.slice(0, LIMITS.titleChars), at: 0 })) return false;
    }
    return this.#write(`chat.${id}`, { v: 2, created, updated: Math.max(updated, meta?.updated ?? 0), size });
  }

  /** Drops what is stored of a conversation, without a word to other tabs. */
  forget(id) {
    for (const name of this.#names(`chat.${id}.`)) if (!name.endsWith('.dead')) this.#drop(name);
    this.#drop(`chat.${id}`);
  }

  /**
   * Keeps the messages that have changed (all, unless told); others are as their tabs have written them. Returns whether the
   * chat is on the disk; false means that what is new of it only lives as long as the page.
   */
  save(chat, changed = chat.messages) {
    if (chat.messages.every(this.outOf(chat.id))) return true; // deleted meanwhile
    const whole = this.#memory.has(chat.id) || this.#meta(chat.id) === null;
    const messages = whole ? chat.messages : changed;
    const rest = this.list().filter((c) => c.id !== chat.id && !this.#memory.has(c.id));
    const own = JSON.stringify(chat.messages.map(kept)).length;
    let total = rest.reduce((sum, c) => sum + c.size, own);
    const fits = own <= this.#limits.totalChars;
    const evict = () => {
      const oldest = rest.pop();
      this.forget(oldest.id);
      total -= oldest.size;
    };
    while (fits && rest.length > 0 && (rest.length + 1 > this.#limits.chats || total > this.#limits.totalChars)) evict();
    let ok = false;
    while (fits && !(ok = this.#put(chat, messages) && this.#writeMeta(chat))) {
      if (rest.length === 0) break;
      evict();
    }
    if (ok) {
      this.#memory.delete(chat.id);
    } else {
      this.#memory.set(chat.id, chat);
      while (this.#memory.size > this.#limits.chats) this.#memory.delete(this.#memory.keys().next().value);
    }
    return ok;
  }

  /** Takes messages out of a conversation, for every tab. */
  takeOut(id, messages) {
    for (const m of messages) {
      const told = this.#write(`chat.${id}.x.${m.id}`, '1');
      this.#drop(`chat.${id}.m.${m.id}`);
      if (!told) this.#write(`chat.${id}.x.${m.id}`, '1'); // there is room now
    }
  }

  rename(id, title) {
    const held = this.#memory.get(id);
    if (held) held.title = title.slice(0, LIMITS.titleChars);
    if (this.#meta(id) !== null) this.#write(`chat.${id}.title`, { title: title.slice(0, LIMITS.titleChars), at: Date.now() });
  }

  /** Deletes a conversation as it is now; what another tab adds to it later is a conversation again. */
  remove(id) {
    const last = this.get(id)?.messages.at(-1)?.at ?? 0;
    this.#memory.delete(id);
    this.#write(`chat.${id}.dead`, { at: Math.max(Date.now(), last) });
    this.forget(id);
  }

  clear() {
    for (const { id } of this.list()) this.remove(id);
  }

  /** A small choice of the user's: model, theme, language. */
  pref(name) {
    try { return this.#storage.getItem(PREFIX + name); } catch { return null; }
  }

  setPref(name, value) {
    if (value === null) this.#drop(name);
    else this.#write(name, value);
  }
}

/** A storage that forgets: used where the browser offers none. */
export function memoryStorage() {
  const map = new Map();
  return {
    getItem: (k) => map.get(k) ?? null,
    setItem: (k, v) => { map.set(k, String(v)); },
    removeItem: (k) => { map.delete(k); },
    keys: () => [...map.keys()],
  };
}
