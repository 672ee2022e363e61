// SPDX-License-Identifier: Apache-2.0
// Is the simulation of `sluice plan` right? node tests/bench/plan_agreement.mjs MODEL.gguf [--threads 1] [--seconds 45]
// [--speed 1] [--mixes chat,bursts,…] [--keep DIR] [--set KEY=VALUE]…
//
// For each mix: a whole server is under the load of `sluice bench serve`, and writes a record of each request (log.requests).
// Then the server is stopped, `sluice plan MODEL --compare RECORDS` measures what steps take here, apart from any mix, simulates
// the recorded requests, and prints the records' latencies beside the simulated ones: first tokens, and of each answer the mean
// and the longest gap between tokens, as the gateway saw them. The gaps of all answers together are the client's.
//
// Rates are of the shape test-30m (f32) on one thread of two, so that gateway and client have the other; --speed multiplies them.
// A mix takes about as long as --seconds. Judged are percentiles with five answers or gaps beyond them; the longest gap of an
// answer is not, since one stall of the machine is in every answer of that moment. Exit status 1: one is off by more than 15 %.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SLUICE, startServer } from '../e2e/harness.mjs';

const argv = process.argv.slice(2);
const option = (name, otherwise) => (argv.includes(name) ? argv[argv.indexOf(name) + 1] : otherwise);
const model = argv[0];
if (!model || model.startsWith('--')) { console.error('a model file is needed'); process.exit(2); }
const threads = option('--threads', '1'), seconds = Number(option('--seconds', 45)), speed = Number(option('--speed', 1));
const more = argv.flatMap((a, i) => (a === '--set' ? [argv[i + 1]] : []));
const keep = option('--keep', mkdtempSync(join(tmpdir(), 'sluice-agreement-')));
const FEW = 5, MOST_OFF = 0.15;
mkdirSync(keep, { recursive: true });

/** rate: requests (of turns: conversations) a second. */
const mixes = {
  chat: { what: 'steady chat', rate: 5, args: ['--mix', '4:15:40,4:50:40,1:150:100'] },
  bursts: { what: 'bursts of 12', rate: 5, args: ['--mix', '1:50:40', '--arrivals', 'burst:12'] },
  long: { what: 'long prompts beside short ones', rate: 2.6, args: ['--mix', '4:20:50,1:400:30'] },
  turns: { what: 'conversations of six turns with shared beginnings', rate: 0.55, args: ['--mix', '1:60:40', '--turns', '6', '--think', '1', '--share', '45', '--prefixes', '4'] },
  answers: { what: 'short prompts, long answers', rate: 3, args: ['--mix', '1:15:250,1:30:150'] },
  saturated: { what: 'more than twice what it can do, for a third of the time', rate: 27, part: 0.3, args: ['--mix', '1:50:50'] },
};

function run(args) {
  return new Promise((done, failed) => {
    const child = spawn(SLUICE, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '', err = '';
    child.stdout.on('data', (d) => { out += d; });
    child.stderr.on('data', (d) => { err += d; });
    child.on('close', (code) => (code === 0 ? done(out) : failed(new Error(`sluice ${args[0]}: ${code}\n${err}`))));
  });
}

const fieldsOf = (path) => readFileSync(path, 'utf8').split('\n')[0].replace(/^.*\) /, '').split(/ +/);
/** Processor time so far, in ticks: of all processes, stolen by the host, and of the server, this process and the clients. */
function used(pids) {
  const [user, nice, system, , , irq, softirq, steal] = fieldsOf('/proc/stat').slice(1).map(Number);
  const own = pids.map((pid) => fieldsOf(`/proc/${pid}/stat`).slice(11, 13)), self = fieldsOf('/proc/self/stat').slice(11, 15);
  return { all: user + nice + system + irq + softirq + steal, steal, ours: [...own.flat(), ...self].reduce((a, b) => a + Number(b), 0), at: performance.now() };
}

/** Records of the mix, and the client's report. */
async function measure(name, mix) {
  const records = join(keep, `${name}.jsonl`);
  writeFileSync(records, '');
  const edit = (yaml) => yaml.replace(/ {4}- name: demo-small[\s\S]*?role: large\n/, `    - name: measured\n      path: ${model}\n`);
  const server = await startServer({ direct: true, edit, sets: [`engine.threads=${threads}`, `log.requests.to=${records}`, 'supervisor.hang=10m',
    'engine.speculation.mode=off', 'engine.ease=off', 'engine.max_waiting=65536', 'cache.store=memory',
    ...['concurrency=100000', 'coalesce=off', 'supersede=off', 'cleanse=off', 'compress=off', 'max_output=100000'].map((s) => `gateway.tiers.paid.${s}`), ...more] });
  const load = (secs, rate, seed, ...most) => run(['bench', 'serve', server.http, '--key', server.keys.paid, '--model', 'measured', '--connections', '4', '--streams', '200',
    '--seconds', String(secs), '--rate', String(rate), '--seed', String(seed), '--temperature', '1', ...mix.args, ...most, '--json']);
  try {
    await load(4, mix.rate * speed * (mix.part ? 0.2 : 0.7), 99); // the engine learns what its steps cost
    const pids = [server.pid, ...Object.values(await server.pids())], before = used(pids);
    const report = JSON.parse(await load(mix.part ? 4 * seconds : seconds, mix.rate * speed, 1, ...(mix.part ? ['--requests', String(Math.round(seconds * mix.part * mix.rate * speed))] : [])));
    const after = used(pids), ticks = (after.at - before.at) / 10;
    report.others = (after.all - before.all - (after.ours - before.ours)) / ticks;
    report.stolen = (after.steal - before.steal) / ticks;
    await new Promise((r) => setTimeout(r, 300));
    await server.stop();
    writeFileSync(join(keep, `${name}.client.json`), JSON.stringify(report));
    return { records, report };
  } catch (e) {
    console.error(server.log());
    await server.stop();
    throw e;
  }
}

const wanted = option('--mixes', Object.keys(mixes).join(',')).split(',');
let off = 0, judged = 0;
for (const name of wanted) {
  const { records, report } = await measure(name, mixes[name]);
  const c = JSON.parse(execFileSync(SLUICE, ['plan', model, '--compare', records, '--threads', threads, '--json'], { encoding: 'utf8' }));
  console.log(`\n${name}: ${mixes[name].what}; ${c.ttft.n} answers, ${c.gaps.n} gaps; others took ${(100 * report.others).toFixed(1)} % of a processor, ${(100 * report.stolen).toFixed(1)} % of it the host`);
  const line = (what, p, measured, simulated, few) => {
    const ratio = simulated / measured, counts = !few && what !== 'longest', bad = counts && Math.abs(ratio - 1) > MOST_OFF;
    judged += counts; off += bad;
    console.log(`  ${what.padEnd(12)} p${String(p).padEnd(3)} ${measured.toFixed(2).padStart(10)} ${simulated.toFixed(2).padStart(10)} ${ratio.toFixed(3).padStart(7)}${few ? '  few' : bad ? '  OFF' : ''}`);
  };
  for (const what of ['ttft', 'itl', 'longest'])
    for (const at of c[what].at) line(what, at.percent, at.measured_ms, at.simulated_ms, at.beyond < FEW);
  const gaps = report.all?.itl_ms ?? report.itl_ms ?? {};
  for (const at of c.gaps.at) if (gaps[`p${at.percent}`] !== undefined) line('gap (client)', at.percent, gaps[`p${at.percent}`], at.simulated_ms, c.gaps.n * (100 - at.percent) < 100 * FEW);
}
console.log(`\n${judged} percentiles judged, ${off} off by more than ${100 * MOST_OFF} %; records in ${keep}`);
process.exit(off > 0 ? 1 : 0);
