// SPDX-License-Identifier: Apache-2.0
// The quick starts of etc/quickstart.md and the README's first request: each block is run as it is written, with nothing
// changed but addresses, files and the program's options. A block that no test runs fails the last test.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT, SLUICE, hasRedis, request, startServer } from './harness.mjs';
import { installed, startProxy } from './proxies.mjs';

/** Every block of a page: {section, language, text}. */
function blocks(page) {
  let section = '';
  const out = [];
  for (const m of readFileSync(join(ROOT, page), 'utf8').matchAll(/^## (.*)$|^```(\w+)\n([\s\S]*?)^```$/gm)) {
    if (m[1]) section = m[1];
    else out.push({ section, language: m[2], text: m[3] });
  }
  return out;
}

/** Merges the small trees of the YAML blocks into etc/sluice.yaml: each line replaces the one of its key, or a list's first items. */
function edited(yaml, all) {
  const [cors, proxy, tiers] = all.filter((b) => b.language === 'yaml').map((b) => b.text);
  const line = (text, key) => {
    const m = new RegExp(`^  ${key}: .*$`, 'm').exec(text);
    assert.ok(m, `no ${key}`);
    return m[0];
  };
  let out = yaml;
  for (const [block, key] of [[cors, 'cors_origins'], [proxy, 'trusted_proxies'], [proxy, 'forwarded']]) {
    out = out.replace(line(out, key), () => line(block, key));
  }
  const items = tiers.slice(tiers.indexOf('  tiers:\n'));
  assert.ok(out.includes('\n  tiers:\n') && items.length > 0);
  return out.replace('\n  tiers:\n', () => `\n${items}`);
}

describe('quick starts', () => {
  const quick = blocks('etc/quickstart.md'), run = new Set();
  const folder = mkdtempSync(join(tmpdir(), 'sluice-quickstart-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  let server;

  before(async () => { server = await startServer({ edit: (yaml) => edited(yaml, quick) }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  const take = (section, language, from = quick) => {
    const found = from.filter((b) => b.section === section && b.language === language);
    assert.equal(found.length, 1, `${section}: ${found.length} blocks of ${language}`);
    run.add(found[0]);
    return found[0].text;
  };
  /** A block of shell commands: what they print. Stops at the first that fails. */
  const shell = (text, base = server.http) => new Promise((done, failed) => {
    const script = text.replaceAll('http://localhost:8080', base).replaceAll('https://llm.example.org', base)
      .replaceAll(/^(.*)\bbuild\/sluice keys (\S+ \S+)/gm, (_, before, words) => `${before}${SLUICE} keys ${words} -c ${server.state}/sluice.yaml --state ${server.state}`);
    execFile('bash', ['-e', '-u', '-o', 'pipefail', '-c', script], { env: { ...process.env, SLUICE_KEY: server.keys.paid }, timeout: 120_000 },
      (e, out, err) => (e ? failed(new Error(`${script}\n${out}${err}${e.message}`)) : done(out)));
  });
  const text = (stream) => [...stream.matchAll(/"content":"([^"]*)"/g)].map((m) => m[1]).join('');

  test('the first request of the quick start and of both READMEs', async () => {
    assert.match(text(await shell(take('', 'sh'))), /Paris/);
    for (const [page, section] of [['README.md', 'Two commands'], ['README.ko.md', '명령 두 개']]) {
      const block = take(section, 'sh', blocks(page));
      assert.match(block, /^export SLUICE_KEY=\.\.\. /m);
      assert.match(text(await shell(block.replace(/^export SLUICE_KEY=.*\n/m, ''))), /Paris/, page);
    }
  });

  test('both READMEs have the same commands, names and figures', () => {
    const commands = (page) => blocks(page).map((b) => b.text.replaceAll(/ +#.*$/gm, ''));
    assert.deepEqual(commands('README.ko.md'), commands('README.md'));
    const links = (page) => [...readFileSync(join(ROOT, page), 'utf8').matchAll(/\]\(([^)]+)\)/g)].map((m) => m[1]).filter((l) => !l.startsWith('README')).sort();
    assert.deepEqual(links('README.ko.md'), links('README.md'));
    const prose = (page) => readFileSync(join(ROOT, page), 'utf8').replaceAll(/^```[^]*?^```$/gm, '').replaceAll(/\bfour\b/g, '4');
    const quoted = (page) => [...prose(page).matchAll(/`([^`]+)`/g)].map((m) => m[1].replaceAll(/\s+/g, ' ')).sort();
    assert.deepEqual(quoted('README.ko.md'), quoted('README.md'));
    // What has a digit or is in capitals: figures, versions, formats, families of models.
    const names = (page) => [...prose(page).replaceAll(/`[^`]*`|\]\([^)]*\)|https?:\S+/g, ' ')
      .matchAll(/[A-Za-z][A-Za-z.-]*\d[\w.]*|\b[A-Z][A-Z0-9_]+\b|(?<![\w.])\d+(?:\.\d+)?/g)].map((m) => m[0].replace(/\.$/, '')).sort();
    assert.deepEqual(names('README.ko.md'), names('README.md'));
  });

  test('browser: a token of the back end, and the page with it', async () => {
    const session = JSON.parse(await shell(take('Browser', 'sh')));
    assert.ok(session.token && session.expires_at);
    const module = join(folder, 'client.mjs');
    writeFileSync(module, (await request(server.http, '/client.js')).body);
    const page = take('Browser', 'js').replace('http://localhost:8080/client.js', pathToFileURL(module).href).replaceAll('http://localhost:8080', server.http);
    globalThis.session = session;
    let shown = '';
    globalThis.show = (piece) => { shown += piece; };
    await import(`data:text/javascript,${encodeURIComponent(page)}`);
    assert.ok(shown.length > 0);
    const origin = /"(https:[^"]+)"/.exec(take('Browser', 'yaml'))[1];
    const r = await request(server.http, '/v1/models', { headers: { origin, authorization: `Bearer ${session.token}` } });
    assert.equal(r.headers['access-control-allow-origin'], origin);
  });

  test('reverse proxy: a stream through it', { skip: installed('nginx') ? false : 'nginx is not installed' }, async () => {
    take('Reverse proxy', 'yaml');
    const proxy = await startProxy('nginx', server);
    try {
      const said = await shell(take('Reverse proxy', 'sh'), proxy.http);
      assert.match(said, /^HTTP\/1\.1 200/);
      assert.match(said, /data: \[DONE\]/);
    } finally {
      await proxy.kill();
    }
  });

  test('tiers: a key of the new tier, made while the server runs', { skip: hasRedis() ? false : 'redis-server is not installed' }, async () => {
    take('Tiers', 'yaml');
    const said = await shell(take('Tiers', 'sh'));
    assert.match(said, /"key": ?"alice"/);
    assert.match(said, /"tier": ?"trial"/);
  });

  test('no block is left out', () => {
    const skipped = (b) => (b.section === 'Reverse proxy' && !installed('nginx')) || (b.section === 'Tiers' && !hasRedis());
    assert.deepEqual(quick.filter((b) => !run.has(b) && !skipped(b)), []);
  });
});
