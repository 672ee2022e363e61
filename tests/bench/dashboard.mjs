// SPDX-License-Identifier: Apache-2.0
// A picture of the dashboard in etc/grafana, without Grafana: a Prometheus (Debian's package) scrapes a server with the
// demonstration models under load; each panel's queries are asked of its API and drawn in the dashboard's grid, with its
// titles, units and legends, by a headless Chromium. It shows how the panels fill, not how Grafana draws.
//
//   node tests/bench/dashboard.mjs OUT.png [MINUTES]     by default 4
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launch } from '../e2e/chromium.mjs';
import { chat, until, user } from '../e2e/client.mjs';
import { ROOT, freePorts, request, startServer } from '../e2e/harness.mjs';
import { page } from './dashboard_page.mjs';

const [out, minutes = '4'] = process.argv.slice(2);
if (out === undefined) throw new Error('usage: dashboard.mjs OUT.png [MINUTES]');
const SCRAPE_S = 2, INTERVAL = '20s', STEP_S = 2, PATIENCE = 120_000;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function startPrometheus(folder, server, port) {
  writeFileSync(join(folder, 'key'), server.keys.admin);
  writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify({ global: { scrape_interval: `${SCRAPE_S}s`, scrape_timeout: `${SCRAPE_S}s` },
    scrape_configs: [{ job_name: 'sluice', authorization: { credentials_file: join(folder, 'key') }, static_configs: [{ targets: [new URL(server.http).host] }] }] }));
  const child = spawn('prometheus', [`--config.file=${join(folder, 'prometheus.yml')}`, `--storage.tsdb.path=${join(folder, 'data')}`, `--web.listen-address=127.0.0.1:${port}`], { stdio: 'ignore' });
  const base = `http://127.0.0.1:${port}`;
  if (!await until(async () => { try { return (await request(base, '/-/ready')).status === 200; } catch { return false; } }, PATIENCE)) throw new Error('prometheus is not ready');
  return { base, stop: () => new Promise((done) => { child.once('close', done); child.kill('SIGTERM'); }) };
}

/** Clients of different habits, more of them towards the middle. They end when `until` is over. */
async function load(server, end) {
  const started = Date.now(), whole = end - started;
  let sent = 0;
  const wave = () => Math.sin(Math.PI * Math.min(1, (Date.now() - started) / whole));
  const story = (i) => `Tell me story ${i} about a river. ${'It ran from the hills to the sea and met a town on its way. '.repeat(i % 7)}`;
  const talker = async (key, model, i) => { // turns of one conversation, which the prefix cache finds again
    while (Date.now() < end) {
      const turns = [];
      for (let turn = 0; turn < 4 && Date.now() < end; turn++) {
        turns.push(...user(story(sent++)));
        const r = await chat(server.http, key, { model, stream: true, max_tokens: 24 + 24 * (i % 3), messages: turns });
        if (r.status === 200) turns.push({ role: 'assistant', content: r.text });
        await sleep(200 + 1800 * (1 - wave()));
      }
    }
  };
  const leaver = async (key, model) => { // does not wait for the end
    while (Date.now() < end) {
      let n = 0;
      await chat(server.http, key, { model, stream: true, max_tokens: 200, messages: user(story(sent++)) }, { onEvent: () => (++n > 12 ? 'abort' : null) });
      await sleep(3000);
    }
  };
  const rush = async (key, model) => { // more at once than is admitted
    while (Date.now() < end) {
      await sleep(whole / 6);
      await Promise.all(Array.from({ length: 12 }, () => chat(server.http, key, { model, stream: true, max_tokens: 64, messages: user(story(sent++)) })));
    }
  };
  const { free, paid } = server.keys;
  await Promise.all([...[0, 1, 2].flatMap((i) => [talker(paid, 'demo-large', i), talker(free, 'demo-small', i), talker(paid, 'auto', i)]),
    leaver(free, 'demo-large'), leaver(paid, 'demo-small'), rush(free, 'demo-large'), rush(paid, 'auto')]);
  return sent;
}

const fill = (expr) => expr.replaceAll('$__rate_interval', INTERVAL).replace(/"\$\w+"/g, '".*"');

/** A panel's series: [{name, points: [[s, value]]}], in the order of its queries. */
async function seriesOf(prometheus, panel, from, to) {
  const all = [];
  for (const t of panel.targets) {
    const r = await request(prometheus.base, `/api/v1/query_range?query=${encodeURIComponent(fill(t.expr))}&start=${from}&end=${to}&step=${STEP_S}`);
    if (r.status !== 200) throw new Error(`${panel.title}: ${r.body}`);
    for (const s of JSON.parse(r.body).data.result)
      all.push({ name: t.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => s.metric[label] ?? ''), points: s.values.map(([at, v]) => [at, Number(v)]) });
  }
  return all;
}

const dashboard = JSON.parse(readFileSync(join(ROOT, 'etc/grafana/sluice.json'), 'utf8'));
const folder = mkdtempSync(join(tmpdir(), 'sluice-dashboard-'));
chmodSync(folder, 0o777); // the gateway has another user
const [promPort, tracePort] = await freePorts(2);
const collector = http.createServer((req, res) => { req.resume().on('end', () => res.writeHead(200).end('{}')); }).listen(tracePort, '127.0.0.1');
let server, prometheus, browser;
try {
  server = await startServer({ sets: ['engine.max_sequences=4', 'gateway.tiers.free.when_late=refuse', 'gateway.tiers.free.ttft_target=100ms', 'gateway.tiers.paid.ttft_target=2s', 'gateway.tiers.paid.itl_target=100ms',
    'gateway.tiers.free.concurrency=100', 'gateway.tiers.paid.concurrency=100', 'gateway.tiers.paid.supersede=off', 'gateway.tiers.free.supersede=off',
    `trace.endpoint=http://127.0.0.1:${tracePort}/v1/traces`, 'trace.sample=1', `log.requests.to=${join(folder, 'requests.jsonl')}`] });
  prometheus = await startPrometheus(folder, server, promPort);
  await sleep(3000 * SCRAPE_S);
  const from = Date.now() / 1000;
  console.log(`${await load(server, Date.now() + Number(minutes) * 60_000)} requests`);
  const to = Date.now() / 1000 - SCRAPE_S;
  const panels = [];
  for (const p of dashboard.panels) {
    panels.push({ ...p, series: p.type === 'row' ? [] : await seriesOf(prometheus, p, from + 3 * SCRAPE_S, to) });
    const drawn = panels.at(-1).series.filter((s) => s.points.some(([, v]) => Number.isFinite(v)));
    if (p.type !== 'row') console.log(`${p.title}: ${drawn.length} of ${p.targets.length} queries' series`);
  }
  writeFileSync(join(folder, 'page.html'), page(dashboard.title, panels, from + 3 * SCRAPE_S, to));
  browser = await launch();
  const tab = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  await tab.goto(`file://${join(folder, 'page.html')}`);
  await tab.screenshot({ path: out, fullPage: true });
} finally {
  await browser?.close();
  await prometheus?.stop();
  await server?.stop();
  collector.close();
  rmSync(folder, { recursive: true, force: true });
}
