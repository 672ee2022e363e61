// SPDX-License-Identifier: Apache-2.0
// How tokens become events: at once, cut at the ends of lines and sentences, at most five together; and with a hold.
// Load groups tokens too, so the rates leave ten times the time that a busy machine takes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chat, user } from './client.mjs';
import { localOnly, startServer } from './harness.mjs';

const TEXT = 'one two three. four five six seven eight nine ten eleven. 一 二 三。 四 五 line\nnext words come after that';
const pieces = (r) => r.events.map((e) => e.choices[0]?.delta?.content).filter((t) => t);
const words = (piece) => piece.trim().split(/[ \n]/).length;

async function ask(sets) {
  const server = await startServer({ echo: true, sets });
  const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user(TEXT) });
  assert.equal(await server.stop(), 0, server.log());
  assert.equal(r.text, TEXT);
  return pieces(r);
}

const LOCAL = localOnly('where its tokens end: of an upstream, a space or the end of a line begins the next one');
const endsSentence = (piece) => /[.。\n] ?$/.test(piece);
const inside = (piece) => /[.。\n]/.test(piece.replace(/[.。\n] ?$/, ''));

test('tokens that come together are events of at most five that end where a sentence ends', LOCAL, async () => {
  const list = await ask(['engine.echo.rate=0', 'engine.echo.step=20ms', 'engine.echo.ttft=1ms']);
  assert.ok(list.every((p) => words(p) <= 5 && !inside(p)), JSON.stringify(list));
});

test('no token waits for another', async () => {
  const list = await ask(['engine.echo.rate=5']);
  assert.ok(list.filter((p) => words(p) === 1).length > 15, JSON.stringify(list));
});

test('with a hold: the first at once, then groups, at once at the end of a sentence', LOCAL, async () => {
  const list = await ask(['engine.echo.rate=20', 'gateway.flush.hold=1s', 'gateway.flush.tokens=3']);
  assert.equal(words(list[0]), 1);
  const later = list.slice(1, -1);
  assert.ok(later.every((p) => (words(p) >= 3 && words(p) <= 5) || endsSentence(p)), JSON.stringify(list));
  assert.ok(later.every((p) => !inside(p)), JSON.stringify(list));
  assert.ok(later.some((p) => words(p) < 3 && endsSentence(p)), JSON.stringify(list));
});

test('a hold ends by itself: slow tokens come one by one', async () => {
  const list = await ask(['engine.echo.rate=5', 'gateway.flush.hold=5ms', 'gateway.flush.tokens=5']);
  assert.ok(list.filter((p) => words(p) === 1).length > 15, JSON.stringify(list));
});
