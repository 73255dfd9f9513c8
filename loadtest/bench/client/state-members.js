// state-members.js: members of a room that read, and members that do not. state.js forks it.
//
//   open    opens the connections, and each joins the room
//   pause   some of them stop reading
//   drain   -> bytes, reads and latencies of the others since the last drain
//   resume  those that have not read read again -> when they are level: bytes and map of each
//   close
//
// A reader decodes no message: it takes the time of the newest message of each read. So a process can
// read a million changes a second.

import { Latency } from '../../../test/harness/latency.js';
import { openMany, WsClient } from '../../../test/harness/ws-client.js';
import { answerParent } from '../webhooks-child.js';

const OPENED_AT_ONCE = 50;
const TIME = '"timestamp":';
/** A member that has got nothing for this long is level. */
const STILL_MS = 3000;
const LOOK_MS = 100;

const latency = new Latency();
let bytes = 0;
let reads = 0;
/** @type {Member[]} */
let members = [];

class Member extends WsClient {
  /** Since it has read again. */
  bytes = 0;
  readAtMs = 0;
  /** Does it look at frames? */
  isLate = false;
  isPaused = false;
  /** @type {Map<string, unknown>} */
  map = new Map();
  offset = 0;

  /** @override @param {Buffer} buffer @param {number} length */
  read(buffer, length) {
    // Pings have to be answered.
    super.read(buffer, length);
    if (this.isLate) {
      this.bytes += length;
      this.readAtMs = performance.now();
      return;
    }
    bytes += length;
    reads++;
    const at = buffer.lastIndexOf(TIME, length - TIME.length - 13);
    if (at < 0) return;
    const from = at + TIME.length;
    latency.add(Date.now() - Number(buffer.toString('latin1', from, from + 13)));
  }

  /** @override @param {Buffer} data @param {number} from @param {number} end */
  receive(data, from, end) {
    if (this.isLate || this.pending?.size) super.receive(data, from, end);
  }
}

/** @param {string} text @param {WsClient} client */
function take(text, client) {
  const member = /** @type {Member} */ (client);
  const { type, key, payload, offset } = JSON.parse(text);
  if (type === 'reset') member.map.clear();
  if (type !== 'message') return;
  if (payload === null) member.map.delete(key);
  else member.map.set(key, payload);
  member.offset = offset;
}

answerParent({
  async open({ url, count, room, late, localAddress }) {
    const address = new URL(url);
    const make = () => new Member(address, { localAddress, onText: take });
    members = /** @type {Member[]} */ (await openMany(count, make, OPENED_AT_ONCE));
    for (const [i, member] of members.entries()) {
      // These have to know where their frames begin, and all that they have been sent.
      member.isLate = i < late;
      await member.request({ type: 'join', room });
    }
    return {};
  },

  async pause() {
    for (const member of members) {
      if (!member.isLate) continue;
      member.isPaused = true;
      member.bytes = 0;
      member.pause();
    }
    return {};
  },

  async drain() {
    const drained = { bytes, reads, latency: latency.drain(), open: openNow() };
    bytes = reads = 0;
    return drained;
  },

  async resume() {
    const late = members.filter(({ isLate }) => isLate);
    const resumedMs = performance.now();
    for (const member of late) {
      member.readAtMs = resumedMs;
      member.socket.resume();
    }
    while (late.some(({ readAtMs }) => performance.now() - readAtMs < STILL_MS))
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    return {
      late: late.map((member) => ({
        bytes: member.bytes,
        ms: member.readAtMs - resumedMs,
        isOpen: member.isOpen,
        closeCode: member.closeCode,
        failure: member.error?.message ?? '',
        offset: member.offset,
        map: [...member.map],
      })),
    };
  },

  async close() {
    for (const member of members) member.reset();
    return {};
  },
});

function openNow() {
  return members.filter(({ isOpen }) => isOpen).length;
}
