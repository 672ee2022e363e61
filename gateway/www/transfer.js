// Conversations as a file, out of the browser and into it. What is exported, imported into an empty browser and exported again
// is the same to the byte. A file is checked field by field as the browser's own records are.

import { cleanChat } from './records.js';

const FORMAT = 'sluice-chats';
export const MAX_FILE_BYTES = 64 << 20;
const MAX_CHATS = 10_000;

/** The file of the conversations with these ids; of all without. */
export function exportText(store, ids = store.list().map((c) => c.id)) {
  const chats = ids.map((id) => cleanChat(store.whole(id))).filter((c) => c !== null);
  chats.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  return `${JSON.stringify({ format: FORMAT, version: 1, chats }, null, 1)}\n`;
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

/** Takes over what there is room for, the newest first. Returns the ids of those. */
export function importInto(store, chats) {
  const room = store.room();
  return [...chats].sort((a, b) => b.updated - a.updated).filter((c) => store.take(c, room)).map((c) => c.id);
}
