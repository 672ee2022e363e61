// SPDX-License-Identifier: Apache-2.0
// Keys and values on disk, with a whole server: what was computed before everything was killed is read afterwards, and the
// answers are the same bit for bit; damaged files are computed again; a deleted conversation is erased.
import assert from 'node:assert/strict';
import { chownSync, closeSync, existsSync, openSync, readFileSync, readdirSync, readSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { localOnly, request, startServer } from './harness.mjs';

const WORDS = 'a cat sat by the old stone bridge and watched small boats drift down to the sea while rain fell'.split(' ');
/** Texts that differ from their first word on. */
const story = (n, words) => Array.from({ length: words }, (_, i) => WORDS[(i * (n + 3) + n) % WORDS.length]).join(' ');

function segments(folder) {
  return readdirSync(folder).filter((f) => f.endsWith('.kv')).map((f) => join(folder, f));
}

/** A byte in the middle of each payload; records are a block of 4096 bytes and a payload. */
function damage(file) {
  const fd = openSync(file, 'r+');
  const byte = Buffer.alloc(1);
  for (let at = 4096 + 4096 + 11; at < statSync(file).size; at += 4096) {
    readSync(fd, byte, 0, 1, at);
    byte[0] ^= 8;
    writeSync(fd, byte, 0, 1, at);
  }
  closeSync(fd);
}

for (const kv of ['f16', 'q8']) {
  describe(`keys and values of ${kv} on disk`, localOnly('its pages on disk'), () => {
    let server, first, folder;
    const sets = ['engine.kv_disk.bytes=256MiB', 'engine.kv_disk.always=true', `engine.kv_type=${kv}`, 'gateway.tiers.paid.coalesce=off'];
    const auth = () => ({ 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` });

    async function metric(name) {
      const found = (await server.metrics()).split('\n').filter((l) => l.startsWith(name) && /[{ ]/.test(l[name.length]));
      return found.reduce((sum, l) => sum + Number(l.slice(l.lastIndexOf(' '))), 0);
    }

    async function until(what, deadline = 120000) {
      for (const end = Date.now() + deadline; Date.now() < end; await sleep(50)) if (await what()) return;
      assert.fail(`${what} stays false\n${server.log()}`);
    }

    /** Greedy and sampled answers to the same texts: texts, log probabilities, and tokens that were not computed. */
    async function answers() {
      const all = [];
      for (let i = 0; i < 4; i++) {
        const r = await fetch(`${server.http}/v1/completions`, { method: 'POST', headers: auth(), body: JSON.stringify({ model: 'demo-large',
          prompt: story(i, 150), max_tokens: 24, temperature: i % 2 ? 0.9 : 0, seed: 11 + i, logprobs: 3 }) });
        assert.equal(r.status, 200, server.log());
        const { choices, usage } = await r.json();
        all.push({ choice: choices[0], prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens });
      }
      return all;
    }

    const same = (now) => assert.deepEqual(now.map((a) => a.choice), first.map((a) => a.choice));

    async function written() {
      let before = -1;
      await until(async () => {
        const now = await metric('sluice_engine_kv_disk_written_pages_total');
        const stays = now > 0 && now === before;
        before = now;
        await sleep(400); // longer than the engine takes from one report to the next
        return stays;
      });
    }

    /** kill -9 of everything, then a server on what is left. */
    async function again(change = () => {}) {
      const pids = Object.values(await server.pids());
      process.kill(server.pid, 'SIGKILL');
      for (const pid of pids) try { process.kill(pid, 'SIGKILL'); } catch { /* it died with its parent */ }
      await server.ended;
      change();
      server = await startServer({ sets, state: server.state });
    }

    before(async () => {
      server = await startServer({ sets });
      folder = join(server.state, 'kv');
      first = await answers();
      await written();
    });
    after(async () => {
      if (server) assert.equal(await server.stop(), 0, server.log());
    });

    test('the files are the engine\'s alone', () => {
      assert.equal(statSync(folder).mode & 0o777, 0o700);
      for (const f of [...segments(folder), join(folder, 'secret')]) assert.equal(statSync(f).mode & 0o777, 0o600);
    });

    test('after kill -9 of everything the same answers come from disk', async () => {
      const pages = await metric('sluice_engine_kv_disk_pages');
      await again();
      await until(async () => await metric('sluice_engine_kv_disk_pages') >= pages);
      const now = await answers();
      same(now);
      for (const a of now) assert.ok(a.cached > a.prompt - 40, `${a.cached} of ${a.prompt} tokens were found`);
      await until(async () => await metric('sluice_engine_kv_disk_hits_total') > 0);
      assert.equal(await metric('sluice_engine_kv_disk_errors_total'), 0);
    });

    test('damaged pages are refused, computed again, and logged once', async () => {
      await again(() => segments(folder).forEach(damage));
      same(await answers());
      await written();
      assert.match(server.log(), /has a damaged page|belong to no whole page/);
      assert.ok((server.log().match(/has a damaged page/g)?.length ?? 0) <= 1);
    });

    test('what is no segment is left alone, a foreign one is removed', async () => {
      const other = join(folder, '00000000000000ff.kv'), foreign = join(folder, '00000000000000fe.kv');
      await again(() => {
        const fd = openSync(other, 'w', 0o600), copy = openSync(foreign, 'w', 0o600);
        writeSync(fd, Buffer.alloc(9000, 'x'));
        writeSync(copy, readFileSync(segments(folder)[0])); // under another number
        closeSync(fd);
        closeSync(copy);
        const { uid, gid } = statSync(folder);
        for (const f of [other, foreign]) chownSync(f, uid, gid);
      });
      same(await answers());
      await until(() => !existsSync(foreign));
      assert.ok(existsSync(other));
    });

    test('a deleted conversation is erased, with all of its tenant', async () => {
      const post = async (path, body) => {
        const r = await fetch(server.http + path, { method: 'POST', headers: auth(), body: JSON.stringify(body) });
        assert.equal(r.status, 200, await r.clone().text());
        return r.json();
      };
      const { id } = await post('/v1/conversations', {});
      await post('/v1/responses', { model: 'demo-large', conversation: id, input: story(9, 120), max_output_tokens: 16 });
      await written();
      assert.ok(await metric('sluice_engine_kv_disk_pages') > 0);
      const r = await request(server.http, `/v1/conversations/${id}`, { method: 'DELETE', headers: auth() });
      assert.equal(r.status, 200, r.body);
      await until(async () => await metric('sluice_engine_kv_disk_pages') === 0);
      assert.ok(await metric('sluice_engine_kv_disk_erased_pages_total') > 0);
      same(await answers());
    });
  });
}
