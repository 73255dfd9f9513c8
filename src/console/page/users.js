// users.js: finds connections on every server, and those whom limits refuse most; acts on users.

import { ApiError, act } from './api.js';
import { ActionButton } from './dialog.js';
import { bytes, duration, plural, whole } from './format.js';
import { html } from './html.js';
import {
  choice,
  dataTable,
  denied,
  empty,
  field,
  hrefOf,
  icon,
  lacks,
  numeric,
  pageHead,
  pill,
  tableCard,
  warning,
} from './parts.js';
import { PolledView } from './polled.js';

/** @import { App } from './view.js' */

const REFRESH_MS = 5000;
/** Names in a list of those who are refused. */
const MAX_SHOWN = 20;
/** Connections of an answer; each worker lists fewer. */
const LIMIT = '1000';

/**
 * @typedef {object} Kind what can be searched for
 * @property {string} title @property {string} example @property {string} hint
 * @property {string} [query] the parameter of the search; absent: the id of one connection
 * @property {readonly [title: string, text: string]} none shown if there is no connection
 */

/** What each path searches for. @type {Readonly<Record<string, Kind>>} */
const KINDS = Object.freeze({
  users: { title: 'User', example: 'alice', hint: 'the exact name', query: 'user', none: ['', ''] },
  members: {
    ...{ title: 'Room', example: 'chat.lobby', hint: 'the exact name of a room', query: 'room' },
    none: ['No connection in this room', 'Nobody is in it now.'],
  },
  addresses: {
    ...{ title: 'Address', example: '192.0.2.17', query: 'address' },
    hint: 'an address as the limits count it: IPv4, or an IPv6 address for its /64',
    none: [
      'No connection from this address',
      'If all limits that count addresses are off, a connection has no address.',
    ],
  },
  connections: {
    ...{ title: 'Connection', example: 'c4nG0dKx1f' },
    hint: 'the id that `welcome`, a hook or the log has',
    none: ['No such connection', 'It is closed, or has never been open here.'],
  },
});

const COLUMNS = [
  ...['Connection', 'User', 'Address', 'Server · worker', 'Transport', 'Open for'],
  ...[numeric('Unsent'), numeric('Refused'), 'Rooms', ''],
];

/** @type {Readonly<Record<string, string>>} */
const TRANSPORTS = Object.freeze({
  ...{ websocket: 'WebSocket', sse: 'SSE', pusher: 'Pusher', centrifugo: 'Centrifugo' },
});

/**
 * A connection of `GET /api/connections`. An older worker leaves out some fields.
 * @typedef {{id: string, address?: string, transport: string, app?: string, roomCount: number, rooms: string[], server?: string, worker?: number, connectedAt?: number, user?: string, unsentBytes?: number, laggingRooms?: number, refusedMessages?: number}}
 *   UserConnection
 */

export class UsersView extends PolledView {
  attributes = { 'aria-live': 'polite' };
  fault = 'Nothing can be looked up now';

  pauseMs = this.props.name === '' && this.props.app.can('presence') ? REFRESH_MS : null;

  async read() {
    const { app, name, path } = this.props;
    if (!app.can('presence')) return denied('presence');
    if (name === '') return refusedLists();
    const { count, connections, partial } = await search(path, name);
    const isUser = path === 'users';
    return [
      isUser && userCard(app, name, count, this.reload),
      partial && warning('A worker has not answered: connections may be missing.'),
      connections.length > 0
        ? connectionTable(app, connections, count, this.reload)
        : !isUser && empty('users', ...KINDS[path].none),
    ];
  }

  #submit = (/** @type {Event & {currentTarget: HTMLFormElement}} */ event) => {
    event.preventDefault();
    const { path } = this.props;
    const input = /** @type {HTMLInputElement} */ (event.currentTarget.elements.namedItem(path));
    const hash = hrefOf(path, input.value.trim());
    if (hash === location.hash) this.reload();
    else location.hash = hash;
  };

  head() {
    const { app, name, path } = this.props;
    const { title, example, hint } = KINDS[path];
    const users = app.session.hasTokens
      ? ' A user is the sub of a token.'
      : ' Without tokens, a user is a name in rooms with presence.';
    const input = html`<input
      type="search" name=${path} defaultValue=${name} placeholder=${example} required
      autocomplete="off" spellcheck=${false}
    />`;
    const form = html`<form class="row flex wrap" onsubmit=${this.#submit}>
      <div class="search">${icon('search')}${field(title, input)}</div>
      <button class="button primary">Find</button>
    </form>`;
    const kinds = Object.entries(KINDS).map(
      ([key, { title }]) => /** @type {const} */ ([`#/${key}`, title]),
    );
    return [
      pageHead('Users', `Enter ${hint}.${path === 'users' ? users : ''}`, form),
      choice('Search for', kinds, `#/${path}`),
    ];
  }
}

async function refusedLists() {
  const { addresses, users, forgotten, partial } = await act('refused');
  const note = `${whole(forgotten)} names that were refused less made room.`;
  return [
    partial && warning('A worker has not answered: its refusals are missing.'),
    html`<div class="halves">
      ${refusedCard('addresses', 'Addresses refused most often', addresses)}
      ${refusedCard('users', 'Users refused most often', users)}
    </div>`,
    forgotten > 0 && html`<p class="muted">${note}</p>`,
  ];
}

/** @param {string} path @param {string} title @param {[string, number, number][]} refused */
function refusedCard(path, title, refused) {
  const columns = [KINDS[path].title, numeric('Connections'), numeric('Messages')];
  const rows = refused
    .slice(0, MAX_SHOWN)
    .map(([name, connections, messages]) => [
      html`<a class="mono" href=${hrefOf(path, name)}>${name}</a>`,
      whole(connections),
      whole(messages),
    ]);
  return html`<section class="card table-card">
    <header class="card-head flex wrap">
      <h2>${title}</h2>
      <p class="muted">in the last 5 to 10 minutes</p>
    </header>
    ${
      rows.length === 0
        ? html`<p class="muted none">None: no limit refused anything.</p>`
        : dataTable(title, columns, rows)
    }
  </section>`;
}

/**
 * @param {string} path @param {string} name
 * @returns {Promise<{count: number, connections: UserConnection[], partial: boolean}>}
 */
async function search(path, name) {
  const { query } = KINDS[path];
  if (query !== undefined)
    return /** @type {any} */ (
      await act('connections', { query: { [query]: name, limit: LIMIT } })
    );
  try {
    const one = await act('connection', { params: { connectionId: name } });
    return { count: 1, connections: [/** @type {any} */ (one)], partial: false };
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'NO_CONNECTION') throw error;
    return { count: 0, connections: [], partial: false };
  }
}

/** @param {App} app @param {string} user @param {number} count @param {() => Promise<void>} reload */
function userCard(app, user, count, reload) {
  const { hasTokens } = app.session;
  const why = [
    !app.can('disconnect') && lacks('disconnect'),
    !app.can('revoke') && lacks('revoke'),
    !hasTokens && 'Nothing to revoke: this server is not configured for tokens.',
  ].filter((text) => text !== false);
  return html`<section class="card user-card flex wrap">
    <div class="avatar" aria-hidden="true">${user.slice(0, 1).toUpperCase()}</div>
    <div class="user-name anywhere">
      <h2>${user}</h2>
      <p class="muted">
        ${count > 0 ? pill('good', 'online') : pill('plain', 'offline')}
        ${` ${plural(count, 'connection')} on all servers`}
      </p>
    </div>
    <div class="row flex wrap">
      ${disconnectButton(user, count, !app.can('disconnect') || count === 0, reload)}
      ${revokeButton(user, !app.can('revoke') || !hasTokens, reload)}
    </div>
    ${why.length > 0 && html`<p class="muted small user-note">${why.join(' ')}</p>`}
  </section>`;
}

/** @param {string} user @param {number} count @param {boolean} disabled @param {() => Promise<void>} reload */
function disconnectButton(user, count, disabled, reload) {
  const question = {
    title: `Disconnect ${user}?`,
    text: `${plural(count, 'connection')} will be closed. The user may connect again; revoke the tokens to prevent that.`,
    action: 'Disconnect',
  };
  const action = async () => {
    const { connections } = await actOn({ user }, 'disconnect', reload);
    return `${plural(connections, 'connection')} of ${user} closed.`;
  };
  return dangerButton({ disabled, question, action });
}

/** @param {string} user @param {boolean} disabled @param {() => Promise<void>} reload */
function revokeButton(user, disabled, reload) {
  const question = {
    title: `Revoke the tokens of ${user}?`,
    text: 'All tokens issued until now stop working on every server, and their connections are closed. A new token lets the user in again.',
    action: 'Revoke tokens',
  };
  const action = async () => {
    await actOn({ user }, 'revoke', reload);
    return `The tokens of ${user} are revoked.`;
  };
  return dangerButton({ disabled, question, action });
}

/** @param {{disabled: boolean, question: import('./dialog.js').Question, action: () => Promise<string>}} props */
function dangerButton(props) {
  return html`<${ActionButton} class="danger" ...${props}>${props.question.action}<//>`;
}

/**
 * Acts, then reads again: if the outcome is unknown, the table shows it.
 * @param {object} subject @param {string} route @param {() => Promise<void>} reload
 */
function actOn(subject, route, reload) {
  return act(route, { body: JSON.stringify(subject) }).finally(reload);
}

/**
 * @param {App} app @param {UserConnection[]} connections @param {number} count of all
 * @param {() => Promise<void>} reload
 */
function connectionTable(app, connections, count, reload) {
  const caption =
    count > connections.length
      ? `Connections: the first ${connections.length} of ${whole(count)}`
      : 'Connections';
  const rows = connections.map((connection) => connectionRow(app, connection, reload));
  return tableCard(caption, COLUMNS, rows, { isCaptionShown: true });
}

/** @param {App} app @param {UserConnection} connection @param {() => Promise<void>} reload */
function connectionRow(app, connection, reload) {
  const {
    id,
    address = '',
    transport,
    app: appId = '',
    rooms,
    roomCount,
    server = '',
  } = connection;
  const {
    worker,
    connectedAt,
    user = '',
    unsentBytes,
    laggingRooms = 0,
    refusedMessages,
  } = connection;
  const link = (
    /** @type {string} */ name,
    /** @type {string} */ path,
    /** @type {string} */ kind,
  ) =>
    name === ''
      ? '–'
      : html`<a class="${kind} name" href=${hrefOf(path, name)} title=${name}>${name}</a>`;
  const note = (/** @type {string} */ text) => html`<p class="muted">${text}</p>`;
  return [
    html`<span class="mono">${id}</span>`,
    link(user, 'users', ''),
    link(address, 'addresses', 'mono'),
    server === '' ? '–' : `${server}${worker === undefined ? '' : ` · ${worker}`}`,
    [TRANSPORTS[transport] ?? transport, appId !== '' && note(`app ${appId}`)],
    connectedAt === undefined ? '–' : duration((Date.now() - connectedAt) / 1000),
    [
      unsentBytes === undefined ? '–' : bytes(unsentBytes),
      laggingRooms > 0 && note(`behind in ${plural(laggingRooms, 'room')}`),
    ],
    refusedMessages === undefined ? '–' : whole(refusedMessages),
    html`<div class="chips flex wrap">
      ${rooms.map((room) => link(room, 'rooms', 'chip'))}
      ${
        roomCount > rooms.length &&
        html`<span class="muted">and ${whole(roomCount - rooms.length)} more</span>`
      }
      ${roomCount === 0 && html`<span class="muted">none</span>`}
    </div>`,
    closeButton(app, id, reload),
  ];
}

/** @param {App} app @param {string} id @param {() => Promise<void>} reload */
function closeButton(app, id, reload) {
  const close = async () => {
    const { connections } = await actOn({ connectionId: id }, 'disconnect', reload);
    return connections > 0 ? `Connection ${id} closed.` : `Connection ${id} was gone already.`;
  };
  return html`<${ActionButton}
    key=${id} class="small" disabled=${!app.can('disconnect')}
    aria-label=${`Close connection ${id}`} action=${close}
  >Close<//>`;
}
