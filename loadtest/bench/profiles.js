// profiles.js: the protocol of a server: how to join, publish and recognise a delivery.
//
// With a URL and the few strings of a profile, the benchmark can measure any other server. The
// client recognises a delivery by the marker in its payload, at any place in a message, so a profile
// does not describe the form of messages.

/**
 * @typedef {object} Profile
 * @property {string} path
 * @property {{ wait?: string, send: string }[]} join messages, each sent after a message containing
 *   `wait` has come; `$ROOM` stands for the room's name, and `$LEN4` for the byte of its length + 4
 * @property {string} [ready] text within the message that says the join is done; without one: ready
 *   after the upgrade
 * @property {string} before the text before the payload in a publication; `$ROOM` as above
 * @property {string} after the text after it
 * @property {string} [headers] further lines of the handshake, each ending in CR LF
 * @property {boolean} [isBinary] messages are binary, and a zero byte is a ping, which wants the same
 *   back
 * @property {string} [ping] a message of the server that wants an answer
 * @property {string} [pong] the answer
 * @property
 *   {{ path?: string, join?: Profile['join'], ready?: string, before: string, after: string } | null}
 *   echo how to be sent one's own message back; null if the server can't
 */

/** @type {Record<string, Profile>} */
export const PROFILES = {
  fanfare: {
    path: '/ws',
    join: [{ send: '{"type":"join","room":"$ROOM"}' }],
    ready: '"joined"',
    before: '{"type":"message","room":"$ROOM","payload":',
    after: '}',
    echo: { before: '{"type":"echo","payload":', after: '}' },
  },
  // Our own plain-ws.js, tutorial.js and raw.js; also simple C and Go servers that take
  // {"type","room","data"}.
  plain: {
    path: '/ws',
    join: [{ send: '{"type":"join","room":"$ROOM"}' }],
    ready: '"joined"',
    before: '{"type":"message","room":"$ROOM","data":',
    after: '}',
    echo: { path: '/echo', before: '', after: '' },
  },
  socketio: {
    path: '/socket.io/?EIO=4&transport=websocket',
    join: [
      { wait: '"sid"', send: '40' },
      { wait: '40{', send: '42["join","$ROOM"]' },
    ],
    ready: '"joined"',
    before: '42["message",',
    after: ']',
    ping: '2',
    pong: '3',
    echo: { join: [{ wait: '"sid"', send: '40' }], ready: '40{', before: '42["echo",', after: ']' },
  },
  // Centrifugo's JSON protocol; it needs `allow_anonymous_connect_without_token`, and publishing
  // and subscribing allowed to clients in the namespace.
  centrifugo: {
    path: '/connection/websocket',
    join: [{ send: '{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"$ROOM"}}' }],
    ready: '"id":2',
    before: '{"id":3,"publish":{"channel":"$ROOM","data":',
    after: '}}',
    ping: '{}',
    pong: '{}',
    echo: null,
  },
  // The same in protobuf: connect with the name "b", then subscribe. Publishers are of another profile.
  'centrifugo-protobuf': {
    path: '/connection/websocket',
    headers: 'Sec-WebSocket-Protocol: centrifuge-protobuf\r\n',
    join: [
      {
        send: '\x07\x08\x01\x22\x03\x22\x01b$LEN6\x08\x02\x2a$LEN2\x0a$LEN0$ROOM',
      },
    ],
    ready: '\x08\x02\x32',
    before: '',
    after: '',
    isBinary: true,
    echo: null,
  },
  // A server that sends to everyone whatever it is sent, one room for all.
  broadcast: { path: '/ws', join: [], before: '', after: '', echo: null },
};

/**
 * The profile as the client processes want it.
 * @param {Profile} profile
 * @param {boolean} echo the way to echo instead of the way to publish
 * @returns {Record<string, string | number>}
 */
export function profileArguments(profile, echo) {
  const way = echo ? profile.echo : profile;
  if (!way) throw new Error('this profile has no echo');
  const join = echo ? (way.join ?? []) : profile.join;
  /** @type {Record<string, string | number>} */
  const args = {
    path: way.path ?? profile.path,
    headers: profile.headers ?? '',
    ready: way.ready ?? '',
    before: way.before,
    after: way.after,
    ping: profile.ping ?? '',
    pong: profile.pong ?? '',
    binary: profile.isBinary ? 1 : 0,
    steps: join.length,
  };
  join.forEach((step, i) => {
    args[`wait${i}`] = step.wait ?? '';
    args[`send${i}`] = step.send;
  });
  return args;
}
