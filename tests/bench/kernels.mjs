// SPDX-License-Identifier: Apache-2.0
// node tests/bench/kernels.mjs [BUILD] [--archs 80,90,100,120]: what each kernel of BUILD/libsluice-cuda.so needs of a device, as
// a markdown table: registers, shared memory, spills, resident warps, bytes in flight. Exit status 1: a kernel spills, or there
// is no code for an architecture, or no PTX.
//
// The shared object's own code is read (cuobjdump --dump-resource-usage prints the same registers and stack): the fat binary's
// entries, each a cubin, whose .nv.info has registers and stack and whose .text has the instructions. The emulation records
// with how many threads and how much shared memory kernels are launched (SLUICE_EMULATION_LAUNCHES) while its tests run: the
// largest of each kernel.
//
// Bytes in flight, at most: what a thread has asked of global memory before it needs the first of it, found by going through its
// code once from the top, times the threads that are resident; and what asynchronous copies may have under way, which is not more
// than the shared memory they fill. A device needs bandwidth times latency (Little's law): what is below that cannot be enough.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { devices, resident } from './occupancy.mjs';

const args = process.argv.slice(2);
const option = args.indexOf('--archs');
const archs = (option >= 0 ? args.splice(option, 2)[1] : '80,90,100,120').split(',').map(Number);
const build = args[0] ?? 'build';

// The latency of memory under load is taken as 0.7 µs.
const LATENCY_S = 0.7e-6;
// Kernels that stream weights or keys and values while tokens are decoded.
const DECODE = /matvec|attend_parts|attend_mma|attend_tiles|attend_single|product/;

// ---- fat binaries and cubins ----

const cstring = (b, at) => b.toString('latin1', at, b.indexOf(0, at));

// nvcc packs large entries as Zstandard frames, which Node 20 does not read.
function plain(bytes) {
  if (bytes.readUInt32LE(0) !== 0xfd2fb528) return bytes;
  const { status, stdout, stderr, error } = spawnSync('zstd', ['-dc'], { input: bytes, maxBuffer: 1 << 30 });
  if (status !== 0) throw new Error(`kernels.mjs: zstd -dc: ${error?.message ?? stderr}`);
  return stdout;
}

// What stands in a shared object: { kind: 'code' | 'ptx', arch, bytes }.
function* entries(so) {
  const magic = Buffer.from([0x50, 0xed, 0x55, 0xba]);
  for (let i = so.indexOf(magic); i >= 0; i = so.indexOf(magic, i + 4)) {
    const end = i + so.readUInt16LE(i + 6) + Number(so.readBigUInt64LE(i + 8));
    for (let at = i + so.readUInt16LE(i + 6); at + 64 <= end;) {
      const kind = so.readUInt16LE(at), header = so.readUInt32LE(at + 4), size = Number(so.readBigUInt64LE(at + 8));
      const packed = so.readUInt32LE(at + 16), bytes = plain(so.subarray(at + header, at + header + (packed || size)));
      if (kind === 1 || kind === 2) yield { kind: kind === 1 ? 'ptx' : 'code', arch: so.readUInt32LE(at + 28), bytes };
      at += header + size;
    }
  }
}

function sections(elf) {
  const start = Number(elf.readBigUInt64LE(0x28)), n = elf.readUInt16LE(0x3c), names = elf.readUInt16LE(0x3e);
  const all = Array.from({ length: n }, (_, i) => {
    const at = start + 64 * i, empty = elf.readUInt32LE(at + 4) === 8; // NOBITS
    const offset = Number(elf.readBigUInt64LE(at + 24)), size = Number(elf.readBigUInt64LE(at + 32));
    return { name: elf.readUInt32LE(at), offset, size, bytes: elf.subarray(offset, offset + (empty ? 0 : size)) };
  });
  return all.map((s) => ({ ...s, name: cstring(elf, all[names].offset + s.name) }));
}

// Of .nv.info: attribute → symbol index → value.
function attributes(info) {
  const of = new Map();
  for (let at = 0; at + 4 <= info.length;) {
    const format = info[at], attribute = info[at + 1], size = format === 4 ? info.readUInt16LE(at + 2) : 0;
    if (format === 4 && size === 8) {
      if (!of.has(attribute)) of.set(attribute, new Map());
      of.get(attribute).set(info.readUInt32LE(at + 4), info.readUInt32LE(at + 8));
    }
    at += 4 + size;
  }
  return of;
}

const REGISTERS = 0x2f, FRAME = 0x11;

function kernels(elf) {
  const all = sections(elf), by = (name) => all.find((s) => s.name === name);
  const symbols = by('.symtab')?.bytes, names = by('.strtab')?.bytes, info = by('.nv.info');
  if (!info || !symbols) return [];
  const of = attributes(info.bytes), found = [];
  for (let i = 0; i * 24 < symbols.length; i++) {
    const name = cstring(names, symbols.readUInt32LE(i * 24)), code = by(`.text.${name}`);
    if (!code || !of.get(REGISTERS)?.has(i)) continue;
    const frame = of.get(FRAME)?.get(i) ?? 0, fixed = by(`.nv.shared.${name}`)?.size ?? 0;
    found.push({ name, registers: of.get(REGISTERS).get(i), frame, fixed, ...walk(code.bytes) });
  }
  return found;
}

// ---- code: 16 bytes an instruction ----

const LDG = 0x981, LDGSTS = 0xfae;
const LOCAL = new Set([0x983, 0x387, 0x987]);
const WIDE = new Set([0x23c, 0x388, 0x988, 0x385, 0x386, 0x986]); // products and stores read several registers
const widths = [1, 1, 2, 2, 4, 8, 16, 16];

function walk(code) {
  let spills = 0, direct = 0, async = 0, loads = [];
  for (let at = 0; at + 16 <= code.length; at += 16) {
    const w0 = code.readUInt32LE(at), w1 = code.readUInt32LE(at + 4), w2 = code.readUInt32LE(at + 8), op = w0 & 0xfff;
    if (LOCAL.has(op)) spills++;
    const reads = [[w0 >>> 24, WIDE.has(op) ? 4 : 2]];
    if ((op >> 9) === 1 || WIDE.has(op)) reads.push([w1 & 255, WIDE.has(op) ? 4 : 1]);
    reads.push([w2 & 255, WIDE.has(op) ? 4 : 1]);
    loads = loads.filter((l) => !reads.some(([r, n]) => r !== 255 && r < l.to + l.n && l.to < r + n));
    if (op === LDG) {
      const bytes = widths[w2 >>> 9 & 7];
      loads.push({ to: w0 >>> 16 & 255, n: Math.max(1, bytes / 4), bytes });
    }
    if (op === LDGSTS) async += widths[w2 >>> 9 & 7];
    direct = Math.max(direct, loads.reduce((n, l) => n + l.bytes, 0));
  }
  return { spills, direct, async, instructions: code.length / 16 };
}

// ---- launches ----

// Mangled names of the emulation's kernels, which are static, as nvcc's.
function launches() {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-kernels-')), path = join(folder, 'launches');
  const env = { ...process.env, SLUICE_EMULATION_LAUNCHES: path, SLUICE_TEST_BACKEND: 'cuda-emulated' };
  for (const test of ['ops', 'encoder_ops', 'attention', 'cuda_products', 'cuda_attention', 'sample', 'joined', 'library']) {
    const { status, error } = spawnSync(join(build, `tests/kernels/test_${test}`), [], { env });
    // What it had not launched by then would look as if nothing did.
    if (status !== 0) throw new Error(`kernels.mjs: test_${test} in the emulation: ${error?.message ?? `exit status ${status}`}`);
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
const launched = launches();
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
  const need = d.rate * LATENCY_S / d.sms;
  const names = demangle(found.map((k) => k.name));
  const columns = ['kernel', 'registers', 'local memory', 'instructions', 'threads', 'shared', 'blocks', 'warps', 'in flight at most, KiB',
    'of what is needed'];
  console.log(`## ${arch} (${d.board}: ${(need / 1024).toFixed(1)} KiB in flight a multiprocessor for its ${d.rate / 1e12} TB/s)\n`);
  console.log(`| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}`);
  const titled = found.map((k, i) => ({ ...k, title: names[i], launch: launched.get(k.name) })), same = byTemplate(titled);
  for (const k of titled) k.launch ??= k.title.includes('<') ? same.get(untyped(k.title)) ?? undefined : undefined;
  titled.sort((a, b) => a.title.localeCompare(b.title)).forEach((k) => {
    if (k.spills > 0 || k.frame > 0)
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
