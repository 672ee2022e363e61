// The administrators' page: it shows what GET /v1/admin/… answers, and sends the actions. The key lives in this tab only.

import './admin_words.js';
import { charts } from './admin_charts.js';
import { h, icon } from './dom.js';
import { formatNumber, formatWait, language, pickLanguage, setLanguage, t, translatePage } from './i18n.js';
import { isKey, keysOfFragment } from './keys.js';

const LOOK_MS = 2000;
const HISTORY_MS = 5000;
const ANSWER_MS = 10_000;
const THEMES = [['auto', 'theme', 'themeAuto'], ['light', 'sun', 'themeLight'], ['dark', 'moon', 'themeDark']];
const STATES = { waiting: 'sWaiting', queued: 'sQueued', running: 'sRunning', for_others: 'sForOthers' };

const el = new Proxy({}, { get: (_, id) => document.getElementById(id) });

const pref = {
  get: (name) => { try { return localStorage.getItem(`sluice.v1.${name}`); } catch { return null; } },
  set: (name, value) => {
    try {
      if (value === null) localStorage.removeItem(`sluice.v1.${name}`);
      else localStorage.setItem(`sluice.v1.${name}`, value);
    } catch { /* lasts as long as the page */ }
  },
};
const tab = {
  get: () => { try { return sessionStorage.getItem('sluice.v1.admin'); } catch { return null; } },
  set: (key) => { try { if (key === null) sessionStorage.removeItem('sluice.v1.admin'); else sessionStorage.setItem('sluice.v1.admin', key); } catch { /* as above */ } },
};

let key = null;
let timer = 0;
let lastHistory = -Infinity;
let shown = { status: null, streams: null, history: null, log: null, variants: null };

// ---- requests ----

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(path, method = 'GET', body = undefined) {
  const response = await fetch(`v1/admin/${path}`, {
    method, cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error', signal: AbortSignal.timeout(ANSWER_MS),
    headers: { Authorization: `Bearer ${key}`, ...(body !== undefined && { 'Content-Type': 'application/json' }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 204) return null;
  let value = null;
  try { value = await response.json(); } catch { /* its status says enough */ }
  if (!response.ok) throw new Refused(response.status, value?.error?.message ?? `HTTP ${response.status}`);
  return value;
}

// ---- what is shown ----

function row(cells) {
  return h('tr', {}, ...cells.map(([content, number], i) => h(i === 0 ? 'th' : 'td', { scope: i === 0 ? 'row' : null, class: number ? 'number' : null }, content)));
}

function head(at, names) {
  at.replaceChildren(h('tr', {}, ...names.map(([word, number]) => h('th', { scope: 'col', class: number ? 'number' : null, text: t(word) }))));
}

const seconds = (s) => (s < 100 ? `${formatNumber(s, s < 10 ? 1 : 0)} s` : formatWait(s * 1000));
const waitOf = (ms) => (ms > 0 ? seconds(ms / 1000) : '–');
const share = (part, all) => (all > 0 ? `${formatNumber((part / all) * 100, 0)} %` : '–');

function fact(word, text, wrong = false) {
  return h('div', {}, h('dt', { text: t(word) }), h('dd', { class: wrong ? 'wrong' : null, text }));
}

function showStatus(s) {
  const engines = s.engines ?? [];
  const sum = (name) => engines.reduce((n, e) => n + (e[name] ?? 0), 0);
  const up = engines.filter((e) => e.up).length;
  const kv = Math.max(0, ...engines.map((e) => e.kv_used_share ?? 0));
  const device = engines.find((e) => e.device)?.device;
  el.facts.replaceChildren(
    fact('aVersion', s.version), fact('aUptime', formatWait(Math.max(1, s.now - s.started_at) * 1000)),
    fact('aEngine', up === engines.length ? t('aUp') : t('aDown'), up < engines.length),
    fact('aStore', s.store, s.store === 'down'), fact('aQueue', `${formatNumber(s.queued)} / ${formatNumber(s.queue_size)}`),
    fact('aRunning', formatNumber(sum('running'))), fact('aWaiting', formatNumber(sum('waiting'))),
    fact('aKv', share(kv, 1)), fact('aPreemptions', formatNumber(sum('preemptions'))),
    ...(device ? [fact('aDevice', `${device.busy_percent} %, ${device.celsius} °C`)] : []));
  head(el['models-head'], [['aModel'], ['aState'], ['aRunning', true], ['aWaiting', true], ['aPages', true], ['aHits', true]]);
  el.models.replaceChildren(...(s.models ?? []).map((m) => row([
    [m.id], [m.state === 'loading' ? `${m.state} ${m.percent} %` : m.reason ? `${m.state}: ${m.reason}` : m.state], [formatNumber(m.running), true],
    [formatNumber(m.waiting), true], [`${formatNumber(m.pages_free)} / ${formatNumber(m.pages_total)}`, true], [share(m.prefix_hits, m.prefix_queries), true]])));
}

function showTiers(s, streams) {
  const counts = new Map((streams?.tiers ?? []).map((c) => [c.name, c]));
  head(el['tiers-head'], [['aTier'], ['aPriority', true], ['sRunning', true], ['sWaiting', true], ['aConcurrency', true], ['aTarget', true], ['aWait', true]]);
  el.tiers.replaceChildren(...(s.tiers ?? []).map((tier) => row([
    [tier.name], [formatNumber(tier.priority), true], [formatNumber(counts.get(tier.name)?.running ?? 0), true], [formatNumber(counts.get(tier.name)?.waiting ?? 0), true],
    [formatNumber(tier.concurrency), true], [waitOf(tier.ttft_target_ms), true], [waitOf(tier.predicted_wait_ms), true]])));
}

function cancelButton(id) {
  return h('button', { type: 'button', class: 'icon-button', 'aria-label': t('adminCancelOf', { id }), title: t('aCancel'), 'data-testid': 'cancel', 'data-id': id, onClick: () => cancel(id) }, icon('stop'));
}

/** Rows stay where they are between two looks, so that a button keeps the focus. */
function showStreams(streams) {
  head(el['streams-head'], [['aId'], ['aModel'], ['aTier'], ['aTenant'], ['aState'], ['aPrompt', true], ['aTokens', true], ['aRate', true], ['aAge', true], ['aCancel']]);
  const focused = document.activeElement?.dataset?.id;
  el.streams.replaceChildren(...streams.streams.map((a) => row([
    [h('code', { text: a.id })], [a.model], [a.tier], [h('code', { text: a.tenant })], [t(STATES[a.state] ?? a.state)], [formatNumber(a.prompt_tokens), true],
    [formatNumber(a.tokens), true], [formatNumber(a.tokens_per_s, 1), true], [seconds(a.age_s), true], [cancelButton(a.id)]])));
  if (streams.streams.length === 0) el.streams.append(h('tr', {}, h('td', { colspan: '10', text: t('adminNone') })));
  if (focused) el.streams.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  el['n-streams'].textContent = streams.left_out > 0 ? t('adminLeftOut', { n: formatNumber(streams.streams.length), all: formatNumber(streams.total) }) : `(${formatNumber(streams.total)})`;
}

function stateOfVariant(v) {
  if (v.state === undefined) return v.base ? t('vBase') : t('vRunning');
  return v.state === 'rolled_back' ? t('vRolledBack', { cause: v.cause }) : t(v.state === 'starting' ? 'vStarting' : 'vRunning');
}

function variantButton(v) {
  const name = `${v.variant} (${v.model})`;
  const [action, word, of, text] = v.state === 'rolled_back'
    ? ['restore', t('adminRestore'), t('adminRestoreOf', { name }), t('adminRestoreText', { name })]
    : ['roll_back', t('adminRollBack'), t('adminRollBackOf', { name }), t('adminRollBackText', { name })];
  return h('button', { type: 'button', class: 'button', 'aria-label': of, 'data-testid': action, 'data-id': `variant ${name}`, text: word,
    onClick: async () => { if (await confirm(`${of}?`, text, word)) act('variants', 'POST', { model: v.model, variant: v.variant, action }, t('adminVariantDone', { name })); } });
}

function showVariants({ variants }) {
  el['variants-section'].hidden = variants.length === 0;
  head(el['variants-head'], [['aModel'], ['aVariant'], ['aState'], ['aWeight', true], ['aAnswers', true], ['aFailed', true], ['aLeft', true], ['aEvidence', true], ['aAction']]);
  const both = (n) => (n === undefined ? '–' : `${formatNumber(n.variant)} (${formatNumber(n.base)})`);
  const against = (v) => (v.evidence === undefined ? '–' : share(Math.max(0, ...Object.values(v.evidence)), 1));
  const focused = document.activeElement?.dataset?.id;
  el.variants.replaceChildren(...variants.map((v) => row([
    [v.model], [v.variant], [stateOfVariant(v)], [formatNumber(v.weight, Number.isInteger(v.weight) ? 0 : 1), true], [both(v.answers), true], [both(v.failed), true], [both(v.left), true],
    [against(v), true], [v.state === undefined ? '–' : variantButton(v)]])));
  if (focused?.startsWith('variant ')) el.variants.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function showLog(log) {
  const levels = ['debug', 'info', 'warn', 'error'];
  if (document.activeElement?.closest?.('#levels')) return; // somebody is choosing
  el.levels.replaceChildren(...Object.entries(log.levels).map(([name, level]) => {
    const select = h('select', { 'data-testid': `level-${name}`, onChange: () => setLevel(name, select.value) }, ...levels.map((l) => h('option', { value: l, text: l, selected: l === level })));
    return h('label', {}, h('span', { text: name }), select);
  }));
}

function showHistory(history) {
  el['no-samples'].hidden = (history.samples?.at ?? []).length > 0;
  el.charts.replaceChildren(...(el['no-samples'].hidden ? charts(history) : []));
}

function showAll() {
  if (shown.status) {
    showStatus(shown.status);
    showTiers(shown.status, shown.streams);
  }
  if (shown.streams) showStreams(shown.streams);
  if (shown.history) showHistory(shown.history);
  if (shown.log) showLog(shown.log);
  if (shown.variants) showVariants(shown.variants);
}

function notice(text, wrong = false) {
  el.notice.classList.toggle('wrong', wrong);
  el.notice.textContent = text;
}

// ---- looking ----

async function look() {
  const used = key;
  try {
    const [status, streams, log, variants] = await Promise.all([call('status'), call('streams'), call('log'), call('variants')]);
    let history = shown.history;
    if (performance.now() - lastHistory >= HISTORY_MS) {
      lastHistory = performance.now();
      history = await call('history');
    }
    if (used !== key) return;
    shown = { status, streams, history, log, variants };
    el['key-form'].hidden = true;
    el.board.hidden = el.leave.hidden = false;
    tab.set(key);
    showAll();
    if (el.notice.dataset.offline) notice('');
    delete el.notice.dataset.offline;
    if (status.draining) notice(t('adminDraining'));
  } catch (error) {
    if (used !== key) return;
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      askKey(t('adminKeyWrong', { why: error.message }));
      return;
    }
    el.notice.dataset.offline = 'yes';
    if (shown.status === null) el['key-wrong'].textContent = t('adminOffline', { why: error.message });
    notice(t('adminOffline', { why: error.message }), true);
  }
  again();
}

function again() {
  clearTimeout(timer);
  if (key !== null && document.visibilityState === 'visible') timer = setTimeout(look, LOOK_MS);
}

// ---- the key ----

function askKey(why = '') {
  clearTimeout(timer);
  key = null;
  tab.set(null);
  shown = { status: null, streams: null, history: null, log: null, variants: null };
  lastHistory = -Infinity;
  el.board.hidden = el.leave.hidden = true;
  el['key-form'].hidden = false;
  el['key-wrong'].textContent = why;
  el['key-input'].value = '';
  el['key-input'].focus();
}

function useKey(text) {
  if (!isKey(text)) {
    el['key-wrong'].textContent = t('adminKeyForm');
    return;
  }
  key = text;
  look();
}

// ---- actions ----

function confirm(title, text, yes) {
  el['ask-title'].textContent = title;
  el['ask-text'].textContent = text;
  el['ask-yes'].textContent = yes;
  el.ask.returnValue = 'no';
  el.ask.showModal();
  el['ask-no'].focus();
  return new Promise((done) => el.ask.addEventListener('close', () => done(el.ask.returnValue === 'yes'), { once: true }));
}

async function act(path, method, body, done) {
  try {
    await call(path, method, body);
    notice(done);
  } catch (error) {
    notice(error instanceof Refused ? error.message : t('adminOffline', { why: error.message }), true);
  }
  clearTimeout(timer);
  look();
}

async function cancel(id) {
  if (await confirm(t('adminCancelAsk'), t('adminCancelText', { id }), t('adminYes'))) {
    try {
      await call(`streams/${encodeURIComponent(id)}`, 'DELETE');
      notice(t('adminCancelled', { id }));
    } catch (error) {
      notice(error instanceof Refused && error.status === 404 ? t('adminGone', { id }) : error.message, true);
    }
    clearTimeout(timer);
    look();
  }
}

const setLevel = (name, level) => act('log', 'POST', { levels: { [name]: level } }, t('adminLevelSet', { name, level }));

// ---- the frame ----

function showTheme() {
  const [, picture, word] = THEMES.find(([name]) => name === (pref.get('theme') ?? 'auto')) ?? THEMES[0];
  el.theme.replaceChildren(icon(picture));
  el.theme.setAttribute('aria-label', t(word));
  el.theme.title = t(word);
}

function speak(name) {
  setLanguage(name);
  translatePage(document);
  document.title = `Sluice · ${t('admin')}`;
  showTheme();
  showAll();
}

el.theme.addEventListener('click', () => {
  const at = THEMES.findIndex(([name]) => name === (pref.get('theme') ?? 'auto'));
  const next = THEMES[(at + 1) % THEMES.length][0];
  pref.set('theme', next === 'auto' ? null : next);
  dispatchEvent(new Event('sluice-theme'));
  showTheme();
});
el.language.addEventListener('click', () => {
  const next = language() === 'en' ? 'ko' : 'en';
  pref.set('language', next);
  speak(next);
});
el.leave.addEventListener('click', () => askKey());
el['key-form'].addEventListener('submit', (event) => {
  event.preventDefault();
  useKey(el['key-input'].value.trim());
});
el.reload.addEventListener('click', async () => {
  if (await confirm(t('adminReloadAsk'), t('adminReloadText'), t('adminReload'))) act('reload', 'POST', undefined, t('adminReloaded'));
});
el.drain.addEventListener('click', async () => {
  if (await confirm(t('adminDrainAsk'), t('adminDrainText'), t('adminDrain'))) act('drain', 'POST', undefined, t('adminDraining'));
});
el.flight.addEventListener('click', () => act('flight', 'POST', undefined, t('adminFlightDone')));
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible' && key !== null) look();
});

speak(pickLanguage(pref.get('language'), navigator.languages));
const given = keysOfFragment(location.hash).find((k) => k.name === 'admin')?.key ?? tab.get();
if (location.hash !== '') history.replaceState(null, '', location.pathname);
if (given !== null && isKey(given)) useKey(given);
else askKey();
