// SPDX-License-Identifier: Apache-2.0
// The code for devices that a shared object or a cubin has, and what each kernel of it needs: read from the bytes, since a
// toolkit's tools may not be there.
import { spawnSync } from 'node:child_process';

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
export function* entries(so) {
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

export function kernels(elf) {
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

// Whether a kernel uses local memory: a stack frame, or loads and stores of it.
export const spilled = (k) => k.spills > 0 || k.frame > 0;
