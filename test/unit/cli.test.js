// cli.test.js: commands against servers that are none, or that send hostile text; help, completion
// and the check of settings. test/e2e/cli.test.js runs the commands on real servers.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { TOKEN_USAGE } from '../../src/auth/token-command.js';
import { checkCommand } from '../../src/cli/check.js';
import { isCliCommand, usageOf } from '../../src/cli/cli.js';
import { COMMANDS, unknownCommand, usage } from '../../src/cli/commands.js';
import { completionCommand, optionsIn } from '../../src/cli/completion.js';
import { readCommandLine } from '../../src/config/command-line.js';
import { EXIT } from '../../src/config/exit-codes.js';
import { nearest } from '../../src/config/nearest.js';
import { DOCTOR_USAGE, parseOptions } from '../../src/doctor/doctor.js';
import { printable, printableLines } from '../../src/observability/printable.js';
import { call } from '../helpers/cli.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const OPTIONS = { timeout: 20_000 };
/** Sets the title, recolours, turns the direction of text, and ends a line. */
const EVIL = '\x1b]0;pwned\x07\x1b[31m\u009b31m\u0085\u202eevil\u2066\u200f\u2028\x7f';
// biome-ignore lint/suspicious/noControlCharactersInRegex: these must not reach a terminal
const RAW = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

/**
 * A server that is not Fanfare, or not a friendly one.
 * @param {{after: (fn: () => void) => void}} t
 * @param {(request: import('node:http').IncomingMessage) => [status: number, body: unknown]} answer
 * @param {(socket: import('ws').WebSocket, message: any) => void} [onMessage] null: the connection
 */
async function hostile(t, answer, onMessage = () => {}) {
  const server = createServer((request, response) => {
    const [status, body] = answer(request);
    response.statusCode = status;
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket) => {
    onMessage(socket, null);
    socket.on('message', (data) => onMessage(socket, JSON.parse(String(data))));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.close();
    server.closeAllConnections();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return `http://127.0.0.1:${port}`;
}

/** Commands that ask the API, each with its arguments. */
const API_COMMANDS = [
  ['publish', 'a', '1'],
  ['rooms'],
  ['who', 'a'],
  ['who', 'a', '--connections'],
  ['history', 'a'],
  ['connections', '--user', 'ann'],
  ['connections', '--id', 'abc'],
  ['disconnect', '--user', 'ann'],
  ['revoke', '--user', 'ann'],
  ['servers'],
];

/** @type {[what: string, status: number, body: unknown, code: number, says: RegExp][]} */
const ANSWERS = [
  ['an error that is an object', 403, { error: { code: 'X' }, message: EVIL }, 76, /status 403/],
  ['an error without a message', 422, { error: 'INVALID_FIELD' }, 76, /status 422/],
  ['a page of another program', 200, '<html>', 76, /no JSON object/],
  ['null', 200, null, 76, /no JSON object/],
  ['a list', 200, [], 76, /no JSON object/],
  ['another status without JSON', 418, 'short and stout', 76, /status 418/],
  ['a load balancer without a server', 502, '<html>', 69, /cannot reach .*status 502/],
  ['a code like a property of objects', 400, { error: 'constructor', message: 'm' }, 1, /m \(400/],
];

for (const [what, status, body, code, says] of ANSWERS) {
  test(`${what}: each command ends with exit code ${code} and one sentence`, OPTIONS, async (t) => {
    const url = await hostile(t, () => [status, body]);
    for (const args of API_COMMANDS) {
      const { err, out, ...ended } = await call(args, { FANFARE_URL: url, FANFARE_API_KEY: 'k' });
      assert.deepEqual([ended.code, out], [code, ''], `${args}: ${err}`);
      assert.match(err, says);
      assert.match(err, /^fanfare [a-z]+: [^\n]+\n$/);
      if (code === EXIT.protocol) assert.match(err, /unexpected answer .* is it a Fanfare server/);
    }
  });
}

test(
  'an object without the fields that a command reads is an unexpected answer',
  OPTIONS,
  async (t) => {
    const url = await hostile(t, () => [200, { rooms: 1, members: {}, count: '3', offset: 'x' }]);
    for (const args of API_COMMANDS) {
      const { code, out, err } = await call(args, { FANFARE_URL: url, FANFARE_API_KEY: 'k' });
      assert.deepEqual([code, out], [EXIT.protocol, ''], `${args}: ${err}`);
      assert.match(err, /the field \w+ is missing, or not as expected/);
    }
  },
);

test('text of a hostile API reaches a terminal without control characters', OPTIONS, async (t) => {
  const url = await hostile(t, ({ url: path = '' }) => {
    if (path.includes('/rooms?')) return [200, { rooms: [{ room: EVIL, connections: 1 }] }];
    if (path.includes('presence'))
      return [200, { count: 1, members: [{ user: EVIL, info: EVIL }] }];
    if (path.includes('history')) {
      const message = { from: EVIL, timestamp: 1, offset: 1, payload: { [EVIL]: EVIL } };
      return [200, { messages: [message], epoch: EVIL, offset: 1, more: true }];
    }
    if (path.includes('connections')) {
      const seen = { id: EVIL, transport: EVIL, user: EVIL, address: EVIL, server: EVIL };
      return [200, { ...seen, count: 2, connections: [seen], partial: true }];
    }
    return [403, { error: 'PERMISSION_DENIED', message: EVIL }];
  });
  for (const args of API_COMMANDS)
    for (const more of [[], ['--json']]) {
      const env = { FANFARE_URL: url, FANFARE_API_KEY: 'k', NO_COLOR: '1' };
      const { out, err, lines } = await call([...args, ...more], env, { isTerminal: true });
      assert.doesNotMatch(out + err, RAW, args.join(' '));
      assert.ok(`${out}${err}`.includes('\\u001b'), `${args}: ${out}${err}`);
      // An escaped line of JSON keeps its value.
      if (args[0] === 'rooms' && more.length > 0) assert.equal(lines[0].room, EVIL);
    }
});

/** @type {[what: string, on: (socket: import('ws').WebSocket, message: any) => void, codes: number[]][]} */
const SOCKETS = [
  [
    'an error whose message is hostile',
    (socket, message) =>
      message?.type === 'hello'
        ? socket.send(JSON.stringify({ type: 'welcome', limits: {}, id: message.id }))
        : message &&
          socket.send(
            JSON.stringify({ type: 'error', error: 'ROOM_LIMIT', message: EVIL, id: message.id }),
          ),
    [1],
  ],
  [
    'a hostile close reason',
    (socket, message) => message === null && socket.close(4506, '\x1b[31m\u009b\u202eevil'),
    [77],
  ],
  [
    'an error that is an object',
    (socket, message) =>
      message &&
      socket.send(JSON.stringify({ type: 'error', error: {}, message: EVIL, id: message.id })),
    [76],
  ],
];

for (const [what, onMessage, codes] of SOCKETS) {
  test(`a client that gets ${what} ends with one printable sentence`, OPTIONS, async (t) => {
    const url = await hostile(t, () => [404, ''], onMessage);
    for (const args of [
      ['tail', 'a'],
      ['publish', 'a', '1'],
      ['who', 'a'],
      ['history', 'a'],
    ]) {
      const { code, out, err } = await call(args, { FANFARE_URL: url }, { isTerminal: true });
      assert.ok(codes.includes(code), `${args}: ${code} ${err}`);
      assert.doesNotMatch(out + err, RAW, args.join(' '));
      assert.match(err, new RegExp(`^fanfare ${args[0]}: [^\\n]+\\n$`, 'm'));
    }
  });
}

for (const text of [`${EVIL}{`, 'null']) {
  // The library throws in its listener, which the test runner would take for its own.
  test(
    `a process whose server sends ${JSON.stringify(text).slice(-8)} ends without a stack`,
    OPTIONS,
    async (t) => {
      const url = await hostile(
        t,
        () => [404, ''],
        (socket, message) => message?.type === 'hello' && socket.send(text),
      );
      const child = spawn(process.execPath, [MAIN, 'tail', 'a'], { env: { FANFARE_URL: url } });
      t.after(() => child.kill('SIGKILL'));
      let err = '';
      child.stderr.setEncoding('utf8').on('data', (part) => (err += part));
      const [code] = await once(child, 'close');
      assert.equal(code, EXIT.protocol, err);
      assert.match(err, /^fanfare tail: unexpected answer from [^\n]+\n$/);
      assert.doesNotMatch(err, RAW);
    },
  );
}

test('who does not print a number of users that the server did not send', OPTIONS, async (t) => {
  const url = await hostile(
    t,
    () => [404, ''],
    (socket, message) => {
      const type = message?.type === 'hello' ? 'welcome' : 'joined';
      if (message) socket.send(JSON.stringify({ type, room: 'a', limits: {}, id: message.id }));
    },
  );
  const { code, out, err } = await call(['who', 'a'], { FANFARE_URL: url });
  assert.deepEqual([code, out], [EXIT.protocol, '']);
  assert.match(err, /unexpected answer from .*the field count is missing/);
  assert.doesNotMatch(err, /undefined/);
});

test('printable text has no control characters, and a line of JSON keeps its value', () => {
  assert.doesNotMatch(printable(EVIL), RAW);
  assert.equal(printable('a\nb'), 'a\\u000ab');
  assert.equal(printableLines('a\nb\x1b'), 'a\nb\\u001b');
  assert.equal(JSON.parse(printable(JSON.stringify(EVIL))), EVIL);
  // A family of emoji is joined by U+200D, which is harmless.
  for (const text of ['Zoë', '日本語', '👩‍👩‍👧', 'שלום']) assert.equal(printable(text), text);
});

/** @type {readonly [args: string[], says: RegExp][]} */
const WRONG = [
  [['tail', 'a', '--lst', '3'], /unknown option --lst; did you mean --last\?/],
  [['tail', 'a', '--colour'], /unknown option --colour\n/],
  [['tail', 'a', '-x'], /unknown option --x\n/],
  [['tail', 'a', '--last', '10001'], /--last is a whole number from 0 to 10,000/],
  [['tail', 'a', '--last'], /--last/],
  [['connections'], /give exactly one of --user, --room, --address, --id/],
  [['disconnect', '--user', 'a', '--connection', 'b'], /give exactly one of --user, --connection/],
  [['disconnect', '--user', 'a', '--code', '1000'], /--code is a whole number from 4000 to 4,999/],
  [['revoke', '--token-id', 'a', '--issued-before', '5'], /--issued-before goes with --user/],
  [['publish', 'a'], /expected ROOM PAYLOAD/],
  [['publish', 'a', '1', '--lines'], /with --lines the payloads come from stdin/],
  [['history', 'a', '--before', '7'], /--before is a position/],
  [['history', 'a', '--since-time', 'soon'], /--since-time is a time/],
  [['rooms', 'a'], /this command has no arguments/],
];

for (const [args, says] of WRONG) {
  test(`fanfare ${args.join(' ')} is refused without asking a server`, async () => {
    const env = { FANFARE_URL: 'http://127.0.0.1:9', FANFARE_API_KEY: 'k' };
    const { code, out, err } = await call(args, env);
    assert.deepEqual([code, out], [EXIT.usage, '']);
    assert.match(err, says);
    assert.ok(err.endsWith(`See fanfare ${args[0]} --help\n`));
  });
}

test('the value of an option may begin with a hyphen, as ids of connections do', () => {
  const options = /** @type {const} */ ({ id: { type: 'string' }, all: { type: 'boolean' } });
  const read = (/** @type {string[]} */ ...args) => readCommandLine(args, options).values;
  assert.deepEqual({ ...read('--id', '-H-piv5o4', '--all') }, { id: '-H-piv5o4', all: true });
  assert.deepEqual({ ...read('--id=-H', '-h') }, { id: '-H', help: true });
  assert.throws(() => read('--id', '-h'), /ambiguous/);
  assert.throws(() => read('--id', '--all'), /ambiguous/);
  assert.throws(() => read('--all', '-xyz'), /unknown option/);
});

test('a name is suggested within two steps, and for short names within fewer', () => {
  const names = COMMANDS.map(([name]) => name);
  const cases = {
    publsh: 'publish',
    pubilsh: 'publish',
    room: 'rooms',
    Tail: 'tail',
    conections: 'connections',
    ls: '',
    start: '',
    publicise: '',
  };
  for (const [given, meant] of Object.entries(cases)) assert.equal(nearest(given, names), meant);
  assert.equal(
    unknownCommand('publsh'),
    'fanfare: unknown command publsh; did you mean publish?\nSee fanfare --help\n',
  );
  assert.match(unknownCommand('--versoin'), /unknown option --versoin; did you mean --version\?/);
});

const HELPS = { doctor: async () => DOCTOR_USAGE, token: async () => TOKEN_USAGE };

test('the help of each command lists exactly the options that it accepts, -h among them', async () => {
  for (const [name] of COMMANDS.filter(([one]) => isCliCommand(one))) {
    const { command } = await import(`../../src/cli/${name}.js`);
    const accepted = [...Object.keys(command.options), 'url', 'api-key', 'token', 'json', 'help'];
    const listed = optionsIn(await usageOf(/** @type {any} */ (name)));
    const long = listed.filter((option) => option.startsWith('--'));
    assert.deepEqual(long.sort(), accepted.map((option) => `--${option}`).sort(), name);
    for (const flag of ['--help', '-h'])
      assert.equal((await call([name, flag], {})).out, await usageOf(/** @type {any} */ (name)));
  }
  for (const option of optionsIn(DOCTOR_USAGE)) {
    const value = { '--connections': '5', '--pid': '1', '--clients': 'here' }[option] ?? '1s';
    const hasValue = /^--(connections|pid|clients|lb-idle)/.test(option);
    assert.ok(parseOptions(hasValue ? [option, value] : [option]), option);
  }
  for (const [name] of COMMANDS) assert.match(usage(), new RegExp(`^ {2}fanfare ${name}\\b`, 'm'));
});

test('bash completes commands and their options', async () => {
  const { code, out } = await completionCommand(['bash'], HELPS);
  assert.equal(code, 0);
  const complete = (/** @type {string[]} */ ...words) => {
    const script = `${out}\nCOMP_WORDS=(fanfare "$@"); COMP_CWORD=$#; _fanfare; echo "\${COMPREPLY[@]}"`;
    return spawnSync('bash', ['-c', script, 'x', ...words], { encoding: 'utf8' }).stdout.trim();
  };
  assert.equal(complete('pub'), 'publish');
  assert.equal(complete('re'), 'revoke');
  assert.equal(complete('tail', 'room', '--la'), '--last');
  assert.equal(complete('doctor', '--web'), '--webhooks');
  assert.equal(complete('help', 'serv'), 'servers');
  assert.equal(complete('completion', 'z'), 'zsh');
});

test('zsh and fish get each command with its options, and another shell a fault', async (t) => {
  const folder = temporaryFolder(t);
  for (const shell of ['zsh', 'fish']) {
    const { out } = await completionCommand([shell], HELPS);
    for (const [name, , about] of COMMANDS) assert.ok(out.includes(name) && out.includes(about));
    for (const option of ['lines', 'token-id', 'lb-idle-timeout']) assert.ok(out.includes(option));
    const file = join(folder, shell);
    writeFileSync(file, out);
    const { status, error } = spawnSync(shell, ['-n', file]);
    if (error === undefined) assert.equal(status, 0, `${shell} reads it`);
  }
  for (const args of [[], ['csh'], ['bash', 'zsh']]) {
    const { code, out, err } = await completionCommand(args, HELPS);
    assert.deepEqual([code, out], [EXIT.usage, '']);
    assert.match(err, /bash\|zsh\|fish/);
  }
});

test('check prints faults and warnings, with exit code 78 or 0, and control characters escaped', async () => {
  const invalid = { settings: null, faults: [`PORT: ${EVIL}`], warnings: ['old'] };
  const refused = await checkCommand([], async () => invalid);
  assert.deepEqual([refused.code, refused.out], [EXIT.config, '']);
  assert.match(refused.err, /would not start:\n {2}PORT: \\u001b.*\n {2}warning: old\n$/);
  assert.doesNotMatch(refused.err, RAW);
  const valid = await checkCommand([], async () => ({ settings: {}, faults: [], warnings: [] }));
  assert.deepEqual(valid, { code: 0, out: 'The configuration is valid.\n', err: '' });
  const { code, out } = await checkCommand(['--json'], async () => invalid);
  const { settings: _, ...rest } = invalid;
  assert.deepEqual([code, JSON.parse(out)], [EXIT.config, { valid: false, ...rest }]);
  const wrong = await checkCommand(['--jsn'], async () => invalid);
  assert.equal(wrong.code, EXIT.usage);
  assert.match(wrong.err, /unknown option --jsn; did you mean --json\?/);
});

test('what a checked token claims reaches the terminal without control characters', OPTIONS, () => {
  const evil = token({ sub: 'ann', info: EVIL, rooms: { join: [EVIL] }, iss: EVIL });
  const { stdout, stderr } = spawnSync(process.execPath, [MAIN, 'token', '--check', evil], {
    env: { PATH: process.env.PATH, JWT_SECRET: SECRET, NODE_NO_WARNINGS: '1' },
    encoding: 'utf8',
  });
  assert.doesNotMatch(stdout + stderr, RAW);
  assert.notEqual(stdout + stderr, '');
});

/** Each as a process. @type {[args: string[], env: object, code: number, says: RegExp][]} */
const PROCESSES = [
  [['help', 'publish'], {}, 0, /^Usage: fanfare publish ROOM PAYLOAD/],
  [['help', 'doctor'], {}, 0, /^Usage: fanfare doctor/],
  [['help', 'nothing'], {}, 64, /unknown command nothing\n/],
  [['token', '-h'], { PORT: 'x' }, 0, /--user NAME/],
  [['token', '--user', 'ann'], {}, 78, /set JWT_SECRET/],
  [['token', '--usr', 'ann'], {}, 64, /unknown option --usr; did you mean --user\?/],
  [['check'], { PORT: 'x' }, 78, /PORT: "x" is not an integer/],
  [['chekc'], {}, 64, /did you mean check\?/],
];

for (const [args, env, code, says] of PROCESSES) {
  test(`the process fanfare ${args.join(' ')} ends with exit code ${code}`, OPTIONS, () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
      env: { PATH: process.env.PATH, ...env },
      encoding: 'utf8',
    });
    assert.equal(status, code, stderr);
    assert.match(code === 0 ? stdout : stderr, says);
  });
}
