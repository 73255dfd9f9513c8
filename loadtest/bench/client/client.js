// client.js: client.c once more, in Node, for machines without a C compiler.
//
// It has the same lines in and out, the same marker and the same checks as client.c, which explains
// them. It reads frames without decoding them, looks for the marker at its last place, takes the
// time from every 16th delivery only, and makes no object per delivery. It still costs two to three
// times the C client (README.md has the figures).

import { createInterface } from 'node:readline';
import { BUCKETS, bucketOf } from '../../../test/harness/latency.js';
import { WsClient } from '../../../test/harness/ws-client.js';

const MARKER = 26;
/** Of how many deliveries one is timed. A power of two. */
const SAMPLE = 16;
const HASH = 0x23;
const T = 0x54;

/** @typedef {'closed' | 'joining' | 'open'} State `joining`: from the start of the handshake */

class Group {
  /** @type {Connection[]} */
  members = [];
  open = 0;
  room = '';
  rooms = 1;
  markerOffset = 0;
  // the opening
  opening = false;
  openingId = 0;
  wanted = 0;
  started = 0;
  inFlight = 0;
  failed = 0;
  concurrency = 1;
  sources = 0;
  perSecond = 0;
  paused = false;
  openedAtUs = 0;
  deadlineUs = 0;
  // the run
  mode = '';
  going = false;
  runId = 0;
  step = 0;
  payloadBytes = 100;
  startUs = 0;
  windowEndUs = 0;
  giveUpUs = 0;
  drainUs = 0;
  lastUs = 0;
  maxUs = 0;
  intervalUs = 0;
  messages = 0;
  nextMessage = 0;
  process = -1;
  processes = 1;
  publishers = 4;
  expected = 0;
  received = 0;
  inWindow = 0;
  stray = 0;
  lost = 0;
  sent = 0;
  before = { frames: 0, bytes: 0, reads: 0, cpu: 0 };
  histogram = new Uint32Array(BUCKETS);
  cyclesWanted = 0;
  cyclesStarted = 0;
  cyclesDone = 0;
}

const groups = [new Group(), new Group(), new Group(), new Group()];
const profile = {
  url: new URL('ws://127.0.0.1'),
  /** @type {Record<string, string>} */
  headers: {},
  ready: '',
  before: '',
  after: '',
  ping: '',
  pong: '',
  sourceOffset: 0,
  /** @type {{ wait: string, send: string }[]} */
  steps: [],
};
/** Counts since the start, and the time of the last read. */
let frames = 0;
let bytes = 0;
let reads = 0;
let readUs = 0;
/** @type {NodeJS.Timeout | null} */
let timer = null;

const nowUs = () => Number(process.hrtime.bigint() / 1000n);
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

class Connection extends WsClient {
  /** @type {State} */
  state = 'joining';
  step = 0;
  received = 0;
  /** Of the sequence numbers received. */
  sum = 0;

  /** @param {Group} group @param {number} index */
  constructor(group, index) {
    const { url, headers, sourceOffset } = profile;
    const { sources } = group;
    super(url, {
      localAddress: sources > 0 ? `127.0.0.${2 + ((index + sourceOffset) % sources)}` : undefined,
      headers,
      onClose: () => connectionEnded(this),
    });
    this.group = group;
    this.index = index;
    this.paused = group.paused;
  }

  /** @override @param {Buffer} buffer @param {number} length */
  read(buffer, length) {
    reads++;
    bytes += length;
    readUs = nowUs();
    super.read(buffer, length);
  }

  /** @override @param {Buffer} data @param {number} from @param {number} end */
  receive(data, from, end) {
    frames++;
    if (this.state !== 'closed') onMessage(this, data, from, end);
  }
}

/** @param {Connection} c @param {string} text */
function withRoom({ group, index }, text) {
  const room = group.rooms > 1 ? `${group.room}${index % group.rooms}` : group.room;
  return text.replaceAll('$ROOM', room);
}

/** @param {Connection} c @param {number} dueUs @param {number} sequence */
function publish(c, dueUs, sequence) {
  const { step, payloadBytes } = c.group;
  const head = `{"m":"#T${dueUs.toString(16).padStart(13, '0')}${step.toString(16).padStart(2, '0')}${sequence.toString(16).padStart(8, '0')}#","user":"ada","text":"`;
  c.send(
    `${withRoom(c, profile.before)}${head}${'x'.repeat(Math.max(0, payloadBytes - head.length - 2))}"}${withRoom(c, profile.after)}`,
  );
}

/** @param {Connection} c */
function connectionEnded(c) {
  const { group } = c;
  if (c.state === 'closed') return;
  if (c.state === 'open') {
    group.open--;
    group.lost++;
  } else {
    group.inFlight--;
    group.failed++;
    if (group.mode === 'cycle') group.cyclesDone++;
  }
  c.state = 'closed';
  c.destroy();
}

/**
 * Ends it from our side, with a reset, so that ports can be used again at once.
 * @param {Connection} c
 */
function hangUp(c) {
  if (c.state === 'closed') return;
  if (c.state === 'open') c.group.open--;
  else c.group.inFlight--;
  c.state = 'closed';
  c.reset();
}

/** Opens a connection at its place in the group. @param {Group} g @param {number} index */
function dial(g, index) {
  const c = new Connection(g, index);
  g.members[index] = c;
  g.inFlight++;
  const timeoutMs = Math.max(1, (g.deadlineUs - nowUs()) / 1000);
  c.open(timeoutMs).then(
    () => {
      if (c.state === 'joining') goOnJoining(c, null);
    },
    (error) => {
      if (c.state !== 'closed' && g.failed === 0) process.stderr.write(`${error.message}\n`);
      connectionEnded(c);
    },
  );
}

/** @param {Connection} c */
function becameReady(c) {
  const { group } = c;
  group.inFlight--;
  c.state = 'open';
  group.open++;
  if (group.mode === 'cycle') {
    group.cyclesDone++;
    if (group.cyclesDone & 1) {
      // Every other one leaves in an orderly way.
      group.open--;
      c.state = 'closed';
      c.close();
    } else hangUp(c);
    return;
  }
  if (c.paused) c.pause();
}

/** @param {Connection} c @param {string | null} message */
function goOnJoining(c, message) {
  for (;;) {
    const step = profile.steps[c.step];
    if (step) {
      if (step.wait !== '') {
        if (message === null || !message.includes(step.wait)) return;
        message = null;
      }
      c.send(withRoom(c, step.send));
      c.step++;
      continue;
    }
    if (profile.ready === '' || message?.includes(profile.ready)) becameReady(c);
    return;
  }
}

/** @param {Buffer} from @param {number} at @param {number} n */
function hex(from, at, n) {
  let value = 0;
  for (let i = at; i < at + n; i++) {
    const digit = from[i];
    value = value * 16 + (digit < 58 ? digit - 48 : digit - 87);
  }
  return value;
}

/** @param {Connection} c @param {Buffer} from @param {number} at */
function delivered(c, from, at) {
  const g = c.group;
  if (hex(from, at + 15, 2) !== g.step || g.mode === '') {
    g.stray++;
    return;
  }
  if ((g.received & (SAMPLE - 1)) === 0) {
    const us = Math.max(0, readUs - hex(from, at + 2, 13));
    g.histogram[bucketOf(us)]++;
    if (us > g.maxUs) g.maxUs = us;
  }
  if (readUs <= g.windowEndUs) g.inWindow++;
  g.lastUs = readUs;
  g.received++;
  c.received++;
  c.sum += hex(from, at + 17, 8);
  if (g.mode === 'echo' && readUs < g.windowEndUs) publish(c, readUs, 0);
}

/** @param {Connection} c @param {Buffer} from @param {number} start @param {number} end */
function onMessage(c, from, start, end) {
  const g = c.group;
  if (c.state === 'joining') {
    goOnJoining(c, from.toString('latin1', start, end));
    if (/** @type {State} */ (c.state) === 'closed') return;
  }
  let at = start + g.markerOffset;
  if (
    at + MARKER > end ||
    from[at] !== HASH ||
    from[at + 1] !== T ||
    from[at + MARKER - 1] !== HASH
  ) {
    at = from.subarray(start, end).indexOf('#T') + start;
    if (at < start) {
      if (
        profile.ping !== '' &&
        end - start === profile.ping.length &&
        from.toString('latin1', start, end) === profile.ping
      )
        c.send(profile.pong);
      return;
    }
    g.markerOffset = at - start;
  }
  for (;;) {
    if (at + MARKER > end) return;
    if (from[at + MARKER - 1] === HASH) delivered(c, from, at);
    at += MARKER;
    if (end - at < g.payloadBytes) return;
    const next = from.subarray(at, end).indexOf('#T');
    if (next < 0) return;
    at += next;
  }
}

/** @param {Record<string, unknown>} answer */
function reply(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

/** @param {Group} g @param {number} now */
function goOnOpening(g, now) {
  const allowed =
    g.perSecond > 0 ? 1 + ((now - g.openedAtUs) * g.perSecond) / 1e6 : Number.POSITIVE_INFINITY;
  while (g.started < g.wanted && g.inFlight < g.concurrency && g.started < allowed) {
    g.started++;
    dial(g, g.members.length);
  }
  if (now > g.deadlineUs)
    for (const c of g.members) if (c.state !== 'open' && c.state !== 'closed') connectionEnded(c);
  if ((g.started === g.wanted && g.inFlight === 0) || now > g.deadlineUs) {
    g.opening = false;
    reply({
      id: g.openingId,
      open: g.open,
      failed: g.failed,
      seconds: (nowUs() - g.openedAtUs) / 1e6,
      cpuSeconds: cpuSeconds() - g.before.cpu,
    });
  }
}

/** @param {Group} g @param {number} now */
function goOnCycling(g, now) {
  for (let i = 0; i < g.concurrency; i++) {
    if (g.cyclesStarted >= g.cyclesWanted || now >= g.giveUpUs) break;
    if ((g.members[i]?.state ?? 'closed') !== 'closed') continue;
    g.cyclesStarted++;
    dial(g, i);
  }
  if (now <= g.giveUpUs && (g.inFlight > 0 || g.cyclesStarted < g.cyclesWanted)) return;
  g.mode = '';
  reply({
    id: g.runId,
    cycles: g.cyclesDone,
    failed: g.failed,
    seconds: (nowUs() - g.startUs) / 1e6,
    cpuSeconds: cpuSeconds() - g.before.cpu,
  });
}

/**
 * How many of the messages went to this room, and the sum of their numbers.
 * @param {Group} g @param {number} room
 */
function dueOfRoom(g, room) {
  const count = room < g.messages ? Math.floor((g.messages - 1 - room) / g.rooms) + 1 : 0;
  return { count, sum: count * room + g.rooms * ((count * (count - 1)) / 2) };
}

/**
 * @param {Group} g @param {string} mode @param {(key: string, fallback: number) => number} number
 */
function begin(g, mode, number) {
  g.mode = mode;
  g.going = false;
  g.runId = number('id', 0);
  g.step = number('step', 0) & 255;
  g.payloadBytes = number('payload', 100);
  g.histogram.fill(0);
  g.received =
    g.inWindow =
    g.stray =
    g.lost =
    g.sent =
    g.lastUs =
    g.maxUs =
    g.expected =
    g.nextMessage =
      0;
  g.before = { frames, bytes, reads, cpu: cpuSeconds() };
  for (const c of g.members) c.received = c.sum = 0;
}

/** @param {Group} g @param {number} now */
function publishDue(g, now) {
  while (g.nextMessage < g.messages) {
    const j = g.nextMessage;
    const due = g.startUs + Math.floor(j * g.intervalUs);
    if (due > now) return;
    const turn = Math.floor(j / g.rooms);
    g.nextMessage++;
    if (turn % g.processes !== g.process) continue;
    const c = g.members[(j % g.rooms) + g.rooms * (Math.floor(turn / g.processes) % g.publishers)];
    if (c?.state !== 'open') continue; // it will be missed by all its receivers
    publish(c, due, j);
    g.sent++;
  }
}

/** @param {Group} g */
function replyRun(g) {
  let wrong = 0;
  for (const c of g.members) {
    if (c.state !== 'open' || c.paused || g.mode === 'echo') continue;
    const { count, sum } = dueOfRoom(g, c.index % g.rooms);
    if (c.received !== count || c.sum !== sum) wrong++;
  }
  const pairs = [];
  for (let i = 0; i < BUCKETS; i++) if (g.histogram[i] > 0) pairs.push(`${i}:${g.histogram[i]}`);
  reply({
    id: g.runId,
    open: g.open,
    expected: g.expected,
    received: g.received,
    inWindow: g.inWindow,
    wrong,
    stray: g.stray,
    lost: g.lost,
    sent: g.sent,
    lastUs: Math.max(0, g.lastUs - g.startUs),
    maxUs: g.maxUs,
    frames: frames - g.before.frames,
    bytes: bytes - g.before.bytes,
    reads: reads - g.before.reads,
    cpuSeconds: cpuSeconds() - g.before.cpu,
    histogram: pairs.join(','),
  });
  g.mode = '';
}

/** @param {string} line */
function execute(line) {
  const [command, ...pairs] = line.split(' ');
  /** @type {Record<string, string>} */
  const args = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals > 0) args[pair.slice(0, equals)] = decodeURIComponent(pair.slice(equals + 1));
  }
  const number = (/** @type {string} */ key, /** @type {number} */ fallback) =>
    args[key] === undefined ? fallback : Number(args[key]);
  const id = number('id', 0);
  const g = groups[number('group', 0) % groups.length];
  switch (command) {
    case 'profile': {
      const { host, port, path, ready, before, after, ping, pong } = args;
      Object.assign(profile, { ready, before, after, ping, pong });
      profile.url = new URL(`ws://${host}:${port}${path}`);
      profile.headers = Object.fromEntries(
        [...args.headers.matchAll(/(.+?): *(.*)\r\n/g)].map(([, name, value]) => [name, value]),
      );
      profile.sourceOffset = number('sourceOffset', 0);
      profile.steps = Array.from({ length: number('steps', 0) }, (_, i) => ({
        wait: args[`wait${i}`],
        send: args[`send${i}`],
      }));
      reply({ id });
      break;
    }
    case 'open':
      g.opening = true;
      g.openingId = id;
      g.wanted = number('count', 0);
      g.started = g.failed = g.inFlight = 0;
      if (g.members.length === 0) g.lost = 0;
      g.concurrency = number('concurrency', 100);
      g.perSecond = number('perSecond', 0);
      g.sources = number('sources', 0);
      g.paused = number('read', 1) === 0;
      g.rooms = number('rooms', 1);
      g.room = args.room;
      g.openedAtUs = nowUs();
      g.deadlineUs = g.openedAtUs + number('timeoutMs', 30_000) * 1000;
      g.before.cpu = cpuSeconds();
      break;
    case 'run':
      begin(g, 'run', number);
      g.windowEndUs = Number.POSITIVE_INFINITY;
      g.messages = number('messages', 0);
      g.intervalUs = 1e6 / number('perSecond', 1);
      g.drainUs = number('drainMs', 2000) * 1000;
      g.process = number('process', -1);
      g.processes = number('processes', 1);
      g.publishers = number('publishers', 4);
      for (const c of g.members)
        if (c.state === 'open' && !c.paused) g.expected += dueOfRoom(g, c.index % g.rooms).count;
      reply({ id });
      break;
    case 'go':
      g.runId = id;
      g.going = true;
      g.startUs = number('startUs', 0);
      g.windowEndUs = g.startUs + Math.floor(g.messages * g.intervalUs);
      g.giveUpUs = g.windowEndUs + g.drainUs;
      break;
    case 'echo':
      begin(g, 'echo', number);
      g.startUs = nowUs();
      g.windowEndUs = g.startUs + number('durationMs', 2000) * 1000;
      g.giveUpUs = g.windowEndUs + 200_000;
      for (const c of g.members) if (c.state === 'open') publish(c, nowUs(), 0);
      break;
    case 'cycle':
      begin(g, 'cycle', number);
      g.startUs = nowUs();
      g.giveUpUs = g.startUs + number('timeoutMs', 60_000) * 1000;
      g.cyclesWanted = number('count', 0);
      g.cyclesStarted = g.cyclesDone = g.failed = g.inFlight = 0;
      g.concurrency = number('concurrency', 50);
      g.sources = number('sources', 0);
      g.rooms = number('rooms', 1);
      g.paused = false;
      g.room = args.room;
      g.deadlineUs = g.giveUpUs;
      break;
    case 'close': {
      const keep = number('keep', 0);
      while (g.members.length > keep) hangUp(/** @type {Connection} */ (g.members.pop()));
      reply({ id, open: g.open });
      break;
    }
    case 'status':
      reply({ id, open: g.open, lost: g.lost, cpuSeconds: cpuSeconds() });
      break;
    case 'quit':
      process.exit(0);
      break;
    default:
      reply({ id, error: 'unknown command' });
  }
}

/**
 * What is due, then when to come again: timers here are milliseconds, which is exact enough for
 * messages and their times.
 */
function work() {
  const now = nowUs();
  let next = Number.POSITIVE_INFINITY;
  for (const g of groups) {
    if (g.opening) {
      goOnOpening(g, now);
      next = Math.min(next, now + 2000);
    }
    if (g.mode === 'run' && g.going) {
      publishDue(g, now);
      const done = now >= g.windowEndUs && g.received >= g.expected && g.nextMessage >= g.messages;
      if (done || now >= g.giveUpUs) replyRun(g);
      else if (g.process < 0 || g.process >= g.processes || g.nextMessage >= g.messages)
        next = Math.min(next, now + 2000);
      else next = Math.min(next, g.startUs + g.nextMessage * g.intervalUs);
    } else if (g.mode === 'echo') {
      if (now >= g.giveUpUs) replyRun(g);
      else next = Math.min(next, g.giveUpUs);
    } else if (g.mode === 'cycle') {
      goOnCycling(g, now);
      next = Math.min(next, now + 1000);
    }
  }
  if (timer) clearTimeout(timer);
  timer =
    next === Number.POSITIVE_INFINITY
      ? null
      : setTimeout(work, Math.max(1, (next - nowUs()) / 1000));
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    execute(line);
    work();
  })
  .on('close', () => process.exit(0)); // whoever steers this is gone
