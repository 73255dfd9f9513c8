// partition-owner.js: a process that owns a partition of events, for tests that suspend it.
//
// It takes and renews the partition. Told to commit, it commits under the fence that it had first.

import { openEventQueue } from '../../src/backend/redis/event-queue.js';

const [, , settings, prefix, partition, leaseMs] = process.argv;
const { queue } = openEventQueue({
  config: { redis: JSON.parse(settings), redisPrefix: prefix, redisTimeoutMs: 1000 },
});
queue.leaseMs = Number(leaseMs);
const number = Number(partition);
while (!queue.connection.isWritable) await new Promise((resolve) => setTimeout(resolve, 5));
const fence = Number(await queue.acquire(number));
const [first] = await queue.read(number, null, 1);
setInterval(() => queue.renew(number, fence).catch(() => {}), queue.leaseMs / 5);
process.on('message', async () => {
  const change = { set: new Map([['stale', '1']]), remove: ['kept'], upTo: first.id };
  process.send?.({ committed: await queue.commit(number, fence, change) });
});
process.send?.({ fence });
