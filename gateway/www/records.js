// What a conversation is made of, as records: messages with their order and the rule for which of two states of one is newer. Whatever
// is read back, from the browser's storage, a file or a server, is checked here field by field.
//
// A message has a `parent`, the message it follows ('' for none), and is an `alt` where it is another version of what
// already follows that one; branches.js makes the conversation shown out of these. One that `joins` continues its parent's text.

import { cleanOptions } from './options.js';

const ID = /^[0-9a-z]{1,40}$/;
export const LIMITS = {
  chats: 1000, totalChars: 4_500_000, messageChars: 400_000, messages: 1000, titleChars: 80, files: 8, fileChars: 300_000, fileNameChars: 120, draftChars: 100_000,
};
/** Where messages are in an archive; hotChars: from then on it takes of what localStorage holds, down to half of that. */
export const ATTIC_LIMITS = { chats: 4000, totalChars: 100_000_000, hotChars: 2_000_000 };
const ENDS = new Set(['stop', 'length', 'content_filter', 'tool_calls', 'stopped', 'lost', 'gone', 'error']);
const BROKEN = new Set(['lost', 'gone', 'error']);
const ELSEWHERE_MS = 120_000; // an answer without a stream that began longer ago was lost with its tab

export const isId = (v) => typeof v === 'string' && ID.test(v);
export const isChatId = (v) => typeof v === 'string' && /^[0-9a-f]{4,40}$/.test(v);

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

/** The ids of a question and its answer, and when they were made: behind all that the conversation has. */
export function newTurn(messages, now = Date.now()) {
  const id = newId();
  return { question: `${id}q`, answer: `${id}r`, at: Math.max(now, (messages.at(-1)?.at ?? 0) + 1) };
}

export const isTime = (v) => Number.isFinite(v) && v >= 0 && v <= 8.64e15; // what a Date can be
const number = (v) => (Number.isFinite(v) ? v : null);

/** Text files that go with a question. */
export function cleanFiles(raw) {
  const files = [];
  let chars = 0;
  for (const f of Array.isArray(raw) ? raw.slice(0, LIMITS.files) : []) {
    if (typeof f?.name !== 'string' || f.name === '' || typeof f.text !== 'string' || (chars += f.text.length) > LIMITS.fileChars) continue;
    files.push({ name: f.name.slice(0, LIMITS.fileNameChars), text: f.text });
  }
  return files;
}

/** The version chosen at each fork: {id of what it follows, or 'root': id of the message}. */
export function cleanPicks(raw) {
  const picks = {};
  for (const [at, id] of Object.entries(raw !== null && typeof raw === 'object' ? raw : {}).slice(0, LIMITS.messages)) {
    if (isId(at) && isId(id)) picks[at] = id;
  }
  return picks;
}

/** An answer that was under way: its stream on the server, the name of the key it was asked with, and its times. */
function cleanStream(raw) {
  if (raw === null || typeof raw !== 'object' || typeof raw.id !== 'string' || !/^[\x21-\x7e]{1,200}$/.test(raw.id)) return null;
  return { id: raw.id, key: typeof raw.key === 'string' ? raw.key : '', sentAt: number(raw.sentAt) ?? 0, firstAt: number(raw.firstAt) ?? 0,
    ...(Array.isArray(raw.before) && raw.before.length === 3 && raw.before.every(isTime) && { before: raw.before }) };
}

export function cleanMessage(raw, id, at, now = Date.now()) {
  if (raw === null || typeof raw !== 'object') return null;
  if ((raw.role !== 'user' && raw.role !== 'assistant') || typeof raw.text !== 'string') return null;
  const m = { id, at: isTime(raw.at) ? raw.at : at, role: raw.role, text: raw.text.slice(0, LIMITS.messageChars) };
  if (raw.parent === '' || isId(raw.parent)) m.parent = raw.parent;
  if (raw.alt === true) m.alt = true;
  if (m.role === 'user') {
    const files = cleanFiles(raw.files);
    if (files.length > 0) m.files = files;
    if (raw.unsent === true) m.unsent = true;
    return m;
  }
  m.model = typeof raw.model === 'string' ? raw.model.slice(0, 200) : '';
  if (typeof raw.asked === 'string' && raw.asked && raw.asked !== m.model) m.asked = raw.asked.slice(0, 200);
  if (raw.joins === true && m.parent) m.joins = true;
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

/** A message of a record, as it was when it was written; null where the record is none. */
export function messageOfText(text, id) {
  let raw = null;
  try { raw = JSON.parse(text); } catch { /* none then */ }
  return cleanMessage(raw, id, 0, raw?.at);
}

/** The order of a conversation's messages, the same in every tab. */
export const byTime = (a, b) => a.at - b.at || (a.id < b.id ? -1 : 1);

/** As it is kept: what is longer is cut when it is read, too. */
export const kept = (m) => (m.text.length > LIMITS.messageChars ? { ...m, text: m.text.slice(0, LIMITS.messageChars) } : m);

/** Whether `a` says more than `b`, another state of the same message. */
export function isNewer(a, b) {
  if (a.role === 'user') return Boolean(a.unsent) !== Boolean(b.unsent);
  // Of an answer that was stopped the server tells others that it has ended: the tab that stopped it knows better.
  // One that has called tools may go on in the tab that computes them.
  const rank = (m) => (m.end === null ? 0 : BROKEN.has(m.end) ? 1 : m.end === 'tool_calls' ? 2 : m.end === 'stopped' ? 4 : 3);
  const length = (m) => m.text.length + (m.reasoning?.length ?? 0) + (m.calls?.length ?? 0);
  if (rank(a) !== rank(b)) return rank(a) > rank(b);
  return rank(a) < 3 && (length(a) > length(b) || (length(a) === length(b) && Boolean(a.stream) && !b.stream));
}

/** Whether a message's record says more than the one there is (undefined: there is none). */
export function saysMore(text, known, id) {
  const a = messageOfText(text, id);
  if (a === null || known === undefined) return a !== null;
  const b = messageOfText(known, id);
  return b === null || isNewer(a, b);
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

/** A conversation from a file or a server, its members in the order they are written in; null where it is none. */
export function cleanChat(raw) {
  if (raw === null || typeof raw !== 'object' || !isChatId(raw.id) || !Array.isArray(raw.messages)) return null;
  const messages = new Map();
  for (const m of raw.messages.slice(-LIMITS.messages)) {
    const clean = isId(m?.id) ? cleanMessage(m, m.id, 0, Infinity) : null;
    if (clean === null) continue;
    delete clean.stream; // an answer under way stays with its browser
    if (clean.end === null) clean.end = 'lost';
    messages.set(clean.id, clean);
  }
  if (messages.size === 0) return null;
  const options = cleanOptions(raw.options);
  const picks = cleanPicks(raw.picks);
  return {
    id: raw.id, title: typeof raw.title === 'string' ? raw.title.slice(0, LIMITS.titleChars) : '', titled: isTime(raw.titled) ? raw.titled : 0,
    created: isTime(raw.created) ? raw.created : 0, updated: isTime(raw.updated) ? raw.updated : 0,
    ...(Object.keys(options).length > 0 && { options }), ...(Object.keys(picks).length > 0 && { picks }),
    messages: [...messages.values()].sort(byTime),
  };
}
