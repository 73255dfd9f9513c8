// The replicas, Sentinels and clusters of test/simulation/ behave like those of Redis.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { slotOf } from '../../src/backend/redis/slots.js';
import { Fleet } from '../simulation/fleet.js';
import { Session } from '../simulation/redis/session.js';
import { Sentinels } from '../simulation/sentinels.js';
import { SimulatedCluster } from '../simulation/simulated-cluster.js';

/** @import { RedisHost } from '../simulation/redis-host.js' */

/** @param {number} count of servers */
function startNodes(count) {
  const fleet = new Fleet(1);
  const nodes = Array.from({ length: count }, (_, i) => fleet.addRedis(`redis-${i}`));
  /** @param {number} ms */
  const pass = (ms) => fleet.simulator.run(fleet.simulator.nowMs + ms);
  return { fleet, nodes, pass };
}

/** A client, whose connection costs no time. @param {RedisHost} host */
function connect({ server }) {
  let text = '';
  const session = new Session(server, {
    write: (more) => {
      text += more;
    },
    close: () => {
      text += 'closed';
    },
  });
  /** @param {string[]} words @returns {string} all that has come */
  const ask = (...words) => {
    const bulks = words.map((word) => `$${word.length}\r\n${word}\r\n`).join('');
    if (words.length > 0) session.receive(`*${words.length}\r\n${bulks}`);
    const answer = text;
    text = '';
    return answer;
  };
  return ask;
}

/** A pair whose replica is in step. */
async function startPair() {
  const { fleet, nodes, pass } = startNodes(2);
  const [primary, replica] = nodes;
  replica.replication.follow(primary);
  await pass(3000);
  const cut = (/** @type {'cut'|'heal'} */ what) => {
    fleet.network[what](primary.host, replica.host);
    fleet.network[what](replica.host, primary.host);
  };
  return { fleet, primary, replica, pass, cut };
}

test('a replica has what has reached it, and refuses writes', async () => {
  const { primary, replica, pass, cut } = await startPair();
  const ask = connect(replica);
  connect(primary)('SET', 'a', '1');
  await pass(100);
  cut('cut');
  connect(primary)('SET', 'a', '2');
  await pass(100);
  assert.equal(ask('GET', 'a'), '$1\r\n1\r\n');
  assert.match(ask('SET', 'a', '3'), /^-READONLY/);
  cut('heal');
  await pass(100);
  assert.equal(ask('GET', 'a'), '$1\r\n2\r\n');
});

test('a stale replica lacks the last writes, and its former primary loses them, too', async () => {
  const { primary, replica, pass, cut } = await startPair();
  cut('cut');
  const ask = connect(primary);
  ask('CLIENT', 'TRACKING', 'ON', 'OPTIN');
  ask('SET', 'late', '1');
  const former = replica.server.replicationId;
  replica.replication.promote();
  assert.equal(replica.server.secondId, former);
  assert.notEqual(replica.server.replicationId, former);
  primary.replication.follow(replica);
  assert.match(ask('SET', 'later', '1'), /^-READONLY/);
  cut('heal');
  await pass(5000);
  assert.match(ask(), /invalidate/);
  assert.equal(ask('EXISTS', 'late'), ':0\r\n');
  assert.equal(primary.server.replicationId, replica.server.replicationId);
});

test('a replica gets all writes of a script together', async () => {
  const { primary, replica, pass } = await startPair();
  const { server } = replica;
  /** @type {number[]} */
  const counts = [];
  server.applyBatch = (batch) => void counts.push(batch.keys.length);
  const script = "for i = 1, 20 do redis.call('SET', 'k' .. i, 'x') end";
  connect(primary)('EVAL', script, '0');
  await pass(100);
  assert.deepEqual(counts, [20]);
});

test('a replica of an emptied primary is empty', async () => {
  const { primary, replica, pass } = await startPair();
  connect(primary)('SET', 'a', '1');
  await pass(100);
  connect(primary)('FLUSHALL');
  connect(primary)('SET', 'b', '1');
  await pass(100);
  assert.deepEqual([...replica.server.keys.keys.keys()], ['b']);
});

test('without a replica that keeps up, a primary that requires one refuses writes', async () => {
  const { primary, replica, pass } = await startPair();
  primary.replication.requireReplicas(1, 3000);
  const ask = connect(primary);
  assert.equal(ask('SET', 'a', '1'), '+OK\r\n');
  replica.freeze();
  await pass(6000);
  assert.match(ask('SET', 'a', '2'), /^-NOREPLICAS/);
  replica.thaw();
  await pass(3000);
  assert.equal(ask('SET', 'a', '3'), '+OK\r\n');
});

test('Sentinels replace a primary that is silent, and say so', async () => {
  const { fleet, nodes, pass } = startNodes(2);
  const sentinels = new Sentinels(fleet, nodes);
  const [primary, replica] = nodes;
  await pass(3000);
  const asks = sentinels.hosts.map(connect);
  for (const ask of asks) {
    ask('SUBSCRIBE', '+switch-master');
    assert.match(ask('SENTINEL', 'get-master-addr-by-name', 'main'), /10\.0\.1\.1/);
    assert.match(ask('SENTINEL', 'get-master-addr-by-name', 'other'), /-1/);
    assert.equal(ask('SENTINEL', 'sentinels', 'main').match(/10\.0\.2\.\d+:26379/g)?.length, 2);
    assert.match(ask('SENTINEL', 'replicas', 'main'), /10\.0\.1\.2:6379/);
  }
  primary.freeze();
  await pass(8000);
  assert.ok(replica.isPrimary);
  for (const ask of asks)
    assert.match(ask(), /\+switch-master[\s\S]*main 10\.0\.1\.1 6379 10\.0\.1\.2 6379/);
  assert.ok(primary.isPrimary, 'it knows of nothing');
  primary.thaw();
  const ask = connect(primary);
  await pass(15_000);
  assert.match(ask(), /closed/);
  assert.ok(!primary.isPrimary);
  assert.ok(sentinels.isSettled);
});

test('a Sentinel that alone does not reach the primary replaces nobody', async () => {
  const { fleet, nodes, pass } = startNodes(2);
  const sentinels = new Sentinels(fleet, nodes);
  await pass(1000);
  const [first, second] = sentinels.hosts;
  fleet.network.cut(first.host, nodes[0].host);
  await pass(10_000);
  assert.ok(nodes[0].isPrimary);
  fleet.network.cut(second.host, nodes[0].host);
  await pass(10_000);
  assert.ok(nodes[1].isPrimary);
});

async function startCluster() {
  const { fleet, nodes, pass } = startNodes(6);
  const cluster = new SimulatedCluster(fleet, nodes);
  await pass(3000);
  return { fleet, nodes, pass, cluster };
}

test('a slot that moves redirects clients: ASK, TRYAGAIN, then MOVED', async () => {
  const { nodes, pass, cluster } = await startCluster();
  const slot = slotOf('{a}');
  const owner = cluster.views.get(nodes[0])?.ownerOf(slot);
  const source = /** @type {RedisHost} */ (nodes.find(({ server }) => server === owner));
  const to = (nodes.indexOf(source) + 1) % 3;
  const target = nodes[to];
  const ask = connect(source);
  const other = connect(target);
  const listener = connect(source);
  listener('SSUBSCRIBE', '{a}channel');
  for (let i = 0; i < 20; i++) ask('SET', `{a}${i}`, 'x');
  assert.match(other('GET', '{a}0'), new RegExp(`^-MOVED ${slot} ${source.host}:6379`));
  cluster.move(slot, to);
  assert.match(ask('GET', '{a}new'), new RegExp(`^-ASK ${slot} ${target.host}:6379`));
  assert.match(ask('EXISTS', '{a}19', '{a}new'), /^-TRYAGAIN/);
  assert.match(other('SET', '{a}new', '1'), /^-MOVED/);
  assert.equal(other('ASKING'), '+OK\r\n');
  assert.equal(other('SET', '{a}new', '1'), '+OK\r\n');
  assert.match(other('GET', '{a}new'), /^-MOVED/, 'ASKING holds for one command');
  await pass(2000);
  assert.equal(cluster.moves.size, 0);
  assert.match(ask('GET', '{a}0'), new RegExp(`^-MOVED ${slot} ${target.host}:6379`));
  assert.equal(other('EXISTS', '{a}19', '{a}new'), ':2\r\n');
  assert.match(listener(), /sunsubscribe/);
  assert.match(connect(nodes[2])('CLUSTER', 'SLOTS'), new RegExp(`:${slot}\r\n:${slot}\r\n`));
  assert.ok(cluster.isSettled);
});

test('a primary of a cluster that is cut off refuses commands, and its replica takes over', async () => {
  const { fleet, nodes, pass, cluster } = await startCluster();
  const [primary] = nodes;
  const ask = connect(primary);
  for (const { host } of nodes.slice(1)) {
    fleet.network.cut(primary.host, host);
    fleet.network.cut(host, primary.host);
  }
  let key = 'a';
  while (cluster.map.shards[slotOf(key)] !== 0) key += 'a';
  assert.equal(ask('SET', key, 'x'), '+OK\r\n');
  await pass(5000);
  assert.match(ask('SET', key, 'y'), /^-CLUSTERDOWN/);
  assert.equal(connect(nodes[3])('SET', key, 'z'), '+OK\r\n');
  for (const { host } of nodes.slice(1)) {
    fleet.network.heal(primary.host, host);
    fleet.network.heal(host, primary.host);
  }
  await pass(5000);
  assert.match(ask('GET', key), /^-MOVED/);
  assert.equal(primary.server.keys.read(key, 'string'), 'z');
});

test('messages of a shard reach the subscribers of its replica', async () => {
  const { nodes, pass, cluster } = await startCluster();
  const shard = cluster.map.shards[slotOf('{a}')];
  const listener = connect(nodes[shard + 3]);
  listener('SSUBSCRIBE', '{a}');
  connect(nodes[shard])('SPUBLISH', '{a}', 'hello');
  await pass(10);
  assert.match(listener(), /smessage[\s\S]*hello/);
});
