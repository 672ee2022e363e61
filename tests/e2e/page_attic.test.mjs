// SPDX-License-Identifier: Apache-2.0
// Conversations between localStorage and the archive: what moves and when, and that nothing is lost whatever fails in between. The
// archive is a stand-in here, with the rules of archive.js; page_features.test.mjs has the browsers' own.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random } from './page_corpus.mjs';
import { load } from './page_modules.mjs';

const { Attic } = await load('attic.js');
const { pathOf } = await load('branches.js');
const { ATTIC_LIMITS, cleanChat, saysMore } = await load('records.js');
const { Search } = await load('search.js');
const { Store, memoryStorage, mergeMessages, newId, newTurn } = await load('store.js');
const { exportPieces, importInto, readExport } = await load('transfer.js');

const tick = () => new Promise((resolve) => { setImmediate(resolve); });
const NOTHING = { hotChars: 0 }; // then everything that may move does

/** An archive as archive.js': each call is one step that happens at once, after `wait()` and before another one. */
class StandIn {
  chats = new Map(); // id → Map of records
  refuses = null; // an Error
  wait = async () => {};
  calls = 0;

  async #step(act) {
    this.calls++;
    await this.wait();
    if (this.refuses) throw this.refuses;
    const result = act();
    await this.wait();
    return result;
  }

  #size(id) { return [...this.chats.get(id)?.values() ?? []].reduce((n, text) => n + text.length, 0); }

  sizes() { return this.#step(() => new Map([...this.chats.keys()].map((id) => [id, this.#size(id)]))); }

  read(id) { return this.#step(() => [...this.chats.get(id) ?? []]); }

  put(batch) {
    return this.#step(() => new Map(batch.map(([id, records]) => {
      const of = this.chats.get(id) ?? this.chats.set(id, new Map()).get(id);
      for (const [mid, text] of records) if (saysMore(text, of.get(mid), mid)) of.set(mid, text);
      return [id, this.#size(id)];
    })));
  }

  takeOut(id, mids) {
    return this.#step(() => {
      for (const mid of mids) this.chats.get(id)?.delete(mid);
      if (this.chats.get(id)?.size === 0) this.chats.delete(id);
      return this.#size(id);
    });
  }

  drop(id) { return this.#step(() => { this.chats.delete(id); }); }
}

/** A storage that takes `chars` characters. */
function bounded(chars) {
  const inner = memoryStorage();
  const used = (but) => inner.keys().reduce((n, k) => n + (k === but ? 0 : k.length + inner.getItem(k).length), 0);
  return { ...inner, chars, used, setItem(k, v) {
    if (used(k) + k.length + String(v).length > this.chars) throw new DOMException('full', 'QuotaExceededError');
    inner.setItem(k, v);
  } };
}

/** A tab: its store with an open attic. */
async function openTab(storage, archive, limits = NOTHING) {
  const tab = { store: new Store(storage), told: 0 };
  tab.attic = new Attic(tab.store, archive, () => { tab.told++; }, limits);
  tab.open = await tab.attic.start();
  await tab.attic.run();
  return tab;
}

function turnOf(chat, text, end = 'stop', at = 1000) {
  const turn = newTurn(chat.messages, at);
  const asked = { id: turn.question, at: turn.at, role: 'user', text };
  const reply = { id: turn.answer, at: turn.at, role: 'assistant', text: end === null ? '' : `to ${text}`, model: 'm', end };
  chat.messages.push(asked, reply);
  return [asked, reply];
}

function makeChat(updated, text = 'hello') {
  const chat = { v: 1, id: newId(), title: text.slice(0, 20), created: updated, updated, messages: [] };
  turnOf(chat, text, 'stop', updated);
  return chat;
}

const hotNames = (storage) => storage.keys().filter((k) => /\.m\./.test(k));
const textsOf = (chat) => chat.messages.map((m) => m.text);

async function exportText(store, ids) {
  let text = '';
  let missing;
  for (const pieces = exportPieces(store, ids); ;) {
    const { done, value } = await pieces.next();
    if (done) { missing = value; break; }
    text += value;
  }
  return { text, missing };
}

test('what is used least moves when there is much, and is read back as it was', async () => {
  const storage = memoryStorage();
  const archive = new StandIn();
  const before = new Store(storage);
  const chats = Array.from({ length: 40 }, (_, i) => makeChat(i + 1, `${i} ${'x'.repeat(1000)}`));
  for (const c of chats) before.save(c);
  const shown = before.list().map(({ id, title, updated }) => ({ id, title, updated }));
  const whole = (await exportText(before)).text;
  const { store, attic } = await openTab(storage, archive, { hotChars: 40_000 });
  assert.ok(archive.chats.size > 15 && archive.chats.size < 40, `${archive.chats.size} moved`);
  assert.deepEqual(store.list().slice(-archive.chats.size).every((c) => archive.chats.has(c.id)), true, 'the oldest');
  assert.ok(store.list().reduce((n, c) => n + c.size - c.away, 0) <= 20_000);
  assert.equal(hotNames(storage).length, 2 * (40 - archive.chats.size));
  assert.deepEqual(store.list().map(({ id, title, updated }) => ({ id, title, updated })), shown, 'the list shows no difference');
  for (const c of chats) assert.deepEqual(await store.read(c.id), c);
  assert.deepEqual(await exportText(store), { text: whole, missing: 0 });

  const [oldest] = chats;
  assert.ok(store.isAway(oldest.id));
  store.save(oldest, turnOf(oldest, 'one more'));
  assert.equal(hotNames(storage).length, 2 * (40 - archive.chats.size) + 2, 'only what is new is written');
  assert.deepEqual(textsOf(await store.read(oldest.id)), textsOf(oldest));
  store.takeOut(oldest.id, oldest.messages.splice(0, 2));
  assert.deepEqual(textsOf(await store.read(oldest.id)), ['one more', 'to one more']);
  await attic.run();
  assert.equal(store.isAway(oldest.id), false);
  store.remove(chats[1].id);
  assert.equal(await store.read(chats[1].id), null);
  await attic.run();
  assert.equal(archive.chats.has(chats[1].id), false);
});

test('little stays where it is: the archive is asked for what it has, and for nothing else', async () => {
  const archive = new StandIn();
  const { store, attic } = await openTab(memoryStorage(), archive, {});
  store.save(makeChat(1));
  await attic.run();
  assert.deepEqual([archive.calls, archive.chats.size], [1, 0]);
});

test('answers that may still grow, and what is new, do not move', async () => {
  const storage = memoryStorage();
  const archive = new StandIn();
  const chat = makeChat(1);
  const [, growing] = turnOf(chat, 'asked', null, Date.now() - 90_000);
  turnOf(chat, 'new', 'stop', Date.now());
  new Store(storage).save(chat);
  const { store, attic } = await openTab(storage, archive);
  assert.deepEqual([...archive.chats.get(chat.id).keys()], chat.messages.slice(0, 3).map((m) => m.id));
  growing.text = 'grown';
  growing.end = 'stop';
  store.save(chat, [growing]);
  await attic.run();
  assert.equal(JSON.parse(archive.chats.get(chat.id).get(growing.id)).text, 'grown');
  assert.deepEqual(textsOf(await store.read(chat.id)), textsOf(chat));
});

test('an archive that refuses takes nothing away; what fits in neither is said and stays until the page is closed', async () => {
  const storage = bounded(6000);
  const archive = new StandIn();
  const tab = await openTab(storage, archive, { hotChars: 4000 });
  archive.refuses = new DOMException('full', 'QuotaExceededError');
  const chats = [1, 2, 3].map((i) => makeChat(i, 'x'.repeat(600)));
  for (const c of chats) assert.ok(tab.store.save(c));
  await tab.attic.run();
  assert.deepEqual([tab.told, tab.attic.isFull, hotNames(storage).length], [0, true, 6], 'all of it is still in localStorage');
  const large = makeChat(4, 'y'.repeat(5000));
  assert.equal(tab.store.save(large), false);
  await tab.attic.run();
  assert.deepEqual([tab.told, tab.store.evicted], [1, 0], 'nothing is dropped to make room');
  assert.deepEqual(textsOf(await tab.store.read(large.id)), textsOf(large));
  assert.deepEqual(tab.store.list().length, 4);

  storage.chars = 20_000; // another page of the origin has made room
  await tab.attic.run();
  assert.deepEqual([tab.told, textsOf(new Store(storage).get(large.id))], [1, textsOf(large)]);
  archive.refuses = null;
  await tab.attic.run();
  assert.deepEqual([tab.attic.isFull, archive.chats.size > 0], [false, true]);
});

test('what localStorage has no room for goes to the archive directly, and old messages go to make room', async () => {
  const storage = bounded(9000);
  const archive = new StandIn();
  const tab = await openTab(storage, archive, { hotChars: 100_000 });
  const chats = Array.from({ length: 30 }, (_, i) => makeChat(i + 1, 'x'.repeat(700)));
  for (const c of chats) {
    assert.equal(tab.store.save(c), true);
    assert.deepEqual(tab.store.get(c.id)?.messages.length ?? 2, 2);
    await tab.attic.run();
  }
  const huge = makeChat(99, 'y'.repeat(50_000));
  assert.equal(tab.store.save(huge), true);
  huge.messages[1].text += ', more of it';
  assert.equal(tab.store.save(huge, [huge.messages[1]]), true);
  await tab.attic.run();
  assert.equal(tab.told, 0);
  const again = await openTab(storage, archive, { hotChars: 100_000 });
  assert.equal(again.store.list().length, 31);
  for (const c of [...chats, huge]) assert.deepEqual(textsOf(await again.store.read(c.id)), textsOf(c));
});

test('an archive that cannot be opened: what is in it is missed, not taken for lost, and nothing of it is dropped', async () => {
  const storage = memoryStorage();
  const archive = new StandIn();
  const first = await openTab(storage, archive);
  const chats = [1, 2, 3].map((i) => makeChat(i, `chat ${i}`));
  for (const c of chats) first.store.save(c);
  await first.attic.run();
  archive.refuses = new DOMException('private', 'InvalidStateError');
  const shut = { store: new Store(storage, { chats: 2, totalChars: 1000 }) };
  shut.attic = new Attic(shut.store, archive, () => {});
  assert.equal(await shut.attic.start(), false);
  const [chat] = chats;
  const found = await shut.store.read(chat.id);
  assert.deepEqual([found.missing, found.messages, found.title], [true, [], chat.title]);
  assert.equal((await exportText(shut.store)).missing, 3);
  for (let i = 0; i < 5; i++) shut.store.save(makeChat(10 + i, 'z'.repeat(300)));
  assert.equal(chats.every((c) => shut.store.isAway(c.id)), true, 'chats of this browser make room, not those of the archive');
  shut.store.save(found, turnOf(found, 'went on', 'stop', 2000));
  shut.store.remove(chats[2].id);

  archive.refuses = null;
  const again = await openTab(storage, archive);
  assert.deepEqual(textsOf(await again.store.read(chat.id)), ['chat 1', 'to chat 1', 'went on', 'to went on']);
  assert.deepEqual([archive.chats.has(chats[2].id), again.store.isThere(chats[2].id)], [false, false], 'deleted there, too, as soon as it can be');
});

test('a chat deleted in another tab while it moves stays deleted; one whose place in the list was lost comes back', async () => {
  const storage = memoryStorage();
  const archive = new StandIn();
  const [a, b] = [await openTab(storage, archive), await openTab(storage, archive)];
  const chat = makeChat(1);
  a.store.save(chat);
  let opened;
  archive.wait = () => new Promise((resolve) => { opened = resolve; });
  const moving = a.attic.run();
  while (!opened) await tick();
  b.store.remove(chat.id);
  archive.wait = async () => {};
  opened();
  await moving;
  await b.attic.run();
  assert.deepEqual([archive.chats.size, hotNames(storage), a.store.list()], [0, [], []]);

  const lost = makeChat(5, 'What is kept?');
  a.store.save(lost);
  await a.attic.run();
  for (const k of storage.keys()) if (k.includes(lost.id)) storage.removeItem(k);
  const again = await openTab(storage, archive);
  assert.deepEqual(again.store.list().map((c) => [c.id, c.title, c.updated]), [[lost.id, 'What is kept?', 5]]);
  assert.deepEqual(textsOf(await again.store.read(lost.id)), textsOf(lost));
});

test('an import goes to the archive, the newest first as far as there is room, and comes back to the byte', async () => {
  const archive = new StandIn();
  const { store } = await openTab(memoryStorage(), archive, {});
  const chats = Array.from({ length: 250 }, (_, i) => cleanChat({ ...makeChat(i + 1, `chat ${i}`), titled: i % 3, options: { seed: i }, picks: {} }));
  assert.equal((await importInto(store, chats)).length, 250);
  assert.equal(archive.chats.size, 250);
  const { text } = await exportText(store);
  const other = await openTab(memoryStorage(), new StandIn());
  await importInto(other.store, readExport(text).chats);
  assert.equal((await exportText(other.store)).text, text);
  await importInto(other.store, readExport(text).chats);
  assert.equal((await exportText(other.store)).text, text, 'twice is once');

  const small = await openTab(memoryStorage(), new StandIn(), { chats: 3 });
  assert.deepEqual(await importInto(small.store, chats), chats.slice(-3).reverse().map((c) => c.id));
  const refusing = await openTab(memoryStorage(), archive, {});
  archive.refuses = new DOMException('full', 'QuotaExceededError');
  assert.equal((await importInto(refusing.store, chats)).length, 250, 'localStorage takes what it can');
});

test('what is imported while another tab asks what there is stays known to be in the archive', async () => {
  const storage = memoryStorage(), archive = new StandIn();
  const first = await openTab(storage, archive, {});
  const [one, two] = ['one', 'two'].map((text, i) => cleanChat(makeChat(i + 1, text)));
  await importInto(first.store, [one]);
  const late = new Store(storage), { sizes } = archive;
  archive.sizes = async () => {
    const asked = await sizes.call(archive);
    await importInto(first.store, [two]);
    return asked;
  };
  assert.ok(await new Attic(late, archive, () => {}, {}).start());
  assert.deepEqual([late.isAway(one.id), late.isAway(two.id)], [true, true]);
  assert.deepEqual(textsOf(await late.read(two.id)), ['two', 'to two']);
});

test('a search remembers a bounded part of the history and finds in all of it', async () => {
  const storage = memoryStorage();
  const { store, attic } = await openTab(storage, new StandIn());
  for (let i = 0; i < 60; i++) store.save(makeChat(i + 1, `number ${i} ${'word '.repeat(100)}`));
  await attic.run();
  const search = new Search(store, 10_000);
  const found = async (query) => {
    const n = await search.prepare(store.list(), query, () => {});
    return [n, search.find(store.list(), query).map((c) => c.title)];
  };
  const [first, titles] = await found('number 3 word');
  assert.deepEqual([first, titles.length, titles.at(-1).trim().slice(0, 10)], [60, 15, 'number 3 w']);
  const [again, more] = await found('number 7 word');
  assert.ok(again > 40 && again < 60, `${again} read anew`);
  assert.equal(more.length, 6);
  assert.equal(await search.prepare(store.list(), 'x', () => {}, () => true), 1, 'ends when the query has changed');
  let stale = false;
  const older = search.prepare(store.list(), 'number 7 word', () => {}, () => stale);
  stale = true; // while it reads
  const newer = search.prepare(store.list(), 'number 3 word', () => {});
  await Promise.all([older, newer]);
  assert.equal(search.find(store.list(), 'number 3 word').length, 15, 'an older search leaves nothing in a newer one');
});

test('200 random interleavings of two tabs while messages move: no turn is lost, what was taken out stays out', async () => {
  const rnd = random(31);
  for (let round = 0; round < 200; round++) {
    const storage = memoryStorage();
    const archive = new StandIn();
    archive.wait = async () => { for (let n = rnd(3); n > 0; n--) await null; };
    const base = makeChat(1, 'first');
    new Store(storage).save(base);
    const tabs = [await openTab(storage, archive), await openTab(storage, archive)];
    for (const tab of tabs) [tab.chat, tab.own] = [await tab.store.read(base.id), null];
    const wanted = new Map(base.messages.map((m) => [m.id, m.text]));
    const moves = [];
    const adopt = (tab, stored) => {
      const { messages, again } = mergeMessages(tab.chat.messages, stored?.messages ?? [], tab.store.outOf(base.id), tab.own);
      tab.chat.messages = messages;
      if (again.length > 0) tab.store.save(tab.chat, again);
    };
    for (let step = 0; step < 30; step++) {
      const tab = tabs[rnd(2)];
      const what = rnd(10);
      if (what < 3 && tab.own === null) {
        const made = turnOf(tab.chat, `q${step}`, null);
        tab.own = made[1];
        for (const m of made) wanted.set(m.id, m.text);
        tab.store.save(tab.chat, made);
      } else if (what < 6 && tab.own !== null) {
        tab.own.text += ` ${step}`;
        if (what === 5) tab.own.end = 'stop';
        wanted.set(tab.own.id, tab.own.text);
        tab.store.save(tab.chat, [tab.own]);
        if (tab.own.end !== null) tab.own = null;
      } else if (what === 6) {
        adopt(tab, tab.store.get(base.id)); // as it does when it hears of the other tab: of what is in localStorage
      } else if (what === 7) {
        moves.push(tab.attic.run());
      } else if (what === 8 && tab.own === null && rnd(3) === 0) {
        const out = tab.chat.messages.filter((m) => tabs.every((other) => other.own?.id !== m.id)).slice(-1);
        tab.chat.messages = tab.chat.messages.filter((m) => !out.includes(m));
        tab.store.takeOut(base.id, out);
        for (const m of out) wanted.delete(m.id);
      } else {
        for (let n = rnd(6); n > 0; n--) await null;
      }
    }
    await Promise.all(moves);
    for (const tab of tabs) await tab.attic.run();
    for (const tab of tabs) {
      adopt(tab, await tab.store.read(base.id));
      assert.deepEqual(new Map(tab.chat.messages.map((m) => [m.id, m.text])), wanted, `round ${round}`);
    }
    const later = await openTab(storage, archive);
    const kept = await later.store.read(base.id);
    assert.deepEqual(new Map(kept.messages.map((m) => [m.id, m.text])), wanted, `round ${round}, opened later`);
    assert.deepEqual(pathOf(kept.messages).map((e) => e.message.id), pathOf(tabs[0].chat.messages).map((e) => e.message.id));
  }
});

test('what is saved before the archive is open drops none of the many chats that there may be with one', async () => {
  const storage = memoryStorage();
  const { store } = await openTab(storage, new StandIn(), {});
  const room = store.room();
  for (let i = 1; i <= 1100; i++) store.take({ ...makeChat(i), titled: 0 }, room);
  const before = new Store(storage);
  assert.ok(before.save(makeChat(2000)));
  assert.deepEqual([before.evicted, before.list().length], [0, 1101]);
});

test('beyond the number of chats the least recently used go, from the archive too', async () => {
  const archive = new StandIn();
  const { store, attic } = await openTab(memoryStorage(), archive, { chats: 3, hotChars: 0 });
  for (const i of [1, 2, 3, 4, 5]) {
    store.save(makeChat(i));
    await attic.run();
  }
  assert.deepEqual([store.list().map((c) => c.updated), store.evicted, archive.chats.size], [[5, 4, 3], 2, 3]);
});

test('the bounds leave room for the rest in localStorage', () => {
  const list = ATTIC_LIMITS.chats * 400; // characters of each: that it is there, its name, its options, their keys
  assert.ok(list + ATTIC_LIMITS.hotChars < 4_500_000);
});
