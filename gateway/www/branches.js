// The conversation shown, out of its messages. They are a tree: an edit or another answer is one more version (`alt`) of what
// follows a message, and nothing is taken out. At each fork one version is shown: the one that was picked, else the latest.
//
// Two tabs may add to one conversation at once, without being versions of each other: what came later then follows
// the other. So messages that are no `alt` have one line, in the order of their times, whoever wrote them. All of it
// depends on nothing but which messages there are, and every tab comes to the same.

/** {parents, next}: of each id the one before it, and the versions of what follows it, as messages. `messages`: by time. */
function treeOf(messages) {
  const parents = new Map();
  const next = new Map(); // id, or '' → {main, alts}
  const at = (id) => {
    if (!next.has(id)) next.set(id, { main: null, alts: [] });
    return next.get(id);
  };
  let before = '';
  for (const m of messages) {
    // What followed a message that is no longer there comes first. Parents are older, so there are no circles.
    let parent = m.parent === undefined ? before : parents.has(m.parent) ? m.parent : '';
    if (!m.alt) while (at(parent).main !== null) parent = at(parent).main.id;
    parents.set(m.id, parent);
    if (m.alt) at(parent).alts.push(m);
    else at(parent).main = m;
    before = m.id;
  }
  return { parents, next };
}

/**
 * [{message, parent, versions, at}]: what is shown, and of each message the ids of all versions and which of them it is.
 * picks: as records.js' cleanPicks() makes them.
 */
export function pathOf(messages, picks = {}) {
  const { next } = treeOf(messages);
  const path = [];
  for (let parent = ''; ;) {
    const { main, alts } = next.get(parent) ?? { main: null, alts: [] };
    const versions = main === null ? alts : [main, ...alts];
    if (versions.length === 0) return path;
    const picked = versions.findIndex((m) => m.id === picks[parent || 'root']);
    const at = picked < 0 ? versions.length - 1 : picked;
    const message = versions[at];
    path.push({ message, parent, versions: versions.map((m) => m.id), at });
    parent = message.id;
  }
}

/** The picks that bring a message on screen: [parent, id] of each message from it up to the first. */
export function picksTo(messages, id) {
  const { parents } = treeOf(messages);
  const picks = [];
  for (let at = id; parents.has(at); at = parents.get(at)) picks.push([parents.get(at), at]);
  return picks;
}

/** The path that a message is on, whatever is picked. */
export function pathWith(messages, picks, id) {
  const through = picksTo(messages, id).map(([parent, version]) => [parent || 'root', version]);
  return pathOf(messages, { ...picks, ...Object.fromEntries(through) });
}

/** The path with answers joined to what they continue: entries of pathOf() with `before`, the messages that come before the last one. */
export function joined(path) {
  const shown = [];
  for (const entry of path) {
    const last = shown.at(-1);
    if (entry.message.joins && last?.message.role === 'assistant') shown[shown.length - 1] = { ...last, message: entry.message, before: [...last.before, last.message] };
    else shown.push({ ...entry, before: [] });
  }
  return shown;
}

/** A question as the API takes it: a text, or parts where files go with it. */
function contentOf({ text, files }) {
  if (!files) return text;
  const parts = files.map((f) => ({ type: 'text', text: `File: ${f.name}\n\n${f.text}` }));
  return text === '' ? parts : [...parts, { type: 'text', text }];
}

const partsOf = (content) => (typeof content === 'string' ? [{ type: 'text', text: content }] : content);

/**
 * The messages to send. Questions without an answer are joined, since chat templates require alternating roles. Messages
 * that the server has refused are left out: they would fail the whole request.
 */
export function turnsOf(path, system = '') {
  const sent = system ? [{ role: 'system', content: system }] : [];
  for (const { message } of path) {
    const { role, text, files, unsent, joins } = message;
    if ((text === '' && !files) || unsent) continue;
    const last = sent.at(-1);
    const content = contentOf(message);
    if (last?.role !== role) sent.push({ role, content });
    else if (typeof last.content === 'string' && typeof content === 'string') last.content += joins ? content : `\n\n${content}`;
    else last.content = [...partsOf(last.content), ...partsOf(content)];
  }
  return sent;
}

/** What a conversation is called that begins with this text. */
export function titleOf(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= 60 ? line : `${[...line.slice(0, 60)].slice(0, -1).join('').trimEnd()}…`;
}
