// The page's controller and front door: it wires the modules of this folder together. store.js keeps conversations in the
// browser, branches.js makes what is shown out of one, answers.js has the answers under way, thread.js and render.js draw,
// composer.js is the message box, settings.js has model, key, theme and language, panel.js a conversation's options. No build
// step, no dependencies; everything runs on the page's one thread.
//
// attic.js keeps what is old in IndexedDB (archive.js).
//
// State: `chat`, the conversation on screen (stored once it has a message), and `answers`, one per conversation being
// answered. An answer continues when another conversation or another version of it is opened. Other tabs may write into the
// same conversations; adopt() merges what they wrote.

import { Answers } from './answers.js';
import { browserArchive } from './archive.js';
import { Attic } from './attic.js';
import { joined, pathOf, picksTo, titleOf, turnsOf } from './branches.js';
import { Composer } from './composer.js';
import { mark, h, icon } from './dom.js';
import { Loading } from './health.js';
import { formatWait, pickLanguage, setLanguage, t, translatePage } from './i18n.js';
import { Keys, keysOfFragment } from './keys.js';
import { cleanOptions, requestOf } from './options.js';
import { Panel } from './panel.js';
import { Remote } from './remote.js';
import { Settings } from './settings.js';
import { Shelf } from './shelf.js';
import { Sidebar } from './sidebar.js';
import { chatOfKey, LIMITS, mergeMessages, newId, newTurn, Store } from './store.js';
import { browserStorage, nameOf, tab } from './tab.js';
import { Thread } from './thread.js';
import { UsageLine } from './usage.js';
import { errorTitle } from './views.js';

const ADOPT_MS = 20; // a turn of another tab is several records
const ANNOUNCE_CHARS = 1200;
const SLOW_MS = 300; // what takes longer is said
const CARD_ICONS = ['globe', 'idea', 'edit', 'code'];

const el = {};
for (const node of document.querySelectorAll('[id]')) {
  el[node.id.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = node;
}

const store = new Store(browserStorage());
const keys = new Keys(store);
const loading = new Loading();
const remote = new Remote(keys);
const answers = new Answers(keys, { onLive: rememberLive, save, onChange, onEnd });
let chat;
let coming = null; // the id of a conversation that is being fetched to be shown

setLanguage(pickLanguage(store.pref('language'), navigator.languages));
chat = emptyChat();

const thread = new Thread({
  root: el.thread, scroll: el.scroll, latest: el.latest,
  actions: {
    onEdit: (message, text) => resend(message, text),
    onEditAsked: (answer) => thread.editAsked(answer),
    onVersion: (message, version, step) => showVersion(version, step),
    onContinue: () => goOn(),
    onRegenerate: () => regenerate(),
    onEnterKey: () => settings.askKey(),
    loading: () => loading.percent(),
    hasKey: () => keys.current() !== null,
  },
});
const composer = new Composer(el, store, {
  onSend: (text, files) => {
    if (answers.has(chat.id)) return;
    if (settings.mayAsk()) composer.clear();
    ask(text, files);
  },
  onUp: () => !answers.has(chat.id) && thread.editLast(),
  onInput: () => showComposer(),
  onNotice: (text) => notice(text),
});
const panel = new Panel(el, {
  options: () => chat.options ?? {},
  isKept: () => Boolean(chat.options?.server || chat.toKeep),
  onOptions: (options, kept) => {
    setOptions({ ...options, server: chat.options?.server, model: chat.options?.model });
    shelf.setKept(chat, kept);
  },
  onDefaults: ({ server, model, ...rest }) => store.setPref('defaults', JSON.stringify(rest)),
});
const sidebar = new Sidebar(el, store, {
  onOpen: (id, message) => openChat(id, message),
  onExport: (id) => shelf.save([id]),
  isKept: (id) => Boolean(store.optionsOf(id).server),
  onRemove: (id) => removeChat(id),
  onRename: (id, title) => {
    if (chat.id === id) chat.title = title;
    const live = answers.get(id);
    if (live) live.chat.title = title;
    store.rename(id, title);
    showList();
    showTitle();
  },
});
const shelf = new Shelf(el, store, remote, {
  onChange: (...ids) => {
    for (const id of ids) adopt(id);
    showList();
    panel.showChips();
  },
  onOpen: (id) => openChat(id),
  onNotice: (text) => notice(text),
});
const usage = new UsageLine(el, keys, () => settings.mayAsk());
const settings = new Settings(el, store, keys, loading, {
  model: () => chat.options?.model,
  onModel: (model) => setOptions({ ...chat.options, model }),
  onLanguage: (name) => {
    store.setPref('language', name);
    setLanguage(name);
    translateAll();
  },
  onModelsError: (error) => {
    if (error === null) {
      notice('');
      usage.refresh();
    } else if (error.status === 503) {
      notice(t('waiting', { n: 2 }));
      loading.ask().then((percent) => { if (percent !== null && !settings.hasModels) notice(t('loading', { n: percent })); });
    }
    else if (error.kind === 'network') notice(`${t('eNetwork')}. ${t('eNetworkText')}`);
    else if (error.status === 401) notice(''); // the dialog says it
    else if (error.status === 429) notice(`${t('e429')}. ${error.retryAt ? t('e429wait', { n: formatWait(error.retryAt - Date.now()) }) : ''}`);
    else notice([errorTitle(error, keys.current() !== null), error.message].filter(Boolean).join('. '));
  },
});

function emptyChat() {
  const now = Date.now();
  return { v: 1, id: newId(), title: '', created: now, updated: now, messages: [], options: defaults() };
}

/** The options that a new conversation begins with. */
function defaults() {
  try { return cleanOptions(JSON.parse(store.pref('defaults'))); } catch { return {}; }
}

function setOptions(options) {
  chat.options = cleanOptions(options);
  if (!store.setOptions(chat)) notice(t('notSaved'));
  panel.showChips();
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

function showList() { sidebar.show(store.list(), chat.id, answers); }

function showTitle() {
  const title = chat.title || (chat.messages.length > 0 ? t('untitled') : '');
  document.title = title ? `${title} – Sluice` : 'Sluice';
  el.title.textContent = title || 'Sluice';
}

function showComposer() {
  const running = answers.has(chat.id);
  el.stop.hidden = !running;
  el.send.hidden = running;
  el.send.disabled = composer.isEmpty;
  document.documentElement.dataset.flow = running ? 'on' : 'off';
}

/** The conversation that was open; null in a new tab. */
function openBefore() {
  const id = tab.get('open');
  return store.list().some((c) => c.id === id) ? id : null;
}

// A reload resumes all conversations that were being answered in this tab.
function rememberLive(ids) { tab.set('live', ids); }

function wereLive() {
  const ids = tab.get('live');
  return Array.isArray(ids) ? ids.filter((id) => typeof id === 'string' && id !== chat.id && store.isThere(id)) : [];
}

const shownOf = (which) => joined(pathOf(which.messages, which.picks));

function showChat() {
  tab.set('open', chat.id);
  const empty = chat.messages.length === 0;
  el.hero.hidden = !empty;
  el.thread.hidden = empty;
  document.documentElement.dataset.empty = String(empty);
  thread.show(shownOf(chat), answers.get(chat.id));
  if (empty) el.scroll.scrollTop = 0;
  showTitle();
  showList();
  showComposer();
  panel.showChips();
  settings.showModel();
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
  composer.showFiles();
  showCards();
  showChat();
}

// ---- conversations --------------------------------------------------------------------------------------------------

/** Shows another conversation, with what was typed into it. */
function turnTo(which) {
  coming = null;
  chat = which;
  answers.takeUp(chat);
  showChat();
  composer.open(draftOf(chat));
}

const draftOf = (which) => (which.messages.length === 0 ? 'new' : which.id);

/** Opens a conversation: at once, or when its messages have come from the archive, unless the user has gone elsewhere by then. */
function openChat(id, message) {
  coming = null;
  const held = answers.get(id)?.chat;
  if (id === chat.id) showOpened(message);
  else if (held || !store.isAway(id)) showOther(held ?? store.get(id), message);
  else {
    coming = id;
    setTimeout(() => { if (coming === id) notice(t('fetching')); }, SLOW_MS);
    store.read(id).then((read) => { if (coming === id) showOther(answers.get(id)?.chat ?? read, message); });
  }
}

function showOther(found, message) {
  if (found === null) { showList(); return; }
  turnTo(found);
  notice(found.missing ? t('unread') : '');
  shelf.refresh(chat);
  showOpened(message);
}

function showOpened(message) {
  if (message) {
    for (const [parent, version] of picksTo(chat.messages, message)) pick(parent, version);
    showSync();
    thread.reveal(message);
  }
  sidebar.leave();
  toComposer();
}

/** Focuses the message box; not on touch screens, where the keyboard would cover the answer. */
function toComposer() {
  if (!matchMedia('(pointer: coarse)').matches) el.composer.focus();
}

function newChat() {
  coming = null;
  if (chat.messages.length > 0) {
    turnTo(emptyChat());
    notice('');
  }
  sidebar.leave();
  el.composer.focus();
}

function removeChat(id) {
  const live = answers.get(id);
  if (live) answers.drop(live);
  composer.drop(id);
  shelf.remove(id);
  if (chat.id === id) turnTo(emptyChat());
  store.remove(id);
  showList();
  el.newChat.focus();
}

function save(which, changed) {
  which.updated = Date.now();
  if (which.messages.length > LIMITS.messages) store.takeOut(which.id, which.messages.splice(0, which.messages.length - LIMITS.messages));
  const before = store.evicted;
  const kept = store.save(which, changed) && !store.forgets;
  if (!kept && which === chat) notice(t('notSaved'));
  else if (store.evicted > before) notice(t('evicted', { n: store.evicted - before }));
}

/** Merges what another tab wrote into a conversation that this tab shows or reads an answer of. */
function adopt(id, read = undefined) {
  const live = answers.get(id);
  const known = live?.chat ?? (chat.id === id ? chat : null);
  const stored = known === null ? null : read ?? store.get(id);
  if (known === null || stored === known) return;
  const isOut = store.outOf(id);
  const had = known.messages.length;
  const { messages, again } = mergeMessages(known.messages, stored?.messages ?? [], isOut, live?.message);
  known.messages = messages;
  if (again.length > 0) store.save(known, again);
  if (stored !== null) {
    known.title = stored.title;
    known.options = stored.options;
    if (!live) known.picks = stored.picks; // an answer of this tab stays on its screen
  }
  if (stored?.messages.length === 0 && !store.isAway(id)) store.forget(id); // written while it was being deleted
  if (live && isOut(live.message)) answers.drop(live);
  if (known !== chat) return;
  if (known.messages.length > 0) {
    answers.takeUp(chat);
    showSync();
  } else if (had > 0) {
    turnTo(emptyChat());
    notice(t('removedElsewhere'));
  }
}

/** As showChat, for the conversation on screen: keeps unchanged views. */
function showSync() {
  thread.sync(shownOf(chat), answers.get(chat.id));
  showTitle();
  showComposer();
  panel.showChips();
}

// ---- versions -------------------------------------------------------------------------------------------------------

/** Shows a version of what follows `parent`, from now on. */
function pick(parent, id) {
  chat.picks = { ...chat.picks, [parent || 'root']: id };
  store.pick(chat.id, parent, id);
}

/** step: which of the two buttons was pressed, to have the focus there again. */
function showVersion(id, step) {
  const { parent } = pathOf(chat.messages, chat.picks).find((e) => e.versions.includes(id)) ?? {};
  if (parent === undefined) return;
  pick(parent, id);
  showSync();
  thread.focusVersion(id, step);
}

// ---- asking ---------------------------------------------------------------------------------------------------------

function ask(text, files = []) {
  if (answers.has(chat.id)) return;
  if (!settings.mayAsk()) {
    composer.put(text, files);
    settings.askKey();
    return;
  }
  question(text, files);
}

const lastOf = (which) => pathOf(which.messages, which.picks).at(-1)?.message.id ?? '';

/** Appends a question to the conversation and asks it. before: {parent, alt} of a new version of an older one. */
function question(text, files = [], before = { parent: lastOf(chat) }) {
  coming = null;
  if (!chat.title) chat.title = titleOf(text || files[0].name);
  if (!chat.options?.model && settings.model) setOptions({ ...chat.options, model: settings.model });
  const turn = newTurn(chat.messages);
  const asked = { id: turn.question, at: turn.at, ...before, role: 'user', text, ...(files.length > 0 && { files }) };
  chat.messages.push(asked);
  if (before.alt) pick(before.parent, asked.id);
  answer(turn, { parent: asked.id }, [asked]);
  composer.moveTo(chat.id);
  toComposer();
}

/** Asks a question in other words, as another version of it. One that was refused, and is the last, is replaced. */
function resend(message, text) {
  answers.stop(chat.id);
  const path = pathOf(chat.messages, chat.picks);
  const at = path.findIndex((e) => e.message.id === message.id);
  if (at < 0) return;
  const { parent } = path[at];
  if (at === 0 && !store.isNamed(chat.id)) chat.title = '';
  const rest = path.slice(at).map((e) => e.message);
  const inVain = rest.every((m) => m.unsent || (m.role === 'assistant' && m.text === ''));
  if (inVain) takeOut(rest);
  const isOnly = inVain && path[at].versions.length === 1;
  question(text, message.files ?? [], { parent, ...(!isOnly && { alt: true }) });
}

function takeOut(messages) {
  chat.messages = chat.messages.filter((m) => !messages.includes(m));
  store.takeOut(chat.id, messages);
}

/** The answers at the end of what is shown, and the question before them; null where there is none. */
function lastTurn() {
  const path = pathOf(chat.messages, chat.picks);
  const at = path.findLastIndex(({ message: m }) => m.role !== 'assistant' || m.end === null);
  return path[at]?.message.role === 'user' ? { asked: path[at].message, answered: path.slice(at + 1).map((e) => e.message) } : null;
}

/** Asks the last question again: another version of its answer. One without a text is replaced. */
function regenerate() {
  const last = answers.has(chat.id) ? null : lastTurn();
  if (last === null) return;
  const { asked, answered } = last;
  if (answered.at(-1)?.joins && answered.at(-1).text === '') { // what failed was to go on
    takeOut([answered.at(-1)]);
    goOn();
    return;
  }
  delete asked.unsent;
  const vain = answered.filter((m) => m.text === '');
  const kept = answered.length > vain.length;
  takeOut(vain);
  const turn = newTurn(chat.messages);
  answer(turn, { parent: asked.id, ...(kept && { alt: true }) }, [asked]);
  toComposer();
}

/** Has the last answer go on from where it ended. */
function goOn() {
  const path = pathOf(chat.messages, chat.picks);
  const { message } = path.at(-1) ?? {};
  if (answers.has(chat.id) || message?.role !== 'assistant' || message.text === '') return;
  answer(newTurn(chat.messages), { parent: message.id, joins: true }, []);
  toComposer();
}

/** Requests the next message of the conversation on screen. of: its parent, and what it is. changed: messages that must be saved. */
function answer(turn, of, changed) {
  const which = chat;
  const path = pathOf(chat.messages, chat.picks);
  const before = path.slice(0, path.findIndex((e) => e.message.id === of.parent) + 1);
  const message = { id: turn.answer, at: turn.at, ...of, role: 'assistant', text: '', model: settings.model, end: null };
  chat.messages.push(message);
  const key = keys.current();
  const live = answers.begin(chat, message, key?.name ?? '', {
    key: key?.key ?? '', model: () => settings.modelWhenKnown(() => which.options?.model), messages: turnsOf(before, chat.options?.system), tools: settings.tools,
    params: { ...requestOf(chat.options), ...(of.joins && { continue_final_message: true }) }, conversation: nameOf(chat),
  });
  save(chat, [...changed, message]);
  if (of.alt) pick(of.parent, message.id);
  showChat();
  announce(t('liveStarted'));
  live.run.start();
}

function onChange(live, what) {
  const { run } = live;
  if (what !== 'stream') thread.update(run, what);
  if (live.chat !== chat) return;
  if (run.state === 'waiting') announce(t('waiting', { n: Math.ceil((run.retryAt - Date.now()) / 1000) }));
  if (run.state === 'reconnecting' && live.state !== run.state) announce(t('reconnecting'));
}

function onEnd({ run, chat: of, message, key }) {
  const shown = thread.finished(run);
  adopt(of.id); // another tab may have read more of it
  if (of === chat) {
    answers.takeUp(chat);
    showSync();
  }
  if (shown && run.end === 'stopped') announce(t('liveStopped'));
  else if (shown && run.end !== 'error') announce(t('liveDone', { text: thread.textOf(message).slice(0, ANNOUNCE_CHARS) }));
  showList();
  if (run.end !== 'error') shelf.keep(of);
  if (run.error?.status === 401) settings.refused(key, run.error);
  else usage.refresh();
}

function stopAndFocus() {
  answers.stop(chat.id);
  el.composer.focus();
}

// ---- events ---------------------------------------------------------------------------------------------------------

el.stop.addEventListener('click', stopAndFocus);

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (!answers.has(chat.id)) return;
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
const moved = new Set(); // those of them whose messages it moved to the archive

function adoptAll() {
  for (const id of written) {
    adopt(id);
    if (moved.has(id) && (id === chat.id || answers.has(id))) store.read(id).then((read) => { if (read !== null) adopt(id, read); });
  }
  written.clear();
  moved.clear();
  showList();
}

window.addEventListener('storage', (event) => {
  store.hears(event.key);
  const id = chatOfKey(event.key);
  if (event.key === null) for (const of of [chat.id, ...answers.ids()]) written.add(of);
  if (id !== null || event.key === null) {
    if (written.size === 0 || event.key === null) setTimeout(adoptAll, ADOPT_MS);
    if (id !== null) written.add(id);
    if (id !== null && event.newValue === null && store.isAway(id)) moved.add(id);
  }
  if (event.key === 'sluice.v1.keys' || event.key === 'sluice.v1.key') settings.keysChanged();
});

window.addEventListener('pagehide', () => {
  answers.leave();
  composer.keep();
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
const archive = store.forgets ? null : browserArchive();
if (archive !== null) new Attic(store, archive, () => notice(t('notSaved'))).start().then(showList);
const before = openBefore();
const isComing = before !== null && store.isAway(before);
if (before !== null && !isComing) chat = store.get(before);
answers.takeUp(chat);
for (const id of wereLive()) {
  if (!store.isAway(id)) answers.takeUp(store.get(id));
  else store.read(id).then((which) => which !== null && (answers.takeUp(which), showList()));
}
el.brand.prepend(mark('mark brand-mark'));
el.heroMark.append(mark('mark hero-logo'));
translateAll();
composer.open(draftOf(chat));
if (isComing) openChat(before);
settings.loadModels().then(() => { if (settings.hasModels) shelf.refresh(chat); });
if (!el.keyDialog.open) el.composer.focus();
