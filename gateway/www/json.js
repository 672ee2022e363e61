// JSON texts, laid out anew. Values are kept as they are written: numbers that JavaScript would round, and members that come twice.

const MAX_CHARS = 400_000;
const MAX_DEPTH = 100;
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

/** An object or array as indented lines; null where the text is none. */
export function prettyJson(text) {
  const source = text.trim();
  if (source.length > MAX_CHARS || !/^[{[]/.test(source)) return null;
  try { JSON.parse(source); } catch { return null; }
  const tokens = source.match(TOKENS);
  const out = [];
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  let deepest = 0;
  for (const token of tokens) {
    if (token === '{' || token === '[') deepest = Math.max(deepest, ++depth);
    else if (token === '}' || token === ']') depth--;
  }
  if (deepest > MAX_DEPTH) return null; // its indents would be longer than the text, squared
  tokens.forEach((token, i) => {
    const opens = token === '{' || token === '[';
    const closes = token === '}' || token === ']';
    if (closes) depth--;
    if (closes && !'{['.includes(tokens[i - 1])) out.push(line());
    out.push(token);
    if (opens) depth++;
    if (opens && !'}]'.includes(tokens[i + 1])) out.push(line());
    if (token === ',') out.push(line());
    if (token === ':') out.push(' ');
  });
  return out.join('');
}
