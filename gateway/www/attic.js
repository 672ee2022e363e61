// Moves messages out of localStorage into the archive: those of the conversations that were used least recently, whenever what
// is in localStorage has grown beyond a bound, and whatever localStorage has no room for. Until the archive has said that it
// has them, messages stay where they are; a page that is closed in between has lost nothing and moves them next time. Tabs
// may move the same ones at once.

import { titleOf } from './branches.js';
import { ATTIC_LIMITS, kept, messageOfText } from './records.js';

const WAKE_MS = 1000; // after something was saved
const SETTLED_MS = 60_000; // a message is that old before it moves: every tab has heard of it
const BATCH_CHARS = 1_000_000;
const BATCH_CHATS = 100;

const recordsOf = (chat) => chat.messages.map((m) => [m.id, JSON.stringify(kept(m))]);
const lengthOf = (records) => records.reduce((sum, [, text]) => sum + text.length, 0);

export class Attic {
  #store;
  #archive;
  #onFull;
  #timer = 0;
  #turn = Promise.resolve(); // what is done for the archive goes on one after the other
  limits;
  isFull = false; // the archive has refused, and nothing was taken since

  /** onFull(): something is neither in localStorage nor in the archive. limits: others than records.js' ATTIC_LIMITS, for tests. */
  constructor(store, archive, onFull, limits = {}) {
    this.#store = store;
    this.#archive = archive;
    this.#onFull = onFull;
    this.limits = { ...ATTIC_LIMITS, ...limits };
  }

  /** Opens the archive and makes it the store's. Resolves to whether the browser lets it. */
  start() {
    this.#store.opening = this.#begin();
    return this.#store.opening;
  }

  async #begin() {
    let sizes;
    const listed = this.#store.list(); // before: what comes meanwhile is in no `sizes`
    try { sizes = await this.#archive.sizes(); } catch { return false; }
    this.#store.setAttic(this);
    for (const [id, size] of sizes) await this.#settle(id, size).catch(() => {});
    this.#store.bury((id) => !sizes.has(id));
    for (const { id, away } of listed) if (away > 0 && !sizes.has(id)) this.#store.setAway(id, 0);
    this.run();
    return true;
  }

  /** Brings what localStorage says of an archived conversation in line with the archive. */
  async #settle(id, size) {
    const store = this.#store;
    if (store.isThere(id)) {
      if (store.awayOf(id) !== size) store.setAway(id, size);
    } else if (store.diedAt(id) >= 0) {
      await this.#archive.drop(id);
    } else { // the browser has lost the rest of it
      const messages = (await this.#archive.read(id)).map(([mid, text]) => messageOfText(text, mid)).filter(Boolean).sort((a, b) => a.at - b.at);
      const first = messages.find((m) => m.role === 'user');
      if (messages.length > 0) store.take({ id, title: titleOf(first?.text ?? ''), titled: 0, created: messages[0].at, updated: messages.at(-1).at, messages }, store.room(), size);
    }
  }

  recordsOf(id) { return this.#archive.read(id); }

  #then(act) {
    this.#turn = this.#turn.then(act).catch(() => {});
    return this.#turn;
  }

  forget(id) { this.#then(() => this.#archive.drop(id)); }

  takeOut(id, mids) { this.#then(async () => this.#store.setAway(id, await this.#archive.takeOut(id, mids))); }

  /** Something was saved. */
  wake() { this.#timer ||= setTimeout(() => this.run(), WAKE_MS); }

  /** Moves what is to be moved. */
  run() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    return this.#then(async () => {
      try {
        await this.#moveHeld();
        await this.#moveOld();
        this.isFull = false;
      } catch {
        this.isFull = true;
      }
      if (this.#store.held().length > 0) this.#onFull();
    });
  }

  /** What localStorage has refused. */
  async #moveHeld() {
    for (const chat of this.#store.held()) {
      if (this.isFull && this.#store.retry(chat)) continue;
      const sizes = await this.#archive.put([[chat.id, recordsOf(chat)]]);
      if (this.#store.release(chat, sizes.get(chat.id))) continue;
      await this.#moveOld(0); // makes room for the little that stays there
      this.#store.release(chat, sizes.get(chat.id));
    }
  }

  async #moveOld(bound = this.limits.hotChars) {
    let hot = this.#store.list().reduce((sum, c) => sum + c.size - c.away, 0);
    if (hot <= bound) return;
    let batch = [];
    let chars = 0;
    const move = async () => {
      const sizes = await this.#archive.put(batch);
      for (const [id, records] of batch) this.#store.moved(id, records, sizes.get(id));
      for (const [id] of batch) if (!this.#store.isThere(id)) await this.#archive.drop(id); // deleted meanwhile
      [batch, chars] = [[], 0];
    };
    for (const { id } of this.#store.list().reverse()) {
      if (hot <= bound / 2) break;
      const records = this.#store.settled(id, Date.now() - SETTLED_MS);
      if (records.length === 0) continue;
      batch.push([id, records]);
      chars += lengthOf(records);
      hot -= lengthOf(records);
      if (chars > BATCH_CHARS || batch.length === BATCH_CHATS) await move();
    }
    if (batch.length > 0) await move();
  }

  /**
   * Takes over conversations that cleanChat() has checked, the first ones first, into the archive. Resolves to the ids of those
   * that there was room for.
   */
  take(chats, room) {
    const taken = [];
    return this.#then(async () => {
      for (let i = 0; i < chats.length;) {
        const batch = [];
        let chars = 0;
        for (; i < chats.length && batch.length < BATCH_CHATS && chars < BATCH_CHARS; i++) {
          if (!this.#store.fits(chats[i], room)) continue;
          batch.push([chats[i], recordsOf(chats[i])]);
          chars += lengthOf(batch.at(-1)[1]);
        }
        const sizes = await this.#archive.put(batch.map(([{ id }, records]) => [id, records])).catch(() => new Map());
        for (const [chat] of batch) if (this.#store.take(chat, room, sizes.get(chat.id))) taken.push(chat.id);
      }
    }).then(() => taken);
  }
}
