// docs-ai.test.js: the code of docs/ai.md that e2e/ai-chat and e2e/ai-mcp do not run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read, stream } from '../../src/ai/index.js';
import { Fanfare } from '../../src/client/node.js';
import { createServer, sign } from '../../src/sdk/index.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { codeWith, runCode } from '../helpers/doc-code.js';
import { SECRET } from '../helpers/tokens.js';

const PAGE = 'docs/ai.md';

test('the writer, the reader and the token of docs/ai.md', async (t) => {
  const apiKey = newSecret();
  const fanfare = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `ai ${apiKey} all`,
    JWT_SECRET: SECRET,
    FANFARE_HISTORY: 'run.*=100/60s',
  });
  const url = `http://127.0.0.1:${fanfare.port}`;
  const model = ['It', ' was', ' night.'];
  const { server } = await runCode(
    codeWith(PAGE, 'any iterable of JSON values'),
    { stream, createServer, url, apiKey, model },
    ['server'],
  );
  await runCode(codeWith(PAGE, 'a time.'), { stream, server });

  /** @type {unknown[]} */
  const said = [];
  const console = { log: (/** @type {unknown[]} */ ...words) => said.push(...words) };
  const reading = codeWith(PAGE, "read(fanfare, 'run.42')");
  const token = await sign({ user: 'ann', rooms: ['run.*'] }, SECRET);
  class Signed extends Fanfare {
    /** @param {string} address */
    constructor(address) {
      super(address, { token });
    }
  }
  const { fanfare: first } = await runCode(reading, { read, Fanfare: Signed, url, console }, [
    'fanfare',
  ]);
  t.after(() => first.close());
  assert.deepEqual(said, ['done', 'It was night.']);
  let text = '';
  for await (const chunk of read(first, 'run.43')) text += chunk;
  assert.equal(text, 'Once upon a time.');

  const rights = await runCode(codeWith(PAGE, "'run.u7.*/stop'"), { sign, JWT_SECRET: SECRET }, [
    'token',
  ]);
  const viewer = new Fanfare(url, { token: rights.token });
  t.after(() => viewer.close());
  const run = await stream(server, 'run.u7.1', { stop: first });
  await read(viewer, 'run.u7.1').stop();
  await until(() => run.signal.aborted);
  await assert.rejects(viewer.publish('run.u7.1', 'x'), { code: 'PERMISSION_DENIED' });
  await assert.rejects(
    async () => {
      for await (const _ of read(viewer, 'run.u8.1'));
    },
    { code: 'PERMISSION_DENIED' },
  );
});
