// settings-secrets.test.js: no line about a file of apps or endpoints quotes a secret, wherever in the
// file the secret is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { loadConfig } from '../../src/config/config.js';

/** A valid file of each kind, with every field. */
const FILES = {
  FANFARE_PUSHER_APPS: {
    ...{ id: '7', key: 'key', secret: 'a-secret-of-twenty-c', preset: 'strict', shared: true },
    ...{ origins: ['https://a.example'], clientEventData: 'string', enabled: true, tlsOnly: false },
    ...{ history: ['chat.*=1/1h'], presence: ['chat.*'], publicRooms: ['news.*'] },
    ...{ clientEvents: true, maxConnections: 1, quotaCode: 4004, cacheTtl: 60, maxBatch: 9 },
    ...{ maxReadRequestsPerSecond: -1, enableUserAuthentication: false },
    webhooks: [
      {
        ...{ url: 'https://a.example/hook', events: ['member_added'], startsWith: 'a' },
        ...{ batchMs: 5, headers: { authorization: 'x' }, filter: { channel_name_ends_with: 'z' } },
      },
    ],
  },
  FANFARE_WEBHOOKS: {
    ...{ name: 'one', url: 'https://b.example/hook', types: ['room.occupied'], rooms: ['chat.*'] },
    ...{ secret: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'], graceMs: 1, maxAgeS: 60 },
    ...{ maxPending: 1, timeoutMs: 100, concurrency: 1 },
  },
  FANFARE_HOOKS: {
    ...{ url: 'https://b.example/hook', hooks: ['onJoin'], headers: ['cookie'] },
    secret: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
  },
};

/** All places in a JSON value. @param {any} value @returns {(string|number)[][]} */
function placesOf(value) {
  if (typeof value !== 'object' || value === null) return [[]];
  const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return [[], ...keys.flatMap((key) => placesOf(value[key]).map((rest) => [key, ...rest]))];
}

/** @param {any} value @param {(string|number)[]} place @param {(old: any) => any} change @returns {any} */
function changed(value, [key, ...rest], change) {
  if (key === undefined) return change(value);
  const copy = Array.isArray(value) ? [...value] : { ...value };
  copy[key] = changed(value[key], rest, change);
  return copy;
}

const DIGITS = [...'0123456789abcdef'];
const BASE64 = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=.~'];
const random = (/** @type {string[]} */ letters, /** @type {number} */ size) =>
  fc
    .array(fc.constantFrom(...letters), { minLength: size, maxLength: size })
    .map((chosen) => `${chosen.join('')}7`);
/** The part of each that nobody may see. */
const MARK = random(DIGITS, 15);
const SECRET = fc.oneof(
  MARK.map((mark) => [mark, mark]),
  fc.tuple(MARK, random(BASE64, 24)).map(([mark, more]) => [mark, `${mark}${more}`]),
  MARK.map((mark) => [mark, `whsec_${mark}`]),
  MARK.map((mark) => [mark, `https://hooks.example/${mark}?token=${mark}`]),
  MARK.map((mark) => [mark, `http://user:${mark}@example.com/`]),
  MARK.map((mark) => [mark, `two words ${mark}`]),
  MARK.map((mark) => [mark, `${mark}=100/30d`]),
  MARK.map((mark) => [mark, `a\n${mark}\u0000`]),
);
/** How a secret gets to a place. */
const MISTAKES = [
  (/** @type {string} */ secret) => secret,
  (/** @type {string} */ secret) => [secret],
  (/** @type {string} */ secret) => ({ [secret]: secret }),
  (/** @type {string} */ secret, /** @type {any} */ old) =>
    typeof old === 'object' && !Array.isArray(old) ? { ...old, [secret]: 1 } : [old, secret],
  (/** @type {string} */ secret, /** @type {any} */ old) => `${old}${secret}`,
];

for (const [setting, entry] of Object.entries(FILES))
  test(`no fault of ${setting} quotes a secret in a wrong place`, () => {
    const valid = loadConfig({ [setting]: '/file.json' }, () => JSON.stringify([entry]));
    assert.deepEqual(valid.faults, []);
    const places = placesOf([entry]);
    fc.assert(
      fc.property(
        ...[fc.constantFrom(...places), fc.constantFrom(...MISTAKES), SECRET, fc.nat(9)],
        (place, mistake, [mark, secret], cut) => {
          const list = changed([entry], place, (old) => mistake(secret, old));
          // One in ten files is no JSON.
          const text = JSON.stringify(list).slice(0, cut === 0 ? -1 : undefined);
          const { faults, warnings } = loadConfig({ [setting]: '/file.json' }, () => text);
          assert.ok(![...faults, ...warnings].some((line) => line.includes(mark)), faults.join());
        },
      ),
      { numRuns: 400 },
    );
  });

test('lines about several apps and endpoints do not quote what they share', () => {
  for (const [setting, entry] of Object.entries(FILES)) {
    const { faults } = loadConfig({ [setting]: '/file.json' }, () =>
      JSON.stringify([entry, entry]),
    );
    assert.ok(faults.length > 0);
    assert.doesNotMatch(faults.join(), /a-secret|whsec|\/hook/);
  }
});
