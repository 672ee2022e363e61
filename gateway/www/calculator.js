// The tool that the page offers to models, where the user wants it: arithmetic, computed here. Bounded and free of eval.

export const CALCULATOR = { type: 'function', function: { name: 'calculate', description: 'Computes an expression',
  parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] } } };

const MOST_CHARS = 500;
const DEEPEST = 50;

/** The value of decimal numbers with + - * / ^ and parentheses. Throws on anything else. */
export function calculate(text) {
  if (typeof text !== 'string' || text.length > MOST_CHARS) throw new Error('not an expression');
  const parts = text.replace(/[×·]/g, '*').replace(/÷/g, '/').replace(/−/g, '-').match(/\d+(?:\.\d+)?|\S/g) ?? [];
  let at = 0, depth = 0;
  const atom = () => {
    const part = parts[at++];
    if (++depth > DEEPEST) throw new Error('nested too deeply');
    let value;
    if (part === '-') value = -power();
    else if (part === '(') {
      value = sum();
      if (parts[at++] !== ')') throw new Error('a parenthesis is not closed');
    } else if (/^\d/.test(part)) value = Number(part);
    else throw new Error(part === undefined ? 'something is missing' : `unexpected ${part}`);
    depth--;
    return value;
  };
  const power = () => {
    const base = atom();
    return parts[at] === '^' ? (at++, base ** atom()) : base;
  };
  const row = (of, signs) => () => {
    let value = of();
    while (parts[at] in signs) value = signs[parts[at++]](value, of());
    return value;
  };
  const product = row(power, { __proto__: null, '*': (a, b) => a * b, '/': (a, b) => a / b });
  const sum = row(product, { __proto__: null, '+': (a, b) => a + b, '-': (a, b) => a - b });
  const value = sum();
  if (at < parts.length) throw new Error(`unexpected ${parts[at]}`);
  if (!Number.isFinite(value)) throw new Error('no finite number');
  return Number(value.toPrecision(12));
}

/** What a call of a model gives, as the text that goes back to it. */
export function resultOf(name, args) {
  try {
    if (name !== CALCULATOR.function.name) throw new Error('no such tool');
    return String(calculate(JSON.parse(args).expression));
  } catch (error) {
    return JSON.stringify({ error: error.message });
  }
}
