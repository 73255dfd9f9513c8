// client-shared.test.js: `fanfare/client/shared` on fake tabs, fake sockets and a fake clock: which
// tab leads, rooms of several tabs, publishes, presence.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/fanfare.js';
import { canShare } from '../../src/client/shared/browser.js';
import { Tab } from '../../src/client/shared/tab.js';
import {
  at,
  change,
  message as publication,
  reset,
  seen,
  seenState,
  synced,
} from '../helpers/client-messages.js';
import { FakeBrowser } from '../helpers/fake-browser.js';
import { fakeSockets } from '../helpers/fake-socket.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../../src/client/room.js').JoinOptions} JoinOptions */
/** @typedef {Record<string, any>} Message */

/** @param {number} offset */
const message = (offset) => ({ ...publication(offset), from: 'me' });

/** @param {TestContext} t */
function setUp(t) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.mock.method(performance, 'now', () => Date.now());
  const browser = new FakeBrowser();
  const { Socket, sockets } = fakeSockets();
  /** Lets promises and messages of the tabs run. */
  const settle = async () => {
    for (let i = 0; i < 12; i++) await turn();
  };
  return {
    browser,
    sockets,
    /** The newest socket. */
    get socket() {
      return sockets[sockets.length - 1];
    },
    settle,
    /** @param {number} ms */
    async pass(ms) {
      for (let left = ms; left > 0; left -= 100) {
        t.mock.timers.tick(Math.min(left, 100));
        await settle();
      }
    },
    /** Opens a tab. @param {import('../../src/client/shared/index.js').Options} [options] */
    async open(options) {
      const page = browser.open();
      // Each tab has its own globals.
      const Link = class extends Tab {
        /** @param {any} parts @param {any} listener */
        constructor(parts, listener) {
          super(parts, listener, page.globals);
        }
      };
      const given = { WebSocket: Socket, offline: /** @type {const} */ ('queue'), ...options };
      const fanfare = new Fanfare('wss://chat.example', given, Link);
      t.after(() => {
        page.isCrashed = true;
        return fanfare.close();
      });
      /** @type {string[]} */
      const states = [];
      fanfare.on('state', (state) => states.push(state));
      /** @type {string[]} */
      const errors = [];
      fanfare.on('error', ({ code }) => errors.push(code));
      fanfare.connect();
      await settle();
      return { page, fanfare, states, errors };
    },
    /** The server answers `hello`. @param {Message} [welcome] */
    async greet(welcome) {
      this.socket.greet({ connectionId: 'me', limits: { idempotencyMs: 60_000 }, ...welcome });
      await settle();
    },
    /** @param {Message} push */
    async push(push) {
      this.socket.push(push);
      await settle();
    },
    /** Answers the last command of a type. @param {string} type @param {Message} reply */
    async answer(type, reply) {
      this.socket.answer(type, reply);
      await settle();
    },
    /** Joins chat.1, at offset 10 for the first tab. @param {Fanfare} fanfare @param {JoinOptions} [options] */
    async join(fanfare, options) {
      const before = this.socket.all('join').length;
      const room = fanfare.join('chat.1', options);
      await settle();
      if (this.socket.all('join').length > before)
        await this.answer('join', { type: 'joined', room: 'chat.1', ...at(10), recovered: false });
      return room;
    },
  };
}

test('tabs share a socket, a welcome, states and broadcasts', async (t) => {
  const all = setUp(t);
  const tabs = [await all.open(), await all.open(), await all.open()];
  await all.greet();
  assert.equal(all.sockets.length, 1);
  /** @type {unknown[]} */
  const payloads = [];
  for (const { fanfare } of tabs) fanfare.on('broadcast', (payload) => payloads.push(payload));
  await all.push({ type: 'broadcast', payload: 'noon' });
  assert.deepEqual(payloads, ['noon', 'noon', 'noon']);
  all.socket.end(1006);
  await all.settle();
  assert.deepEqual(
    tabs.map(({ states }) => states.at(-1)),
    ['waiting', 'waiting', 'waiting'],
  );
});

test('a closed tab does not listen to its page', async (t) => {
  const added = t.mock.method(EventTarget.prototype, 'addEventListener').mock;
  const removed = t.mock.method(EventTarget.prototype, 'removeEventListener').mock;
  const all = setUp(t);
  const { page, fanfare } = await all.open();
  await all.greet();
  page.document.dispatchEvent(new Event('freeze'));
  assert.equal(fanfare.state, 'sleeping');
  page.document.dispatchEvent(new Event('resume'));
  await all.settle();
  assert.equal(fanfare.state, 'connecting');
  await fanfare.close();
  const names = added.calls
    .filter((call) => call.this === page.document && !Object(call.arguments[2]).once)
    .map((call) => call.arguments[0]);
  // Node removes listeners of signals of its own whenever it collects garbage.
  const gone = removed.calls
    .filter((call) => call.this === page.document)
    .map((call) => call.arguments[0]);
  assert.deepEqual([names, gone], [Array(2).fill('freeze'), Array(2).fill('freeze')]);
});

test('tabs of other names or URLs have other sockets', async (t) => {
  const all = setUp(t);
  await all.open({ name: 'ann' });
  await all.open({ name: 'bob' });
  await all.open({ name: 'bob' });
  assert.equal(all.sockets.length, 2);
});

test('a room is joined once and left with the last tab', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const rooms = [await all.join(one.fanfare), await all.join(two.fanfare)];
  const lists = rooms.map(seen);
  await all.push(message(11));
  assert.deepEqual(lists, [[11], [11]]);
  rooms[0].leave();
  await all.settle();
  await all.push(message(12));
  assert.deepEqual(lists, [[11], [11, 12]]);
  assert.equal(all.socket.all('join').length, 1);
  assert.equal(all.socket.all('leave').length, 0);
  two.page.crash();
  await all.settle();
  assert.equal(all.socket.all('leave').length, 1);
});

test('a leave that is refused for the moment is said again, unless a tab joins again', async (t) => {
  const all = setUp(t);
  const tab = await all.open();
  await all.greet();
  const refused = { type: 'error', error: 'RATE_LIMIT_EXCEEDED', message: '', retryAfter: 2 };
  const room = await all.join(tab.fanfare);
  room.leave();
  await all.settle();
  await all.answer('leave', refused);
  await all.pass(2000);
  assert.equal(all.socket.all('leave').length, 2);
  await all.answer('leave', refused);
  await all.join(tab.fanfare);
  await all.pass(2000);
  assert.equal(all.socket.all('leave').length, 2);
});

/** @typedef {{fanfare: Fanfare, page: import('../helpers/fake-browser.js').FakeTab}} Opened */

/** @type {[string, (tab: Opened) => unknown][]} */
const ENDS = [
  ['closes', ({ fanfare }) => fanfare.close()],
  ['crashes', ({ page }) => page.crash()],
  ['freezes', ({ page }) => page.document.dispatchEvent(new Event('freeze'))],
];
for (const [name, end] of ENDS)
  test(`when the leader ${name}, another tab leads at once and misses nothing`, async (t) => {
    const all = setUp(t);
    const one = await all.open();
    const two = await all.open();
    await all.greet();
    await all.join(one.fanfare);
    const list = seen(await all.join(two.fanfare));
    await all.push(message(11));
    end(one);
    await all.settle();
    assert.equal(all.sockets.length, 2);
    await all.greet();
    assert.deepEqual(all.socket.last('join').since, at(11));
    await all.answer('join', { type: 'joined', room: 'chat.1', ...at(12), recovered: true });
    await all.push(message(12));
    assert.deepEqual(list, [11, 12]);
  });

test('a leader that stands still loses its place within 2 s, and follows when it goes on', async (t) => {
  const all = setUp(t);
  const [one, two, three] = [await all.open(), await all.open(), await all.open()];
  await all.greet();
  const list = seen(await all.join(one.fanfare));
  one.page.stop();
  await all.pass(900);
  assert.equal(all.sockets.length, 1);
  await all.pass(1000);
  assert.equal(all.sockets.length, 2);
  await all.greet();
  await all.join(two.fanfare);
  await all.push(message(11));
  // Its socket still has messages.
  all.sockets[0].push(message(11));
  one.page.continue();
  await all.pass(500);
  assert.equal(all.sockets[0].closedWith, 1000);
  assert.deepEqual(list, [11]);
  assert.equal(all.sockets.length, 2);
  for (const { fanfare } of [one, two, three]) assert.equal(fanfare.state, 'connected');
});

test('a tab that has stood still does not depose the leader', async (t) => {
  const all = setUp(t);
  await all.open();
  const two = await all.open();
  await all.greet();
  two.page.stop();
  t.mock.timers.tick(60_000);
  two.page.continue();
  await all.pass(2000);
  assert.equal(all.sockets.length, 1);
});

test('tabs that are behind get the missed messages from the leader, or from the history', async (t) => {
  const all = setUp(t);
  const [one, two, three] = [await all.open(), await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  for (const offset of [11, 12, 13]) await all.push(message(offset));
  const near = seen(two.fanfare.join('chat.1', { since: at(11) }));
  await all.settle();
  assert.deepEqual(near, [12, 13]);
  assert.equal(all.socket.all('history').length, 0);
  const far = seen(await all.join(three.fanfare, { since: at(7) }));
  assert.deepEqual(all.socket.last('history').since, at(7));
  await all.push(message(14));
  await all.answer('history', {
    type: 'history',
    room: 'chat.1',
    ...at(10),
    messages: [8, 9, 10].map((offset) => ({ payload: offset, from: 'me', timestamp: 1, offset })),
  });
  await all.push(message(15));
  assert.deepEqual(far, [8, 9, 10, 11, 12, 13, 14, 15]);
});

test('a tab that a message has not reached joins again behind the last one', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  const list = seen(await all.join(two.fanfare));
  await all.push(message(11));
  // A page in a debugger loses messages.
  two.page.isCrashed = true;
  await all.push(message(12));
  two.page.isCrashed = false;
  await all.push(message(13));
  await all.push(message(14));
  assert.deepEqual(list, [11, 12, 13, 14]);
  assert.equal(all.socket.all('join').length, 1);
});

/** A message there is for others. @param {number} offset */
const position = (offset) => ({ type: 'position', room: 'chat.1', ...at(offset) });

test('messages for others move the position of each tab, and open no gap', async (t) => {
  const all = setUp(t);
  const [one, two, three] = [await all.open(), await all.open(), await all.open()];
  await all.greet();
  const rooms = [await all.join(one.fanfare), await all.join(two.fanfare)];
  const lists = rooms.map(seen);
  await all.push(message(11));
  await all.push(position(13));
  assert.deepEqual(
    rooms.map((room) => room.position),
    [at(13), at(13)],
  );
  // 14 was not the last of its flush.
  await all.push(message(15));
  await all.push(position(17));
  const late = three.fanfare.join('chat.1', { since: at(11) });
  const joined = /** @type {unknown[]} */ ([]);
  late.on('joined', ({ recovered }) => joined.push(recovered));
  lists.push(seen(late));
  await all.settle();
  assert.deepEqual(late.position, at(17));
  await all.push(message(18));
  assert.deepEqual(lists, [
    [11, 15, 18],
    [11, 15, 18],
    [15, 18],
  ]);
  assert.deepEqual(joined, [true]);
  assert.equal(all.socket.all('history').length, 0);

  // The next leader continues after a message that none of its tabs may see.
  await all.push(position(19));
  one.page.crash();
  await all.settle();
  await all.greet();
  assert.deepEqual(all.socket.last('join').since, at(19));
});

test('a tab that a message for others has not reached joins again', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  const list = seen(await all.join(two.fanfare));
  await all.push(message(11));
  // A page in a debugger loses messages.
  two.page.isCrashed = true;
  await all.push(message(13));
  two.page.isCrashed = false;
  await all.push(position(15));
  assert.deepEqual(list, [11, 13]);
});

test('pages of history without the messages for others are read on to the end', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  await all.push(message(11));
  const list = seen(await all.join(two.fanfare, { since: at(4) }));
  /** @param {number[]} offsets */
  const page = (offsets) => ({
    type: 'history',
    room: 'chat.1',
    ...at(11),
    messages: offsets.map((offset) => ({ payload: offset, from: 'me', timestamp: 1, offset })),
  });
  await all.answer('history', page([5, 8]));
  assert.deepEqual(all.socket.last('history').since, at(8));
  await all.answer('history', page([9, 11]));
  assert.deepEqual(list, [5, 8, 9, 11]);
});

test('a room that a tab leaves while it joins again is left', async (t) => {
  const all = setUp(t);
  const tab = await all.open();
  await all.greet();
  const other = tab.fanfare.join('chat.2');
  await all.settle();
  await all.answer('join', { type: 'joined', room: 'chat.2', ...at(10), recovered: false });
  await all.join(tab.fanfare);
  await all.push(message(11));
  tab.fanfare.on('state', (state) => {
    if (state === 'connecting') other.leave();
  });
  // A page in a debugger loses messages.
  tab.page.isCrashed = true;
  await all.push(message(12));
  tab.page.isCrashed = false;
  await all.push(message(13));
  assert.ok(all.socket.all('leave').some(({ room }) => room === 'chat.2'));
  assert.equal(all.socket.last('join').room, 'chat.1');
});

test('a tab whose missed messages are gone loads its state', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  const list = seen(
    await all.join(two.fanfare, { since: at(2), recoverFailed: (position) => position }),
  );
  await all.answer('history', {
    type: 'history',
    room: 'chat.1',
    ...at(10),
    messages: [{ payload: 9, offset: 9 }],
  });
  await all.push(message(11));
  await all.pass(100);
  assert.deepEqual(list, [{ state: at(10) }, 11]);
});

test('a resync of the server reaches all tabs of the room', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const recoverFailed = async () => 'state';
  const rooms = [
    await all.join(one.fanfare, { recoverFailed }),
    await all.join(two.fanfare, { recoverFailed }),
  ];
  const lists = rooms.map(seen);
  await all.push({ type: 'resync', room: 'chat.1', ...at(50, 'e2'), reloadAfterMs: 0 });
  t.mock.timers.tick(0);
  await all.settle();
  await all.push({ ...message(51), epoch: 'e2' });
  assert.deepEqual(lists, [
    [{ state: 'state' }, 51],
    [{ state: 'state' }, 51],
  ]);
});

test('`last` of a later tab is read from the history', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  await all.join(one.fanfare);
  await all.push(message(11));
  const list = seen(await all.join(two.fanfare, { last: 3 }));
  assert.equal(all.socket.last('history').limit, 3);
  await all.answer('history', {
    type: 'history',
    room: 'chat.1',
    ...at(11),
    messages: [9, 10, 11].map((offset) => ({ payload: offset, offset })),
  });
  await all.push(message(12));
  assert.deepEqual(list, [9, 10, 11, 12]);
});

test('`lastSeconds` of a later tab is read from the history, from that time on', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const first = one.fanfare.join('chat.1', { lastSeconds: 60 });
  const lists = [seen(first)];
  await all.settle();
  assert.equal(all.socket.last('join').lastSeconds, 60);
  const joined = { type: 'joined', room: 'chat.1', ...at(10), recovered: false };
  await all.answer('join', { ...joined, replayed: 1, first: 10 });
  for (const offset of [10, 11]) await all.push(message(offset));
  lists.push(seen(await all.join(two.fanfare, { lastSeconds: 3600 })));
  const page = (/** @type {number[]} */ offsets) => ({
    type: 'history',
    room: 'chat.1',
    ...at(11),
    messages: offsets.map((offset) => ({ payload: offset, offset })),
  });
  const { sinceTime, limit } = all.socket.last('history');
  assert.deepEqual([sinceTime, limit], [Date.now() - 3_600_000, 1]);
  await all.answer('history', page([7]));
  assert.deepEqual(all.socket.last('history').since, at(6));
  await all.answer('history', page([7, 8, 9]));
  await all.push(message(12));
  assert.deepEqual(
    [...lists],
    [
      [10, 11, 12],
      [7, 8, 9, 10, 11, 12],
    ],
  );
  // Of those, a handle gets its `last` only.
  lists.push(seen(await all.join(two.fanfare, { lastSeconds: 3600, last: 2 })));
  await all.answer('history', page([7]));
  // The history has none since then.
  lists.push(seen(await all.join(one.fanfare, { lastSeconds: 1 })));
  await all.answer('history', page([]));
  await all.push(message(13));
  assert.deepEqual(lists, [[10, 11, 12, 13], [7, 8, 9, 10, 11, 12, 13], [11, 12, 13], [13]]);
});

test('handles of one tab share its place in the room, and a later one gets older messages', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const rooms = [await all.join(one.fanfare), await all.join(two.fanfare)];
  const lists = rooms.map(seen);
  for (const offset of [11, 12]) await all.push(message(offset));
  const late = two.fanfare.join('chat.1', { last: 1 });
  lists.push(seen(late));
  await all.settle();
  const older = two.fanfare.join('chat.1', { last: 5 });
  lists.push(seen(older));
  await all.settle();
  // The leader has no messages from before its join.
  const { since, limit } = all.socket.last('history');
  assert.deepEqual([since.offset, limit], [7, 1000]);
  const messages = [8, 9, 10, 11, 12].map((offset) => ({ payload: offset, offset }));
  await all.answer('history', { type: 'history', room: 'chat.1', ...at(12), messages });
  rooms[1].leave();
  await all.push(message(13));
  assert.deepEqual(lists, [
    [11, 12, 13],
    [11, 12],
    [12, 13],
    [8, 9, 10, 11, 12, 13],
  ]);
  for (const room of [late, older]) room.leave();
  await all.settle();
  assert.deepEqual(
    ['join', 'leave'].map((type) => all.socket.all(type).length),
    [1, 0],
  );
});

test('a tab that joins again while it publishes with `echo: false` does not get its message', async (t) => {
  const all = setUp(t);
  const { fanfare } = await all.open();
  await all.greet();
  const room = await all.join(fanfare);
  const lists = [seen(room)];
  const accepted = room.publish('own', { echo: false });
  await all.settle();
  const late = fanfare.join('chat.1', { last: 2 });
  lists.push(seen(late));
  await all.settle();
  const messages = [9, 10].map((offset) => ({ payload: offset, offset }));
  await all.answer('history', { type: 'history', room: 'chat.1', ...at(10), messages });
  await all.push({ ...message(11), payload: 'own' });
  await all.push(message(12));
  await all.answer('message', { type: 'ack', ...at(11) });
  await accepted;
  assert.deepEqual(lists, [[12], [9, 10, 12]]);
});

test('a replay that leaves messages out arrives at the first tab, and at later ones', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const room = one.fanfare.join('chat.1', { last: 4 });
  const list = seen(room);
  await all.settle();
  const joined = { type: 'joined', room: 'chat.1', ...at(10), recovered: false };
  await all.answer('join', { ...joined, replayed: 1, first: 7 });
  await all.push(message(8));
  assert.deepEqual(list, [8]);
  const other = seen(await all.join(two.fanfare, { last: 3 }));
  await all.answer('history', {
    type: 'history',
    room: 'chat.1',
    ...at(10),
    messages: [8, 9, 10].map((offset) => ({ payload: offset, offset })),
  });
  assert.deepEqual(other, [8, 9, 10]);
});

test('a publish of a tab survives the end of the leader, with the same key', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const accepted = two.fanfare.publish('chat.1', 'hi');
  await all.settle();
  const { idempotencyKey } = all.socket.last('message');
  assert.ok(idempotencyKey);
  one.page.crash();
  await all.settle();
  await all.greet();
  assert.equal(all.socket.last('message').idempotencyKey, idempotencyKey);
  await all.answer('message', { type: 'ack', ...at(11) });
  assert.deepEqual(await accepted, at(11));
});

test('`echo: false` keeps a message from its own tab only', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const rooms = [await all.join(one.fanfare), await all.join(two.fanfare)];
  const lists = rooms.map(seen);
  const accepted = rooms[0].publish('mine', { echo: false });
  await all.settle();
  assert.equal(all.socket.last('message').echo, undefined);
  assert.equal(Object.keys(all.socket.last('message'))[0], 'id');
  // The push comes before the `ack`, and another message between them.
  await all.push({ ...message(11), payload: 'mine' });
  await all.push(message(12));
  assert.deepEqual(lists, [[], ['mine', 12]]);
  await all.answer('message', { type: 'ack', ...at(11) });
  assert.deepEqual(await accepted, at(11));
  assert.deepEqual(lists, [[12], ['mine', 12]]);
});

test('the last tab that names a user counts, and its end is a new join', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  const list = seen(await all.join(one.fanfare, { presence: false }));
  const presence = { user: 'ann' };
  const room = two.fanfare.join('chat.1', { presence });
  await all.settle();
  const [first, second] = all.socket.all('join');
  assert.deepEqual([first.presence, second.presence], [false, presence]);
  assert.deepEqual(second.since, at(10));
  assert.equal(all.socket.all('leave').length, 1);
  await all.push(message(11));
  await all.answer('join', { type: 'joined', room: 'chat.1', ...at(11), recovered: true });
  await all.push(message(11));
  await all.push(message(12));
  assert.deepEqual(list, [11, 12]);
  room.leave();
  await all.settle();
  assert.equal(all.socket.last('join').presence, false);
});

test('a refused join, and a room that the server ends, concern the tabs in it', async (t) => {
  const all = setUp(t);
  const [one, two] = [await all.open(), await all.open()];
  await all.greet();
  one.fanfare.join('secret');
  await all.settle();
  await all.answer('join', { type: 'error', error: 'PERMISSION_DENIED', message: 'no' });
  assert.deepEqual([one.errors, two.errors], [['PERMISSION_DENIED'], []]);
  await all.join(two.fanfare);
  await all.push({ type: 'left', room: 'chat.1', reason: 'removed' });
  assert.deepEqual([one.errors.length, two.errors], [1, ['PERMISSION_DENIED']]);
});

test('a refused connection closes all tabs with its reason; a later tab tries again', async (t) => {
  const all = setUp(t);
  const tabs = [await all.open(), await all.open()];
  await all.greet();
  all.socket.end(4503, 'disconnected');
  await all.settle();
  for (const { fanfare, errors } of tabs)
    assert.deepEqual([fanfare.state, errors], ['closed', ['REFUSED']]);
  await all.open();
  assert.equal(all.sockets.length, 2);
});

test('a URL that no WebSocket can have closes all tabs with its reason', async (t) => {
  const all = setUp(t);
  const WebSocket = /** @type {any} */ (
    class {
      constructor() {
        throw new Error('insecure');
      }
    }
  );
  const { fanfare, errors } = await all.open({ WebSocket });
  assert.deepEqual([fanfare.state, errors], ['closed', ['REFUSED']]);
});

test('a browser without Web Locks, channels, an origin or storage shares nothing', () => {
  const { globals } = new FakeBrowser().open();
  assert.ok(canShare(globals));
  for (const name of ['navigator', 'BroadcastChannel'])
    assert.ok(!canShare({ ...globals, [name]: undefined }), name);
  assert.ok(!canShare({ ...globals, navigator: {} }));
  assert.ok(!canShare({ ...globals, location: { origin: 'null' } }));
  const blocked = {
    ...globals,
    get localStorage() {
      throw new Error('SecurityError');
    },
  };
  assert.ok(!canShare(blocked), 'storage is blocked');
});

/** @param {Message} [about] */
const joinedState = (about) => ({
  type: 'joined',
  room: 'chat.1',
  state: true,
  ...at(10),
  recovered: false,
  ...about,
});

/**
 * A tab in a room with state, with the keys a and b.
 * @param {ReturnType<typeof setUp>} all
 */
async function openInState(all) {
  const tab = await all.open();
  await all.greet();
  const room = tab.fanfare.join('chat.1');
  const list = seenState(room);
  await all.settle();
  await all.answer('join', joinedState());
  await all.push(change('a', 1, 4));
  await all.push(change('b', 1, 9));
  return { tab, room, list };
}

test('a tab that joins a room with state later gets the keys from the leader', async (t) => {
  const all = setUp(t);
  const { room, list } = await openInState(all);
  const second = await all.open();
  const secondRoom = second.fanfare.join('chat.1');
  const secondList = seenState(secondRoom);
  await all.settle();
  assert.deepEqual(secondList, [
    ['joined', false],
    ['a', 1, undefined],
    ['b', 1, undefined],
  ]);
  await all.push(synced(10));
  await all.push(change('b', null, 12));
  await all.push(change('a', 2, 15));
  assert.deepEqual(list, [...secondList]);
  const third = await all.open();
  const thirdRoom = third.fanfare.join('chat.1');
  const thirdList = seenState(thirdRoom);
  await all.settle();
  assert.deepEqual(thirdList, [
    ['joined', false],
    ['a', 2, undefined],
    ['synced', 15],
  ]);
  for (const one of [room, secondRoom, thirdRoom])
    assert.deepEqual([one.state, one.position], [new Map([['a', 2]]), at(15)]);
  await all.push(reset(3, 'e2'));
  await all.push({ ...change('c', 1, 2), epoch: 'e2' });
  await all.push(synced(3, 'e2'));
  for (const one of [room, secondRoom, thirdRoom])
    assert.deepEqual([one.state, one.position], [new Map([['c', 1]]), at(3, 'e2')]);
  assert.equal(all.socket.all('join').length, 1);
});

test('after a change of the leader each tab of a room with state has the whole state', async (t) => {
  const all = setUp(t);
  const { tab } = await openInState(all);
  const second = await all.open();
  const room = second.fanfare.join('chat.1');
  await all.settle();
  await all.push(synced(10));
  const list = seenState(room);
  tab.page.crash();
  await all.settle();
  await all.greet();
  assert.deepEqual(all.socket.last('join').since, at(10));
  // The leader serves tabs that have no map, so it needs all of it.
  await all.answer('join', joinedState({ recovered: true, ...at(11) }));
  assert.equal(all.socket.last('join').since, undefined);
  await all.answer('join', joinedState(at(11)));
  await all.push(change('b', 1, 9));
  await all.push(change('a', 3, 11));
  await all.push(synced(11));
  assert.deepEqual(list, [
    ['reset', 0],
    ['joined', false],
    ['b', 1, undefined],
    ['a', 3, undefined],
    ['synced', 11],
  ]);
});

test('a tab behind in a room with state gets removals as long as the leader knows all of them', async (t) => {
  const all = setUp(t);
  const { room } = await openInState(all);
  await all.push(synced(10));
  const second = await all.open();
  const late = second.fanfare.join('chat.1');
  await all.settle();
  second.page.document.dispatchEvent(new Event('freeze'));
  await all.push(change('a', null, 11));
  second.page.document.dispatchEvent(new Event('resume'));
  await all.settle();
  const list = seenState(late);
  await all.settle();
  assert.deepEqual(late.state, new Map([['b', 1]]));
  second.page.document.dispatchEvent(new Event('freeze'));
  for (let i = 0; i <= 1000; i++) await all.push(change(`k${i}`, null, 20 + i));
  second.page.document.dispatchEvent(new Event('resume'));
  await all.settle();
  assert.deepEqual(
    list.find((entry) => /** @type {string[]} */ (entry)[0] === 'reset'),
    ['reset', 0],
  );
  assert.deepEqual([late.state, late.position], [new Map([['b', 1]]), room.position]);
});

test('a tab that has missed a change in a room with state joins again', async (t) => {
  const all = setUp(t);
  const { room } = await openInState(all);
  const second = await all.open();
  const late = second.fanfare.join('chat.1');
  await all.settle();
  await all.push(synced(10));
  await all.push(change('a', 2, 12));
  second.page.isCrashed = true;
  await all.push(change('a', 3, 14));
  second.page.isCrashed = false;
  await all.push(change('b', 2, 17));
  await all.settle();
  assert.deepEqual(late.state, room.state);
});

test('echo: false is refused in a room with state, as without tabs', async (t) => {
  const all = setUp(t);
  const { room } = await openInState(all);
  const refused = assert.rejects(room.publish(1, { key: 'a', echo: false }), {
    code: 'INVALID_MESSAGE_FORMAT',
  });
  await all.settle();
  assert.equal(all.socket.last('message').echo, false);
  await all.answer('message', { type: 'error', error: 'INVALID_MESSAGE_FORMAT', retryable: false });
  await refused;
});
