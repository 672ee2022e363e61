// Texts for the page's tests: what tries to script the page, and random mixtures of Markdown's marks.

export const SCRIPTS = [
  '<script>window.hacked=1</script>',
  '<img src=x onerror="window.hacked=1">',
  '<svg/onload=window.hacked=1>',
  '<iframe src="javascript:parent.hacked=1"></iframe>',
  '<a href="javascript:window.hacked=1">x</a>',
  '[x](javascript:window.hacked=1)',
  '[x](JaVaScRiPt:window.hacked=1)',
  '[x](java\nscript:window.hacked=1)',
  '[x](java&#115;cript:window.hacked=1)',
  '[x](&#x6A;avascript:window.hacked=1)',
  '[x](\u0001javascript:window.hacked=1)',
  '[x](data:text/html,<script>window.hacked=1</script>)',
  '[x](vbscript:msgbox(1))',
  '[x](//evil.example/)',
  '[x](/v1/models)',
  '[x](blob:https://e.org/1)',
  '[x](view-source:https://e.org)',
  '[x](https:javascript:window.hacked=1)',
  '[x](<javascript:window.hacked=1>)',
  '<javascript:window.hacked=1>',
  '![x](javascript:window.hacked=1)',
  '![x](https://e.org/"onerror="window.hacked=1)',
  '[x](https://e.org/" onmouseover="window.hacked=1)',
  "[x](https://e.org 'onclick=window.hacked=1')",
  '[<img src=x onerror=window.hacked=1>](https://e.org)',
  '`<img src=x onerror=window.hacked=1>`',
  '```"><img src=x onerror=window.hacked=1>\n</code></pre><script>window.hacked=1</script>\n```',
  '```html\n<script>window.hacked=1</script>\n```',
  '| <script>window.hacked=1</script> | b |\n|---|---|\n| <img src=x onerror=window.hacked=1> | c |',
  '# <script>window.hacked=1</script>',
  '> <script>window.hacked=1</script>',
  '- <script>window.hacked=1</script>',
  '&lt;script&gt;window.hacked=1&lt;/script&gt;',
  '&#60;img src=x onerror=window.hacked=1&#62;',
  '<style>*{display:none}</style><link rel=stylesheet href=//evil.example>',
  '<base href="https://evil.example/"><form action=//evil.example><button>go</button></form>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">',
  '[a]: javascript:window.hacked=1\n\n[a]',
  '{{constructor.constructor("window.hacked=1")()}}',
  '__proto__ **constructor** `toString`',
];

/** A small generator of numbers that are the same in every run. */
export function random(seed) {
  let s = seed >>> 0;
  return (n) => {
    s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
    return Math.floor((s / 2 ** 32) * n);
  };
}

const BITS = ['*', '**', '_', '~~', '`', '``', '```', '[', ']', '](', '(', ')', '!', '![', '<', '>', '\n', '\n\n', '\n- ', '\n  - ', '\n1. ', '\n> ',
  '\n# ', '|', '\n|-|-|\n', '\\', '&', '&amp;', ' ', '  ', 'a', 'word ', '가', 'https://e.org', 'javascript:', '<script>', '"', "'", '---', '\n---\n', '\t', '\r\n', '- [ ] '];

export function jumble(rnd, n) {
  let s = '';
  for (let i = 0; i < n; i++) s += BITS[rnd(BITS.length)];
  return s;
}
