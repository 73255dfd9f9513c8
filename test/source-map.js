// source-map.js: the folders of src/: what each is, and what it may import.
//
// unit/imports checks the imports against it, and `npm run docs` writes it into src/README.md and
// docs/architecture/files.md.

/**
 * What each folder is: the core, the doors of clients, and what is around the server.
 * @type {Readonly<Record<'core'|'doors'|'around', Readonly<Record<string, string>>>>}
 */
export const FOLDERS = Object.freeze({
  core: {
    'main.js': 'the program: chooses what runs in this process',
    primary: 'the process that keeps workers alive, and its operations port',
    worker: 'a worker process: composes its parts, drains, answers surveys',
    transport: 'the public port: HTTP, TLS, WebSockets, streams',
    'transport/fast': 'fast paths on undocumented parts of Node and ws',
    admission: 'who may connect, by address, origin and load',
    auth: 'who a client is: tokens, revocations, rights',
    hooks: "the operator's checks, in a file or over HTTP: onConnect, onJoin, onPublish …",
    operations: 'what clients may do, for all doors',
    hub: 'rooms, members and the fan-out of a worker',
    recovery: 'streams of rooms with history or state: replay, gaps, lagging members',
    backend: 'what connects workers: contracts, and parts that both backends use',
    'backend/embedded': 'the backend of one machine: a relay in the primary',
    'backend/redis': 'the backend of several machines',
    'backend/redis/fast': 'fast paths on undocumented parts of ioredis and Node',
    'backend/redis/lua': 'scripts that Redis runs, each one atomic step',
    blobs: 'large messages, in a bucket',
    outgoing: "requests to the operator's backends",
    protocol: 'messages, frames, names and codes: pure, without I/O',
  },
  doors: {
    doors: 'which doors are open, their contract with the worker, and what several share',
    'doors/native': 'the native protocol, over WebSockets and server-sent events',
    'transport/http-api': 'the HTTP API for backends, and what the HTTP APIs of all doors share',
    'doors/pusher': "Pusher's protocol",
    'doors/pusher/codec': 'its messages, events and closes',
    'doors/pusher/http': 'its HTTP API',
    'doors/centrifugo': "Centrifugo's protocol",
    'doors/centrifugo/http': 'its server API',
    'doors/centrifugo/codec': 'its messages as JSON and protobuf, names, codes, claims',
  },
  around: {
    config: 'settings: their table, readers of files, defaults from the machine',
    observability: 'metrics and logs',
    cli: 'commands for a running server',
    client: 'the client library',
    'client/shared': 'one connection for all tabs of a browser',
    'client/sse': 'a client that only listens',
    'client/react': 'hooks for React',
    'client/vue': 'composables for Vue',
    'client/svelte': 'values for Svelte',
    sdk: 'the library for backends, fanfare-server',
    ai: 'the library for runs of models and agents, fanfare-ai',
    console: "the operator's console",
    'console/page': 'its page, for browsers',
    doctor: 'checks the machine and the settings',
    webhooks: 'a process that sends webhooks',
  },
});

/**
 * @typedef {object} Row
 * @property {readonly string[]} may `hub/`: a folder; `protocol/codes.js`: one file
 * @property {readonly string[]} packages
 * @property {readonly string[]|'any'} node modules of Node; `node:net isIP` is that one export of
 *   it
 * @property {RegExp} [never] globals that would break a promise of the folder
 */

/** Time and the world, as globals: no import shows them. */
const CLOCK_OR_IO =
  /\b(?:set(?:Timeout|Interval|Immediate)|Date\.now|new Date\(\)|performance\.now|fetch)\b/;

const BACKEND_PARTS = [
  'backend/batch.js',
  'backend/broker.js',
  'backend/deferred.js',
  'backend/webhook-reporter.js',
  'backend/errors.js',
  'backend/membership.js',
  'backend/delayed-unsubscribe.js',
  'backend/places.js',
  'backend/presence.js',
  'backend/revocations.js',
  'protocol/position.js',
  'webhooks/queue.js',
];

/**
 * What a folder may import. The row of a folder or file inside of another one replaces the outer
 * row; a folder without a row has the outer one's.
 * @type {Readonly<Record<string, Row>>}
 */
export const IMPORTS = Object.freeze({
  'main.js': {
    may: [
      'cli/',
      'auth/token-command.js',
      'backend/index.js',
      'config/',
      'observability/log.js',
      'observability/printable.js',
      'primary/primary.js',
      'worker/process.js',
      'doors/centrifugo/codec/tokens.js',
      'doctor/doctor.js',
      'webhooks/courier.js',
    ],
    packages: [],
    node: 'any',
  },
  primary: {
    may: [
      'admission/rate.js',
      'backend/deferred.js',
      'backend/embedded/event-recorder.js',
      'backend/embedded/relay-server.js',
      'backend/embedded/revocation-file.js',
      'config/',
      'console/console.js',
      'doctor/doctor.js',
      'observability/',
      'protocol/publication.js',
      'protocol/refusal.js',
      'transport/crowd.js',
      'webhooks/queue-channel.js',
    ],
    packages: ['express'],
    node: 'any',
  },
  worker: {
    may: [
      'admission/',
      'auth/',
      'backend/broker.js',
      'backend/errors.js',
      'backend/index.js',
      'backend/revocations.js',
      'blobs/index.js',
      'config/',
      'doors/index.js',
      'doors/native/',
      'hooks/',
      'hub/',
      'observability/',
      'operations/',
      'protocol/',
      'recovery/',
      'transport/',
    ],
    packages: [],
    node: 'any',
  },
  transport: {
    may: ['hub/', 'operations/message.js', 'protocol/', 'config/'],
    packages: ['ws', 'express'],
    node: 'any',
  },
  // The clock is handed in.
  admission: {
    may: ['config/', 'protocol/refusal.js'],
    packages: ['proxy-addr'],
    node: ['node:net isIP', 'node:crypto'],
    never: CLOCK_OR_IO,
  },
  // The JWKS is read by HTTP.
  auth: {
    may: [
      'config/',
      'protocol/app-names.js',
      'protocol/audiences.js',
      'protocol/codes.js',
      'protocol/decode.js',
      'protocol/json-scan.js',
      'protocol/place-keys.js',
      'protocol/refusal.js',
      'backend/revocations.js',
    ],
    packages: ['jose'],
    node: [
      'node:crypto createHmac',
      'node:crypto createSecretKey',
      'node:crypto hash',
      'node:crypto timingSafeEqual',
      'node:events once',
      'node:http get',
      'node:https get',
      'node:util',
    ],
  },
  // It calls code of the operator, which may do anything. Its own code reads the status of that file.
  hooks: {
    may: [
      'auth/',
      'observability/counters.js',
      'observability/rare-log.js',
      'outgoing/',
      'protocol/audiences.js',
      'protocol/decode.js',
      'protocol/refusal.js',
      'protocol/url-parts.js',
      'protocol/webhook-signature.js',
    ],
    packages: [],
    // Another process tells the line of a syntax error.
    node: [
      'node:child_process spawnSync',
      'node:crypto hash',
      'node:crypto randomUUID',
      'node:fs lstatSync',
      'node:url fileURLToPath',
      'node:url pathToFileURL',
    ],
  },
  // Every address is checked here, so nothing else connects to backends of the operator.
  outgoing: {
    may: [],
    packages: [],
    node: ['node:dns lookup', 'node:http', 'node:https', 'node:net'],
  },
  operations: {
    may: ['hub/', 'protocol/'],
    packages: [],
    node: ['node:buffer'],
  },
  // Wires, broker and admission are handed to it: it has no I/O of its own.
  hub: {
    may: ['protocol/', 'observability/rare-log.js'],
    packages: [],
    node: ['node:buffer', 'node:crypto'],
  },
  recovery: {
    may: ['protocol/'],
    packages: [],
    node: ['node:buffer'],
  },
  // The folder's own files are the contracts, and small parts that both backends use.
  backend: {
    may: ['config/', 'protocol/audiences.js', 'protocol/position.js', 'protocol/publication.js'],
    packages: [],
    node: 'any',
  },
  'backend/index.js': {
    may: [
      'backend/webhook-reporter.js',
      'backend/embedded/',
      'backend/occupancy.js',
      'backend/redis/event-store.js',
      'backend/redis/event-queue.js',
      'backend/redis/index.js',
    ],
    packages: [],
    node: 'any',
  },
  'backend/embedded': {
    may: [
      ...BACKEND_PARTS,
      'config/',
      'protocol/compacted-log.js',
      'protocol/place-keys.js',
      'protocol/publication.js',
    ],
    packages: [],
    node: 'any',
  },
  'backend/redis': {
    may: [...BACKEND_PARTS, 'config/', 'observability/rare-log.js', 'protocol/publication.js'],
    packages: ['ioredis'],
    node: 'any',
  },
  // The bucket is an HTTP server.
  blobs: {
    may: ['protocol/'],
    packages: ['aws4fetch'],
    node: 'any',
  },
  // Compressing and hashing bytes that are in hand is computation.
  protocol: {
    may: [],
    packages: [],
    node: [
      'node:buffer',
      'node:crypto createHash',
      'node:crypto createHmac',
      'node:crypto timingSafeEqual',
      'node:zlib',
    ],
    never: CLOCK_OR_IO,
  },
  // Only index.js knows which doors there are.
  doors: {
    may: [
      'admission/address.js',
      'admission/origin.js',
      'admission/rate.js',
      'doors/centrifugo/',
      'doors/pusher/',
      'protocol/refusal.js',
      'transport/cors.js',
      'transport/crowd.js',
      'transport/http-answers.js',
      'transport/http-api/',
    ],
    packages: [],
    node: [],
  },
  'doors/native': {
    may: [
      'config/nearest.js',
      'hub/',
      'operations/',
      'protocol/',
      'transport/handshake.js',
      'transport/http-answers.js',
      'transport/stream.js',
    ],
    packages: [],
    node: ['node:buffer'],
  },
  'doors/pusher': {
    may: [
      'admission/origin.js',
      'admission/rate.js',
      'auth/claims.js',
      'auth/rights.js',
      'config/',
      'doors/command-rate.js',
      'doors/pusher/codec/',
      'doors/pusher/http/',
      'hub/',
      'operations/',
      'protocol/',
    ],
    packages: [],
    node: ['node:buffer', 'node:crypto'],
  },
  'doors/pusher/codec': {
    may: ['auth/claims.js', 'protocol/'],
    packages: [],
    node: ['node:buffer'],
    never: CLOCK_OR_IO,
  },
  'doors/pusher/http': {
    may: [
      'doors/pusher/',
      'doors/pusher/codec/',
      'hub/',
      'operations/message.js',
      'protocol/',
      'transport/http-api/',
    ],
    packages: [],
    node: ['node:buffer', 'node:crypto'],
  },
  'doors/centrifugo': {
    may: [
      'auth/expiry-wheel.js',
      'auth/lobby.js',
      'auth/rights.js',
      'auth/strict-json.js',
      'auth/token-error.js',
      'auth/token-times.js',
      'config/',
      'doors/centrifugo/codec/',
      'doors/centrifugo/http/',
      'doors/command-rate.js',
      'doors/upstream-requests.js',
      'hub/',
      'operations/',
      'protocol/',
      'transport/http-api/',
    ],
    packages: [],
    node: ['node:buffer', 'node:crypto'],
  },
  'doors/centrifugo/http': {
    may: [
      'config/',
      'doors/centrifugo/',
      'doors/centrifugo/codec/',
      'hub/',
      'operations/message.js',
      'protocol/',
      'transport/http-api/',
    ],
    packages: [],
    node: ['node:buffer'],
  },
  'doors/centrifugo/codec': {
    may: [
      'auth/claims.js',
      'auth/rights.js',
      'auth/strict-json.js',
      'auth/token-error.js',
      'auth/token-times.js',
      'config/channel-names.js',
      'protocol/',
    ],
    packages: [],
    node: ['node:buffer'],
    never: CLOCK_OR_IO,
  },
  config: {
    may: [],
    packages: ['proxy-addr'],
    node: 'any',
  },
  observability: {
    may: [
      'config/system-limits.js',
      'config/system-memory.js',
      'config/version.js',
      'protocol/codes.js',
    ],
    packages: ['pino', 'prom-client'],
    node: 'any',
  },
  // The commands for a running server. It knows the server by its API and the client library only.
  cli: {
    may: [
      'client/',
      'config/colour.js',
      'config/command-line.js',
      'config/exit-codes.js',
      'config/nearest.js',
      'observability/printable.js',
    ],
    packages: [],
    node: 'any',
  },
  // It runs in browsers, unbuilt, so it imports nothing. Only its entry for Node does.
  client: {
    may: [],
    packages: [],
    node: [],
  },
  'client/node.js': { may: ['client/'], packages: ['ws'], node: [] },
  'client/shared': {
    may: ['client/'],
    packages: [],
    node: [],
  },
  'client/sse': {
    may: ['client/'],
    packages: [],
    node: [],
  },
  'client/react': { may: ['client/views.js'], packages: ['react'], node: [] },
  'client/vue': { may: ['client/views.js'], packages: ['vue'], node: [] },
  'client/svelte': {
    may: ['client/views.js'],
    packages: ['svelte', 'svelte/reactivity', 'svelte/store'],
    node: [],
  },
  // It runs on edge runtimes, too, so it uses globals of the web only.
  sdk: { may: [], packages: [], node: [] },
  ai: { may: [], packages: [], node: [] },
  // Actions go to a worker by the messages of the primary, not by imports.
  console: {
    may: [
      'config/',
      'doctor/doctor.js',
      'observability/audit-log.js',
      'protocol/refusal.js',
      'transport/http-api/audited.js',
      'transport/http-api/body.js',
      'transport/http-api/keys.js',
    ],
    packages: ['express'],
    node: 'any',
  },
  // It runs in browsers, unbuilt: console/assets.js sends the two packages beside it.
  'console/page': { may: [], packages: ['htm', 'preact'], node: [] },
  doctor: {
    may: ['blobs/', 'config/', 'hooks/', 'observability/', 'outgoing/', 'webhooks/'],
    packages: ['ioredis'],
    node: 'any',
  },
  // A process of its own. Nothing else loads it, but for the contract of the queue. main.js hands
  // it the queue of Redis.
  webhooks: {
    may: ['config/', 'observability/', 'outgoing/', 'protocol/'],
    packages: [],
    node: 'any',
  },
});
