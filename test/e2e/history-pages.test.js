// history-pages.test.js: a room's history, read backwards and by time while messages arrive, over
// WebSocket, HTTP and server-sent events, on both backends.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { shared } from '../helpers/shared.js';

const COUNT = 1200;
const OPTIONS = { timeout: 60_000 };

for (const backend of ['embedded', 'redis']) {
  describe(`on the ${backend} backend`, () => {
    const start = shared(async (owner) => {
      const secret = newSecret();
      const server = await startServer(owner, {
        ...NO_LIMITS,
        WORKERS: '2',
        FANFARE_SCHEDULING: 'round-robin',
        FANFARE_HISTORY: 'h.*=5000/60s, short.*=50/60s',
        API_KEYS: `main ${secret} all`,
        ...(backend === 'redis' ? { REDIS_URL: (await startRedis(owner)).url } : {}),
      });
      return { url: `ws://127.0.0.1:${server.port}`, api: apiOf(server, secret), server };
    });

    /**
     * A room with COUNT numbered messages, and more that arrive until the test ends.
     * @param {import('node:test').TestContext} t @param {string} name
     */
    async function busyRoom(t, name) {
      const { url, api } = await start();
      const publisher = new Fanfare(url, { maxPending: 10_000 });
      await publisher.connect();
      let number = 0;
      const publish = () => publisher.publish(name, ++number);
      // Ticks of one, of few and of many.
      while (number < COUNT) {
        const burst = Math.min(COUNT - number, 1 + ((number * 7) % 60));
        await Promise.all(Array.from({ length: burst }, publish));
      }
      let isEnding = false;
      const publishing = (async () => {
        while (!isEnding) {
          await Promise.all([publish(), publish(), publish()]);
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
      })();
      t.after(async () => {
        isEnding = true;
        await publishing;
        await publisher.close();
      });
      return { url, api };
    }

    /** Each message once: number n has the offset n. @param {{payload: number, offset: number}[]} messages */
    function assertWhole(messages) {
      assert.ok(messages.length >= COUNT, `${messages.length} messages`);
      messages.forEach(({ payload, offset }, i) => {
        assert.deepEqual([payload, offset], [i + 1, i + 1]);
      });
    }

    for (const isMember of [true, false]) {
      const who = isMember ? 'a member' : 'a connection outside the room';
      test(
        `WebSocket: ${who} pages back over ${COUNT} messages while more arrive`,
        OPTIONS,
        async (t) => {
          const { url } = await busyRoom(t, `h.ws.${isMember}`);
          const fanfare = new Fanfare(url);
          t.after(() => fanfare.close());
          const room = fanfare.join(`h.ws.${isMember}`, { last: 50 });
          /** @type {any[]} */
          const live = [];
          room.on('message', (payload, meta) => live.push({ payload, ...meta }));
          await new Promise((resolve) => room.on('message', resolve));
          if (!isMember) await fanfare.request({ type: 'leave', room: room.name });
          /** @type {any[]} */
          let older = [];
          for (let more = true; more; ) {
            const page = await room.history({ before: older[0] ?? live[0], limit: 70 });
            assert.ok(page.messages.length > 0);
            older = [...page.messages, ...older];
            ({ more } = page);
          }
          assertWhole([...older, ...live]);
        },
      );
    }

    test(`HTTP: pages back over ${COUNT} messages while more arrive`, OPTIONS, async (t) => {
      const { api } = await busyRoom(t, 'h.http');
      let { body: page } = await api('/rooms/h.http/history?limit=90');
      let messages = page.messages;
      while (page.more) {
        const before = `${page.epoch}:${messages[0].offset}`;
        ({ body: page } = await api(`/rooms/h.http/history?limit=90&before=${before}`));
        messages = [...page.messages, ...messages];
      }
      assertWhole(messages);
      const gone = await api(`/rooms/h.http/history?before=${'f'.repeat(16)}:9`);
      assert.deepEqual([gone.body.messages, gone.body.more], [[], false]);
      assert.equal(gone.body.epoch, page.epoch);
    });

    test('a time begins a page, whose end `since` continues', OPTIONS, async (t) => {
      const { url, api } = await busyRoom(t, 'h.time');
      const fanfare = new Fanfare(url);
      t.after(() => fanfare.close());
      await fanfare.connect();
      const { messages } = await fanfare.request({ type: 'history', room: 'h.time', limit: 5000 });
      const { timestamp } = messages[700];
      const first = messages.find((/** @type {any} */ one) => one.timestamp >= timestamp);
      let { body: page } = await api(`/rooms/h.time/history?limit=200&sinceTime=${timestamp}`);
      assert.equal(page.messages[0].offset, first.offset);
      const found = [...page.messages];
      while (found.length < 450) {
        assert.equal(page.more, true);
        const since = `${page.epoch}:${found[found.length - 1].offset}`;
        ({ body: page } = await api(`/rooms/h.time/history?limit=200&since=${since}`));
        found.push(...page.messages);
      }
      found.forEach(({ payload }, i) => void assert.equal(payload, first.offset + i));
      const later = await api(`/rooms/h.time/history?sinceTime=${Date.now() + 3_600_000}`);
      assert.deepEqual([later.body.messages, later.body.more], [[], false]);
    });

    test('pages end where the rule cuts the history', async () => {
      const { api } = await start();
      const messages = Array.from({ length: 400 }, (_, i) => ({ room: 'short.1', payload: i + 1 }));
      await api('/publish/batch', { body: { messages } });
      let { body: page } = await api('/rooms/short.1/history?limit=20');
      const seen = page.messages;
      while (page.more) {
        const before = `${page.epoch}:${page.messages[0].offset}`;
        ({ body: page } = await api(`/rooms/short.1/history?limit=20&before=${before}`));
        seen.unshift(...page.messages);
      }
      assert.deepEqual(
        seen.map((/** @type {any} */ { payload }) => payload),
        Array.from({ length: 50 }, (_, i) => 351 + i),
      );
    });

    test('a join and a stream with lastSeconds begin with the messages of that time', async (t) => {
      const { url, api, server } = await start();
      for (const payload of ['old', 'older than a second'])
        await api('/publish', { body: { room: 'h.seconds', payload } });
      await new Promise((resolve) => setTimeout(resolve, 1100));
      for (const payload of ['new', 'newest'])
        await api('/publish', { body: { room: 'h.seconds', payload } });
      const fanfare = new Fanfare(url);
      t.after(() => fanfare.close());
      await fanfare.connect();
      const join = { type: 'join', room: 'h.seconds', lastSeconds: 1 };
      const joined = await fanfare.request(join);
      assert.deepEqual([joined.first, joined.replayed], [3, 2]);
      const end = new AbortController();
      const sse = `http://127.0.0.1:${server.port}/sse?room=h.seconds&lastSeconds=1&last=1`;
      const { body } = await fetch(sse, { signal: end.signal });
      let text = '';
      for await (const chunk of /** @type {ReadableStream<Uint8Array>} */ (body)) {
        text += Buffer.from(chunk);
        if (text.includes('"newest"')) break;
      }
      end.abort();
      assert.match(text, /"replayed":1,"first":4/);
      assert.doesNotMatch(text, /"new"|older/);
    });

    test(
      'handles with lastSeconds join a busy room, and none misses a message',
      OPTIONS,
      async (t) => {
        const { url } = await busyRoom(t, 'h.handles');
        const fanfare = new Fanfare(url);
        t.after(() => fanfare.close());
        const recoverFailed = () => assert.fail('nothing is missing');
        /** @param {import('../../src/client/room.js').JoinOptions} [options] */
        const join = async (options) => {
          const room = fanfare.join('h.handles', { recoverFailed, ...options });
          /** @type {import('../../src/client/room.js').Meta[]} */
          const list = [];
          room.on('message', (_, meta) => list.push(meta));
          await new Promise((resolve) => room.on('message', resolve));
          return list;
        };
        const live = await join();
        await new Promise((resolve) => setTimeout(resolve, 1200));
        const nowMs = Date.now();
        const [seconds, few, both] = await Promise.all(
          [{ lastSeconds: 1 }, { last: 30 }, { lastSeconds: 1, last: 3 }].map(join),
        );
        while (Number(live.at(-1)?.timestamp) < nowMs + 300) await new Promise(setImmediate);
        for (const list of [live, seconds, few, both]) {
          const first = Number(list[0].offset);
          assert.deepEqual(
            list.map(({ offset }) => offset),
            list.map((_, i) => first + i),
          );
        }
        assert.ok(seconds[0].timestamp >= nowMs - 1000 && seconds[0].timestamp < nowMs - 500);
        assert.ok(few[0].timestamp > seconds[0].timestamp);
        assert.ok(both[0].timestamp > nowMs - 300);
      },
    );

    test('the server refuses a publish without a payload', async (t) => {
      const { url } = await start();
      const fanfare = new Fanfare(url);
      t.after(() => fanfare.close());
      const refused = fanfare.publish('h.nothing', undefined);
      await assert.rejects(refused, { code: 'INVALID_MESSAGE_FORMAT', room: 'h.nothing' });
    });
  });
}
