// question.js: what a backend is asked over HTTP: the arguments of a hook as JSON.
//   {"hook":"onJoin","connection":{"id":…,"user":…,"info":…,"data":…,…},"room":"chat.1"}
//
// docs/hooks.schema.json describes the questions. Every field is always there, null if there is
// nothing to say, so that backends need not ask whether it is; only `key` and `audience` are not.

import { hash } from 'node:crypto';

/** @import { HookName } from '../observability/counters.js' */
/** @import { ConnectRequest, HookConnection } from './types.js' */

/** The arguments of each hook. Its context follows. @type {Record<HookName, readonly string[]>} */
const ARGUMENTS = {
  onConnect: ['request'],
  onJoin: ['connection', 'room'],
  onPublish: ['connection', 'room', 'payload'],
  onRpc: ['connection', 'method', 'data'],
  onSend: ['connection', 'data'],
  onDisconnect: ['connection'],
};

/** @typedef {{hook: HookName, connection?: ReturnType<typeof connectionOf>, [name: string]: unknown}} Question */

/**
 * @param {HookName} hook @param {readonly any[]} args with the context
 * @param {readonly string[]} headers names of those that the backend gets of a handshake
 * @returns {Question} JSON
 */
export function questionOf(hook, args, headers) {
  /** @type {Question} */
  const question = { hook };
  for (const [index, name] of ARGUMENTS[hook].entries()) {
    const value = args[index];
    if (name === 'request') question.request = requestOf(value, headers);
    else if (name === 'connection') question.connection = connectionOf(value);
    else question[name] = value ?? null;
  }
  const { key, audience } = args[ARGUMENTS[hook].length];
  return { ...question, key, audience }; // JSON leaves out those that are undefined
}

/**
 * Questions with the same name have the same answer, as long as a backend permits. The id of a
 * connection is no part of it: the next connection of a user is to profit.
 * @param {Question} question @returns {string} a hash, because the question may have secrets
 */
export function nameOfQuestion(question) {
  const { connection } = question;
  const asked = connection && { ...question, connection: { ...connection, id: '' } };
  return hash('sha256', JSON.stringify(asked ?? question), 'base64');
}

/** @param {HookConnection} connection */
function connectionOf({ id, user, info = null, data = null, address, transport }) {
  return { id, user, info, data, address, transport };
}

/** @param {ConnectRequest} request @param {readonly string[]} names */
function requestOf({ headers, query, token, user, address, transport, data = null }, names) {
  const given = names.filter((name) => headers[name] !== undefined);
  return {
    headers: Object.fromEntries(given.map((name) => [name, String(headers[name])])),
    // The first of several, as URLSearchParams.get returns.
    query: Object.fromEntries([...query].reverse()),
    ...{ token, user, address, transport, data },
  };
}
