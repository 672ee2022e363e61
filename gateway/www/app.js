// The page's controller and front door: it wires the modules of this folder together. store.js keeps conversations in the
// browser, run.js produces one answer with client.js, thread.js and render.js draw, settings.js has model, key, theme and
// language. No build step, no dependencies; everything runs on the page's one thread.
//
// State: `chat`, the conversation on screen (stored once it has a message), and `runs`, one Run per conversation being
// answered. An answer continues when another conversation is opened. Other tabs may write into the same conversations;
// adopt() merges what they wrote.

import { mark, h, icon, onKeys } from './dom.js';
import { formatWait, pickLanguage, setLanguage, t, translatePage } from './i18n.js';
import { Keys, keysOfFragment } from './keys.js';
import { Run } from './run.js';
import { Settings } from './settings.js';
import { Sidebar } from './sidebar.js';
import { chatOfKey, LIMITS, memoryStorage, mergeMessages, newId, newTurn, Store } from './store.js';
import { fit, isRefused, Thread } from './thread.js';
import { UsageLine } from './usage.js';

const SAVE_EVERY_MS = 2000;
const ADOPT_MS = 20; // a turn of another tab is several records
const ANNOUNCE_CHARS = 1200;
const CARD_ICONS = ['globe', 'idea', 'edit', 'code'];

const el = {};
for (const node of document.querySelectorAll('[id]')) {
  el[node.id.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = node;
}

function browserStorage() {
  try {
    const storage = window.localStorage;
    storage.setItem('sluice.probe', '1');
    storage.removeItem('sluice.probe');
    return { getItem: (k) => storage.getItem(k), setItem: (k, v) => storage.setItem(k, v), removeItem: (k) => storage.removeItem(k), keys: () => Object.keys(storage) };
  } catch {
    return memoryStorage();
  }
}

const store = new Store(browserStorage());
const keys = new Keys(store);
const runs = new Map(); // chat id → {run, chat, message, savedAt}
let chat = emptyChat();

setLanguage(pickLanguage(store.pref('language'), navigator.languages));

const thread = new Thread({
  root: el.thread, scroll: el.scroll, latest: el.latest,
  actions: {
    onEdit: (message, text) => resend(message, text),
    onEditAsked: (answer) => thread.editAsked(answer),
    onRegenerate: () => regenerate(),
    onEnterKey: () => settings.askKey(),
    hasKey: () => keys.current() !== null,
  },
});
const sidebar = new Sidebar(el, store, {
  onOpen: (id) => openChat(id),
  onRemove: (id) => removeChat(id),
  onRename: (id, title) => {
    if (chat.id === id) chat.title = title;
    const live = runs.get(id);
    if (live) live.chat.title = title;
    store.rename(id, title);
    showList();
    showTitle();
  },
});
const usage = new UsageLine(el, keys, () => settings.mayAsk());
const settings = new Settings(el, store, keys, {
  onLanguage: (name) => {
    store.setPref('language', name);
    setLanguage(name);
    translateAll();
  },
  onModelsError: (error) => {
    if (error === null) {
      notice('');
      usage.refresh();
    } else if (error.status === 503) notice(t('waiting', { n: 2 }));
    else if (error.kind === 'network') notice(`${t('eNetwork')}. ${t('eNetworkText')}`);
    else if (error.status === 401) notice(''); // the dialog says it
    else if (error.status === 429) notice(`${t('e429')}. ${error.retryAt ? t('e429wait', { n: formatWait(error.retryAt - Date.now()) }) : ''}`);
    else notice(error.message || t('e5xx'));
  },
});

function emptyChat() {
  const now = Date.now();
  return { v: 1, id: newId(), title: '', created: now, updated: now, messages: [] };
}

// ---- what is on screen ----------------------------------------------------------------------------------------------

function announce(text) {
  el.live.textContent = '';
  setTimeout(() => { el.live.textContent = text; }, 60);
}

function notice(text) {
  el.notice.textContent = text;
  el.notice.hidden = text === '';
}

function showList() { sidebar.show(store.list(), chat.id, runs); }

function showTitle() {
  const title = chat.title || (chat.messages.length > 0 ? t('untitled') : '');
  document.title = title ? `${title} – Sluice` : 'Sluice';
  el.title.textContent = title || 'Sluice';
}

function showComposer() {
  const running = runs.has(chat.id);
  el.stop.hidden = !running;
  el.send.hidden = running;
  el.send.disabled = el.composer.value.trim() === '';
  document.documentElement.dataset.flow = running ? 'on' : 'off';
}

// What this tab keeps over a reload; nothing where the browser refuses.
const tab = {
  get(name) { try { return JSON.parse(sessionStorage.getItem(`sluice.v1.${name}`)); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(`sluice.v1.${name}`, JSON.stringify(value)); } catch { /* lost on reload */ } },
};

/** The conversation that was open; null in a new tab. */
function reopen() {
  const id = tab.get('open');
  return store.list().some((c) => c.id === id) ? store.get(id) : null;
}

/** The name of a conversation at the server. It includes the tab: a newer question ends an older answer of its own tab only. */
function nameOf(which) {
  if (!tab.get('tab')) tab.set('tab', newId());
  const name = tab.get('tab');
  return name ? `${which.id}-${name}` : which.id;
}

// A reload resumes all conversations that were being answered in this tab.
function rememberLive() { tab.set('live', [...runs.keys()]); }

function wereLive() {
  const ids = tab.get('live');
  return Array.isArray(ids) ? ids.filter((id) => typeof id === 'string' && id !== chat.id).map((id) => store.get(id)).filter(Boolean) : [];
}

function showChat() {
  tab.set('open', chat.id);
  const empty = chat.messages.length === 0;
  el.hero.hidden = !empty;
  el.thread.hidden = empty;
  document.documentElement.dataset.empty = String(empty);
  thread.show(chat.messages, runs.get(chat.id) ?? null);
  if (empty) el.scroll.scrollTop = 0;
  showTitle();
  showList();
  showComposer();
}

function showCards() {
  el.cards.replaceChildren(...CARD_ICONS.map((name, i) => {
    const question = t(`ask${i + 1}q`);
    return h('li', {}, h('button', { type: 'button', class: 'card', 'data-testid': 'suggestion', onClick: () => ask(question) },
      icon(name), h('span', { class: 'card-text' }, h('span', { class: 'card-title', text: t(`ask${i + 1}`) }), h('span', { class: 'card-question', text: question }))));
  }));
}

function translateAll() {
  translatePage(document);
  settings.translate();
  usage.show();
  showCards();
  showChat();
}

// ---- conversations --------------------------------------------------------------------------------------------------

function openChat(id) {
  if (id !== chat.id) {
    const found = runs.get(id)?.chat ?? store.get(id);
    if (found === null) { showList(); return; }
    chat = found;
    takeUp(chat);
    notice('');
    showChat();
  }
  sidebar.leave();
  toComposer();
}

/** Focuses the message box; not on touch screens, where the keyboard would cover the answer. */
function toComposer() {
  if (!matchMedia('(pointer: coarse)').matches) el.composer.focus();
}

function newChat() {
  if (chat.messages.length > 0) {
    chat = emptyChat();
    notice('');
    showChat();
  }
  sidebar.leave();
  el.composer.focus();
}

function removeChat(id) {
  const live = runs.get(id);
  if (live) drop(live);
  store.remove(id);
  if (chat.id === id) {
    chat = emptyChat();
    showChat();
  }
  showList();
  el.newChat.focus();
}

function save(which, changed) {
  which.updated = Date.now();
  if (which.messages.length > LIMITS.messages) store.takeOut(which.id, which.messages.splice(0, which.messages.length - LIMITS.messages));
  const kept = store.save(which, changed);
  if (!kept && which === chat) notice(t('notSaved'));
}

/** Merges what another tab wrote into a conversation that this tab shows or reads an answer of. */
function adopt(id) {
  const live = runs.get(id);
  const known = live?.chat ?? (chat.id === id ? chat : null);
  const stored = known === null ? null : store.get(id);
  if (known === null || stored === known) return;
  const isOut = store.outOf(id);
  const had = known.messages.length;
  const { messages, again } = mergeMessages(known.messages, stored?.messages ?? [], isOut, live?.message);
  known.messages = messages;
  if (again.length > 0) store.save(known, again);
  if (stored !== null) known.title = stored.title;
  if (stored?.messages.length === 0) store.forget(id); // written while it was being deleted
  if (live && isOut(live.message)) drop(live);
  if (known !== chat) return;
  if (known.messages.length > 0) {
    takeUp(chat);
    showSync();
  } else if (had > 0) {
    chat = emptyChat();
    showChat();
    notice(t('removedElsewhere'));
  }
}

/** As showChat, for the conversation on screen: keeps unchanged views. */
function showSync() {
  thread.sync(chat.messages, runs.get(chat.id) ?? null);
  showTitle();
  showComposer();
}

// ---- asking ---------------------------------------------------------------------------------------------------------

function ask(text) {
  if (runs.has(chat.id)) return;
  if (!settings.mayAsk()) {
    el.composer.value = text;
    fit(el.composer);
    showComposer();
    settings.askKey();
    return;
  }
  question(text);
}

/** Appends a question to the conversation and asks it. */
function question(text) {
  if (!chat.title) chat.title = titleOf(text);
  const turn = newTurn(chat.messages);
  const asked = { id: turn.question, at: turn.at, role: 'user', text };
  chat.messages.push(asked);
  answer(turn, [asked]);
  toComposer();
}

function titleOf(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= 60 ? line : `${[...line.slice(0, 60)].slice(0, -1).join('').trimEnd()}…`;
}

function resend(message, text) {
  stopRun(chat.id);
  const index = chat.messages.findIndex((m) => m.id === message.id);
  if (index >= 0) store.takeOut(chat.id, chat.messages.splice(index));
  if (chat.messages.length === 0 && !store.isNamed(chat.id)) chat.title = '';
  question(text);
}

function regenerate() {
  const isAnswer = (m) => m?.role === 'assistant' && m.end !== null;
  if (runs.has(chat.id)) return;
  const out = [];
  while (isAnswer(chat.messages.at(-1))) out.push(chat.messages.pop());
  const asked = chat.messages.at(-1);
  if (asked?.role !== 'user') {
    chat.messages.push(...out.reverse());
    showChat();
    return;
  }
  store.takeOut(chat.id, out);
  delete asked.unsent;
  answer(newTurn(chat.messages), [asked]);
  toComposer();
}

/**
 * The messages to send. Questions without an answer are joined, since chat templates require alternating roles. Messages
 * that the server has refused are left out: they would fail the whole request.
 */
function turnsOf(messages) {
  const sent = [];
  for (const { role, text, unsent } of messages) {
    if (text === '' || unsent) continue;
    const last = sent.at(-1);
    if (last?.role === role) last.content += `\n\n${text}`;
    else sent.push({ role, content: text });
  }
  return sent;
}

/** Requests the next message of the conversation on screen. `changed`: its messages that must be saved. */
function answer(turn, changed) {
  const sent = turnsOf(chat.messages);
  const message = { id: turn.answer, at: turn.at, role: 'assistant', text: '', model: settings.model, end: null };
  chat.messages.push(message);
  const key = keys.current();
  const live = begin(chat, message, key?.name ?? '', { key: key?.key ?? '', model: () => settings.modelWhenKnown(), messages: sent, tools: settings.tools, conversation: nameOf(chat) });
  save(chat, [...changed, message]);
  showChat();
  announce(t('liveStarted'));
  live.run.start();
}

function begin(which, message, keyName, options) {
  const live = { chat: which, message, keyName, key: options.key, savedAt: Date.now(), run: null };
  live.run = new Run({ ...options, onChange: (run, what) => onRun(live, run, what) });
  runs.set(which.id, live);
  rememberLive();
  return live;
}

function forget(live) {
  runs.delete(live.chat.id);
  rememberLive();
}

function drop(live) {
  forget(live);
  live.run.stop();
}

/** Resumes an answer that was in progress when the page was left, or reads along with another tab. */
function takeUp(which) {
  const message = which.messages.filter((m) => m.stream && m.end === null).at(-1);
  if (!message || runs.has(which.id)) return;
  const key = message.stream.key === '' ? null : keys.named(message.stream.key);
  begin(which, message, message.stream.key, { key: key?.key ?? '', kept: message }).run.start();
}

function takeOver(live) {
  const { run, message } = live;
  message.text = run.text.slice(0, LIMITS.messageChars);
  if (run.reasoning) message.reasoning = run.reasoning.slice(0, LIMITS.messageChars);
  if (run.calls) message.calls = run.calls.slice(0, LIMITS.messageChars);
  message.model = run.model;
  message.end = run.end;
  if (run.end === null && run.stream !== null) message.stream = { ...run.stream, key: live.keyName };
  else delete message.stream;
  message.stats = run.stats();
  if (run.error) message.error = run.error;
}

function onRun(live, run, what) {
  if (runs.get(live.chat.id) !== live) return; // removed or replaced meanwhile
  if (run.state !== 'done') {
    if (what !== 'stream') thread.update(run, what);
    if (run.state === 'waiting' && live.chat === chat) {
      announce(t('waiting', { n: Math.ceil((run.retryAt - Date.now()) / 1000) }));
    }
    if (run.state === 'reconnecting' && live.state !== run.state && live.chat === chat) announce(t('reconnecting'));
    live.state = run.state;
    if (what === 'stream' || (what === 'text' && Date.now() - live.savedAt > SAVE_EVERY_MS)) {
      live.savedAt = Date.now();
      takeOver(live);
      save(live.chat, [live.message]);
    }
    return;
  }
  forget(live);
  takeOver(live);
  save(live.chat, [live.message, ...markUnsent(live)]);
  const shown = thread.finished(run);
  adopt(live.chat.id); // another tab may have read more of it
  if (shown) {
    takeUp(chat);
    showSync();
    if (run.end === 'stopped') announce(t('liveStopped'));
    else if (run.end !== 'error') announce(t('liveDone', { text: thread.textOf(live.message).slice(0, ANNOUNCE_CHARS) }));
    showComposer();
  }
  showList();
  if (run.error?.status === 401) settings.refused(live.key, run.error);
  else usage.refresh();
}

/** Marks the questions that the server refused, so that they are not sent again. Returns them. */
function markUnsent({ chat: of, message }) {
  const marked = [];
  if (!isRefused(message.error)) return marked;
  for (let i = of.messages.indexOf(message) - 1; i >= 0 && (of.messages[i].role === 'user' || of.messages[i].text === ''); i--) {
    if (of.messages[i].role === 'user') marked.push(of.messages[i]);
  }
  for (const m of marked) m.unsent = true;
  return marked;
}

function stopRun(id) { runs.get(id)?.run.stop(); }

function stopAndFocus() {
  stopRun(chat.id);
  el.composer.focus();
}

// ---- events ---------------------------------------------------------------------------------------------------------

el.form.addEventListener('submit', (event) => {
  event.preventDefault();
  const text = el.composer.value.trim();
  if (!text || runs.has(chat.id)) return;
  if (settings.mayAsk()) el.composer.value = '';
  fit(el.composer);
  ask(text);
});

el.composer.addEventListener('input', () => {
  fit(el.composer);
  showComposer();
});

onKeys(el.composer, {
  Enter: (event) => !event.shiftKey && (el.form.requestSubmit(), true),
  ArrowUp: () => el.composer.value === '' && !runs.has(chat.id) && thread.editLast(),
});

el.stop.addEventListener('click', stopAndFocus);

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (!runs.has(chat.id)) return;
  event.preventDefault();
  stopAndFocus();
});

el.newChat.addEventListener('click', newChat);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  el.composer.focus();
});

// Another tab changed the history or the keys.
const written = new Set(); // the conversations it wrote into, until they are adopted

function adoptAll() {
  for (const id of written) adopt(id);
  written.clear();
  showList();
}

window.addEventListener('storage', (event) => {
  const id = chatOfKey(event.key);
  if (event.key === null) for (const of of [chat.id, ...runs.keys()]) written.add(of);
  if (id !== null || event.key === null) {
    if (written.size === 0 || event.key === null) setTimeout(adoptAll, ADOPT_MS);
    if (id !== null) written.add(id);
  }
  if (event.key === 'sluice.v1.keys' || event.key === 'sluice.v1.key') settings.keysChanged();
});

window.addEventListener('pagehide', () => {
  for (const live of runs.values()) {
    takeOver(live);
    if (!live.message.stream) live.message.end = 'lost';
    save(live.chat, [live.message]);
  }
});

function takeFragment() {
  if (location.hash.length < 2) return false;
  const found = keysOfFragment(location.hash);
  history.replaceState(null, '', location.pathname + location.search);
  if (found.length === 0) return false;
  // The address's keys take precedence: an earlier choice stays only if it is among them.
  const chosen = found.find((k) => k.name === keys.current()?.name) ?? found[0];
  keys.add(found, chosen.name);
  return true;
}

window.addEventListener('hashchange', () => {
  if (takeFragment()) settings.keysChanged();
});

// ---- start ----------------------------------------------------------------------------------------------------------

takeFragment();
chat = reopen() ?? chat;
for (const which of [chat, ...wereLive()]) takeUp(which);
el.brand.prepend(mark('mark brand-mark'));
el.heroMark.append(mark('mark hero-logo'));
translateAll();
settings.loadModels();
if (!el.keyDialog.open) el.composer.focus();
