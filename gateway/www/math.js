// Formulas: TeX as a tree of MathML elements from a fixed list, by the Temml library (vendor/).
//
// The library is loaded when the first formula appears. Its result is not trusted: only the elements and attributes
// named here are taken over, and its inline styles, which the page's policy forbids, become classes or are left out.
//
// Bounds: MathFinder limits a formula's length, LIMITS what it may become. Definitions (\def, \newcommand) are refused,
// because an argument that is copied by each of them grows without a bound that the library would count.

const LIMITS = { nodes: 12_000, depth: 90, braces: 12 };
const CACHE_SIZE = 300;

const ELEMENTS = new Set(('math mrow mi mn mo mtext mspace ms mfrac msqrt mroot msup msub msubsup munder mover munderover mtable mtr mtd '
  + 'mstyle mpadded mphantom mmultiscripts mprescripts none').split(' '));
const REFUSED = new Set(('\\def \\gdef \\edef \\xdef \\let \\futurelet \\global \\long \\newcommand \\renewcommand \\providecommand '
  + '\\href \\url \\includegraphics \\class \\id \\data \\style \\htmlClass \\htmlId \\htmlStyle \\htmlData '
  + '\\llap \\mathllap \\cancelto \\equilibriumRight \\equilibriumLeft').split(' ')); // these five build their argument twice

const FLAG = /^(?:true|false)$/;
const LENGTH = /^([+-]?\d{1,3}(?:\.\d{1,4})?)(em|ex|pt|px|mu)?$/;
const COLOUR = /^(?:#[0-9a-f]{3,8}|[a-z]{3,20})$/i;
const ATTRIBUTES = {
  display: /^block$/, displaystyle: FLAG, scriptlevel: /^[+-]?\d$/, mathvariant: /^normal$/, stretchy: FLAG, fence: FLAG, symmetric: FLAG,
  separator: FLAG, largeop: FLAG, movablelimits: FLAG, accent: FLAG, accentunder: FLAG, form: /^(?:prefix|infix|postfix)$/,
  mathcolor: COLOUR, mathbackground: COLOUR,
};
// Marks that reorder the text around them.
const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const LENGTHS = new Set(['width', 'height', 'depth', 'voffset', 'lspace', 'rspace', 'minsize', 'maxsize', 'linethickness', 'mathsize']);
const EM_OF = { em: 1, ex: 0.45, pt: 0.09, px: 0.07, mu: 0.056 };
const NOTATIONS = { top: 'm-top', bottom: 'm-bottom', box: 'm-box', longdiv: 'm-top', updiagonalstrike: 'm-strike', downdiagonalstrike: 'm-strike', horizontalstrike: 'm-strike' };
const CLASSES = { 'tml-left': 'm-left', 'tml-right': 'm-right', 'tml-tag': 'm-tag', 'tml-overline': 'm-top', 'tml-underline': 'm-bottom', 'tml-fbox': 'm-box', sout: 'm-strike' };

// ---- from the library's tree to ours --------------------------------------------------------------------------------

/** Whether a length may stand as it is: none moves a formula over the text around it. */
function isModest(name, value) {
  const m = LENGTH.exec(value);
  if (!m) return false;
  const em = Number(m[1]) * (EM_OF[m[2]] ?? 1);
  return em <= 20 && em >= (name === 'voffset' ? -3 : 0);
}

function attributesOf(node) {
  const out = {};
  const given = { ...node.attributes };
  if (node.style?.color) given.mathcolor ??= node.style.color;
  if (node.style?.backgroundColor) given.mathbackground ??= node.style.backgroundColor;
  for (const [name, value] of Object.entries(given)) {
    const text = String(value);
    if (LENGTHS.has(name)) {
      if (isModest(name, text)) out[name] = text;
    } else if (Object.hasOwn(ATTRIBUTES, name) && ATTRIBUTES[name].test(text)) {
      out[name] = text;
    }
  }
  return out;
}

function classesOf(node) {
  const out = new Set();
  for (const name of node.classes ?? []) if (Object.hasOwn(CLASSES, name)) out.add(CLASSES[name]);
  for (const name of String(node.attributes?.notation ?? '').split(' ')) if (Object.hasOwn(NOTATIONS, name)) out.add(NOTATIONS[name]);
  const { paddingLeft, paddingRight, borderBottom, borderTop, borderLeft, borderRight, border } = node.style ?? {};
  if (paddingLeft && parseFloat(paddingLeft) === 0) out.add('m-l0');
  if (paddingRight && parseFloat(paddingRight) === 0) out.add('m-r0');
  if (borderBottom) out.add('m-bottom');
  if (borderTop) out.add('m-top');
  if (borderLeft) out.add('m-line-left');
  if (borderRight) out.add('m-line-right');
  if (border) out.add('m-box');
  return [...out].join(' ');
}

/** {tag, attrs, cls, text, c}: what render.js makes an element of. */
function convert(node, budget, depth) {
  if (++budget.nodes > LIMITS.nodes || depth > LIMITS.depth) throw new RangeError('the formula is too large');
  const text = typeof node.text === 'string' ? node.text : null;
  if (text !== null && !node.type) return { tag: null, text: text.replace(BIDI, '') };
  const children = (node.children ?? []).map((child) => convert(child, budget, depth + 1)).flatMap((n) => (n.tag === '' ? n.c : [n]));
  if (!node.type) return { tag: '', c: children };
  const tag = ELEMENTS.has(node.type) ? node.type : 'mrow';
  return { tag, attrs: attributesOf(node), cls: classesOf(node), c: children };
}

/** Text directly within a container would not be MathML. */
function wrapTexts(node) {
  if (!node.c) return node;
  const leaf = ['mi', 'mn', 'mo', 'mtext', 'ms'].includes(node.tag);
  node.c = node.c.map((child) => (child.tag === null && !leaf ? { tag: 'mtext', attrs: {}, cls: '', c: [child] } : wrapTexts(child)));
  return node;
}

/**
 * Whether the source is refused unread, for a control word or for braces too deep: what builds an argument twice doubles
 * with each level. Read as TeX does, so that `\\\\def` is a line break and letters.
 */
function isRefused(source) {
  let depth = 0;
  for (const token of source.match(/\\(?:[A-Za-z@]+|[^])|[{}]/g) ?? []) {
    if (REFUSED.has(token)) return true;
    if (token === '{' && ++depth > LIMITS.braces) return true;
    if (token === '}') depth--;
  }
  return false;
}

// The library takes these only as displayed formulas; models write them within lines too.
const DISPLAYED = /\\begin\{(?:align|alignat|gather|equation|multline|CD)\*?\}/;

/** The formula as a tree, or null when the library refuses it or it grows beyond its bounds. */
export function treeWith(temml, source, display) {
  if (isRefused(source)) return null;
  try {
    const options = { displayMode: display || DISPLAYED.test(source), throwOnError: true, annotate: false, trust: false, strict: false, maxExpand: 200, maxSize: [20, 20] };
    const tree = wrapTexts(convert(temml.__renderToMathMLTree(source, options), { nodes: 0 }, 0));
    return tree.tag === 'math' ? tree : null;
  } catch {
    return null; // a formula that is wrong, or that overflowed the stack
  }
}

// ---- the library, and what it made ----------------------------------------------------------------------------------

let library = null;
let loading = null;
const cache = new Map(); // a growing answer draws its last block again and again

export const isReady = () => library !== null;

/** Loads the library; false when it cannot be had now. */
export function loadLibrary() {
  loading ??= import('./vendor/temml.js').then((m) => { library = m.default; return true; }, () => { loading = null; return false; });
  return loading;
}

/** treeWith() the loaded library, remembered. */
export function mathTree(source, display) {
  const key = (display ? '$$' : '$') + source;
  if (cache.has(key)) return cache.get(key);
  if (cache.size >= CACHE_SIZE) cache.delete(cache.keys().next().value);
  const tree = treeWith(library, source, display);
  cache.set(key, tree);
  return tree;
}
