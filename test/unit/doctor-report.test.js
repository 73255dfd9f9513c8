// doctor-report.test.js: versions with faults, the start of a server, the command line, JSON and the
// table (doctor/versions.js, doctor/doctor.js, doctor/report.js).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { glance, parseOptions } from '../../src/doctor/doctor.js';
import { DEFAULT_WANTED, LIMITS } from '../../src/doctor/limits.js';
import { liveUrl } from '../../src/doctor/live.js';
import { parseInfo, READERS, versionOf } from '../../src/doctor/read.js';
import { summary, toJson, toText } from '../../src/doctor/report.js';
import { endedNote, NODE_LINES, nodeNote, STORE_FAULTS } from '../../src/doctor/versions.js';
import { configOf, FILES, look, plenty, reader, rowOf } from '../helpers/doctor.js';

test('a version of Node without support is a note, which changes neither verdict nor exit code', () => {
  /** @type {[version: string, day: string, note: RegExp|null][]} */
  const cases = [
    ['v20.20.2', '2026-04-30T23:00Z', null],
    ['v20.20.2', '2026-05-01', /Node 20 has had no security fixes .* ended on 2026-04-30$/],
    ['v22.23.4', '2027-04-30', null],
    ['v22.23.3', '2027-04-30', /^Node before 22\.23\.4 has no fix for CVE-2026-111497/],
    ['v22.9.9', '2027-04-30', /CVE-2026-111497/],
    ['v22.23.3', '2027-05-01', /Node 22 .* ended on 2027-04-30$/],
    ['v24.21.0', '2028-05-01', /Node 24 .* ended on 2028-04-30$/],
    ['v24.23.0', '2028-04-30', null],
    ['v26.12.1', '2029-04-30', null],
    ['v26.10.0', '2029-04-30', /Node before 26\.12\.1/],
    ['v26.10.0', '2029-05-01', /Node 26 .* ended on 2029-04-30$/],
    ['v25.1.0', '2026-01-01', /Node 25 is not among the tested lines \(20, 22, 24, 26\)$/],
    ['v28.0.0', '2028-05-01', /not among the tested lines/],
  ];
  for (const [version, day, note] of cases) {
    const report = look({ ...plenty(), node: { version, nowMs: Date.parse(day) } });
    const row = rowOf(report, 'node');
    assert.deepEqual([report.verdict, row.value], ['ok', version]);
    assert.equal(row.verdict, note === null ? 'ok' : 'note', `${version} on ${day}`);
    if (note === null) assert.equal(row.fix, null);
    else {
      assert.match(row.why, note);
      assert.equal(row.fix, 'install Node 26');
      assert.match(toText(report, []), /\nnode: Node .*\n(?: {2}.*\n)+ {2}Fix: install Node 26$/m);
    }
  }
});

test('a version of Redis or Valkey without a fix is a note that names what it lacks', () => {
  const valkey = (/** @type {string} */ version) =>
    `redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:${version}`;
  const [lua, unblock, stream, corrupt, tls, kill] = STORE_FAULTS.map(({ name }) => name);
  /** @type {[info: string, missing: string[], value: string][]} */
  const cases = [
    ['redis_version:6.0.16', [lua, stream, tls], 'Redis 6.0.16'],
    ['redis_version:6.2.19', [lua, stream, tls], 'Redis 6.2.19'],
    ['redis_version:6.2.20', [stream, tls], 'Redis 6.2.20'],
    ['redis_version:6.2.24', [], 'Redis 6.2.24'],
    ['redis_version:7.0.15', [lua, stream, tls], 'Redis 7.0.15'],
    ['redis_version:7.2.15', [tls], 'Redis 7.2.15'],
    ['redis_version:7.4.11', [], 'Redis 7.4.11'],
    ['redis_version:8.0.3', [lua, stream, tls], 'Redis 8.0.3'],
    ['redis_version:8.0.4', [stream, tls], 'Redis 8.0.4'],
    ['redis_version:8.2.9', [], 'Redis 8.2.9'],
    ['redis_version:8.8.1', [tls], 'Redis 8.8.1'],
    // CVE-2026-12087 is not named for 8.10: its first version came later.
    ['redis_version:8.10.0', [tls], 'Redis 8.10.0'],
    ['redis_version:8.10.1', [], 'Redis 8.10.1'],
    ['redis_version:8.12.0', [], 'Redis 8.12.0'],
    [valkey('7.2.10'), [lua, unblock, corrupt, kill], 'Valkey 7.2.10'],
    [valkey('8.1.1'), [lua, unblock, corrupt, kill], 'Valkey 8.1.1'],
    [valkey('8.1.9'), [], 'Valkey 8.1.9'],
    [valkey('9.0.4'), [corrupt, kill], 'Valkey 9.0.4'],
    [valkey('9.1.1'), [], 'Valkey 9.1.1'],
  ];
  for (const [info, missing, value] of cases) {
    const report = look({ ...plenty(), redisVersion: versionOf(parseInfo(info)) });
    const row = rowOf(report, 'redis-version');
    assert.deepEqual([report.verdict, row.value], ['ok', value]);
    assert.equal(row.verdict, missing.length === 0 ? 'ok' : 'note', value);
    const named = (row.why ?? '').match(/CVE-\d+-\d+/g) ?? [];
    assert.deepEqual(named, missing, value);
    assert.doesNotMatch(row.why ?? '', /the same/, 'each effect stands alone');
  }
});

test('a line of Node that gets no fixes any more is named', () => {
  const day = (/** @type {string} */ text) => Date.parse(text);
  assert.equal(endedNote('v20.20.2', day('2026-04-30')), '');
  assert.match(endedNote('v20.20.2', day('2026-05-01')), /^Node 20 .* ended on 2026-04-30$/);
  assert.equal(endedNote('v22.1.0', day('2026-05-01')), '');
  assert.equal(endedNote('v99.0.0', day('2030-01-01')), '');
});

test('all files that list the lines of Node list the same ones', () => {
  const lines = Object.keys(NODE_LINES);
  const newest = lines.at(-1);
  const [floor] = lines;
  const read = (/** @type {string} */ file) =>
    readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
  assert.match(read('package.json'), new RegExp(`"node": "\\^${floor}\\.`));
  assert.match(read('package.json'), new RegExp(`"@types/node": "\\^${floor}\\.`));
  const listOf = (/** @type {readonly string[]} */ some) =>
    `Node ${some.slice(0, -1).join(', ')} and ${newest}`;
  for (const file of ['README.md', 'test/README.md', 'CONTRIBUTING.md'])
    assert.ok(read(file).includes(listOf(lines)), file);
  for (const file of ['test/setup.sh', 'CONTRIBUTING.md'])
    assert.ok(read(file).includes(`Node ${newest}, `), file);
  const script = read('test/nodes.sh');
  assert.ok(script.includes(`VERSIONS="${lines.join(' ')}"\n`));
  assert.ok(script.includes(`\nNEWEST=${newest}\n`));
  const dockerfile = read('docker/Dockerfile');
  const [, image = ''] = /^ARG NODE_IMAGE=node:(\d+\.\d+\.\d+)-/m.exec(dockerfile) ?? [];
  assert.equal(image.split('.')[0], newest);
  assert.equal(nodeNote(`v${image}`, Date.parse('2026-12-01')), '');
  for (const [, base] of dockerfile.matchAll(/^FROM (\S+)/gm))
    assert.match(base, /^(\$\{NODE_IMAGE\}|modules)$/);
});

test('the start of a server reports a limit that is too low, and nothing else', () => {
  const read = reader(FILES);
  const config = configOf();
  assert.equal(
    glance(
      config,
      reader({
        ...FILES,
        '/proc/self/limits': FILES['/proc/self/limits'].replace('1024 ', '4096 '),
      }),
    ),
    '',
  );
  assert.equal(
    glance(config, read),
    'low system limit: nofile, at 2,816 connections: run "npm run doctor" (or "fanfare doctor") for the fix',
  );
  // Not Linux: nothing can be read, and nothing is wrong.
  assert.equal(glance(config, reader({})), '');
  const names = LIMITS.filter(({ atStart }) => atStart).flatMap(({ needs }) => needs);
  assert.ok(
    names.every((name) => name in READERS),
    'no question to Redis at a start',
  );
});

test('the command line is parsed, and its faults are reported', () => {
  assert.deepEqual(parseOptions([]), {
    wanted: DEFAULT_WANTED,
    pid: null,
    clients: null,
    idleTimeoutMs: null,
    webhooks: false,
    hooks: false,
    live: false,
    json: false,
    help: false,
  });
  const args = [
    '--connections',
    '50000',
    '--pid',
    '42',
    '--clients',
    'here',
    '--lb-idle-timeout',
    '2m',
    '--json',
  ];
  assert.deepEqual(parseOptions(args), {
    wanted: 50_000,
    pid: '42',
    clients: 'here',
    idleTimeoutMs: 120_000,
    webhooks: false,
    hooks: false,
    live: false,
    json: true,
    help: false,
  });
  /** @type {[string[], RegExp][]} */
  const faults = [
    [['--connections', '0'], /--connections: 0/],
    [['--connections', '1e5'], /--connections: 1e5/],
    [['--pid', 'self'], /--pid: self/],
    [['--clients', 'there'], /--clients: there/],
    [['--lb-idle-timeout', '60'], /with a unit/],
    [['--wanted', '1'], /--wanted/],
    [['1000'], /1000/],
  ];
  for (const [wrong, message] of faults) assert.throws(() => parseOptions(wrong), message);
});

test('the JSON has the fields that docs/operations.md names', () => {
  const report = look({ ...plenty(), somaxconn: 128 });
  const json = JSON.parse(toJson(report, ['a note']));
  assert.deepEqual(Object.keys(json), [
    'format',
    'wanted',
    'workers',
    'verdict',
    'first',
    'permits',
    'limits',
    'notes',
  ]);
  assert.deepEqual(
    [json.format, json.wanted, json.workers, json.verdict, json.first, json.permits, json.notes],
    [1, 50_000, 4, 'low', 'net.core.somaxconn', 128, ['a note']],
  );
  const fields = ['name', 'value', 'permits', 'binds', 'verdict', 'why', 'meaning', 'fix'];
  for (const row of json.limits) assert.deepEqual(Object.keys(row), fields);
});

test('the table has a row for each limit, and a fix for each low one', () => {
  const report = look({ ...plenty(), somaxconn: 128 }, { clients: 'elsewhere' });
  const text = toText(report, ['a note']);
  for (const { name } of report.limits)
    assert.match(text, new RegExp(`^${name.replaceAll('.', '\\.')} `, 'm'));
  assert.match(text, /^net\.core\.somaxconn +128, listen backlog 128 +128 {2}low$/m);
  // Informative only; it does not bind here.
  assert.match(text, /ip_local_port_range .* \(64,512\) {2}ok$/m);
  assert.match(text, /^First to bind: net\.core\.somaxconn, at 128 connections$/m);
  assert.match(
    text,
    /^net\.core\.somaxconn: 128 of the 50,000 wanted connections\n(?: {2}.*\n)+ {2}Fix: sudo sysctl -w/m,
  );
  assert.ok(text.endsWith('\n\na note'));
  assert.equal(
    summary(look({ ...plenty(), redisVersion: { product: 'Redis', version: '5.0.1' } })),
    'redis-version: this version is older than 6.0 and no longer maintained',
  );
});

test('on a terminal the verdicts have colours, and text of Redis cannot add others', () => {
  const report = look(plenty());
  const [first] = report.limits;
  const verdicts = /** @type {const} */ (['ok', 'note', 'low', 'cannot read']);
  const limits = verdicts.map((verdict, i) => ({
    ...first,
    name: `limit${i}`,
    value: '7.2\x1b[31m',
    why: '\u009b31m\u202ewhy',
    verdict,
  }));
  const plain = toText({ ...report, limits }, ['\x1b[2Jnote']);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these must not reach a terminal
  assert.doesNotMatch(plain, /[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/);
  assert.ok(plain.includes('7.2\\u001b[31m') && plain.includes('\\u001b[2Jnote'));
  const coloured = toText({ ...report, limits }, ['\x1b[2Jnote'], true);
  for (const part of ['\x1b[32mok', '\x1b[33mnote', '\x1b[31mlow', '\x1b[2mcannot read'])
    assert.ok(coloured.includes(part), part);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the colours of the verdicts
  assert.equal(coloured.replaceAll(/\x1b\[\d+m/g, ''), plain);
});

test('--live connects to the address on which the operations port listens', () => {
  for (const [env, url] of /** @type {const} */ ([
    [{}, 'http://127.0.0.1:9090/livez'],
    [{ METRICS_HOST: '0.0.0.0', METRICS_PORT: '9464' }, 'http://127.0.0.1:9464/livez'],
    [{ METRICS_HOST: '::', METRICS_PORT: ' ' }, 'http://[::1]:9090/livez'],
    [{ METRICS_HOST: '10.0.0.7' }, 'http://10.0.0.7:9090/livez'],
  ]))
    assert.equal(liveUrl(env), url);
});
