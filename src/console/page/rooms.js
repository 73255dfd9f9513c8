// rooms.js: the rooms of the fleet that have connections: by name, the largest, or the busiest.

import { Component } from 'preact';
import { act } from './api.js';
import { quantity, whole } from './format.js';
import { html } from './html.js';
import {
  barred,
  choice,
  denied,
  empty,
  field,
  hrefOf,
  icon,
  numeric,
  pageHead,
  tableCard,
  warning,
} from './parts.js';
import { faultText, PolledView } from './polled.js';

/** @import { ViewProps } from './view.js' */
/** @typedef {{room: string, connections: number}} ListedRoom */
/** @typedef {ListedRoom & {messagesPerSecond: number}} TopRoom */

const PAGE = 100;
const REFRESH_MS = 5000;
const TYPING_MS = 200;
const ORDERS = /** @type {const} */ ([
  ['#/rooms', 'By name'],
  ['#/largest', 'Largest'],
  ['#/busiest', 'Busiest'],
]);
const PARTIAL = 'A worker has not answered: the list may lack its part.';
const FAULT = 'The rooms cannot be listed';
const ABOUT = 'A room is here while at least one connection is in it.';

/** The rooms with the most connections, or the most messages. */
export class TopRoomsView extends PolledView {
  fault = FAULT;

  pauseMs = this.props.app.can('rooms') ? REFRESH_MS : null;

  async read() {
    if (!this.props.app.can('rooms')) return denied('rooms');
    const isBusiest = this.props.path === 'busiest';
    const query = { by: isBusiest ? 'messages' : 'connections' };
    const { rooms, partial } = await act('top_rooms', { query });
    return [partial && warning(PARTIAL), topTable(rooms, isBusiest)];
  }

  head() {
    const { path } = this.props;
    const about =
      path === 'busiest'
        ? 'The rooms with the most messages in the last ten seconds, on every server.'
        : 'The rooms with the most connections, on every server.';
    return [pageHead('Rooms', about), choice('Order', ORDERS, `#/${path}`)];
  }
}

/** @param {readonly TopRoom[]} rooms @param {boolean} isBusiest */
function topTable(rooms, isBusiest) {
  if (rooms.length === 0) return empty('rooms', 'No rooms', ABOUT);
  const most = Math.max(...rooms.map((one) => one.connections));
  const busiest = Math.max(...rooms.map((one) => one.messagesPerSecond));
  const columns = ['Room', numeric('Connections'), numeric('Messages'), numeric('Deliveries')];
  const rows = rooms.map(({ room, connections, messagesPerSecond }) => {
    const rate = quantity('perSecond', messagesPerSecond);
    return [
      roomLink(room),
      isBusiest ? whole(connections) : barred(connections, most, whole(connections)),
      isBusiest ? barred(messagesPerSecond, busiest, rate) : rate,
      quantity('perSecond', messagesPerSecond * connections),
    ];
  });
  return tableCard('Rooms', columns, rows);
}

/** @param {string} room */
function roomLink(room) {
  return html`<a class="mono" href=${hrefOf('rooms', room)}>${room}</a>`;
}

/**
 * All rooms, a page at a time.
 * @typedef {object} State
 * @property {string} prefix of their names @property {string} total how many there are
 * @property {ListedRoom[]|null} rooms those shown so far; null: not read yet
 * @property {boolean} isPartial @property {boolean} hasMore @property {string} fault
 * @extends {Component<ViewProps, State>}
 */
export class RoomsView extends Component {
  /** @type {State} */
  state = { prefix: '', total: '', rooms: null, isPartial: false, hasMore: false, fault: '' };
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;

  componentDidMount() {
    if (this.props.app.can('rooms')) this.#load();
  }

  /** @param {string} [after] the last name of the page before */
  #load = (after = '') =>
    this.#readPage(after).catch((error) => this.setState({ total: '', fault: faultText(error) }));

  #input = (/** @type {Event & {currentTarget: HTMLInputElement}} */ event) => {
    this.setState({ prefix: event.currentTarget.value.trim() });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#load, TYPING_MS);
  };

  /** @param {string} after */
  async #readPage(after) {
    const { prefix } = this.state;
    /** @type {Record<string, string>} */
    const query = { ...(prefix && { prefix }), ...(after && { after }) };
    const page = await act('rooms', { query: { ...query, limit: String(PAGE) } });
    if (prefix !== this.state.prefix) return;
    const rooms = after === '' ? page.rooms : [...(this.state.rooms ?? []), ...page.rooms];
    const hasMore = page.rooms.length === PAGE;
    this.setState({ rooms, hasMore, isPartial: page.partial, fault: '' });
    if (after !== '') return;
    if (!hasMore) return this.setState({ total: roomCount(rooms.length, false) });
    this.setState({ total: `The first ${PAGE}; counting all …` });
    const counted = await act('count_rooms', { query }).catch(() => null);
    if (prefix !== this.state.prefix) return;
    const total =
      counted !== null && counted.count > 0
        ? roomCount(counted.count, counted.more || counted.partial)
        : `The first ${PAGE}. All cannot be counted now.`;
    this.setState({ total });
  }

  render() {
    const input = html`<input
      type="search" name="prefix" placeholder="chat." autocomplete="off" spellcheck=${false}
      oninput=${this.#input}
    />`;
    const buttons = html`
      <div class="search">${icon('search')}${field('Name begins with', input)}</div>
      <button class="button" onclick=${() => this.#load()}>Refresh</button>`;
    return html`<div>
      ${pageHead('Rooms', 'Rooms with connections, on every server.', buttons)}
      ${choice('Order', ORDERS, '#/rooms')}
      <p class="muted total" role="status">${this.state.total}</p>
      ${
        this.props.app.can('rooms')
          ? html`<div class="result">${this.#list()}</div>`
          : denied('rooms')
      }
    </div>`;
  }

  #list() {
    const { prefix, rooms, isPartial, hasMore, fault } = this.state;
    if (fault !== '') return empty('alert', FAULT, fault);
    if (rooms === null) return null;
    if (rooms.length === 0) {
      const text = `${ABOUT} A room that only has history can be opened by its name.`;
      return empty('rooms', prefix === '' ? 'No rooms' : 'No room begins like that', text);
    }
    const most = Math.max(...rooms.map(({ connections }) => connections));
    const rows = rooms.map(({ room, connections }) => [
      roomLink(room),
      barred(connections, most, whole(connections)),
    ]);
    const more = () => this.#load(rooms[rooms.length - 1].room);
    return html`
      ${isPartial && warning(PARTIAL)}
      ${tableCard('Rooms', ['Room', numeric('Connections')], rows)}
      ${hasMore && html`<button class="button" onclick=${more}>More rooms</button>`}`;
  }
}

/** @param {number} count @param {boolean} isLeast there may be more */
function roomCount(count, isLeast) {
  return `${isLeast ? 'At least ' : ''}${whole(count)} ${count === 1 ? 'room' : 'rooms'}`;
}
