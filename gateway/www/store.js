// Conversations and choices kept in this browser.
//
// Layout in localStorage, all under one versioned prefix. A conversation is several records, so that tabs that write into
// the same one never write over each other:
//   chat.<id>             {v: 2, created, updated, size, away}: that it is there; what the list is ordered by; how many of its
//                         characters are in the archive
//   chat.<id>.title       {title, at}: the latest name
//   chat.<id>.opts        its options (options.js): the system prompt, how tokens are drawn, …
//   chat.<id>.m.<mid>     one message. Its `at` orders it (then its id); made by one tab, which alone lets it grow
//   chat.<id>.b.<mid>     which of the messages that follow that one ('root': the first ones) is shown
//   chat.<id>.x.<mid>     that message was taken out, for good
//   chat.<id>.dead        {at}: the conversation was deleted, with every message up to then
//   draft.<id>            what was typed and not sent; 'new' for a conversation that is none yet
// A conversation is what its records say, in whatever order they were written. Before version 2 the first one held all of it,
// and messages without a parent follow the one before them.
// Messages stay here for a while only: the attic (attic.js) moves those of the least recently used conversations into
// IndexedDB. What is written here is there at once, even when the page is closed in the same moment, and every other tab
// hears of it. A message may be in both; the one that says more counts.
//
// Bounds: a number of chats and a total of characters; the least recently used go first. Where there is no attic and the
// storage refuses (quota, private mode) the oldest are dropped, and if even that does not help the chat lives in memory until
// the page is closed. With an attic nothing is dropped for that: what does not fit goes there directly.
//
// The names of the records are read once, and kept up with what this tab writes and hears() of others, where the storage
// says that it can be listened to: what is done for one conversation then costs what that one has, not what all have.

import { cleanOptions } from './options.js';
import { ATTIC_LIMITS, byTime, cleanMessage, cleanPicks, isId, isNewer, isTime, kept, LIMITS, messageOfText } from './records.js';

export { LIMITS, mergeMessages, newId, newTurn } from './records.js';

const PREFIX = 'sluice.v1.';
const REMEMBER_DEAD_MS = 86_400_000;
const CHAT = /^chat\.([0-9a-f]{4,40})$/;

/** The conversation that a record of the storage (`key` of an event) belongs to, or null. */
export const chatOfKey = (key) => /^sluice\.v1\.chat\.([0-9a-f]{4,40})(?:\.|$)/.exec(key ?? '')?.[1] ?? null;

export class Store {
  #storage;
  #limits;
  #memory = new Map(); // chats the storage refused
  evicted = 0; // chats that were dropped to make room
  #attic = null; // of attic.js, once its archive is open
  opening = null; // a promise: that it is, or cannot be
  #known = null; // Map: of each conversation the names of its records; null until they are read

  constructor(storage, limits = {}) {
    this.#storage = storage;
    // Where there was an attic there may be as many as it allows, also until it is open again.
    this.#limits = { ...LIMITS, ...(this.pref('attic') !== null && { chats: ATTIC_LIMITS.chats }), ...limits };
    this.#tidy();
  }

  /** attic: {forget(id), takeOut(id, mids), wake(), isFull}. From now on it takes what is not used. */
  setAttic(attic) {
    this.#attic = attic;
    this.#limits = { ...this.#limits, ...attic.limits };
    this.setPref('attic', '1');
  }

  /** Whether nothing outlives the page. */
  get forgets() { return this.#storage.forgets === true; }

  #text(name) {
    try { return this.#storage.getItem(PREFIX + name); } catch { return null; }
  }

  #read(name) {
    try { return JSON.parse(this.#text(name)); } catch { return null; }
  }

  #write(name, value) {
    try { this.#storage.setItem(PREFIX + name, typeof value === 'string' ? value : JSON.stringify(value)); } catch { return false; }
    this.#note(name, true);
    return true;
  }

  #drop(name) {
    try { this.#storage.removeItem(PREFIX + name); } catch { /* nothing to free then */ }
    this.#note(name, false);
  }

  /** Another tab has written the record with this key of the storage; null for all of them. */
  hears(key) {
    if (key === null) this.#known = null;
    else if (key.startsWith(PREFIX)) this.#note(key.slice(PREFIX.length), this.#text(key.slice(PREFIX.length)) !== null);
  }

  #note(name, there) {
    if (this.#known === null || !name.startsWith('chat.')) return;
    const id = name.split('.', 2)[1];
    const of = this.#known.get(id);
    if (!there) of?.delete(name);
    else if (of) of.add(name);
    else this.#known.set(id, new Set([name]));
  }

  /** Map: id of a conversation → the names of its records. */
  #records() {
    if (this.#known !== null && this.#storage.watched) return this.#known;
    this.#known = new Map();
    let keys = [];
    try { keys = this.#storage.keys(); } catch { /* none can be read then */ }
    for (const k of keys) if (k.startsWith(PREFIX)) this.#note(k.slice(PREFIX.length), true);
    return this.#known;
  }

  /** The names of the records of a conversation that begin so, and of the one that says that it is there. */
  #names(id, kind = '') {
    const prefix = `chat.${id}.${kind}`;
    return [...this.#records().get(id) ?? []].filter((name) => name.startsWith(prefix));
  }

  #tidy() {
    this.#drop('index'); // of version 1
    for (const [id, names] of [...this.#records()]) {
      if (!CHAT.test(`chat.${id}`)) continue;
      if (this.#read(`chat.${id}`)?.v === 1) this.#split(id);
      const died = this.#diedAt(id);
      if (names.has(`chat.${id}`) && (this.#meta(id)?.updated ?? 0) <= died) this.forget(id);
    }
    if (this.pref('attic') === null) this.bury(() => true);
  }

  /** Forgets that conversations were deleted, a day after it. isGone(id): nothing is left of it elsewhere. */
  bury(isGone) {
    for (const [id] of [...this.#records()]) {
      const died = this.#diedAt(id);
      if (died >= 0 && Date.now() - died > REMEMBER_DEAD_MS && isGone(id)) this.#drop(`chat.${id}.dead`);
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
      away: isTime(raw.away) ? raw.away : 0,
      old: raw.v === 1 ? raw.messages : [],
    };
  }

  #diedAt(id) {
    const at = this.#read(`chat.${id}.dead`)?.at;
    return isTime(at) ? at : -1;
  }

  /** Whether the user gave it its title. */
  isNamed(id) { return (this.#meta(id)?.titled ?? 0) > 0; }

  /** The ids of the messages that a conversation has records of that kind of. */
  #idsOf(id, kind) {
    const skip = `chat.${id}.${kind}.`.length;
    return this.#names(id, `${kind}.`).map((name) => name.slice(skip)).filter((mid) => isId(mid));
  }

  #picks(id) {
    return cleanPicks(Object.fromEntries(this.#idsOf(id, 'b').map((at) => [at, this.#read(`chat.${id}.b.${at}`)])));
  }

  /** Tells of a message of the conversation whether any tab took it out, or deleted it with the whole. */
  outOf(id) {
    const died = this.#diedAt(id);
    const out = new Set(this.#idsOf(id, 'x'));
    return (message) => message.at <= died || out.has(message.id);
  }

  #load(id, archived = []) {
    const meta = this.#meta(id);
    if (meta === null) return null;
    const { old, title, created, updated } = meta;
    const found = new Map();
    old.slice(-LIMITS.messages).forEach((raw, i) => found.set(`m${i}`, cleanMessage(raw, `m${i}`, i)));
    for (const [mid, text] of archived) if (isId(mid)) found.set(mid, messageOfText(text, mid));
    for (const mid of this.#idsOf(id, 'm')) {
      const m = cleanMessage(this.#read(`chat.${id}.m.${mid}`), mid, 0);
      if (m !== null && !(found.get(mid) && isNewer(found.get(mid), m))) found.set(mid, m);
    }
    const isOut = this.outOf(id);
    const messages = [...found.values()].filter((m) => m !== null && !isOut(m)).sort(byTime);
    const picks = this.#picks(id);
    const options = cleanOptions(this.#read(`chat.${id}.opts`));
    return {
      v: 1, id, title, created, updated, messages: messages.slice(-LIMITS.messages),
      ...(Object.keys(picks).length > 0 && { picks }), ...(Object.keys(options).length > 0 && { options }),
    };
  }

  /** [{id, title, created, updated, size, away}], newest first. */
  list() {
    const stored = [];
    for (const [id, names] of this.#records()) {
      const there = CHAT.test(`chat.${id}`) && names.has(`chat.${id}`) && !this.#memory.has(id);
      const meta = there ? this.#meta(id) : null;
      if (meta && meta.updated > this.#diedAt(id)) stored.push({ id, title: meta.title, created: meta.created, updated: meta.updated, size: meta.size, away: meta.away });
    }
    const memory = [...this.#memory.values()].map(({ id, title, created, updated }) => ({ id, title, created, updated, size: 0, away: 0 }));
    return [...memory, ...stored].sort((a, b) => b.updated - a.updated);
  }

  /** A conversation as localStorage has it, with its records `archived`, [[message id, text]]. Of one that isAway(), messages are missing without those. */
  get(id, archived) { return this.#memory.get(id) ?? this.#load(id, archived); }

  /** Whether messages of the conversation are in the archive. */
  isAway(id) { return !this.#memory.has(id) && this.awayOf(id) > 0; }

  /** How many characters of it are in the archive. */
  awayOf(id) { return this.#meta(id)?.away ?? 0; }

  /** Resolves to a conversation as get() does, with all of its messages. `missing` says that some could not be read. */
  async read(id) {
    if (!this.isAway(id)) return this.get(id);
    await this.opening;
    try {
      if (this.#attic === null) throw new Error('no attic');
      return this.get(id, await this.#attic.recordsOf(id));
    } catch {
      const chat = this.get(id);
      return chat === null ? null : { ...chat, missing: true };
    }
  }

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
    const away = chat.away ?? meta?.away ?? 0;
    let size = away;
    for (const name of this.#names(id)) size += name.length + (this.#text(name)?.length ?? 0);
    if (this.#text(`chat.${id}.title`) === null || (meta?.titled === 0 && meta.title !== chat.title)) {
      if (!this.#write(`chat.${id}.title`, { title: chat.title.slice(0, LIMITS.titleChars), at: 0 })) return false;
    }
    if (meta === null && chat.options && !this.#writeOptions(chat)) return false;
    return this.#write(`chat.${id}`, { v: 2, created, updated: Math.max(updated, meta?.updated ?? 0), size, ...(away > 0 && { away }) });
  }

  #writeOptions({ id, options }) {
    const clean = cleanOptions(options);
    if (Object.keys(clean).length > 0) return this.#write(`chat.${id}.opts`, clean);
    this.#drop(`chat.${id}.opts`);
    return true;
  }

  /** Keeps the options of a conversation; of one that has no message yet they are kept with the first. False where there is no room. */
  setOptions(chat) { return this.#meta(chat.id) === null || this.#writeOptions(chat); }

  optionsOf(id) { return this.#memory.get(id)?.options ?? cleanOptions(this.#read(`chat.${id}.opts`)); }

  /** Keeps which version is shown after a message ('' for the first ones). */
  pick(id, parent, mid) {
    if (this.#meta(id) !== null) this.#write(`chat.${id}.b.${parent || 'root'}`, JSON.stringify(mid));
  }

  /** Drops what is stored of a conversation, without a word to other tabs. */
  forget(id) {
    for (const name of this.#names(id)) if (!name.endsWith('.dead')) this.#drop(name);
    this.#drop(`chat.${id}`);
    this.#drop(`draft.${id}`);
    this.#attic?.forget(id);
  }

  /** What was typed into a conversation and not sent ('new': into none yet). */
  draft(id) { return this.#text(`draft.${id}`)?.slice(0, LIMITS.draftChars) ?? ''; }

  setDraft(id, text) {
    if (text === '') this.#drop(`draft.${id}`);
    else if (text.length <= LIMITS.draftChars) this.#write(`draft.${id}`, text);
  }

  // ---- whole conversations, for a file or a server ----

  /** A conversation with all that is kept of it, as records.js' cleanChat() takes it. */
  async whole(id) {
    const chat = await this.read(id);
    return chat === null ? null : { ...chat, titled: this.#meta(id)?.titled ?? 0 };
  }

  /** How many conversations and characters fit in beside what is there. */
  room() {
    const list = this.list();
    return { chats: this.#limits.chats - list.length, chars: list.reduce((left, c) => left - c.size, this.#limits.totalChars) };
  }

  /** take() for several, the first ones first. Resolves to the ids of those that there was room for. */
  async takeAll(chats) {
    const room = this.room();
    return this.#attic?.take(chats, room) ?? chats.filter((c) => this.take(c, room)).map((c) => c.id);
  }

  /** Whether there is room for a conversation to take. room: what room() said. */
  fits(chat, room) { return (!this.#isNew(chat.id) || room.chats >= 1) && room.chars >= JSON.stringify(chat).length; }

  #isNew(id) { return !this.#memory.has(id) && this.#meta(id) === null; }

  /**
   * Takes over a conversation that cleanChat() has checked; its messages join what is here of it. Nothing is dropped to make
   * room: false where there is none, and then nothing of a new conversation stays. room: what room() said, counted down here.
   * away: how many characters of it are in the archive, with all these messages; undefined where they are not.
   */
  take(chat, room = this.room(), away = undefined) {
    const size = JSON.stringify(chat).length;
    const isNew = this.#isNew(chat.id);
    if (!this.fits(chat, room)) return false;
    this.#drop(`chat.${chat.id}.dead`);
    const named = this.#meta(chat.id)?.titled ?? -1;
    const ok = (named >= chat.titled || this.#write(`chat.${chat.id}.title`, { title: chat.title, at: chat.titled }))
      && (away !== undefined || this.#put(chat, chat.messages))
      && Object.entries(isNew ? chat.picks ?? {} : {}).every(([at, mid]) => this.#write(`chat.${chat.id}.b.${at}`, JSON.stringify(mid)))
      && this.#writeMeta({ ...chat, away });
    if (!ok && isNew) this.forget(chat.id);
    if (ok && isNew) room.chats--;
    if (ok) room.chars -= size;
    return ok;
  }

  /**
   * Keeps the messages that have changed (all, unless told); others are as their tabs have written them. Returns whether the
   * chat is on the disk; false means that what is new of it only lives as long as the page.
   */
  save(chat, changed = chat.messages) {
    if (chat.messages.every(this.outOf(chat.id))) return true; // deleted meanwhile
    this.#attic?.wake();
    if (this.#attic !== null && this.#memory.has(chat.id)) { // the attic takes it as it is then
      this.#hold(chat);
      return !this.#attic.isFull;
    }
    const whole = this.#memory.has(chat.id) || this.#meta(chat.id) === null;
    const messages = whole ? chat.messages : changed;
    // What is in an archive that is not open cannot be told from what is lost; it is never dropped for room here.
    const rest = this.list().filter((c) => c.id !== chat.id && !this.#memory.has(c.id) && (this.#attic !== null || c.away === 0));
    const own = JSON.stringify(chat.messages.map(kept)).length;
    let total = rest.reduce((sum, c) => sum + c.size, own);
    const fits = own <= this.#limits.totalChars;
    const evict = () => {
      const oldest = rest.pop();
      this.forget(oldest.id);
      this.evicted++;
      total -= oldest.size;
    };
    while (fits && rest.length > 0 && (rest.length + 1 > this.#limits.chats || total > this.#limits.totalChars)) evict();
    let ok = false;
    while (fits && !(ok = this.#put(chat, messages) && this.#writeMeta(chat))) {
      if (rest.length === 0 || this.#attic !== null) break;
      evict();
    }
    if (ok) this.#memory.delete(chat.id);
    else this.#hold(chat);
    return ok || (fits && this.#attic?.isFull === false);
  }

  #hold(chat) {
    this.#memory.set(chat.id, chat);
    while (this.#memory.size > this.#limits.chats) this.#memory.delete(this.#memory.keys().next().value);
  }

  // ---- for the attic ----

  /** The conversations that the storage has refused, as they are now. */
  held() { return [...this.#memory.values()]; }

  /** The records of messages that are here, [[message id, text]], but for answers that may still grow. */
  settled(id, before) {
    const found = [];
    for (const mid of this.#idsOf(id, 'm')) {
      const text = this.#text(`chat.${id}.m.${mid}`);
      const m = text === null ? null : messageOfText(text, mid);
      if (m !== null && m.end !== null && m.at < before) found.push([mid, text]);
    }
    return found;
  }

  /** The records are in the archive, which has that many characters of the conversation: what is still the same here goes. */
  moved(id, records, away) {
    if (!this.setAway(id, away)) return;
    for (const [mid, text] of records) if (this.#text(`chat.${id}.m.${mid}`) === text) this.#drop(`chat.${id}.m.${mid}`);
    this.setAway(id, away); // with the size that it has now
  }

  /** False where the conversation was deleted, or there is no room to say it. */
  setAway(id, away) {
    const meta = this.#meta(id);
    return meta !== null && this.#writeMeta({ ...meta, id, away });
  }

  /** All messages of a held conversation are in the archive. False where there is no room for the rest of it. */
  release(chat, away) {
    const known = new Map(chat.messages.map((m) => [m.id, m]));
    for (const mid of this.#idsOf(chat.id, 'm')) {
      const m = cleanMessage(this.#read(`chat.${chat.id}.m.${mid}`), mid, 0);
      if (known.has(mid) && (m === null || !isNewer(m, known.get(mid)))) this.#drop(`chat.${chat.id}.m.${mid}`);
    }
    return this.#free(chat, this.#writeMeta({ ...chat, away }));
  }

  /** Tries once more to keep a held conversation here. */
  retry(chat) { return this.#free(chat, this.#put(chat, chat.messages) && this.#writeMeta(chat)); }

  #free(chat, ok) {
    if (ok) this.#memory.delete(chat.id);
    return ok;
  }

  /** The time at which it was deleted, or -1. */
  diedAt(id) { return this.#diedAt(id); }

  isThere(id) { return this.#meta(id) !== null; }

  /** Takes messages out of a conversation, for every tab. */
  takeOut(id, messages) {
    for (const m of messages) {
      const told = this.#write(`chat.${id}.x.${m.id}`, '1');
      this.#drop(`chat.${id}.m.${m.id}`);
      if (!told) this.#write(`chat.${id}.x.${m.id}`, '1'); // there is room now
    }
    if (this.isAway(id)) this.#attic?.takeOut(id, messages.map((m) => m.id));
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
