// SPDX-License-Identifier: Apache-2.0
// The part of JSON Schema that openapi.json uses, and stricter: an object that tells its properties has no others.

const kind = (v) => (v === null ? 'null' : Array.isArray(v) ? 'array' : Number.isInteger(v) ? 'integer' : typeof v);
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** What is wrong with a value, as a list of "path: what"; doc: where references point into. */
export function violations(doc, schema, v, at = '$') {
  if (schema.$ref) return violations(doc, schema.$ref.slice(2).split('/').reduce((o, k) => o[k], doc), v, at);
  const bad = [];
  const types = [schema.type ?? []].flat();
  if (types.length && !types.includes(kind(v)) && !(kind(v) === 'integer' && types.includes('number')))
    return [`${at}: ${kind(v)}, not ${types.join(' or ')}`];
  if ('const' in schema && !same(schema.const, v)) bad.push(`${at}: ${JSON.stringify(v)}, not ${JSON.stringify(schema.const)}`);
  if (schema.enum && !schema.enum.some((e) => same(e, v))) bad.push(`${at}: ${JSON.stringify(v)} is not listed`);
  if (v < schema.minimum || v > schema.maximum) bad.push(`${at}: ${v} is outside`);
  if (schema.oneOf) {
    const each = schema.oneOf.map((s) => violations(doc, s, v, at));
    if (each.filter((b) => b.length === 0).length !== 1) bad.push(`${at}: none or several fit: ${each.flat().join('; ')}`);
  }
  if (kind(v) === 'array' && schema.items) v.forEach((e, i) => bad.push(...violations(doc, schema.items, e, `${at}[${i}]`)));
  if (kind(v) !== 'object') return bad;
  for (const key of schema.required ?? []) if (!(key in v)) bad.push(`${at}: no ${key}`);
  for (const [key, value] of Object.entries(v)) {
    const own = schema.properties?.[key] ?? schema.additionalProperties;
    if (typeof own === 'object') bad.push(...violations(doc, own, value, `${at}.${key}`));
    else if (schema.properties && !own) bad.push(`${at}: ${key} is not told`);
  }
  return bad;
}
