// acts.js: what a script may do: clients that act, faults of one process, link or server of Redis, and
// waits for a condition. Each step of a script names an act of this table.

import { pause } from '../harness/run.js';
import { signedQuery } from '../helpers/pusher.js';
import { KINDS } from './cast.js';
import { CHECKS, isLike, tellings } from './checks.js';

/** A condition of a script is awaited so long. */
const CONDITION_MS = 60_000;
const API_MS = 10_000;
const POLL_MS = 1;

/** @import { RedisHost } from './redis-host.js' */
/** @import { Stage } from './stage.js' */
/**
 * One step of a script.
 * @typedef {{do: string, afterMs?: number, [what: string]: any}} Act
 */

/** @type {Readonly<Record<string, (stage: Stage, act: any) => unknown>>} */
export const ACTS = Object.freeze({
  /** A client begins. */
  enter(stage, part) {
    const client = KINDS[part.as](stage, part, stage.idFor(part.server ?? 0));
    stage.clients.set(part.who, client);
    return client.start();
  },
  /** Its connection breaks; it returns after some time. */
  leave: (stage, { who, ms }) => stage.client(who).leave(ms),
  /** It leaves a room, and joins it again after some time. */
  stepOut: (stage, { who, room, ms }) => stage.client(who).stepOut(room, ms),
  /** It ends. */
  stop: (stage, { who }) => stage.client(who).stop(),
  stopReading: (stage, { who }) => stage.client(who).pause(),
  readAgain: (stage, { who }) => stage.client(who).resume(),
  /** A plain client sends a frame. */
  send: (stage, { who, frame }) => stage.client(who).send(frame),
  /** Messages one after another, each after the outcome of the one before. `keys`: to this many keys. */
  async publish(stage, { who, room, times = 1, keys, ...options }) {
    const publisher = stage.client(who);
    await condition(stage, () => publisher.isReady, `${who} can publish`);
    for (let i = 0; i < (keys ?? times); i++) {
      const key = keys === undefined ? options.key : `${options.key}${i}`;
      await new Promise((settled) => publisher.publish(room, { ...options, key, settled }));
    }
  },
  /** A request to the HTTP API, whose answer is kept under a name. The script goes on at once. */
  begin(stage, act) {
    ACTS.ask(stage, act);
  },
  /** Waits for the answer. */
  answered: (stage, { to }) =>
    condition(stage, () => stage.answers.has(to), `there is the answer ${to}`),
  /** A request to the HTTP API. */
  async ask(stage, { server = 0, method = 'GET', path, body, as = '' }) {
    const url = stage.urls[server].replace(/^ws/, 'http');
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${stage.plan.secret}`,
        'Content-Type': 'application/json',
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(API_MS),
    });
    const text = await response.text();
    const answer = { status: response.status, body: text === '' ? null : JSON.parse(text) };
    stage.note(`answer ${as} ${JSON.stringify(answer).slice(0, 400)}`);
    stage.answers.set(as, answer);
  },

  /** An event by Pusher's HTTP API; `except`: not to this plain client. */
  async trigger(stage, { server = 0, channel, name, data, except }) {
    const { app } = stage.plan;
    const socketId = except && stage.client(except).told[0].data.socket_id;
    const body = JSON.stringify({ name, channel, data, ...(except && { socket_id: socketId }) });
    const path = `/apps/${app.id}/events`;
    const url = stage.urls[server].replace(/^ws/, 'http').slice(0, -1);
    const query = signedQuery(app, 'POST', path, body);
    const headers = { 'Content-Type': 'application/json' };
    const { status } = await fetch(`${url}${path}?${query}`, { method: 'POST', headers, body });
    stage.note(`answer trigger ${status}`);
  },
  /** The receiver of webhooks answers events like this so, from now on; without an answer as it should. */
  receive({ receiver }, { event = {}, answer = null }) {
    receiver.answerOf = (body) => (isLike(body, event) ? answer : null);
  },
  /** The back end answers questions of hooks like this so: a Rule of hook-backend.js. */
  hook({ servers }, rule) {
    if (servers.backend === null) throw new Error('the plan has no hooks');
    servers.backend.rules.unshift({ ...rule });
  },
  /** Waits for an event, delivered or not. */
  event: (stage, { event }) =>
    condition(stage, () => stage.receiver.attempts.some((one) => isLike(one, event)), 'an event'),

  /** Of processes. */
  signal(stage, { of, signal }) {
    for (const one of stage.processes(of)) one.signal(signal);
  },
  /** The machine loses its power. */
  powerOff: (stage, { of }) => stage.server(of).machine.stop(),
  /** The server starts, again. */
  async powerOn(stage, { of }) {
    const server = stage.server(of);
    server.start();
    await stage.world.whole(server);
  },
  /** What is sent in this direction is kept back. */
  cut(stage, { from, to }) {
    stage.world.fleet.network.cut(stage.host(from), stage.host(to));
  },
  heal(stage, { from, to }) {
    stage.world.fleet.network.heal(stage.host(from), stage.host(to));
  },
  slow(stage, { from, to, ms }) {
    stage.world.fleet.network.way(stage.host(from), stage.host(to)).extraMs = ms;
  },
  /** A name of the plan's `aliases` leads to another host from now on. */
  lead(stage, { name, to }) {
    stage.world.fleet.names.set(name, stage.host(to));
  },
  /** Connections between two hosts are reset, so often, with pauses between. */
  async reset(stage, { from, to, times = 1, everyMs = 0 }) {
    for (let i = 0; i < times; i++) {
      if (i > 0) await pause(everyMs);
      stage.world.fleet.network.breakConnections(stage.host(from), stage.host(to));
    }
  },
  /** A clock is ahead. */
  skew(stage, { of, ms }) {
    stage.server(of).machine.skewMs = ms;
  },

  /** Of Redis. `with`: the data that it has, as RedisHost has it. */
  stopRedis: (stage, { node }) => stage.redis(node).stop(),
  startRedis: (stage, { node, with: data = 'kept' }) => stage.redis(node).start(data),
  /** A server of Redis becomes the replica of another. */
  followRedis: (stage, { node, of }) => stage.redis(node).replication.follow(stage.redis(of)),
  promoteRedis: (stage, { node }) => stage.redis(node).replication.promote(),
  freezeRedis: (stage, { node }) => stage.redis(node).freeze(),
  thawRedis: (stage, { node }) => stage.redis(node).thaw(),
  /** Answers to the commands of a server wait; what it has subscribed to passes. */
  holdAnswers: (stage, { node, to }) => stage.redis(node).holdAnswers(stage.host(to)),
  releaseAnswers: (stage, { node, to }) => stage.redis(node).releaseAnswers(stage.host(to)),
  emptyRedis: (stage, { node }) => stage.redis(node).server.empty(),
  /** A rule of the user of the servers, such as `resetchannels`. */
  acl: (stage, { node, rule }) => stage.redis(node).server.users.get('default')?.apply(rule),
  /** Redis evicts the keys whose names match. */
  evict(stage, { node, key }) {
    const { server } = stage.redis(node);
    const names = namesOf(stage.redis(node), key);
    if (names.length === 0) throw new Error(`Redis has no key like ${key}`);
    for (const name of names) server.evict(name);
  },

  /** Waits for clients to be in their rooms; without `who` for all. */
  joined: (stage, { who }) =>
    condition(
      stage,
      () => (who ? [stage.client(who)] : [...stage.clients.values()]).every(isIn),
      `${who ?? 'everybody'} is in`,
    ),
  /** Waits until a plain client has been sent a frame with these fields. */
  told: (stage, { who, frame }) =>
    condition(stage, () => tellings(stage, who, frame).length > 0, `${who} is told`),
  /** Waits for a key of Redis. */
  key: (stage, { node, key }) =>
    condition(stage, () => namesOf(stage.redis(node), key).length > 0, `Redis has ${key}`),
  /** Waits for a line of a server's log. */
  logged(stage, { of, line }) {
    const trace = /** @type {string[]} */ (stage.world.fleet.trace);
    let at = trace.length;
    const isLogged = () => {
      while (at < trace.length) {
        const one = trace[at++];
        if (one.includes(` ${of}/`) && one.includes(` log `) && one.includes(line)) return true;
      }
      return false;
    };
    return condition(stage, isLogged, `${of} logs ${line}`);
  },
  /** Waits for such a process; it may be starting. */
  born: (stage, { of }) => condition(stage, () => stage.processes(of).length > 0, `there is ${of}`),
  /** Waits until a server has all its workers. */
  whole: (stage, { of }) => stage.world.whole(stage.server(of)),
  /** Waits until all processes of a server have ended. */
  gone: (stage, { of }) => stage.world.gone(stage.server(of)),
  /** Only waits: for `afterMs`. */
  wait() {},
  /** Something must hold now. */
  check(stage, { that, ...about }) {
    const wrong = CHECKS[that](stage, about);
    if (wrong !== '') {
      stage.note(`check ${that}: ${wrong}`);
      stage.unmet.push(`${that}: ${wrong}`);
    }
  },
});

/** Who has been stopped is awaited by nobody. @param {any} client */
const isIn = ({ isWanted, isJoined }) => isJoined !== false || isWanted === false;

/**
 * @param {Stage} stage @param {() => boolean} isMet @param {string} what
 * @returns {Promise<void>} a condition that is never met makes the script fail: it tests nothing
 */
async function condition({ world, unmet }, isMet, what) {
  const endMs = world.nowMs + CONDITION_MS;
  while (!isMet()) {
    if (world.nowMs >= endMs) return void unmet.push(`in vain: ${what}`);
    await pause(POLL_MS);
  }
}

/** @param {RedisHost} node @param {string} pattern @returns {string[]} */
function namesOf({ server }, pattern) {
  const like = new RegExp(pattern);
  return server.keys.names().filter((name) => like.test(name));
}

/**
 * Performs a script, one step after another.
 * @param {Stage} stage @param {readonly Act[]} script
 */
export async function perform(stage, script) {
  for (const { do: name, afterMs = 0, ...act } of script) {
    if (afterMs > 0) await pause(afterMs);
    stage.note(`act ${name} ${JSON.stringify(act)}`);
    await ACTS[name](stage, act);
  }
}
