// rights.test.js: the rights of a token in rooms (auth/rights.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readRights } from '../../src/auth/rights.js';

test('tokens that differ in one list have rights of their own, and equal ones share a copy', () => {
  const editor = readRights({ join: ['news'], publish: ['news'] });
  const reader = readRights({ join: ['news'], publish: [] });
  assert.ok(editor?.publish.has('news'));
  assert.ok(reader?.join.has('news'));
  assert.equal(reader?.publish.has('news'), false);
  assert.equal(readRights({ join: ['news'], publish: ['news'] }), editor);
});
