// SPDX-License-Identifier: Apache-2.0
// node tests/bench/kernels.mjs [BUILD] [--archs 80,90,100,120]: what each kernel of BUILD/libsluice-cuda.so needs of a device, as
// a markdown table: registers, shared memory, spills, resident warps, bytes in flight. Exit status 1: a kernel spills, or there
// is no code for an architecture, or no PTX.
//
// The shared object's own code is read (cuobjdump --dump-resource-usage prints the same registers and stack): the fat binary's
// entries, each a cubin, whose .nv.info has registers and stack and whose .text has the instructions. The emulation records
// with how many threads and how much shared memory kernels are launched (SLUICE_EMULATION_LAUNCHES) while its tests run: the
// largest of each kernel. It pretends to have each device's shared memory and products in turn (SLUICE_EMULATION_DEVICE), and
// refuses a launch that asks for more: so what the backend launches there fits, and the rest is not launched.
//
// Bytes in flight, at most: what a thread has asked of global memory before it needs the first of it, found by going through its
// code once from the top, times the threads that are resident; and what asynchronous copies may have under way, which is not more
// than the shared memory they fill. A device needs bandwidth times latency (Little's law): what is below that cannot be enough.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { entries, kernels, spilled } from './cubins.mjs';
import { devices, resident } from './occupancy.mjs';

const args = process.argv.slice(2);
const option = args.indexOf('--archs');
const archs = (option >= 0 ? args.splice(option, 2)[1] : '80,90,100,120').split(',').map(Number);
const build = args[0] ?? 'build';

// The latency of memory under load is taken as 0.7 µs.
const LATENCY_S = 0.7e-6;
// Kernels that stream weights or keys and values while tokens are decoded.
const DECODE = /matvec|attend_parts|attend_mma|attend_tiles|attend_single|product/;

// ---- launches ----

// Mangled names of the emulation's kernels, which are static, as nvcc's. Devices that are alike share a run.
const runs = new Map();
function launches(d) {
  const device = `${d.shared - 1024}${d.groups ? '+' : ''}`;
  if (!runs.has(device)) runs.set(device, launchesOn(device));
  return runs.get(device);
}

function launchesOn(device) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-kernels-')), path = join(folder, 'launches');
  const env = { ...process.env, SLUICE_EMULATION_LAUNCHES: path, SLUICE_EMULATION_DEVICE: device,
    SLUICE_TEST_BACKEND: 'cuda-emulated' };
  for (const test of ['ops', 'encoder_ops', 'attention', 'cuda_products', 'cuda_attention', 'sample', 'joined', 'library']) {
    const { status, error } = spawnSync(join(build, `tests/kernels/test_${test}`), [], { env });
    // What it had not launched by then would look as if nothing did.
    if (status !== 0)
      throw new Error(`kernels.mjs: test_${test} in the emulation of ${device}: ${error?.message ?? `exit status ${status}`}`);
  }
  const symbols = spawnSync('nm', [join(build, 'libsluice-cuda-emulated.so')], { encoding: 'utf8', maxBuffer: 1 << 26 }).stdout;
  const names = new Map(symbols.split('\n').map((l) => l.split(' ')).filter((f) => f.length === 3)
    .map(([at, , name]) => [parseInt(at, 16), name.replace(/^_ZL/, '_Z')]));
  const of = new Map();
  for (const line of readFileSync(path, 'latin1').trim().split('\n')) {
    const [at, threads, shared] = line.split(' '), name = names.get(parseInt(at, 16));
    const was = of.get(name) ?? { threads: 0, shared: 0 };
    of.set(name, { threads: Math.max(was.threads, Number(threads)), shared: Math.max(was.shared, Number(shared)) });
  }
  rmSync(folder, { recursive: true });
  return of;
}

// Of a block: what its threads have asked for, and what is on its way to its shared memory, at most all of that.
const inFlight = (k) => k.launch.threads * k.direct + Math.min(k.launch.threads * k.async, k.launch.shared);

// A launch for another type of weights: what tests launch for one of them stands for all, where it is the same for each that
// they launch. Types are the first argument of a template.
const untyped = (title) => title.replace(/<[^,>]*/, '<');
function byTemplate(titled) {
  const of = new Map();
  for (const { title, launch } of titled) {
    if (!launch) continue;
    const key = untyped(title), was = of.get(key) ?? launch;
    const alike = of.get(key) !== null && was.threads === launch.threads && was.shared === launch.shared;
    of.set(key, alike ? launch : null);
  }
  return of;
}

// ---- the table ----

const so = readFileSync(join(build, 'libsluice-cuda.so'));
const all = [...entries(so)].filter((e) => e.arch >= 80);
const wrong = [];
for (const arch of archs)
  if (!all.some((e) => e.kind === 'code' && e.arch === arch)) wrong.push(`no code for ${arch}`);
if (!all.some((e) => e.kind === 'ptx')) wrong.push('no PTX for later devices');
const demangle = (names) => spawnSync('c++filt', [], { input: names.join('\n'), encoding: 'utf8' }).stdout.split('\n')
  .map((n) => n.replace(/^void /, '').replace(/\(.*/, ''));
const archsOf = (kind) => [...new Set(all.filter((e) => e.kind === kind).map((e) => e.arch))].sort((a, b) => a - b).join(', ');

console.log('# CUDA kernels: what they need of a device\n\n`make kernel-table`: registers and stack (bytes of local memory) from the ' +
  'shared object\'s own code; threads and\nshared memory as the emulation\'s tests launch them, the largest; blocks and warps that a ' +
  'multiprocessor then holds; bytes\nthat these have at most asked of memory before they need the first (Little\'s law, 0.7 µs).\n');
console.log(`Code for ${archsOf('code')}; PTX of ${archsOf('ptx')}.\n`);
for (const arch of archs) {
  const d = devices[arch], found = all.filter((e) => e.kind === 'code' && e.arch === arch).flatMap((e) => kernels(e.bytes));
  if (found.length === 0) continue;
  const need = d.rate * LATENCY_S / d.sms, launched = launches(d);
  const names = demangle(found.map((k) => k.name));
  const columns = ['kernel', 'registers', 'local memory', 'instructions', 'threads', 'shared', 'blocks', 'warps', 'in flight at most, KiB',
    'of what is needed'];
  console.log(`## ${arch} (${d.board}: ${(need / 1024).toFixed(1)} KiB in flight a multiprocessor for its ${d.rate / 1e12} TB/s)\n`);
  console.log(`| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}`);
  const titled = found.map((k, i) => ({ ...k, title: names[i], launch: launched.get(k.name) })), same = byTemplate(titled);
  for (const k of titled) k.launch ??= k.title.includes('<') ? same.get(untyped(k.title)) ?? undefined : undefined;
  titled.sort((a, b) => a.title.localeCompare(b.title)).forEach((k) => {
    if (spilled(k))
      wrong.push(`${arch}: ${k.title} uses local memory: ${k.frame} bytes, ${k.spills} instructions`);
    const cells = [`\`${k.title}\``, k.registers, k.frame, k.instructions];
    if (k.launch) {
      const blocks = resident({ registers: k.registers, threads: k.launch.threads, shared: k.launch.shared + k.fixed }, d);
      const flight = blocks * inFlight(k);
      if (blocks < 1) wrong.push(`${arch}: ${k.title} does not fit on a multiprocessor`);
      cells.push(k.launch.threads, k.launch.shared + k.fixed, blocks, blocks * k.launch.threads / 32, (flight / 1024).toFixed(1));
      cells.push(DECODE.test(k.title) ? `${Math.round(100 * flight / need)} %` : '–');
    } else cells.push('not launched', '–', '–', '–', '–', '–');
    console.log(`| ${cells.join(' | ')} |`);
  });
  console.log('');
}
for (const w of wrong) console.log(`- ${w}`);
process.exitCode = wrong.length > 0 ? 1 : 0;
