// history-rooms.js: the rooms with history of the contract's tests, and what those tests read.

import assert from 'node:assert/strict';

/** @typedef {import('../../src/backend/broker.js').Position} Position */
/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('./suite.js').Worker} Worker */

export const ALL = Object.freeze({ after: 0, limit: 100_000 });

/**
 * By the first part of a room's name.
 * @type {Readonly<Record<string, import('../../src/config/room-patterns.js').HistoryRule>>}
 */
export const RULES = Object.freeze({
  kept: { size: 2000, ttlMs: 600_000 },
  short: { size: 5, ttlMs: 600_000 },
  brief: { size: 100, ttlMs: 1000 },
});

/**
 * @param {Worker} worker
 * @param {string} room
 * @param {string} text
 * @param {string} [idempotencyKey]
 * @returns {Promise<Position>}
 */
export async function publish({ broker }, room, text, idempotencyKey) {
  const position = await broker.publish(room, Buffer.from(text), { idempotencyKey });
  assert.ok(position, `${room} has history`);
  return position;
}

/** @param {HistoryPage} page */
export function texts({ epoch, offset, publications }) {
  return { epoch, offset, texts: publications.map(String) };
}

/** The numbers with which publications begin. @param {HistoryPage} page */
export function numbers({ publications }) {
  return publications.map((one) => Number.parseInt(one.toString('latin1', 0, 8), 10));
}

/** The `count` numbers up to `last`. @param {number} last @param {number} count */
export function upTo(last, count) {
  return Array.from({ length: count }, (_, i) => last - count + 1 + i);
}

/** @param {Buffer[]} actual @param {Buffer[]} expected */
export function same(actual, expected) {
  assert.deepEqual(
    actual.map(({ length }) => length),
    expected.map(({ length }) => length),
  );
  assert.ok(actual.every((publication, i) => publication.equals(expected[i])));
}
