import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createLog, flushLog, redactUrl } from '../../src/observability/log.js';
import { textFormat } from '../../src/observability/log-text.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const LOG = new URL('../../src/observability/log.js', import.meta.url).href;

/**
 * The output of a logger.
 * @param {import('node:test').TestContext} t @param {(log: import('pino').Logger) => void} act
 */
async function written(t, act) {
  const path = join(temporaryFolder(t), 'log');
  const descriptor = openSync(path, 'a');
  t.after(() => closeSync(descriptor));
  act(createLog({ level: 'debug', name: 'test', format: 'json', descriptor }));
  await flushLog();
  return readFileSync(path, 'utf8');
}

/** @param {string} code run as a module with `createLog` and friends imported */
const child = (code) => [
  '--input-type=module',
  '-e',
  `import { createLog, droppedLines, flushLog } from '${LOG}';\n${code}`,
];

test('secrets are redacted wherever they occur', async (t) => {
  const text = await written(t, (log) => {
    log.info(
      {
        headers: {
          authorization: 'Bearer SECRET',
          Cookie: 'a=SECRET',
          'sec-websocket-protocol': 'fanfare, SECRET',
          host: 'kept',
        },
      },
      'x',
    );
    log.info({ token: 'SECRET', deep: [{ password: 'SECRET' }] }, 'x');
    log.info(
      { url: '/sse?room=a&token=SECRET' },
      'from https://me:SECRET@example.com/a?token=SECRET',
    );
    log.info({ redisUrl: 'redis://:SECRET@redis:6379/0' }, 'x');
    log.error(
      { err: new Error('redis://user:SECRET@redis failed', { cause: new Error('Bearer SECRET') }) },
      'x',
    );
    log.error(
      Object.assign(new Error('with fields'), { token: 'SECRET', input: 'redis://a:SECRET@b' }),
    );
  });
  assert.doesNotMatch(text, /SECRET/);
  assert.match(text, /"host":"kept"/);
  assert.match(text, /redis:\/\/\[redacted\]@redis:6379\/0/);
  for (const line of text.trim().split('\n')) JSON.parse(line);
});

test('a URL keeps its parts that are not secret', () => {
  assert.equal(
    redactUrl('redis://user:pw@host:6379/1?x=y'),
    'redis://[redacted]@host:6379/1?[redacted]',
  );
  assert.equal(redactUrl('GET /ws?token=a.b-c HTTP/1.1'), 'GET /ws?[redacted] HTTP/1.1');
  assert.equal(redactUrl('what? no url here'), 'what? no url here');
  assert.equal(redactUrl('http://localhost:3000/ws'), 'http://localhost:3000/ws');
});

test('control characters cannot forge a line', async (t) => {
  const text = await written(t, (log) => log.info({ room: 'a\n{"level":60}\u001b[31m' }, 'b\r\nc'));
  assert.equal(text.trim().split('\n').length, 1);
  assert.ok(!text.includes('\u001b'));
});

test('in the text format, an event is one line with an error’s stack below, and control characters are escaped', () => {
  const format = textFormat(false);
  const line = (/** @type {object} */ fields) =>
    format(`${JSON.stringify({ time: 0, pid: 1, server: 's', ...fields })}\n`);
  assert.match(
    line({ level: 30, msg: 'hello', worker: 0 }),
    /^\d\d:\d\d:\d\d\.000 info {2}hello {2}worker=0\n$/,
  );
  const error = line({
    level: 50,
    msg: 'it failed',
    err: { type: 'Error', message: 'm', stack: 'Error: m\n    at x' },
  });
  assert.match(error, /ERROR it failed\n {4}Error: m\n {8}at x\n$/);
  assert.match(
    line({
      level: 40,
      msg: 'hm',
      err: { type: 'Error', message: 'm', stack: 'Error: m\n    at x' },
    }),
    /hm\n {4}Error: m\n$/,
  );
  assert.ok(
    line({ level: 30, msg: 'a\nb', name: '\x1b[2J\u009b\u2028\u202e' }).endsWith(
      'a\\u000ab  name=\\u001b[2J\\u009b\\u2028\\u202e\n',
    ),
  );
  assert.equal(format('no JSON\n'), 'no JSON\n');
  assert.ok(textFormat(true)(`{"level":60,"msg":"x"}`).includes('\x1b[1;31mFATAL'));
});

test('each line has its process ID and its server', async (t) => {
  const text = await written(t, (log) => log.child({ worker: 3 }).info('x'));
  const line = JSON.parse(text);
  assert.equal(line.pid, process.pid);
  assert.equal(line.server, 'test');
  assert.equal(line.worker, 3);
});

test('the process survives a closed pipe, and lost lines are counted', {
  timeout: 20_000,
}, async (t) => {
  const process_ = spawn(
    process.execPath,
    child(`
    const log = createLog({ level: 'info', format: 'json' });
    process.on('message', async () => {
      for (let i = 0; i < 50; i++) log.info('into the void');
      const end = Date.now() + 5000;
      while (droppedLines() === 0 && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, 10));
      process.send({ dropped: droppedLines() }, () => process.exit(7));
    });
    log.info('first');
  `),
    { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] },
  );
  t.after(() => process_.kill('SIGKILL'));
  await once(/** @type {import('node:stream').Readable} */ (process_.stdout), 'data');
  process_.stdout?.destroy();
  process_.send('go');
  const [message] = await once(process_, 'message');
  assert.ok(message.dropped > 0);
  const [code] = await once(process_, 'exit');
  assert.equal(code, 7);
});

test('a pipe without a reader blocks neither the process nor its exit, and memory stays bounded', {
  timeout: 20_000,
}, async (t) => {
  const process_ = spawn(
    process.execPath,
    child(`
    const log = createLog({ level: 'info', format: 'json' });
    const line = 'x'.repeat(1000);
    for (let i = 0; i < 5000; i++) log.info(line);
    setTimeout(() => process.send({ dropped: droppedLines() }, () => process.exit(7)), 100);
  `),
    { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] },
  );
  t.after(() => process_.kill('SIGKILL'));
  const [message] = await once(process_, 'message');
  assert.ok(message.dropped > 3000, `${message.dropped} dropped`);
  const [code] = await once(process_, 'exit');
  assert.equal(code, 7);
});

test('a shell pipe without a reader blocks neither the process nor its exit', {
  timeout: 20_000,
}, () => {
  const code = child(`
    const log = createLog({ level: 'info', format: 'json' });
    const line = 'x'.repeat(1000);
    for (let i = 0; i < 5000; i++) log.info(line);
    setTimeout(() => process.exit(droppedLines() > 3000 ? 7 : 8), 100);
  `).at(-1);
  const script = '("$NODE" --input-type=module -e "$CODE"; echo "exit $?" >&2) | sleep 3';
  const { stderr } = spawnSync('sh', ['-c', script], {
    env: { ...process.env, NODE: process.execPath, CODE: code },
    encoding: 'utf8',
  });
  assert.equal(stderr.trim(), 'exit 7');
});

test('lines written just before the exit are not lost', { timeout: 20_000 }, () => {
  const { stdout, status } = spawnSync(
    process.execPath,
    child(`
    const log = createLog({ level: 'info', format: 'json' });
    for (let i = 0; i < 500; i++) log.info({ i }, 'line');
    process.exit(3);
  `),
    { encoding: 'utf8' },
  );
  assert.equal(status, 3);
  const numbers = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).i);
  assert.deepEqual(
    numbers,
    Array.from({ length: 500 }, (_, i) => i),
  );
});

test('the process survives a full device', { timeout: 20_000 }, () => {
  const { stderr, status } = spawnSync(
    process.execPath,
    child(`
    import { openSync } from 'node:fs';
    const log = createLog({ level: 'info', format: 'json', descriptor: openSync('/dev/full', 'a') });
    for (let i = 0; i < 3; i++) log.info('x');
    await new Promise((resolve) => setTimeout(resolve, 100));
    process.exit(droppedLines() > 0 ? 7 : 8);
  `),
    { encoding: 'utf8' },
  );
  assert.equal(status, 7, stderr);
});

test('the process survives a full disk, and the log continues with whole lines when the disk has space', {
  timeout: 20_000,
}, async (t) => {
  const mountPoint = mkdtempSync(join(tmpdir(), 'fanfare-log-'));
  t.after(() => {
    spawnSync('umount', ['-l', mountPoint]);
    rmSync(mountPoint, { recursive: true, force: true });
  });
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', mountPoint]);
  if (mounted.status !== 0) return t.skip('no right to mount here');
  const ballast = join(mountPoint, 'ballast');
  writeFileSync(ballast, Buffer.alloc(40_000));
  const path = join(mountPoint, 'log');
  const process_ = spawn(
    process.execPath,
    child(`
    import { openSync } from 'node:fs';
    const log = createLog({ level: 'info', format: 'json', descriptor: openSync('${path}', 'a') });
    const fill = setInterval(() => {
      log.info('x'.repeat(500));
      if (droppedLines() > 0) { clearInterval(fill); process.send('full'); }
    }, 1);
    process.on('message', async () => {
      log.info('after');
      await flushLog(5000);
      process.exit(7);
    });
  `),
    { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] },
  );
  t.after(() => process_.kill('SIGKILL'));
  await once(process_, 'message');
  unlinkSync(ballast);
  process_.send('go on');
  const [code] = await once(process_, 'exit');
  assert.equal(code, 7);
  const lines = readFileSync(path, 'utf8').trim().split('\n');
  /** @param {string} line */
  const isWhole = (line) => line.startsWith('{') && line.endsWith('}');
  // One may be torn: the one that met the end of the disk.
  assert.ok(lines.filter((line) => !isWhole(line)).length <= 1);
  assert.ok(lines.some((line) => line.includes('log lines were dropped')));
  assert.ok(lines.some((line) => isWhole(line) && JSON.parse(line).msg === 'after'));
});
