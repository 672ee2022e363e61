// Conversations as a file, out of the browser and into it. What is exported, imported into an empty browser and exported again
// is the same to the byte. A file is checked field by field as the browser's own records are.

import { cleanChat } from './records.js';

const FORMAT = 'sluice-chats';
export const MAX_FILE_BYTES = 384 << 20; // of more than the page keeps
const MAX_CHATS = 10_000;

const HEAD = `{\n "format": "${FORMAT}",\n "version": 1,\n "chats": [`;
const TAIL = '\n ]\n}';
const PIECE_CHARS = 1_000_000;

/**
 * The file of the conversations with these ids, of all without, in pieces: one string would be too long for some. Returns
 * how many of them are not whole, because the browser does not give what it has of them.
 */
export async function* exportPieces(store, ids) {
  const wanted = ids === undefined ? null : new Set(ids);
  const list = store.list().filter((c) => wanted === null || wanted.has(c.id)).sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  let missing = 0;
  let count = 0;
  let piece = HEAD;
  for (const { id } of list) {
    const whole = await store.whole(id);
    const chat = cleanChat(whole);
    if (whole?.missing) missing++;
    if (chat === null) continue;
    piece += `${count++ > 0 ? ',' : ''}${JSON.stringify({ format: FORMAT, version: 1, chats: [chat] }, null, 1).slice(HEAD.length, -TAIL.length)}`;
    if (piece.length < PIECE_CHARS) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}${count > 0 ? TAIL : ']\n}'}\n`;
  return missing;
}

/** {chats, wrong: how many were none}; null where the text is no such file. */
export function readExport(text) {
  let raw;
  try { raw = JSON.parse(text); } catch { return null; }
  if (raw?.format !== FORMAT || raw.version !== 1 || !Array.isArray(raw.chats)) return null;
  const given = raw.chats.slice(0, MAX_CHATS);
  const chats = given.map((c) => cleanChat(c)).filter((c) => c !== null);
  return { chats, wrong: raw.chats.length - chats.length };
}

/** Takes over what there is room for, the newest first. Resolves to the ids of those. */
export function importInto(store, chats) { return store.takeAll([...chats].sort((a, b) => b.updated - a.updated)); }
