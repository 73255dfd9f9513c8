// returning-clients.js: clients in rooms with history that return when they lose their connection,
// by the rules of docs/protocol.md. Each one checks that it misses no message of its room.

import { each, WsClient } from '../harness/ws-client.js';

const ROOM_SIZE = 100;
const RETRY_MS = 1000;

export class ReturningClients {
  /** @param {string} url @param {number} count */
  constructor(url, count) {
    this.url = new URL(url);
    this.members = Array.from(
      { length: count },
      (_, i) => new Member(this, `room.${Math.floor(i / ROOM_SIZE)}`),
    );
    this.isStopped = false;
    /** Closes seen, by code. @type {Map<number, number>} */
    this.closes = new Map();
    /** Delays of SERVER_SHUTDOWN. @type {number[]} */
    this.delaysMs = [];
    /** Faults: a gap, a repeated message, a join without recovery. @type {string[]} */
    this.faults = [];
  }

  get rooms() {
    return [...new Set(this.members.map(({ room }) => room))];
  }

  start() {
    return each(this.members.length, 100, (i) => this.members[i].connect());
  }

  stop() {
    this.isStopped = true;
    for (const { client, timer } of this.members) {
      clearTimeout(timer);
      client?.destroy();
    }
  }

  /** How many are members of their rooms now. */
  get joined() {
    return this.members.filter(({ isJoined }) => isJoined).length;
  }

  /**
   * Has each member received the message of its room with that offset?
   * @param {ReadonlyMap<string, number>} offsets
   */
  hasReached(offsets) {
    return this.members.every(({ room, offset }) => offset >= (offsets.get(room) ?? 0));
  }
}

class Member {
  /** @param {ReturningClients} group @param {string} room */
  constructor(group, room) {
    this.group = group;
    this.room = room;
    this.epoch = '';
    this.offset = 0;
    this.isJoined = false;
    this.delayMs = -1;
    /** @type {WsClient|undefined} */
    this.client = undefined;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  async connect() {
    this.delayMs = -1;
    const client = (this.client = new WsClient(this.group.url, {
      onText: (text) => this.#receive(JSON.parse(text)),
      onClose: () => this.#lost(),
    }));
    try {
      await client.open();
    } catch {
      return this.#later(Math.random() * RETRY_MS);
    }
    const since = this.epoch === '' ? undefined : { epoch: this.epoch, offset: this.offset };
    client.send(JSON.stringify({ type: 'join', room: this.room, since }));
  }

  /** @param {Record<string, any>} message */
  #receive(message) {
    const { faults, delaysMs } = this.group;
    if (message.type === 'SERVER_SHUTDOWN') {
      this.delayMs = message.reconnectAfterMs;
      delaysMs.push(this.delayMs);
    } else if (message.type === 'joined') {
      this.isJoined = true;
      if (this.epoch === '') {
        this.epoch = message.epoch;
        this.offset = message.offset;
      } else if (!message.recovered) faults.push(`${this.room}: a join was not recovered`);
    } else if (message.type === 'message') {
      if (message.offset !== this.offset + 1)
        faults.push(`${this.room}: ${message.offset} follows ${this.offset}`);
      this.offset = message.offset;
    } else faults.push(`${this.room}: ${JSON.stringify(message)}`);
  }

  #lost() {
    const { group, client } = this;
    this.isJoined = false;
    if (group.isStopped || client === undefined) return;
    group.closes.set(client.closeCode, (group.closes.get(client.closeCode) ?? 0) + 1);
    this.#later(this.delayMs >= 0 ? this.delayMs : Math.random() * RETRY_MS);
  }

  /** @param {number} ms */
  #later(ms) {
    if (!this.group.isStopped) this.timer = setTimeout(() => this.connect(), ms);
  }
}
