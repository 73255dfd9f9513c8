// event-stream.js: server-sent events (WHATWG HTML 9.2), built once, shared and never modified.
//
//   event: presence                     absent if the type is `message`
//   id: 8c1f0e6a2b9d4735:42             if the publication has a position
//   data: {"type":"message", …}         the text of a WebSocket message
//   (an empty line)
//
// CR and LF end a line of an event. In JSON they can only stand between tokens, so a space replaces
// them. U+2028 and U+2029 do not end a line.
//
// The id of a stream with several rooms with history has a position for each of them. It differs
// from stream to stream, so it follows the shared events (`endWithId`).

import { digits, textBytes, writePublicationText } from './frame.js';
import { epochOf, KIND, kindOf, offsetOf } from './publication.js';

const PRESENCE_LINE = Buffer.from('event: presence\n');
const BROADCAST_LINE = Buffer.from('event: broadcast\n');
const DATA = Buffer.from('data: ');
/** `id: `, 16 characters, a colon and the end of the line; the offset's digits come in addition. */
const ID_LINE_BYTES = 4 + 16 + 1 + 1;
/** The end of an event; no event contains it before. */
const EMPTY_LINE = Buffer.from('\n\n');
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
/** All pushes and replies begin so. */
const TYPE_START = '{"type":"'.length;

/** A comment. Clients ignore it; it keeps proxies from closing a quiet stream. */
export const COMMENT = Buffer.from(':\n\n');

/** The id of an event: a room's position. @param {string} epoch @param {number} offset */
export function eventId(epoch, offset) {
  return `${epoch}:${offset}`;
}

/**
 * @param {Buffer} prefix roomPrefix(room) @param {readonly Buffer[]} publications in order
 * @param {boolean} hasIds does each event carry the position of its publication?
 */
export function publicationEvents(prefix, publications, hasIds) {
  let total = 0;
  for (const publication of publications) total += eventBytes(prefix, publication, hasIds);
  const events = Buffer.allocUnsafe(total);
  let at = 0;
  for (const publication of publications) at = writeEvent(events, at, prefix, publication, hasIds);
  return events;
}

/** @param {Buffer} publication @returns {Buffer|null} null: EventSource calls it `message` */
function eventLine(publication) {
  const kind = kindOf(publication);
  if (kind === KIND.PRESENCE) return PRESENCE_LINE;
  return kind === KIND.BROADCAST ? BROADCAST_LINE : null;
}

/** @param {Buffer} prefix @param {Buffer} publication @param {boolean} hasIds */
function eventBytes(prefix, publication, hasIds) {
  const id =
    hasIds && kindOf(publication) === KIND.POSITIONED
      ? ID_LINE_BYTES + digits(offsetOf(publication))
      : 0;
  const line = eventLine(publication)?.length ?? 0;
  return line + id + DATA.length + textBytes(prefix, publication) + 2;
}

/**
 * @param {Buffer} events @param {number} at @param {Buffer} prefix @param {Buffer} publication
 * @param {boolean} hasIds @returns {number} the end of the event
 */
function writeEvent(events, at, prefix, publication, hasIds) {
  const line = eventLine(publication);
  if (line !== null) at += line.copy(events, at);
  if (hasIds && kindOf(publication) === KIND.POSITIONED) {
    const id = eventId(epochOf(publication), offsetOf(publication));
    at += events.write(`id: ${id}\n`, at, 'latin1');
  }
  at += DATA.copy(events, at);
  const end = writePublicationText(events, at, prefix, publication);
  // The header and the position of a publication may contain these bytes too; then nothing changes.
  if (publication.includes(LF) || publication.includes(CR)) joinLines(events, at, end);
  events[end] = LF;
  events[end + 1] = LF;
  return end + 2;
}

/** @param {Buffer} events @param {number} at start of an event @returns {number} its end */
export function eventEnd(events, at) {
  return events.indexOf(EMPTY_LINE, at) + EMPTY_LINE.length;
}

/** Replaces the ends of lines. @param {Buffer} text JSON @param {number} start @param {number} end */
export function joinLines(text, start, end) {
  for (let i = start; i < end; i++) if (text[i] === LF || text[i] === CR) text[i] = SPACE;
}

/** The event of a reply. @param {string} text JSON @param {string} [id] '': none */
export function textEvent(text, id = '') {
  const type = text.slice(TYPE_START, text.indexOf('"', TYPE_START));
  const line = type === 'message' ? '' : `event: ${type}\n`;
  return `${line}${id === '' ? '' : `id: ${id}\n`}data: ${text.replace(/[\r\n]/g, ' ')}\n\n`;
}

/** Moves the id without an event, which EventSource does not show. @param {string} id */
export function idAlone(id) {
  return Buffer.from(`id: ${id}\n\n`, 'latin1');
}

/**
 * @param {Buffer} events without ids; if there are none, there is nothing to add it to
 * @param {string} id for the last one @returns {Buffer} a copy
 */
export function endWithId(events, id) {
  if (events.length === 0) return events;
  const end = events.length - 1; // the copy has the id where the empty line was
  const copy = Buffer.allocUnsafe(end + id.length + 6);
  events.copy(copy, 0, 0, end);
  copy.write(`id: ${id}\n\n`, end, 'latin1');
  return copy;
}
