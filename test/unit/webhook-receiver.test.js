// The receiver of the fault tests finds the faults it looks for: repeated events, another order, a
// wrong signature, and a model that is not the truth.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { Random } from '../checker/random.js';
import { WEBHOOK_SECRET, WebhookReceiver } from '../checker/webhook-receiver.js';
import { until } from '../harness/server.js';

/** @param {import('node:test').TestContext} t */
async function start(t) {
  const receiver = await new WebhookReceiver({ random: new Random(1) }).start(t);
  /**
   * @param {string} type @param {number} sequence @param {string} [user] @param {number} [atMs]
   *   Unix time of the event
   * @returns {Promise<number>} status; 0: a reset
   */
  const send = async (type, sequence, user = 'ann', atMs = Date.now()) => {
    const id = `evt_${type}_${user}_${sequence}`;
    const data = { room: 'r', user, sequence, ...(type !== 'webhook.gap' && { epoch: '7' }) };
    const body = JSON.stringify({ type, timestamp: new Date(atMs).toISOString(), data });
    const now = new Date();
    return fetch(receiver.url, {
      method: 'POST',
      body,
      headers: {
        'webhook-id': id,
        'webhook-timestamp': `${Math.floor(now.getTime() / 1000)}`,
        'webhook-signature': new Webhook(WEBHOOK_SECRET).sign(id, now, body),
      },
    }).then(
      ({ status }) => status,
      () => 0,
    );
  };
  return { receiver, send };
}

const truthOf = (/** @type {string[]} */ members) => ({ rooms: [], members, users: [] });

test('an event that comes again after a 2xx is found, and one after a failure is not', async (t) => {
  const { receiver, send } = await start(t);
  receiver.answerOf = () => '500';
  assert.equal(await send('member.joined', 1), 500);
  receiver.answerOf = () => 'reset';
  assert.equal(await send('member.joined', 1), 0);
  receiver.answerOf = null;
  assert.equal(await send('member.joined', 1), 204);
  assert.deepEqual(receiver.repeated, []);
  assert.equal(await send('member.joined', 1), 204);
  assert.deepEqual(
    receiver.repeated.map(({ id }) => id),
    ['evt_member.joined_ann_1'],
  );
});

test('an event after a later one of its room is found, unless it had stepped aside', async (t) => {
  const { receiver, send } = await start(t);
  await send('member.joined', 2);
  await send('member.joined', 1, 'bob');
  assert.deepEqual(receiver.disordered, ['states r: member.joined 1 after 2']);
  receiver.answerOf = () => '500';
  for (let n = 0; n < 3; n++) await send('member.joined', 3, 'cid');
  receiver.answerOf = null;
  await send('member.joined', 4, 'dan');
  await send('member.joined', 3, 'cid');
  assert.equal(receiver.disordered.length, 1);
  assert.equal(receiver.aside, 1);
});

test('an event that waits for one of its user which had stepped aside may come late, too', async (t) => {
  const { receiver, send } = await start(t);
  const beganMs = Date.now();
  receiver.answerOf = () => '500';
  for (let n = 0; n < 3; n++) await send('member.joined', 1);
  receiver.answerOf = null;
  await send('member.joined', 3, 'bob');
  await send('member.joined', 1);
  // Recorded while the first was under way. The next one was recorded long after its answer.
  await send('member.left', 2, 'ann', beganMs);
  assert.equal(receiver.aside, 2);
  assert.deepEqual(receiver.disordered, []);
  await send('member.joined', 2.5, 'ann', beganMs + 60_000);
  assert.deepEqual(receiver.disordered, ['states r: member.joined 2.5 after 3']);
});

test('an event that does not wait for the one before it is found, also if it is the same one', async (t) => {
  const { receiver, send } = await start(t);
  /** @type {(() => void)[]} */
  const reads = [];
  receiver.readTruth = () => new Promise((resolve) => reads.push(() => resolve(truthOf([]))));
  const gap = send('webhook.gap', 1);
  await until(() => reads.length === 1);
  // Both wait for the reading.
  const sent = [send('member.joined', 1), send('member.joined', 1)];
  await until(() => receiver.overlapping.length === 1);
  const [{ text }] = receiver.overlapping;
  assert.equal(text, 'states r: member.joined 1 while member.joined 1 is under way');
  reads[0]();
  assert.deepEqual(await Promise.all([gap, ...sent]), [204, 204, 204]);
  await send('member.left', 2);
  assert.equal(receiver.overlapping.length, 1);
});

test('an event whose accepting answer came too late has failed once more, and may step aside', async (t) => {
  const { receiver, send } = await start(t);
  receiver.answerOf = () => '500';
  for (let n = 0; n < 2; n++) await send('member.joined', 1);
  receiver.answerOf = null;
  await send('member.joined', 1); // its sender has given up
  /** @type {(() => void)[]} */
  const reads = [];
  receiver.readTruth = () => new Promise((resolve) => reads.push(() => resolve(truthOf([]))));
  const gap = send('webhook.gap', 1);
  await until(() => reads.length === 1);
  const sent = [send('member.joined', 2, 'bob'), send('member.joined', 1)];
  await until(() => receiver.attempts.length === 6);
  assert.deepEqual(receiver.overlapping, []);
  reads[0]();
  assert.deepEqual(await Promise.all([gap, ...sent]), [204, 204, 204]);
});

test('a wrong signature is refused', async (t) => {
  const { receiver } = await start(t);
  const headers = {
    'webhook-id': 'evt_1',
    'webhook-timestamp': `${Math.floor(Date.now() / 1000)}`,
    'webhook-signature': 'v1,AAAA',
  };
  const { status } = await fetch(receiver.url, { method: 'POST', body: '{}', headers });
  assert.equal(status, 401);
  assert.equal(receiver.unverified, 1);
});

test('the model ignores what is older, and after a gap it is what was read', async (t) => {
  const { receiver, send } = await start(t);
  const { model } = receiver;
  await send('member.joined', 1);
  await send('member.left', 4);
  await send('member.joined', 3);
  await send('member.joined', 2, 'bob');
  assert.deepEqual(model.state.members, ['r bob']);
  assert.deepEqual(model.differences(truthOf(['r ann'])), [
    'members: lacks r ann',
    'members: has r bob',
  ]);
  receiver.readTruth = async () => {
    throw new Error('no server answers');
  };
  assert.equal(await send('webhook.gap', 1), 503, 'it asks for the gap again');
  receiver.readTruth = async () => truthOf(['r ann', 'r cid']);
  assert.equal(await send('webhook.gap', 1), 204);
  await send('member.left', 4);
  await send('member.left', 5, 'cid');
  assert.deepEqual(model.state.members, ['r ann']);
});

test('gaps that come during a reading share the next one', async (t) => {
  const { receiver, send } = await start(t);
  let readings = 0;
  /** @type {(() => void)[]} */
  const ends = [];
  receiver.readTruth = async () => {
    readings++;
    await new Promise((resolve) => ends.push(() => resolve(undefined)));
    return truthOf([`r after-${readings}`]);
  };
  const first = send('webhook.gap', 1);
  await until(() => ends.length === 1);
  const others = [2, 3, 4].map((sequence) => send('webhook.gap', sequence));
  await until(() => receiver.gaps === 4);
  ends[0]();
  assert.equal(await first, 204);
  await until(() => ends.length === 2);
  assert.deepEqual(receiver.model.state.members, ['r after-1']);
  ends[1]();
  assert.deepEqual(await Promise.all(others), [204, 204, 204]);
  assert.equal(readings, 2);
  assert.deepEqual(receiver.model.state.members, ['r after-2']);
});

test('with a share of 1 an event fails three times, then it is accepted', async (t) => {
  const { receiver, send } = await start(t);
  receiver.failing = 1;
  // One that never answers would hold up the test.
  receiver.random.pick = () => /** @type {never} */ ('500');
  const statuses = [];
  for (let n = 0; n < 4; n++) statuses.push(await send('member.joined', 1));
  assert.deepEqual(statuses, [500, 500, 500, 204]);
});
