// openapi-requests.js: requests of a client, compared with docs/openapi.yaml.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';

export const openapi = parse(
  readFileSync(new URL('../../docs/openapi.yaml', import.meta.url), 'utf8'),
);
const ajv = new Ajv2020({ strict: false });
ajv.addSchema({ $id: 'openapi', components: openapi.components });

/** The names of all operations. @type {string[]} */
export const OPERATIONS = Object.values(openapi.paths).flatMap((item) =>
  Object.values(item).flatMap(({ operationId }) => operationId ?? []),
);

/** Follows a reference to a parameter. @param {any} value */
function parameterOf({ $ref, ...value }) {
  return $ref === undefined ? value : openapi.components.parameters[$ref.split('/').at(-1)];
}

/**
 * @param {object} request
 * @param {string} request.method @param {string} request.path without the query
 * @param {Iterable<string>} request.query names of its parameters
 * @param {boolean} request.hasKey does it have an idempotency key?
 * @param {unknown} request.body parsed; undefined: there is none
 * @returns {string} the name of the operation
 */
export function checkRequest({ method, path, query, hasKey, body }) {
  const [, item] =
    Object.entries(openapi.paths).find(([template]) =>
      new RegExp(`^${template.replace(/\{\w+\}/g, '[^/]+')}$`).test(path),
    ) ?? [];
  const operation = item?.[method.toLowerCase()];
  assert.ok(operation, `${method} ${path}`);
  const schema = operation.requestBody?.content['application/json'].schema;
  assert.equal(body === undefined, schema === undefined, path);
  if (schema !== undefined) {
    const text = JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/');
    const validate = ajv.compile(JSON.parse(text));
    assert.ok(validate(body), `${path}: ${JSON.stringify([body, validate.errors])}`);
  }
  const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(parameterOf);
  for (const name of query)
    assert.ok(
      parameters.some((one) => one.in === 'query' && one.name === name),
      `${path}: ${name}`,
    );
  const takesKey = parameters.some(({ name }) => name === 'Idempotency-Key');
  assert.equal(hasKey, takesKey, `${path}: an idempotency key`);
  return operation.operationId;
}
