import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpsServer } from '../../src/primary/ops-server.js';
import { Scrape } from '../../src/primary/scrape.js';
import { Turnstile } from '../../src/primary/turnstile.js';
import { RawClient } from '../helpers/raw-http.js';

const limit = { timeout: 20_000 };
/** The attacker's address, and that of a probe. */
const CROWD = '127.0.0.2';
const OTHER = '127.0.0.3';

/** @param {import('node:test').TestContext} t @param {() => Promise<string>} [metrics] */
async function start(t, metrics = async () => 'a 1\n') {
  const ops = new OpsServer({
    port: 0,
    host: '127.0.0.1',
    metrics,
    readiness: () => ({ ready: 1, workers: 1, draining: false }),
    log: /** @type {any} */ ({
      error: (/** @type {object} */ fields) => assert.fail(String(fields)),
    }),
  });
  const port = await ops.start();
  t.after(() => ops.close());
  const connect = (/** @type {string} */ localAddress) =>
    RawClient.connect(t, { port, localAddress });
  return { ops, connect };
}

const get = (/** @type {string} */ path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;

/** @param {() => boolean} condition */
async function until(condition) {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

test(
  '257 sockets of one address shut out no probe, of another address or of their own',
  limit,
  async (t) => {
    const { ops, connect } = await start(t);
    const crowd = [];
    for (let i = 0; i < 256; i++) crowd.push(await connect(CROWD));
    for (const client of crowd) client.write(get('/livez'));
    for (const client of crowd) assert.equal((await client.response()).status, 200);
    // The first asks again, so it is no longer the one that has asked least recently.
    assert.equal((await crowd[0].write(get('/livez')).response()).status, 200);
    const probe = await connect(OTHER);
    assert.equal((await probe.write(get('/livez')).response()).status, 200);
    const own = await connect(CROWD);
    assert.equal((await own.write(get('/readyz')).response()).status, 200);
    await crowd[1].closed();
    await crowd[2].closed();
    assert.deepEqual(ops.closed, { full: 2, pipelined: 0 });
    assert.equal((await probe.write(get('/livez')).response()).status, 200);
    assert.equal((await crowd[0].write(get('/livez')).response()).status, 200);
  },
);

test(
  'a page of metrics is rendered once for all who ask within half a second',
  limit,
  async (t) => {
    let renderings = 0;
    /** @type {() => void} */
    let finish = () => {};
    const { connect } = await start(t, async () => {
      const text = `renderings ${++renderings}\n`;
      if (renderings === 1) await new Promise((resolve) => (finish = () => resolve(undefined)));
      return text;
    });
    const clients = [];
    for (let i = 0; i < 100; i++) clients.push((await connect(CROWD)).write(get('/metrics')));
    await until(() => renderings === 1);
    const probe = await connect(CROWD);
    // A probe does not wait for the scrapes.
    assert.equal((await probe.write(get('/livez')).response()).status, 200);
    const beganMs = performance.now();
    finish();
    for (const client of clients) assert.equal((await client.response()).body, 'renderings 1\n');
    for (const client of clients) client.write(get('/metrics'));
    for (const client of clients)
      assert.match((await client.response()).body, /^renderings [2-9]\n$/);
    // A busy machine takes longer than half a second for the second hundred.
    assert.ok(renderings <= 2 + Math.floor((performance.now() - beganMs) / 500), `${renderings}`);
  },
);

test('a scrape within half a second of the last one waits for its time', limit, async () => {
  /** @type {number[]} */
  const begins = [];
  const scrape = new Scrape(async () => String(begins.push(performance.now())));
  assert.equal(String(await scrape.read()), '1', 'the first does not wait');
  const [one, other] = [scrape.read(), scrape.read()];
  assert.equal(await one, await other);
  assert.ok(begins[1] - begins[0] >= 490, `${begins[1] - begins[0]} ms`);
});

test(
  'a socket with a second request before the first is answered is closed and counted',
  limit,
  async (t) => {
    const { ops, connect } = await start(t);
    const client = await connect(CROWD);
    client.write(get('/livez').repeat(3000));
    await client.closed();
    assert.equal(ops.closed.pipelined, 1);
  },
);

test('a turnstile lets a rate pass, in turn by address, and forgets who leaves', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const clock = { nowMs: 0 };
  const turnstile = new Turnstile({ perSecond: 100, burst: 2 }, () => clock.nowMs);
  t.after(() => turnstile.close());
  /** @type {string[]} */
  const passed = [];
  const enter = (/** @type {string} */ address, /** @type {number} */ i) =>
    turnstile.waitInLine(address, () => passed.push(`${address}${i}`));
  for (let i = 0; i < 5; i++) enter('a', i);
  const leave = enter('b', 0);
  enter('b', 1);
  assert.deepEqual(passed, ['a0', 'a1']);
  leave();
  const pass = () => {
    clock.nowMs += 20;
    t.mock.timers.tick(20);
    return passed.splice(0);
  };
  passed.length = 0;
  assert.deepEqual(pass(), ['a2', 'b1']);
  assert.deepEqual(pass(), ['a3', 'a4']);
  assert.deepEqual(pass(), []);
  enter('c', 0);
  enter('c', 1);
  enter('c', 2);
  assert.deepEqual(passed, ['c0', 'c1']);
});
