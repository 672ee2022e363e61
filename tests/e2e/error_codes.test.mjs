// SPDX-License-Identifier: Apache-2.0
// Every error code that the gateway's source can send stands in etc/api.md with its status and in openapi.json, and no other.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from './harness.mjs';

// Where a code stands: which argument it is, and which the status. Errors of fields are 400, or 404 for what was not found.
const PLACES = [
  { open: /struct api_error\)\s*\{/g, code: 2, status: 0 },
  { open: /struct api_error \w+ = \{/g, code: 2, status: 0 },
  { open: /\bexchange_refuse\(/g, code: 2, status: 1 },
  { open: /\brefuse\(x, (?=\d)/g, code: 1, status: 0 },
  { open: /\brequest_bad\(/g, code: 1, of: [400, 404] },
  { open: /\bbad_field\(/g, code: 0, of: [400] },
  { open: /\breply_previous\(/g, code: 1, of: [400] },
];
const HANDED_ON = new Set(['NULL', 'code', 'e->code', 'e.code']); // by the functions above, which get it as a literal

/** The arguments from `at` on, behind the opening bracket. */
function argumentsAt(text, at) {
  const found = [''];
  let depth = 0;
  for (let quoted = false; at < text.length; at++) {
    const c = text[at];
    if (c === '\\' && quoted) { found[found.length - 1] += c + text[++at]; continue; }
    if (c === '"') quoted = !quoted;
    if (!quoted && '([{'.includes(c)) depth++;
    if (!quoted && ')]}'.includes(c) && depth-- === 0) break;
    if (!quoted && c === ',' && depth === 0) found.push('');
    else found[found.length - 1] += c;
  }
  return found.map((a) => a.trim());
}

function codesOfSource() {
  const codes = []; // {code, statuses: one of them, where}
  for (const file of readdirSync(join(ROOT, 'gateway'), { recursive: true }).filter((name) => name.endsWith('.c'))) {
    const text = readFileSync(join(ROOT, 'gateway', file), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
    for (const { open, code, status, of } of PLACES) {
      for (const m of text.matchAll(open)) {
        const given = argumentsAt(text, m.index + m[0].length);
        const where = `${file}: ${m[0]}${given.slice(0, 3).join(', ')}`;
        if (given[code]?.includes('const char *')) continue; // its definition
        const literals = given[code]?.match(/"[^"]*"/g) ?? [];
        assert.ok(literals.length > 0 || HANDED_ON.has(given[code]), `no literal: ${where}`);
        for (const literal of literals) codes.push({ code: literal.slice(1, -1), statuses: of ?? [Number(given[status])], where });
      }
    }
  }
  return [...codes, ...codesOfTransport()];
}

/** Codes of the transport's own errors: a row for each status. */
function codesOfTransport() {
  const text = readFileSync(join(ROOT, 'gateway/transport/http.c'), 'utf8');
  const codes = [...text.matchAll(/\bREJECTED\((\d+), "(\w+)"\)/g)]
    .map(([where, status, code]) => ({ code, statuses: [Number(status)], where: `http.c: ${where}` }));
  assert.ok(codes.length > 5);
  return codes;
}

function codesOfText() {
  const text = readFileSync(join(ROOT, 'etc/api.md'), 'utf8');
  const rows = text.slice(text.indexOf('\n| status | `code` |')).split('\n\n')[0].matchAll(/^\| ([\d, ]+) \| (.+?) \|/gm);
  const codes = new Map();
  for (const [, statuses, cell] of rows) {
    for (const [, code] of cell.matchAll(/`(\w+)`/g)) codes.set(code, [...(codes.get(code) ?? []), ...statuses.split(',').map(Number)]);
  }
  return codes;
}

test('every error code is documented with its status, and no other', () => {
  const source = codesOfSource();
  const told = codesOfText();
  assert.ok(source.length > 100 && told.size > 30);
  for (const { code, statuses, where } of source) {
    assert.ok(told.has(code), `etc/api.md does not have ${code} (${where})`);
    assert.ok(statuses.some((s) => told.get(code).includes(s)), `etc/api.md has ${code} with ${told.get(code)}, not ${statuses} (${where})`);
  }
  const sent = new Set(source.map((c) => c.code));
  assert.deepEqual([...told.keys()].filter((code) => !sent.has(code)), []);
  const { code } = JSON.parse(readFileSync(join(ROOT, 'gateway/openapi.json'))).components.schemas.Error.properties.error.properties;
  assert.deepEqual(code.enum, [...[...sent].sort(), null]);
});
