// SPDX-License-Identifier: Apache-2.0
// What an upstream costs: node tests/bench/upstream.mjs [--streams 64] [--tokens 200] [--rate 50] [--rounds 4]
//
// The same streams through nginx and through a Sluice whose models the upstream runs, in turns. The upstream is an echo engine;
// both keep as many connections to it. It prints the processor time (user and system, all threads, by the scheduler's clock) of
// nginx, of the engine process and of the gateway per event, each round, the median of the rounds' ratios, and the median time from a
// token's generation, which is its text, until the client has it.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts, startPair } from '../e2e/harness.mjs';

const argv = process.argv.slice(2);
const option = (name, otherwise) => Number(argv.includes(name) ? argv[argv.indexOf(name) + 1] : otherwise);
const STREAMS = option('--streams', 64), TOKENS = option('--tokens', 200), RATE = option('--rate', 50), ROUNDS = option('--rounds', 4);

const { front, back } = await startPair({ echo: true, engine: [`engine.echo.rate=${RATE}`, 'engine.echo.ttft=1ms', 'engine.echo.stamp=true', 'gateway.threads=1'],
  sets: ['gateway.threads=1', `engine.upstream.connections=${STREAMS}`, 'gateway.tiers.paid.concurrency=100000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off',
    'gateway.tiers.paid.max_output=100000', 'gateway.tiers.paid.pace_tps=0'] });
const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
const [port] = await freePorts(1);
writeFileSync(join(folder, 'nginx.conf'), `worker_processes 1; daemon off; pid ${folder}/pid; error_log ${folder}/error.log;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path ${folder}/a; proxy_temp_path ${folder}/b; fastcgi_temp_path ${folder}/c; uwsgi_temp_path ${folder}/d; scgi_temp_path ${folder}/e;
  upstream back { server ${new URL(back.http).host}; keepalive ${STREAMS}; }
  server { listen 127.0.0.1:${port}; location / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }
`);
const nginx = spawn('nginx', ['-c', join(folder, 'nginx.conf')], { stdio: 'inherit' });
await new Promise((r) => setTimeout(r, 1000));
const children = (pid) => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);

/** Nanoseconds that all threads of a process have run. */
const spent = (pid) => readdirSync(`/proc/${pid}/task`).reduce((sum, t) => sum + Number(readFileSync(`/proc/${pid}/task/${t}/schedstat`, 'utf8').split(' ')[0]), 0);

function stream(base, key, agent) {
  const words = Array.from({ length: TOKENS }, (_, i) => `w${i}`).join(' ');
  return new Promise((done, failed) => {
    let events = 0;
    const late = [];
    const req = http.request(new URL('/v1/chat/completions', base), { method: 'POST', agent, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } }, (res) => {
      if (res.statusCode !== 200) { failed(new Error(`status ${res.statusCode}`)); return; }
      res.on('data', (d) => {
        const now = Number(process.hrtime.bigint());
        for (const [, stamp] of d.toString('latin1').matchAll(/"content":"t(\d{20})/g)) late.push((now - Number(stamp)) / 1000);
        for (let i = d.indexOf('data: '); i >= 0; i = d.indexOf('data: ', i + 6)) events++;
      }).on('end', () => done({ events, late }));
    });
    req.on('error', failed).end(JSON.stringify({ model: 'demo-large', stream: true, max_tokens: TOKENS + 1, messages: [{ role: 'user', content: words }] }));
  });
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/** Microseconds per event of each process, and from generation to client. */
async function measure(base, key, pids) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: STREAMS });
  const before = pids.map(spent);
  const all = await Promise.all(Array.from({ length: STREAMS }, () => stream(base, key, agent))), events = all.reduce((n, s) => n + s.events, 0);
  agent.destroy();
  return { events, late: median(all.flatMap((s) => s.late)), us: pids.map((p, i) => (spent(p) - before[i]) / 1000 / events) };
}

const pids = await front.pids(), worker = children(nginx.pid)[0], ratios = { engine: [], all: [] };
console.log('| round | events | nginx | engine | gateway | engine / nginx | both / nginx | until the client: nginx, Sluice |\n|---|---|---|---|---|---|---|---|');
try {
  for (let i = -1; i < ROUNDS; i++) {
    const n = await measure(`http://127.0.0.1:${port}`, back.keys.paid, [worker]);
    const s = await measure(front.http, front.keys.paid, [pids.engine, pids.gateway]);
    if (i < 0) continue; // the first round warms up
    ratios.engine.push(s.us[0] / n.us[0]);
    ratios.all.push((s.us[0] + s.us[1]) / n.us[0]);
    console.log(`| ${i + 1} | ${n.events}, ${s.events} | ${n.us[0].toFixed(1)} us | ${s.us[0].toFixed(1)} us | ${s.us[1].toFixed(1)} us | ${ratios.engine.at(-1).toFixed(2)} | ${ratios.all.at(-1).toFixed(2)} | ${n.late.toFixed(0)} us, ${s.late.toFixed(0)} us |`);
  }
  console.log(`\nmedian: engine ${median(ratios.engine).toFixed(2)}, engine and gateway ${median(ratios.all).toFixed(2)} of nginx`);
} finally {
  nginx.kill('SIGTERM');
  await front.stop();
  await back.stop();
  rmSync(folder, { recursive: true, force: true });
}
