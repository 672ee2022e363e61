// SPDX-License-Identifier: Apache-2.0
// What an installation brings: manual pages and completion, compared with the tables in the sources; the configuration; the
// units. tests/package.sh tries the package itself in a fresh Debian.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { ROOT, SLUICE } from './harness.mjs';

const PATH = `${process.env.PATH}:/usr/sbin:/sbin`;
const env = { ...process.env, PATH, SOURCE_DATE_EPOCH: '1700000000' };
const folder = mkdtempSync(join(tmpdir(), 'sluice-package-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const has = (tool) => spawnSync('sh', ['-c', `command -v ${tool}`], { env }).status === 0;
const needs = (tool) => ({ skip: has(tool) ? false : `${tool} is not installed` });
const docs = (...what) => execFileSync(SLUICE, ['docs', ...what], { encoding: 'utf8', env });
const run = (tool, ...args) => spawnSync(tool, args, { encoding: 'utf8', env, cwd: ROOT });
/** Fails with what the tool said, unless it ended well and silently. */
const silent = (tool, ...args) => {
  const r = run(tool, ...args);
  assert.equal(`${r.stderr}${r.status}`, '0', r.stdout);
};
const plain = (roff) => roff.replaceAll('\\-', '-').replaceAll('\\(aq', '\'').replaceAll(' \\ ', ' ');

// What only the supervisor passes to its children.
const INTERNAL = ['beat-fd', 'handover-fd', 'takeover', 'sockets-stay', 'broker-fd', 'state-fd', 'kv-fd', 'run-as'];
/** The options that the commands' tables have. */
function options() {
  const out = new Set();
  for (const room of readdirSync(join(ROOT, 'cmd'), { withFileTypes: true }).filter((e) => e.isDirectory())) {
    for (const file of readdirSync(join(ROOT, 'cmd', room.name)).filter((f) => f.endsWith('.c'))) {
      const text = readFileSync(join(ROOT, 'cmd', room.name, file), 'utf8');
      for (const m of text.matchAll(/\{"--([a-z][a-z0-9-]*)"|\{"([a-z][a-z0-9-]*)", (?:no|required|optional)_argument/g)) out.add(m[1] ?? m[2]);
    }
  }
  INTERNAL.forEach((o) => assert.ok(out.delete(o), `--${o} is no option any more`));
  assert.ok(out.size > 60, `${out.size} options found`);
  return [...out];
}
const commands = [...execFileSync(SLUICE, ['--help'], { encoding: 'utf8' }).matchAll(/^ {2}([a-z]+) +\S/gm)].map((m) => m[1]).filter((c) => c !== 'sluice');
const allRows = readFileSync(join(ROOT, 'cmd/config/schema.c'), 'utf8').split('all_rows[] = {')[1].split('ROW_END')[0];
const keys = [...allRows.matchAll(/ROW\w*\(\s*"([a-z0-9_.]+)"/g)].map((m) => m[1]);
const has_word = (text, word) => new RegExp(`(^|[^a-z0-9-])${word.replaceAll('.', '\\.')}($|[^a-z0-9-])`, 'm').test(text);

describe('manual pages', () => {
  const man = join(folder, 'sluice.1'), man5 = join(folder, 'sluice.yaml.5');
  before(() => {
    writeFileSync(man, docs('man'));
    writeFileSync(man5, docs('man-config', 'etc/sluice.yaml'));
  });

  test('sluice(1) has every command and option', () => {
    const text = plain(readFileSync(man, 'utf8'));
    assert.ok(commands.length >= 8);
    commands.forEach((c) => assert.ok(text.includes(`.SS sluice ${c}\n`) && text.includes(`.B ${c}\n`), c));
    options().forEach((o) => assert.ok(has_word(text, `--${o}`), `--${o}`));
    INTERNAL.forEach((o) => assert.ok(!has_word(text, `--${o}`), `--${o} is shown`));
  });

  test('sluice.yaml(5) has every key with its default', () => {
    const text = plain(readFileSync(man5, 'utf8'));
    assert.ok(keys.length > 150, `${keys.length} keys`);
    keys.forEach((k) => assert.ok(text.includes(`\n.B ${k}\n`), k));
    for (const item of ['engine.models path', 'gateway.tiers pace_tps', 'gateway.keys sha256']) assert.ok(text.includes(`.BI ${item}\n`), item);
    assert.match(text, /\.B gateway\.heartbeat\n.*\n?time, .*; default 10s/);
  });

  test('a configuration that lacks a key is refused', () => {
    const file = join(folder, 'less.yaml');
    writeFileSync(file, readFileSync(join(ROOT, 'etc/sluice.yaml'), 'utf8').replace('  heartbeat: 10s\n', ''));
    const r = run(SLUICE, 'docs', 'man-config', file);
    assert.equal(r.status, 1);
    assert.match(r.stderr, /does not document gateway\.heartbeat/);
  });

  test('they are reproducible', () => assert.equal(docs('man'), readFileSync(man, 'utf8')));
  test('groff has no warning', needs('groff'), () => [man, man5].forEach((f) => silent('groff', '-man', '-ww', '-Tutf8', '-k', f)));
  test('mandoc has no warning', needs('mandoc'), () => [man, man5].forEach((f) => silent('mandoc', '-Tlint', '-Wwarning', f)));
});

describe('completion', () => {
  const complete = (...words) => {
    const script = `${docs('bash')}\nCOMP_WORDS=(${words.map((w) => `'${w}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _sluice; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return execFileSync('bash', ['-u', '-c', script], { encoding: 'utf8', cwd: folder }).split('\n').filter(Boolean);
  };

  test('bash: commands, actions, options, keys', () => {
    const first = complete('sluice', '');
    commands.forEach((c) => assert.ok(first.includes(c), c));
    assert.deepEqual(complete('sluice', 'keys', 're').sort(), ['revoke', 'rotate'].filter((w) => w.startsWith('re')));
    assert.deepEqual(complete('sluice', 'config', ''), ['check', 'show']);
    assert.deepEqual(complete('sluice', 'keys', 'create', 'a', '--ti'), ['--tier']);
    assert.deepEqual(complete('sluice', 'serve', '--set', 'gateway.heartb'), ['gateway.heartbeat=']);
    const all = new Set(commands.flatMap((c) => complete('sluice', c, '--')));
    options().forEach((o) => assert.ok(all.has(`--${o}`), `--${o}`));
  });

  test('zsh and fish have the same', () => {
    for (const shell of ['zsh', 'fish']) {
      const text = docs(shell);
      commands.forEach((c) => assert.ok(has_word(text, c), `${shell}: ${c}`));
      options().forEach((o) => assert.ok(has_word(text, shell === 'fish' ? o : `--${o}`), `${shell}: --${o}`));
      keys.forEach((k) => assert.ok(text.includes(`${k}=`), `${shell}: ${k}`));
    }
  });

  for (const shell of ['bash', 'zsh', 'fish']) {
    test(`${shell} can read it`, needs(shell), () => {
      const file = join(folder, `completion.${shell}`);
      writeFileSync(file, docs(shell));
      silent(shell, '-n', file);
    });
  }
});

describe('a service', () => {
  const unit = join(folder, 'sluice.service');
  before(() => writeFileSync(unit, readFileSync(join(ROOT, 'etc/systemd/sluice.service'), 'utf8')
    .replaceAll('@BIN@', '/usr/bin').replaceAll('@CONFIG@', '/etc/sluice/sluice.yaml').replaceAll('@ETC@', '/etc').replaceAll('@STATE@', '/var/lib/sluice')));

  test('its configuration is good, listens on this machine only, and has no development keys', () => {
    const file = join(folder, 'installed.yaml');
    writeFileSync(file, run('etc/package/config.sh', join(ROOT, 'etc'), '/var/lib/sluice').stdout);
    silent(SLUICE, 'config', 'check', '-c', file);
    const shown = run(SLUICE, 'config', 'show', '-c', file).stdout;
    for (const line of [/^gateway\.http: "127\.0\.0\.1:8080" /m, /^gateway\.https: "127\.0\.0\.1:8443" /m, /^gateway\.dev_keys: false /m, /^gateway\.anonymous: free /m, /^state: \/var\/lib\/sluice /m]) assert.match(shown, line);
  });

  test('a container\'s differs in where it listens', () => {
    const file = join(folder, 'container.yaml');
    writeFileSync(file, run('etc/package/config.sh', join(ROOT, 'etc'), '/var/lib/sluice').stdout);
    silent('etc/container/configure.sh', file);
    const shown = run(SLUICE, 'config', 'show', '-c', file).stdout;
    assert.match(shown, /^gateway\.http: "?\*:8080/m);
    assert.match(shown, /^gateway\.https: "?off/m);
    assert.notEqual(run('etc/container/configure.sh', file).status, 0, 'there is nothing left to change');
  });

  test('its exposure is at most 2.0', needs('systemd-analyze'), () => {
    const r = run('systemd-analyze', 'security', '--offline=true', '--no-pager', '--threshold=20', unit);
    assert.equal(r.status, 0, r.stdout + r.stderr);
    assert.match(r.stdout, /Overall exposure level/);
  });
});
