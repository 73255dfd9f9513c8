// chart.test.js: the files of the chart agree with each other and with the server, without helm.
// test/e2e/helm.test.js renders it.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import { SECRET_FILES } from '../../src/config/names.js';
import { CHART } from '../helpers/chart.js';

const read = (/** @type {string} */ name) => readFileSync(`${CHART}/${name}`, 'utf8');
const values = parse(read('values.yaml'));
const schema = JSON.parse(read('values.schema.json'));
const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

/**
 * @param {any} properties of the schema
 * @param {Record<string, any>} map of values.yaml
 * @param {string} path
 */
function assertSameKeys(properties, map, path) {
  assert.deepEqual(Object.keys(properties), Object.keys(map), path);
  for (const [key, one] of Object.entries(properties))
    if (one.properties) assertSameKeys(one.properties, map[key], `${path}${key}.`);
}

test('the schema of the chart names exactly the values that values.yaml has, with types that fit', () => {
  const { resources, ...known } = schema.properties;
  assert.equal(resources.type, 'object');
  const { resources: _, ...rest } = values;
  // `secrets` and `settings` have names of the server's.
  assertSameKeys(known, rest, '');
  // helm reads the draft by its https address, ajv knows only http.
  const validate = new Ajv({ strict: true, strictRequired: false, allowUnionTypes: true }).compile({
    ...schema,
    $schema: undefined,
  });
  assert.ok(validate(values), JSON.stringify(validate.errors));
  for (const name of readdirSync(`${CHART}/ci`))
    assert.ok(validate(parse(read(`ci/${name}`))), `${name}: ${JSON.stringify(validate.errors)}`);
  for (const wrong of [
    { replica: 3 },
    { image: { tag: 3 } },
    { ingress: { hosts: [] } },
    { drain: { windowSeconds: '20s' } },
    { secrets: { JWT_SECRET: 'x' } },
    { settings: { workers: 3 } },
  ])
    assert.ok(!validate(wrong), JSON.stringify(wrong));
});

test('the chart knows each secret setting of the server', () => {
  const [, names] =
    /define "fanfare.secretNames" -}}\n(.+)\n/.exec(read('templates/_helpers.tpl')) ?? [];
  // API_KEYS_FILE is a setting of its own.
  assert.deepEqual(names.split(' ').sort(), ['API_KEYS', ...SECRET_FILES.values()].sort());
});

test('the chart has the version of the server', () => {
  const { version, appVersion } = parse(read('Chart.yaml'));
  assert.deepEqual([version, appVersion], [manifest.version, manifest.version]);
});

test('there are eight files of values, each with a first line about it', () => {
  const files = readdirSync(`${CHART}/ci`);
  assert.equal(files.length, 8);
  for (const name of files) assert.match(read(`ci/${name}`), /^# [A-Z].*\.\n/, name);
});
