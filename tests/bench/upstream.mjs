// SPDX-License-Identifier: Apache-2.0
// What an upstream costs: node tests/bench/upstream.mjs [--streams 64] [--tokens 200] [--rate 50] [--rounds 4] [--before EXE]
//
// The same streams through nginx and through a Sluice whose models the upstream runs, in turns. The upstream is an echo engine;
// both keep as many connections to it. It prints the processor time (user and system, all threads, by the scheduler's clock) of
// nginx, of the engine process and of the gateway per event, each round, the median of the rounds' ratios, and the median time from a
// token's generation, which is its text, until the client has it. --before: another executable in front of the same upstream takes
// its turn in each round, too.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts, startPair, startServer } from '../e2e/harness.mjs';

const argv = process.argv.slice(2);
const option = (name, otherwise) => Number(argv.includes(name) ? argv[argv.indexOf(name) + 1] : otherwise);
const STREAMS = option('--streams', 64), TOKENS = option('--tokens', 200), RATE = option('--rate', 50), ROUNDS = option('--rounds', 4);

const BEFORE = argv.includes('--before') ? argv[argv.indexOf('--before') + 1] : null;

const sets = ['gateway.threads=1', `engine.upstream.connections=${STREAMS}`, 'gateway.tiers.paid.concurrency=100000', 'gateway.tiers.paid.coalesce=off', 'gateway.tiers.paid.supersede=off',
  'gateway.tiers.paid.max_output=100000', 'gateway.tiers.paid.pace_tps=0'];
const { front, back } = await startPair({ echo: true, engine: [`engine.echo.rate=${RATE}`, 'engine.echo.ttft=1ms', 'engine.echo.stamp=true', 'gateway.threads=1'], sets });
const upstream = [`engine.upstream.url=${back.http}/v1`, `engine.upstream.key_file=${join(back.state, 'upstream.key')}`, 'engine.upstream.dialect=vllm',
  'engine.upstream.models.demo-small.role=small', 'engine.upstream.models.demo-large.role=large'];
const before = BEFORE ? await startServer({ direct: true, exe: BEFORE, sets: [...upstream, ...sets] }) : null;
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

const worker = children(nginx.pid)[0];
const fronts = [...(before ? [['before', before]] : []), ['', front]]; // in the order of their turns
const of = (name, what) => (name ? `${name}: ${what}` : what);
const ratios = Object.fromEntries(fronts.map(([name]) => [name, { engine: [], both: [], late: [] }]));
const columns = ['round', 'events', 'nginx', ...fronts.flatMap(([name]) => [of(name, 'engine'), 'gateway', 'engine / nginx', 'both / nginx']), `until the client: nginx${before ? ', before' : ''}, Sluice`];
console.log(`| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}`);
const us = (v) => `${v.toFixed(1)} us`;
try {
  for (let i = -1; i < ROUNDS; i++) {
    const n = await measure(`http://127.0.0.1:${port}`, back.keys.paid, [worker]);
    const row = [i + 1, [n.events], us(n.us[0])], late = [n.late];
    for (const [name, server] of fronts) {
      const pids = await server.pids(), s = await measure(server.http, server.keys.paid, [pids.engine, pids.gateway]), r = ratios[name];
      const engine = s.us[0] / n.us[0], both = (s.us[0] + s.us[1]) / n.us[0];
      row[1].push(s.events);
      late.push(s.late);
      row.push(us(s.us[0]), us(s.us[1]), engine.toFixed(2), both.toFixed(2));
      if (i >= 0) r.engine.push(engine), r.both.push(both), r.late.push(s.late - n.late); // the first round warms up
    }
    if (i >= 0) console.log(`| ${[row[0], row[1].join(', '), ...row.slice(2), late.map((v) => `${v.toFixed(0)} us`).join(', ')].join(' | ')} |`);
  }
  for (const [name] of fronts)
    console.log(`\n${of(name, 'median')}: engine ${median(ratios[name].engine).toFixed(2)}, engine and gateway ${median(ratios[name].both).toFixed(2)} of nginx; until the client ${median(ratios[name].late).toFixed(0)} us more`);
} finally {
  nginx.kill('SIGTERM');
  await before?.stop();
  await front.stop();
  await back.stop();
  rmSync(folder, { recursive: true, force: true });
}
