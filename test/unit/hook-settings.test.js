// hook-settings.test.js: FANFARE_HOOKS as a file, as a URL and as a list of backends.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { loadConfig } from '../../src/config/config.js';
import { receivedConfig } from '../../src/config/handover.js';
import { describeHooks } from '../../src/config/hooks.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const OTHER = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=';
const URL = 'https://backend.example/fanfare?token=hunter2';

/** @param {Record<string, string>} env */
function valid(env) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.ok(config?.hooks);
  return { config, hooks: config.hooks };
}

/** @param {Record<string, string>} env @returns {string} its only fault */
function fault(env) {
  const { config, faults } = loadConfig(env);
  assert.equal(config, null);
  assert.equal(faults.length, 1, faults.join('\n'));
  return faults[0];
}

/** @param {import('node:test').TestContext} t @param {unknown} list */
function fileOf(t, list) {
  const path = join(temporaryFolder(t), 'hooks.json');
  writeFileSync(path, JSON.stringify(list));
  return path;
}

test('a URL is a backend for the four hooks of every client', () => {
  const { config, hooks } = valid({ FANFARE_HOOKS: `${URL}#x`, FANFARE_HOOKS_SECRET: SECRET });
  assert.deepEqual(hooks.backends, [
    {
      url: URL,
      hooks: ['onConnect', 'onJoin', 'onPublish', 'onDisconnect'],
      secrets: [SECRET],
      headers: ['cookie', 'origin', 'user-agent'],
    },
  ]);
  assert.equal(hooks.path, '');
  assert.equal(
    describeHooks(hooks),
    'https://backend.example (onConnect, onJoin, onPublish, onDisconnect)',
  );
  assert.ok(isDeepStrictEqual(receivedConfig(JSON.parse(JSON.stringify(config))).hooks, hooks));
});

test('fewer calls run at once over HTTP, unless the setting is there', () => {
  const env = { FANFARE_HOOKS: URL, FANFARE_HOOKS_SECRET: SECRET };
  assert.equal(valid(env).config.hookCalls, 100);
  assert.equal(valid({ ...env, FANFARE_HOOK_CALLS: '7' }).config.hookCalls, 7);
  const file = fileURLToPath(import.meta.url);
  assert.equal(valid({ FANFARE_HOOKS: file }).config.hookCalls, 1000);
});

test('two secrets on two lines both sign', () => {
  const { hooks } = valid({ FANFARE_HOOKS: URL, FANFARE_HOOKS_SECRET: `${SECRET}\r\n${OTHER}` });
  assert.deepEqual(hooks.backends[0].secrets, [SECRET, OTHER]);
});

test('a file divides the hooks among backends, with secrets of their own or the common one', (t) => {
  const path = fileOf(t, [
    { url: URL, hooks: ['onJoin', 'onConnect'], headers: ['X-Tenant'] },
    { url: 'http://10.0.0.7:8000/rpc', hooks: ['onRpc'], secret: [OTHER, SECRET] },
  ]);
  const { hooks } = valid({ FANFARE_HOOKS: path, FANFARE_HOOKS_SECRET: SECRET });
  const [first, second] = hooks.backends;
  assert.deepEqual(
    [first.hooks, first.headers, first.secrets],
    [['onConnect', 'onJoin'], ['x-tenant'], [SECRET]],
  );
  assert.deepEqual([second.hooks, second.secrets], [['onRpc'], [OTHER, SECRET]]);
});

test('a setting that is wrong has a clear fault, without secrets', (t) => {
  const env = { FANFARE_HOOKS_SECRET: SECRET };
  const of = (/** @type {string} */ url) => fault({ ...env, FANFARE_HOOKS: url });
  assert.match(of('https://a@b.example/'), /^FANFARE_HOOKS\.url: has a user name or a password$/);
  assert.match(of('http://127.0.0.1:9090/'), /its port is that of METRICS_PORT$/);
  assert.match(of('/no/such.json'), /^FANFARE_HOOKS: \/no\/such\.json: cannot be read: ENOENT$/);
  for (const secret of ['', 'hunter2', `${SECRET}\n${SECRET}\n${SECRET}`]) {
    const text = fault({ FANFARE_HOOKS: URL, FANFARE_HOOKS_SECRET: secret });
    assert.match(text, /^FANFARE_HOOKS: FANFARE_HOOKS_SECRET is not "whsec_" and 24 to 64/);
    assert.doesNotMatch(text, /hunter2/);
  }
  const isPublic = { ...env, FANFARE_WEBHOOKS_PUBLIC_ONLY: 'on' };
  assert.equal(valid({ ...isPublic, FANFARE_HOOKS: URL }).hooks.publicOnly, true);
  assert.match(
    fault({ ...isPublic, FANFARE_HOOKS: 'http://b.example/' }),
    /: http: is for private addresses, which FANFARE_WEBHOOKS_PUBLIC_ONLY refuses$/,
  );
  const list = (/** @type {unknown} */ content) =>
    fault({ ...env, FANFARE_HOOKS: fileOf(t, content) }).replace(/^FANFARE_HOOKS: \S+ /, '');
  assert.match(list([]), /^has no backends$/);
  assert.match(
    list([{ url: URL, hooks: ['onMessage'] }]),
    /^backends\[0\]\.hooks\[0\]: not one of/,
  );
  assert.match(list([{ url: URL, headers: ['a b'] }]), /headers\[0\]: not the name of a header$/);
  assert.match(list([{ url: URL, colour: 1 }]), /unknown field "colour"; there are url, secret,/);
  assert.match(list([{ url: URL }, { url: URL, hooks: ['onJoin'] }]), /^two backends have onJoin$/);
});
