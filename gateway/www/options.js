// The options of a conversation: the system prompt, the model, how tokens are drawn and what an answer looks like. Only what is
// set is kept and sent.

const NUMBERS = { // name → [least, most, whole]
  temperature: [0, 2, false], top_p: [0.000001, 1, false], max_tokens: [1, 1_000_000, true], seed: [-(2 ** 53) + 1, 2 ** 53 - 1, true],
};
const SYSTEM_CHARS = 50_000;
const SCHEMA_CHARS = 50_000;
const STOPS = 4;
const STOP_CHARS = 60; // of up to four bytes each; the server takes 256 bytes

export const OPTION_LIMITS = { SYSTEM_CHARS, SCHEMA_CHARS, STOPS, STOP_CHARS };

/** Whether a number is allowed for that option. */
export function isAllowed(name, value) {
  const [least, most, whole] = NUMBERS[name];
  return typeof value === 'number' && value >= least && value <= most && (!whole || Number.isSafeInteger(value));
}

/** Whether a text is a JSON Schema as far as the page looks: an object. */
export function isSchema(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

/** What may be kept of `raw`, in a fixed order; {} for nothing. */
export function cleanOptions(raw) {
  const o = {};
  if (raw === null || typeof raw !== 'object') return o;
  if (typeof raw.system === 'string' && raw.system.trim()) o.system = raw.system.slice(0, SYSTEM_CHARS);
  if (typeof raw.model === 'string' && raw.model) o.model = raw.model.slice(0, 200);
  for (const name of Object.keys(NUMBERS)) if (isAllowed(name, raw[name])) o[name] = raw[name];
  const stop = (Array.isArray(raw.stop) ? raw.stop : []).filter((s) => typeof s === 'string' && s !== '' && s.length <= STOP_CHARS).slice(0, STOPS);
  if (stop.length > 0) o.stop = stop;
  if (typeof raw.schema === 'string' && raw.schema.length <= SCHEMA_CHARS && isSchema(raw.schema)) o.schema = raw.schema;
  if (typeof raw.server === 'string' && /^conv_[\w-]{1,100}$/.test(raw.server)) o.server = raw.server;
  return o;
}

/** The members of a request that the options set, but for model and system prompt. */
export function requestOf(options = {}) {
  const body = {};
  for (const name of Object.keys(NUMBERS)) if (options[name] !== undefined) body[name] = options[name];
  if (options.stop) body.stop = options.stop;
  if (options.schema) body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: JSON.parse(options.schema) } };
  return body;
}
