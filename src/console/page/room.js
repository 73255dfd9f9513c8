// room.js: one room: its counts, messages as they come, its history, its members.

import { act, tail } from './api.js';
import { confirmed, run, textOf } from './dialog.js';
import { el, empty, fill, h, icon, pageHead, pill } from './dom.js';
import { clock, whole } from './format.js';
import { publishForm } from './publish.js';

/** @import { ApiError } from './api.js' */

const HISTORY = 50;
const MEMBERS = 100;
/** Messages that the page keeps of a live tail. */
const MAX_SHOWN = 200;
const RECONNECT_MS = 1000;
const REFRESH_MS = 3000;

/** @typedef {import('./view.js').App} App */
/** @typedef {Record<string, any>} Message */

/** @param {App} app @param {string} name @returns {import('./view.js').View} */
export function roomView(app, name) {
  const leaving = new AbortController();
  const counts = el('dl.counts');
  const members = el('div.result');
  const memberCount = el('span.muted');
  /** What the list shows. It is rebuilt only for another list, so that it can be scrolled. */
  let shown = '';
  const messages = new MessagePanel(app, name, leaving.signal);

  const refresh = async () => {
    if (app.can('rooms')) {
      try {
        const info = await act('room', { params: { room: name } });
        fill(counts, countsOf(info));
      } catch (error) {
        fill(counts, el('div.warning', textOf(error)));
      }
    } else fill(counts);
    if (!app.can('presence'))
      return fill(members, empty('key', 'Not permitted', 'Your key lacks the right presence.'));
    const { count: total, list } = await membersOf(name);
    const text = list.map((one) => one.textContent).join('\n');
    memberCount.textContent = total === null ? '' : whole(total);
    if (text === shown) return;
    shown = text;
    fill(members, list);
  };
  refresh();
  const timer = setInterval(refresh, REFRESH_MS);

  const element = el(
    'div',
    h('a.back', { href: '#/rooms' }, icon('back'), 'Rooms'),
    pageHead(name, null),
    counts,
    el(
      'div.columns',
      messages.element,
      el(
        'div.column',
        publishCard(app, name, () => messages.refresh()),
        el('section.card.pad', el('h2', 'Members ', memberCount), members),
      ),
    ),
  );
  return {
    element,
    title: name,
    close: () => {
      clearInterval(timer);
      leaving.abort();
    },
  };
}

/** @param {App} app @param {string} room @param {() => void} onPublished */
function publishCard(app, room, onPublished) {
  const form = publishForm(app, { room, isFixed: true, onPublished });
  return el('section.card.pad', el('h2', 'Publish'), form);
}

/** @param {Message} info */
function countsOf({ room, connections, users, epoch, offset, partial }) {
  return [
    count(
      'Connections',
      h('a', { href: `#/members/${encodeURIComponent(room)}` }, whole(connections)),
    ),
    users === undefined ? count('Users', 'no presence') : count('Users', whole(users)),
    offset === undefined
      ? count('History', 'none kept')
      : count('Last offset', whole(offset), `epoch ${epoch}`),
    partial && el('p.warning', 'A worker has not answered: the numbers may be low.'),
  ];
}

/** @param {string} name @param {string|HTMLElement} value @param {string} [detail] */
function count(name, value, detail) {
  return el('div', el('dt', name), h('dd', { title: detail ?? '' }, value));
}

/**
 * @param {string} room
 * @returns {Promise<{count: number|null, list: HTMLElement[]}>} `count`: null if it is unknown
 */
async function membersOf(room) {
  try {
    const { count: total, members = null } = await act('presence', {
      params: { room },
      query: { limit: String(MEMBERS) },
    });
    if (members === null) return { count: total, list: [el('p.muted', 'Too many to list.')] };
    if (members.length === 0) return { count: 0, list: [el('p.muted', 'No user is in the room.')] };
    const list = h(
      'ul.members',
      { tabindex: 0, 'aria-label': 'Members' },
      members.map((/** @type {Message} */ { user, info }) =>
        el(
          'li',
          h('a', { href: `#/users/${encodeURIComponent(user)}` }, user),
          info !== undefined && el('code.muted', JSON.stringify(info)),
        ),
      ),
    );
    const rest = `The first ${members.length} of ${whole(total)}.`;
    return {
      count: total,
      list: total > members.length ? [list, el('p.muted', rest)] : [list],
    };
  } catch (error) {
    const { code } = /** @type {ApiError} */ (error);
    const text =
      code === 'NO_PRESENCE'
        ? 'This room has no presence. FANFARE_PRESENCE names the rooms that have it.'
        : textOf(error);
    return { count: null, list: [el('p.muted', text)] };
  }
}

/** History and live messages, as two tabs over one list. */
class MessagePanel {
  #list = h('div.messages', { tabindex: 0, role: 'region', 'aria-label': 'Messages' });
  #state = h('div.tail-state', { role: 'status' });
  #liveButton;
  #deleteButton;
  /** The live tail. @type {AbortController|null} */
  #live = null;

  /** @param {App} app @param {string} room @param {AbortSignal} leaving */
  constructor(app, room, leaving) {
    this.app = app;
    this.room = room;
    this.leaving = leaving;
    this.mayRead = app.can('history');
    const disabled = !this.mayRead;
    const toggle = () => (this.#live === null ? this.#start() : this.#stop());
    const history = h('button.button', { disabled, onclick: () => this.#showHistory() }, 'History');
    this.#liveButton = h('button.button', { disabled, onclick: toggle }, icon('play'), 'Live tail');
    this.#deleteButton = h(
      'button.button.quiet',
      { onclick: () => this.#deleteHistory() },
      'Delete history',
    );
    this.#deleteButton.hidden = true;
    this.element = el(
      'section.card.message-card',
      el(
        'header.card-head',
        el('h2', 'Messages'),
        this.#state,
        el('div.actions', this.#deleteButton, history, this.#liveButton),
      ),
      this.#list,
    );
    if (this.mayRead) this.#showHistory();
    else this.#say('key', 'Not permitted', 'Your key lacks the right history.');
  }

  refresh() {
    if (this.#live === null && this.mayRead) this.#showHistory();
  }

  /** @param {import('./dom.js').IconName} name @param {string} title @param {string} text */
  #say(name, title, text) {
    fill(this.#list, empty(name, title, text));
  }

  #stop() {
    this.#live?.abort();
    this.#live = null;
    fill(this.#liveButton, icon('play'), 'Live tail');
    this.#liveButton.setAttribute('aria-pressed', 'false');
    fill(this.#state);
  }

  async #start() {
    const controller = new AbortController();
    const { signal } = controller;
    this.#live = controller;
    this.leaving.addEventListener('abort', () => this.#stop(), { signal });
    fill(this.#liveButton, icon('stop'), 'Stop');
    this.#liveButton.setAttribute('aria-pressed', 'true');
    this.#say('rooms', 'Waiting for messages', 'New messages of this room appear here.');
    const received = { left: 0, isFirst: true };
    while (!signal.aborted) {
      fill(this.#state, pill('plain', 'connecting'));
      try {
        await tail(this.room, signal, (part) => this.#receive(part, received));
      } catch (error) {
        if (signal.aborted) return;
        const { status } = /** @type {ApiError} */ (error);
        if (status === 403) {
          this.#stop();
          return this.#say('key', 'Not permitted', textOf(error));
        }
      }
      if (!signal.aborted) fill(this.#state, pill('warn', 'reconnecting'));
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  }

  /**
   * @param {{lines: {text: string, bytes: number}[], left: number}} part
   * @param {{left: number, isFirst: boolean}} received of this tail so far
   */
  #receive({ lines, left }, received) {
    received.left += left;
    const note = `${whole(received.left)} left out: too many a second`;
    fill(this.#state, pill('good', 'live'), received.left > 0 && el('span.muted', note));
    if (lines.length > 0 && received.isFirst) {
      fill(this.#list);
      received.isFirst = false;
    }
    for (const { text, bytes } of lines) this.#list.prepend(messageOf(parsed(text, bytes)));
    while (this.#list.childElementCount > MAX_SHOWN) this.#list.lastElementChild?.remove();
  }

  async #showHistory() {
    this.#stop();
    try {
      const query = { limit: String(HISTORY) };
      const { messages } = await act('history', { params: { room: this.room }, query });
      if (messages.length > 0) fill(this.#list, [...messages].reverse().map(messageOf));
      else this.#say('rooms', 'The history is empty', 'Nothing was published, or it has expired.');
      this.#deleteButton.hidden = !this.app.can('delete');
    } catch (error) {
      const { code } = /** @type {ApiError} */ (error);
      this.#deleteButton.hidden = true;
      if (code === 'NO_HISTORY')
        this.#say(
          'rooms',
          'This room keeps no history',
          'Start the live tail to see new messages. FANFARE_HISTORY names the rooms that keep some.',
        );
      else this.#say('alert', 'The history cannot be read', textOf(error));
    }
  }

  async #deleteHistory() {
    const { room } = this;
    const isSure = await confirmed({
      title: `Delete the history of ${room}?`,
      text: 'Members are asked to load their state again. Clients that come back later cannot recover what they missed.',
      action: 'Delete history',
    });
    if (!isSure) return;
    await run(this.#deleteButton, async () => {
      await act('delete_history', { params: { room } });
      await this.#showHistory();
      return `The history of ${room} is deleted.`;
    });
  }
}

/** @param {string} text @param {number} bytes of the whole text @returns {Message} */
function parsed(text, bytes) {
  try {
    return JSON.parse(text);
  } catch {
    return { payload: `${text}…`, note: `${whole(bytes)} bytes, cut` };
  }
}

/** @param {Message} message */
function messageOf({ type, payload, from, timestamp, offset, event, member, note }) {
  const isEvent = type === 'presence' || type === 'resync';
  const text = isEvent
    ? `${type} ${event ?? ''} ${member === undefined ? '' : JSON.stringify(member)}`
    : typeof payload === 'string'
      ? JSON.stringify(payload)
      : JSON.stringify(payload, null, 1).replace(/\n\s*/g, ' ');
  return h(
    'article',
    { class: `message${isEvent ? ' event' : ''}` },
    el(
      'div.message-meta',
      timestamp > 0 && el('time', clock(timestamp)),
      offset !== undefined && el('span.offset', `#${whole(offset)}`),
      from !== undefined && el('span.from', from === '' ? 'HTTP API' : from),
      note !== undefined && el('span', note),
    ),
    el('code', text),
  );
}
