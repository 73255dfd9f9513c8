#!/usr/bin/env node
// verify.js: does every member get every message exactly once, in each publisher's order?
//
//   node loadtest/verify.js --redis --servers 2       two servers that share one Redis
//   node loadtest/verify.js --workers 4               one server, embedded broker
//   node loadtest/verify.js --url ws://a:3000/ws --url ws://b:3000/ws     running servers, with limits off
//
// Client i is on server i mod servers and in room ⌊i/servers⌋ mod rooms, so that each room has
// members on every server. Publishers are members, too. Each publisher sends bursts of 25 to one
// room after another, with at most `window` messages without an ack. The window is smaller than a
// burst, so that messages of one publisher to one room can overtake each other if the server has a
// fault, and four publishers send to a room at a time. Each member marks the messages that it gets.
// A mark that is missing, set twice, or set after a later one of the same publisher is a fault, and
// the exit code is 1.

import { Latency } from '../test/harness/latency.js';
import { readOptions } from '../test/harness/options.js';
import { startRedis } from '../test/harness/redis.js';
import { count, pause, print, run } from '../test/harness/run.js';
import {
  connectionsPerWorker,
  NO_LIMITS,
  scrape,
  startServer,
  urlOf,
} from '../test/harness/server.js';
import { closeAll, joinAll, openMany, WsClient } from '../test/harness/ws-client.js';

const { values } = readOptions(
  `Does every member get every message exactly once, in the order of each publisher?

  node loadtest/verify.js --redis --servers 2      two servers that share one Redis
  node loadtest/verify.js --workers 4              one server of four workers, embedded broker
  node loadtest/verify.js --url ws://a:3000/ws --url ws://b:3000/ws     running servers, with limits off`,
  `redis | | | the servers share a Redis, which is started for the run; without, one has the embedded broker
  url URL… | | | a running server; one for each server
  servers N | whole 1..16 | 1 | servers to start; several need --redis
  workers N | whole 1..64 | 2 | workers of each server
  clients N | whole 1..100000 | 2000 | clients, all in this process
  rooms N | whole 1..100000 | 20 | rooms; each client is in one
  messages N | whole 1..10000000 | 10000 | messages in all
  publishers N | whole 1..100000 | 20 | clients that publish
  window N | whole 1..1000 | 16 | messages of a publisher without an ack
  timeout-s S | whole 1..86400 | 120 | seconds after which the run has failed`,
  {
    check: ({ values: { redis, url, servers, publishers, clients } }) => {
      const wrong = url.find(
        (/** @type {string} */ one) => !/^ws:\/\/./.test(one) || !URL.canParse(one),
      );
      if (wrong !== undefined) return `--url is a URL that begins with ws://, not ${wrong}`;
      if (!redis && servers !== 1 && url.length === 0) return 'several servers need --redis';
      if (publishers > clients) return '--publishers must be at most --clients';
    },
  },
);
const {
  clients: clientCount,
  rooms: roomCount,
  messages: messageCount,
  publishers: publisherCount,
} = values;
const { redis: isRedis, url: givenUrls, window } = values;
/** Messages a publisher sends to one room before it goes to the next. */
const BURST = 25;
/** Publishers that are at the same room at a time. */
const AT_A_ROOM = 4;
/** After this time without a delivery, missing ones will not come. */
const SILENCE_MS = 3000;
/** After the last one: time for a repeat to show itself. */
const REPEAT_WAIT_MS = 500;

/** The messages that one client has received. */
class Member {
  /** @param {number} room @param {number} slots @param {number} publishers */
  constructor(room, slots, publishers) {
    this.room = room;
    this.marks = new Uint8Array(slots);
    this.last = new Int32Array(publishers).fill(-1);
  }
}

const broker = givenUrls.length > 0 ? 'running servers' : isRedis ? 'Redis' : 'embedded broker';

await run(
  `verify: ${count(clientCount)} clients, ${roomCount} rooms, ${count(messageCount)} messages of ${publisherCount} publishers; ${broker}`,
  verify,
  values.timeoutS * 1000,
);

/** @param {import('../test/harness/run.js').Run} test */
async function verify(test) {
  const servers = givenUrls.length > 0 ? [] : await startServers(test);
  const urls = givenUrls.length > 0 ? givenUrls : servers.map(urlOf);

  const perPublisher = Math.ceil(messageCount / publisherCount);
  /** Marks a member has for each publisher: a burst for each time it comes to the room. */
  const slots = Math.ceil(perPublisher / (BURST * roomCount)) * BURST;
  const roomOf = (/** @type {number} */ publisher, /** @type {number} */ n) =>
    (Math.floor(publisher / AT_A_ROOM) + Math.floor(n / BURST)) % roomCount;
  const slotOf = (/** @type {number} */ publisher, /** @type {number} */ n) =>
    publisher * slots + Math.floor(n / (BURST * roomCount)) * BURST + (n % BURST);
  const latency = new Latency();
  const got = { deliveries: 0, repeated: 0, outOfOrder: 0, strange: 0, errors: 0, lastMs: 0 };

  /** @type {Member[]} */
  const members = [];
  const connecting = performance.now();
  const clients = await openMany(clientCount, (i) => {
    const member = new Member(
      Math.floor(i / urls.length) % roomCount,
      publisherCount * slots,
      publisherCount,
    );
    members[i] = member;
    return new WsClient(urls[i % urls.length], { onText: (text) => receive(member, text) });
  });
  test.after(() => closeAll(clients));
  await joinAll(clients, (i) => `verify-${members[i].room}`);
  print(`     connected and joined in ${((performance.now() - connecting) / 1000).toFixed(1)} s`);
  for (const [i, { metricsPort }] of servers.entries()) {
    const workers = connectionsPerWorker((await scrape(metricsPort)).values);
    test.note(
      `connections per worker, server ${i + 1}`,
      [...workers.values()].map(count).join(', '),
    );
  }

  /** @param {Member} member @param {string} text */
  function receive(member, text) {
    const { type, room, payload } = JSON.parse(text);
    if (type === 'error') got.errors++;
    if (type !== 'message' || room !== `verify-${member.room}`) {
      got.strange++;
      return;
    }
    const [publisher, n, sentMs] = payload;
    const slot = slotOf(publisher, n);
    if (roomOf(publisher, n) !== member.room || n >= perPublisher) got.strange++;
    else if (member.marks[slot]++ > 0) got.repeated++;
    else if (n <= member.last[publisher]) got.outOfOrder++;
    else member.last[publisher] = n;
    got.deliveries++;
    got.lastMs = performance.now();
    latency.add(got.lastMs - sentMs);
  }

  const membersOf = new Array(roomCount).fill(0);
  for (const { room } of members) membersOf[room]++;
  let expected = 0;
  let sent = 0;
  let refused = 0;
  const started = performance.now();
  /** @param {number} publisher */
  const publish = async (publisher) => {
    // Spread over the clients, so over all servers and workers.
    const client = clients[Math.floor((publisher * clientCount) / publisherCount)];
    const last = Math.min(perPublisher, messageCount - publisher * perPublisher);
    let next = 0;
    const lane = async () => {
      while (next < last) {
        const n = next++;
        const room = roomOf(publisher, n);
        sent++;
        const reply = await client.request({
          type: 'message',
          room: `verify-${room}`,
          payload: [publisher, n, performance.now()],
        });
        if (reply.type === 'ack') expected += membersOf[room];
        else refused++;
      }
    };
    await Promise.all(Array.from({ length: window }, lane));
  };
  await Promise.all(Array.from({ length: publisherCount }, (_, publisher) => publish(publisher)));
  const publishedS = (performance.now() - started) / 1000;
  got.lastMs = Math.max(got.lastMs, performance.now());
  while (got.deliveries < expected && performance.now() - got.lastMs < SILENCE_MS) await pause(20);
  const deliveredS = (got.lastMs - started) / 1000;
  await pause(REPEAT_WAIT_MS);

  let missing = 0;
  for (const member of members) {
    for (let publisher = 0; publisher < publisherCount; publisher++) {
      const last = Math.min(perPublisher, messageCount - publisher * perPublisher);
      for (let n = 0; n < last; n++) {
        if (roomOf(publisher, n) === member.room && member.marks[slotOf(publisher, n)] === 0)
          missing++;
      }
    }
  }
  test.note(
    'published',
    `${count(sent)} in ${publishedS.toFixed(2)} s: ${count(sent / publishedS)} a second`,
  );
  test.note(
    'delivered',
    `${count(got.deliveries)} in ${deliveredS.toFixed(2)} s: ${count(got.deliveries / deliveredS)} a second`,
  );
  test.note('latency, publisher to member', latency);
  test.check('messages accepted', count(messageCount), count(sent - refused));
  test.check('deliveries', count(expected), count(got.deliveries));
  test.check('missing', 0, missing);
  test.check('repeated', 0, got.repeated);
  test.check('out of order', 0, got.outOfOrder);
  test.check('of another room or type', 0, got.strange);
  test.check('error replies', 0, got.errors + refused);
  test.check(
    'connections lost',
    0,
    clients.filter((client) => !client.isOpen || client.error !== null).length,
  );
}

/** @param {import('../test/harness/run.js').Run} test */
async function startServers(test) {
  const redis = isRedis ? await startRedis(test) : null;
  const env = {
    ...NO_LIMITS,
    WORKERS: String(values.workers),
    ...(redis ? { REDIS_URL: redis.url } : {}),
  };
  return Promise.all(
    Array.from({ length: values.servers }, (_, i) =>
      startServer(test, { ...env, SERVER_ID: `verify-${i + 1}` }),
    ),
  );
}
