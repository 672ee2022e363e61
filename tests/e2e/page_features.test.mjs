// SPDX-License-Identifier: Apache-2.0
// What people keep in the page, used against the stand-in server: versions, options, search, files, keys, the server's history,
// and axe-core over all of it. In Chromium and, where it is installed, Firefox; on a desktop in light and on a phone in dark. Of
// two browsers each has one of the looks, so that a feature meets both browsers and both looks; what is our own code in all of them
// (IN_TURN) meets one, by turns. With THOROUGH each browser has both looks, and each feature all of them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from './chromium.mjs';
import { until } from './client.mjs';
import { FIREFOX, openFirefox } from './firefox.mjs';
import { KEYS, startMock } from './page_mock.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const id = (name) => `[data-testid="${name}"]`;
const ready = `${id('model-select')}:enabled`;
let mock;
let place; // of the test that runs
const errors = [];
const launched = new Map();
const downloads = mkdtempSync(join(tmpdir(), 'sluice-downloads-')); // Firefox's

const BROWSERS = [['Chromium', launch, true], ['Firefox', () => openFirefox({ downloadsPath: downloads }), FIREFOX !== undefined]];
const LOOKS = [['desktop, light', { width: 1280, height: 800 }, 'light'], ['phone, dark', { width: 360, height: 740 }, 'dark']];
const PLACES = BROWSERS.flatMap(([browser, open, there]) => LOOKS.map(([look, viewport, colorScheme]) => ({
  name: `${browser}, ${look}`, browser, open, viewport, colorScheme, isFirefox: browser === 'Firefox', isPhone: viewport.width < 800, skip: !there && `${browser} is not installed` })));

const DESKTOP = PLACES.filter((p) => !p.isPhone);
/** Where a test's own script refuses something: any browser will do, with THOROUGH each. */
const ANY_DESKTOP = DESKTOP.filter((p) => !p.isFirefox || process.env.THOROUGH);
const looksOf = (places) => new Set(places.map((p) => p.isPhone)).size;
const chosen = (places) => (process.env.THOROUGH || !FIREFOX || looksOf(places) === 1 ? places : places.filter((p) => p.isPhone === p.isFirefox));

/** What is kept and where: it looks alike on a desktop and a phone. Where one browser is there, in one look; with THOROUGH in both. */
const KEPT = (isPhone) => (process.env.THOROUGH || FIREFOX ? PLACES : PLACES.filter((p) => p.isPhone === isPhone));

/** One browser and look for each, by turns: features that ask no more of a browser than others which run in all of them. */
const IN_TURN = Symbol('in turn');
let turn = 0;
const placesOf = (places) => {
  if (places !== IN_TURN) return chosen(places);
  const all = chosen(PLACES).filter((p) => !p.skip);
  return process.env.THOROUGH ? PLACES : [all[turn++ % all.length]];
};

/** A test in each browser and look of these. */
function feature(name, act, places = PLACES) {
  for (const one of placesOf(places)) {
    test(`${one.name}: ${name}`, { skip: one.skip }, () => {
      place = one;
      errors.length = 0;
      mock.clear();
      mock.conversations.clear();
      return act();
    });
  }
}

async function browserOf({ browser, open }) {
  if (!launched.has(browser)) launched.set(browser, await open());
  return launched.get(browser);
}

before(async () => {
  mock = await startMock({ trustedTypes: true });
  mock.fallback = { firstMs: 0, everyMs: 0 };
});
after(async () => {
  await Promise.all([...launched.values()].map((b) => b.close()));
  await mock?.close();
  rmSync(downloads, { recursive: true, force: true });
});

/** Firefox is not told of a colour scheme, so the page's own choice is made there. */
async function contextOf(options) {
  const browser = await browserOf(place);
  const context = await browser.newContext({ locale: 'en-US', viewport: place.viewport, acceptDownloads: true,
    ...(!place.isFirefox && { colorScheme: place.colorScheme, reducedMotion: 'reduce' }), ...options });
  if (place.isFirefox) await context.addInitScript((theme) => { if (location.protocol === 'http:' && localStorage.getItem('sluice.v1.theme') === null) localStorage.setItem('sluice.v1.theme', theme); }, place.colorScheme);
  return context;
}

/** Opens the drawer that the list of conversations is in on a phone. */
async function side(page) {
  if (place.isPhone && await page.locator('#scrim').isHidden()) await page.click(id('sidebar-open'));
}

/** The file that is saved. */
async function saved(page, act) {
  if (!place.isFirefox) {
    const [download] = await Promise.all([page.waitForEvent('download'), act()]);
    return readFile(await download.path(), 'utf8');
  }
  const had = new Set(readdirSync(downloads));
  await act();
  const made = () => readdirSync(downloads).find((name) => !had.has(name) && name.endsWith('.json') && statSync(join(downloads, name), { throwIfNoEntry: false })?.size > 0);
  const text = await until(() => { // what Firefox writes has another name at first
    try {
      const name = made(), read = name === undefined ? '' : readFileSync(join(downloads, name), 'utf8');
      return read.endsWith('}\n') && read;
    } catch (e) {
      if (e.code !== 'ENOENT') throw e;
      return false;
    }
  }, 30_000);
  assert.ok(text, 'nothing was saved');
  return text;
}

/** As in a private window of some browsers. */
const refuseArchive = () => { IDBFactory.prototype.open = () => { throw new DOMException('refused', 'SecurityError'); }; };

/** A new page of a new profile, even if none of the options needs one (alone). first: a script that runs in each page before its own. */
async function newPage({ first, alone, ...options }) {
  const context = await contextOf(options);
  if (first) await context.addInitScript(first);
  context.on('page', (page) => {
    page.setDefaultTimeout(30_000);
    page.on('pageerror', (e) => errors.push(`error: ${e.message}`));
    page.on('console', (m) => { if (m.type() === 'error' && !m.text().startsWith('Failed to load resource')) errors.push(`console: ${m.text()}`); });
  });
  return context.newPage();
}

// Firefox needs longer for a window and a process than for most tests: a page that a test has done with is another's, with
// nothing kept in it.
const idle = new Map();

async function takePage(options) {
  const page = Object.keys(options).length === 0 && idle.get(place.name);
  if (!page) return newPage(options);
  idle.delete(place.name);
  await page.bringToFront();
  await page.mouse.move(0, 0);
  return page;
}

async function leavePage(page, options) {
  if (!place.isFirefox || Object.keys(options).length > 0 || idle.has(place.name)) return page.context().close();
  for (const other of page.context().pages()) if (other !== page) await other.close();
  await page.goto(`${mock.origin}/style.css`); // no page that would keep something as it ends
  await page.evaluate(async () => {
    localStorage.clear();
    sessionStorage.clear();
    for (const { name } of await indexedDB.databases()) {
      await new Promise((done, failed) => {
        const request = indexedDB.deleteDatabase(name);
        request.onsuccess = done;
        request.onerror = () => failed(request.error);
      });
    }
  });
  idle.set(place.name, page);
}

/** What is done with the keyboard alone. */
function keyboardOf(page) {
  /** From where the focus is, with one key. name: a test id, or #id. */
  const tabTo = async (name, key = 'Shift+Tab', most = 80) => {
    for (let i = 0; i < most; i++) {
      if (await page.evaluate((n) => (n.startsWith('#') ? `#${document.activeElement.id}` : document.activeElement.dataset.testid) === n, name)) return;
      await page.keyboard.press(key);
    }
    assert.fail(`${name} cannot be reached`);
  };
  const key = (name) => page.keyboard.press(name);
  const use = async (name, direction) => {
    await tabTo(name, direction);
    await key('Enter');
  };
  return { tabTo, key, use, type: (text) => page.keyboard.type(text), drawer: () => (place.isPhone ? use('sidebar-open') : null),
    focused: () => page.evaluate(() => document.activeElement.dataset.testid ?? document.activeElement.id) };
}

async function visit({ at = mock.page, ...options } = {}) {
  const page = await takePage(options), context = page.context();
  await page.goto(at);
  await page.locator(ready).waitFor();
  return {
    context, page, ...keyboardOf(page),
    el: (name) => page.locator(id(name)),
    ask: async (text) => {
      await page.fill(id('composer'), text);
      await page.press(id('composer'), 'Enter');
    },
    done: () => page.locator(id('message-assistant')).last().locator(`${id('regenerate')}, ${id('try-again')}`).waitFor(),
    side: () => side(page),
    bubbles: () => page.locator('.bubble').allTextContents(),
    answers: () => page.locator(id('answer-text')).allTextContents(),
    close: async () => {
      assert.deepEqual(errors, []);
      for (const r of mock.requests) for (const key of Object.values(KEYS)) assert.ok(!r.url.includes(key), 'a key in an address');
      await leavePage(page, options);
    },
  };
}

const sent = () => JSON.parse(mock.chats().at(-1).body);

feature('an edit and another answer are versions: switched with buttons and keys, kept over a reload, seen by other tabs', async () => {
  const v = await visit();
  mock.next({ text: 'one' }, { text: 'two' }, { text: 'to the follow-up' }, { text: 'to the edit' });
  await v.ask('First');
  await v.done();
  await v.el('regenerate').click();
  await v.done();
  assert.deepEqual([await v.answers(), await v.el('versions').textContent()], [['two'], '2/2']);
  await v.ask('Follow-up');
  await v.done();
  await v.tabTo('versionBefore');
  await v.page.keyboard.press('Enter');
  assert.deepEqual([await v.bubbles(), await v.answers(), await v.el('versions').textContent()], [['First'], ['one'], '1/2']);
  assert.equal(await v.page.evaluate(() => document.activeElement.dataset.testid), 'versionNext', 'the button that is left has the focus');
  await v.page.keyboard.press('Enter');
  assert.deepEqual(await v.answers(), ['two', 'to the follow-up']);
  await v.page.keyboard.press('ArrowLeft');
  assert.deepEqual(await v.answers(), ['one']);
  await v.page.keyboard.press('ArrowRight');

  const other = await v.context.newPage();
  await other.goto(mock.origin);
  await side(other);
  await other.locator(id('chat')).first().locator('.chat-open').click();
  await other.locator('.bubble', { hasText: 'Follow-up' }).waitFor();

  await v.el('message-user').last().hover();
  await v.el('edit').last().click();
  await v.page.fill(id('edit-text'), 'Edited');
  await v.el('edit-send').click();
  await v.page.locator(id('answer-text'), { hasText: 'to the edit' }).waitFor();
  await v.done();
  assert.deepEqual(await v.bubbles(), ['First', 'Edited']);
  assert.deepEqual(sent().messages.map((m) => m.content), ['First', 'two', 'Edited']);
  await other.locator('.bubble', { hasText: 'Edited' }).waitFor();
  await other.locator(id('message-user')).last().locator(id('versionBefore')).click();
  await v.page.locator('.bubble', { hasText: 'Follow-up' }).waitFor();
  await v.page.reload();
  await v.done();
  assert.deepEqual([await v.bubbles(), await v.answers()], [['First', 'Follow-up'], ['two', 'to the follow-up']]);
  mock.next({ text: 'to the third' });
  await v.el('message-user').last().hover();
  await v.el('edit').last().click();
  await v.page.fill(id('edit-text'), 'Edited again');
  await v.el('edit-send').click();
  await v.page.locator(id('answer-text'), { hasText: 'to the third' }).waitFor();
  await v.done();
  assert.deepEqual(sent().messages.map((m) => m.content), ['First', 'two', 'Edited again'], 'an older pick does not hide it');
  assert.equal(await v.el('message-user').last().locator('.version-at').textContent(), '3/3');
  await v.close();
});

feature('system prompt, sampling, schema and model are a chat’s own: sent only when set, shown as chips, also as defaults', async () => {
  const v = await visit();
  await v.ask('Plain');
  await v.done();
  assert.deepEqual(Object.keys(sent()).sort(), ['messages', 'model', 'stream', 'stream_options']);
  await v.el('options-open').click();
  await v.el('opt-temperature').fill('3');
  await v.el('options-save').click();
  assert.match(await v.el('options-wrong').textContent(), /from 0 to 2/);
  assert.equal(await v.page.evaluate(() => document.activeElement.id), 'opt-temperature');
  for (const [name, value] of [['temperature', '0.5'], ['top-p', '0.9'], ['max-tokens', '64'], ['seed', '7'], ['stop', 'END\n##'], ['schema', '{"type":"object"}'], ['system', 'Be brief.']]) await v.el(`opt-${name}`).fill(value);
  await v.el('options-save').click();
  assert.deepEqual(await v.el('chips').locator('button').allTextContents(),
    ['System prompt: Be brief.', 'Temperature 0.50', 'Top P 0.90', 'Max tokens 64', 'Seed 7', 'Stop strings: "END" "##"', 'JSON answer']);
  mock.next({ text: '{"n":12345678901234567890,"a":[]}' });
  await v.ask('With options');
  await v.done();
  const { temperature, top_p: topP, max_tokens: most, seed, stop, response_format: format, messages } = sent();
  assert.deepEqual([temperature, topP, most, seed, stop, format.json_schema.schema, messages[0]], [0.5, 0.9, 64, 7, ['END', '##'], { type: 'object' }, { role: 'system', content: 'Be brief.' }]);
  assert.equal(await v.page.locator(id('answer-text')).last().locator('pre').textContent(), '{\n  "n": 12345678901234567890,\n  "a": []\n}');
  assert.equal(await v.page.locator(id('answer-text')).last().locator(id('copy-code')).count(), 1);
  await v.page.selectOption(id('model-select'), 'demo-large');
  await v.page.reload();
  await v.done();
  assert.equal(await v.el('chips').locator('button').count(), 7);
  await v.side();
  await v.el('new-chat').click();
  assert.equal(await v.el('chips').isVisible(), false);
  await v.page.selectOption(id('model-select'), 'demo-small');
  await v.tabTo('options-open');
  await v.page.keyboard.press('Enter');
  await v.page.locator('#opt-system:focus').waitFor();
  for (let i = 0; i < 4; i++) await v.page.keyboard.press('Tab');
  await v.page.keyboard.type('9');
  for (let i = 0; i < 4; i++) await v.page.keyboard.press('Tab');
  await v.page.keyboard.press('Space');
  await v.page.keyboard.press('Enter');
  await v.ask('Other chat');
  await v.done();
  assert.deepEqual([sent().seed, sent().model, sent().temperature], [9, 'demo-small', undefined]);
  await v.side();
  await v.el('new-chat').click();
  assert.deepEqual(await v.el('chips').locator('button').allTextContents(), ['Seed 9'], 'a default');
  await v.side();
  await v.el('chat').nth(1).locator('.chat-open').click();
  assert.equal(await v.page.locator(id('model-select')).inputValue(), 'demo-large');
  await v.close();
}, IN_TURN);

feature('drafts, Continue, text files, and the model that answered', async () => {
  const v = await visit();
  mock.next({ text: 'The first half', finish: 'length', reasoning: 'hm',
    sluice: { cascade: { parts: [{ model: 'small', tokens: 0 }, { model: 'demo-large', tokens: 9 }] } } });
  await v.page.selectOption(id('model-select'), 'demo-small');
  await v.ask('Go');
  await v.done();
  assert.equal(await v.el('stat-model').textContent(), 'demo-small → demo-large');
  assert.equal(await v.page.locator('.thinking').evaluate((e) => e.open), false, 'thoughts are folded');
  mock.next({ status: 400, message: 'cannot go on' }, { text: ' and the second.' });
  await v.el('continue').click();
  await v.el('try-again').click(); // goes on, and does not begin anew
  await v.page.locator(id('answer-text'), { hasText: 'second' }).waitFor();
  await v.done();
  assert.deepEqual(await v.answers(), ['The first half and the second.']);
  assert.deepEqual([sent().continue_final_message, sent().messages.at(-1)], [true, { role: 'assistant', content: 'The first half' }]);

  await v.page.fill(id('composer'), 'half a thought');
  await v.side();
  await v.el('new-chat').click();
  assert.equal(await v.page.inputValue(id('composer')), '');
  await v.page.fill(id('composer'), 'into none yet');
  await v.page.reload();
  await v.page.locator(ready).waitFor();
  assert.equal(await v.page.inputValue(id('composer')), 'into none yet');
  await v.side();
  await v.el('chat').first().locator('.chat-open').click();
  assert.equal(await v.page.inputValue(id('composer')), 'half a thought');
  assert.deepEqual(await v.answers(), ['The first half and the second.'], 'joined after a reload, too');

  const put = (files) => v.page.setInputFiles(id('file-input'), files);
  await put([{ name: 'a.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([0xff, 0xfe, 0]) }]);
  await v.page.locator('#notice', { hasText: 'a.bin is not a text file' }).waitFor();
  await put([{ name: 'big.txt', mimeType: 'text/plain', buffer: Buffer.alloc(300_000, 97) }]);
  await v.page.locator('#notice', { hasText: 'big.txt is too large' }).waitFor();
  await put([{ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('river notes') }]);
  await v.el('file-chip').waitFor();
  await v.page.evaluate(() => { // at once: neither may undo the other
    for (const [type, at, name] of [['paste', '#composer', 'pasted.md'], ['drop', '#main', 'dropped.c']]) {
      const data = new DataTransfer();
      data.items.add(new File([`text of ${name}`], name, { type: 'text/plain' }));
      const init = { bubbles: true, cancelable: true };
      const event = type === 'paste' ? new ClipboardEvent('paste', init) : new DragEvent('drop', { ...init, dataTransfer: data });
      if (type === 'paste') Object.defineProperty(event, 'clipboardData', { value: data }); // Firefox takes no files for it
      document.querySelector(at).dispatchEvent(event);
    }
  });
  await v.el('file-chip').nth(2).waitFor();
  assert.ok(await v.page.evaluate(() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['x'], 'x.txt'));
    return !document.querySelector('#sidebar').dispatchEvent(new DragEvent('dragover', { bubbles: true, cancelable: true, dataTransfer }));
  }), 'a file dropped beside the chat does not replace the page');
  await v.el('file-chip').filter({ hasText: 'pasted.md' }).locator(id('file-remove')).click(); // the two came in either order
  await v.ask('Read them');
  await v.done();
  assert.deepEqual(sent().messages.at(-1).content.map((p) => p.text), ['File: notes.txt\n\nriver notes', 'File: dropped.c\n\ntext of dropped.c', 'Read them']);
  assert.equal(await v.el('file-chip').count(), 0);
  assert.deepEqual(await v.el('message-file').locator('summary').allTextContents(), ['notes.txt', 'dropped.c']);
  await v.close();
}, IN_TURN);

feature('500 chats: found by title and text, drawn a few at a time, exported and imported to the byte', async () => {
  const chats = Array.from({ length: 500 }, (_, i) => ({ id: `abc${i.toString(16).padStart(5, '0')}`, title: `Chat number ${i}`, titled: i % 2, created: 1000 + i, updated: 1_600_000_000_000 + i,
    messages: [{ id: 'aq', at: 1, parent: '', role: 'user', text: `question ${i}` },
      { id: 'ar', at: 1, parent: 'aq', role: 'assistant', text: i === 77 ? 'the Needle in it' : 'water '.repeat(300), model: 'm', end: 'stop' },
      { id: 'as', at: 2, parent: 'aq', alt: true, role: 'assistant', text: 'another', model: 'm', end: 'stop' }] }));
  const file = (text) => ({ name: 'chats.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  const given = JSON.stringify({ format: 'sluice-chats', version: 1, chats: [...chats, { id: '../x', messages: [] }, 7] });
  const v = await visit();
  await v.page.setInputFiles(id('import-input'), file('{"format":"other"}'));
  await v.page.locator('#notice', { hasText: 'no exported chats' }).waitFor();
  await v.page.setInputFiles(id('import-input'), file(given));
  await v.page.locator('#notice', { hasText: 'Imported: 500. Left out: 2' }).waitFor();
  await v.side();
  assert.equal(await v.el('chat').count(), 50, 'few are drawn');
  // Not clicked with the pointer: bringing the button into view draws more, and with them the button anew.
  await v.el('more-chats').dispatchEvent('click');
  const more = await v.el('chat').count();
  assert.ok(more > 50 && more <= 250, `${more}`);

  await v.page.fill(id('search'), 'number 499');
  await v.page.locator('#group-found', { hasText: 'Found: 1' }).waitFor();
  assert.deepEqual(await v.page.locator('.chat-title').allTextContents(), ['Chat number 499']);
  await v.page.fill(id('search'), 'needle');
  await v.page.locator(id('snippet'), { hasText: 'the needle in it' }).or(v.page.locator(id('snippet'), { hasText: 'the Needle in it' })).waitFor();
  await v.page.press(id('search'), 'Enter');
  await v.page.locator(id('answer-text'), { hasText: 'Needle' }).waitFor();
  assert.equal(await v.el('versions').textContent(), '1/2', 'the version that has it is shown');
  await v.side();
  await v.page.locator(id('search')).press('Escape');
  assert.equal(await v.el('chat').count() >= 50, true);

  const all = await saved(v.page, () => v.el('export-all').click());
  const w = await visit();
  await w.page.setInputFiles(id('import-input'), file(all));
  await w.page.locator('#notice', { hasText: 'Imported: 500.' }).waitFor();
  await w.side();
  assert.equal(await saved(w.page, () => w.el('export-all').click()), all);
  await w.el('chat').first().hover();
  const one = JSON.parse(await saved(w.page, () => w.el('export').first().click()));
  assert.deepEqual(one.chats.map((c) => c.title), ['Chat number 499']);
  await w.close();
  await v.close();
}, IN_TURN);

feature('keys are named, chosen, removed and added; the address holds none', async () => {
  const v = await visit();
  const manage = () => v.page.selectOption(id('key-select'), { label: 'Manage keys…' });
  await manage();
  assert.equal(await v.el('key-name').count(), 2);
  await v.el('key-name').nth(1).fill('work');
  await v.el('key-name').nth(1).press('Tab');
  await v.page.locator('[data-name="work"]').waitFor();
  await v.el('key-used').nth(1).check();
  await v.page.locator(ready).waitFor();
  await v.el('key-name').nth(0).fill('not a name!');
  await v.el('key-name').nth(0).press('Tab');
  await v.page.locator('#keys-wrong', { hasText: '1 to 32' }).waitFor();
  await v.el('key-remove').nth(0).click();
  assert.equal(await v.el('key-name').count(), 1);
  await v.el('keys-close').click();
  await v.ask('Hello');
  await v.done();
  assert.equal(mock.chats().at(-1).headers.authorization, `Bearer ${KEYS.paid}`);
  await manage();
  await v.el('keys-add').click();
  await v.el('key-input').fill(KEYS.free);
  await v.page.keyboard.press('Enter');
  await v.page.waitForFunction(() => !document.querySelector('#key-dialog').open);
  assert.equal(await v.page.locator(`${id('key-select')} option`).count(), 4);
  assert.equal(await v.page.evaluate(() => location.href), `${mock.origin}/`);
  await v.close();
}, IN_TURN);

feature('a chat kept on the server is there in another browser, and what either adds comes to both', async () => {
  const v = await visit();
  mock.next({ text: 'answer one' }, { text: 'answer two' }, { text: 'answer three' }, { text: 'answer four' });
  await v.ask('Keep this');
  await v.done();
  assert.equal(mock.conversations.size, 0, 'only for who wants it');
  await v.el('options-open').click();
  await v.el('opt-server').check();
  await v.el('options-save').click();
  await v.el('chip-server').waitFor();
  const held = () => [...mock.conversations.values()][0]?.items.map((i) => i.content.at(-1).text);
  assert.ok(await until(() => held()?.length === 2));
  const w = await visit();
  await w.side();
  await w.el('server-open').click();
  await w.el('server-chat').click();
  await w.page.locator(id('answer-text'), { hasText: 'answer one' }).waitFor();
  await w.ask('And this');
  await w.done();
  assert.ok(await until(() => held().length === 4));
  await v.page.reload();
  await v.page.locator(id('answer-text'), { hasText: 'answer two' }).waitFor();
  await v.ask('From the first');
  await v.done();
  assert.ok(await until(() => held().length === 6));
  await w.ask('From the second, which has not seen that');
  await w.done();
  assert.ok(await until(() => held().at(-1) === 'answer four'));
  assert.deepEqual(held(), ['Keep this', 'answer one', 'And this', 'answer two', 'From the second, which has not seen that', 'answer four']);
  await w.el('versions').waitFor();
  assert.equal(await w.el('versions').textContent(), '1/2', 'nothing is lost: it is a version here');
  mock.conversationStatus = { status: 400, code: 'too_many_conversations' };
  await w.side();
  await w.el('server-open').click();
  await w.page.locator('#server-status', { hasText: 'no room for more' }).waitFor();
  await w.page.keyboard.press('Escape');
  mock.conversationStatus = null;
  await w.side();
  await w.el('chat').first().hover();
  await w.el('remove').first().click();
  assert.match(await w.page.locator('#remove-text').textContent(), /and from the server/);
  await w.el('remove-yes').click();
  assert.ok(await until(() => mock.conversations.size === 0));
  await w.close();
  await v.close();
}, IN_TURN);

feature('a model that loads is waited for with its percent; without a key a first answer needs no click but Send', async () => {
  mock.anonymous = true;
  mock.modelsStatus = 503;
  mock.health = { models: [{ id: 'a', percent: 54.6 }, { id: 'b', percent: 100 }, { id: 'c' }] };
  const v = { page: await (await contextOf({})).newPage() };
  await v.page.goto(mock.origin);
  await v.page.locator('#notice', { hasText: 'Loading 54 %' }).waitFor();
  delete mock.modelsStatus;
  await v.page.locator(ready).waitFor();
  mock.next({ status: 503, retryAfter: 1 });
  await v.page.locator(id('composer')).pressSequentially('Hello');
  await v.page.click(id('send'));
  await v.page.locator(id('waiting'), { hasText: 'Loading 54 %' }).waitFor();
  await v.page.locator(id('regenerate')).waitFor();
  mock.anonymous = false;
  delete mock.health;
  await side(v.page);
  await v.page.click(id('language')); // errors are in the page's language
  await v.page.click(id('server-open'));
  await v.page.locator('#server-status', { hasText: '서버 대화 보관: 대화 목록을 볼 수 있는 키가 필요합니다.' }).waitFor();
  await v.page.keyboard.press('Escape');
  if (place.isPhone) await v.page.keyboard.press('Escape'); // the drawer
  await v.page.click(id('options-open'));
  await v.page.fill(id('opt-top-p'), '2');
  await v.page.click(id('options-save'));
  await v.page.locator(id('options-wrong'), { hasText: '상위 P는 0보다 크고 1 이하인 숫자입니다.' }).waitFor();
  mock.anonymous = true;
  mock.modelsStatus = 403;
  await v.page.reload();
  await v.page.locator('#notice', { hasText: '이 키로는 할 수 없는 작업입니다. starting' }).waitFor();
  mock.anonymous = false;
  delete mock.modelsStatus;
  await v.page.context().close();
}, IN_TURN);

feature('every feature is reached and used with the keyboard alone', async () => {
  const v = await visit();
  const { key, type, use, drawer, focused } = v;
  mock.next({ text: 'one', reasoning: 'hm', calls: [['f', '{}']] }, { text: 'two' }, { text: 'to the edit: $x^2$\n\n```c\nint x;\n```', finish: 'length' }, { text: ' and on' });
  await type('River question');
  await key('Enter');
  await v.done();
  for (const [kind, direction] of [['thinking', 'Shift+Tab'], ['calling', 'Tab']]) { // folded, and opened
    await v.page.locator(`.${kind}:not([open]) > summary`).evaluate((el, name) => { el.dataset.testid = name; }, kind);
    await use(kind, direction);
    await v.page.locator(`.${kind}[open]`).waitFor();
  }
  await use('regenerate', 'Tab');
  await v.done();
  await use('versionBefore');
  assert.deepEqual(await v.answers(), ['one']);
  await key('ArrowRight');
  assert.deepEqual(await v.answers(), ['two']);
  await v.tabTo('composer', 'Tab');
  await key('ArrowUp');
  assert.equal(await focused(), 'edit-text');
  await type(' edited');
  await key('Enter');
  await v.page.locator(id('answer-text'), { hasText: 'to the edit' }).locator('math').waitFor();
  await v.done();
  assert.deepEqual(await v.bubbles(), ['River question edited']);
  await use('copy-code');
  await v.el('copy-code').filter({ hasText: /Copied|Could not copy/ }).waitFor(); // a browser may refuse the clipboard
  await use('continue', 'Tab');
  await v.page.locator(id('answer-text'), { hasText: 'and on' }).waitFor();
  await v.done();

  await use('options-open');
  await v.tabTo('opt-seed', 'Tab');
  await type('7');
  await key('Enter');
  await v.el('chip-seed').waitFor();
  await v.page.evaluate(() => { window.asked = []; for (const i of ['file-input', 'import-input']) document.getElementById(i).addEventListener('click', (e) => { window.asked.push(i); e.preventDefault(); }); });
  await use('attach', 'Tab');
  assert.deepEqual(await v.page.evaluate(() => window.asked), ['file-input']);
  await v.page.setInputFiles(id('file-input'), { name: 'n.txt', mimeType: 'text/plain', buffer: Buffer.from('n') });
  await use('file-remove');
  assert.equal(await v.el('file-chip').count(), 0);
  await v.tabTo('model-select');
  const model = await v.page.inputValue(id('model-select'));
  await key(model === 'demo-small' ? 'ArrowDown' : 'ArrowUp');
  assert.notEqual(await v.page.inputValue(id('model-select')), model);
  await v.tabTo('key-select', 'Tab');
  await type('Manage');
  await key('Enter'); // where the choice is open
  await v.el('keys-dialog').locator('[open]').or(v.page.locator('#keys-dialog[open]')).waitFor();
  await v.tabTo('key-name', 'Tab');
  await key('Escape');
  await v.page.locator('#keys-dialog:not([open])').waitFor({ state: 'attached' });

  await drawer();
  await use('rename', place.isPhone ? 'Tab' : 'Shift+Tab'); // not by way of Firefox's own controls
  await key('ControlOrMeta+a');
  await type('By keys');
  await key('Enter');
  await v.page.locator('.chat-title', { hasText: 'By keys' }).waitFor();
  const text = await saved(v.page, () => use('export', 'Tab'));
  assert.equal(JSON.parse(text).chats[0].title, 'By keys');
  await use('import', 'Tab');
  assert.deepEqual(await v.page.evaluate(() => window.asked), ['file-input', 'import-input']);
  await use('server-open', 'Tab');
  await v.page.locator('#server-status', { hasText: 'No chats are kept' }).waitFor();
  await key('Escape');
  await use('theme', 'Tab');
  await use('language', 'Tab');
  await v.page.locator('html[lang="ko"]').waitFor();
  await key('Enter');
  await v.page.locator('html[lang="en"]').waitFor();
  await v.tabTo('search');
  await type('EDITED');
  await v.el('snippet').waitFor();
  await key('ArrowDown');
  await key('Enter');
  assert.deepEqual(await v.bubbles(), ['River question edited']);
  await drawer();
  await v.tabTo('search', place.isPhone ? 'Tab' : 'Shift+Tab');
  await key('Escape');
  await use('remove', 'Tab');
  await use('remove-yes', 'Tab');
  await v.page.waitForFunction(() => document.querySelectorAll('[data-testid="chat"]').length === 0);
  assert.equal(await focused(), 'new-chat');
  await v.close();
});

feature('refusals, a lost answer and keys are dealt with by the keyboard alone', async () => {
  const v = await visit();
  const { key, type, use, tabTo, focused } = v;
  const ask = async (text) => {
    await tabTo('composer', 'Tab');
    await type(text);
    await key('Enter');
  };
  for (const [refusal, says] of [[{ status: 429, retryAfter: 1, message: 'requests per minute' }, 'requests per minute'],
    [{ status: 404, message: 'no such model' }, 'no such model'], [{ errorAfter: 5 }, 'device stopped']]) {
    mock.next(refusal, { text: `After: ${says}` });
    await ask('Once more');
    await v.page.locator(id('error'), { hasText: says }).waitFor();
    await v.page.locator(`${id('try-again')}:enabled`).waitFor();
    await use('try-again');
    await v.page.locator(id('answer-text'), { hasText: `After: ${says}` }).waitFor();
    await v.done();
    assert.equal(await v.el('error').count(), 0);
  }
  mock.next({ status: 400, code: 'context_length_exceeded', message: 'This model takes 2048 tokens.' }, { text: 'Fits.' });
  await ask('Too long');
  await v.page.locator(id('unsent')).waitFor();
  await use('edit-unsent');
  assert.equal(await focused(), 'edit-text');
  await key('ControlOrMeta+a');
  await type('Shortened');
  await key('Enter');
  await v.page.locator(id('answer-text'), { hasText: 'Fits.' }).waitFor();
  await v.done();
  assert.equal(sent().messages.at(-1).content, 'Shortened');

  mock.keys = [KEYS.paid]; // the one in use is taken back
  try {
    await ask('And now?');
    await v.page.locator('#key-wrong', { hasText: 'no longer accepted' }).waitFor();
    await tabTo('key-input', 'Tab');
    await type('sk-neither');
    await key('Enter');
    await v.page.locator('#key-wrong', { hasText: 'does not accept this key' }).waitFor();
    await key('ControlOrMeta+a');
    await type(KEYS.paid);
    await key('Enter');
    await v.page.locator('#key-dialog:not([open])').waitFor({ state: 'attached' });
    await use('try-again');
    await v.done();
    assert.equal(await v.el('error').count(), 0);
  } finally {
    mock.keys = Object.values(KEYS);
  }
  await tabTo('key-select');
  await type('Manage');
  await key('Enter');
  await v.page.locator('#keys-dialog[open]').waitFor();
  await use('keys-add', 'Tab');
  await tabTo('key-input', 'Tab');
  await type(KEYS.free);
  await key('Enter');
  await v.page.locator('#key-dialog:not([open])').waitFor({ state: 'attached' });
  await ask('With the new one');
  await v.done();
  assert.equal(mock.chats().at(-1).headers.authorization, `Bearer ${KEYS.free}`);
  await v.close();
}, IN_TURN);

feature('two tabs of one chat are used by the keyboard alone: read along, stopped, edited and deleted from either', async () => {
  const v = await visit();
  await v.type('First');
  await v.key('Enter');
  await v.done();
  const page = await v.context.newPage();
  await page.goto(mock.origin);
  await page.locator(ready).waitFor();
  const w = { page, ...keyboardOf(page) };
  const both = async (n) => {
    for (const tab of [v, w]) {
      await tab.page.waitForFunction((many) => document.querySelectorAll('[data-testid="message-user"]').length === many
        && !document.querySelector('.live, [data-testid="elsewhere"]'), n);
    }
  };
  await w.drawer();
  await w.tabTo('search', place.isPhone ? 'Tab' : 'Shift+Tab');
  await w.type('First');
  await w.page.locator(id('chat')).waitFor();
  await w.key('ArrowDown');
  await w.key('Enter');
  await both(1);

  mock.next({ text: 'river '.repeat(2000), everyMs: 5 });
  await v.page.bringToFront();
  await v.tabTo('composer', 'Tab');
  await v.type('A long one');
  await v.key('Enter');
  await w.page.bringToFront();
  await w.page.waitForFunction(() => document.querySelector('.live [data-testid="answer-text"]')?.textContent.length > 20);
  await w.use('stop', 'Tab');
  await both(2);
  for (const tab of [v, w]) await tab.page.locator(id('end'), { hasText: 'Stopped' }).waitFor();

  mock.next({ text: 'to the edit' });
  await w.tabTo('composer', 'Tab');
  await w.key('ArrowUp');
  await w.key('ControlOrMeta+a');
  await w.type('A short one');
  await w.key('Enter');
  for (const tab of [v, w]) await tab.page.locator(id('answer-text'), { hasText: 'to the edit' }).waitFor();
  await both(2);
  await v.page.bringToFront();
  await v.use('versionBefore');
  await v.page.locator('.bubble', { hasText: 'A long one' }).waitFor();

  await w.page.bringToFront();
  await w.drawer();
  await w.tabTo('search', place.isPhone ? 'Tab' : 'Shift+Tab');
  await w.key('Escape');
  await w.use('remove', 'Tab');
  await w.use('remove-yes', 'Tab');
  await w.page.locator('.no-chats').waitFor({ state: 'attached' });
  await v.page.locator('#notice', { hasText: 'deleted in another tab' }).waitFor();
  assert.equal(await v.page.locator('.bubble').count(), 0);
  await v.close();
}, IN_TURN);

feature('a reader who scrolls up a little is not taken back by what comes', async () => {
  const v = await visit();
  const hold = { at: 1600 };
  mock.next({ text: 'A line of text.\n\n'.repeat(600), everyMs: 2, hold });
  await v.ask('go');
  await v.page.waitForFunction(() => document.querySelector('#scroll').scrollTop > 200);
  await v.page.hover('#scroll');
  const latest = v.page.locator('#latest');
  assert.ok(await until(async () => { // a busy browser may drop a turn of the wheel
    await v.page.mouse.wheel(0, -40);
    return latest.waitFor({ timeout: 1000 }).then(() => true, () => false);
  }, 60_000));
  const before = await v.page.evaluate(() => document.querySelector('#scroll').scrollTop);
  hold.at += 200; // what comes now takes the reader nowhere
  await v.page.waitForFunction((height) => document.querySelector('#scroll').scrollHeight > height, await v.page.evaluate(() => document.querySelector('#scroll').scrollHeight));
  assert.ok(await v.page.evaluate(() => document.querySelector('#scroll').scrollTop) <= before);
  hold.everyMs = 0; // however slow the machine's timers are
  hold.at = Infinity;
  await v.page.locator('#latest').click();
  await v.done();
  assert.ok(await until(() => v.page.evaluate(() => { const s = document.querySelector('#scroll'); return s.scrollHeight - s.scrollTop - s.clientHeight < 80; }), 30_000));
  await v.close();
}, DESKTOP);

feature('words without an end fit a phone', async () => {
  const long = 'Donaudampfschifffahrt'.repeat(9);
  mock.models = [long];
  const v = await visit();
  const fits = async (state) => assert.deepEqual(await v.page.evaluate(() => {
    const scrolls = (el) => el !== null && el.id !== 'scroll' && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(el).overflowX) || scrolls(el.parentElement));
    return [...document.querySelectorAll('body *')].filter((el) => el.checkVisibility() && !el.closest('.hidden, svg, option') && el.getBoundingClientRect().right > innerWidth + 1 && !scrolls(el.parentElement))
      .map((el) => `${el.localName}.${el.className}`).concat(document.scrollingElement.scrollWidth > innerWidth ? ['the page'] : [],
        [...document.querySelectorAll('#scroll, #history, dialog[open]')].filter((el) => el.scrollWidth > el.clientWidth + 1).map((el) => `${el.id} scrolls`));
  }), [], state);
  mock.next({ text: `${long} **${long}** \`${long}\` [${long}](https://e.org/${long})\n\n- ${long}\n\n> ${long}\n\n# ${long}`, reasoning: long, calls: [[long, '{}']] }, { status: 400, message: long });
  await v.page.setInputFiles(id('file-input'), { name: `${long.slice(0, 100)}.txt`, mimeType: 'text/plain', buffer: Buffer.from(long) });
  await v.el('file-chip').waitFor();
  await fits('a file');
  await v.ask(long);
  await v.done();
  await v.page.evaluate(() => { for (const d of document.querySelectorAll('details')) d.open = true; });
  await fits('an answer');
  await v.ask(long);
  await v.done();
  await fits('an error');
  await v.page.setInputFiles(id('file-input'), { name: `${long.slice(0, 100)}.bin`, mimeType: 'text/plain', buffer: Buffer.from([0]) });
  await v.page.locator('#notice', { hasText: 'is not a text file' }).waitFor();
  await fits('a notice');
  await v.side();
  await v.page.fill(id('search'), long.slice(3));
  await v.el('snippet').waitFor();
  await fits('the list');
  await v.el('remove').first().click();
  await fits('a dialog');
  mock.models = ['demo-small', 'demo-large'];
  await v.close();
}, PLACES.filter((p) => p.isPhone));

feature('where the browser keeps nothing, the page says so and goes on', async () => {
  const context = await contextOf({});
  await context.addInitScript(() => { Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('refused', 'SecurityError'); } }); });
  const page = await context.newPage();
  await page.goto(mock.page);
  await page.locator(ready).waitFor();
  for (const n of [1, 2]) {
    await page.fill(id('composer'), `Question ${n}`);
    await page.press(id('composer'), 'Enter');
    await page.locator('#notice', { hasText: 'storage is full or off' }).waitFor();
    await page.locator(id('message-assistant')).nth(n - 1).locator(id('regenerate')).waitFor();
  }
  await side(page);
  assert.equal(await page.locator(id('chat')).count(), 1);
  await context.close();
}, ANY_DESKTOP);

/** How many characters of messages localStorage has. */
const hotChars = (page) => page.evaluate(() => Object.entries(localStorage).reduce((n, [k, v]) => n + (/\.m\./.test(k) ? k.length + v.length : 0), 0));

/** The records in IndexedDB. */
const archived = (page) => page.evaluate(() => new Promise((resolve, reject) => {
  const request = indexedDB.open('sluice', 1);
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const all = request.result.transaction('messages').objectStore('messages').getAllKeys();
    all.onsuccess = () => { request.result.close(); resolve(all.result.map(([chat, message]) => `${chat}/${message}`)); };
  };
}));

feature('a history too long for localStorage goes on in IndexedDB: opened, found, continued, seen by other tabs, deleted', async () => {
  const v = await visit();
  await v.page.evaluate(() => { // as an earlier version of the page has left it
    for (let i = 0; i < 60; i++) {
      const set = (name, value) => localStorage.setItem(`sluice.v1.chat.abc${String(i).padStart(3, '0')}${name}`, JSON.stringify(value));
      const message = (mid, parent, role, text) => set(`.m.${mid}`, { id: mid, at: 1000 + i, parent, role, text, ...(role === 'assistant' && { model: 'm', end: 'stop' }) });
      message('q', '', 'user', `question ${i}`);
      message('r', 'q', 'assistant', `${i === 0 ? 'the needle, ' : ''}answer ${i} ${'water '.repeat(10_000)}`);
      set('.title', { title: `Chat number ${i}`, at: 0 });
      set('', { v: 2, created: 1000 + i, updated: 1000 + i, size: 60_300 });
    }
  });
  assert.ok(await hotChars(v.page) > 3_500_000);
  await v.page.reload();
  await v.page.locator(ready).waitFor();
  await v.page.waitForFunction(() => Object.entries(localStorage).reduce((n, [k, t]) => n + (k.includes('.m.') ? t.length : 0), 0) <= 1_100_000);
  assert.ok((await archived(v.page)).length >= 80, 'the messages of most');

  await v.side();
  await v.page.fill(id('search'), 'needle');
  await v.el('snippet').waitFor();
  await v.page.press(id('search'), 'Enter');
  await v.page.locator(id('answer-text'), { hasText: 'answer 0' }).waitFor();
  await v.ask('And then?');
  await v.done();
  assert.deepEqual(sent().messages.map((m) => m.content.slice(0, 12)), ['question 0', 'the needle, ', 'And then?']);
  await v.page.reload();
  await v.page.locator(id('message-assistant')).nth(1).waitFor();
  assert.deepEqual(await v.bubbles(), ['question 0', 'And then?']);

  const other = await v.context.newPage();
  await other.goto(mock.page);
  await other.locator(ready).waitFor();
  await side(other);
  await other.locator('.chat-open', { hasText: 'Chat number 0' }).click();
  await other.locator(id('message-assistant')).nth(1).waitFor();
  await other.fill(id('composer'), 'From the other tab');
  await other.press(id('composer'), 'Enter');
  await v.page.locator(id('message-assistant')).nth(2).locator(id('regenerate')).waitFor();
  assert.deepEqual(await v.bubbles(), ['question 0', 'And then?', 'From the other tab']);
  await v.side();
  const all = JSON.parse(await saved(v.page, () => v.el('export-all').click()));
  assert.deepEqual([all.chats.length, all.chats.every((c) => c.messages.length === (c.id === 'abc000' ? 6 : 2) && c.messages[1].text.length > 60_000)], [60, true]);

  await side(other);
  await other.locator(id('chat')).first().hover();
  await other.locator(id('remove')).first().click();
  await other.locator(id('remove-yes')).click();
  await v.page.locator('#notice', { hasText: 'deleted in another tab' }).waitFor();
  assert.ok(await until(async () => !(await archived(v.page)).some((k) => k.startsWith('abc000')), 30_000), 'gone from the archive, too');
  await v.page.reload();
  await v.page.locator(ready).waitFor();
  await v.side();
  await v.page.fill(id('search'), 'needle');
  await v.page.locator('.no-chats').waitFor();
  await v.close();
}, KEPT(false));

feature('what IndexedDB has is found, opened, continued, changed, kept on the server, exported and deleted with the keyboard alone', async () => {
  const v = await visit({ alone: true });
  const { key, type, use, drawer, focused, tabTo } = v;
  const chats = Array.from({ length: 60 }, (_, i) => ({ id: `abcd${i.toString(16).padStart(4, '0')}`, title: `Chat number ${i}`, titled: 1, created: 1 + i, updated: 1000 + i, messages: [
    { id: 'a1', at: 1, parent: '', role: 'user', text: `question ${i}` }, { id: 'a2', at: 1, parent: 'a1', role: 'assistant', text: `${i === 0 ? 'needle, ' : ''}answer ${i}`, model: 'm', end: 'stop' },
    { id: 'a3', at: 2, parent: 'a1', alt: true, role: 'assistant', text: 'another', model: 'm', end: 'stop' }] }));
  const buffer = Buffer.from(JSON.stringify({ format: 'sluice-chats', version: 1, chats }));
  await v.page.setInputFiles(id('import-input'), { name: 'c.json', mimeType: 'application/json', buffer }); // that keys open its dialog: above
  await v.page.locator('#notice', { hasText: 'Imported: 60.' }).waitFor();
  assert.equal((await archived(v.page)).length, 180, 'an import goes there');

  await drawer();
  assert.equal(await v.el('chat').count(), 50);
  await tabTo('export-all', place.isPhone ? 'Tab' : 'Shift+Tab', 300);
  await key('Shift+Tab'); // to the button that draws more, which it does by itself where it comes into view
  await v.page.waitForFunction(() => [...document.querySelectorAll('[data-testid="chat"]')].indexOf(document.activeElement.closest('[data-id]')) >= 50);
  await tabTo('search', 'Shift+Tab', 300);
  await type('needle');
  await v.el('snippet').waitFor();
  await key('ArrowDown');
  await key('Enter');
  await v.page.locator(id('answer-text'), { hasText: 'needle, answer 0' }).waitFor();
  assert.deepEqual([await v.bubbles(), await v.el('versions').textContent()], [['question 0'], '1/2'], 'the version that has it');
  await use('versionNext');
  assert.deepEqual(await v.answers(), ['another']);
  await key('ArrowLeft');
  assert.deepEqual(await v.answers(), ['needle, answer 0']);

  mock.next({ text: 'and then' }, { text: 'to the edit' });
  await tabTo('composer', 'Tab');
  await type('And then?');
  await key('Enter');
  await v.page.locator(id('answer-text'), { hasText: 'and then' }).waitFor();
  await v.done();
  assert.deepEqual(sent().messages.map((m) => m.content), ['question 0', 'needle, answer 0', 'And then?']);
  await tabTo('composer', 'Tab');
  await key('ArrowUp');
  await type(' Edited');
  await key('Enter');
  await v.page.locator(id('answer-text'), { hasText: 'to the edit' }).waitFor();
  await v.done();
  assert.deepEqual(sent().messages.at(-1).content, 'And then? Edited');
  await use('options-open');
  await tabTo('opt-server', 'Tab');
  await key('Space');
  await key('Enter');
  await v.el('chip-server').waitFor();
  assert.ok(await until(() => mock.conversations.size === 1, 30_000));

  await drawer();
  await tabTo('search', place.isPhone ? 'Tab' : 'Shift+Tab');
  await key('Escape'); // all chats again, of which this one is the newest
  await use('rename', 'Tab');
  await key('ControlOrMeta+a');
  await type('By keys');
  await key('Enter');
  await v.page.locator('.chat-title', { hasText: 'By keys' }).waitFor();
  await tabTo('search');
  await type('By keys');
  await v.page.locator('#group-found', { hasText: 'Found: 1' }).waitFor();
  const all = JSON.parse(await saved(v.page, () => use('export-all', 'Tab')));
  const mine = all.chats.find((c) => c.id === 'abcd0000');
  assert.deepEqual([all.chats.length, mine.title, mine.messages.length, all.chats.every((c) => c.messages.length >= 3)], [60, 'By keys', 7, true]);
  await use('remove');
  await use('remove-yes', 'Tab');
  await v.page.locator('.no-chats').waitFor();
  assert.ok(await until(async () => !(await archived(v.page)).some((k) => k.startsWith('abcd0000')), 30_000), 'gone from the archive, too');
  await v.close();
}, IN_TURN);

feature('where IndexedDB is refused, localStorage keeps what it can; what is dropped to make room is said', async () => {
  const v = await visit({ first: refuseArchive });
  await v.ask('First');
  await v.done();
  await v.page.reload();
  await v.page.locator(id('regenerate')).waitFor();
  assert.deepEqual(await v.bubbles(), ['First']);
  const chats = Array.from({ length: 999 }, (_, i) => ({ id: `abc${i.toString(16).padStart(5, '0')}`, title: `Chat ${i}`, created: i, updated: i, messages: [{ id: 'aq', at: i, role: 'user', text: 'x' }] }));
  await v.page.setInputFiles(id('import-input'), { name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify({ format: 'sluice-chats', version: 1, chats })) });
  await v.page.locator('#notice', { hasText: 'Imported: 999.' }).waitFor();
  await v.side();
  await v.el('new-chat').click();
  await v.ask('One more');
  await v.page.locator('#notice', { hasText: 'removed from this browser to make room: 1.' }).waitFor();
  await v.done();
  await v.close();
}, ANY_DESKTOP);

feature('messages that IndexedDB has and does not give are missed, not lost', async () => {
  const v = await visit({ alone: true });
  const text = 'water '.repeat(100);
  const chats = [{ id: 'abcd', title: 'Kept', created: 1, updated: 2, messages: [{ id: 'a1', at: 1, parent: '', role: 'user', text: 'question' }, { id: 'a2', at: 1, parent: 'a1', role: 'assistant', text, model: 'm', end: 'stop' }] }];
  await v.page.setInputFiles(id('import-input'), { name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify({ format: 'sluice-chats', version: 1, chats })) });
  await v.page.locator('#notice', { hasText: 'Imported: 1.' }).waitFor();
  assert.deepEqual(await archived(v.page), ['abcd/a1', 'abcd/a2'], 'an import goes there');
  const other = await v.context.newPage();
  await other.addInitScript(refuseArchive);
  await other.goto(mock.page);
  await other.locator(ready).waitFor();
  await side(other);
  await other.locator('.chat-open', { hasText: 'Kept' }).click();
  await other.locator('#notice', { hasText: 'does not give them at the moment' }).waitFor();
  await other.close();
  await v.side();
  await v.page.locator('.chat-open', { hasText: 'Kept' }).click();
  await v.page.locator(id('answer-text'), { hasText: 'water' }).waitFor();
  assert.deepEqual(await v.bubbles(), ['question']);
  await v.close();
}, ANY_DESKTOP);

feature('a chat that is still being read is not shown once another one was opened', async () => {
  const v = await visit({ alone: true });
  const chats = ['Kept', 'Also kept'].map((title, i) => ({ id: `abcd${i}`, title, created: 1, updated: 2 + i, messages: [{ id: 'a1', at: 1, parent: '', role: 'user', text: title }] }));
  await v.page.setInputFiles(id('import-input'), { name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify({ format: 'sluice-chats', version: 1, chats })) });
  await v.page.locator('#notice', { hasText: 'Imported: 2.' }).waitFor();
  const slow = await v.context.newPage();
  await slow.addInitScript(() => { // IndexedDB answers once release() is called
    const { open } = IDBFactory.prototype;
    IDBFactory.prototype.open = function late(...args) {
      const request = {};
      window.release = () => {
        const real = open.apply(this, args);
        real.onsuccess = () => { request.result = real.result; request.onsuccess(); };
      };
      return request;
    };
  });
  await slow.goto(mock.page);
  await slow.locator(ready).waitFor();
  await side(slow);
  const click = (title) => slow.locator('.chat-open').getByText(title, { exact: true }).click();
  await slow.bringToFront();
  await click('Kept');
  await slow.locator('#notice', { hasText: 'Reading the chat' }).waitFor().catch(async (e) => {
    assert.fail(`${e.message}\n${JSON.stringify(await slow.evaluate(() => [typeof window.release, document.hidden,
      document.getElementById('notice').textContent, [...document.querySelectorAll('.bubble')].map((b) => b.textContent), { ...localStorage }]))}`);
  });
  await side(slow);
  await click('Also kept');
  await slow.evaluate(() => window.release());
  await slow.locator('.bubble', { hasText: 'Also kept' }).waitFor();
  assert.deepEqual(await slow.locator('.bubble').allTextContents(), ['Also kept']);
  await slow.locator('#notice').waitFor({ state: 'hidden' });
  await v.close();
}, ANY_DESKTOP);

for (const [locale, words] of [['en-US', 'storage is full or off'], ['ko-KR', '저장 공간이 가득 찼거나']]) {
  feature(`where neither has room, the page says so and goes on (${locale})`, async () => {
    const v = await visit({ locale, first: () => {
      const full = () => { throw new DOMException('full', 'QuotaExceededError'); };
      const { setItem } = Storage.prototype;
      Storage.prototype.setItem = function limited(k, t) { return k.includes('.m.') ? full() : setItem.call(this, k, t); };
      IDBObjectStore.prototype.put = full;
    } });
    await v.ask('First');
    await v.page.locator('#notice', { hasText: words }).waitFor();
    await v.done();
    await v.ask('Second');
    await v.done();
    assert.deepEqual(sent().messages.map((m) => m.content).filter((_, i) => i % 2 === 0), ['First', 'Second']);
    await v.side();
    assert.equal(await v.el('chat').count(), 1);
    await v.close();
  }, ANY_DESKTOP);
}

// ---- axe-core -------------------------------------------------------------------------------------------------------

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const LOOK = `axe.run(document, { runOnly: ${JSON.stringify(RULES)}, resultTypes: ['violations'] })
  .then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ')).join(', ')))`;

feature('axe-core finds nothing in each state of the page', async () => {
  const chats = [{ id: 'abcd', title: 'A chat', created: 1, updated: 2, messages: [
    { id: 'a1', at: 1, parent: '', role: 'user', text: 'question', files: [{ name: 'a.txt', text: 'x' }] },
    { id: 'a2', at: 1, parent: 'a1', role: 'assistant', text: '# One\n\n`code` and\n\n```c\nint x;\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n- [x] done', reasoning: 'hm', calls: 'f {} → 1', model: 'm', end: 'length' },
    { id: 'a3', at: 2, parent: 'a1', alt: true, role: 'assistant', text: '{"a":[1]}', model: 'm', end: 'stop' },
    { id: 'a4', at: 3, parent: 'a3', role: 'user', text: 'more' }, { id: 'a5', at: 3, parent: 'a4', role: 'assistant', text: '', model: 'm', end: 'error', error: { kind: 'network' } }] }];
  const buffer = Buffer.from(JSON.stringify({ format: 'sluice-chats', version: 1, chats }));
  const v = await visit();
  await v.page.evaluate(AXE);
  const look = async (state) => {
    for (const theme of ['light', 'dark']) {
      await v.page.evaluate((name) => {
        localStorage.setItem('sluice.v1.theme', name);
        window.dispatchEvent(new Event('sluice-theme'));
      }, theme);
      await v.page.locator(`html[data-theme="${theme}"]`).waitFor();
      assert.deepEqual(await v.page.evaluate(LOOK), [], `${theme}, ${state}`);
    }
  };
  await look('empty');
  await v.page.setInputFiles(id('import-input'), { name: 'c.json', mimeType: 'application/json', buffer });
  await v.page.locator('#notice', { hasText: 'Imported: 1.' }).waitFor();
  await v.side();
  await v.page.fill(id('search'), 'question');
  await v.el('snippet').waitFor();
  await look('search');
  await v.page.locator(id('chat')).first().locator('.chat-open').click();
  await v.page.locator('.bubble').first().waitFor(); // its draft is open, too
  await v.page.setInputFiles(id('file-input'), { name: 'n.txt', mimeType: 'text/plain', buffer: Buffer.from('n') });
  await v.el('file-chip').waitFor();
  await v.el('options-open').click();
  await v.el('opt-seed').fill('x');
  await v.el('options-save').click();
  await look('options');
  assert.deepEqual(await v.page.evaluate(() => [...document.querySelectorAll('#options-dialog input, #options-dialog textarea')].filter((e) => e.getBoundingClientRect().right > innerWidth - 16).map((e) => e.id)), []);
  await v.el('opt-seed').fill('5');
  await v.el('options-save').click();
  await v.page.selectOption(id('key-select'), { label: 'Manage keys…' });
  await look('keys');
  await v.page.keyboard.press('Escape');
  await v.el('chip-seed').waitFor();
  const [bar, scroll] = await v.page.evaluate(() => ['.bar', '#scroll'].map((s) => document.querySelector(s).getBoundingClientRect()));
  assert.ok(bar.bottom <= scroll.top + 1, 'the chips lie over nothing');
  await look('a chat');
  await v.close();
});
