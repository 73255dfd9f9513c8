// suites.js: the suites of `node test/run.js NAME`: folders of tests, and programs of their own.
// `--help` prints these tables, and test/README.md lists them.

/** Folders of test files. `npm test` runs all but `faults`. @type {Record<string, string>} */
export const FOLDERS = {
  unit: 'one module, no process',
  contract: 'each promise of a backend, against every backend',
  security: 'a hostile peer',
  e2e: 'real processes and real programs',
  faults: 'one fault each on real processes, with every delivery checked; some minutes',
};

/** Sets of test files. @type {Record<string, {about: string, files: readonly string[]}>} */
export const SETS = {
  long: {
    about: 'packages, guides, examples, tools, the client library in pages; some minutes',
    files: [
      'contract/fleet-limits',
      'e2e/ai-chat',
      'e2e/ai-mcp',
      'e2e/ai-stream',
      'e2e/ai-tanstack',
      'e2e/artillery',
      'e2e/auth-examples',
      'e2e/balance',
      'e2e/bench',
      'e2e/capacity',
      'e2e/centrifugo-docs',
      'e2e/client',
      'e2e/client-bindings',
      'e2e/client-phones',
      'e2e/client-shared',
      'e2e/client-sse',
      'e2e/client-state',
      'e2e/console-page',
      'e2e/console-page-trouble',
      'e2e/docs-client',
      'e2e/examples',
      'e2e/guides',
      'e2e/helm',
      'e2e/image',
      'e2e/hooks-example',
      'e2e/hooks-processes',
      'e2e/http-api-docs',
      'e2e/large-messages-fleet',
      'e2e/load-scale',
      'e2e/load-tools',
      'e2e/loadtest',
      'e2e/migration',
      'e2e/newcomer',
      'e2e/npm',
      'e2e/openapi-client',
      'e2e/outbox',
      'e2e/package',
      'e2e/prometheus',
      'e2e/pusher-docs',
      'e2e/readme',
      'e2e/release',
      'e2e/returning',
      'e2e/server-sdk',
      'e2e/site',
      'e2e/swarm',
      'e2e/swarm-report',
      'e2e/tutorial',
      'e2e/webhooks',
    ],
  },
  site: {
    about: 'the built site in Chromium, and what a newcomer reaches with it; five minutes',
    files: ['e2e/site', 'e2e/newcomer'],
  },
  versions: {
    about: 'rolls servers from one version to another under load, and back; seven minutes',
    files: ['faults/versions'],
  },
};

/**
 * Programs with options of their own, which follow the name: `node test/run.js soak --minutes 10`.
 * @type {Record<string, {about: string, command: string, env?: Record<string, string>}>}
 */
export const PROGRAMS = {
  random: {
    about: 'random faults under a random topology and population; ten minutes',
    command: 'node test/checker/run.js',
  },
  client: {
    about: 'the client library in Node and Chromium under 100 random disturbances',
    command: 'node test/checker/client-run.js',
  },
  flood: {
    about: '25 kinds of floods by 2,000 sockets; an hour',
    command: 'node test/faults/flood.js',
  },
  simulate: {
    about: 'whole fleets in one thread on virtual time; a seed repeats a run; ten minutes',
    command: 'node test/simulation/simulate.js',
  },
  'simulate-redis': {
    about: "100,000 commands and scripts for the simulation's Redis and the real one, compared",
    command: 'node test/simulation/redis/differential.js',
  },
  soak: {
    about: 'clients that come and go; memory must stay flat; an hour',
    command: 'node test/soak.js',
  },
  fuzz: {
    about: 'a million mutated inputs; some minutes',
    command: 'node test/security/fuzz.js',
  },
  handshakes: {
    about: 'five million heads and 100,000 answers, compared with Node and ws',
    command:
      'node --test --test-timeout=2400000 --test-reporter=spec test/unit/short-handshake.test.js test/unit/short-handshake-answers.test.js',
    env: { TEST_HANDSHAKES: '5000000', TEST_HANDSHAKE_ANSWERS: '100000' },
  },
  clients: {
    about:
      'clients of other authors: Python, Java, Go, and SDKs of Pusher and Centrifugo; five first hours; needs the network',
    command:
      'node --test --test-concurrency=1 --test-reporter=spec test/clients/clients.test.js test/clients/pusher.test.js test/clients/centrifugo.test.js test/clients/centrifugo-api.test.js test/clients/first-hours.test.js',
  },
  newcomer: {
    about:
      'the guides for AI and React in empty folders, with packed packages, and Next.js; needs the network',
    command: 'node --test --test-reporter=spec test/clients/newcomer.test.js',
  },
  hermes: {
    about: 'the client library in Hermes, the engine of React Native; needs the network',
    command: 'node test/clients/hermes.js',
  },
  openapi: {
    about: 'requests that schemathesis derives from docs/openapi.yaml; needs the network',
    command: 'bash test/clients/schemathesis.sh',
  },
  blobs: {
    about: 'large messages against versitygw; needs Go and the network',
    command: 'bash test/blobs.sh',
  },
  nodes: {
    about: 'unit, contract and security on Node 20, 22, 24 and 26; half an hour',
    command: 'bash test/nodes.sh',
  },
  newest: {
    about: 'the newest Node, ws, ioredis, Redis and Valkey: what breaks; an hour, and the network',
    command: 'node test/newest.js',
  },
  'redis-versions': {
    about: 'contract on other versions of Redis and on Valkey',
    command: 'bash test/redis-versions.sh',
  },
  'hidden-fields': {
    about: 'unit, contract and security once for each private field, with that field hidden',
    command: 'bash test/hidden-fields.sh',
  },
};

/** Every name with one line about it. @type {readonly (readonly [name: string, about: string])[]} */
export const NAMES = [
  ...Object.entries(FOLDERS),
  ...[...Object.entries(SETS), ...Object.entries(PROGRAMS)].map(
    ([name, { about }]) => /** @type {const} */ ([name, about]),
  ),
];
