// framing.js: turns messages of any codec into bytes. Clients split WebSocket messages at line
// breaks. In JSON these can only be between tokens, so spaces replace them.

import { eventEnd, joinLines } from '../../../protocol/event-stream.js';
import { frameEnd, headerBytes, writeHeader } from '../../../protocol/frame.js';
import { delimitedBytes, delimitedEnd, writeDelimited } from './protobuf.js';

const LF = 0x0a;
const CR = 0x0d;
const FIN_BINARY = 0x82; // RFC 6455 5.2: FIN, opcode 2
const EVENT_START = Buffer.from('data: ');
const EVENT_END = Buffer.from('\n\n');
const LINE_END = Buffer.from('\n');

/**
 * @typedef {object} Framing
 * @property {(messages: readonly Buffer[]) => Buffer} frame
 * @property {(bytes: Buffer, at: number) => number} endOf the end of the message that begins at `at`
 */

/** @param {Buffer} target @param {number} at @param {Buffer} json @returns {number} its end */
function writeLine(target, at, json) {
  const end = at + json.copy(target, at);
  if (json.includes(LF) || json.includes(CR)) joinLines(target, at, end);
  return end;
}

/** @param {Buffer} before each message @param {Buffer} after @returns {Framing['frame']} */
function between(before, after) {
  return (messages) => {
    let bytes = messages.length * (before.length + after.length);
    for (const { length } of messages) bytes += length;
    const framed = Buffer.allocUnsafe(bytes);
    let at = 0;
    for (const message of messages) {
      at += before.copy(framed, at);
      at = writeLine(framed, at, message);
      at += after.copy(framed, at);
    }
    return framed;
  };
}

/** A WebSocket message each. @type {Framing} */
const text = {
  frame(messages) {
    let bytes = 0;
    for (const { length } of messages) bytes += headerBytes(length) + length;
    const frames = Buffer.allocUnsafe(bytes);
    let at = 0;
    for (const message of messages)
      at = writeLine(frames, writeHeader(frames, at, message.length), message);
    return frames;
  },
  endOf: frameEnd,
};

/** The same, binary. @type {Framing} */
const binary = {
  frame(messages) {
    let bytes = 0;
    for (const message of messages) {
      const body = delimitedBytes([message]);
      bytes += headerBytes(body) + body;
    }
    const frames = Buffer.allocUnsafe(bytes);
    let at = 0;
    for (const message of messages) {
      at = writeHeader(frames, at, delimitedBytes([message]), FIN_BINARY);
      at = writeDelimited(frames, at, message);
    }
    return frames;
  },
  endOf: frameEnd,
};

/** Binary messages of a stream, each after its length. @type {Framing} */
const delimited = {
  frame(messages) {
    const bytes = Buffer.allocUnsafe(delimitedBytes(messages));
    let at = 0;
    for (const message of messages) at = writeDelimited(bytes, at, message);
    return bytes;
  },
  endOf: delimitedEnd,
};

/** Lines of JSON. @type {Framing} */
const lines = {
  frame: between(Buffer.alloc(0), LINE_END),
  endOf: (bytes, at) => bytes.indexOf(LF, at) + 1,
};

/** Server-sent events. @type {Framing} */
const events = { frame: between(EVENT_START, EVENT_END), endOf: eventEnd };

export const FRAMINGS = Object.freeze({ text, binary, lines, events, delimited });
