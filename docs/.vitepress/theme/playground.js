// playground.js: one pane of the playground: a client of the client library, and what it sees.

/** What a pane keeps, so that a busy room cannot fill the page. */
const MAX_LINES = 200;
/** Longer than an application's, so that there is time to publish while a pane is away. */
const FIRST_DELAY_MS = 6000;

/** @typedef {{id: number, kind: 'message'|'recovered'|'note'|'error', text: string, detail: string, href: string}} Line */

export class Pane {
  lines = /** @type {Line[]} */ ([]);
  state = 'idle';
  /** Users of the room, if it has presence. */
  count = 0;
  /** Has a server answered since the last `open`? Undefined: not yet known. */
  isAnswered = /** @type {boolean|undefined} */ (undefined);
  #name;
  #changed;
  #lastId = 0;
  /** @type {import('../../../src/client/index.js').Fanfare|undefined} */
  #client;
  /** @type {import('../../../src/client/index.js').Room|undefined} */
  #room;
  /** @type {WebSocket|undefined} */
  #socket;
  /** The newest message when the room was joined: up to there messages are replayed. */
  #replayedTo = 0;
  #wasIn = false;

  /** @param {string} name @param {() => void} changed is called after each change */
  constructor(name, changed) {
    this.#name = name;
    this.#changed = changed;
  }

  get name() {
    return this.#name;
  }

  /** @param {{url: string, token: string, room: string}} where */
  async open({ url, token, room }) {
    await this.close();
    const { Fanfare } = await import('../../../src/client/index.js');
    const keep = (/** @type {WebSocket} */ socket) => {
      this.#socket = socket;
    };
    class OwnSocket extends WebSocket {
      /** @param {string} address @param {string} protocol */
      constructor(address, protocol) {
        super(address, protocol);
        keep(this);
      }
    }
    this.isAnswered = undefined;
    this.#wasIn = false;
    const client = new Fanfare(url, {
      WebSocket: OwnSocket,
      firstDelayMs: FIRST_DELAY_MS,
      ...(token === '' ? {} : { token }),
    });
    this.#client = client;
    client.on('state', (state, detail) => this.#entered(state, detail));
    client.on('welcome', () => {
      this.isAnswered = true;
    });
    client.on('error', (error) => this.#failed(error));
    this.#join(client, room);
  }

  /** @param {import('../../../src/client/index.js').Fanfare} client @param {string} name */
  #join(client, name) {
    const room = client.join(name);
    this.#room = room;
    room.on('joined', ({ recovered, position }) => {
      this.#replayedTo = recovered ? (position?.offset ?? 0) : 0;
      const again = recovered
        ? 'joined again, nothing is missing'
        : position === undefined
          ? 'joined again: this room keeps no history, so what was published meanwhile is lost here'
          : 'joined again, but the history does not reach back: an application loads its state now';
      this.#add('note', this.#wasIn ? again : `joined ${name}`);
      this.#wasIn = true;
    });
    room.on('message', (payload, { from, offset }) => {
      const isRecovered = offset !== undefined && offset <= this.#replayedTo;
      const text = typeof payload?.text === 'string' ? payload.text : JSON.stringify(payload);
      const sender = typeof payload?.pane === 'string' ? payload.pane : from;
      const place = offset === undefined ? '' : `offset ${offset}`;
      this.#add(isRecovered ? 'recovered' : 'message', `${sender}: ${text}`, place);
    });
    room.on('resync', () => this.#add('note', 'the server has announced a gap'));
    room.on('error', (error) => this.#failed(error));
    room.presence.on('change', (_members, count) => {
      this.count = count;
      this.#changed();
    });
  }

  /** @param {string} text */
  async publish(text) {
    try {
      await this.#room?.publish({ text, pane: this.#name });
    } catch (error) {
      this.#failed(/** @type {Error & {code: string}} */ (error));
    }
  }

  /** Ends the connection as a lost network does: no close frame arrives, and none is waited for. */
  break() {
    const socket = this.#socket;
    if (socket === undefined || this.state !== 'connected') return;
    socket.onclose?.(new CloseEvent('close', { code: 1006 }));
    socket.close();
  }

  async close() {
    const client = this.#client;
    this.#client = this.#room = undefined;
    this.count = 0;
    await client?.close();
  }

  /** @param {string} state @param {{code?: number, reason?: string, delayMs?: number}} detail */
  #entered(state, { code, reason, delayMs }) {
    this.state = state;
    if (state === 'waiting') {
      this.isAnswered ??= false;
      const after = `the next attempt is in ${((delayMs ?? 0) / 1000).toFixed(1)} s`;
      this.#add('note', `the connection is gone (${code}), ${after}`, '', codeLink(code));
    } else if (state === 'closed' && code !== undefined) {
      this.isAnswered = true;
      this.#add('error', `the server refuses this client: ${code} ${reason}`, '', codeLink(code));
    }
    this.#changed();
  }

  /** @param {Error & {code?: string}} error */
  #failed(error) {
    // `#entered` has said so, with the close code.
    if (error.code === 'REFUSED') return;
    const isOfProtocol = error.code !== undefined && !/^(?:OFFLINE|CLOSED)$/.test(error.code);
    const link = isOfProtocol ? `protocol.html#${error.code}` : '';
    this.#add('error', `${error.code}: ${error.message}`, '', link);
  }

  /** @param {Line['kind']} kind @param {string} text @param {string} [detail] @param {string} [href] */
  #add(kind, text, detail = '', href = '') {
    this.lines.push({ id: ++this.#lastId, kind, text, detail, href });
    if (this.lines.length > MAX_LINES) this.lines.shift();
    this.#changed();
  }
}

/** @param {number} [code] @returns {string} 1006 is the browser's own */
const codeLink = (code) => (code === undefined || code === 1006 ? '' : `protocol.html#${code}`);
