// Colours for code: a small lexer that knows comments, strings, numbers and keywords of the common languages.
// Every branch of the pattern takes at least one character and never fails after a long match, so it is linear.

const words = (s) => new Set(s.split(' '));

const C_WORDS = words('as async auto await bool boolean break byte case catch chan char class const constexpr continue default '
  + 'defer delete do double else enum export extends extern false final float fn for func function go goto if impl implements '
  + 'import in inline int interface let long map match mod mut namespace new nil null nullptr package private protected pub '
  + 'public range register restrict return self short signed sizeof static string struct super switch template this throw '
  + 'throws trait true try type typedef typename typeof undefined union unsigned use using var virtual void volatile where '
  + 'while yield size_t ssize_t uint8_t uint16_t uint32_t uint64_t int32_t int64_t i32 i64 u8 u32 u64 usize f32 f64 '
  + '#include #define #if #ifdef #ifndef #else #endif #pragma');
const HASH_WORDS = words('and as assert async await break case class continue def del do done elif else end esac except export '
  + 'false False fi finally for from function global if import in is lambda local nil none None nonlocal not null or pass '
  + 'raise return self then true True try unless until while with yield');
const SQL_WORDS = words('all alter and as asc between by case create delete desc distinct drop else end exists from group having '
  + 'in index inner insert into is join key left like limit not null on or order outer primary references right select set '
  + 'table then union unique update values view when where with');

const STRINGS = '"(?:[^"\\\\\\n]|\\\\[^])*"?|\'(?:[^\'\\\\\\n]|\\\\[^])*\'?';
const NUMBER = '\\b(?:0[xX][0-9a-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)[a-zA-Z]{0,4}';
const WORD = '#?[A-Za-z_$][\\w$]*';
const REST = '\\s+|[^]';
const lexer = (comment, strings) => new RegExp(`(${comment})|(${strings})|(${NUMBER})|(${WORD})|(?:${REST})`, 'y');

const FAMILIES = {
  c: { re: lexer('\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)', `${STRINGS}|\`(?:[^\`\\\\]|\\\\[^])*\`?|<[\\w/.]{1,60}\\.h(?:pp)?>`), words: C_WORDS },
  hash: { re: lexer('#[^\\n]*', `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${STRINGS}`), words: HASH_WORDS },
  sql: { re: lexer('--[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)', STRINGS), words: SQL_WORDS, fold: true },
  xml: { re: lexer('<!--[^]*?(?:-->|$)', STRINGS), words: new Set(), tags: true },
};

const LANGUAGES = {
  c: 'c h cpp cc cxx hpp c++ cuda cu java js javascript mjs jsx ts typescript tsx go rust rs kotlin kt swift cs csharp php '
    + 'scala dart zig css scss json json5 jsonc glsl proto',
  hash: 'py python sh bash shell zsh console yaml yml toml ini rb ruby make makefile dockerfile r perl conf nginx cmake elixir',
  sql: 'sql sqlite psql mysql plsql',
  xml: 'html xml svg vue xhtml',
};
const FAMILY_OF = new Map(Object.entries(LANGUAGES).flatMap(([f, names]) => names.split(' ').map((n) => [n, f])));
const KINDS = ['comment', 'string', 'number'];

export const canColour = (lang) => FAMILY_OF.has(lang.toLowerCase());

/** [{k, v}]: k is comment, string, number, keyword, name (a call) or '' for the rest. */
export function tokens(source, lang) {
  const family = FAMILIES[FAMILY_OF.get(lang.toLowerCase())];
  if (!family) return [{ k: '', v: source }];
  const out = [];
  const re = family.re;
  re.lastIndex = 0;
  const push = (k, v) => {
    const last = out[out.length - 1];
    if (last && last.k === k) last.v += v;
    else out.push({ k, v });
  };
  for (let m; re.lastIndex < source.length && (m = re.exec(source)) !== null;) {
    let k = '';
    const group = m[1] !== undefined ? 0 : m[2] !== undefined ? 1 : m[3] !== undefined ? 2 : m[4] !== undefined ? 3 : -1;
    if (group >= 0 && group < 3) k = KINDS[group];
    else if (group === 3) {
      const before = source[m.index - 1];
      if (family.tags) k = before === '<' || before === '/' ? 'keyword' : '';
      else if (family.words.has(family.fold ? m[4].toLowerCase() : m[4])) k = 'keyword';
      else if (source[re.lastIndex] === '(') k = 'name';
    }
    push(k, m[0]);
  }
  return out;
}
