// client.js: client.c once more, in Node, for machines without a C compiler.
//
// It has the same lines in and out, the same marker and the same checks as client.c, which explains
// them. Raw sockets share one read buffer (`onread`), and frames are counted by their headers. The
// client looks for the marker at its last place, reads the time in every 16th delivery only, and
// makes no object per delivery. It still costs two to three times the C client (README.md has the
// figures).

import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { BUCKETS, bucketOf } from '../../lib/latency.js';

const MARKER = 26;
/** Of how many deliveries one is timed. A power of two. */
const SAMPLE = 16;
const HASH = 0x23;
const T = 0x54;

/** @typedef {'closed' | 'connecting' | 'upgrading' | 'joining' | 'open'} State */

/**
 * @typedef {object} Connection
 * @property {import('node:net').Socket | null} socket
 * @property {State} state
 * @property {Group} group
 * @property {number} index
 * @property {number} step
 * @property {boolean} paused
 * @property {number} received
 * @property {number} sum
 * @property {Buffer | null} partial
 */

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
  /** @type {{ sender: Connection, sentUs: number, backUs: number }[]} */
  samples = [];
  samplesWanted = 0;
  samplesBack = 0;
  samplesInFlight = 4;
  cyclesWanted = 0;
  cyclesStarted = 0;
  cyclesDone = 0;
}

const groups = [new Group(), new Group(), new Group(), new Group()];
const profile = {
  host: '127.0.0.1',
  port: 0,
  path: '/',
  headers: '',
  ready: '',
  before: '',
  after: '',
  ping: '',
  pong: '',
  sourceOffset: 0,
  /** @type {{ wait: string, send: string }[]} */
  steps: [],
};
const buffer = Buffer.allocUnsafe(1 << 18);
let frames = 0;
let bytes = 0;
let reads = 0;
/** @type {NodeJS.Timeout | null} */
let timer = null;

const nowUs = () => Number(process.hrtime.bigint() / 1000n);
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

/**
 * @param {Connection} c
 * @param {string} text
 */
function withRoom(c, text) {
  return text.includes('$ROOM')
    ? text.replaceAll(
        '$ROOM',
        c.group.rooms > 1 ? c.group.room + (c.index % c.group.rooms) : c.group.room,
      )
    : text;
}

const MASK = [0x37, 0xfa, 0x21, 0x3d];

/**
 * @param {Connection} c
 * @param {number} opcode
 * @param {string | Buffer} content
 */
function sendFrame(c, opcode, content) {
  const n = content.length; // ASCII
  const header = n < 126 ? 6 : 8;
  const frame = Buffer.allocUnsafe(header + n);
  frame[0] = 0x80 | opcode;
  if (n < 126) frame[1] = 0x80 | n;
  else {
    frame[1] = 0x80 | 126;
    frame.writeUInt16BE(n, 2);
  }
  for (let i = 0; i < 4; i++) frame[header - 4 + i] = MASK[i];
  if (typeof content === 'string') frame.write(content, header, 'latin1');
  else content.copy(frame, header);
  for (let i = 0; i < n; i++) frame[header + i] ^= MASK[i & 3];
  c.socket?.write(frame);
}

/**
 * @param {Connection} c
 * @param {number} dueUs
 * @param {number} sequence
 */
function publish(c, dueUs, sequence) {
  const { step, payloadBytes } = c.group;
  const head = `{"m":"#T${dueUs.toString(16).padStart(13, '0')}${step.toString(16).padStart(2, '0')}${sequence.toString(16).padStart(8, '0')}#","user":"ada","text":"`;
  sendFrame(
    c,
    1,
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
  c.socket?.destroy();
  c.socket = null;
  c.partial = null;
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
  c.socket?.resetAndDestroy();
  c.socket = null;
  c.partial = null;
}

/** @param {Connection} c */
function dial(c) {
  const { group } = c;
  c.step = 0;
  c.received = 0;
  c.sum = 0;
  c.paused = group.paused;
  c.state = 'connecting';
  group.inFlight++;
  const socket = connect({
    host: profile.host,
    port: profile.port,
    noDelay: true,
    localAddress:
      group.sources > 0
        ? `127.0.0.${2 + ((c.index + profile.sourceOffset) % group.sources)}`
        : undefined,
    onread: {
      buffer,
      callback: (n) => {
        if (c.socket === socket) onRead(c, n);
        return true;
      },
    },
  });
  c.socket = socket;
  const ended = () => {
    if (c.socket === socket) connectionEnded(c);
  };
  socket.on('error', ended);
  socket.on('close', ended);
  socket.on('end', ended);
  socket.on('connect', () => {
    if (c.socket !== socket) return;
    c.state = 'upgrading';
    socket.write(
      `GET ${profile.path} HTTP/1.1\r\nHost: ${profile.host}:${profile.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n${profile.headers}\r\n`,
    );
  });
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
      const socket = c.socket;
      sendFrame(c, 8, Buffer.from([0x03, 0xe8]));
      group.open--;
      c.state = 'closed';
      c.socket = null;
      socket?.end();
    } else hangUp(c);
    return;
  }
  if (c.paused) c.socket?.pause();
}

/**
 * @param {Connection} c
 * @param {string | null} message
 */
function goOnJoining(c, message) {
  for (;;) {
    const step = profile.steps[c.step];
    if (step) {
      if (step.wait !== '') {
        if (message === null || !message.includes(step.wait)) return;
        message = null;
      }
      sendFrame(c, 1, withRoom(c, step.send));
      c.step++;
      continue;
    }
    if (profile.ready === '' || message?.includes(profile.ready)) becameReady(c);
    return;
  }
}

/**
 * @param {Buffer} from
 * @param {number} at
 * @param {number} n
 */
function hex(from, at, n) {
  let value = 0;
  for (let i = at; i < at + n; i++) {
    const digit = from[i];
    value = value * 16 + (digit < 58 ? digit - 48 : digit - 87);
  }
  return value;
}

/**
 * @param {Connection} c
 * @param {Group} g
 * @param {Buffer} from
 * @param {number} at
 * @param {number} now
 */
function delivered(c, g, from, at, now) {
  if (hex(from, at + 15, 2) !== g.step || g.mode === '') {
    g.stray++;
    return;
  }
  const sequence = hex(from, at + 17, 8);
  if ((g.received & (SAMPLE - 1)) === 0) {
    const us = Math.max(0, now - hex(from, at + 2, 13));
    g.histogram[bucketOf(us)]++;
    if (us > g.maxUs) g.maxUs = us;
  }
  if (now <= g.windowEndUs) g.inWindow++;
  g.lastUs = now;
  g.received++;
  c.received++;
  c.sum += sequence;
  if (g.mode === 'shootout') {
    const sample = g.samples[sequence];
    if (sample?.sender === c && sample.backUs === 0) {
      sample.backUs = now;
      g.samplesBack++;
    }
  } else if (g.mode === 'echo' && now < g.windowEndUs) publish(c, now, 0);
}

/**
 * @param {Connection} c
 * @param {Buffer} from
 * @param {number} start
 * @param {number} end
 * @param {number} now
 */
function onMessage(c, from, start, end, now) {
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
        sendFrame(c, 1, profile.pong);
      return;
    }
    g.markerOffset = at - start;
  }
  for (;;) {
    if (at + MARKER > end) return;
    if (from[at + MARKER - 1] === HASH) delivered(c, g, from, at, now);
    at += MARKER;
    if (end - at < g.payloadBytes) return;
    const next = from.subarray(at, end).indexOf('#T');
    if (next < 0) return;
    at += next;
  }
}

/**
 * @param {Connection} c
 * @param {number} n bytes in `buffer`
 */
function onRead(c, n) {
  reads++;
  bytes += n;
  const now = nowUs();
  let from = buffer;
  let at = 0;
  let end = n;
  if (c.partial) {
    from = Buffer.concat([c.partial, buffer.subarray(0, n)]);
    end = from.length;
    c.partial = null;
  }
  if (c.state === 'upgrading') {
    const head = from.subarray(0, end).indexOf('\r\n\r\n');
    if (head < 0) {
      c.partial = Buffer.from(from.subarray(0, end));
      return;
    }
    const text = from.toString('latin1', 0, head);
    // The accept value belongs to the one key that all connections send (RFC 6455 1.3 has the
    // pair).
    if (text.slice(8, 12) !== ' 101' || !text.includes('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=')) {
      if (c.group.failed === 0)
        process.stderr.write(`handshake refused: ${text.split('\r\n')[0]}\n`);
      connectionEnded(c);
      return;
    }
    at = head + 4;
    c.state = 'joining';
    goOnJoining(c, null);
  }
  while (end - at >= 2 && /** @type {State} */ (c.state) !== 'closed') {
    let length = from[at + 1] & 127;
    let header = 2;
    if (length === 126) {
      if (end - at < 4) break;
      length = (from[at + 2] << 8) | from[at + 3];
      header = 4;
    } else if (length === 127) {
      if (end - at < 10) break;
      length = Number(from.readBigUInt64BE(at + 2));
      header = 10;
    }
    const next = at + header + length;
    if (next > end) break;
    frames++;
    const opcode = from[at] & 15;
    if (opcode <= 2) onMessage(c, from, at + header, next, now);
    else if (opcode === 9) sendFrame(c, 10, Buffer.from(from.subarray(at + header, next)));
    else if (opcode === 8) connectionEnded(c);
    at = next;
  }
  if (at < end && /** @type {State} */ (c.state) !== 'closed')
    c.partial = Buffer.from(from.subarray(at, end));
}

/** @param {Record<string, unknown>} answer */
function reply(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

/**
 * @param {Group} g
 * @param {number} now
 */
function goOnOpening(g, now) {
  const allowed =
    g.perSecond > 0 ? 1 + ((now - g.openedAtUs) * g.perSecond) / 1e6 : Number.POSITIVE_INFINITY;
  while (g.started < g.wanted && g.inFlight < g.concurrency && g.started < allowed) {
    g.started++;
    dial(newConnection(g));
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

/**
 * @param {Group} g
 * @returns {Connection}
 */
function newConnection(g) {
  /** @type {Connection} */
  const c = {
    socket: null,
    state: 'closed',
    group: g,
    index: g.members.length,
    step: 0,
    paused: false,
    received: 0,
    sum: 0,
    partial: null,
  };
  g.members.push(c);
  return c;
}

/**
 * @param {Group} g
 * @param {number} now
 */
function goOnCycling(g, now) {
  for (const c of g.members) {
    if (g.cyclesStarted >= g.cyclesWanted || now >= g.giveUpUs) break;
    if (c.state === 'closed' && g.inFlight < g.concurrency) {
      g.cyclesStarted++;
      dial(c);
    }
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
 * @param {Group} g
 * @param {number} room
 */
function dueOfRoom(g, room) {
  if (g.mode === 'shootout') return { count: g.messages, sum: (g.messages * (g.messages - 1)) / 2 };
  const count = room < g.messages ? Math.floor((g.messages - 1 - room) / g.rooms) + 1 : 0;
  return { count, sum: count * room + g.rooms * ((count * (count - 1)) / 2) };
}

/**
 * @param {Group} g
 * @param {string} mode
 * @param {(key: string, fallback: number) => number} number
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

/**
 * @param {Group} g
 * @param {number} now
 */
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
    ...(g.mode === 'shootout'
      ? {
          roundTripsUs: Array.from({ length: g.samplesWanted }, (_, i) =>
            g.samples[i]?.backUs ? g.samples[i].backUs - g.samples[i].sentUs : -1,
          ),
        }
      : {}),
    histogram: pairs.join(','),
  });
  g.mode = '';
}

/**
 * @param {Group} g
 * @param {number} now
 */
function goOnShooting(g, now) {
  while (
    g.samples.length < g.samplesWanted &&
    g.samples.length - g.samplesBack < g.samplesInFlight &&
    g.open > 0 &&
    now < g.giveUpUs
  ) {
    let i = Math.floor(Math.random() * g.members.length);
    while (g.members[i].state !== 'open') i = (i + 1) % g.members.length;
    const sample = { sender: g.members[i], sentUs: nowUs(), backUs: 0 };
    g.samples.push(sample);
    publish(sample.sender, sample.sentUs, g.samples.length - 1);
  }
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
      const { host, path, headers, ready, before, after, ping, pong } = args;
      Object.assign(profile, { host, path, headers, ready, before, after, ping, pong });
      profile.port = number('port', 0);
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
    case 'shootout':
      begin(g, 'shootout', number);
      g.samples = [];
      g.samplesBack = 0;
      g.samplesWanted = number('samples', 0);
      g.samplesInFlight = number('inFlight', 4);
      g.messages = number('messages', 0);
      g.expected = g.messages * g.open;
      g.windowEndUs = Number.POSITIVE_INFINITY;
      g.drainUs = number('timeoutMs', 10_000) * 1000;
      reply({ id });
      break;
    case 'go':
      g.runId = id;
      g.going = true;
      g.startUs = g.mode === 'run' ? number('startUs', 0) : nowUs();
      if (g.mode === 'run') g.windowEndUs = g.startUs + Math.floor(g.messages * g.intervalUs);
      g.giveUpUs = (g.mode === 'run' ? g.windowEndUs : g.startUs) + g.drainUs;
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
      while (g.members.length < g.concurrency) newConnection(g);
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
    } else if (g.mode === 'shootout' && g.going) {
      goOnShooting(g, now);
      if ((g.samplesBack >= g.samplesWanted && g.received >= g.expected) || now >= g.giveUpUs)
        replyRun(g);
      else next = Math.min(next, now + 1000);
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
