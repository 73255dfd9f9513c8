// stream-broker.js: a broker for one worker in unit tests. The test takes each step: it confirms
// subscriptions, delivers, loses or swaps announcements, and answers reads. The broker keeps the true
// streams.

/** @typedef {{room: string, publication: Buffer, offset: number, epoch: string}} Announcement */
/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('../../src/backend/broker.js').ReadRequest} ReadRequest */

/** @param {string} [text] */
export const away = (text = 'away') => Object.assign(new Error(text), { code: 'UNAVAILABLE' });

/** From this number on reads fail, because a test that hangs shows no reason. */
const MAX_READS = 10_000;

export class StreamBroker {
  /**
   * @param {{size?: number, isManual?: boolean}} [options] isManual: else all is confirmed and
   *   answered at once
   */
  constructor({ size = 100, isManual = false } = {}) {
    this.size = size;
    this.isManual = isManual;
    this.epochs = 0;
    this.isAway = false;
    /** Bytes of all publications that reads have brought. */
    this.readBytes = 0;
    /**
     * @type
     *   {Map<string, {epoch: string, publications: {offset: number, publication: Buffer}[], offset: number}>}
     */
    this.streams = new Map();
    /** Accepted and not yet delivered. @type {Announcement[]} */
    this.announcements = [];
    /** @type {{room: string, resolve: () => void, reject: (error: Error) => void}[]} */
    this.subscribing = [];
    /**
     * @type
     *   {(ReadRequest & {room: string, resolve: (page: HistoryPage) => void, reject: (error: Error) => void})[]}
     */
    this.reads = [];
    /** All reads so far. @type {(ReadRequest & {room: string})[]} */
    this.allReads = [];
    /** @type {(room: string, publication: Buffer, offset: number, epoch: string) => void} */
    this.onPublication = () => {};
  }

  /** @param {string} room */
  stream(room) {
    let stream = this.streams.get(room);
    if (stream === undefined) {
      stream = { epoch: this.#newEpoch(), publications: [], offset: 0 };
      this.streams.set(room, stream);
    }
    return stream;
  }

  #newEpoch() {
    return (++this.epochs).toString(16).padStart(16, '0');
  }

  /** The store has lost the room. @param {string} room */
  forget(room) {
    const stream = this.stream(room);
    stream.epoch = this.#newEpoch();
    stream.publications = [];
    stream.offset = 0;
  }

  /** @param {string} room @param {Buffer} publication @returns {{epoch: string, offset: number}} */
  accept(room, publication) {
    const stream = this.stream(room);
    const offset = ++stream.offset;
    stream.publications.push({ offset, publication });
    if (stream.publications.length > this.size) stream.publications.shift();
    this.announcements.push({ room, publication, offset, epoch: stream.epoch });
    return { epoch: stream.epoch, offset };
  }

  /** Delivers announced publications. @param {number} [count] */
  deliver(count = this.announcements.length) {
    for (const { room, publication, offset, epoch } of this.announcements.splice(0, count)) {
      this.onPublication(room, publication, offset, epoch);
    }
  }

  /** @param {string} room @param {ReadRequest} from @returns {HistoryPage} */
  look(
    room,
    { after, limit, maxBytes = Number.POSITIVE_INFINITY, before, isForward, endedEpoch = '' },
  ) {
    if (this.stream(room).epoch === endedEpoch) this.forget(room);
    const { epoch, offset, publications } = this.stream(room);
    const isBelow = (/** @type {{offset: number}} */ one) =>
      before === undefined || (before.epoch === epoch && one.offset < before.offset);
    const above = publications.filter((one) => one.offset > after && isBelow(one));
    const wanted = limit === 0 ? [] : isForward ? above.slice(0, limit) : above.slice(-limit);
    const bytes = () => wanted.reduce((sum, { publication }) => sum + publication.length, 0);
    while (wanted.length > 1 && bytes() > maxBytes) isForward ? wanted.pop() : wanted.shift();
    const read = wanted.map(({ publication }) => publication);
    this.readBytes += bytes();
    const first = wanted[0]?.offset ?? offset + 1;
    const hasOlder = !isForward && wanted.length > 0 && wanted[0] !== above[0];
    return { epoch, offset, first, publications: read, hasOlder };
  }

  /** Answers the oldest read under way with the present state. */
  answer() {
    const read = this.reads.shift();
    read?.resolve(this.look(read.room, read));
  }

  // The contract of a broker.

  /** @param {string} room */
  subscribe(room) {
    if (!this.isManual) return this.isAway ? Promise.reject(away()) : Promise.resolve();
    return new Promise((/** @type {(value: void) => void} */ resolve, reject) => {
      this.subscribing.push({ room, resolve, reject });
    });
  }

  unsubscribe() {}
  reportConnections() {}

  async countConnections() {
    return 1;
  }

  /** @param {string} room @param {Buffer} publication */
  async publish(room, publication) {
    if (this.isAway) throw away();
    return this.accept(room, publication);
  }

  /** @param {string} room @param {ReadRequest} from @returns {Promise<HistoryPage>} */
  history(room, from) {
    if (this.allReads.push({ room, ...from }) > MAX_READS)
      return Promise.reject(away('reads without end'));
    if (!this.isManual)
      return this.isAway ? Promise.reject(away()) : Promise.resolve(this.look(room, from));
    return new Promise((resolve, reject) => this.reads.push({ room, ...from, resolve, reject }));
  }
}
