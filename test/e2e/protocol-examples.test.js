// protocol-examples.test.js: plays every example of docs/protocol.md against a real server.
//
// In an example `>` is a command and `<` a message of the server. The messages that follow a command
// may come in any order. Fields whose values differ from run to run are compared by their type.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { startServer } from '../harness/server.js';

const PAGE = new URL('../../docs/protocol.md', import.meta.url);
const VOLATILE = ['connectionId', 'serverId', 'from', 'timestamp', 'epoch', 'listenerCount'];
const TIMEOUT_MS = 5000;

/** Examples by their heading. @type {{title: string, lines: string[]}[]} */
const examples = readFileSync(PAGE, 'utf8')
  .split(/^#+ /m)
  .flatMap((section) =>
    [...section.matchAll(/```\n(> [\s\S]*?)```/g)].map(([, block]) => ({
      title: section.slice(0, section.indexOf('\n')),
      lines: block.trim().split('\n'),
    })),
  );

test('a server answers as each example of docs/protocol.md shows', async (t) => {
  assert.ok(examples.length >= 10);
  const { port } = await startServer(t, {
    FANFARE_HISTORY: 'chat.*=100/300s',
    FANFARE_STATE: 'price.*=100/1h',
    FANFARE_PRESENCE: 'team',
  });
  for (const { title, lines } of examples) {
    await t.test(title, { timeout: TIMEOUT_MS }, () => play(port, lines));
  }
});

test('an example that differs from the server is noticed', async (t) => {
  const { port } = await startServer(t, { WORKERS: '1' });
  const wrong = ['> {"type":"ping","id":1}', '< {"type":"pong","id":2}'];
  await assert.rejects(play(port, wrong), /not in the example/);
});

/** @param {number} port @param {readonly string[]} lines */
async function play(port, lines) {
  const websocket = new WebSocket(`ws://127.0.0.1:${port}/ws`);
  try {
    /** @type {string[]} */
    const texts = [];
    /** @type {() => void} */
    let wake = () => {};
    websocket.on('message', (data) => {
      texts.push(String(data));
      wake();
    });
    await new Promise((resolve, reject) => {
      websocket.on('open', resolve);
      websocket.on('error', reject);
    });
    let epoch = '';
    /** @type {string[]} */
    let expected = [];
    for (const line of [...lines, '>']) {
      if (line.startsWith('< ')) {
        expected.push(line.slice(2));
        continue;
      }
      for (const awaited = expected; awaited.length > 0; ) {
        if (texts.length === 0) {
          await new Promise((resolve) => {
            wake = () => resolve(undefined);
          });
        }
        const text = /** @type {string} */ (texts.shift());
        epoch = /"epoch":"(\w+)"/.exec(text)?.[1] ?? epoch;
        const at = awaited.findIndex((other) => steady(other) === steady(text));
        assert.ok(at >= 0, `${text} is not in the example: ${awaited.join(' ')}`);
        awaited.splice(at, 1);
      }
      expected = [];
      if (line !== '>')
        websocket.send(line.slice(2).replace(/"epoch":"\w+"/, `"epoch":"${epoch}"`));
    }
    assert.deepEqual(texts, []);
  } finally {
    websocket.terminate();
  }
}

/** A message with the values that differ from run to run replaced. @param {string} text */
function steady(text) {
  return text.replace(
    new RegExp(`"(${VOLATILE.join('|')})":("[^"]*"|\\d+)`, 'g'),
    (_all, name, value) => `"${name}":${value.startsWith('"') ? '"…"' : 0}`,
  );
}
