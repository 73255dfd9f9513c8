// waiting-joins.test.js: joins that wait for what passes, as Pusher's clients send them: a hook that
// fails, a busy worker, a full room.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WaitingJoins } from '../../src/operations/waiting-joins.js';
import { refusal } from '../../src/protocol/refusal.js';

/** @typedef {import('../../src/protocol/refusal.js').Refusal} Refusal */
/** @typedef {import('../../src/operations/waiting-joins.js').OnRefused} OnRefused */

const REPLIES = { count() {} };

/** A connection that joins one room, which refuses for the reason that the test chooses. */
function build() {
  const state = {
    /** @type {Refusal|null} */ reason: null,
    asked: 0,
    /** Gets the answer, to give it later. @type {((answer: () => void) => void)|null} */
    hold: null,
  };
  const told = /** @type {string[]} */ ([]);
  const counted = /** @type {string[]} */ ([]);
  const waiting = new WaitingJoins({ count: ({ code }) => counted.push(code) });
  const connection = /** @type {any} */ ({ isOpen: true });
  const join = (/** @type {OnRefused} */ onRefused) => {
    state.asked++;
    const answer = () => {
      if (state.reason === null) told.push('joined');
      else onRefused(state.reason);
    };
    if (state.hold === null) answer();
    else state.hold(answer);
  };
  return {
    ...{ state, told, counted, waiting, connection },
    join: () => waiting.tryToJoin(connection, 'a', join, ({ code }) => told.push(code)),
    leave: () => waiting.cancelJoin(connection, 'a'),
    later: () => waiting.sweep(performance.now() + 60_000),
  };
}

for (const code of /** @type {const} */ (['HOOK_FAILED', 'READS_WAIT', 'RATE_LIMIT_EXCEEDED']))
  test(`a join that is refused with ${code} is tried until nothing refuses it`, () => {
    const { state, told, counted, join, later, waiting } = build();
    state.reason = refusal(code);
    join();
    later();
    assert.deepEqual([told, state.asked, waiting.size], [[], 2, 1]);
    state.reason = null;
    later();
    assert.deepEqual([told, state.asked, waiting.size], [['joined'], 3, 0]);
    later();
    assert.equal(state.asked, 3);
    assert.deepEqual(counted, code === 'RATE_LIMIT_EXCEEDED' ? [code, code] : []);
  });

test('a full room is told once, and entered when a user has left', () => {
  const { state, told, join, later, waiting } = build();
  state.reason = refusal('ROOM_FULL');
  join();
  later();
  assert.deepEqual([told, waiting.size], [['ROOM_FULL'], 1]);
  state.reason = null;
  later();
  assert.deepEqual([told, waiting.size], [['ROOM_FULL', 'joined'], 0]);
});

test('what does not pass is answered at once: a denial, and too many rooms', () => {
  const { state, told, join, waiting } = build();
  state.reason = refusal('DENIED', 'no');
  join();
  state.reason = refusal('ROOM_LIMIT');
  join();
  assert.deepEqual([told, waiting.size], [['DENIED', 'ROOM_LIMIT'], 0]);
});

test('a waiting join ends with a leave, a denial, another one, or its connection', () => {
  const { state, told, join, leave, later, waiting, connection } = build();
  state.reason = refusal('HOOK_FAILED');
  join();
  leave();
  assert.equal(waiting.size, 0);
  join();
  join();
  assert.equal(waiting.size, 1, 'the later one waits');
  waiting.forgetConnection(connection);
  assert.equal(waiting.size, 0);
  join();
  state.reason = refusal('DENIED');
  later();
  assert.deepEqual([told, waiting.size], [['DENIED'], 0]);
  state.reason = refusal('HOOK_FAILED');
  join();
  connection.isOpen = false;
  later();
  assert.equal(waiting.size, 0);
});

test('two attempts at a room that fail after each other wait once', () => {
  const { state, join, leave, waiting } = build();
  /** @type {(() => void)[]} */
  const answers = [];
  state.hold = (answer) => answers.push(answer);
  state.reason = refusal('HOOK_FAILED');
  join();
  join();
  for (const answer of answers) answer();
  assert.equal(waiting.size, 1);
  leave();
  assert.equal(waiting.size, 0);
});

/** @param {(attempt: number) => void} [onTry] @returns {(onRefused: OnRefused) => void} a join that is refused */
function refusedJoin(onTry = () => {}) {
  let attempt = 0;
  return (onRefused) => {
    onTry(attempt++);
    onRefused(refusal('HOOK_FAILED'));
  };
}

test('a connection that an attempt closes makes no further ones, and a fault closes only its own', () => {
  const waiting = new WaitingJoins(REPLIES);
  const tried = /** @type {string[]} */ ([]);
  const closed = /** @type {any} */ ({ isOpen: true });
  const faulty = /** @type {any} */ ({ isOpen: true, fail: () => tried.push('failed') });
  const last = /** @type {any} */ ({ isOpen: true });
  /** @param {any} connection @param {string} room @param {() => void} act in the second attempt */
  const begin = (connection, room, act) => {
    const join = refusedJoin((attempt) => attempt > 0 && act());
    waiting.tryToJoin(connection, room, join, () => {});
  };
  begin(closed, 'a', () => {
    tried.push('a');
    closed.isOpen = false;
  });
  begin(closed, 'b', () => tried.push('b'));
  begin(faulty, 'a', () => {
    throw new Error('a fault');
  });
  begin(last, 'a', () => {
    tried.push('last');
    last.isOpen = false;
  });
  waiting.sweep(performance.now() + 10_000);
  assert.deepEqual([tried, waiting.size], [['a', 'failed', 'last'], 0]);
});

test('attempts come after a random time of 2 to 4 s, then up to twice as long, at most 30 s', (t) => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  for (const random of [0, 0.999]) {
    nowMs = 0;
    let tries = 0;
    const waiting = new WaitingJoins(REPLIES, () => random);
    const connection = /** @type {any} */ ({ isOpen: true });
    const join = refusedJoin(() => tries++);
    waiting.tryToJoin(connection, 'a', join, () => assert.fail());
    for (const [attempt, longestMs] of [4000, 8000, 16_000, 30_000, 30_000].entries()) {
      const dueMs = nowMs + ((1 + random) / 2) * longestMs;
      waiting.sweep(dueMs - 500);
      assert.equal(tries, attempt + 1, `${attempt} too early`);
      nowMs = dueMs + 500;
      waiting.sweep(nowMs);
      assert.equal(tries, attempt + 2, `${attempt}`);
    }
  }
});

test('a sweep has a bound, and so have all that wait, and those of a connection', () => {
  const refused = /** @type {string[]} */ ([]);
  const onRefused = (/** @type {Refusal} */ { code }) => void refused.push(code);
  const one = new WaitingJoins(REPLIES);
  const single = /** @type {any} */ ({ isOpen: true });
  for (let i = 0; i < 128; i++) one.tryToJoin(single, `c${i}`, refusedJoin(), onRefused);
  assert.deepEqual(refused, []);
  one.tryToJoin(single, 'more', refusedJoin(), onRefused);
  assert.deepEqual(refused.splice(0), ['UNAVAILABLE']);
  const waiting = new WaitingJoins(REPLIES);
  let tries = 0;
  for (let i = 0; i < 20_000; i++) {
    const connection = /** @type {any} */ ({ isOpen: true });
    const join = refusedJoin((attempt) => {
      tries += Math.min(attempt, 1);
      connection.isOpen = attempt === 0;
    });
    waiting.tryToJoin(connection, 'a', join, onRefused);
  }
  assert.deepEqual(refused, []);
  waiting.tryToJoin(/** @type {any} */ ({ isOpen: true }), 'a', refusedJoin(), onRefused);
  assert.deepEqual(refused, ['UNAVAILABLE']);
  waiting.sweep(performance.now() + 10_000);
  assert.deepEqual([tries, waiting.size], [500, 19_500]);
});
