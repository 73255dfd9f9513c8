// auth-examples.test.js: runs the backends of docs/authentication.md and lets a server verify their
// tokens.
//
// Each example is taken from the page as it stands. Express and fanfare-server are the real ones; the session of a logged-in user is a stub. For Python, Django is a stub, and so
// is PyJWT unless it is installed. PHP and Ruby check the syntax of Laravel's and Rails' examples if
// they are installed. Without them only the claims and names in the text are checked.

import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET } from '../helpers/tokens.js';

const OPTIONS = { timeout: 30_000 };
const MODULES = fileURLToPath(new URL('../../node_modules/', import.meta.url));
const PAGE = readFileSync(new URL('../../docs/authentication.md', import.meta.url), 'utf8');
const run = promisify(execFile);

/** The example below a heading. @param {string} title */
function exampleOf(title) {
  const section = PAGE.split(/^### /m).find((text) => text.startsWith(`${title}\n`));
  const code = /^```\w+\n(.*?)^```$/ms.exec(section ?? '')?.[1];
  assert.ok(code, `no example of ${title}`);
  return code;
}

/** @param {string} command */
const isInstalled = (command) => spawnSync(command, ['--version']).status === 0;

/**
 * Starts a server and uses the token as the example's page does.
 * @param {import('node:test').TestContext} t @param {string} token
 */
async function assertAccepted(t, token) {
  const server = await startServer(t, { ...NO_LIMITS, WORKERS: '1', JWT_SECRET: SECRET });
  const headers = { Authorization: `Bearer ${token}` };
  const client = await connect(t, `ws://127.0.0.1:${server.port}/ws`, { headers });
  const { userId } = await client.ask({ type: 'hello' }, 'welcome');
  assert.equal(userId, '7');
  await client.join('chat.7');
  const message = { type: 'message', room: 'chat.7', payload: 1, id: 1 };
  assert.equal((await client.ask(message, 'ack')).type, 'ack');
  const other = await client.ask({ type: 'join', room: 'chat.8', id: 2 }, 'error');
  assert.equal(other.error, 'PERMISSION_DENIED');
}

/** A folder in which an example finds the packages that it imports. @param {import('node:test').TestContext} t */
function project(t) {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'node_modules', '@', 'auth'), { recursive: true });
  symlinkSync(join(MODULES, 'express'), join(folder, 'node_modules', 'express'));
  symlinkSync(join(MODULES, '../src/sdk'), join(folder, 'node_modules', 'fanfare-server'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  return folder;
}

const env = { PATH: process.env.PATH, JWT_SECRET: SECRET };

test('the Express backend gives a token that a server accepts', OPTIONS, async (t) => {
  const folder = project(t);
  const login = `
app.use((req, _res, next) => {
  if (req.query.user) req.user = { id: Number(req.query.user), name: 'Ann' };
  next();
});
`;
  const code = exampleOf('Express').replace(/^const app = express\(\);\n/m, (line) => line + login);
  assert.ok(code.includes(login));
  const listen = `const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));`;
  writeFileSync(join(folder, 'app.js'), `${code}\n${listen}\n`);
  const app = spawn(process.execPath, ['app.js'], { cwd: folder, env });
  t.after(() => app.kill());
  app.stderr.pipe(process.stderr);
  const [port] = await once(createInterface({ input: app.stdout }), 'line');
  const url = `http://127.0.0.1:${port}/chat-token`;
  assert.equal((await fetch(url)).status, 401);
  const response = await fetch(`${url}?user=7`);
  assert.equal(response.headers.get('cache-control'), 'no-store');
  await assertAccepted(t, await response.text());
});

test('the Next.js backend gives a token that a server accepts', OPTIONS, async (t) => {
  const folder = project(t);
  const auth = join(folder, 'node_modules', '@', 'auth');
  writeFileSync(join(auth, 'package.json'), '{"type":"module","exports":"./index.js"}');
  writeFileSync(
    join(auth, 'index.js'),
    `export const auth = async () => (process.argv[2] ? { user: { id: process.argv[2] } } : null);`,
  );
  const route = join(folder, 'route.js');
  writeFileSync(route, exampleOf('Next.js'));
  const call = `
    import { GET } from ${JSON.stringify(pathToFileURL(route).href)};
    const response = await GET();
    const { status, headers } = response;
    console.log(JSON.stringify([status, headers.get('cache-control'), await response.text()]));`;
  writeFileSync(join(folder, 'call.js'), call);
  const get = async (/** @type {string[]} */ ...user) =>
    JSON.parse((await run(process.execPath, ['call.js', ...user], { cwd: folder, env })).stdout);
  assert.equal((await get())[0], 401);
  const [status, cacheControl, token] = await get('7');
  assert.deepEqual([status, cacheControl], [200, 'no-store']);
  await assertAccepted(t, token);
});

/** Django, as far as the example needs it. */
const DJANGO = {
  'django/__init__.py': '',
  'django/contrib/__init__.py': '',
  'django/contrib/auth/__init__.py': '',
  'django/contrib/auth/decorators.py': 'def login_required(view):\n    return view\n',
  'django/views/__init__.py': '',
  'django/views/decorators/__init__.py': '',
  'django/views/decorators/cache.py': 'def never_cache(view):\n    return view\n',
  'django/http.py':
    'class HttpResponse:\n    def __init__(self, content, content_type):\n' +
    '        self.content, self.content_type = content, content_type\n',
};

/** PyJWT, if it is not installed. */
const PYJWT = `
import base64, hashlib, hmac, json

def _part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

def encode(claims, key, algorithm):
    assert algorithm == "HS256"
    signed = ".".join(_part(json.dumps(p).encode()) for p in ({"alg": algorithm}, claims))
    return signed + "." + _part(hmac.new(key.encode(), signed.encode(), hashlib.sha256).digest())
`;

const noPython = isInstalled('python3') ? false : 'python3 is not installed';

test('the Django backend gives a token that a server accepts', {
  ...OPTIONS,
  skip: noPython,
}, async (t) => {
  const folder = temporaryFolder(t);
  for (const [path, text] of Object.entries(DJANGO)) {
    mkdirSync(join(folder, path, '..'), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  mkdirSync(join(folder, 'fallback'));
  writeFileSync(join(folder, 'fallback', 'jwt.py'), PYJWT);
  const call = `
class User:
    pk = 7
    def get_username(self):
        return "ann"

class Request:
    user = User()

response = chat_token(Request())
assert response.content_type == "text/plain"
print(response.content)
`;
  const code = `import sys\nsys.path.append("fallback")\n${exampleOf('Django')}${call}`;
  writeFileSync(join(folder, 'views.py'), code);
  const { stdout } = await run('python3', ['views.py'], { cwd: folder, env });
  await assertAccepted(t, stdout.trim());
});

for (const [title, command, flag, before] of /** @type {const} */ ([
  ['Laravel', 'php', '-l', '<?php\n'],
  ['Rails', 'ruby', '-c', ''],
])) {
  test(`the ${title} backend has the claims and headers of the others`, OPTIONS, async (t) => {
    const code = exampleOf(title);
    for (const text of [/\bsub\b/, /\biat\b/, /\bexp\b/, /\brooms\b/, /HS256/, /jwt_secret/i])
      assert.match(code, text);
    assert.match(code, /Cache-Control.*no-store/);
    assert.match(code, /3600/);
    if (!isInstalled(command))
      return t.diagnostic(`${command} is not installed: syntax not checked`);
    const file = join(temporaryFolder(t), 'example');
    writeFileSync(file, before + code);
    await run(command, [flag, file]);
  });
}
